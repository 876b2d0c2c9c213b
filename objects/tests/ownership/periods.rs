//! Rows that are written again after others have read them, in each of the ways in which others can come to read.

use crate::scenarios::{ensure, nothing_is_left};
use crate::{HEAP, JOBS, Outcome, Scenario};
use vgas::Rank;
use vgas_objects::sync::{DArc, DMutex, DRwLock, channel};
use vgas_objects::{DBox, DVec, HeapOptions, Objects, RunOptions, Word, scope, spawn_to, task};

pub const ALL: &[Scenario] = &[
    Scenario { name: "written_again", jobs: JOBS, heap: HEAP, rank: written_again, ends_with: None },
    Scenario {
        name: "written_again_few_colours",
        jobs: &[(2, 2), (3, 1)],
        heap: HeapOptions { last_colour: 2, ..HEAP },
        rank: written_again,
        ends_with: None,
    },
];

const ROUNDS: u64 = 8;

/// Writes all of a row, several times, and makes it longer; yields what there is to read.
fn write(row: &mut DVec<u64>, number: u64) -> u64 {
    for at in 0..row.len() {
        row[at] = number;
    }
    row.push(number);
    for at in 0..row.len() {
        row[at] += at as u64;
    }
    row.iter().sum()
}

fn sum(row: &DVec<u64>) -> u64 {
    row.iter().sum()
}

/// As [`write`], of all rows of a row.
fn write_all(rows: &mut DVec<DVec<u64>>, number: u64) -> u64 {
    if rows.len() < 5 {
        rows.push(DVec::new());
    }
    let mut all = 0;
    for at in 0..rows.len() {
        all += write(&mut rows[at], number + at as u64);
    }
    all
}

/// Goal: whoever reads a row finds what was written last, though who writes looks only now and then whether it was read. Method: in each round the
/// first rank writes a row, many times, and lets a rank read it; each way to come to read, for itself.
fn written_again(objects: &Objects, _seed: u64) -> Outcome {
    type Way = fn(u32) -> Outcome;
    let ways: [(&str, Way); 9] = [
        ("a row that is lent", lent),
        ("rows in a box that is lent", lent_in_a_box),
        ("rows of which parts are read", read_in_parts),
        ("a row that is written there, too", lent_to_write),
        ("a row that goes there and back", sent),
        ("a row behind a lock", locked),
        ("a counted row", counted),
        ("a row in a channel", in_a_channel),
        ("a row whose name goes there", raw),
    ];
    for (name, way) in ways {
        let ranks = objects.ranks();
        let ended = objects.run(&RunOptions::default(), || way(ranks))?;
        ended.unwrap_or(Ok(())).map_err(|why| format!("{name}: {why}"))?;
        objects.barrier()?;
        nothing_is_left(objects)?;
    }
    Ok(())
}

/// In each round, for each rank: a number that differs.
fn rounds(
    ranks: u32,
    mut round: impl FnMut(Rank, u64) -> Result<(u64, u64), Box<dyn std::error::Error>>,
) -> Outcome {
    for number in 0..ROUNDS * u64::from(ranks) {
        let to = Rank((number % u64::from(ranks)) as u32);
        let (found, expected) = round(to, 1000 * (number + 1))?;
        ensure(found == expected, || {
            format!("{to} has read {found} instead of {expected} in round {number}")
        })?;
    }
    Ok(())
}

fn lent(ranks: u32) -> Outcome {
    let mut row = DVec::new();
    rounds(ranks, |to, number| {
        let expected = write(&mut row, number);
        let found = scope(|scope| {
            scope.spawn_to(to, task!(|row: &DVec<u64>, _n: ()| -> u64 { sum(row) }), &row, ()).join()
        })?;
        Ok((found, expected))
    })
}

fn lent_in_a_box(ranks: u32) -> Outcome {
    let mut rows = DBox::new((0, DBox::new(DVec::new())));
    rounds(ranks, |to, number| {
        let expected = write_all(&mut rows.1, number);
        let found = scope(|scope| {
            let read = task!(|rows: &DBox<(u64, DBox<DVec<DVec<u64>>>)>, _n: ()| -> u64 {
                rows.1.iter().map(sum).sum()
            });
            scope.spawn_to(to, read, &rows, ()).join()
        })?;
        Ok((found, expected))
    })
}

fn read_in_parts(ranks: u32) -> Outcome {
    let mut rows = DVec::new();
    rounds(ranks, |to, number| {
        let expected = write_all(&mut rows, number);
        let found = scope(|scope| {
            let read = task!(|rows: &DVec<DVec<u64>>, _n: ()| -> u64 {
                rows.chunks_of(2).map(|part| part.map_or(0, |part| part.iter().map(sum).sum())).sum()
            });
            scope.spawn_to(to, read, &rows, ()).join()
        })?;
        Ok((found, expected))
    })
}

