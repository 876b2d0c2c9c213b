//! A service of a library in whole jobs: what it reads and writes across pages and threads of the agent while everything is
//! evicted, what it asks other nodes, and what becomes of calls that cannot be understood.

use crate::Setting;
use crate::scenarios::{Outcome, small, with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use vgas::service::{Call, Failure, Home, Library, Service, ServiceError, Services};
use vgas::{
    Change, GlobalAddress, Kind, NodeId, PinMode, Rank, Runtime, SegmentId, SegmentOptions, SegmentOwner,
};

/// Does at its node what it is told, or has another node do it.
#[derive(Default)]
pub struct Hand {
    waiting: HashMap<u64, (Call, bool)>,
    next: u64,
    again: Vec<Call>,
}

#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum Order {
    Nothing,
    Read(u32, u64, u32),
    /// The same, if it is in memory.
    ReadInMemory(u32, u64, u32),
    Write(u32, u64, Vec<u8>),
    Count(u32, u64),
    /// This, at that node.
    At(u32, Box<Order>),
    /// This, at that node, which answers the caller.
    Passed(u32, Box<Order>),
    /// An answer as long as this.
    Long(u32),
    /// An answer later.
    Later,
}

type Answer = Result<Vec<u8>, String>;

impl Service for Hand {
    type Request = Order;
    type Answer = Answer;
    const NAME: &'static str = "test.hand";

    fn called(&mut self, call: Call, order: Order, home: &mut Home<'_, Self>) {
        self.next += 1;
        let ticket = self.next;
        match order {
            Order::Nothing => return home.answer(call, &Ok(Vec::new())),
            Order::Long(bytes) => return home.answer(call, &Ok(vec![1; bytes as usize])),
            Order::Later => {
                home.call_again();
                return self.again.push(call);
            }
            Order::Read(owner, offset, bytes) => home.read(part_of(owner), offset, bytes, ticket),
            Order::ReadInMemory(owner, offset, bytes) => {
                home.read_in_memory(part_of(owner), offset, bytes, ticket);
            }
            Order::Passed(node, order) => return home.pass_on(call, NodeId(node), &order),
            Order::Write(owner, offset, data) => home.write(part_of(owner), offset, data, ticket),
            Order::Count(owner, offset) => home.update(part_of(owner), offset, Change::Add(1u64), ticket),
            Order::At(node, order) => home.ask(NodeId(node), &order, ticket),
        }
        self.waiting.insert(ticket, (call, true));
    }

    fn done(&mut self, ticket: u64, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        if let Some((call, _)) = self.waiting.remove(&ticket) {
            home.answer(call, &result.map_err(|failure| failure.to_string()));
        }
    }

    fn answered(&mut self, ticket: u64, answer: Result<Answer, ServiceError>, home: &mut Home<'_, Self>) {
        if let Some((call, _)) = self.waiting.remove(&ticket) {
            home.answer(call, &answer.unwrap_or_else(|error| Err(error.to_string())));
        }
    }

    fn again(&mut self, home: &mut Home<'_, Self>) {
        self.again.drain(..).for_each(|call| home.answer(call, &Ok(vec![9])));
    }
}

/// The same name, and other words.
struct Changed;

impl Service for Changed {
    type Request = (u8, String);
    type Answer = u8;
    const NAME: &'static str = Hand::NAME;

    fn called(&mut self, _: Call, _: (u8, String), _: &mut Home<'_, Self>) {}
}

/// One that no daemon has.
struct Missing;

impl Service for Missing {
    type Request = ();
    type Answer = ();
    const NAME: &'static str = "test.missing";

    fn called(&mut self, _: Call, (): (), _: &mut Home<'_, Self>) {}
}

/// The service of a library that owns a segment: writes there, and reads nothing.
#[derive(Default)]
pub struct Keeper(Option<Call>);

impl Service for Keeper {
    type Request = (u32, u64, Vec<u8>);
    type Answer = bool;
    const NAME: &'static str = "test.keeper";
    // SAFETY: nothing depends on the bytes of this test's segment.
    const LIBRARY: Library = unsafe { Library::owner() };

    fn called(&mut self, call: Call, (owner, offset, data): Self::Request, home: &mut Home<'_, Self>) {
        self.0 = Some(call);
        home.write(part_of(owner), offset, data, 0);
    }

    fn done(&mut self, _: u64, result: Result<Vec<u8>, Failure>, home: &mut Home<'_, Self>) {
        self.0.take().into_iter().for_each(|call| home.answer(call, &result.is_ok()));
    }
}

/// A program's service of the same name and words.
struct Pretender;

impl Service for Pretender {
    type Request = (u32, u64, Vec<u8>);
    type Answer = bool;
    const NAME: &'static str = Keeper::NAME;

