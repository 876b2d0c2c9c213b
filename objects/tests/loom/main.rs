//! Goal: a thread that sleeps without a clock misses no call; and copies, the extensions of links that know where they are, and the table of copies that the ranks of a node share keep their promises in every order in which their loads and stores can come:
//! who holds a copy finds its bytes as they were, whatever its keeper evicts meanwhile, and nobody waits for what has ended. Method: loom
//! runs each model in all orders up to a bound, with the code that ships; a table of one entry, so that all meet.
//!
//! Run it: `cargo test -p vgas-objects --no-default-features --features loom --test loom --release`.

// What ships has uses for all of it.
#![allow(dead_code)]

#[path = "../../src/heap/copies.rs"]
mod copies;
#[path = "../../src/heap/extension.rs"]
mod extension;
#[path = "../../src/heap/shared.rs"]
mod shared;
#[path = "../../src/task/sleeper.rs"]
mod sleeper;
/// What copies say of sizes.
mod slab {
    pub use vgas_objects::slab::Class;
}
/// What fetching says that has failed.
mod error {
    #[derive(Debug)]
    pub struct ObjectError;
}
mod shape {
    pub type Links = fn(u64, usize, &mut dyn FnMut(&crate::word::Link));
}
#[path = "../../src/word.rs"]
mod word;

use copies::{Claim, Copies, Copy};
use loom::sync::Arc;
use loom::sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use shared::{Look, Shared, Table};
use sleeper::Sleeper;
use std::convert::Infallible;
use word::{Colour, Word};

/// Every order in which threads lose the processor so often at most, beside where they wait: what goes wrong in such tables goes wrong with
/// two, and all orders would take hours.
fn orders(losses: usize, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = Some(losses);
    builder.check(model);
}

fn number(number: u64) -> Word {
    Word::new(16 * (number + 1), Colour(0)).expect("an address")
}

fn go_on() -> Result<(), Infallible> {
    Ok(())
}

/// A node: the table, and the bytes of a slot of the keeper's.
struct Node {
    table: Table,
    slot: AtomicU64,
}

impl Node {
    fn new() -> Arc<Self> {
        Arc::new(Self { table: Table::of(1), slot: AtomicU64::new(0) })
    }

    fn rank(&self, rank: u32) -> Shared<'_> {
        Shared::new(self.table.entries(), rank).expect("few ranks")
    }
}

const SLOT: u64 = 4096;

/// A rank fetches a word into the slot, if it is the first, uses what it finds, and evicts what it keeps. `value` is what the word means.
fn read(node: &Node, rank: u32, word: Word, value: u64) {
    let shared = node.rank(rank);
    match shared.look(word, go_on) {
        Ok(Look::Fetch(at)) => {
            node.slot.store(value, Ordering::Relaxed);
            shared.show(at, SLOT);
            if shared.withdraw(word, SLOT) {
                // The slot is another's now.
                node.slot.store(99, Ordering::Relaxed);
            }
        }
        Ok(Look::Held(at, address)) => {
            // The extension of the link is this address from here on, until it is released.
            assert_eq!(
                (address, node.slot.load(Ordering::Relaxed)),
                (SLOT, value),
                "the copy was evicted while it is held"
            );
            shared.release(at);
        }
        Ok(Look::Full) | Err(_) => {}
    }
}

/// A rank: its copies, an extension of a link that threads read through, and the bytes of slots where copies are.
struct Reader {
    copies: Copies,
    extension: AtomicU64,
    slots: [AtomicU64; 3],
    /// How many of them have been used: one that is freed comes again later.
    used: AtomicU64,
}

const TAG: u64 = 3;

impl Reader {
    fn new() -> Arc<Self> {
        let (extension, used) = (AtomicU64::new(0), AtomicU64::new(0));
        let slots = [0; 3].map(AtomicU64::new);
        Arc::new(Self { copies: Copies::sharing(None), extension, slots, used })
    }

    fn slot(&self, address: u64) -> &AtomicU64 {
        &self.slots[((address - SLOT) / 16) as usize]
    }

