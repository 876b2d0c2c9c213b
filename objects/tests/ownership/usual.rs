//! Programs in std's words: what the prelude has, used as std's would be, and held against it.

use crate::scenarios::nothing_is_left;
use crate::{HEAP, JOBS, Outcome, Scenario};
use std::collections::BTreeMap;
use vgas_objects::prelude::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};
use vgas_objects::prelude::*;
use vgas_objects::{Objects, RunOptions, dvec as vec};

pub const ALL: &[Scenario] =
    &[Scenario { name: "usual_words", jobs: JOBS, heap: HEAP, rank: words, ends_with: None }];

/// As an error that a closure of another rank may return, too.
fn ensure(is_so: bool, what: &str) -> Result<(), std::string::String> {
    if is_so { Ok(()) } else { Err(what.to_owned()) }
}

/// A word, and where it was.
#[derive(Clone, Debug, PartialEq, Portable, Shareable)]
struct Word {
    text: String,
    places: Vec<u32>,
}

/// Goal: a program of boxes, rows, text, maps, shared values, locks, threads and channels does what it would with std's, and nothing is left.
fn words(objects: &Objects, _: u64) -> Outcome {
    let said = objects.run(&RunOptions::default(), || -> Result<(), std::string::String> {
        rows()?;
        edited()?;
        maps()?;
        atomics()?;
        threads()?;
        channels()
    })?;
    said.transpose()?;
    nothing_is_left(objects)
}

/// What rows do in the middle, on one rank and lent to others, as the same on std.
fn rows() -> Result<(), std::string::String> {
    let mut ours: Vec<u64> = vec![3; 5];
    let mut std = std::vec![3; 5];
    ours.extend_from_slice(&[1, 2, 4]);
    std.extend_from_slice(&[1, 2, 4]);
    let part = (ours.split_off(6), std.split_off(6));
    ensure(part.0[..] == part.1[..] && ours[..] == std[..], "split")?;
    thread::scope(|scope| {
        let (row, other) = (&mut ours, part.0);
        let changed = scope.spawn(call!(|row, other| {
            let mut other = other;
            row.insert(2, 9);
            row.append(&mut other);
            (row.remove(0), row.swap_remove(1), other.len())
        }));
        let (first, second, left) = changed.join().map_err(|why| why.to_string())?;
        std.insert(2, 9);
        std.extend(part.1);
        ensure((first, second, left) == (std.remove(0), std.swap_remove(1), 0), "taken out")
    })?;
    ours.retain(|number| number % 2 == 1);
    std.retain(|number| number % 2 == 1);
    ours.resize(7, 8);
    std.resize(7, 8);
    ensure(ours[..] == std[..] && ours.clone() == ours, &format!("{ours:?} for {std:?}"))?;
    let boxed: Box<Word> = Box::new(Word { text: "a word".into(), places: vec![1, 2] });
    ensure(boxed.clone() == boxed && boxed.text == "a word", "clones")
}

/// Rows and text that lose what is in their middle, each step as on std.
fn edited() -> Result<(), std::string::String> {
    let mut ours: Vec<String> = (0..12u32).map(|number| String::from(format!("{}", number / 3))).collect();
    let mut std: std::vec::Vec<_> = (0..12u32).map(|number| format!("{}", number / 3)).collect();
    for range in [2..5, 0..0, 0..1, 7..8] {
        let taken: std::vec::Vec<_> = ours.drain(range.clone()).map(|text| text.to_string()).collect();
        ensure(taken == std.drain(range).collect::<std::vec::Vec<_>>(), "drained")?;
    }
    ours.dedup();
    std.dedup();
    ensure(
        ours.iter().map(|text| text.as_str()).eq(std.iter().map(|text| text.as_str())),
        "without the same twice",
    )?;
    ours.drain(..);
    ensure(ours.is_empty(), "all drained")?;
    let (mut ours, mut std) = (String::from("größe"), std::string::String::from("größe"));
    ensure(ours.pop() == std.pop() && ours.pop() == std.pop() && ours.as_str() == std, "the last letters")?;
    ours.truncate(4);
    ensure(ours.as_str() == "grö" && String::new().pop().is_none(), "its beginning")
}

