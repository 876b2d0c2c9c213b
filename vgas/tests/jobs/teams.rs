//! Teams and their collectives, against a plain model, and what members are told that do not agree.

use crate::Setting;
use crate::scenarios::{Outcome, Scenario, small, with};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use vgas::{Operator, Runtime, Team};

/// One node and several, by shared memory and by the network.
fn everywhere() -> Vec<Setting> {
    let smp = with(&[("conduit", "smp")]);
    (1..=5)
        .map(|ranks| Setting::new(ranks, 1, &small()))
        .chain([(2, 2), (5, 3), (4, 4)].map(|(ranks, nodes)| Setting::new(ranks, nodes, &small())))
        .chain([Setting::new(3, 3, &smp)])
        .collect()
}

fn several() -> Vec<Setting> {
    [(2, 1), (4, 1), (3, 3), (5, 2)].map(|(ranks, nodes)| Setting::new(ranks, nodes, &small())).to_vec()
}

pub const ALL: &[Scenario] = &[
    Scenario { name: "collectives", settings: everywhere, rank: collectives },
    Scenario { name: "teams", settings: everywhere, rank: teams },
    Scenario { name: "disagreement", settings: several, rank: disagreement },
    Scenario { name: "team_threads", settings: several, rank: threads },
];

/// Lengths around those at which strings travel another way.
const LENGTHS: [usize; 7] = [0, 1, 7, 1023, 1025, 3001, 70_001];

/// What a member has in a round.
fn values(round: u64, member: u32, count: usize) -> Vec<u64> {
    let mut random = ChaCha8Rng::seed_from_u64(round << 16 | u64::from(member));
    (0..count).map(|_| random.random()).collect()
}

/// Neither commutative nor the same in another order: a number and what it multiplies by what follows.
type Step = [u64; 2];

fn follow(left: Step, right: Step) -> Step {
    let [factor, sum] = left;
    [factor.wrapping_mul(right[0]), sum.wrapping_mul(right[0]).wrapping_add(right[1])]
}

fn held<T: PartialEq>(what: &str, round: u64, is: &[T], expected: &[T]) -> Outcome {
    if is == expected { Ok(()) } else { Err(format!("{what} of round {round} over {}", is.len()).into()) }
}

/// Every collective once, with this many values a member.
fn check(team: &Team, round: u64, count: usize) -> Outcome {
    let (me, size) = (team.rank(), team.size());
    let root = (round % u64::from(size)) as u32;
    let of = |member| values(round, member, count);
    let mine = of(me);
    let whole: Vec<u64> = (0..size).flat_map(of).collect();
    let place = me as usize * count..(me as usize + 1) * count;

    let mut told = mine.clone();
    team.broadcast(root, &mut told)?;
    held("the broadcast", round, &told, &of(root))?;
    let mut part = vec![0; count];
    team.scatter(root, if me == root { &whole } else { &[] }, &mut part)?;
    held("the scatter", round, &part, &whole[place.clone()])?;
    let mut all = vec![0; if me == root { whole.len() } else { 0 }];
    team.gather(root, &mine, &mut all)?;
    held("the gather", round, &all, if me == root { &whole } else { &[] })?;
    let mut all = vec![0; whole.len()];
    team.all_gather(&mine, &mut all)?;
    held("the all-gather", round, &all, &whole)?;
    let given = |member| values(!round, member, count * size as usize);
    let mut taken = vec![0; whole.len()];
    team.all_to_all(&given(me), &mut taken)?;
    let expected: Vec<u64> = (0..size).flat_map(|member| given(member)[place.clone()].to_vec()).collect();
    held("the all-to-all", round, &taken, &expected)?;

    let steps = |member| of(member).into_iter().map(|value| [value | 1, value]).collect::<Vec<Step>>();
    let up_to = |last: u32| {
        let join = |left: Vec<Step>, right: Vec<Step>| {
            left.into_iter().zip(right).map(|(left, right)| follow(left, right)).collect()
        };
        (1..=last).map(steps).fold(steps(0), join)
    };
    let mut scanned = steps(me);
    team.scan(&mut scanned, follow)?;
    held("the scan", round, &scanned, &up_to(me))?;
    let mut reduced = steps(me);
    team.reduce(root, &mut reduced, follow)?;
    held("the reduction", round, &reduced, &if me == root { up_to(size - 1) } else { steps(me) })?;
    let mut largest = mine.clone();
    team.all_reduce(&mut largest, Operator::Max)?;
    let column = |at: usize| (0..size as usize).map(move |member| member * count + at);
    let largest_at = |at| column(at).map(|place| whole[place]).max().unwrap_or(0);
    let expected: Vec<u64> = (0..count).map(largest_at).collect();
    held("the all-reduce", round, &largest, &expected)?;
    let met: Vec<[u64; 2]> = (0..size).map(|member| [round, member.into()]).collect();
    held("the barrier", round, &team.barrier_with([round, me.into()])?, &met)?;
    Ok(team.barrier()?)
}

