//! A simulated rank: one step after the other, none of which blocks.
//!
//! # Rule for the unsafe code in this file
//!
//! The bytes of an operation in flight lie in a buffer that its [`Access`] owns behind the operation. The
//! buffer's heap memory does not move with it, has no other users, and the operation is dropped (which waits
//! for its end) before it.

use super::cluster::{Cluster, Member, Turn};
use super::machine::{CONTENT, Machine};
use crate::suite::job::Result;
use vgas_cache::client::{Created, Pending, SegmentPages};
use vgas_cache::partition::{Policy, SegmentId};
use vgas_cache::pool::{INLINE_BYTES, WaitId, WaitStatus};
use vgas_cache::request::{Attached, Request, handler};
use vgas_rma::Rank;
use vgas_rma::conduit::Sent;
use vgas_rma::endpoint::BarrierName;
use vgas_rma::message::{Payload, Source};

/// Operations of a rank that may be in flight at once.
pub const SLOTS: usize = 4;

/// Bytes of a partition, in simulated ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Range {
    pub owner: u32,
    pub offset: u64,
    pub bytes: usize,
}

/// One step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Starts a get in a slot.
    Get(usize, Range),
    /// Starts a put of bytes of this value.
    Put(usize, Range, u8),
    /// Waits for what a slot has in flight.
    Await(usize),
    /// Says what will be wanted.
    Prefetch(Range),
    /// Computes for so many nanoseconds.
    Compute(u64),
    /// All ranks meet.
    Barrier,
}

/// The steps of a rank.
pub type Steps<'a> = Box<dyn Iterator<Item = Step> + 'a>;

/// An operation in flight.
struct Access {
    // Before the bytes it uses: dropped first.
    pending: Pending,
    content: Box<[u8]>,
    is_get: bool,
    range: Range,
}

enum Wait {
    Nothing,
    Slot(usize),
    Barrier,
}

/// A rank and how far it is.
pub struct Runner<'c> {
    member: &'c Member,
    machine: &'c Machine,
    steps: Steps<'c>,
    slots: [Option<Access>; SLOTS],
    wait: Wait,
    /// True if it sleeps, so that it has to be woken.
    asleep: bool,
    /// Check of the bytes read.
    expect: Option<fn(Range, &[u8]) -> bool>,
}

impl<'c> Runner<'c> {
    /// With these steps, before the first; what gets bring is held against `expect`.
    pub fn new(
        member: &'c Member,
        machine: &'c Machine,
        steps: Steps<'c>,
        expect: Option<fn(Range, &[u8]) -> bool>,
    ) -> Self {
        Self {
            member,
            machine,
            steps,
            slots: [const { None }; SLOTS],
            wait: Wait::Nothing,
            asleep: false,
            expect,
        }
    }

    /// Goes on.
    pub fn act(&mut self) -> Result<Turn> {
        loop {
            match self.wait {
                Wait::Slot(slot) => {
                    if let Some(access) = &mut self.slots[slot] {
                        if !access.pending.test()? {
                            self.asleep = true;
                            return Ok(Turn::Waits);
                        }
                        if std::mem::take(&mut self.asleep) {
                            self.machine.wake(self.member.me);
                        }
                        let (range, content) = (access.range, &access.content);
                        if access.is_get && self.expect.is_some_and(|expect| !expect(range, content)) {
                            return Err(format!("{range:?} is another").into());
                        }
                        self.slots[slot] = None;
                        self.wait = Wait::Nothing;
                        return Ok(Turn::Until(self.machine.copy(self.member.me, range.bytes)));
                    }
                    self.wait = Wait::Nothing;
                }
                Wait::Barrier => match self.member.endpoint.barrier_try(BarrierName::Anonymous)? {
                    None => return Ok(Turn::Waits),
                    Some(_) => self.wait = Wait::Nothing,
                },
                Wait::Nothing => {
                    let Some(step) = self.steps.next() else { return Ok(Turn::Over) };
                    if let Some(turn) = self.take(step)? {
                        return Ok(turn);
                    }
                }
            }
        }
    }

    fn take(&mut self, step: Step) -> Result<Option<Turn>> {
        match step {
            Step::Get(slot, range) => self.start(slot, range, None)?,
            Step::Put(slot, range, value) => self.start(slot, range, Some(value))?,
            Step::Await(slot) => self.wait = Wait::Slot(slot),
            Step::Prefetch(Range { owner, offset, bytes }) => {
                self.member.client.prefetch(Rank(owner), offset, bytes as u64)?;
            }
            Step::Compute(ns) => return Ok(Some(Turn::Until(self.machine.spend(self.member.me, ns)))),
            Step::Barrier => {
                self.member.endpoint.barrier_notify(BarrierName::Anonymous)?;
                self.wait = Wait::Barrier;
            }
        }
        Ok(None)
    }

