//! Tasks between ranks: a message takes one there, and one brings its end to the waiting thread.
//!
//! Messages go from rank to rank, and are taken in by any thread that waits or polls: an arrival wakes the
//! thread that is to run it, or that waits for it, and none in between. All handlers do is put something into
//! a queue.

use super::TaskError;
use super::alone;
use super::entry::code_of;
use super::job::{Leaves, Packed, Work};
use super::lend::{GIVES, LENDER, MISREAD, stopped};
use super::pool::{self, Pool};
use super::see_others;
use crate::heap::{Messages, ObjectError, SlotAnswer, cannot_go_on, complain, note_given, pass_on};
use crate::slab::Class;
use crate::word::Word;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use vgas::{Arrived, NodeId, Payload, Rank, Runtime, Source, Token};

/// The handler's index among libraries' (CONTRIBUTING.md).
const HANDLER: u8 = 112;

/// Kind of a message: its first word. The second is the number of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
enum MessageKind {
    /// A task. Words: its code, the spawning rank and its number there, the ranks that it may go to, its
    /// hops, and if the receiver has requested one; bytes: arguments.
    Run = 0,
    /// The end of a task that the receiver has spawned: its number, and the rank that ran it; bytes: outcome.
    Ended = 1,
    /// The sender has nothing to do.
    Hungry = 2,
    /// No task begins any more.
    Stop = 3,
    /// The sender wants a slot for a value: its question's number, and the class.
    Wanted = 4,
    /// The answer: the number, the slot's word, or 0, and the number of free slabs.
    Room = 5,
    /// Asks the first rank if the run continues, when a node is lost; it answers with [`MessageKind::Stop`] if not.
    Whether = 6,
    /// The sender passes something on, and has what the receiver has lent: the question's number, the task's, or 0 and the word of an object, and which.
    Gives = 7,
    /// The answer: the number.
    Noted = 8,
}

/// Content of a message, if it is one of tasks.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum TaskMessage {
    /// `meets`: tasks of the sender may wait for each other.
    Run {
        entry: u32,
        origin: Rank,
        number: u64,
        leaves: Leaves,
        hops: u8,
        is_answer: bool,
        meets: bool,
    },
    Ended {
        number: u64,
        rank: Rank,
    },
    Hungry,
    Stop,
    Whether,
    Wanted {
        number: u64,
        class: Class,
    },
    Room {
        number: u64,
        word: u64,
        free: u32,
    },
    /// `task`: its number; else the word's object.
    Gives {
        number: u64,
        task: Option<u64>,
        word: u64,
    },
    Noted {
        number: u64,
    },
}

fn wide(low: u32, high: u32) -> u64 {
    u64::from(low) | u64::from(high) << 32
}

impl TaskMessage {
    fn words(&self, run: u32) -> Vec<u32> {
        let (low, high) = match self {
            Self::Run { number, .. }
            | Self::Ended { number, .. }
            | Self::Wanted { number, .. }
            | Self::Gives { number, .. }
            | Self::Noted { number }
            | Self::Room { number, .. } => (*number as u32, (*number >> 32) as u32),
            Self::Hungry | Self::Stop | Self::Whether => (0, 0),
        };
        match *self {
            Self::Run { entry, origin, leaves, hops, is_answer, meets, .. } => {
                let flags = u32::from(is_answer) | u32::from(meets) << 1;
                let how = leaves as u32 | u32::from(hops) << 8 | flags << 16;
                vec![MessageKind::Run as u32, run, low, high, origin.0, entry, how]
            }
            Self::Ended { rank, .. } => vec![MessageKind::Ended as u32, run, low, high, rank.0],
            Self::Hungry => vec![MessageKind::Hungry as u32, run],
            Self::Stop => vec![MessageKind::Stop as u32, run],
            Self::Whether => vec![MessageKind::Whether as u32, run],
            Self::Gives { task, word, .. } => {
                let of = task.unwrap_or(word);
                vec![
                    MessageKind::Gives as u32,
                    run,
                    low,
                    high,
                    of as u32,
                    (of >> 32) as u32,
                    u32::from(task.is_some()),
                ]
            }
            Self::Noted { .. } => vec![MessageKind::Noted as u32, run, low, high],
            Self::Wanted { class, .. } => vec![MessageKind::Wanted as u32, run, low, high, class.code()],
            Self::Room { word, free, .. } => {
                vec![MessageKind::Room as u32, run, low, high, word as u32, (word >> 32) as u32, free]
            }
        }
    }

