//! Handshake of two endpoints before their connection carries traffic. Pure: bytes in, bytes or a refusal
//! out; the door of a conduit (`tcp::door`) moves the bytes and keeps the time.
//!
//! ```text
//! opener                                                  acceptor
//!   hello: magic, version, from, to, job id, nonce  ───▶
//!                                    ◀───  challenge: magic, version, nonce
//!   proof of the opener                             ───▶   (nothing but `hello` was revealed or believed so far)
//!                                    ◀───  verdict, proof of the acceptor over it
//! ```
//!
//! A proof is a keyed BLAKE3 digest over the prover's role, the version, both peers' numbers and both nonces.
//! The role keeps a proof from being sent back to its maker, the numbers keep it from being used for another
//! pair, the nonces from being used again. The acceptor, which any stranger can reach, answers with a proof
//! only after the opener's. The handshake authenticates the other end; it does not encrypt what follows: use
//! a network that you trust with the data, as for MPI.
//!
//! Both peers may open a connection at the same time. [`judge`] then keeps the one that the lower peer opened; the
//! other opener is told [`Verdict::Redundant`] and waits for that connection.

#![forbid(unsafe_code)]

use super::frame::VERSION;
use crate::address::Peer;
use crate::key::{JobId, JobKey, KEY_BYTES, Proof};

const MAGIC: [u8; 8] = *b"vgas-tcp";
const PURPOSE: &str = "vgas 2026 tcp handshake";

/// Bytes of a hello.
pub(in crate::conduit) const HELLO_BYTES: usize = 8 + 2 + 4 + 4 + 16 + KEY_BYTES;
/// Bytes of a challenge.
pub(in crate::conduit) const CHALLENGE_BYTES: usize = 8 + 2 + KEY_BYTES;
/// Bytes of a verdict and its proof.
pub(in crate::conduit) const VERDICT_BYTES: usize = 1 + KEY_BYTES;
/// Most bytes of any message of the handshake.
pub(in crate::conduit) const STEP_BYTES_MAX: usize = HELLO_BYTES;

const _: () = assert!(CHALLENGE_BYTES <= STEP_BYTES_MAX && VERDICT_BYTES <= STEP_BYTES_MAX);

/// A number used once.
pub(in crate::conduit) type Nonce = [u8; KEY_BYTES];

/// Why the other side is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(in crate::conduit) enum Refusal {
    #[error("it does not speak the vgas protocol")]
    NotVgas,
    #[error("it speaks version {0} of the protocol, this is version {VERSION}: use the same vgas everywhere")]
    Version(u16),
    #[error("it belongs to another job")]
    OtherJob,
    #[error("it claims to be peer {0} calling peer {1}, which cannot be")]
    Peers(u32, u32),
    #[error("it did not prove that it knows the job's key")]
    WrongKey,
    #[error("it sent an unknown verdict")]
    Verdict,
}

/// An acceptor's decision about a proven opener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::conduit) enum Verdict {
    /// This connection carries the pair's traffic from now on.
    Welcome,
    /// Another connection of the same pair does or will.
    Redundant,
}

/// Identities of the two sides, and their nonces: the subject of proofs.
#[derive(Clone, Copy, Debug)]
pub(in crate::conduit) struct Session {
    pub(in crate::conduit) from: Peer,
    pub(in crate::conduit) to: Peer,
    pub(in crate::conduit) opener_nonce: Nonce,
    pub(in crate::conduit) acceptor_nonce: Nonce,
}

impl Session {
    /// Returns the opener's third message.
    pub(in crate::conduit) fn opener_proof(&self, key: &JobKey) -> Proof {
        self.proof(key, b'O', 0)
    }

    /// Returns the acceptor's last message.
    pub(in crate::conduit) fn verdict(&self, key: &JobKey, verdict: Verdict) -> [u8; VERDICT_BYTES] {
        let code = verdict as u8;
        let mut bytes = [0; VERDICT_BYTES];
        bytes[0] = code;
        bytes[1..].copy_from_slice(self.proof(key, b'A', code).as_bytes());
        bytes
    }

