//! (being written)
pub mod config;