    fn decode(words: &[u32], ranks: u32) -> Option<(u32, Self)> {
        let (&[what, run], rest) = words.split_first_chunk()?;
        let said = match *rest {
            [low, high, origin, entry, how] if what == MessageKind::Run as u32 && origin < ranks => {
                let (leaves, hops) = (Leaves::of(how & 0xff)?, (how >> 8) as u8);
                let flags = how >> 16;
                if flags > 3 {
                    return None;
                }
                let (is_answer, meets) = (flags & 1 != 0, flags & 2 != 0);
                let (origin, number) = (Rank(origin), wide(low, high));
                Self::Run { entry, origin, number, leaves, hops, is_answer, meets }
            }
            [low, high, rank] if what == MessageKind::Ended as u32 && rank < ranks => {
                Self::Ended { number: wide(low, high), rank: Rank(rank) }
            }
            [low, high, class] if what == MessageKind::Wanted as u32 => {
                Self::Wanted { number: wide(low, high), class: Class::of_code(class)? }
            }
            [low, high, first, second, free] if what == MessageKind::Room as u32 => {
                Self::Room { number: wide(low, high), word: wide(first, second), free }
            }
            [low, high, first, second, is_task @ 0..=1] if what == MessageKind::Gives as u32 => {
                let (number, of) = (wide(low, high), wide(first, second));
                let (task, word) = if is_task == 1 { (Some(of), 0) } else { (None, of) };
                Self::Gives { number, task, word }
            }
            [low, high] if what == MessageKind::Noted as u32 => Self::Noted { number: wide(low, high) },
            [] if what == MessageKind::Hungry as u32 => Self::Hungry,
            [] if what == MessageKind::Stop as u32 => Self::Stop,
            [] if what == MessageKind::Whether as u32 => Self::Whether,
            _ => return None,
        };
        Some((run, said))
    }
}

/// Registers what takes the messages in; once a process, before other ranks can run tasks.
pub(crate) fn register(runtime: &'static Runtime) -> Result<(), ObjectError> {
    let pool = pool::make(runtime);
    let take_in = move |token: &Token<'_>, words: &[u32], arrived: Arrived<'_>| {
        let layout = runtime.layout();
        let bytes = arrived.medium_bytes();
        match (TaskMessage::decode(words, layout.ranks()), layout.rank_of_peer(token.from())) {
            (Some((run, said)), Some(from)) => on_message(pool, token, from, run, said, bytes),
            _ => token.refuse(format!("words {words:?} mean nothing to tasks")),
        }
    };
    runtime.messages().on_lost_node(move |_, node| pool.lose(node));
    Ok(runtime.messages().register_library(HANDLER, take_in).map_err(vgas::Error::from)?)
}