    fn called(&mut self, _: Call, _: Self::Request, _: &mut Home<'_, Self>) {}
}

pub fn services() -> Services {
    Services::default().with(Hand::default()).with(Keeper::default())
}

pub fn settings() -> Vec<Setting> {
    vec![
        Setting::new(1, 1, &small()),
        Setting::new(4, 2, &small()),
        Setting::new(3, 3, &with(&[("conduit", "smp"), ("agent.threads", "3")])),
    ]
}

pub fn rank(runtime: &Runtime, seed: u64) -> Outcome {
    const BYTES: u64 = 4 << 20;
    // Of each rank's segment, each rank has a share, and a word at its end that all count in.
    const SHARE: u64 = 256 << 10;
    runtime.attach(&SegmentOptions::tiered(BYTES))?;
    let (me, ranks, nodes) = (runtime.rank().0, runtime.ranks(), runtime.nodes());
    let call = |order: &Order, owner: u32| -> Result<Answer, vgas::Error> {
        runtime.call::<Hand>(runtime.layout().node_of(Rank(owner)), order)
    };
    let message = runtime.medium_bytes_max();
    let mut random = ChaCha8Rng::seed_from_u64(seed + u64::from(me));
    let mut known: Vec<Vec<u8>> = vec![vec![0; SHARE as usize]; ranks as usize];
    for step in 0..150u32 {
        let owner = random.random_range(0..ranks);
        // Most of them cross a page; all fit a message of any conduit.
        let bytes = [1, 100, 5000, 20_000][random.random_range(0..4)].min(message - 100);
        let at = random.random_range(0..SHARE - bytes as u64);
        let (offset, range) = (u64::from(me) * SHARE + at, at as usize..at as usize + bytes);
        let known = &mut known[owner as usize];
        let data = vec![step as u8 + 1; bytes];
        match random.random_range(0..4) {
            0 => {
                call(&Order::Write(owner, offset, data.clone()), owner)??;
                known[range].copy_from_slice(&data);
            }
            1 => {
                runtime.put(GlobalAddress::tiered(Rank(owner), offset), &data)?;
                known[range].copy_from_slice(&data);
            }
            2 => {
                let home = runtime.layout().node_of(Rank(owner)).0;
                let what = random.random_range(0..4);
                let order = match what % 2 {
                    0 => Order::Read(owner, offset, bytes as u32),
                    _ => Order::ReadInMemory(owner, offset, bytes as u32),
                };
                let order = match what / 2 {
                    0 => Order::At(home, Box::new(order)),
                    _ => Order::Passed(home, Box::new(order)),
                };
                let found = runtime.call::<Hand>(NodeId(random.random_range(0..nodes)), &order)?;
                let is_absent = found.as_ref().is_err_and(|why| why.contains("not in this node's memory"));
                if !(is_absent && what % 2 == 1) && found? != known[range] {
                    return Err(format!("{bytes} bytes at {offset} of rank {owner} are others").into());
                }
            }
            _ => {
                let mut found = vec![0u8; bytes];
                runtime.get(GlobalAddress::tiered(Rank(owner), offset), &mut found)?;
                if found != known[range] {
                    return Err(
                        format!("{bytes} bytes at {offset} of rank {owner} are others than put").into()
                    );
                }
            }
        }
        call(&Order::Count(0, BYTES - 8), 0)??;
        runtime.fetch_add(GlobalAddress::tiered(Rank(0), BYTES - 8), 1)?;
    }
    runtime.barrier()?;
    let sum: u64 = runtime.get_value(GlobalAddress::tiered(Rank(0), BYTES - 8))?;
    if sum != 300 * u64::from(ranks) {
        return Err(format!("{sum} counts instead of {}", 300 * ranks).into());
    }
    refused(runtime)?;
    let counts = runtime.service_counts::<Hand>(NodeId(0))?;
    if counts.calls < 150 || counts.pages < 150 || counts.refused == 0 {
        return Err(format!("{counts:?}").into());
    }
    // One that is answered when some time has passed.
    if me == 0 && runtime.call::<Hand>(NodeId(nodes - 1), &Order::Later)? != Ok(vec![9]) {
        return Err("another answer".into());
    }
    Ok(())
}

/// Goal: what cannot be served is an error of the caller's, who goes on; nobody else notices.
fn refused(runtime: &Runtime) -> Outcome {
    let expect = |what: &str, said: Result<String, vgas::Error>| match said {
        Err(error) if error.to_string().contains(what) => Ok(()),
        other => Err(format!("{other:?} instead of {what}")),
    };
    let node = NodeId(0);
    expect("do not run it", runtime.call::<Missing>(node, &()).map(|()| String::new()))?;
    let changed = runtime.call::<Changed>(node, &(200, "words".into()));
    expect("different versions", changed.map(|answer| answer.to_string()))?;
    expect("does not fit", runtime.call::<Hand>(node, &Order::Long(1 << 20)).map(|_| String::new()))?;
    let long = Order::Write(0, 0, vec![0; 1 << 20]);
    expect("does not fit", runtime.call::<Hand>(node, &long).map(|_| String::new()))?;
    expect("of 1 nodes", runtime.call::<Hand>(NodeId(9), &Order::Nothing).map(|_| String::new())).or_else(
        |_| expect("of ", runtime.call::<Hand>(NodeId(9), &Order::Nothing).map(|_| String::new())),
    )?;
    // The handlers of libraries, of the cache and of the endpoint are not for programs.
    for handler in [0, 15, 33, 64, 127] {
        let sent = runtime.request(Rank(0), handler, &[], &[]);
        expect("programs have 128 to 255", sent.map(|()| format!("a message to handler {handler}")))?;
    }
    for order in [
        Order::Read(0, u64::MAX - 3, 8),
        Order::Read(0, 4 << 20, 1),
        Order::Count(0, 4),
        Order::Read(77, 0, 1),
    ] {
        if runtime.call::<Hand>(node, &order)?.is_ok() {
            return Err(format!("{order:?} was done").into());
        }
    }
    Ok(())
}

pub fn settings_of_owned() -> Vec<Setting> {
    vec![Setting::new(2, 2, &small())]
}

/// Added to a rank's number, means its part of the segment of a library.
const OWNED: u32 = 1 << 16;

fn part_of(owner: u32) -> (SegmentId, Rank) {
    match owner.checked_sub(OWNED) {
        Some(owner) => (vgas::library_segment(3), Rank(owner)),
        None => (SegmentId::FIRST, Rank(owner)),
    }
}

/// Goal: a segment of a library is read and written by that library's services, and by no other, whatever its name.
pub fn rank_of_owned(runtime: &Runtime, _: u64) -> Outcome {
    let spec = SegmentOptions::tiered(1 << 20);
    let owner = SegmentOwner { slot: 3, library: "a test".into(), program: 1, options: String::new() };
    // SAFETY: nothing depends on its bytes.
    let segment = unsafe { runtime.attach_owned(&spec, &owner) }?;
    let (rank, node) = (runtime.rank(), runtime.node());
    let me = OWNED + rank.0;
    for order in [Order::Write(me, 0, vec![7; 8]), Order::Read(me, 0, 8), Order::Count(me, 0)] {
        if runtime.call::<Hand>(node, &order)?.is_ok() {
            return Err(format!("a program's service did {order:?}").into());
        }
    }
    let request = (me, 0, vec![9; 8]);
    match runtime.call::<Pretender>(node, &request) {
        Err(error) if error.to_string().contains("do not run it") => {}
        other => return Err(format!("a library's service answers a program's call: {other:?}").into()),
    }
    // A program's writes by address are refused there, and its checkpoints of it.
    let at = segment.address(rank, 0);
    let mut seven = [7u64];
    let written = [
        runtime.put(at, &seven).is_ok(),
        runtime.put_nb(at, vec![7u64]).is_ok(),
        runtime.memset(at, 7, 8).is_ok(),
        runtime.batch(|batch| batch.put_copy(at, &[7u64])).is_ok(),
        runtime.update(at, Change::Swap(7u64)).is_ok(),
        runtime.update_many(&[(at, Change::Swap(7u64))]).is_ok(),
        runtime.lock(at).is_ok() || runtime.unlock(at, true).is_ok(),
        runtime.pin(at, PinMode::Write).is_ok(),
        runtime.segment(Kind::Tiered, segment.id()).is_some() || runtime.open_remote(at).is_ok(),
    ];
    runtime.get(at, &mut seven)?;
    if written.contains(&true) || seven != [0] {
        return Err(format!("a program has written {seven:?}: {written:?}").into());
    }
    let before: u64 = segment.get_value(rank, 0)?;
    let is_done = runtime.call::<Keeper>(node, &request)?;
    let after: u64 = segment.get_value(rank, 0)?;
    match (before, is_done, after.to_ne_bytes()) {
        (0, true, [9, 9, 9, 9, 9, 9, 9, 9]) => Ok(()),
        other => Err(format!("{other:?}").into()),
    }
}
