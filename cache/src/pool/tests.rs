//! The two views against each other, in one process.