    /// Checks the last message.
    pub(in crate::conduit) fn read_verdict(
        &self,
        key: &JobKey,
        bytes: &[u8; VERDICT_BYTES],
    ) -> Result<Verdict, Refusal> {
        let mut proof = [0; KEY_BYTES];
        proof.copy_from_slice(&bytes[1..]);
        if !self.proof(key, b'A', bytes[0]).matches(&proof) {
            return Err(Refusal::WrongKey);
        }
        match bytes[0] {
            code if code == Verdict::Welcome as u8 => Ok(Verdict::Welcome),
            code if code == Verdict::Redundant as u8 => Ok(Verdict::Redundant),
            _ => Err(Refusal::Verdict),
        }
    }

    fn proof(&self, key: &JobKey, role: u8, verdict: u8) -> Proof {
        let mut statement = Vec::with_capacity(2 + 2 + 8 + 2 * KEY_BYTES);
        statement.extend_from_slice(&[role, verdict]);
        statement.extend_from_slice(&VERSION.to_le_bytes());
        statement.extend_from_slice(&self.from.0.to_le_bytes());
        statement.extend_from_slice(&self.to.0.to_le_bytes());
        statement.extend_from_slice(&self.opener_nonce);
        statement.extend_from_slice(&self.acceptor_nonce);
        key.prove(PURPOSE, &statement)
    }
}

/// The first message.
pub(in crate::conduit) fn hello(job: JobId, from: Peer, to: Peer, nonce: &Nonce) -> [u8; HELLO_BYTES] {
    let mut bytes = [0; HELLO_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..14].copy_from_slice(&from.0.to_le_bytes());
    bytes[14..18].copy_from_slice(&to.0.to_le_bytes());
    bytes[18..34].copy_from_slice(&job.0);
    bytes[34..].copy_from_slice(nonce);
    bytes
}

/// Checks a hello that came to `me`, one of `peers`: returns the claimed caller, and its nonce.
pub(in crate::conduit) fn read_hello(
    job: JobId,
    me: Peer,
    peers: u32,
    bytes: &[u8; HELLO_BYTES],
) -> Result<(Peer, Nonce), Refusal> {
    check_magic(bytes)?;
    let from = u32::from_le_bytes([bytes[10], bytes[11], bytes[12], bytes[13]]);
    let to = u32::from_le_bytes([bytes[14], bytes[15], bytes[16], bytes[17]]);
    if bytes[18..34] != job.0 {
        return Err(Refusal::OtherJob);
    }
    if to != me.0 || from == me.0 || from >= peers {
        return Err(Refusal::Peers(from, to));
    }
    let mut nonce = [0; KEY_BYTES];
    nonce.copy_from_slice(&bytes[34..]);
    Ok((Peer(from), nonce))
}

