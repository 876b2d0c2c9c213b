//! One collective with the arguments of all images of this rank: from the client's memory to strings and back.

use super::algorithm::{self, Meeting};
use super::departure::Text;
use super::flag;
use super::memory::Memory;
use super::operation::{self, Exchange, Operation};
use super::post::lock;
use super::reduction::Reduction;
use super::team::{Team, sequence};
use crate::fatal::fatal;
use libc::{c_int, c_void};
use std::sync::Arc;

/// Which collective, with the arguments in which all images agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Broadcast { root: u32 },
    Scatter { root: u32 },
    Gather { root: u32 },
    GatherAll,
    Exchange,
    Reduce { root: u32, rule: Rule },
    Scan { rule: Rule },
}

/// What a reduction does with elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Rule {
    pub element_bytes: usize,
    pub function: i32,
    pub argument: c_int,
}

/// Memory of a caller: one place, or a list of places by image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Places {
    One(*mut c_void),
    List(*const *mut c_void),
}

impl Places {
    /// What C gives: an address, and whether it is that of a list.
    pub(super) fn new(address: *mut c_void, is_list: c_int) -> Self {
        if is_list == 0 { Self::One(address) } else { Self::List(address.cast_const().cast()) }
    }
}

/// A call of one image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub kind: Kind,
    /// Bytes of a block: what one image gives to or takes from another.
    pub bytes: usize,
    pub flags: c_int,
    pub to: Places,
    pub from: Places,
}

// SAFETY: rule 1: the memory is valid for any thread of the process until the operation was synchronised.
unsafe impl Send for Call {}
// SAFETY: as above; a call is not changed once it is made.
unsafe impl Sync for Call {}

/// The calls of this rank's images that have come.
pub(super) struct Gathering {
    calls: Vec<Option<Call>>,
}

/// One operation with the calls of this rank's images.
struct Started {
    exchange: Exchange,
    calls: Vec<Call>,
    /// First image of this rank, and number of images in all.
    first: u32,
    images: u32,
    is_by_rank: bool,
}

impl Started {
    fn members(&self) -> impl Iterator<Item = std::ops::Range<u32>> {
        (0..self.exchange.team.size()).map(|member| self.images_of(member))
    }

    fn images_of(&self, member: u32) -> std::ops::Range<u32> {
        if self.is_by_rank { member..member + 1 } else { self.exchange.team.images_of(member) }
    }

    /// The member that an image belongs to, and the image's place among the images there.
    fn locate(&self, image: u32) -> (u32, u32) {
        if self.is_by_rank {
            self.exchange.team.rank_of(image);
            return (image, 0);
        }
        let member = self.exchange.team.member_of_image(image);
        (member, image - self.exchange.team.images_of(member).start)
    }

    fn is_root(&self, root: u32) -> bool {
        self.locate(root).0 == self.exchange.team.me()
    }

    /// The place of a local image, of those that each image has.
    fn place(&self, local: u32, places: impl Fn(&Call) -> Places) -> Memory {
        let call = &self.calls[local as usize];
        match places(call) {
            Places::One(address) => Memory::new(address.cast()),
            Places::List(list) => {
                let index = if call.flags & flag::SINGLE != 0 { self.first + local } else { local };
                // SAFETY: rule 1: a list of the local images' places, or of all images' if it is the same everywhere.
                Memory::new(unsafe { list.add(index as usize).read() }.cast())
            }
        }
    }

    /// The place of the root image, which is here.
    fn root_place(&self, root: u32, places: impl Fn(&Call) -> Places) -> Memory {
        match places(&self.calls[self.locate(root).1 as usize]) {
            Places::One(address) => Memory::new(address.cast()),
            Places::List(_) => fatal("a root has one place"),
        }
    }

    fn locals(&self) -> std::ops::Range<u32> {
        0..self.calls.len() as u32
    }

    fn to(&self, local: u32) -> Memory {
        self.place(local, |call| call.to)
    }

    fn from(&self, local: u32) -> Memory {
        self.place(local, |call| call.from)
    }

    /// The blocks of all local images, one after the other, in memory of the library's own.
    fn local_blocks(&self, bytes: usize) -> Vec<u8> {
        let mut blocks = vec![0; bytes * self.calls.len()];
        if bytes > 0 {
            for (local, block) in self.locals().zip(blocks.chunks_exact_mut(bytes)) {
                self.from(local).read_into(block);
            }
        }
        blocks
    }

    /// What this rank gives everybody: from where it is, if that is one block which nothing is written to meanwhile.
    /// `to` is where the blocks of all images are written.
    fn gift(&self, bytes: usize, to: Option<Memory>) -> Text {
        let from = self.from(0);
        let is_safe = to.is_none_or(|to| {
            let own = to.at(self.first as usize * bytes);
            from == own || !from.overlaps(bytes, to, bytes * self.images as usize)
        });
        if self.calls.len() == 1 && is_safe {
            return Text::Client(from, bytes);
        }
        self.local_blocks(bytes).into()
    }

