//! Any bytes as messages of tasks, and as how tasks have ended. See [`crate::fuzzing`].

use super::TaskError;
use super::entry::{Task, code_of, table};
use super::job::settled;
use super::lend::{self, RETURNED};
use super::travel::any_words;
use crate::task;
use vgas::Rank;

/// Arguments of this file's task.
type TestArguments<'s> = ((&'s mut [u32; 3], &'s u8), u64);

/// Bytes of that.
const OWN_BYTES: usize = 12 + 1 + 8;

fn own() -> Task<((&'static mut [u32; 3], &'static u8), u64), u64> {
    task!(|(numbers, by): (&mut [u32; 3], &u8), number: u64| -> u64 {
        numbers.iter_mut().for_each(|of| *of = of.wrapping_add(u32::from(*by)));
        if number % 7 == 3 {
            // Without the hook of panics, in which a fuzzer ends.
            std::panic::resume_unwind(Box::new("a seventh of them"));
        }
        number.wrapping_add(1)
    })
}

/// A message: the number of ranks, the number of words, the words, and the bytes that come with them. A
/// message that names the task of this file runs it with these bytes; any other names a task of the program,
/// or nothing.
pub fn objects_tasks(bytes: &[u8]) {
    let &[ranks, count, ref rest @ ..] = bytes else { return };
    let (words, arguments) = rest.split_at(rest.len().min(4 * usize::from(count)));
    let words: Vec<u32> = words.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if let Some(entry) = any_words(&words, ranks.into()) {
        let is_one = table().get(entry as usize).is_some_and(|entry| *entry != 0);
        assert_eq!(code_of(entry).is_some(), is_one, "task {entry}");
    }
    let code = own().number().and_then(code_of).expect("it is in the table");
    let mark = lend::mark::<TestArguments<'_>, u64>();
    // As another task's. A fuzzer finds out what this one's arguments begin with.
    assert!(arguments.starts_with(&mark) || code(arguments).is_none());
    let outcome = code(&[&mark[..], arguments].concat());
    assert_eq!(outcome.is_some(), arguments.len() == OWN_BYTES, "{} bytes", arguments.len());
    outcome.into_iter().for_each(|bytes| outcome_of(&bytes));
}

/// Decodes the end of a task that was lent three numbers and returns one.
pub(crate) fn outcome(bytes: &[u8]) {
    outcome_of(bytes);
}

fn outcome_of(bytes: &[u8]) {
    let (mut numbers, by, mut back) = ([1, 2, 3], 1, Vec::new());
    let _ = lend::pack::<TestArguments<'_>, u64>((&mut numbers, &by), 0, &mut back);
    match settled::<u64>(Rank(3), bytes, &back) {
        Ok(result) => {
            assert_eq!((bytes[0], bytes.len()), (RETURNED, 1 + 12 + 8));
            assert_eq!(bytes[13..], result.to_ne_bytes());
        }
        Err(TaskError::Panicked { message, .. }) => assert!(message.len() <= 3 * bytes.len()),
        Err(
            TaskError::Stopped | TaskError::Abandoned { rank: Rank(3), .. } | TaskError::Misread(Rank(3)),
        ) => {
            return;
        }
        Err(other) => panic!("{other}"),
    }
    let back: Vec<u8> = numbers.iter().flat_map(|number| number.to_ne_bytes()).collect();
    assert_eq!(bytes[1..13], back);
}

/// Seeds for the target of answers.
#[cfg(test)]
pub(crate) fn outcomes() -> Vec<(&'static str, Vec<u8>)> {
    let ended = |how: u8, result: &[u8]| [&[5, how][..], &[9; 12], result].concat();
    vec![
        ("task-returned", ended(RETURNED, &[8; 8])),
        ("task-panicked", ended(lend::PANICKED, "why \u{2014}".as_bytes())),
        ("task-stopped", vec![5, lend::STOPPED]),
        ("task-abandoned", vec![5, lend::STOPPED, 2, 0, 0, 0]),
    ]
}

#[cfg(test)]
mod tests {
    use super::super::travel::some_words;
    use super::*;
    use vgas_testing::replay;

    #[test]
    fn any_message_is_a_task_or_refused() {
        let mut seeds = Vec::new();
        for (name, words) in some_words() {
            let words: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
            seeds.push((name, [&[4, (words.len() / 4) as u8][..], &words, &[3; OWN_BYTES]].concat()));
        }
        replay("objects_tasks", objects_tasks, &seeds);
    }
}
