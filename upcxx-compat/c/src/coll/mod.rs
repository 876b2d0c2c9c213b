//! Collectives and teams (`gasnet_coll.h`), on active messages.
//!
//! * `team`: who takes part. A team is a list of ranks; the team of all may have several *images* (threads that take part
//!   on their own) a rank.
//! * `post`: strings of bytes between members, in boxes by team, number of the operation, sender and tag. A string may
//!   arrive before its receiver has begun the operation.
//! * `operation`: one collective on this rank. It begins when all images of the rank have come, is a future over its box,
//!   and goes on whenever something arrives for it: in handlers, in polls, in waits. A thread that waits for one operation
//!   moves them all.
//! * `algorithm`, `reduction`, `barrier`: what the futures do.
//! * `call`: the arguments of all images of this rank become one operation; `export`: the functions of the header.
//!
//! Ranks begin the collectives of a team in the same order; they are numbered by team and image, so that any number may be
//! under way and teams may overlap. All of a caller's bytes are copied when the operation begins and written when it ends:
//! the strings are private memory, whatever the segment is made of. Nothing is awaited but what the synchronisation flags
//! and the data ask for: the root of a broadcast does not wait for anybody without `GASNET_COLL_OUT_ALLSYNC`.

mod algorithm;
pub mod barrier;
mod call;
pub mod export;
mod operation;
mod post;
mod reduction;
pub mod team;

pub(crate) use operation::progress;
pub(crate) use post::{HANDLER, on_string};
pub(crate) use team::prepare;

/// Flags of `gasnet_coll.h`.
mod flag {
    pub const IN_ALLSYNC: i32 = 1 << 2;
    pub const OUT_ALLSYNC: i32 = 1 << 5;
    pub const SINGLE: i32 = 1 << 6;
    pub const EXCLUSIVE_SCAN: i32 = 1 << 17;
    pub const NO_IMAGES: i32 = 1 << 19;
}