    /// Where the blocks of a member's images belong in those of all images, and how many bytes they are.
    fn blocks_of(&self, member: u32, all: Memory, bytes: usize) -> (Memory, usize) {
        let images = self.images_of(member);
        (all.at(images.start as usize * bytes), images.len() * bytes)
    }

    async fn run(self) {
        let Call { kind, bytes, flags, .. } = self.calls[0];
        if flags & flag::IN_ALLSYNC != 0 {
            algorithm::meet(&self.exchange, Meeting::Before).await;
        }
        match kind {
            Kind::Broadcast { root } => self.broadcast(root, bytes).await,
            Kind::Scatter { root } => self.scatter(root, bytes).await,
            Kind::Gather { root } => self.gather(root, bytes).await,
            Kind::GatherAll => self.gather_all(bytes).await,
            Kind::Exchange => self.exchange(bytes).await,
            Kind::Reduce { root, rule } => self.reduce(root, rule, bytes).await,
            Kind::Scan { rule } => self.scan(rule, bytes, flags & flag::EXCLUSIVE_SCAN != 0).await,
        }
        if flags & flag::OUT_ALLSYNC != 0 {
            algorithm::meet(&self.exchange, Meeting::After).await;
        }
    }

    async fn broadcast(&self, root: u32, bytes: usize) {
        let at = self.to(0);
        if self.is_root(root) {
            at.copy_from(self.root_place(root, |call| call.from), bytes);
        }
        algorithm::broadcast(&self.exchange, self.locate(root).0, at, bytes).await;
        for local in self.locals().skip(1) {
            self.to(local).copy_from(at, bytes);
        }
    }

    async fn scatter(&self, root: u32, bytes: usize) {
        let root_member = self.locate(root).0;
        if self.is_root(root) {
            let from = self.root_place(root, |call| call.from);
            let own = |local: u32| from.at((self.first + local) as usize * bytes);
            // What is written here while others' blocks have not left must not be among them.
            let all_bytes = bytes * self.images as usize;
            let is_safe = |local| {
                let to = self.to(local);
                to == own(local) || !to.overlaps(bytes, from, all_bytes)
            };
            let is_safe = self.locals().all(is_safe);
            let own_blocks: Vec<Vec<u8>> = self.locals().map(|local| own(local).read(bytes)).collect();
            algorithm::give_all(&self.exchange, |member| {
                let (blocks, bytes) = self.blocks_of(member, from, bytes);
                if is_safe { Text::Client(blocks, bytes) } else { blocks.read(bytes).into() }
            });
            for (local, block) in self.locals().zip(own_blocks) {
                self.to(local).write(&block);
            }
        } else if self.calls.len() == 1 {
            algorithm::take(&self.exchange, root_member, self.to(0), bytes).await;
        } else {
            let blocks = algorithm::take_aside(&self.exchange, root_member, bytes * self.calls.len()).await;
            if bytes > 0 {
                for (local, block) in self.locals().zip(blocks.chunks_exact(bytes)) {
                    self.to(local).write(block);
                }
            }
        }
    }

    async fn gather(&self, root: u32, bytes: usize) {
        if !self.is_root(root) {
            return algorithm::give(&self.exchange, self.locate(root).0, self.gift(bytes, None));
        }
        let to = self.root_place(root, |call| call.to);
        let own = self.local_blocks(bytes);
        self.blocks_of(self.exchange.team.me(), to, bytes).0.write(&own);
        algorithm::collect(&self.exchange, |member| self.blocks_of(member, to, bytes)).await;
    }

    async fn gather_all(&self, bytes: usize) {
        let to = self.to(0);
        let gift = self.gift(bytes, Some(to));
        let own = self.local_blocks(bytes);
        algorithm::give_all(&self.exchange, |_| gift.clone());
        self.blocks_of(self.exchange.team.me(), to, bytes).0.write(&own);
        algorithm::collect(&self.exchange, |member| self.blocks_of(member, to, bytes)).await;
        for local in self.locals().skip(1) {
            self.to(local).copy_from(to, bytes * self.images as usize);
        }
    }

