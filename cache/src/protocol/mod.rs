//! The coherence protocol (MOESI-F, vGASNet §III.B–III.F) as two tables. Pure: no I/O, clock, lock or thread.
#![forbid(unsafe_code)]

pub mod array;
pub mod home;
pub mod line;
pub mod message;
pub mod place;
pub mod violation;

pub use array::ForwardArray;
pub use home::{Home, HomeAction, HomeActions, HomeEvent, Parameters};
pub use line::{Action, Actions, Line, LineEvent, Outcome};
pub use message::{Confirm, Message, Reason, Right};
pub use place::InPlaceService;
pub use violation::Violation;
