//! Channels: from all ranks to one, with ends that travel.

use crate::scenarios::{ensure, nothing_is_left, reaches, sent};
use crate::{HEAP, JOBS, Outcome, Scenario};
use rustix::process::{Signal, getpid, kill_process};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;
use vgas::Rank;
use vgas_objects::sync::{
    DArc, DAtomicU64, Receiver, RecvError, RecvTimeoutError, Sender, TryRecvError, TrySendError, channel,
};
use vgas_objects::{DBox, DVec, Objects, Portable, RunOptions, Shareable, rank, spawn_to, task};

pub const ALL: &[Scenario] = &[
    Scenario {
        name: "channel_order",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, order),
        ends_with: None,
    },
    Scenario {
        name: "channel_moves",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, moves),
        ends_with: None,
    },
    Scenario {
        name: "channel_visited",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, visited),
        ends_with: None,
    },
    Scenario { name: "channel_ends", jobs: JOBS, heap: HEAP, rank: ends, ends_with: None },
    Scenario {
        name: "channel_tries",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, tries),
        ends_with: None,
    },
    Scenario {
        name: "channel_stages",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, stages),
        ends_with: None,
    },
    Scenario {
        name: "channel_nested",
        jobs: JOBS,
        heap: HEAP,
        rank: |o, s| all(o, s, nested),
        ends_with: None,
    },
    Scenario {
        name: "channel_messages",
        jobs: &[(2, 2)],
        heap: HEAP,
        rank: |o, s| all(o, s, messages),
        ends_with: None,
    },
    Scenario {
        name: "channel_killed",
        jobs: &[(2, 1), (2, 2), (3, 3)],
        heap: HEAP,
        rank: |o, s| all(o, s, killed),
        ends_with: Some("killed by signal 9"),
    },
];

/// Runs a program on all ranks with one worker each, and sees to it that nothing is left of it.
fn all(objects: &Objects, seed: u64, main: fn(&Objects, u64) -> Outcome) -> Outcome {
    let ended = objects.run(&RunOptions::default(), || main(objects, seed))?;
    ended.unwrap_or(Ok(()))?;
    objects.barrier()?;
    nothing_is_left(objects)
}

type Numbered = (u32, u64, DBox<[u64; 40]>);

/// Goal: what all ranks send at the same time comes as it was sent, that of each in its order, also with little room; then whoever
/// receives hears that it is over.
fn order(objects: &Objects, _seed: u64) -> Outcome {
    const EACH: u64 = 300;
    for room in [1, 4, 1000] {
        let (sender, receiver) = channel::<Numbered>(room);
        let produce = task!(|sender: Sender<Numbered>| -> () {
            let me = rank().map_or(0, |rank| rank.0);
            for number in 0..EACH {
                sender.send((me, number, DBox::new([number; 40]))).unwrap();
            }
        });
        let running: Vec<_> =
            (0..objects.ranks()).map(|to| spawn_to(Rank(to), produce, sender.clone())).collect();
        drop(sender);
        let mut next = vec![0; objects.ranks() as usize];
        for (from, number, object) in receiver.iter() {
            let is_next = std::mem::replace(&mut next[from as usize], number + 1) == number;
            ensure(is_next && object[39] == number, || format!("{number} of {from} with room for {room}"))?;
        }
        ensure(next.iter().all(|next| *next == EACH), || format!("{next:?} with room for {room}"))?;
        ensure(receiver.recv().is_err(), || "it is over".into())?;
        running.into_iter().try_for_each(|one| one.join())?;
    }
    Ok(())
}

