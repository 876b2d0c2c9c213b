//! Teams as C sees them: with the images of each member.

use crate::fatal::{fail, fatal};
use crate::job::{self, Raw as _};
use std::cell::RefCell;
use std::sync::atomic::{AtomicPtr, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use vgas_rma::Rank;
use vgas_rma::collective;

/// One team, as this rank sees it.
pub struct Team {
    ranks: Arc<collective::Team>,
    /// First image of each member, and their number at the end: one image each unless it was said otherwise before use.
    first_images: OnceLock<Vec<u32>>,
    pub(super) image_barrier: Mutex<super::barrier::ImageBarrier>,
    /// Operations for which not all local images have come.
    pub(super) gathering: Mutex<Vec<super::call::Gathering>>,
}

/// The team of all ranks, from `gasnet_init` on. For the header: GASNET_TEAM_ALL. Null stands for it, too.
#[unsafe(no_mangle)]
pub static gasnete_coll_team_all: AtomicPtr<Team> = AtomicPtr::new(std::ptr::null_mut());

static ALL: OnceLock<Arc<Team>> = OnceLock::new();

thread_local! {
    /// The image of this thread in the team of all, if it is one.
    static IMAGE: RefCell<Option<u32>> = const { RefCell::new(None) };
}

/// Makes the team of all, so that clients find it as soon as they have joined the job.
pub(crate) fn prepare() {
    all();
}

/// Gives the team of all its images, by rank, and this thread's own. Every image of a rank may call.
pub(super) fn set_images(images: &[u32], my_image: u32) {
    let team = all();
    let first_images = first_images(images);
    if *team.first_images.get_or_init(|| first_images.clone()) != first_images {
        fatal("gasnet_coll_init: another number of images than the team of all has or was used with");
    }
    if !team.images_of(team.me()).contains(&my_image) {
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
        let ranks = job::joined().runtime.collectives().world().unwrap_or_else(|error| fail(error));
        let team = Arc::new(Team::of_ranks(ranks));
        gasnete_coll_team_all.store(Arc::as_ptr(&team).cast_mut(), Ordering::Release);
        team
    });
    team.clone()
}

impl Team {
    fn of_ranks(ranks: Arc<collective::Team>) -> Self {
        Self {
            ranks,
            first_images: OnceLock::new(),
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

    /// Its ranks.
    pub(super) fn ranks(&self) -> &Arc<collective::Team> {
        &self.ranks
    }

    /// Number of members.
    pub(super) fn size(&self) -> u32 {
        self.ranks.size()
    }

    /// This rank's position.
    pub(super) fn me(&self) -> u32 {
        self.ranks.me()
    }

    /// The rank at a position.
    pub(super) fn rank_of(&self, member: u32) -> Rank {
        match self.ranks.rank_of(member) {
            Some(rank) => rank,
            None => fatal(format_args!("a team of {} has no member {member}", self.size())),
        }
    }

    fn first_images(&self) -> &[u32] {
        self.first_images.get_or_init(|| first_images(&vec![1; self.size() as usize]))
    }

    /// The images of a member.
    pub(super) fn images_of(&self, member: u32) -> std::ops::Range<u32> {
        self.first_images()[member as usize]..self.first_images()[member as usize + 1]
    }

    /// Number of images.
    pub(super) fn images(&self) -> u32 {
        self.first_images()[self.size() as usize]
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
        self.images_of(self.me()).len() as u32
    }

    /// The image that the calling thread is, counted from the first of this rank. Threads that have not set
    /// one are the first.
    pub(super) fn local_image(&self) -> u32 {
        let mine = self.images_of(self.me());
        match IMAGE.with_borrow(|image| *image) {
            Some(image) if self.ranks.number() == 0 && mine.contains(&image) => image - mine.start,
            _ => 0,
        }
    }
}

/// Splits a team by colour. Collective over the parent; blocks.
pub(super) fn split(parent: &Team, colour: u32, position: u32) -> Arc<Team> {
    let ranks = parent.ranks.split(colour, position).unwrap_or_else(|error| fail(error));
    Arc::new(Team::of_ranks(ranks))
}

/// Makes a team of a list of ranks. Collective over them; does not wait.
pub(super) fn create(members: Vec<Rank>) -> Arc<Team> {
    let ranks = job::joined().runtime.collectives().team_of(members).unwrap_or_else(|error| fail(error));
    Arc::new(Team::of_ranks(ranks))
}