fn lent_to_write(ranks: u32) -> Outcome {
    let mut rows = DBox::new(DVec::new());
    rounds(ranks, |to, number| {
        write_all(&mut rows, number);
        let next = Rank((to.0 + 1) % ranks);
        let there = scope(|scope| {
            let change =
                task!(|rows: &mut DBox<DVec<DVec<u64>>>, number: u64| -> u64 { write_all(rows, number) });
            scope.spawn_to(to, change, &mut rows, number + 1).join()
        })?;
        let again: u64 = rows.iter().map(sum).sum();
        ensure(there == again, || format!("{again} instead of {there} here"))?;
        let expected = write_all(&mut rows, number + 2);
        let found = scope(|scope| {
            let read = task!(|rows: &DBox<DVec<DVec<u64>>>, _n: ()| -> u64 { rows.iter().map(sum).sum() });
            scope.spawn_to(next, read, &rows, ()).join()
        })?;
        Ok((found, expected))
    })
}

fn sent(ranks: u32) -> Outcome {
    let mut rows = Some(DBox::new(DVec::new()));
    rounds(ranks, |to, number| {
        let mut own = rows.take().ok_or("no rows")?;
        let expected = write_all(&mut own, number);
        let read = task!(|rows: DBox<DVec<DVec<u64>>>| -> (DBox<DVec<DVec<u64>>>, u64) {
            let found = rows.iter().map(sum).sum();
            (rows, found)
        });
        let (own, found) = spawn_to(to, read, own).join()?;
        rows = Some(own);
        Ok((found, expected))
    })
}

/// Rows behind a lock, and which round they are of.
type Rows = (u64, DBox<DVec<DVec<u64>>>);

fn locked(ranks: u32) -> Outcome {
    let lock = DMutex::new((0, DBox::new(DVec::new())));
    let shared = DRwLock::new((0, DBox::new(DVec::new())));
    rounds(ranks, |to, number| {
        let (found, expected) = scope(|scope| {
            // It has begun, mostly, before anything is written: nothing but the locks passes that on.
            let read = task!(|(lock, shared): (&DMutex<Rows>, &DRwLock<Rows>), until: u64| -> u64 {
                let sum_of = |rows: &Rows| (rows.0, rows.1.iter().map(sum).sum::<u64>());
                loop {
                    let one = lock.lock().map_or((until, 0), |rows| sum_of(&rows));
                    let other = shared.read().map_or((until, 0), |rows| sum_of(&rows));
                    if (one.0, other.0) == (until, until) {
                        return one.1 + other.1;
                    }
                }
            });
            let reader = scope.spawn_to(to, read, (&lock, &shared), number + 4);
            let mut expected = 0;
            for number in number..number + 5 {
                let (mut one, mut other) = (lock.lock()?, shared.write()?);
                (one.0, other.0) = (number, number);
                expected = write_all(&mut one.1, number) + write_all(&mut other.1, number + 7);
            }
            Ok::<_, Box<dyn std::error::Error>>((reader.join()?, expected))
        })?;
        Ok((found, expected))
    })
}

fn counted(ranks: u32) -> Outcome {
    let mut row = DArc::new(DVec::new());
    rounds(ranks, |to, number| {
        let expected = match DArc::get_mut(&mut row)? {
            Some(row) => write_all(row, number),
            // A rank keeps units of it.
            None => write_all(DArc::make_mut(&mut row)?, number),
        };
        let read = task!(|rows: DArc<DVec<DVec<u64>>>| -> u64 { rows.iter().map(sum).sum() });
        Ok((spawn_to(to, read, DArc::try_clone(&row)?).join()?, expected))
    })
}

fn in_a_channel(ranks: u32) -> Outcome {
    let (sender, receiver) = channel::<DBox<DVec<DVec<u64>>>>(2);
    let mut rows = Some(DBox::new(DVec::new()));
    let mut receiver = Some(receiver);
    rounds(ranks, |to, number| {
        let mut own = rows.take().ok_or("no rows")?;
        let expected = write_all(&mut own, number);
        sender.send(own)?;
        let read = task!(|receiver: Receiver| -> (Receiver, (u64, Own)) {
            let rows = receiver.recv().unwrap_or_else(|why| panic!("{why}"));
            let found = rows.iter().map(sum).sum();
            (receiver, (found, rows))
        });
        let (back, (found, own)) = spawn_to(to, read, receiver.take().ok_or("no receiver")?).join()?;
        (receiver, rows) = (Some(back), Some(own));
        Ok((found, expected))
    })
}

type Own = DBox<DVec<DVec<u64>>>;
type Receiver = vgas_objects::sync::Receiver<Own>;

fn raw(ranks: u32) -> Outcome {
    let mut rows = DBox::new(DVec::new());
    rounds(ranks, |to, number| {
        let expected = write_all(&mut rows, number);
        let word = DBox::into_raw(std::mem::replace(&mut rows, DBox::new(DVec::new())));
        let read = task!(|bits: u64| -> (u64, u64) {
            let Some(word) = Word::from_bits(bits) else { return (0, 0) };
            // SAFETY: the word of a box that is given up as long as this runs.
            let rows: DBox<DVec<DVec<u64>>> = unsafe { DBox::from_raw(word) };
            let found = rows.iter().map(sum).sum();
            (DBox::into_raw(rows).bits(), found)
        });
        let (bits, found) = spawn_to(to, read, word.bits()).join()?;
        let word = Word::from_bits(bits).ok_or("no word")?;
        // SAFETY: as above: it was given up again.
        rows = unsafe { DBox::from_raw(word) };
        Ok((found, expected))
    })
}