/// Goal: a task that waits for another one, and sends something afterwards, is not buried under one that waits for what it sends. Method: the
/// receiver's task is the next in the queue of the rank whose only worker waits for a task elsewhere, which lasts until the receiver's has begun.
fn nested(objects: &Objects, _seed: u64) -> Outcome {
    for to in 0..objects.ranks() {
        let next = (to + 1) % objects.ranks();
        type Told = (Receiver<u64>, (DArc<DAtomicU64>, u32));
        let first = task!(|(sender, (receiver, (begun, next))): (Sender<u64>, Told)| -> u64 {
            let take = task!(|(receiver, begun): (Receiver<u64>, DArc<DAtomicU64>)| -> u64 {
                let _ = begun.fetch_add(1);
                receiver.recv().unwrap_or(0)
            });
            let slow = task!(|(begun, is_elsewhere): (DArc<DAtomicU64>, u32)| -> () {
                // On the same rank it is in the receiver's way itself.
                let waited = if is_elsewhere == 0 { Ok(()) } else { reaches(&begun, 1) };
                waited.unwrap_or_else(|why| panic!("{why}"))
            });
            let me = rank().unwrap_or(Rank(0));
            let taken = spawn_to(me, take, (receiver, begun.clone()));
            let slow = spawn_to(Rank(next), slow, (begun, u32::from(me != Rank(next)))).join();
            let _ = sender.send(u64::from(next) + 7);
            taken.join().unwrap_or(1) + slow.map_or(100, |()| 0)
        });
        let (sender, receiver) = channel(1);
        let begun = DArc::new(DAtomicU64::new(0));
        let found = spawn_to(Rank(to), first, (sender, (receiver, (begun, next)))).join()?;
        ensure(found == u64::from(next) + 7, || format!("{found} on rank {to}"))?;
    }
    Ok(())
}

/// Goal: the same where the rank knows nothing by which tasks wait for each other when its task begins to wait: what comes to it then brings it.
fn visited(objects: &Objects, _seed: u64) -> Outcome {
    let (here, there) = (Rank(0), Rank(objects.ranks() - 1));
    if here == there {
        return Ok(());
    }
    let (waits, begun) = (DArc::new(DAtomicU64::new(0)), DArc::new(DAtomicU64::new(0)));
    let first = task!(|(waits, begun): (DArc<DAtomicU64>, DArc<DAtomicU64>)| -> () {
        let slow = task!(|begun: DArc<DAtomicU64>| -> () {
            reaches(&begun, 1).unwrap_or_else(|why| panic!("{why}"));
        });
        let slow = spawn_to(Rank(0), slow, begun);
        let _ = waits.fetch_add(1);
        slow.join().unwrap_or_else(|why| panic!("{why}"));
    });
    let first = spawn_to(there, first, (waits.clone(), begun.clone()));
    reaches(&waits, 1)?;
    let take = task!(|(receiver, begun): (Receiver<u64>, DArc<DAtomicU64>)| -> u64 {
        let _ = begun.fetch_add(1);
        receiver.recv().unwrap_or(0)
    });
    let (sender, receiver) = channel(1);
    let taken = spawn_to(there, take, (receiver, begun));
    first.join()?;
    sender.send(7)?;
    let taken = taken.join()?;
    ensure(taken == 7, || format!("{taken} was received"))
}

/// Goal: the end that receives goes to other ranks, before it is used and with what has come to it; both ends go through channels.
fn moves(objects: &Objects, _seed: u64) -> Outcome {
    let last = Rank(objects.ranks() - 1);
    let sum = task!(|receiver: Receiver<(u64, DVec<u64>)>| -> u64 {
        receiver.into_iter().map(|(number, row)| number + row.iter().sum::<u64>()).sum()
    });
    for taken in [0, 1] {
        let (sender, receiver) = channel(100);
        for number in 0..20 {
            sender.send((number, (0..number).collect()))?;
        }
        sender.flush()?;
        let sum_of = |(number, row): (u64, DVec<u64>)| number + row.iter().sum::<u64>();
        let mut found: u64 = (0..taken).map_while(|_| receiver.recv().ok()).map(sum_of).sum();
        let running = spawn_to(last, sum, receiver);
        for number in 20..40 {
            sender.send((number, (0..number).collect()))?;
        }
        drop(sender);
        found += running.join()?;
        let expected = (0..40u64).map(|number| number + (0..number).sum::<u64>()).sum::<u64>();
        ensure(found == expected, || format!("{found} instead of {expected}"))?;
    }
    // A channel of channels: each task answers through the one that it was sent.
    let (sender, receiver) = channel::<(Sender<u64>, u64)>(3);
    let answers = task!(|asked: Receiver<(Sender<u64>, u64)>| -> () {
        asked.iter().for_each(|(answer, number)| answer.send(number * 2).unwrap());
    });
    let running = spawn_to(last, answers, receiver);
    for number in 0..10 {
        let (answer, answered) = channel(1);
        sender.send((answer, number))?;
        ensure(answered.recv() == Ok(2 * number), || format!("the answer to {number}"))?;
        ensure(answered.recv() == Err(RecvError), || "it is over".into())?;
    }
    drop(sender);
    Ok(running.join()?)
}