    fn start(&mut self, slot: usize, range: Range, value: Option<u8>) -> Result<()> {
        let Range { owner, offset, bytes } = range;
        let (client, is_get) = (&self.member.client, value.is_none());
        let mut content = vec![value.unwrap_or(0); bytes].into_boxed_slice();
        if value.is_some() && bytes >= CONTENT {
            // A page begins with its place.
            for (page, chunk) in content.chunks_mut(CONTENT).enumerate() {
                chunk[..8].copy_from_slice(&(offset + (page * CONTENT) as u64).to_le_bytes());
            }
        }
        let pending = if is_get {
            // SAFETY: this file's rule.
            unsafe { client.get_nb(Rank(owner), offset, content.as_mut_ptr(), bytes)? }
        } else {
            // SAFETY: this file's rule.
            unsafe { client.put_nb(Rank(owner), offset, content.as_ptr(), bytes)? }
        };
        self.slots[slot] = Some(Access { pending, content, is_get, range });
        Ok(())
    }
}

/// Returns true if pages begin with their places.
pub fn begins_with_its_place(range: Range, content: &[u8]) -> bool {
    let mut pages = content.chunks_exact(CONTENT).zip((range.offset..).step_by(CONTENT));
    pages.all(|(page, offset)| page[..8] == offset.to_le_bytes())
}

/// A request to the agent that moves no bytes, as [`vgas_cache::client::Client::attach`] makes it, without its waiting.
struct Ask<'a> {
    member: &'a Member,
    request: Box<dyn Fn(WaitId) -> Request + 'a>,
    data: &'a [u8],
    wait: Option<WaitId>,
    sent: bool,
    answer: [u8; INLINE_BYTES],
}

impl Ask<'_> {
    fn act(&mut self) -> Result<Turn> {
        let member = self.member;
        if self.wait.is_none() {
            self.wait = member.pool.begin_wait(1);
        }
        let Some(wait) = self.wait else { return Ok(Turn::Waits) };
        if !self.sent {
            let payload =
                if self.data.is_empty() { Payload::Short } else { Payload::Medium(Source::of(self.data)) };
            let words = (self.request)(wait).encode();
            self.sent = member.endpoint.try_request(member.agent, handler::REQUEST, &words, payload)?
                == Sent::Accepted;
        }
        match member.pool.wait_status(wait) {
            WaitStatus::Pending(_) => Ok(Turn::Waits),
            WaitStatus::Failed { code, .. } => Err(format!("an agent refuses: {code}").into()),
            WaitStatus::Done => {
                member.pool.read_answer(wait, &mut self.answer);
                member.pool.end_wait(wait);
                Ok(Turn::Over)
            }
        }
    }
}

/// The first `owners` ranks attach partitions of so many pages, and all ranks learn of them.
///
/// # Errors
/// Whatever an agent says.
pub fn attach(cluster: &mut Cluster, members: &[Member], owners: u32, pages: u64) -> Result<()> {
    let Some(first) = members.first() else { return Ok(()) };
    let spec = SegmentPages {
        segment: SegmentId::FIRST,
        size: first.pool.layout().page_size(),
        policy: Policy::default(),
    };
    let SegmentPages { segment, size, policy } = spec;
    let ask = |rank: usize, request: Box<dyn Fn(WaitId) -> Request>, data: &'static [u8]| Ask {
        member: &members[rank],
        request,
        data,
        wait: None,
        sent: false,
        answer: [0; INLINE_BYTES],
    };
    let mut asks: Vec<Ask<'_>> = (0..members.len())
        .map(|rank| {
            let pages = if (rank as u32) < owners { pages } else { 0 };
            ask(rank, Box::new(move |wait| Request::Attach { pages, segment, size, policy, wait }), &[])
        })
        .collect();
    cluster.run(members, &mut |rank| asks[rank].act())?;
    let created: Vec<Created> = asks
        .iter()
        .take(owners as usize)
        .map(|ask| Created {
            first: Attached::decode(&ask.answer).first,
            bytes: pages << size.shift(),
            ..Created::default()
        })
        .collect();
    // Some at a time: a message has room for so many.
    for (start, some) in created.chunks(512).enumerate() {
        let first_rank = Rank(start as u32 * 512);
        let words = some.iter().flat_map(|one| [one.first.0, pages]).flat_map(u64::to_le_bytes);
        let words: Vec<u8> = words.collect();
        let mut asks: Vec<Ask<'_>> = members
            .iter()
            .map(|member| Ask {
                member,
                request: Box::new(move |wait| Request::Partitions {
                    segment,
                    size,
                    policy,
                    first_rank,
                    wait,
                }),
                data: &words,
                wait: None,
                sent: false,
                answer: [0; INLINE_BYTES],
            })
            .collect();
        cluster.run(members, &mut |rank| asks[rank].act())?;
        for member in members {
            member.client.know_here(spec, first_rank, some)?;
        }
    }
    Ok(())
}
