//! (being written)

pub mod pool;
pub mod protocol;
pub mod read_ahead;
pub mod replacement;
