//! The manual: topics beyond the reference pages of single items.

pub mod costs;
pub mod limits;
pub mod survival;
pub mod tasks;
