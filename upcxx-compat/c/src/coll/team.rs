//! Teams, their members and images.
//!
//! A team is known by a number that its members agree on: that of all ranks is 0; a split gives each new team the rank of its
//! first member and that rank's count of teams; a team created from a list has a number made of the list and of how often
//! that list was used, since nobody but its members calls.

use super::operation::{self, Exchange};
use super::post::{Key, lock};
use crate::fatal::fatal;
use crate::job;
use std::cell::RefCell;
use std::collections::HashMap;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use vgas_rma::Rank;

/// Operations that are counted apart.
pub(super) mod sequence {
    /// Of all images of a rank together.
    pub const IMAGES: u32 = 0;
    /// Of one thread a rank (`GASNET_COLL_NO_IMAGES`).
    pub const RANKS: u32 = 1;
    /// The library's own, to make teams.
    pub const OWN: u32 = 2;
    /// How many there are.
    pub const COUNT: usize = 3;
}

/// One team, as this rank sees it.
pub struct Team {
    number: u64,
    members: Vec<Rank>,
    /// This rank's position in `members`.
    me: u32,
    /// First image of each member, and their number at the end: one image each unless it was said otherwise before use.
    first_images: OnceLock<Vec<u32>>,
    /// Operations begun so far, by kind of sequence; those of images by local image.
    counts: Mutex<[HashMap<u32, u32>; sequence::COUNT]>,
    pub(super) barrier: Arc<super::barrier::Barrier>,
    pub(super) image_barrier: Mutex<super::barrier::ImageBarrier>,
    /// Operations for which not all local images have come.
    pub(super) gathering: Mutex<HashMap<Key, super::call::Gathering>>,
}

/// The team of all ranks, from `gasnet_init` on. For the header: GASNET_TEAM_ALL. Null stands for it, too.
#[unsafe(no_mangle)]
pub static gasnete_coll_team_all: AtomicPtr<Team> = AtomicPtr::new(std::ptr::null_mut());

static ALL: OnceLock<Arc<Team>> = OnceLock::new();

/// Teams whose first member is this rank.
static LED: AtomicU32 = AtomicU32::new(0);

/// How often a list of ranks was made a team.
static CREATED: Mutex<Option<HashMap<Vec<u32>, u32>>> = Mutex::new(None);

/// Marks the numbers of teams created from lists, which the numbers of splits do not reach.
const FROM_LIST: u64 = 1 << 63;

thread_local! {
    /// The image of this thread in the team of all, if it is one.
    static IMAGE: RefCell<Option<u32>> = const { RefCell::new(None) };
}

/// Makes the team of all, so that clients find it as soon as they have joined the job.
pub(crate) fn prepare() {
    all();
}

/// Gives the team of all its images, by rank, and says which one this thread is. Every image of a rank may call.
pub(super) fn set_images(images: &[u32], my_image: u32) {
    let team = all();
    let first_images = first_images(images);
    if *team.first_images.get_or_init(|| first_images.clone()) != first_images {
        fatal("gasnet_coll_init: another number of images than the team of all has or was used with");
    }
    if !team.images_of(team.me).contains(&my_image) {
        fatal(format_args!("gasnet_coll_init: image {my_image} is not one of this node's"));
    }
    IMAGE.set(Some(my_image));
}

/// First image of each member, and their number at the end.
fn first_images(images: &[u32]) -> Vec<u32> {
    let ends = images.iter().scan(0, |end, count| {
        *end += count;
        Some(*end)
    });
    std::iter::once(0).chain(ends).collect()
}

/// The team of all ranks.
pub(super) fn all() -> Arc<Team> {
    let team = ALL.get_or_init(|| {
        let runtime = &job::joined().runtime;
        let members = (0..runtime.ranks()).map(Rank).collect();
        let team = Arc::new(Team::new(0, members, runtime.rank()));
        gasnete_coll_team_all.store(Arc::as_ptr(&team).cast_mut(), Ordering::Release);
        team
    });
    team.clone()
}

impl Team {
    fn new(number: u64, members: Vec<Rank>, me: Rank) -> Self {
        let Some(me) = members.iter().position(|&rank| rank == me) else {
            fatal("a team was made by a rank that is not a member of it");
        };
        Self {
            number,
            members,
            me: me as u32,
            first_images: OnceLock::new(),
            counts: Mutex::default(),
            barrier: super::barrier::of_team(number),
            image_barrier: Mutex::default(),
            gathering: Mutex::default(),
        }
    }

    /// The team that a handle stands for.
    pub(super) unsafe fn of(handle: *const Team) -> Arc<Team> {
        if handle.is_null() || handle == gasnete_coll_team_all.load(Ordering::Acquire) {
            return all();
        }
        // SAFETY: rule 2: made by `Arc::into_raw`, and not yet freed; the count is raised for the copy.
        unsafe {
            Arc::increment_strong_count(handle);
            Arc::from_raw(handle)
        }
    }

    /// What its members know it by.
    pub(super) fn number(&self) -> u64 {
        self.number
    }

    /// Number of members.
    pub(super) fn size(&self) -> u32 {
        self.members.len() as u32
    }

    /// This rank's position.
    pub(super) fn me(&self) -> u32 {
        self.me
    }

