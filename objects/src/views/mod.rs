//! Owned objects as other libraries see them, each behind a feature of its name:
//!
//! | feature | what |
//! |---|---|
//! | `serde` | boxes, rows, text and maps are serialised as std's are, and made from what std's would be |
//! | `arrow` | a row of numbers is a [buffer](arrow::buffer) of Arrow's arrays, without a copy |
//! | `rkyv` | values of types that are not [`Portable`](crate::Portable), archived in the heap, and [read where they are](rkyv::DArchive) |

#[cfg(feature = "arrow")]
pub mod arrow;
#[cfg(feature = "rkyv")]
pub mod rkyv;
#[cfg(feature = "serde")]
mod serde;
