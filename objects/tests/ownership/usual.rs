//! Programs in std's words: what the prelude has, used as std's would be, and held against it.

use crate::scenarios::nothing_is_left;
use crate::{HEAP, JOBS, Outcome, Scenario};
use vgas_objects::prelude::atomic::{AtomicU64, Ordering};
use vgas_objects::prelude::*;
use vgas_objects::{Objects, RunOptions, vec};

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
