//! The event loop of an agent in a real job: its endpoint, its NVMe, its ranks.

use super::Agent;
use super::wire::{self, Coherence, Content, Origin};
use crate::error::CacheError;
use crate::protocol::Message;
use crate::request::{InPlace, InPlaceAnswer, PageIndex, Request, handler};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use vgas_rma::RmaError;
use vgas_rma::address::Peer;
use vgas_rma::cores;
use vgas_rma::endpoint::{Endpoint, Token};
use vgas_rma::message::Arrived;

/// How long an agent without work looks around, while a core is free for it, before it sleeps: waking an idle processor
/// costs tens of microseconds.
const LOOK: Duration = Duration::from_micros(50);

/// The same while the NVMe works for it: an answer takes some 20 to 100 µs.
const LOOK_STORAGE: Duration = Duration::from_micros(150);

/// Turns without work before it is asked whether a core is free: some 2 µs, within which an answer of a rank that is awake
/// comes.
const TURNS: u32 = 16;

/// Something that has arrived.
#[derive(Debug)]
enum Incoming {
    Request(Peer, Request, Box<[u8]>),
    Message(Peer, Coherence),
    Content(Peer, Content),
    Run(Peer, PageIndex, Message, Vec<u32>),
    InPlace(Peer, InPlace, Box<[u8]>),
    Answer(Peer, u32, InPlaceAnswer),
}

/// What an agent's handlers have taken in and the agent has not looked at yet.
#[derive(Debug, Default)]
pub struct Inbox {
    arrived: Mutex<Vec<Incoming>>,
    /// Empty; kept for its allocation.
    spare: Mutex<Vec<Incoming>>,
}

impl Inbox {
    fn push(&self, incoming: Incoming) {
        self.arrived.lock().unwrap_or_else(PoisonError::into_inner).push(incoming);
    }

    /// What has arrived, to be given back empty.
    fn take(&self) -> Vec<Incoming> {
        let mut arrived = self.arrived.lock().unwrap_or_else(PoisonError::into_inner);
        if arrived.is_empty() {
            return Vec::new();
        }
        let spare = std::mem::take(&mut *self.spare.lock().unwrap_or_else(PoisonError::into_inner));
        std::mem::replace(&mut arrived, spare)
    }

    fn give_back(&self, empty: Vec<Incoming>) {
        *self.spare.lock().unwrap_or_else(PoisonError::into_inner) = empty;
    }
}

/// Registers the handlers of an agent; before its endpoint is opened.
pub fn register(endpoint: &Endpoint) -> Result<Arc<Inbox>, CacheError> {
    let inbox = Arc::new(Inbox::default());
    let nodes = endpoint.layout().nodes();
    fn bytes(payload: Arrived<'_>) -> &[u8] {
        match payload {
            Arrived::Medium(bytes) => bytes,
            _ => &[],
        }
    }
    let add =
        |index: u8, parse: fn(Peer, &[u32], Arrived<'_>, u32) -> Option<Incoming>| {
            let inbox = inbox.clone();
            endpoint.register(index, move |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
                match parse(token.from(), arguments, payload, nodes) {
                    Some(incoming) => inbox.push(incoming),
                    None => token.refuse(format!("words {arguments:?} mean nothing to an agent")),
                }
            })
        };
    add(handler::COHERENCE, |from, arguments, _, nodes| {
        let coherence = Coherence::decode(arguments, nodes)?;
        // Only the zeros of a page that was never written need no content.
        let zeros = matches!(coherence.message, Message::Data { .. }) && coherence.origin == Origin::Zeros;
        (!coherence.message.carries_page() || zeros).then_some(Incoming::Message(from, coherence))
    })?;
    add(handler::DATA, |from, arguments, payload, nodes| {
        let Arrived::Long(..) = payload else { return None };
        if let Some(content) = Content::decode(arguments, nodes) {
            return Some(Incoming::Content(from, content));
        }
        let coherence = Coherence::decode(arguments, nodes)?;
        coherence.message.carries_page().then_some(Incoming::Message(from, coherence))
    })?;
    add(handler::RUN, |from, arguments, payload, nodes| {
        let (page, message, frames) = wire::decode_run(arguments, bytes(payload), nodes)?;
        Some(Incoming::Run(from, page, message, frames))
    })?;
    add(handler::REQUEST, |from, arguments, payload, _| {
        Some(Incoming::Request(from, Request::decode(arguments)?, bytes(payload).into()))
    })?;
    add(handler::IN_PLACE, |from, arguments, payload, _| {
        Some(Incoming::InPlace(from, InPlace::decode(arguments)?, bytes(payload).into()))
    })?;
    add(handler::IN_PLACE_ANSWER, |from, arguments, _, _| {
        let (number, answer) = InPlaceAnswer::decode(arguments)?;
        Some(Incoming::Answer(from, number, answer))
    })?;
    Ok(inbox)
}