fn on_message(pool: &'static Pool, token: &Token<'_>, from: Rank, run: u32, said: TaskMessage, bytes: &[u8]) {
    let now = pool.run.load(Ordering::SeqCst);
    let is_of_this_run = run == now;
    let has_ended = (run.wrapping_sub(now) as i32) < 0 || (is_of_this_run && pool.is_closed());
    match said {
        // Even when the run is being ended: the spawning rank must learn that it does not run. Ranks of a
        // node meet in memory that they share, and overtake what they have sent; where a node is lost, they
        // end a run without having met.
        TaskMessage::Run { origin, number, .. } if has_ended && origin == from => {
            let ended = TaskMessage::Ended { number, rank: pool.runtime.rank() };
            answer(token, run, &ended, &stopped(pool.runtime));
        }
        TaskMessage::Run { entry, origin, number, leaves, hops, is_answer, meets }
            if is_of_this_run || has_ended =>
        {
            if meets && is_of_this_run {
                // Before anybody here looks whether to run it above another: what it waits by is found only when it begins.
                alone::meet();
            }
            if !pool.has_come(from) {
                return token.refuse("more tasks than a rank may have on others");
            }
            if is_answer && is_of_this_run {
                pool.has_answered(from);
            }
            let (arguments, origin) = (bytes.into(), Some((origin, number)));
            let packed = Packed { entry, arguments, gives: true, origin, hops };
            pool.push_shared(Arc::new(ForeignTask {
                pool,
                from,
                run,
                packed: Mutex::new(Some(packed)),
                leaves,
            }));
            if pool.is_over() {
                pool.watch.wake();
            }
        }
        TaskMessage::Run { number, .. } => {
            token.refuse(format!("task {number} is of run {run}, which is not now"))
        }
        // Also of a run that is over: numbers are of all runs.
        TaskMessage::Ended { number, rank } => match pool.back(number) {
            Some(work) => work.came(rank, bytes.into()),
            None if is_of_this_run && !pool.runtime.is_lost(from) => {
                token.refuse(format!("task {number} has ended, which was not sent away"));
            }
            None => {}
        },
        TaskMessage::Hungry if is_of_this_run && !pool.is_over() => {
            pool.is_hungry(from);
            // While all threads compute, only the watch gives.
            see_others();
        }
        TaskMessage::Stop if is_of_this_run => pool.stop(),
        TaskMessage::Wanted { number, class } if is_of_this_run && !pool.is_closed() => {
            if !pool.rooms.want(from, number, class) {
                return token.refuse("more questions for room than a rank has threads");
            }
            pool.watch.wake();
        }
        TaskMessage::Wanted { number, .. } => {
            let none = TaskMessage::Room { number, word: 0, free: 0 };
            answer(token, run, &none, &[]);
        }
        TaskMessage::Room { number, word, free } => {
            let room = SlotAnswer { word: Word::from_bits(word), free };
            if !pool.rooms.has_answered(from, number, room) {
                token.refuse(format!("room under number {number}, which was not asked for"));
            }
        }
        // For any run, or none: answered where it is noted.
        TaskMessage::Gives { number, task, word } => {
            match (task, Word::from_bits(word)) {
                (Some(task), _) => pool.gives(task),
                (None, Some(word)) => note_given(word),
                (None, None) => return token.refuse("it passes on what has no word"),
            }
            answer(token, run, &TaskMessage::Noted { number }, &[]);
        }
        TaskMessage::Noted { number } => {
            lock(&pool.notes).remove(&number);
        }
        TaskMessage::Whether if has_ended => answer(token, run, &TaskMessage::Stop, &[]),
        // Of a run that is over, and one that goes on.
        TaskMessage::Hungry | TaskMessage::Stop | TaskMessage::Whether => {}
    }
}

/// Tells a rank that this one has nothing to do.
pub(super) fn ask(pool: &Pool, rank: Rank) -> Result<(), ObjectError> {
    tell(pool, rank, &TaskMessage::Hungry, &[])
}

/// The rank whose `main` a run is.
pub(super) const FIRST: Rank = Rank(0);

/// Returns true if that rank is lost. The job ends then: no task begins any more.
pub(super) fn is_main_lost(runtime: &Runtime) -> bool {
    let is_lost = runtime.is_lost(FIRST);
    if is_lost {
        complain(&format!("{FIRST} is lost, and with it the program that it had begun"));
    }
    is_lost
}

/// Asks the first rank if the run continues.
pub(super) fn ask_whether(pool: &Pool) -> Result<(), ObjectError> {
    if is_main_lost(pool.runtime) {
        pool.stop();
        return Ok(());
    }
    match pool.runtime.rank() {
        FIRST => Ok(()),
        _ => tell(pool, FIRST, &TaskMessage::Whether, &[]),
    }
}

