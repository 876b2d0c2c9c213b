//! Work at the home for libraries (promise 14): a *service* runs inside the agent of each node, beside the protocol.
//! Ranks call it, whether the ranks of its node compute or not, and it reads, writes and updates the tiered memory whose home is
//! its node where it is.
//!
//! A library writes a type with its state on one node and implements [`Service`] for it. Requests and answers are types of its
//! own, which travel as `postcard`; what does not decode never reaches it. What it wants done it says to [`Home`], which is
//! carried out when the call has returned, and hears of the end later: a service never waits, and has no unsafe code.
//!
//! [`Trial`] is for the tests of a service: it needs no job, and the test says in which order things end.
//!
//! A service has one instance a node, used by one thread at a time, and is told of things in the order in which they happen. It
//! may keep what it likes; when the job ends it is gone.

mod library;
mod trial;

use crate::error::Failure;
use crate::partition::PartitionId;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt;
use std::marker::PhantomData;
use vgas_rma::address::{Layout, NodeId, Peer};
use vgas_shm::Update;

pub use library::Library;
pub use trial::Trial;

/// Work at the home; one value a node.
pub trait Service: Send + 'static {
    /// What it is asked, by ranks and by its like on other nodes.
    type Request: Serialize + DeserializeOwned;
    /// What it answers.
    type Answer: Serialize + DeserializeOwned;

    /// Its name: in errors, logs and statistics. Different services of a job have different names; the crate's name is a good
    /// beginning (`"mylib.queue"`).
    const NAME: &'static str;

    /// The library that it belongs to, if that has segments of its own. One that belongs to none is not called in its place, whatever its
    /// name.
    const LIBRARY: Library = Library::NONE;

    /// Somebody asks. Each call is answered once, now or later; the caller waits until then.
    fn called(&mut self, call: Call, request: Self::Request, home: &mut Home<'_, Self>)
    where
        Self: Sized;

    /// What it has said to [`Home::read`], [`Home::write`] or [`Home::update`] is done: with the bytes that were read, or that
    /// the word was; or not.
    fn done(&mut self, _ticket: u64, _result: Result<Vec<u8>, Failure>, _home: &mut Home<'_, Self>)
    where
        Self: Sized,
    {
    }

    /// Its like on another node has answered what was said to [`Home::ask`].
    fn answered(
        &mut self,
        _ticket: u64,
        _answer: Result<Self::Answer, ServiceError>,
        _home: &mut Home<'_, Self>,
    ) where
        Self: Sized,
    {
    }

    /// A node is lost, and the job goes on without it. What was asked of its like there has been answered with
    /// [`ServiceError::Lost`] by now; answers to calls from there go nowhere, but are still owed.
    fn lost(&mut self, _node: NodeId, _home: &mut Home<'_, Self>)
    where
        Self: Sized,
    {
    }

    /// Some time has passed: a second, more or less, if [`Home::call_again`] was said.
    fn again(&mut self, _home: &mut Home<'_, Self>)
    where
        Self: Sized,
    {
    }
}

/// Why a call was not answered by the service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum ServiceError {
    /// The node's daemon does not have it.
    #[error(
        "the daemons of this job do not run it: they must be of the program that has it (`vgas run --own-nodes`)"
    )]
    Unknown = 1,
    /// What arrived there is not its request: another version.
    #[error("it does not understand the request: caller and daemon have different versions of it")]
    Request = 2,
    /// What arrived here is not its answer.
    #[error("its answer cannot be understood: caller and daemon have different versions of it")]
    Answer = 3,
    /// Too long for a message.
    #[error("the request or its answer does not fit a message")]
    TooLong = 4,
    /// The job goes on without that node.
    #[error("its node is lost")]
    Lost = 5,
}

impl ServiceError {
    /// From its number in a message; another one is an answer that cannot be understood.
    pub(crate) fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Unknown,
            2 => Self::Request,
            4 => Self::TooLong,
            5 => Self::Lost,
            _ => Self::Answer,
        }
    }
}

/// Somebody who waits for an answer, or who has only told something and hears of no answer. Dropped without an answer, who waits
/// does so for ever.
#[derive(Debug, PartialEq, Eq, Hash)]
#[must_use = "whoever called waits for an answer"]
pub struct Call {
    pub(crate) from: Peer,
    /// None: nobody waits.
    pub(crate) slot: Option<u32>,
}

impl Call {
    /// Who calls: a rank, or the agent of another node.
    pub fn from(&self) -> Peer {
        self.from
    }

    /// Whether anybody waits; an answer goes nowhere otherwise.
    pub fn is_awaited(&self) -> bool {
        self.slot.is_some()
    }
}

