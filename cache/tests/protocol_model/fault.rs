//! Planted faults: what a wrong protocol would do, and what a conduit must not. They are planted between the step
//! functions and the world, so the shipped code contains no trace of them.

use vgas_cache::protocol::{Confirm, Message, Right};
use vgas_rma::address::NodeId;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A holder acknowledges an invalidation and keeps its copy.
    ForgottenInvalidation,
    /// NVMe says "written", but is not.
    LostWriteBack,
    /// The writer is told to wait for one acknowledgement less.
    WrongAckCount,
    /// Messages between two nodes overtake each other.
    UnorderedChannel,
    /// The home lets a copy go, but keeps it in the directory.
    StaleDirectory,
    /// A holder that was E and wrote says that its copy equals NVMe.
    UnreportedWrite,
    /// The next owner does not learn that it is the owner.
    LostOwn,
    /// The home applies a small put while other nodes have copies.
    InPlaceBesideCopies,
    /// A holder drops its copy without asking the home.
    LeavesSilently,
    /// The requester does not tell that the page has arrived.
    LostDone,
    /// The home goes on without waiting for a forwarded page to arrive.
    ImpatientHome,
    /// The home takes a reader for a holder before the page has arrived there.
    ImpatientForReaders,
    /// A reader is given the page exclusively although there are other copies.
    ExclusiveBesideCopies,
    /// The home's agent serves others although a rank has claimed the page.
    ClaimUnseen,
    /// The home's agent publishes a page although others have copies.
    PublishedWithEntry,
    /// A rank claims a page that was not published, or not any more.
    ClaimOfWhatIsNotStored,
    /// The home's agent does not hear of a claim's end.
    ClaimsEndUnheard,
}

impl Fault {
    /// What becomes of a message: the messages that are sent instead of it.
    pub fn plant(self, from: u8, to: NodeId, message: Message) -> Vec<(u8, NodeId, Message)> {
        let sender = NodeId(u32::from(from));
        match (self, message) {
            (Fault::ForgottenInvalidation, Message::Invalidate { requester }) => {
                vec![(to.0 as u8, requester, Message::InvalidateAck)]
            }
            (Fault::WrongAckCount, Message::Grant { acks: 2.., confirm, clean }) => {
                vec![(from, to, Message::Grant { acks: 1, confirm, clean })]
            }
            (Fault::UnreportedWrite, Message::Data { right: Right::Shared, acks, confirm, .. }) => {
                vec![(from, to, Message::Data { right: Right::Shared, dirty: false, acks, confirm })]
            }
            (Fault::UnreportedWrite, Message::Evict { .. }) => {
                vec![(from, to, Message::Evict { dirty: false })]
            }
            (Fault::LostOwn, Message::Own) => vec![],
            (Fault::LostDone, Message::Done { .. }) => vec![],
            (
                Fault::ImpatientHome,
                Message::ForwardModified { requester, confirm: Confirm::Requester, .. },
            ) => {
                vec![(from, to, message), (requester.0 as u8, sender, Message::Done { dirty: true })]
            }
            (Fault::ImpatientHome, Message::Done { dirty: true }) => vec![],
            (
                Fault::ImpatientForReaders,
                Message::ForwardShared { requester, confirm: Confirm::Requester },
            ) => {
                vec![(from, to, message), (requester.0 as u8, sender, Message::Done { dirty: false })]
            }
            (Fault::ImpatientForReaders, Message::Done { dirty: false }) => vec![],
            (Fault::ExclusiveBesideCopies, Message::Data { right: Right::Shared, dirty, acks, confirm }) => {
                vec![(from, to, Message::Data { right: Right::Exclusive, dirty, acks, confirm })]
            }
            _ => vec![(from, to, message)],
        }
    }
}
