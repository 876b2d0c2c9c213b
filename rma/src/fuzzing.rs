//! Entry points for fuzz targets: for each decoder of other processes' bytes, a function that takes any bytes
//! and panics if the decoder does, or if the decoded value does not round-trip. Built only for tests and
//! fuzzing (`fuzz/README.md`); not a public interface.

pub use crate::collective::fuzzing::collective_messages;
pub use crate::conduit::ibv::fuzzing::{ibv_notice, ibv_packet};
pub use crate::conduit::ofi::fuzzing::{ofi_notice, ofi_packet};
pub use crate::conduit::smp::fuzzing::{smp_hotline, smp_ring};
pub use crate::conduit::wire::fuzzing::{tcp_frame, tcp_handshake};
pub use crate::endpoint::fuzzing::endpoint_lists;

/// The bytes as numbers; what is left of the last one is dropped.
pub(crate) fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}
