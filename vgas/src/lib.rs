//! (being written)
pub mod config;
pub mod info;
