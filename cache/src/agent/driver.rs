//! The event loop of an agent in a real job: its endpoint, its NVMe, its ranks.

use super::Agent;
use super::shards::{Incoming, Shards};
use super::wire::{self, Coherence, Content, Origin};
use crate::error::CacheError;
use crate::pool::PageSize;
use crate::protocol::Message;
use crate::region;
use crate::request::{InPlace, InPlaceAnswer, Request, handler};
use crate::service::ServiceError;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};
use vgas_rma::RmaError;
use vgas_rma::address::Peer;
use vgas_rma::endpoint::{Endpoint, Token};
use vgas_rma::message::Arrived;
use vgas_shm::bell::Sleeps;
use vgas_shm::cores;

/// How long an agent without work looks around, while a core is free for it, before it sleeps: waking an idle processor
/// costs tens of microseconds.
const LOOK: Duration = Duration::from_micros(50);

/// The same while the NVMe works for it: an answer takes some 20 to 100 µs.
const LOOK_STORAGE: Duration = Duration::from_micros(150);

/// Turns without work before it is asked whether a core is free: one to two microseconds, within which an answer of a rank that is awake
/// comes.
const TURNS: u32 = 4;

/// Registers the handlers of an agent, of any of its shards; before its endpoint is opened.
pub fn register(agent: &Agent, endpoint: &Endpoint) -> Result<(), CacheError> {
    let nodes = endpoint.layout().nodes();
    let add =
        |index: u8, parse: fn(Peer, &[u32], Arrived<'_>, u32) -> Option<Incoming>| {
            let shards = agent.shards().clone();
            endpoint.register(index, move |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
                match parse(token.from(), arguments, payload, nodes) {
                    Some(incoming) => shards.route(incoming),
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
        let Arrived::Long(_, bytes) = payload else { return None };
        let size = PageSize::of_bytes(u32::try_from(bytes).ok()?)?;
        if let Some(content) = Content::decode(arguments, size, nodes) {
            return Some(Incoming::Content(from, content));
        }
        let coherence = Coherence::decode(arguments, nodes)?;
        coherence.message.carries_page().then_some(Incoming::Message(from, coherence))
    })?;
    add(handler::SEVERAL, |from, arguments, payload, nodes| {
        let (message, pages) = wire::decode_several(arguments, payload.medium_bytes(), nodes)?;
        Some(Incoming::Several(from, message, pages))
    })?;
    add(handler::REQUEST, |from, arguments, payload, _| {
        Some(Incoming::Request(from, Request::decode(arguments)?, payload.medium_bytes().into()))
    })?;
    add(handler::IN_PLACE, |from, arguments, payload, _| {
        Some(Incoming::InPlace(from, InPlace::decode(arguments)?, payload.medium_bytes().into()))
    })?;
    add(handler::IN_PLACE_ANSWER, |from, arguments, _, _| {
        let (number, answer) = InPlaceAnswer::decode(arguments)?;
        Some(Incoming::Answer(from, number, answer))
    })?;
    add(handler::SERVICE, |from, arguments, payload, _| {
        Some(Incoming::Service(from, arguments.try_into().ok()?, payload.medium_bytes().into()))
    })?;
    add(handler::SERVICE_ANSWER, |from, arguments, payload, _| {
        Some(Incoming::ServiceAnswer(from, arguments.try_into().ok()?, payload.medium_bytes().into()))
    })?;
    // Content of pages is taken only where the agent waits for it.
    let expected = agent.shards().expected().clone();
    Ok(endpoint
        .guard(region::FRAMES, Box::new(move |from, offset, bytes| expected.allows(from, offset, bytes)))?)
}

/// Takes in what has arrived, and lets the shard go on. True when anything happened. Never blocks.
pub fn turn(agent: &mut Agent, endpoint: &Endpoint) -> Result<bool, CacheError> {
    agent.cache.ctx.message_bytes_max = endpoint.medium_bytes_max();
    let (shards, number) = (agent.shards().clone(), agent.shard());
    let mut any = match shards.try_poll() {
        // One at a time: what arrives keeps its order.
        Some(_polling) => endpoint.poll()? > 0,
        None => false,
    };
    if number == 0 {
        any |= agent.hear_of_losses(endpoint)?;
    }
    // Of all shards: only the first one is woken for it.
    let posted = agent.cache.take_faults()?;
    if posted && number == 0 {
        shards.ring_others(0);
    }
    any |= posted;
    let mut arrived = shards.take(number);
    any |= !arrived.is_empty();
    for incoming in arrived.drain(..) {
        match incoming {
            Incoming::Request(from, request, data) => agent.on_request(from, request, &data)?,
            Incoming::Message(from, coherence) => agent.on_message(from, coherence)?,
            Incoming::Content(from, content) => agent.on_content(from, content)?,
            Incoming::Several(from, message, pages) => agent.on_several(from, message, &pages)?,
            Incoming::InPlace(from, InPlace::Get { bytes, .. } | InPlace::Part { bytes, .. }, _)
                if bytes as usize > endpoint.medium_bytes_max() =>
            {
                let what = format!("asked for {bytes} bytes in one message");
                return Err(CacheError::Protocol { who: endpoint.layout().describe(from), what });
            }
            Incoming::InPlace(from, InPlace::Fetch { page, .. }, _)
                if !agent.fetches.may_land(endpoint, from) =>
            {
                let what = format!("wants bytes of page {page} to land where they cannot");
                return Err(CacheError::Protocol { who: endpoint.layout().describe(from), what });
            }
            Incoming::InPlace(from, operation, data) => agent.on_in_place(from, operation, &data)?,
            Incoming::Answer(from, number, answer) => agent.on_in_place_answer(from, number, answer)?,
            Incoming::Service(from, words, bytes) => {
                agent.services.on_service(&mut agent.cache, from, words, &bytes)?
            }
            Incoming::ServiceAnswer(from, [slot, status], bytes) => {
                let answer = if status == 0 { Ok(&bytes[..]) } else { Err(ServiceError::from_code(status)) };
                agent.services.on_service_answer(&mut agent.cache, from, slot, answer)?;
            }
            Incoming::Shard(message) => agent.on_shard_message(message)?,
        }
    }
    if arrived.capacity() > 0 {
        shards.give_back(number, arrived);
    }
    any |= agent.advance()?;
    any |= agent.flush(endpoint)?;
    Ok(any)
}

/// Runs the shards of an agent until `stopped`, the first in the calling thread and each other in its own; `stop` is readable
/// from then on. Ends, all of them, with the first error of any.
pub fn run(
    shards: &mut [Agent],
    endpoint: &Endpoint,
    stop: BorrowedFd<'_>,
    stopped: impl Fn() -> bool + Sync,
) -> Result<(), CacheError> {
    let Some((first, others)) = shards.split_first_mut() else { return Ok(()) };
    let stopped = &stopped;
    std::thread::scope(|scope| {
        let mut threads = Vec::with_capacity(others.len());
        for agent in others {
            let name = format!("vgas-agent-{}", agent.shard());
            let together = agent.shards().clone();
            let builder = std::thread::Builder::new().name(name);
            match builder.spawn_scoped(scope, move || run_shard(agent, endpoint, stop, stopped)) {
                Ok(thread) => threads.push(thread),
                Err(e) => {
                    together.fail();
                    return Err(RmaError::io("start a thread of the agent", e).into());
                }
            }
        }
        let mut result = run_shard(first, endpoint, stop, stopped);
        for thread in threads {
            match thread.join() {
                Ok(ended) => result = result.and(ended),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        result
    })
}

/// Ends all shards if one does not end as it should.
struct Together<'a>(&'a Shards, bool);

impl Drop for Together<'_> {
    fn drop(&mut self) {
        if !self.1 {
            self.0.fail();
        }
    }
}

fn run_shard(
    agent: &mut Agent,
    endpoint: &Endpoint,
    stop: BorrowedFd<'_>,
    stopped: &(impl Fn() -> bool + Sync),
) -> Result<(), CacheError> {
    let shards = agent.shards().clone();
    let mut together = Together(&shards, false);
    let mut idle = Idle::default();
    let mut sleeps = Sleeps::default();
    loop {
        if turn(agent, endpoint)? {
            (idle, sleeps) = (Idle::default(), Sleeps::default());
            continue;
        }
        if stopped() || shards.has_failed() {
            agent.cache.close();
            together.1 = true;
            return Ok(());
        }
        if idle.may_look_on(agent.awaits_storage()) {
            std::hint::spin_loop();
        } else if agent.revoking() {
            // Whoever leaves a page tells nobody. It is in the middle of a copy, or was interrupted there.
            cores::nap(&mut idle.naps);
        } else {
            sleeps.slept(sleep(agent, endpoint, stop, sleeps.most())?);
            agent.cache.ctx.look_at_clock();
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

/// Sleeps until something may have come, or for at most so long ([`Endpoint::arm_briefly`]): the first shard for all, the others for what
/// they are told, however long it takes. Whether something may have come.
fn sleep(
    agent: &mut Agent,
    endpoint: &Endpoint,
    stop: BorrowedFd<'_>,
    most: Option<Duration>,
) -> Result<bool, CacheError> {
    let (shards, number) = (agent.shards().clone(), agent.shard());
    let mut woken = true;
    if number > 0 {
        let descriptors = shards.bell(number).into_iter().collect();
        if shards.arm(number) {
            woken = sleep_on(agent, endpoint, descriptors, stop, None)?;
        }
        shards.disarm(number);
    } else if if most.is_some() { endpoint.arm_briefly() } else { endpoint.arm() } {
        let descriptors = endpoint.wait_descriptors().into_iter().chain(shards.bell(0)).collect();
        if shards.arm(0) {
            woken = sleep_on(agent, endpoint, descriptors, stop, most)?;
        }
        shards.disarm(0);
        endpoint.disarm();
    }
    Ok(woken)
}

/// Sleeps for at most so long. False: nothing has come.
fn sleep_on(
    agent: &mut Agent,
    endpoint: &Endpoint,
    descriptors: Vec<BorrowedFd<'_>>,
    stop: BorrowedFd<'_>,
    most: Option<Duration>,
) -> Result<bool, CacheError> {
    // A fault is posted without a message, and room for a message that was refused may have come before the bell was
    // ready to ring.
    let has_come = agent.faults_wait() || agent.cache.claims_ended();
    if has_come || agent.flush(endpoint)? || !agent.volume().arm() {
        return Ok(true);
    }
    let max_sleep = agent.max_sleep();
    let max_sleep = most.map_or(max_sleep, |most| max_sleep.min(most));
    let storage = agent.volume().wait_descriptor();
    let mut all: Vec<PollFd<'_>> = descriptors
        .iter()
        .chain([&storage, &stop])
        .map(|descriptor| PollFd::from_borrowed_fd(*descriptor, PollFlags::IN))
        .collect();
    let timeout =
        Timespec { tv_sec: max_sleep.as_secs() as i64, tv_nsec: i64::from(max_sleep.subsec_nanos()) };
    let slept = poll(&mut all, Some(&timeout));
    agent.volume().disarm();
    match slept {
        Ok(woken_by) => Ok(woken_by > 0),
        Err(rustix::io::Errno::INTR) => Ok(true),
        Err(e) => Err(RmaError::system("wait for messages", e).into()),
    }
}
