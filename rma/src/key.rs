//! The key of a job: what every endpoint proves to know before a byte of its traffic is served, and the proofs that
//! conduits build from it. The key itself never travels; it reaches the processes of a job over inherited
//! descriptors, never in a command line or an environment variable.

#![forbid(unsafe_code)]

use crate::error::{Result, RmaError};
use serde::{Deserialize, Serialize};
use std::fmt;

/// Length of a key, a nonce and a proof in bytes.
pub const KEY_BYTES: usize = 32;

/// The secret that the processes of one job share. Zeroed when dropped; never printed.
#[derive(Clone, Serialize, Deserialize)]
pub struct JobKey([u8; KEY_BYTES]);

/// A number that names a job to its own processes without telling anything about its key. Public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JobId(pub [u8; 16]);

/// A keyed digest. Comparing two takes the same time wherever they differ.
#[derive(Clone, Copy, Debug)]
pub struct Proof(blake3::Hash);

impl JobKey {
    /// A fresh random key.
    pub fn generate() -> Result<Self> {
        fresh_random().map(Self)
    }

    /// The key with these bytes: for the side that received them over an inherited descriptor, and for tests.
    pub fn from_bytes(bytes: [u8; KEY_BYTES]) -> Self {
        Self(bytes)
    }

    /// The secret bytes, to hand them to another process of the job.
    pub fn expose(&self) -> &[u8; KEY_BYTES] {
        &self.0
    }

    /// The public name of the job.
    pub fn job_id(&self) -> JobId {
        let digest = blake3::derive_key("vgas 2026 job id", &self.0);
        let mut id = [0; 16];
        id.copy_from_slice(&digest[..16]);
        JobId(id)
    }

    /// A proof of knowing the key, over `statement`. `purpose` separates protocols from one another, so that a proof
    /// made for one is worth nothing in another.
    pub fn prove(&self, purpose: &str, statement: &[u8]) -> Proof {
        let key = blake3::derive_key(purpose, &self.0);
        Proof(blake3::keyed_hash(&key, statement))
    }
}

impl Proof {
    /// The bytes to send.
    pub fn as_bytes(&self) -> &[u8; KEY_BYTES] {
        self.0.as_bytes()
    }

    /// Returns true if the received bytes are this proof; in constant time.
    pub fn matches(&self, received: &[u8; KEY_BYTES]) -> bool {
        // `blake3::Hash` documents that its equality with bytes is constant-time.
        self.0 == *received
    }
}

/// 32 bytes from the system's generator: keys and nonces.
pub fn fresh_random() -> Result<[u8; KEY_BYTES]> {
    let mut bytes = [0; KEY_BYTES];
    getrandom::fill(&mut bytes).map_err(|e| RmaError::io("draw random bytes", std::io::Error::other(e)))?;
    Ok(bytes)
}

impl fmt::Debug for JobKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JobKey(hidden)")
    }
}

impl Drop for JobKey {
    fn drop(&mut self) {
        self.0.fill(0);
        // The compiler must assume that the zeros are looked at, so it cannot leave the writes out.
        std::hint::black_box(&self.0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_differ_and_are_not_printed() {
        let (a, b) = (JobKey::generate().unwrap(), JobKey::generate().unwrap());
        assert_ne!(a.expose(), b.expose());
        assert_ne!(a.job_id(), b.job_id());
        assert_eq!(format!("{a:?}"), "JobKey(hidden)");
    }

    #[test]
    fn a_proof_binds_key_purpose_and_statement() {
        let key = JobKey::from_bytes([7; 32]);
        let proof = key.prove("purpose", b"statement");
        assert!(proof.matches(key.prove("purpose", b"statement").as_bytes()));
        assert!(!proof.matches(key.prove("purpose", b"Statement").as_bytes()));
        assert!(!proof.matches(key.prove("Purpose", b"statement").as_bytes()));
        assert!(!proof.matches(JobKey::from_bytes([8; 32]).prove("purpose", b"statement").as_bytes()));
    }
}
