//! Collectives that are started: they yield what the blocking ones do, in any order of waiting, go on while nobody calls anything,
//! outlive their teams and handles, and say what members do not agree on.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, small, with};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;
use std::time::{Duration, Instant};
use vgas::{CollectiveHandle, Operator, Runtime, Team};

fn settings() -> Vec<Setting> {
    let smp = with(&[("conduit", "smp")]);
    [(1, 1), (4, 1), (2, 2), (5, 3)]
        .map(|(ranks, nodes)| Setting::new(ranks, nodes, &small()))
        .into_iter()
        .chain([Setting::new(3, 3, &smp)])
        .collect()
}

pub const ALL: &[Scenario] = &[
    Scenario { name: "collectives_nb", settings, rank: all_forms },
    Scenario { name: "collectives_nb_alone", settings, rank: by_themselves },
    Scenario { name: "collectives_nb_disagree", settings, rank: disagree },
];

/// Long enough for a busy machine.
const TIMEOUT: Duration = Duration::from_secs(60);

fn of(round: u64, member: u32, count: usize) -> Vec<u64> {
    (0..count as u64)
        .map(|at| (round << 40 | u64::from(member) << 20 | at).wrapping_mul(0x9e37_79b9_7f4a_7c15))
        .collect()
}

fn held<T: PartialEq + std::fmt::Debug>(what: &str, is: &T, expected: &T) -> Outcome {
    if is == expected { Ok(()) } else { Err(format!("{what}: {is:?}, not {expected:?}").into()) }
}

/// Goal: all forms, started together and waited for backwards, yield what was given.
fn all_forms(runtime: &Runtime, seed: u64) -> Outcome {
    let world = runtime.world()?;
    for (round, count) in (seed % 1000..).zip([0, 1, 9, 700, 9000]) {
        forms(&world, round, count)?;
    }
    Ok(world.barrier()?)
}

fn forms(team: &Team, round: u64, count: usize) -> Outcome {
    let (me, size) = (team.rank(), team.size());
    let root = (round % u64::from(size)) as u32;
    let whole: Vec<u64> = (0..size).flat_map(|member| of(round, member, count)).collect();
    let mine = of(round, me, count);
    let sum_to = |last: u32| -> Vec<u64> {
        let column = |at: usize| (0..=last as usize).map(move |member| member * count + at);
        (0..count).map(|at| column(at).fold(0, |sum, place| whole[place].wrapping_add(sum))).collect()
    };

    let barrier = team.barrier_nb()?;
    let with = team.barrier_with_nb([round, me.into()])?;
    let told = team.broadcast_nb(root, mine.clone())?;
    let part = team.scatter_nb(root, if me == root { whole.clone() } else { Vec::new() }, count)?;
    let gathered = team.gather_nb(root, mine.clone())?;
    let all = team.all_gather_nb(mine.clone())?;
    let given: Vec<u64> = (0..size).flat_map(|member| of(!round >> 40, me * size + member, count)).collect();
    let taken = team.all_to_all_nb(given)?;
    let reduced = team.reduce_nb(root, mine.clone(), Operator::Sum)?;
    let reduced_all = team.all_reduce_nb(mine.clone(), |a: u64, b: u64| a.wrapping_add(b))?;
    let scanned = team.scan_nb(mine.clone(), Operator::Sum)?;
    let split = team.split_nb(me % 2, size - me)?;

    let half = split.wait()?;
    held("the split", &half.members().len(), &(0..size).filter(|member| member % 2 == me % 2).count())?;
    held("the scan", &scanned.wait()?, &sum_to(me))?;
    held("the reduction for all", &reduced_all.wait()?, &sum_to(size - 1))?;
    held("the reduction", &reduced.wait()?, &(me == root).then(|| sum_to(size - 1)))?;
    let expected: Vec<u64> =
        (0..size).flat_map(|member| of(!round >> 40, member * size + me, count)).collect();
    held("the exchange", &taken.wait()?, &expected)?;
    held("the gather for all", &all.wait()?, &whole)?;
    held("the gather", &gathered.wait()?, &(me == root).then(|| whole.clone()))?;
    held("the scatter", &part.wait()?, &mine)?;
    held("the broadcast", &told.wait()?, &of(round, root, count))?;
    held(
        "the barrier with values",
        &with.wait()?,
        &(0..size).map(|member| [round, member.into()]).collect(),
    )?;
    barrier.wait()?;
    // Blocking ones go on in the same order.
    Ok(half.barrier()?)
}