/// Goal: each collective gives what it says, for every length and root.
fn collectives(runtime: &Runtime, seed: u64) -> Outcome {
    let world = runtime.world()?;
    for (round, count) in (seed..).zip(LENGTHS) {
        check(&world, round, count)?;
    }
    for round in 0..30 {
        check(&world, round, (seed + round) as usize % 40)?;
    }
    Ok(())
}

/// Goal: teams of teams, uneven and at the same time, some of which overlap, have their own order; what another has does not
/// reach them.
fn teams(runtime: &Runtime, seed: u64) -> Outcome {
    let world = runtime.world()?;
    let me = world.rank();
    for round in 0..10 {
        let backwards = world.split(0, u32::MAX - me)?;
        if backwards.rank() != world.size() - 1 - me || backwards.members()[0].0 != world.size() - 1 {
            return Err(format!("a team in the order of keys: {backwards:?}").into());
        }
        // One of three, and those behind it.
        let odd = world.split(u32::from(me % 3 == 1), 0)?;
        let deeper = odd.split(odd.rank() % 2, 0)?;
        check(&deeper, seed + round, 5)?;
        check(&odd, round, 3000)?;
        odd.barrier()?;
        check(&deeper, round, 2)?;
        check(&backwards, round, 9)?;
        let together: u64 = odd.barrier_with(u64::from(me))?.iter().sum();
        let expected: u64 = odd.members().iter().map(|rank| u64::from(rank.0)).sum();
        held("who is together", round, &[together], &[expected])?;
    }
    Ok(())
}

/// Whether a collective of a team has ended because a member called something else.
fn is_spoilt<T: std::fmt::Debug>(result: vgas::Result<T>, says: &[&str]) -> Outcome {
    let is_said =
        |text: String| text.contains("no use any more") && says.iter().any(|said| text.contains(said));
    match result {
        Err(error) if is_said(error.to_string()) => Ok(()),
        other => Err(format!("{other:?} without {says:?}").into()),
    }
}

/// Goal: a member that calls another collective, or with another size or root, is an error on every member that names one that
/// differs, not a wait; other teams go on.
fn disagreement(runtime: &Runtime, _seed: u64) -> Outcome {
    let world = runtime.world()?;
    let is_odd = world.rank() == 1;
    let with = |wrong: &dyn Fn(&Team) -> vgas::Result<()>, says: &str| -> Outcome {
        // Who goes on may be the first to find that the others do not.
        let says = &[says, "calls a barrier"];
        let team = world.split(0, 0)?;
        let called = wrong(&team);
        // At the latest the next ones that all wait for.
        let after = (0..3).try_for_each(|_| team.barrier());
        if called.is_err() {
            is_spoilt(called, says)?;
        }
        is_spoilt(after, says)?;
        is_spoilt(team.broadcast(0, &mut [1]), says)?;
        world.barrier()?;
        Ok(())
    };
    let one = usize::from(is_odd);
    with(
        &|team| team.all_gather(&vec![1u8; 3 + one], &mut vec![0; (3 + one) * team.size() as usize]),
        "bytes in an all-gather",
    )?;
    with(&|team| team.all_reduce(&mut vec![1u8; 3 + one], Operator::Sum), "bytes in an all-reduce")?;
    with(&|team| team.broadcast(0, &mut vec![1u8; 30_000 + one]), "bytes in a broadcast with root 0")?;
    with(&|team| team.broadcast(one as u32, &mut [1u64]), "a broadcast with root")?;
    with(&|team| team.broadcast(one as u32, &mut vec![1u64; 10_000]), "a broadcast with root")?;
    with(&|team| if is_odd { team.scan(&mut [1u8], Operator::Sum) } else { team.barrier() }, "a scan")?;
    with(&|team| if is_odd { team.split(0, 0).map(drop) } else { team.barrier() }, "a split")?;
    with(
        &|team| if is_odd { Ok(()) } else { team.reduce(0, &mut [1u8], Operator::Sum) },
        "a reduction with root 0",
    )?;
    // What shows without a message is an error here alone, and costs the team nothing.
    if world.broadcast(world.size(), &mut [0u8]).is_ok() || world.all_gather(&[0u8], &mut []).is_ok() {
        return Err("a root or a length that there is not".into());
    }
    check(&world, 1, 100)
}

/// Goal: threads go on by themselves, each with a team of its own.
fn threads(runtime: &Runtime, seed: u64) -> Outcome {
    const THREADS: usize = 3;
    let world = runtime.world()?;
    let teams: Vec<Team> = (0..THREADS).map(|_| world.split(0, 0)).collect::<vgas::Result<_>>()?;
    std::thread::scope(|scope| {
        let run = move |team: &Team| {
            let done = (0..10).try_for_each(|round| check(team, seed + round, 1500));
            done.map_err(|error| error.to_string())
        };
        let started: Vec<_> = teams.iter().map(|team| scope.spawn(move || run(team))).collect();
        started.into_iter().try_for_each(|thread| thread.join().map_err(|_| "a panic".to_owned())?)
    })?;
    Ok(())
}
