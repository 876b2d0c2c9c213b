//! The coherence protocol (MOESI-F, vGASNet §III.B–III.F) as three tables. Pure: no I/O, clock, lock, thread or unsafe;
//! what ships is what is walked exhaustively (`tests/protocol_walk.rs`) and told in stories
//! (`tests/protocol_stories`). Only the agent's short way (`agent/controller/fast_path.rs`) takes rows without asking; in builds with assertions, which tests are,
//! it asks, and must agree.
//!
//! **The promise.** It is as if there were one memory: a page has many readers or one writer, a read returns the
//! latest write, at most one node answers for a page (M, E, O to who writes, or the one that the forward array names), and
//! nothing that was written is ever dropped.
//!
//! **Two machines per page.** A node's copy is a [`Line`]: no copy (I), shared (S), owned (O), exclusive (E),
//! modified (M), or on the way from one to another. The page's [`Home`] keeps the directory and says who supplies
//! whom. The home's own node has a line like every other, and they talk in the same [`Message`]s.
//!
//! **Who brings it in.** A page that nobody has is read by the rank that wants it, without its agent; [`claim`] says how the two
//! keep out of each other's way.
//!
//! **What the driver owes.** Messages from one node to another (and to itself) arrive in the order in which they were
//! sent, and none is lost. The driver may hold a message back as long as it holds everything behind it back, too; so
//! it can wait for ranks to leave a page before rights are taken away. Nothing else is assumed: no order between
//! different channels, and an NVMe that completes when it likes.
//!
//! **How to read on.** [`message`] has the words; [`line::table`] and [`home::table`] have every decision; `PROTOCOL.md`
//! prints them with the reasons, and the stories show every message of the usual cases. Numbers (acknowledgements
//! still to come, who else has a copy) are compared while the event gets its name; rows hold no conditions.
#![forbid(unsafe_code)]

/// A table: for each state its rows, and the events that cannot happen there. The compiler refuses a missing cell (the match has no
/// wildcard) and a double one.
macro_rules! cells {
    ($($state:ident { $($event:ident => $next:ident [$($act:ident),*])* _ => never [$($never:ident)*] })*) => {
        /// The next state and the actions, or `None` where the event cannot happen.
        #[deny(unreachable_patterns)]
        pub fn cell(state: State, event: Event) -> Option<(State, &'static [Act])> {
            match state {
                $(State::$state => match event {
                    $(Event::$event => Some((State::$next, &[$(Act::$act),*])),)*
                    $(Event::$never => None,)*
                },)*
            }
        }
    };
}

/// Declares an enum whose values can be listed and named, for tables and logs.
macro_rules! words {
    ($(#[$meta:meta])* $name:ident { $($(#[doc = $text:literal])+ $word:ident,)* }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name { $($(#[doc = $text])+ $word,)* }

        impl $name {
            /// Every value, in the order of the documentation.
            pub const ALL: &'static [$name] = &[$($name::$word),*];

            /// The value as it is written in the table.
            pub fn name(self) -> &'static str {
                match self { $($name::$word => stringify!($word),)* }
            }

            /// The value that is written so.
            pub fn named(name: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.name() == name)
            }

            /// What it means, in a sentence or two.
            pub fn meaning(self) -> &'static str {
                match self { $($name::$word => concat!($($text),+).trim_ascii(),)* }
            }
        }
    };
}

pub mod array;
pub mod claim;
pub mod home;
pub mod line;
pub mod message;
pub mod place;
pub mod trace;
pub mod violation;

pub use array::ForwardArray;
pub use home::{Home, HomeAction, HomeActions, HomeEvent, Parameters};
pub use line::{Action, Actions, Line, LineEvent, Outcome};
pub use message::{Confirm, Message, Reason, Right};
pub use place::InPlaceService;
pub use violation::Violation;