static DROPPED: AtomicU64 = AtomicU64::new(0);

#[derive(Portable, Shareable)]
struct Noted {
    part: DBox<u64>,
}

#[derive(Portable, Shareable)]
struct Large {
    noted: Noted,
    rest: [u64; 500],
}

#[derive(Portable, Shareable)]
struct Token;

impl Drop for Noted {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

impl Drop for Token {
    fn drop(&mut self) {
        DROPPED.fetch_add(1, Ordering::Relaxed);
    }
}

fn noted() -> Noted {
    Noted { part: DBox::new(7) }
}

fn large() -> Large {
    Large { noted: noted(), rest: [3; 500] }
}

/// Goal: what is in a channel is dropped once when its ends go, whichever goes first, of small, large and empty values; with a sender
/// that waits for room.
fn ends(objects: &Objects, seed: u64) -> Outcome {
    std::panic::set_hook(Box::new(|_| {}));
    let made = 3 * (6 + 1 + 3 + 5 + 1);
    all(objects, seed, |objects, _| {
        fn each<T: Portable>(last: Rank, make: fn() -> T) -> Outcome {
            // The receiver goes first: what it has not taken, and what waits for room.
            let (sender, receiver) = channel::<T>(4);
            for _ in 0..6 {
                ensure(sender.send(make()).is_ok(), || "it is received".into())?;
            }
            drop(receiver.recv()?);
            drop(receiver);
            let refused = sender.try_send(make());
            ensure(matches!(refused, Err(TrySendError::Disconnected(_))), || "nobody receives".into())?;
            ensure(!sender.flush()? && refused.is_err(), || "it is known then".into())?;
            drop(refused);
            // The sender goes first, on another rank.
            let (sender, receiver) = channel::<T>(10);
            (0..3).try_for_each(|_| sender.send(make()).map_err(|_| "it is received"))?;
            spawn_to(last, task!(|sender: Sender<T>| -> () { drop(sender) }), sender).join()?;
            drop(receiver.recv()?);
            drop(receiver.recv()?);
            drop(receiver);
            // In an unwinding task, with a value in it.
            let (sender, receiver) = channel::<T>(10);
            (0..5).try_for_each(|_| sender.send(make()).map_err(|_| "it is received"))?;
            sender.flush()?;
            let panics = task!(|receiver: Receiver<T>| -> () {
                let _first = receiver.recv();
                panic!("with {receiver:?}");
            });
            ensure(spawn_to(last, panics, receiver).join().is_err(), || "it panics".into())?;
            // A sender that panics is one less.
            let (sender, receiver) = channel::<T>(1);
            let panics = task!(|sender: Sender<T>| -> () { panic!("with {sender:?}") });
            ensure(sender.send(make()).is_ok(), || "it is received".into())?;
            sender.flush()?;
            ensure(spawn_to(last, panics, sender).join().is_err(), || "it panics".into())?;
            ensure(receiver.iter().count() == 1, || "it is over".into())
        }
        let last = Rank(objects.ranks() - 1);
        each(last, noted)?;
        each(last, large)?;
        each(last, || Token)
    })?;
    let dropped = crate::job(objects).all_reduce(DROPPED.load(Ordering::Relaxed), |a, b| a + b)?;
    ensure(dropped == made, || format!("{dropped} of {made} values were dropped"))
}

/// Goal: who only tries is told what there is, and who waits for a time waits no longer.
fn tries(objects: &Objects, _seed: u64) -> Outcome {
    let make = task!(|_n: ()| -> (Sender<u64>, Receiver<u64>) { channel(2) });
    for home in (0..objects.ranks()).map(Rank) {
        let (sender, receiver) = spawn_to(home, make, ()).join()?;
        ensure(receiver.try_recv() == Err(TryRecvError::Empty), || "it is empty".into())?;
        let waited = receiver.recv_timeout(Duration::from_millis(20));
        ensure(waited == Err(RecvTimeoutError::Timeout), || format!("{waited:?}"))?;
        ensure(sender.try_send(1).is_ok() && sender.try_send(2).is_ok(), || "there is room".into())?;
        let full = sender.try_send(3);
        ensure(matches!(full, Err(TrySendError::Full(3))), || format!("{full:?}"))?;
        ensure(receiver.try_recv() == Ok(1), || "the first".into())?;
        ensure(receiver.recv_timeout(Duration::from_secs(5)) == Ok(2), || "the second".into())?;
        sender.send(4)?;
        ensure(receiver.recv_timeout(Duration::from_secs(5)) == Ok(4), || "it comes".into())?;
        ensure(receiver.try_iter().count() == 0, || "that was all".into())?;
        for number in 0..300 {
            sender.send(number)?;
            let found = receiver.try_recv();
            ensure(found == Ok(number), || format!("{number} was sent here before: {found:?}"))?;
        }
        drop(sender);
        ensure(receiver.try_recv() == Err(TryRecvError::Disconnected), || "no sender is left".into())?;
        ensure(receiver.recv() == Err(RecvError), || "it is over".into())?;
        ensure(receiver.try_recv() == Err(TryRecvError::Disconnected), || "it is over".into())?;
    }
    Ok(())
}

/// Goal: tasks that wait for each other go on, though each rank has one worker, whichever begins first.
fn stages(objects: &Objects, _seed: u64) -> Outcome {
    const STAGES: u64 = 5;
    const EACH: u64 = 100;
    let stage = task!(|(from, to): (Receiver<u64>, Sender<u64>)| -> () {
        from.iter().for_each(|number| to.send(number + 1).unwrap());
    });
    let (sender, mut receiver) = channel(2);
    let mut running = Vec::new();
    for number in 0..STAGES {
        let (to, next) = channel(2);
        let place = Rank((number % u64::from(objects.ranks())) as u32);
        running.push(spawn_to(place, stage, (std::mem::replace(&mut receiver, next), to)));
    }
    let produce = task!(|sender: Sender<u64>| -> () {
        (0..EACH).for_each(|number| sender.send(number).unwrap());
    });
    running.push(spawn_to(Rank(0), produce, sender));
    let found: Vec<u64> = receiver.iter().collect();
    ensure(found == (STAGES..EACH + STAGES).collect::<Vec<_>>(), || format!("{found:?}"))?;
    running.into_iter().try_for_each(|one| Ok(one.join()?))
}

/// Goal: one value is one message, those that are sent while its answer is awaited are one together, and so are those that are received.
/// Method: a channel on another node, without room while its sender goes on.
fn messages(objects: &Objects, _seed: u64) -> Outcome {
    let make = task!(|_n: ()| -> (Sender<u64>, Receiver<u64>) { channel(8) });
    let (sender, receiver) = spawn_to(Rank(1), make, ()).join()?;
    (0..8).try_for_each(|number| sender.send(number))?;
    sender.flush()?;
    let before = sent(objects);
    let expect = |what: &str, wanted: u64| {
        let found = sent(objects) - before;
        ensure(found == wanted, || format!("{what}: {found} messages instead of {wanted}"))
    };
    (8..16).try_for_each(|number| sender.send(number))?;
    expect("without room", 1)?;
    let mut found: Vec<u64> = (0..8).map_while(|_| receiver.recv().ok()).collect();
    sender.flush()?;
    expect("eight received, and seven sent together", 3)?;
    found.extend((0..8).map_while(|_| receiver.recv().ok()));
    expect("eight more received", 4)?;
    ensure(found == (0..16).collect::<Vec<_>>(), || format!("{found:?}"))?;
    // Clones of a rank cost one message, until one is dropped.
    let clones: Vec<_> = (0..100).map(|_| sender.clone()).collect();
    expect("a hundred clones", 5)?;
    std::mem::forget(clones);
    Ok(())
}

/// A rank ends while others wait to receive from it, and to send to it.
fn killed(objects: &Objects, _seed: u64) -> Outcome {
    let last = Rank(objects.ranks() - 1);
    let (sender, receiver) = channel::<u64>(1);
    let (back, answers) = channel::<u64>(1);
    let ends = task!(|(receiver, back): (Receiver<u64>, Sender<u64>)| -> () {
        for number in receiver.iter() {
            back.send(number).unwrap();
            if number == 5 {
                let _ = kill_process(getpid(), Signal::KILL);
            }
        }
    });
    let _running = spawn_to(last, ends, (receiver, back));
    for number in 0.. {
        if sender.send(number).is_err() || answers.recv().is_err() {
            break;
        }
    }
    Ok(())
}