    /// A copy that is fetched into a slot.
    fn copy(&self) -> Copy {
        let address = SLOT + 16 * self.used.fetch_add(1, Ordering::Relaxed);
        self.slot(address).store(7, Ordering::Relaxed);
        Copy {
            address,
            class: slab::Class::Small(0),
            bytes: 8,
            links: None,
            name: || "",
            entry: None,
            is_overflow: false,
        }
    }

    fn hold(&self) -> u64 {
        self.copies.hold(number(1), || Ok(self.copy())).expect("it is fetched")
    }

    /// As a box that is read through: looks at the extension, else has the copy held, and notes it.
    fn read(&self) {
        let known = self.extension.load(Ordering::Acquire);
        let address = match known >> 48 == TAG {
            true => known & word::ADDRESS_MASK,
            false => {
                let held = self.hold();
                extension::note(&self.copies, &self.extension, number(1), TAG, held);
                held
            }
        };
        assert_eq!(self.slot(address).load(Ordering::Relaxed), 7, "the copy was evicted while it is read");
    }

    /// As one of many that are read together: fetches it, if nobody else does, and does not wait otherwise. `comes`: else it could not be had.
    fn read_with_others(&self, word: Word, comes: bool) {
        let address = match self.copies.claim(word) {
            Claim::Held(address) => address,
            Claim::Mine(filling) if comes => filling.fill(self.copy()),
            // It is left to whoever waits for it.
            Claim::Mine(_) | Claim::Others => return,
        };
        assert_eq!(self.slot(address).load(Ordering::Relaxed), 7, "the copy was evicted while it is used");
        self.copies.release(word);
    }

    /// As a borrow: holds the copy, and ends.
    fn borrow(&self) {
        let address = self.hold();
        assert_eq!(
            self.slot(address).load(Ordering::Relaxed),
            7,
            "the copy was evicted while it is borrowed"
        );
        self.copies.release(number(1));
    }

    /// Evicts what it can; the slot is nobody's then.
    fn evict(&self) -> bool {
        let evicted = self.copies.evict();
        evicted.iter().for_each(|copy| self.slot(copy.address).store(99, Ordering::Relaxed));
        evicted.is_some()
    }
}

/// Threads read through one box, while another one evicts: whoever has noted where the copy is finds it, it counts once for all of them,
/// and goes when the box does.
#[test]
fn an_extension_counts_once() {
    orders(3, || {
        let rank = Reader::new();
        let readers = [0, 1].map(|_| {
            let rank = rank.clone();
            loom::thread::spawn(move || rank.read())
        });
        // Never: nobody has given it back.
        assert!(!rank.evict(), "it was evicted while a box knows where it is");
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
        assert!(!rank.evict(), "it was evicted while a box knows where it is");
        extension::take(&rank.copies, &rank.extension, number(1), TAG, true);
        assert!(rank.evict(), "a use is left that nobody stands for");
    });
}

/// A box that knows where the copy is goes, in one thread, while another one borrows the same word, and a third evicts.
#[test]
fn eviction_waits_for_boxes_and_borrows() {
    orders(3, || {
        let rank = Reader::new();
        rank.read();
        let (leaves, borrows) = (rank.clone(), rank.clone());
        let leaves = loom::thread::spawn(move || {
            extension::take(&leaves.copies, &leaves.extension, number(1), TAG, true);
        });
        let borrows = loom::thread::spawn(move || borrows.borrow());
        let mut evicted = u32::from(rank.evict());
        leaves.join().expect("no panic");
        borrows.join().expect("no panic");
        // Used since it was idle first: its second chance.
        evicted += u32::from(rank.evict());
        assert!(evicted > 0 && rank.copies.kept().0 == 0, "a use is left that nobody stands for");
    });
}

/// One thread reads a copy among others, without waiting for it, one borrows it, and a third evicts: whoever counts among its users finds it.
#[test]
fn what_is_claimed_stays_while_it_is_used() {
    orders(3, || {
        let rank = Reader::new();
        let (claims, borrows) = (rank.clone(), rank.clone());
        let claims = loom::thread::spawn(move || claims.read_with_others(number(1), true));
        let borrows = loom::thread::spawn(move || borrows.borrow());
        let mut evicted = u32::from(rank.evict());
        claims.join().expect("no panic");
        borrows.join().expect("no panic");
        // Used since it was idle first: its second chance.
        evicted += u32::from(rank.evict()) + u32::from(rank.evict());
        assert!(evicted > 0 && rank.copies.kept().0 == 0, "a use is left that nobody stands for");
    });
}

