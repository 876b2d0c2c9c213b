//! What owned objects in a global heap stand on (drust-osdi24.txt): coloured pointers, the protocol of their colours, the allocator of a
//! rank's partition, and which types may lie there.

// The derives name this crate as programs do.
extern crate self as vgas_objects;

pub mod colour;
mod portable;
pub mod slab;
mod word;

pub use portable::{Portable, Shareable};
pub use vgas_objects_derive::{Portable, Shareable};
pub use word::{ADDRESS_BITS, Colour, Link, Word};