/// What a service has said.
#[derive(Debug)]
pub(crate) enum Order {
    Answer(Call, Result<Vec<u8>, ServiceError>),
    Ask(NodeId, Result<Vec<u8>, ServiceError>, u64),
    PassOn(NodeId, Result<Vec<u8>, ServiceError>, Call),
    Read { of: PartitionId, offset: u64, bytes: u32, ticket: u64, only_here: bool },
    Write { of: PartitionId, offset: u64, data: Vec<u8>, ticket: u64 },
    Update { of: PartitionId, offset: u64, update: Update, ticket: u64 },
    CallAgain,
}

/// What a service can do, during a call. Everything is carried out afterwards, in this order.
pub struct Home<'a, S: ?Sized> {
    pub(crate) layout: &'a Layout,
    pub(crate) node: NodeId,
    pub(crate) now_ms: u64,
    pub(crate) orders: &'a mut Vec<Order>,
    pub(crate) service: PhantomData<fn() -> Box<S>>,
}

impl<S: Service> Home<'_, S> {
    /// The node.
    pub fn node(&self) -> NodeId {
        self.node
    }

    /// The job's nodes and ranks.
    pub fn layout(&self) -> &Layout {
        self.layout
    }

    /// Milliseconds since the agent began.
    pub fn now_ms(&self) -> u64 {
        self.now_ms
    }

    /// Answers a call.
    pub fn answer(&mut self, call: Call, answer: &S::Answer) {
        self.orders.push(Order::Answer(call, encode(answer)));
    }

    /// Asks the service of another node, or of this one; [`Service::answered`] hears of it under the ticket, a number of the
    /// caller's choice.
    pub fn ask(&mut self, node: NodeId, request: &S::Request, ticket: u64) {
        self.orders.push(Order::Ask(node, encode(request), ticket));
    }

    /// Leaves a call to the service of another node, which is asked this in the caller's name, and answers the caller: one message and the
    /// answer, as if it had been called first. Only calls of ranks; one of an agent is answered with [`ServiceError::Unknown`], and so
    /// is one that is passed to no node of the job. Its caller does not hear of it if the node that has it now is lost: a service whose job is
    /// to survive that passes on nothing.
    pub fn pass_on(&mut self, call: Call, node: NodeId, request: &S::Request) {
        self.orders.push(Order::PassOn(node, encode(request), call));
    }

    /// Reads tiered memory whose home is this node, from DRAM or NVMe; [`Service::done`] gets the bytes. Pages are brought to
    /// this node if others have them to write. At most 4 MiB; more, or what is not in the segment, or in a segment of a library other than
    /// the service's ([`Service::LIBRARY`]), ends with
    /// [`FailureKind::NoSuchPage`](crate::FailureKind::NoSuchPage).
    pub fn read(&mut self, of: impl Into<PartitionId>, offset: u64, bytes: u32, ticket: u64) {
        self.orders.push(Order::Read { of: of.into(), offset, bytes, ticket, only_here: false });
    }

    /// [`Home::read`], if all of it is in this node's memory; else, without delay, [`Service::done`] hears of
    /// [`FailureKind::NotInMemory`](crate::FailureKind::NotInMemory).
    pub fn read_in_memory(&mut self, of: impl Into<PartitionId>, offset: u64, bytes: u32, ticket: u64) {
        self.orders.push(Order::Read { of: of.into(), offset, bytes, ticket, only_here: true });
    }

    /// Writes tiered memory whose home is this node, at most 4 MiB. When [`Service::done`] hears of it, every later get anywhere
    /// sees it.
    pub fn write(&mut self, of: impl Into<PartitionId>, offset: u64, data: Vec<u8>, ticket: u64) {
        self.orders.push(Order::Write { of: of.into(), offset, data, ticket });
    }

    /// Updates a word of tiered memory whose home is this node; [`Service::done`] gets what it was, eight bytes in
    /// little-endian order.
    pub fn update(
        &mut self,
        of: impl Into<PartitionId>,
        offset: u64,
        update: impl Into<Update>,
        ticket: u64,
    ) {
        self.orders.push(Order::Update { of: of.into(), offset, update: update.into(), ticket });
    }

    /// Has [`Service::again`] called once, in a second or so.
    pub fn call_again(&mut self) {
        self.orders.push(Order::CallAgain);
    }
}

/// A request or an answer as it travels.
pub(crate) fn encode(value: &impl Serialize) -> Result<Vec<u8>, ServiceError> {
    postcard::to_allocvec(value).map_err(|_| ServiceError::TooLong)
}

/// From bytes of a peer; all of them.
pub(crate) fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Some(value),
        _ => None,
    }
}