/// Has the endpoint take content of pages only where the agent waits for it; before the endpoint is opened.
pub fn guard(agent: &Agent, endpoint: &Endpoint) -> Result<(), CacheError> {
    let expected = agent.expected();
    Ok(endpoint.guard_frames(Box::new(move |from, offset, bytes| expected.allows(from, offset, bytes)))?)
}

/// Takes in what has arrived, and lets the agent go on. True when anything happened. Never blocks.
pub fn turn(agent: &mut Agent, endpoint: &Endpoint, inbox: &Inbox) -> Result<bool, CacheError> {
    let mut any = endpoint.poll()? > 0;
    let mut arrived = inbox.take();
    any |= !arrived.is_empty();
    for incoming in arrived.drain(..) {
        match incoming {
            Incoming::Request(from, request, data) => agent.on_request(from, request, &data)?,
            Incoming::Message(from, coherence) => agent.on_message(from, coherence)?,
            Incoming::Content(from, content) => agent.on_content(from, content)?,
            Incoming::Run(from, page, message, frames) => agent.on_run(from, page, message, &frames)?,
            Incoming::InPlace(from, InPlace::Get { bytes, .. } | InPlace::Part { bytes, .. }, _)
                if bytes as usize > endpoint.medium_bytes_max() =>
            {
                let what = format!("asked for {bytes} bytes in one message");
                return Err(CacheError::Protocol { who: endpoint.layout().describe(from), what });
            }
            Incoming::InPlace(from, operation, data) => agent.on_in_place(from, operation, &data)?,
            Incoming::Answer(from, number, answer) => agent.on_in_place_answer(from, number, answer)?,
        }
    }
    if arrived.capacity() > 0 {
        inbox.give_back(arrived);
    }
    any |= agent.advance()?;
    any |= agent.flush(endpoint)?;
    Ok(any)
}

/// Runs the agent until `stopped`; `stop` is readable from then on.
pub fn run(
    agent: &mut Agent,
    endpoint: &Endpoint,
    inbox: &Inbox,
    stop: BorrowedFd<'_>,
    stopped: impl Fn() -> bool,
) -> Result<(), CacheError> {
    let mut idle = Idle::default();
    loop {
        if turn(agent, endpoint, inbox)? {
            idle = Idle::default();
            continue;
        }
        if stopped() {
            agent.close();
            return Ok(());
        }
        if idle.may_look_on(agent.awaits_storage()) {
            std::hint::spin_loop();
        } else if agent.revoking() {
            // Whoever leaves a page tells nobody. It is in the middle of a copy, or was interrupted there.
            cores::nap(&mut idle.naps);
        } else {
            sleep(agent, endpoint, stop)?;
            agent.look_at_clock();
            idle = Idle::default();
        }
    }
}

/// Turns of an agent that had nothing to do.
#[derive(Default)]
struct Idle {
    turns: u32,
    since: Option<Instant>,
    naps: u32,
}

impl Idle {
    /// Whether to look around once more, rather than to sleep.
    fn may_look_on(&mut self, awaits_storage: bool) -> bool {
        self.turns = self.turns.saturating_add(1);
        if self.turns < TURNS {
            return true;
        }
        let look = if awaits_storage { LOOK_STORAGE } else { LOOK };
        self.since.get_or_insert_with(Instant::now).elapsed() < look && cores::spare()
    }
}

fn sleep(agent: &mut Agent, endpoint: &Endpoint, stop: BorrowedFd<'_>) -> Result<(), CacheError> {
    if endpoint.arm() {
        // A fault is posted without a message, and room for a message that was refused may have come before the bell was
        // ready to ring.
        let has_come = agent.faults_wait() || agent.claims_ended();
        if !has_come && !agent.flush(endpoint)? && agent.volume().arm() {
            let patience = agent.patience();
            let descriptors = endpoint.wait_descriptors();
            let storage = agent.volume().wait_descriptor();
            let mut all: Vec<PollFd<'_>> = descriptors
                .iter()
                .chain([&storage, &stop])
                .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
                .collect();
            let timeout =
                Timespec { tv_sec: patience.as_secs() as i64, tv_nsec: i64::from(patience.subsec_nanos()) };
            let slept = poll(&mut all, Some(&timeout));
            agent.volume().disarm();
            match slept {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(RmaError::system("wait for messages", e).into()),
            }
        }
        endpoint.disarm();
    }
    Ok(())
}