/// Wakes a thread.
struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

/// Runs a future in a thread that does nothing else but sleep.
fn block_on<T>(future: impl Future<Output = T>) -> Result<T, String> {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let (mut future, since) = (pin!(future), Instant::now());
    loop {
        if let Poll::Ready(value) = future.as_mut().poll(&mut Context::from_waker(&waker)) {
            return Ok(value);
        }
        let left = TIMEOUT.checked_sub(since.elapsed()).ok_or("a future was not woken")?;
        std::thread::park_timeout(left);
    }
}

/// Goal: collectives go on in ranks that call nothing, wake the tasks that wait for them, and need neither their team nor their
/// handle any more.
fn by_themselves(runtime: &Runtime, seed: u64) -> Outcome {
    let world = runtime.world()?;
    let (me, size) = (world.rank(), world.size());
    for round in 0..4 {
        let sum = {
            let team = world.split(0, me)?;
            // Nobody hears of it: the others need it all the same.
            drop(team.all_gather_nb(of(seed, me, 5000))?);
            std::mem::forget(team.barrier_nb()?);
            let sum = team.all_reduce_nb(vec![u64::from(me) + round; 3000], Operator::Sum)?;
            drop(team);
            sum
        };
        let all: u64 = (0..u64::from(size)).map(|member| member + round).sum();
        // Nothing of the library is called meanwhile.
        held("the sum", &block_on(sum)??, &vec![all; 3000])?;
        let everybody: CollectiveHandle<Vec<u32>> = world.all_gather_nb(vec![me])?;
        held("who is there", &block_on(everybody)??, &(0..size).collect())?;
    }
    let mut last = world.barrier_nb()?;
    let since = Instant::now();
    while last.test()?.is_none() {
        if since.elapsed() > TIMEOUT {
            return Err("a barrier that is tested does not end".into());
        }
    }
    match last.test() {
        Err(_) => Ok(()),
        Ok(again) => Err(format!("a result was yielded twice: {again:?}").into()),
    }
}

/// Goal: a member that starts another collective, or with another root or size, is an error of a handle on every member, for who waits and
/// for who is woken; other teams go on. What is wrong with the arguments alone is an error of the call.
fn disagree(runtime: &Runtime, _: u64) -> Outcome {
    let world = runtime.world()?;
    let (me, size) = (world.rank(), world.size());
    if world.broadcast_nb(size, vec![1]).is_ok()
        || world.all_to_all_nb(vec![1u8; size as usize * 2 + 1]).is_ok() && size > 1
    {
        return Err("a root or a length that there is not".into());
    }
    if size == 1 {
        return Ok(());
    }
    let other = usize::from(me == 1);
    for case in 0..3 {
        let team = world.split(0, 0)?;
        // Who hears of it before is refused at once.
        let first = match case {
            0 => team.all_gather_nb(vec![1u8; 3 + other]),
            1 => team.broadcast_nb(other as u32, vec![1u8; 30_000]),
            _ if other == 1 => team.scan_nb(vec![1u8], Operator::Sum),
            _ => team.all_gather_nb(vec![1u8; 1]),
        };
        // At the latest the next ones, for which all wait. Some cannot be started any more.
        let after: Vec<_> = (0..3).map_while(|_| team.barrier_nb().ok()).collect();
        let mut says = vec![match first {
            Ok(first) => block_on(first)?.err().map(|error| error.to_string()),
            Err(error) => Some(error.to_string()),
        }];
        for barrier in after {
            says.push(barrier.wait().err().map(|error| error.to_string()));
        }
        says.push(team.barrier_nb().err().map(|error| error.to_string()));
        let said: Vec<String> = says.into_iter().flatten().collect();
        if said.is_empty() || !said.iter().all(|text| text.contains("no use any more")) {
            return Err(format!("case {case}: {said:?}").into());
        }
        world.barrier()?;
    }
    forms(&world, 1, 10)
}
