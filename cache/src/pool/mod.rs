//! The memory that all processes of a node share: frames, the page table, and the way to use both without a lock.
//!
//! One pool per node (promise 2): the node's agent ([`PoolAgent`], one for each of its threads, which have the pages
//! among them: [`TableLayout::shard_of`]) makes and takes away rights, its ranks
//! ([`PoolClient`]) use them. A use that needs nobody's help costs no lock, no system call and no locked instruction
//! (promise 1). What it is not: the protocol, which decides *what* becomes of a page ([`crate::protocol`]), nor the
//! policy that chooses victims ([`crate::replacement`]).
//!
//! # The handshake between users and the agent
//!
//! Each thread of a rank owns a *hazard slot*, two cache lines in the table. To use a page it
//!
//! 1. writes the page's number into its slot,
//! 2. loads the page's entry, and goes on only if the entry grants the right and HOLD is not set,
//! 3. copies, and clears the slot.
//!
//! To take a right away, the agent sets HOLD, then looks through the slots: a page that stands in one is still in use,
//! and is looked at again later; the agent never waits. Between a user's 1 and 2, and between the agent's two steps,
//! each side's write must precede its read in the one order that both see; otherwise both could miss each other.
//! A fence on both sides does that, but costs the user more than its copy. So the agent pays for both: it calls
//! `membarrier(MEMBARRIER_CMD_GLOBAL_EXPEDITED)` once for a batch of pages, which runs a full barrier on every processor
//! that runs a registered process. Seen from a user, that barrier falls before its step 1 (then step 2 sees HOLD), after
//! its step 2 (then the agent sees the slot), or between them (then both). Where `membarrier` is refused, users do execute
//! the fence ([`Fences`]).
//!
//! # Claims
//!
//! A page of this node's own that nobody has is *published* in its word; a rank may claim it there, fill a free frame and show it
//! ([`PoolClient::claim`]). Who may take which step says [`crate::protocol::claim`]. Frames that ranks have filled go on a stack,
//! until the agent takes them over ([`PoolAgent::take_filled`]). While the agent knows nothing of such a page its owner may
//! keep it for plain pointers, by a pin and a mark on the frame ([`PoolClient::map_own`]).
//!
//! # Pins
//!
//! A *read pin* keeps a frame where it is: its page is not evicted, and when another node writes the page, the frame
//! keeps the bytes of that moment until it is unpinned; [`PinnedPage::is_current`] tells. A *write pin* keeps the page:
//! other nodes wait for the unpin, so it is to be short. A page with a write pin is not left on HOLD, so that the
//! pinning thread and its neighbours can go on using it.
//!
//! # Rules for the unsafe code in this folder
//!
//! Only `client.rs` and `pin.rs` contain any (`hazard.rs` has the steps of the handshake, in atomics). Shared words are only
//! ever reached as atomics.
//!
//! 1. *Life.* Raw addresses into the two mappings are kept only beside an `Arc` of the mapping, or, in thread-local
//!    storage, under the identity of a client that holds it and that must be presented to use them. A [`mirror`] keeps
//!    them beside a client that is never dropped.
//! 2. *Bounds.* Every index is compared with the layout's limit before it becomes an address, whether it came from the
//!    caller or from shared memory; the mappings are checked against the layout when a view is made.
//! 3. *Use.* Bytes of a page's frame are touched only between steps 2 and 3 above, or under a pin taken there, or by the
//!    agent, or by the process to which a free frame was handed.
//! 4. *Races.* Ranks may race on bytes that the program did not synchronise; such bytes are copied, never referenced
//!    (rules 1 and 4 of [`vgas_shm`]).

mod agent;
mod blocks;
mod client;
mod counters;
mod entry;
mod fault;
mod fence;
mod hazard;
mod layout;
pub mod mirror;
mod part;
mod pin;
mod queue;
mod row;
mod shared;
mod size;
#[cfg(test)]
mod tests;
mod wait;

pub use agent::{Intent, Outcome, PoolAgent};
pub use blocks::Leaving;
pub use client::{Attempt, Claim, Own, PoolClient, StagedFrame};
pub use counters::{Counter, CounterSnapshot};
pub use entry::{Entry, PageState};
pub use fault::{ClaimedSlot, Fault, FaultId, FaultSlots, Returned};
pub use fence::Fences;
pub use layout::{AGENT_THREADS_MAX, INLINE_BYTES, MAPPED_PAGES_MIN, PoolSpec, TableLayout};
pub use part::{Page, PagePart};
pub use pin::{PinMode, PinnedPage};
pub use row::{Known, Row};
pub use shared::{FrameUse, Pins};
pub use size::{FrameId, PAGE_BYTES_MAX, PAGE_BYTES_MIN, PageSize};
pub use wait::{Completed, WaitId, WaitStatus};

/// What can go wrong with a pool.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PoolError {
    /// Numbers that make no pool.
    #[error("cannot lay out a cache pool: {0}")]
    Spec(String),
    /// The shared memory is not the table this process expects.
    #[error("the node's page table does not fit this process: {0}")]
    Mismatch(String),
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    System {
        /// What was attempted.
        what: &'static str,
        /// Its reason.
        source: std::io::Error,
    },
    /// A number from a rank, or from shared memory, that names nothing.
    #[error("{what} {value} is out of range (limit {limit})")]
    OutOfRange {
        /// Page, frame, wait slot, rank.
        what: &'static str,
        /// The number.
        value: u64,
        /// The first number that is too large.
        limit: u64,
    },
    /// A frame that is not in the hands of the one who gives it away.
    #[error("frame {} is {found:?}, not {expected}", .frame.0)]
    FrameUse {
        /// Which.
        frame: FrameId,
        /// What it is.
        found: FrameUse,
        /// What was claimed.
        expected: &'static str,
    },
}