/// Who has claimed a copy cannot have it, in one thread, while others wait for it: they fetch it themselves.
#[test]
fn who_claims_in_vain_is_in_nobodys_way() {
    orders(3, || {
        let rank = Reader::new();
        let others = [false, true].map(|comes| {
            let rank = rank.clone();
            loom::thread::spawn(move || rank.read_with_others(number(1), comes))
        });
        rank.borrow();
        others.into_iter().for_each(|other| other.join().expect("no panic"));
        assert!(rank.copies.kept().0 > 0, "who has waited has nothing");
    });
}

/// Two threads want the same two copies, in opposite orders: none waits for the other before it has brought what it has claimed.
#[test]
fn lists_do_not_wait_for_each_other() {
    orders(3, || {
        let rank = Reader::new();
        let read = |rank: &Reader, words: [Word; 2]| {
            let claimed = words.map(|word| (word, rank.copies.claim(word)));
            let left = claimed.map(|(word, claim)| match claim {
                Claim::Held(_) => None,
                Claim::Mine(filling) => {
                    filling.fill(rank.copy());
                    None
                }
                Claim::Others => Some(word),
            });
            for word in left.into_iter().flatten() {
                let address = rank.copies.hold(word, || Ok(rank.copy())).expect("it is fetched");
                assert_eq!(rank.slot(address).load(Ordering::Relaxed), 7);
            }
        };
        let other = rank.clone();
        let other = loom::thread::spawn(move || read(&other, [number(2), number(1)]));
        read(&rank, [number(1), number(2)]);
        other.join().expect("no panic");
        let mut uses = 0;
        rank.copies.each(|_, _, count| uses += count);
        assert_eq!((rank.copies.kept().0, uses), (2, 4), "each was fetched once, for both");
    });
}

/// Two ranks read, whoever comes first keeps the copy and evicts it as soon as it may.
#[test]
fn a_held_copy_stays() {
    orders(4, || {
        let node = Node::new();
        let other = node.clone();
        let second = loom::thread::spawn(move || read(&other, 1, number(1), 7));
        read(&node, 0, number(1), 7);
        second.join().expect("no panic");
    });
}

/// A keeper evicts while two others hold and release.
#[test]
fn the_last_who_releases_lets_it_go() {
    orders(2, || {
        let node = Node::new();
        let keeper = node.rank(0);
        let Ok(Look::Fetch(at)) = keeper.look(number(1), go_on) else { panic!("it is empty") };
        node.slot.store(7, Ordering::Relaxed);
        keeper.show(at, SLOT);
        let readers = [1, 2].map(|rank| {
            let node = node.clone();
            loom::thread::spawn(move || {
                let shared = node.rank(rank);
                // Who would sleep until the other has fetched it has seen enough.
                let entry = &shared.look(number(1), || Err(()));
                match entry {
                    Ok(Look::Held(at, _)) => {
                        assert_eq!(node.slot.load(Ordering::Relaxed), 7, "evicted while it is held");
                        shared.release(*at);
                    }
                    // It was gone: this rank would fetch it.
                    Ok(Look::Fetch(at)) => shared.give_up(*at),
                    _ => {}
                }
            })
        });
        if keeper.withdraw(number(1), SLOT) {
            node.slot.store(99, Ordering::Relaxed);
        }
        readers.into_iter().for_each(|reader| reader.join().expect("no panic"));
    });
}