    /// The rank at a position.
    pub(super) fn rank_of(&self, member: u32) -> Rank {
        match self.members.get(member as usize) {
            Some(&rank) => rank,
            None => fatal(format_args!("a team of {} has no member {member}", self.size())),
        }
    }

    /// The position of a rank.
    pub(super) fn member_of(&self, rank: Rank) -> Option<u32> {
        self.members.iter().position(|&member| member == rank).map(|member| member as u32)
    }

    fn first_images(&self) -> &[u32] {
        self.first_images.get_or_init(|| first_images(&vec![1; self.members.len()]))
    }

    /// The images of a member.
    pub(super) fn images_of(&self, member: u32) -> std::ops::Range<u32> {
        self.first_images()[member as usize]..self.first_images()[member as usize + 1]
    }

    /// Number of images.
    pub(super) fn images(&self) -> u32 {
        self.first_images()[self.members.len()]
    }

    /// The member that an image belongs to.
    pub(super) fn member_of_image(&self, image: u32) -> u32 {
        if image >= self.images() {
            fatal(format_args!("a collective names image {image} of a team that has {}", self.images()));
        }
        self.first_images().partition_point(|&first| first <= image) as u32 - 1
    }

    /// Number of images of this rank.
    pub(super) fn local_images(&self) -> u32 {
        self.images_of(self.me).len() as u32
    }

    /// The image that the calling thread is, counted from the first of this rank. Threads that said nothing are the first.
    pub(super) fn local_image(&self) -> u32 {
        let mine = self.images_of(self.me);
        match IMAGE.with_borrow(|image| *image) {
            Some(image) if self.number == 0 && mine.contains(&image) => image - mine.start,
            _ => 0,
        }
    }

    /// The name of the next operation of a sequence; of one image, if images count apart.
    pub(super) fn next_key(&self, sequence: u32, local_image: u32) -> Key {
        let mut counts = lock(&self.counts);
        let count = counts[sequence as usize].entry(local_image).or_default();
        let number = *count;
        *count = count.wrapping_add(1);
        Key { team: self.number, sequence, number }
    }

    /// An operation of the library's own, in which this rank is one image.
    fn own_exchange(self: &Arc<Self>) -> Exchange {
        let operation = operation::find(self.next_key(sequence::OWN, 0));
        Exchange { team: self.clone(), operation }
    }
}

impl Drop for Team {
    fn drop(&mut self) {
        super::barrier::forget(self.number);
    }
}

/// What a member of the parent says in a split.
#[derive(Clone, Copy)]
struct Wish {
    color: u32,
    position: u32,
    /// How many teams it has led.
    led: u32,
}

impl Wish {
    const BYTES: usize = 12;

    fn to_bytes(self) -> Vec<u8> {
        [self.color, self.position, self.led].iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    fn from_bytes(bytes: &[u8]) -> Self {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        Self { color: word(0), position: word(4), led: word(8) }
    }
}

/// Splits a team by color; members are ordered by the position they ask for, and by their old one. Collective over the
/// parent; blocks.
pub(super) fn split(parent: &Arc<Team>, color: u32, position: u32) -> Arc<Team> {
    // One split after the other in a process, so that the count of teams holds still.
    static SPLITTING: Mutex<()> = Mutex::new(());
    let _one = lock(&SPLITTING);
    let exchange = parent.own_exchange();
    let wish = Wish { color, position, led: LED.load(Ordering::Relaxed) };
    let gathered = super::export::run_blocking(&exchange, {
        let exchange = exchange.clone();
        async move {
            super::algorithm::give_all(&exchange, |_| wish.to_bytes().into());
            super::algorithm::collect_aside(&exchange, |_| Wish::BYTES).await
        }
    });
    let mut chosen: Vec<(u32, u32, u32)> = (0..)
        .zip(&gathered)
        .map(|(member, bytes)| (member, if member == parent.me() { wish } else { Wish::from_bytes(bytes) }))
        .filter(|(_, wish)| wish.color == color)
        .map(|(member, wish)| (wish.position, member, wish.led))
        .collect();
    chosen.sort_unstable();
    let members: Vec<Rank> = chosen.iter().map(|&(_, member, _)| parent.rank_of(member)).collect();
    let (leader, led) = (members[0], chosen[0].2);
    let me = job::joined().runtime.rank();
    if leader == me {
        LED.fetch_add(1, Ordering::Relaxed);
    }
    // Never 0: the high half is a rank plus one.
    let number = (u64::from(leader.0) + 1) << 32 | u64::from(led);
    Arc::new(Team::new(number, members, me))
}

/// Makes a team of a list of ranks. Collective over them; does not wait.
pub(super) fn create(members: Vec<u32>) -> Arc<Team> {
    let mut created = lock(&CREATED);
    let count = created.get_or_insert_default().entry(members.clone()).or_default();
    // The hasher's keys are the same in every process.
    let mut hasher = DefaultHasher::new();
    (&members, *count).hash(&mut hasher);
    *count += 1;
    let number = hasher.finish() | FROM_LIST;
    let members = members.into_iter().map(Rank).collect();
    Arc::new(Team::new(number, members, job::joined().runtime.rank()))
}