/// Tells the rank that has lent something to this one, a task's arguments or the object of a word, that this one passes something on; returns
/// when it has noted that, or is lost.
pub(crate) fn tell_lender(lender: Rank, task: Option<u64>, word: u64) -> Result<(), ObjectError> {
    let pool = pool::pool()?;
    let number = pool.next.fetch_add(1, Ordering::Relaxed);
    lock(&pool.notes).insert(number);
    let told = tell(pool, lender, &TaskMessage::Gives { number, task, word }, &[]);
    let noted = told.and_then(|()| {
        let is_noted = || !lock(&pool.notes).contains(&number);
        crate::sync::until(None, || is_noted() || pool.runtime.is_lost(lender)).map(drop)
    });
    lock(&pool.notes).remove(&number);
    match noted {
        Err(_) if pool.runtime.is_lost(lender) => Ok(()),
        noted => noted,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    // Changed in steps that cannot panic.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Sends a task.
pub(super) fn send(
    pool: &Pool,
    packed: &Packed,
    to: Rank,
    leaves: Leaves,
    is_answer: bool,
) -> Result<(), ObjectError> {
    let (origin, number) = packed.origin.unwrap_or((pool.runtime.rank(), u64::MAX));
    let (entry, hops, meets) = (packed.entry, packed.hops, alone::do_meet());
    let said = TaskMessage::Run { entry, origin, number, leaves, hops, is_answer, meets };
    tell(pool, to, &said, &packed.arguments)
}

/// Ends the workers of all ranks.
pub(super) fn stop(pool: &Pool) -> Result<(), ObjectError> {
    let me = pool.runtime.rank();
    let others = (0..pool.runtime.ranks()).map(Rank).filter(|rank| *rank != me);
    let told = others.filter(|rank| !pool.runtime.is_lost(*rank));
    let told = told.map(|rank| match tell(pool, rank, &TaskMessage::Stop, &[]) {
        Err(_) if pool.runtime.is_lost(rank) => Ok(()),
        told => told,
    });
    let told = told.fold(Ok(()), Result::and);
    pool.stop();
    told
}

/// Answers a message of this folder.
fn answer(token: &Token<'_>, run: u32, said: &TaskMessage, bytes: &[u8]) {
    let payload = if bytes.is_empty() { Payload::Short } else { Payload::Medium(Source::of(bytes)) };
    // SAFETY: this folder's own handler, with what it decodes.
    token.check(unsafe { token.reply_library(HANDLER, &said.words(run), &payload) });
}

pub(super) fn tell(pool: &Pool, to: Rank, said: &TaskMessage, bytes: &[u8]) -> Result<(), ObjectError> {
    tell_of(pool.run.load(Ordering::SeqCst), pool, to, said, bytes)
}

/// The same, of this run.
fn tell_of(run: u32, pool: &Pool, to: Rank, said: &TaskMessage, bytes: &[u8]) -> Result<(), ObjectError> {
    pool.counters.sent.fetch_add(1, Ordering::Relaxed);
    Ok(pool.runtime.send(to, HANDLER, &said.words(run), bytes)?)
}

/// A task that another rank has begun.
struct ForeignTask {
    pool: &'static Pool,
    /// The sender.
    from: Rank,
    /// In which run.
    run: u32,
    /// Until it begins, or is forwarded.
    packed: Mutex<Option<Packed>>,
    leaves: Leaves,
}

impl ForeignTask {
    /// Takes it for beginning or forwarding, unless it was taken already.
    fn leave(&self) -> Option<Packed> {
        let packed = self.packed().take()?;
        self.pool.has_begun(self.from);
        Some(packed)
    }

    fn packed(&self) -> std::sync::MutexGuard<'_, Option<Packed>> {
        self.packed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Work for ForeignTask {
    fn run(&self, is_over: bool) -> bool {
        let Some(packed) = self.leave() else { return false };
        let pool = self.pool;
        // It may have come when its run had ended, and be found in the next one.
        let is_over = is_over || self.run != pool.run.load(Ordering::SeqCst);
        if packed.origin.is_some_and(|(origin, _)| pool.runtime.is_lost(origin)) {
            // It has no waiters.
            return true;
        }
        if !is_over && !pool.has_work() {
            // The next one comes while this one runs.
            let _ = pool.ask(1);
        }
        let outcome = match is_over {
            true => stopped(pool.runtime),
            false => {
                LENDER.set(packed.origin.filter(|(origin, _)| *origin != pool.runtime.rank()));
                let outcome = code_of(packed.entry).and_then(|code| code(&packed.arguments));
                LENDER.set(None);
                outcome.unwrap_or_else(|| vec![MISREAD])
            }
        };
        let gives = GIVES.replace(false);
        // Its own sends arrive before its end is known; an error is the job's, which reports it to the
        // waiters.
        let _ = super::settle();
        let Some((origin, number)) = packed.origin else { return true };
        let rank = pool.runtime.rank();
        if origin == rank {
            // It was away, and has come back.
            pool.back(number).into_iter().for_each(|work| work.came(rank, outcome.clone()));
            return true;
        }
        // The waiter may be told of local objects now.
        if let Err(why) = pass_on(gives) {
            cannot_go_on(&format!("what a task has made cannot be replicated: {why}"));
        }
        if let Err(why) = tell_of(self.run, pool, origin, &TaskMessage::Ended { number, rank }, &outcome)
            && !pool.runtime.is_lost(origin)
        {
            // Its rank is lost, and with it the job.
            complain(&format!("{origin} cannot be told of the end of a task: {why}"));
        }
        true
    }

    fn waits(&self) -> bool {
        self.packed().is_some()
    }

    fn leaves(&self) -> Leaves {
        // A task that arrived after its run is answered where it is found.
        if self.run == self.pool.run.load(Ordering::SeqCst) { self.leaves } else { Leaves::No }
    }

    fn pack(&self) -> Option<Packed> {
        self.leave()
    }

    // No thread of this rank waits for it.

    fn came(self: Arc<Self>, _: Rank, _: Vec<u8>) {}

    fn failed(&self, _: TaskError) {}

    fn lost(self: Arc<Self>, _: NodeId) {}

    fn gives(&self) {}

    fn settle(&self) {}

    fn is_over(&self) -> bool {
        !self.waits()
    }

    fn announce(&self) -> bool {
        self.is_over()
    }
}

/// Decodes any words as a message of a job of this many ranks; checks that it round-trips. For a task,
/// returns its code.
#[cfg(any(test, fuzzing))]
pub(super) fn any_words(words: &[u32], ranks: u32) -> Option<u32> {
    let (run, said) = TaskMessage::decode(words, ranks)?;
    assert_eq!(said.words(run), words);
    match said {
        TaskMessage::Run { entry, origin, .. } => {
            assert!(origin.0 < ranks);
            Some(entry)
        }
        _ => None,
    }
}

/// Messages, for [`any_words`].
#[cfg(test)]
pub(super) fn some_words() -> Vec<(&'static str, Vec<u32>)> {
    let run = TaskMessage::Run {
        entry: 7,
        origin: Rank(3),
        number: 5 << 33,
        leaves: Leaves::Node,
        hops: 1,
        is_answer: true,
        meets: true,
    };
    vec![
        ("run", run.words(9)),
        ("ended", TaskMessage::Ended { number: u64::MAX, rank: Rank(0) }.words(9)),
        ("hungry", TaskMessage::Hungry.words(9)),
        ("stop", TaskMessage::Stop.words(9)),
        ("whether", TaskMessage::Whether.words(9)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: messages are understood, and nothing else, whatever the words are.
    #[test]
    fn only_messages_of_tasks_are_understood() {
        let run = |leaves, hops| {
            let (is_answer, meets) = (hops == 1, hops == 255);
            TaskMessage::Run { entry: 7, origin: Rank(3), number: 5 << 33, leaves, hops, is_answer, meets }
        };
        let all = [
            run(Leaves::No, 0),
            run(Leaves::Anywhere, 255),
            TaskMessage::Ended { number: u64::MAX, rank: Rank(0) },
            TaskMessage::Hungry,
            TaskMessage::Stop,
            TaskMessage::Whether,
            TaskMessage::Wanted { number: 1 << 40, class: Class::Large(9) },
            TaskMessage::Room { number: 3, word: 5 << 32 | 1, free: 7 },
            TaskMessage::Gives { number: 3, task: Some(1 << 40), word: 0 },
            TaskMessage::Gives { number: 3, task: None, word: 5 << 32 | 1 },
            TaskMessage::Noted { number: u64::MAX },
        ];
        for said in all {
            let words = said.words(9);
            assert_eq!(TaskMessage::decode(&words, 4).as_ref(), Some(&(9, said)));
            for length in 0..words.len() {
                assert_eq!(TaskMessage::decode(&words[..length], 4), None, "{words:?}, {length} of them");
            }
            assert_eq!(TaskMessage::decode(&[&words[..], &[0]].concat(), 4), None);
        }
        let words = run(Leaves::Node, 1).words(9);
        for (at, wrong) in [(0, 4), (0, u32::MAX), (4, 4), (4, u32::MAX), (6, 3), (6, 4 << 16)] {
            let mut words = words.clone();
            words[at] = wrong;
            assert_eq!(TaskMessage::decode(&words, 4), None, "{words:?}");
        }
    }
}
