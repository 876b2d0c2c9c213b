//! The manual: what the reference pages of single items do not say.

pub mod costs;
pub mod limits;
pub mod survival;
pub mod tasks;
