//! What somebody said that the protocol does not allow.

use super::home::{Event as HomeEvent, State as HomeState};
use super::line::{Event as LineEvent, State as LineState};
use vgas_rma::address::NodeId;

fn who(from: &Option<NodeId>) -> String {
    from.map_or_else(|| "this node's agent".into(), |node| node.to_string())
}

/// A wrong event. A line is unchanged by it; a directory entry may have served other requests in the same step, so
/// the agent ends the job, naming the peer, rather than go on with it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Violation {
    /// The line table has no row for it.
    #[error("{} caused {event:?}, which cannot happen to a line that is {state:?}", who(.from))]
    Line {
        /// Who sent it; `None` for a local event, which is the fault of this node's own agent.
        from: Option<NodeId>,
        /// The line's state.
        state: LineState,
        /// What happened.
        event: LineEvent,
    },
    /// The home table has no row for it.
    #[error("{} caused {event:?}, which cannot happen to a directory entry that is {state:?}", who(.from))]
    Home {
        /// Who sent it; `None` for a local event, which is the fault of this node's own agent.
        from: Option<NodeId>,
        /// The entry's state.
        state: HomeState,
        /// What happened.
        event: HomeEvent,
    },
    /// A message that only the home may send, or that only the home may get.
    #[error("{from} sent {what}, which is not its part to send")]
    WrongSender {
        /// Who sent it.
        from: NodeId,
        /// The kind of message.
        what: &'static str,
    },
    /// More acknowledgements than copies.
    #[error("{from} acknowledged an invalidation that was not asked for")]
    TooManyAcks {
        /// Who sent the one too many.
        from: NodeId,
    },
    /// A second request of one node for a page while its first one still waits.
    #[error("{from} asked again for a page while its first request still waits")]
    AskedTwice {
        /// Who asked.
        from: NodeId,
    },
    /// A request that contradicts what the directory knows of the asking node.
    #[error("{from} sent {what} although the directory {knows}")]
    Contradiction {
        /// Who asked.
        from: NodeId,
        /// The kind of message.
        what: &'static str,
        /// What the directory knows.
        knows: &'static str,
    },
}