/// What a service is called in messages: its name, mixed, with a bit that only the services of libraries have.
pub(crate) fn number_of(name: &str, library: Library) -> u32 {
    const OF_LIBRARY: u32 = 1 << 31;
    // FNV-1a, because it says the same in every process.
    let mixed =
        name.bytes().fold(0x811c_9dc5, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    mixed & !OF_LIBRARY | if library.is_owner() { OF_LIBRARY } else { 0 }
}

/// What happens to a service, whatever its types.
pub(crate) trait Registered: Send {
    fn name(&self) -> &'static str;
    fn library(&self) -> Library;
    /// False: the bytes are no request; the call is given back.
    fn called(&mut self, call: Call, request: &[u8], home: Bare<'_>) -> Result<(), Call>;
    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: Bare<'_>);
    fn answered(&mut self, ticket: u64, answer: Result<&[u8], ServiceError>, home: Bare<'_>);
    fn again(&mut self, home: Bare<'_>);
    fn lost(&mut self, node: NodeId, home: Bare<'_>);
}

/// [`Home`] for nobody in particular.
pub(crate) struct Bare<'a> {
    pub layout: &'a Layout,
    pub node: NodeId,
    pub now_ms: u64,
    pub orders: &'a mut Vec<Order>,
}

impl<'a> Bare<'a> {
    fn of<S: Service>(self) -> Home<'a, S> {
        let Self { layout, node, now_ms, orders } = self;
        Home { layout, node, now_ms, orders, service: PhantomData }
    }
}

impl<S: Service> Registered for S {
    fn name(&self) -> &'static str {
        S::NAME
    }

    fn library(&self) -> Library {
        S::LIBRARY
    }

    fn called(&mut self, call: Call, request: &[u8], home: Bare<'_>) -> Result<(), Call> {
        match decode(request) {
            Some(request) => Service::called(self, call, request, &mut home.of()),
            None => return Err(call),
        }
        Ok(())
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: Bare<'_>) {
        Service::done(self, ticket, result, &mut home.of());
    }

    fn answered(&mut self, ticket: u64, answer: Result<&[u8], ServiceError>, home: Bare<'_>) {
        let answer = answer.and_then(|bytes| decode(bytes).ok_or(ServiceError::Answer));
        Service::answered(self, ticket, answer, &mut home.of());
    }

    fn again(&mut self, home: Bare<'_>) {
        Service::again(self, &mut home.of());
    }

    fn lost(&mut self, node: NodeId, home: Bare<'_>) {
        Service::lost(self, node, &mut home.of());
    }
}

/// The services of a node, before its agent exists.
#[derive(Default)]
pub struct Services {
    pub(crate) all: Vec<Box<dyn Registered>>,
}

impl Services {
    /// Adds one.
    ///
    /// # Panics
    /// When another one has this name, or a name that is mixed to the same number: two libraries of a program that cannot be used
    /// together as they are.
    #[must_use]
    pub fn with<S: Service>(mut self, service: S) -> Self {
        let number = number_of(S::NAME, S::LIBRARY);
        let same = self.all.iter().find(|other| number_of(other.name(), other.library()) == number);
        assert!(
            same.is_none(),
            "the services {:?} and {:?} cannot be told apart",
            S::NAME,
            same.map(|same| same.name())
        );
        self.all.push(Box::new(service));
        self
    }
}

impl fmt::Debug for Services {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.all.iter().map(|service| service.name())).finish()
    }
}

/// What a node's service was asked and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, serde::Deserialize)]
pub struct ServiceCounts {
    /// Calls that reached it.
    pub calls: u64,
    /// Calls that did not: they could not be understood.
    pub refused: u64,
    /// Answers it has given.
    pub answers: u64,
    /// What it has asked its like on other nodes.
    pub asked: u64,
    /// Reads, writes and updates of tiered memory.
    pub pages: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_decode_as_a_whole_is_nothing() {
        let bytes = encode(&(7u32, "text".to_owned())).unwrap();
        assert_eq!(decode(&bytes), Some((7u32, "text".to_owned())));
        assert_eq!(decode::<(u32, String)>(&bytes[..bytes.len() - 1]), None);
        assert_eq!(decode::<(u32, String)>(&[&bytes[..], &[0]].concat()), None);
    }

    #[test]
    fn errors_survive_the_wire() {
        for error in [
            ServiceError::Unknown,
            ServiceError::Request,
            ServiceError::Answer,
            ServiceError::TooLong,
            ServiceError::Lost,
        ] {
            assert_eq!(ServiceError::from_code(error as u32), error);
        }
    }
}