/// The entry becomes another word's while somebody looks for the first.
#[test]
fn an_entry_that_becomes_anothers_is_not_taken() {
    orders(4, || {
        let node = Node::new();
        let keeper = node.rank(0);
        let Ok(Look::Fetch(at)) = keeper.look(number(1), go_on) else { panic!("it is empty") };
        node.slot.store(7, Ordering::Relaxed);
        keeper.show(at, SLOT);
        let other = node.clone();
        let reader = loom::thread::spawn(move || {
            let shared = other.rank(1);
            match shared.look(number(1), go_on) {
                Ok(Look::Held(at, _)) => {
                    assert_eq!(other.slot.load(Ordering::Relaxed), 7, "another word's copy");
                    shared.release(at);
                }
                Ok(Look::Fetch(at)) => shared.give_up(at),
                _ => {}
            }
        });
        if keeper.withdraw(number(1), SLOT) {
            // The slot is used again, by another word.
            node.slot.store(8, Ordering::Relaxed);
            if let Ok(Look::Fetch(at)) = keeper.look(number(2), go_on) {
                keeper.show(at, SLOT);
            }
        }
        reader.join().expect("no panic");
    });
}

/// A rank looks without waiting, while another one fetches, shows and evicts: it finds the copy, or fetches it, or leaves it to the other; and
/// what it has found stays.
#[test]
fn who_does_not_wait_finds_it_whole() {
    orders(4, || {
        let node = Node::new();
        let other = node.clone();
        let second = loom::thread::spawn(move || {
            let shared = other.rank(1);
            match shared.try_look(number(1), go_on) {
                Ok(Some(Look::Held(at, _))) => {
                    assert_eq!(other.slot.load(Ordering::Relaxed), 7, "evicted while it is held");
                    shared.release(at);
                }
                Ok(Some(Look::Fetch(at))) => shared.give_up(at),
                _ => {}
            }
        });
        read(&node, 0, number(1), 7);
        second.join().expect("no panic");
    });
}

/// Two ranks want the same two copies, in opposite orders, as one list each: none waits for the other before it has shown what it fetches.
#[test]
fn ranks_that_fetch_lists_do_not_wait_for_each_other() {
    orders(2, || {
        // One entry for each.
        let tables = Arc::new([Table::of(1), Table::of(1)]);
        let read = |tables: &[Table; 2], rank: u32, order: [usize; 2]| {
            let shared = order
                .map(|at| (number(at as u64), Shared::new(tables[at].entries(), rank).expect("few ranks")));
            let looked = [0, 1].map(|at| shared[at].1.try_look(shared[at].0, go_on));
            for ((_, shared), look) in shared.iter().zip(&looked) {
                if let Ok(Some(Look::Fetch(at))) = look {
                    shared.show(*at, SLOT);
                }
            }
            for ((word, shared), look) in shared.iter().zip(&looked) {
                if let Ok(None) = look {
                    assert!(
                        matches!(shared.look(*word, go_on), Ok(Look::Held(_, SLOT))),
                        "it was fetched twice"
                    );
                }
            }
        };
        let other = tables.clone();
        let second = loom::thread::spawn(move || read(&other, 1, [1, 0]));
        read(&tables, 0, [0, 1]);
        second.join().expect("no panic");
    });
}

/// One thread brings something, and calls; the other does it, looking for it before it sleeps or not.
fn called(call: fn(&Sleeper), looks: bool) {
    orders(3, move || {
        // Never dropped: where loom finds that nobody goes on, it could not be.
        let sleeper: &'static Sleeper = Box::leak(Box::default());
        let wanted: &'static AtomicBool = Box::leak(Box::new(AtomicBool::new(false)));
        let caller = loom::thread::spawn(move || {
            wanted.store(true, Ordering::SeqCst);
            fence(Ordering::SeqCst);
            call(sleeper);
        });
        sleeper.begin();
        while !wanted.load(Ordering::SeqCst) {
            sleeper.sleep_unless(|| looks && wanted.load(Ordering::SeqCst));
        }
        sleeper.end();
        caller.join().expect("it ends");
    });
}

/// Goal: whatever is brought at the moment at which a thread falls asleep is found, however the caller calls.
#[test]
fn no_call_is_missed() {
    called(Sleeper::see, true);
    called(Sleeper::wake, true);
}

/// Goal: that is not so where the thread does not look once more, and this would be found.
#[test]
#[should_panic(expected = "deadlock")]
fn a_call_is_missed_by_who_does_not_look() {
    called(Sleeper::wake, false);
}
