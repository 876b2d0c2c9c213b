//! What a random program is: steps that mean the same on std's types and on objects.

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// Variables of each kind.
pub const BOXES: usize = 5;
pub const FEW: usize = 2;

/// Values that a channel has room for.
pub const ROOM: usize = 8;

/// An enum, and all that it can be.
macro_rules! kinds {
    ($($(#[$meta:meta])* $kind:ident,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$meta])* $kind,)* }
        const KINDS: &[Kind] = &[$(Kind::$kind,)*];
    };
}

kinds! {
    New,
    NewThere,
    /// To a task on another rank, which changes it and returns it.
    Ship,
    /// As `Ship`, which gives it to a task on the next rank.
    ShipOn,
    ShipDrop,
    ShipPanic,
    Lend,
    LendAll,
    LendMut,
    LendTwo,
    /// All boxes, and all rows, to a task that reads them at once.
    ReadAll,
    LendPanic,
    ScopePanic,
    Change,
    Graft,
    Unbox,
    Drop,
    Send,
    SendThere,
    Receive,
    ReceiveThere,
    Close,
    ArcNew,
    ArcClone,
    ArcDrop,
    ArcShip,
    ArcInto,
    /// Changes a value whether others have it or not.
    ArcMake,
    /// Takes a value out that nobody else has; of others, drops the owner.
    ArcTake,
    WeakNew,
    WeakClone,
    WeakDrop,
    /// Becomes an owner for a moment.
    WeakRead,
    /// The same by a task on another rank, which has a watcher of its own.
    WeakShip,
    LockNew,
    LockChange,
    LockThere,
    LockWith,
    LockAll,
    LockPanic,
    LockInto,
    RowPush,
    RowPop,
    RowShip,
    RowLend,
    RowCut,
}

/// One step: what is done with which variables, on which rank.
#[derive(Clone, Copy, Debug)]
pub struct Step {
    pub kind: Kind,
    pub a: usize,
    pub b: usize,
    pub to: u32,
    pub number: u64,
    /// Marks of this step have numbers from here on.
    pub mark: u16,
}

impl Step {
    /// The variable of a kind of which there are few.
    pub fn few(&self) -> usize {
        self.a % FEW
    }
}

#[derive(Clone, Debug)]
pub struct Program {
    pub steps: Vec<Step>,
    /// Where it is cut in two, with a checkpoint between them where the heap has a name.
    pub cut: usize,
    /// Workers of each rank.
    pub workers: usize,
}

impl Program {
    /// The program of a number.
    pub fn draw(number: u64, ranks: u32) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(number);
        let count = random.random_range(4..40);
        let steps = (0..count).map(|at| Step {
            kind: KINDS[random.random_range(0..KINDS.len())],
            a: random.random_range(0..BOXES),
            b: random.random_range(0..BOXES),
            to: random.random_range(0..ranks),
            number: random.random(),
            mark: at * 64,
        });
        let steps: Vec<Step> = steps.collect();
        Self { cut: random.random_range(0..steps.len()), workers: random.random_range(1..4), steps }
    }
}

/// The values of programs, over some world's boxes, counted values and rows: the same text for both worlds.
#[macro_export]
macro_rules! values {
    ($box:ident, $tied:ident, $arc:ident, $row:ident, #[$derive:meta]) => {
        /// Says which it was when it is dropped.
        #[$derive]
        pub struct Mark(u16);

        /// Of what was cloned: whether it is, may differ between the worlds.
        const UNMARKED: u16 = u16::MAX;

        impl Mark {
            fn of_clone(&self) -> Self {
                Self(UNMARKED)
            }
        }

        static DROPPED: std::sync::Mutex<Vec<u16>> = std::sync::Mutex::new(Vec::new());

        impl Drop for Mark {
            fn drop(&mut self) {
                if self.0 != UNMARKED {
                    DROPPED.lock().unwrap_or_else(std::sync::PoisonError::into_inner).push(self.0);
                }
            }
        }

        /// What was dropped in this process since this was asked.
        pub fn dropped() -> Vec<u16> {
            std::mem::take(&mut *DROPPED.lock().unwrap_or_else(std::sync::PoisonError::into_inner))
        }

        #[$derive]
        pub struct Leaf {
            mark: Mark,
            numbers: [u64; 3],
            row: $row<u64>,
        }

        #[$derive]
        pub struct Item {
            mark: Mark,
            pub number: u64,
            numbers: [u64; 6],
            pub part: Option<$box<Item>>,
            tied: Option<$tied<Item>>,
            row: $row<Mark>,
            pub shared: Option<$arc<Leaf>>,
            wide: Option<$box<[u64; 700]>>,
            list: Option<$box<Link>>,
        }

        /// Without a drop that is written here.
        #[$derive]
        pub struct Link {
            number: u64,
            row: $row<u64>,
            next: Option<$box<Link>>,
        }

        fn mixed(one: u64, other: u64) -> u64 {
            (one.rotate_left(23) ^ other).wrapping_mul(0x9e37_79b9_7f4a_7c15)
        }

        pub fn leaf(number: u64, mark: u16) -> Leaf {
            Leaf { mark: Mark(mark), numbers: [number; 3], row: (0..number % 3).collect() }
        }

        /// Not of its mark, which a clone does not have.
        pub fn leaf_digest(leaf: &Leaf) -> u64 {
            let sum = leaf.numbers.iter().fold(leaf.row.len() as u64, |sum, number| mixed(sum, *number));
            leaf.row.iter().fold(sum, |sum, number| mixed(sum, *number))
        }

        impl Clone for Leaf {
            fn clone(&self) -> Self {
                let row = self.row.iter().copied().collect();
                Self { mark: self.mark.of_clone(), numbers: self.numbers, row }
            }
        }

        pub fn change_leaf(leaf: &mut Leaf, number: u64) {
            leaf.numbers[number as usize % 3] ^= number;
            leaf.row.push(number);
        }

        /// With up to four marks.
        pub fn item(number: u64, mark: u16) -> Item {
            let row = (1..=(number % 4) as u16).map(|at| Mark(mark + at)).collect();
            let (part, tied, shared, wide, list) = (None, None, None, None, None);
            Item { mark: Mark(mark), number, numbers: [number; 6], part, tied, row, shared, wide, list }
        }

        pub fn digest(item: &Item) -> u64 {
            let mut sum = mixed(u64::from(item.mark.0), item.number);
            sum = item.numbers.iter().fold(sum, |sum, number| mixed(sum, *number));
            sum = item.row.iter().fold(sum, |sum, mark| mixed(sum, u64::from(mark.0)));
            sum = mixed(sum, item.part.as_deref().map_or(1, digest));
            sum = mixed(sum, item.tied.as_deref().map_or(4, digest));
            sum = mixed(sum, item.shared.as_deref().map_or(2, leaf_digest));
            let list = std::iter::successors(item.list.as_deref(), |link| link.next.as_deref());
            sum = list.fold(sum, |sum, link| mixed(sum, link.number + link.row.iter().sum::<u64>()));
            mixed(sum, item.wide.as_deref().map_or(3, |wide| wide[0] ^ wide[699]))
        }

        /// Changes it, or what it leads to; with up to eight new marks.
        pub fn change(item: &mut Item, number: u64, mark: u16) {
            item.number = mixed(item.number, number);
            item.numbers[number as usize % 6] ^= number;
            match number / 7 % 15 {
                0 => item.part = Some($box::new(self::item(number / 5, mark))),
                1 => item.row.push(Mark(mark)),
                2 => drop(item.row.pop()),
                3 => item.wide = Some($box::new([number; 700])),
                4 => item.wide.iter_mut().for_each(|wide| wide[699] ^= number),
                5 => item.part = None,
                6 => (0..8).for_each(|at| item.row.push(Mark(mark + at))),
                7 => item.tied = Some($tied::new(self::item(number / 5, mark))),
                12 | 13 => {
                    let next = item.list.take();
                    let row = (0..number % 4).collect();
                    item.list = Some($box::new(Link { number: number % 1000, row, next }));
                }
                14 => item.list = None,
                8 | 9 => item.tied.iter_mut().for_each(|tied| change(tied, number / 3, mark)),
                _ => item.part.iter_mut().for_each(|part| change(part, number / 3, mark)),
            }
        }
    };
}