/// A map by its entries, held against std's, on the rank that has it and on others.
fn maps() -> Result<(), std::string::String> {
    let mut ours: HashMap<u64, Vec<u64>> = HashMap::new();
    let mut std: BTreeMap<u64, std::vec::Vec<u64>> = BTreeMap::new();
    for number in 0..200u64 {
        let key = number * number % 37;
        ours.entry(key).and_modify(|row| row.push(number)).or_insert_with(|| vec![number]);
        std.entry(key).or_default().push(number);
    }
    let same = |ours: &HashMap<u64, Vec<u64>>, std: &BTreeMap<u64, std::vec::Vec<u64>>| {
        ours.len() == std.len()
            && std.iter().all(|(key, row)| ours.get(key).is_some_and(|found| found[..] == row[..]))
            && ours.keys().all(|key| std.contains_key(key))
            && ours.values().map(|row| row.len()).sum::<usize>()
                == std.values().map(|row| row.len()).sum::<usize>()
    };
    ensure(same(&ours, &std), "entries")?;
    thread::scope(|scope| {
        let map = &mut ours;
        let there = scope.spawn(call!(|map| {
            map.retain(|key, row| {
                row.push(0);
                key % 3 != 1
            });
            map.remove_entry(&0).map(|(key, row)| key + row.len() as u64)
        }));
        let removed = there.join().map_err(|why| why.to_string())?;
        std.retain(|key, row| {
            row.push(0);
            key % 3 != 1
        });
        ensure(removed == std.remove(&0).map(|row| row.len() as u64), "kept and removed")
    })?;
    ensure(same(&ours, &std), "what is kept")?;
    for key in 0..37 {
        let gone = match ours.entry(key) {
            vgas_objects::Entry::Occupied(entry) if key % 2 == 0 => Some(entry.remove().len()),
            vgas_objects::Entry::Occupied(mut entry) => {
                entry.get_mut().push(1);
                std.get_mut(&key).ok_or("not in std's")?.push(1);
                None
            }
            vgas_objects::Entry::Vacant(entry) => {
                entry.insert(vec![key]);
                std.insert(key, std::vec![key]);
                None
            }
        };
        ensure(gone.is_none() || gone == std.remove(&key).map(|row| row.len()), "an entry")?;
    }
    ours.values_mut().for_each(|row| row.push(2));
    std.values_mut().for_each(|row| row.push(2));
    ensure(same(&ours, &std), "entries one by one")?;
    let drained: BTreeMap<u64, std::vec::Vec<u64>> =
        ours.drain().map(|(key, row)| (key, row.to_vec())).collect();
    ensure(drained == std && ours.is_empty(), "drained")
}

/// Numbers as large as pointers, and a yes or no, changed by threads of all ranks.
fn atomics() -> Result<(), std::string::String> {
    let (count, least, is_seen) = (AtomicUsize::new(0), AtomicIsize::new(0), AtomicBool::new(false));
    thread::scope(|scope| {
        let mut all = std::vec![];
        for number in 0..6usize {
            let (count, least, is_seen) = (&count, &least, &is_seen);
            all.push(scope.spawn(call!(|number, count, least, is_seen| {
                let _ = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |was| Some(was + number));
                least.fetch_min(-(number as isize), Ordering::SeqCst);
                is_seen.fetch_or(true, Ordering::SeqCst)
            })));
        }
        let firsts = all.into_iter().filter_map(|one| one.join().ok()).filter(|was_seen| !was_seen).count();
        ensure(firsts == 1, "one is the first")
    })?;
    ensure(count.load(Ordering::SeqCst) == 15 && least.load(Ordering::SeqCst) == -5, "numbers")?;
    let none = count.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |_| None);
    ensure(
        none == Err(15)
            && is_seen.compare_exchange(false, true, Ordering::SeqCst, Ordering::SeqCst) == Err(true),
        "not changed",
    )
}

/// Threads count in a lock, a shared map and an atomic.
fn threads() -> Result<(), std::string::String> {
    let texts: Vec<String> = vec!["to be or not".into(), "to be".into()];
    let counts: Arc<Mutex<HashMap<String, u64>>> = Arc::new(Mutex::new(HashMap::new()));
    let letters = AtomicU64::new(0);
    thread::scope(|scope| {
        let mut all = std::vec![];
        for text in &texts {
            let (counts, letters) = (counts.clone(), &letters);
            all.push(scope.spawn(call!(|text, counts, letters| {
                for word in text.split(' ') {
                    letters.fetch_add(word.len() as u64, Ordering::Relaxed);
                    *counts.lock().unwrap().get_or_insert_with(word.into(), || 0) += 1;
                }
            })));
        }
    });
    ensure(letters.load(Ordering::Relaxed) == 13, "letters")?;
    let counts = counts.lock().map_err(|why| why.to_string())?;
    for (word, count) in [("to", 2), ("be", 2), ("or", 1), ("not", 1)] {
        ensure(counts.get(word).as_deref() == Some(&count), word)?;
    }
    Ok(())
}

/// Values that threads are given, send and return.
fn channels() -> Result<(), std::string::String> {
    let (sender, receiver) = mpsc::channel();
    let all: std::vec::Vec<_> = (0..8u32)
        .map(|number| {
            let (sender, word) = (sender.clone(), Word { text: "sent".into(), places: vec![number] });
            thread::spawn(call!(|sender, word, number| {
                let mut word = word;
                word.places.push(number);
                sender.send(word.clone()).map_err(|_| ()).map(|()| word)
            }))
        })
        .collect();
    drop(sender);
    let mut came: std::vec::Vec<Word> = receiver.iter().collect();
    came.sort_by_key(|word| word.places[0]);
    let returned = all.into_iter().map(|one| one.join().map_err(|why| why.to_string()));
    let returned: std::vec::Vec<_> = returned.collect::<Result<_, _>>()?;
    let returned: std::vec::Vec<Word> =
        returned.into_iter().collect::<Result<_, ()>>().map_err(|()| "not sent")?;
    ensure(came == returned && came.len() == 8, "what was sent is what was returned")
}