/// The second message.
pub(in crate::conduit) fn challenge(nonce: &Nonce) -> [u8; CHALLENGE_BYTES] {
    let mut bytes = [0; CHALLENGE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
    bytes[10..].copy_from_slice(nonce);
    bytes
}

/// Checks a challenge: the acceptor's nonce.
pub(in crate::conduit) fn read_challenge(bytes: &[u8; CHALLENGE_BYTES]) -> Result<Nonce, Refusal> {
    check_magic(bytes)?;
    let mut nonce = [0; KEY_BYTES];
    nonce.copy_from_slice(&bytes[10..]);
    Ok(nonce)
}

fn check_magic(bytes: &[u8]) -> Result<(), Refusal> {
    if bytes[..8] != MAGIC {
        return Err(Refusal::NotVgas);
    }
    match u16::from_le_bytes([bytes[8], bytes[9]]) {
        VERSION => Ok(()),
        other => Err(Refusal::Version(other)),
    }
}

/// Decides which connection of a pair is kept. `opening`: this side has an own attempt in flight; `open`: the
/// pair has a connection already.
///
/// No message is lost, because traffic flows only on a connection that was welcomed, and at most one is: the lower
/// peer refuses while its own attempt is in flight, and the higher one welcomes that attempt, dropping its own.
pub(in crate::conduit) fn judge(me: Peer, opener: Peer, opening: bool, open: bool) -> Verdict {
    if open || (opening && me < opener) { Verdict::Redundant } else { Verdict::Welcome }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session() -> Session {
        Session { from: Peer(1), to: Peer(2), opener_nonce: [3; 32], acceptor_nonce: [4; 32] }
    }

    #[test]
    fn a_hello_is_believed_only_in_full() {
        let job = JobKey::from_bytes([1; 32]).job_id();
        let good = hello(job, Peer(1), Peer(2), &[9; 32]);
        assert_eq!(read_hello(job, Peer(2), 3, &good), Ok((Peer(1), [9; 32])));
        let changed = |at: usize| {
            let mut bytes = good;
            bytes[at] ^= 0x40;
            read_hello(job, Peer(2), 3, &bytes)
        };
        assert_eq!(changed(0), Err(Refusal::NotVgas));
        assert_eq!(changed(8), Err(Refusal::Version(VERSION ^ 0x40)));
        assert!(matches!(changed(10), Err(Refusal::Peers(..))), "a peer beyond the job's");
        assert!(matches!(changed(14), Err(Refusal::Peers(..))), "a call to somebody else");
        assert_eq!(changed(20), Err(Refusal::OtherJob));
        let own = hello(job, Peer(2), Peer(2), &[9; 32]);
        assert!(
            matches!(read_hello(job, Peer(2), 3, &own), Err(Refusal::Peers(..))),
            "reflected to its maker"
        );
    }

    #[test]
    fn proofs_are_bound_to_role_pair_and_nonces() {
        let key = JobKey::from_bytes([1; 32]);
        let opener = session().opener_proof(&key);
        let mut others = vec![session(); 4];
        others[0].from = Peer(3);
        others[1].to = Peer(3);
        others[2].opener_nonce[31] ^= 1;
        others[3].acceptor_nonce[0] ^= 1;
        for other in others {
            assert!(!other.opener_proof(&key).matches(opener.as_bytes()), "{other:?}");
        }
        let swapped = Session { from: Peer(2), to: Peer(1), ..session() };
        assert!(!swapped.opener_proof(&key).matches(opener.as_bytes()));
        for verdict in [Verdict::Welcome, Verdict::Redundant] {
            let bytes = session().verdict(&key, verdict);
            assert_eq!(session().read_verdict(&key, &bytes), Ok(verdict));
            assert_ne!(bytes[1..], opener.as_bytes()[..], "an opener's proof is not an acceptor's");
            let mut turned = bytes;
            turned[0] ^= 1;
            assert_eq!(
                session().read_verdict(&key, &turned),
                Err(Refusal::WrongKey),
                "the verdict is proved too"
            );
            let other_key = JobKey::from_bytes([2; 32]);
            assert_eq!(session().read_verdict(&other_key, &bytes), Err(Refusal::WrongKey));
        }
    }

    /// Both sides open at once: whatever the order of events, exactly one connection is welcomed.
    #[test]
    fn two_openers_end_with_one_connection() {
        let (low, high) = (Peer(1), Peer(2));
        assert_eq!(judge(low, high, true, false), Verdict::Redundant);
        assert_eq!(judge(high, low, true, false), Verdict::Welcome);
        for (me, opener) in [(low, high), (high, low)] {
            assert_eq!(judge(me, opener, false, false), Verdict::Welcome);
            assert_eq!(judge(me, opener, false, true), Verdict::Redundant);
        }
    }
}