    async fn exchange(&self, bytes: usize) {
        let all_bytes = bytes * self.images as usize;
        let is_simple = self.images == self.exchange.team.size();
        if is_simple && !self.to(0).overlaps(all_bytes, self.from(0), all_bytes) {
            let (to, from) = (self.to(0), self.from(0));
            let of = |member, all| self.blocks_of(member, all, bytes);
            algorithm::give_all(&self.exchange, |member| Text::Client(of(member, from).0, bytes));
            let me = self.exchange.team.me();
            of(me, to).0.copy_from(of(me, from).0, bytes);
            return algorithm::collect(&self.exchange, |member| of(member, to)).await;
        }
        // A string for a member holds, for each image there, a block of each image here.
        let string_for = |member: u32| -> Vec<u8> {
            let blocks =
                self.images_of(member).flat_map(|image| self.locals().map(move |local| (image, local)));
            blocks
                .flat_map(|(image, local)| self.from(local).at(image as usize * bytes).read(bytes))
                .collect()
        };
        let bytes_of = |member: u32| bytes * self.images_of(member).len() * self.calls.len();
        let mine = string_for(self.exchange.team.me());
        algorithm::give_all(&self.exchange, |member| string_for(member).into());
        let mut strings = algorithm::collect_aside(&self.exchange, bytes_of).await;
        strings[self.exchange.team.me() as usize] = mine;
        for (images, string) in self.members().zip(&strings) {
            if bytes > 0 {
                let mut blocks = string.chunks_exact(bytes);
                for local in self.locals() {
                    for (image, block) in images.clone().zip(&mut blocks) {
                        self.to(local).at(image as usize * bytes).write(block);
                    }
                }
            }
        }
    }

    /// The local images' rows, each combined with those before it.
    fn local_prefixes(&self, reduction: Reduction, bytes: usize) -> Vec<Vec<u8>> {
        let mut prefixes: Vec<Vec<u8>> = Vec::new();
        for local in self.locals() {
            let row = self.from(local).read(bytes);
            prefixes.push(match prefixes.last() {
                Some(before) => reduction.combine(before, &row),
                None => row,
            });
        }
        prefixes
    }

    async fn reduce(&self, root: u32, rule: Rule, bytes: usize) {
        let reduction = rule.reduction();
        let mine = self.local_prefixes(reduction, bytes).pop().unwrap_or_default();
        let combine = |left: &[u8], right: &[u8]| reduction.combine(left, right);
        if let Some(result) = algorithm::reduce(&self.exchange, self.locate(root).0, mine, combine).await {
            self.root_place(root, |call| call.to).write(&result);
        }
    }

    /// An exclusive scan leaves the memory of the first image as it is.
    async fn scan(&self, rule: Rule, bytes: usize, is_exclusive: bool) {
        let reduction = rule.reduction();
        let prefixes = self.local_prefixes(reduction, bytes);
        let combine = |left: &[u8], right: &[u8]| reduction.combine(left, right);
        let mine = prefixes.last().cloned().unwrap_or_default();
        let before = algorithm::prefix(&self.exchange, mine, combine).await;
        for local in self.locals() {
            let own = if is_exclusive { local.checked_sub(1) } else { Some(local) };
            let own = own.map(|own| prefixes[own as usize].as_slice());
            let result = match (&before, own) {
                (Some(before), Some(own)) => combine(before, own),
                (Some(only), None) => only.clone(),
                (None, Some(only)) => only.to_vec(),
                (None, None) => continue,
            };
            self.to(local).write(&result);
        }
    }
}

impl Rule {
    fn reduction(self) -> Reduction {
        Reduction::new(self.function, self.argument, self.element_bytes)
    }
}

/// Adds the call of the calling thread's image; the last one of this rank begins the operation.
pub(super) unsafe fn start(team: *const Team, call: Call) -> Arc<Operation> {
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    let is_by_rank = call.flags & flag::NO_IMAGES != 0 || team.images() == team.size();
    let (sequence, local, count, first, images) = if is_by_rank {
        (sequence::RANKS, 0, 1, team.me(), team.size())
    } else {
        let mine = team.images_of(team.me());
        (sequence::IMAGES, team.local_image(), mine.len(), mine.start, team.images())
    };
    let key = team.next_key(sequence, local);
    let operation = operation::find(key);
    let mut gathering = lock(&team.gathering);
    let gathered = gathering.entry(key).or_insert_with(|| Gathering { calls: vec![None; count] });
    if gathered.calls.iter().flatten().any(|other| other.kind != call.kind || other.bytes != call.bytes) {
        fatal(format_args!("the images of a rank call different collectives: {:?} and another", call.kind));
    }
    gathered.calls[local as usize] = Some(call);
    if gathered.calls.iter().all(Option::is_some) {
        let calls: Vec<Call> = gathered.calls.drain(..).flatten().collect();
        gathering.remove(&key);
        drop(gathering);
        let needs_client = match call.kind {
            Kind::Reduce { rule, .. } | Kind::Scan { rule } => rule.reduction().needs_client(),
            _ => false,
        };
        let exchange = Exchange { team: team.clone(), operation: operation.clone() };
        let started = Started { exchange, calls, first, images, is_by_rank };
        debug_assert!(started.first < started.images);
        operation.begin(Box::pin(started.run()), needs_client);
    } else {
        drop(gathering);
    }
    operation
}
