//! Collectives and teams (`gasnet_coll.h`), on active messages.
//!
//! * `team`: who takes part. A team is a list of ranks; the team of all may have several *images* (threads that take part
//!   on their own) a rank.
//! * `post`, `arrival`, `departure`, `credit`: strings of bytes between members, in boxes by team, number of the operation,
//!   sender and tag. Short ones may arrive before their receiver has begun the operation, within limits; others are offered,
//!   and go straight to their place when it has.
//! * `operation`: one collective on this rank. It begins when all images of the rank have come, is a future over its box,
//!   and goes on whenever something arrives for it: in handlers, in polls, in waits. A thread that waits for one operation
//!   moves them all.
//! * `algorithm`, `reduction`, `barrier`: what the futures do.
//! * `call`: the arguments of all images of this rank become one operation; `export`: the functions of the header.
//!
//! Ranks begin the collectives of a team in the same order; they are numbered by team and image, so that any number may be
//! under way and teams may overlap. Data lies where the client has it, and is copied aside only where it must change before
//! it has left: of reductions, of several images, in place. Nothing is awaited but what the synchronisation flags
//! and the data ask for: the root of a broadcast does not wait for anybody without `GASNET_COLL_OUT_ALLSYNC`.

mod algorithm;
mod arrival;
pub mod barrier;
mod call;
mod credit;
mod departure;
pub mod export;
mod memory;
mod operation;
mod post;
mod reduction;
pub mod team;

pub(crate) use operation::progress;
pub(crate) use post::{HANDLER, on_message};
pub(crate) use team::prepare;

/// Flags of `gasnet_coll.h`.
mod flag {
    pub const AGGREGATE: i32 = 1 << 8;
    pub const IN_ALLSYNC: i32 = 1 << 2;
    pub const OUT_ALLSYNC: i32 = 1 << 5;
    pub const SINGLE: i32 = 1 << 6;
    pub const EXCLUSIVE_SCAN: i32 = 1 << 17;
    pub const NO_IMAGES: i32 = 1 << 19;
}
