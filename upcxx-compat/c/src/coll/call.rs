//! One collective with the arguments of all images of this rank: from the client's memory to strings and back.

use super::algorithm::{self, Meeting};
use super::flag;
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

/// Bytes of the client.
#[derive(Clone, Copy)]
struct Memory(*mut u8);

// SAFETY: as for `Call`.
unsafe impl Send for Memory {}

impl Memory {
    /// A copy of `bytes` bytes from the block at `index`.
    fn read(self, index: u32, bytes: usize) -> Vec<u8> {
        let mut copy = vec![0; bytes];
        self.read_into(&mut copy, index);
        copy
    }

    fn read_into(self, into: &mut [u8], index: u32) {
        let bytes = into.len();
        // SAFETY: rules 1 and 5: the operation was begun and not yet synchronised.
        unsafe {
            let from = self.0.add(index as usize * bytes);
            std::ptr::copy_nonoverlapping(from, into.as_mut_ptr(), bytes);
        }
    }

    /// Writes the block at `index`.
    fn write(self, index: u32, block: &[u8]) {
        // SAFETY: as in `read_into`.
        unsafe {
            let to = self.0.add(index as usize * block.len());
            std::ptr::copy_nonoverlapping(block.as_ptr(), to, block.len());
        }
    }
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
            Places::One(address) => Memory(address.cast()),
            Places::List(list) => {
                let index = if call.flags & flag::SINGLE != 0 { self.first + local } else { local };
                // SAFETY: rule 1: a list of the local images' places, or of all images' if it is the same everywhere.
                Memory(unsafe { list.add(index as usize).read() }.cast())
            }
        }
    }

    /// The place of the root image, which is here.
    fn root_place(&self, root: u32, places: impl Fn(&Call) -> Places) -> Memory {
        match places(&self.calls[self.locate(root).1 as usize]) {
            Places::One(address) => Memory(address.cast()),
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

    /// The blocks of all local images, one after the other.
    fn local_blocks(&self, bytes: usize) -> Vec<u8> {
        let mut blocks = vec![0; bytes * self.calls.len()];
        if bytes > 0 {
            for (local, block) in (0..).zip(blocks.chunks_exact_mut(bytes)) {
                self.from(local).read_into(block, 0);
            }
        }
        blocks
    }

    /// Writes one block of each image in all, which came by member, to a place.
    fn write_blocks(&self, to: Memory, strings: &[Vec<u8>], bytes: usize) {
        for (images, string) in self.members().zip(strings) {
            check_length(string, bytes * images.len());
            if bytes > 0 {
                for (image, block) in images.zip(string.chunks_exact(bytes)) {
                    to.write(image, block);
                }
            }
        }
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
            Kind::GatherAll => {
                let strings = algorithm::gather_all(&self.exchange, self.local_blocks(bytes)).await;
                for local in self.locals() {
                    self.write_blocks(self.to(local), &strings, bytes);
                }
            }
            Kind::Exchange => self.exchange(bytes).await,
            Kind::Reduce { root, rule } => self.reduce(root, rule, bytes).await,
            Kind::Scan { rule } => self.scan(rule, bytes, flags & flag::EXCLUSIVE_SCAN != 0).await,
        }
        if flags & flag::OUT_ALLSYNC != 0 {
            algorithm::meet(&self.exchange, Meeting::After).await;
        }
    }

    async fn broadcast(&self, root: u32, bytes: usize) {
        let mine = self.is_root(root).then(|| self.root_place(root, |call| call.from).read(0, bytes));
        let string = algorithm::broadcast(&self.exchange, self.locate(root).0, mine).await;
        check_length(&string, bytes);
        for local in self.locals() {
            self.to(local).write(0, &string);
        }
    }

    async fn scatter(&self, root: u32, bytes: usize) {
        let strings = self.is_root(root).then(|| {
            let from = self.root_place(root, |call| call.from);
            let of =
                |images: std::ops::Range<u32>| images.flat_map(|image| from.read(image, bytes)).collect();
            self.members().map(of).collect()
        });
        let mine = algorithm::scatter(&self.exchange, self.locate(root).0, strings).await;
        check_length(&mine, bytes * self.calls.len());
        if bytes > 0 {
            for (local, block) in self.locals().zip(mine.chunks_exact(bytes)) {
                self.to(local).write(0, block);
            }
        }
    }

    async fn gather(&self, root: u32, bytes: usize) {
        let mine = self.local_blocks(bytes);
        if let Some(strings) = algorithm::gather(&self.exchange, self.locate(root).0, mine).await {
            self.write_blocks(self.root_place(root, |call| call.to), &strings, bytes);
        }
    }

    /// A string for a member holds, for each image there, a block of each image here.
    async fn exchange(&self, bytes: usize) {
        let of = |images: std::ops::Range<u32>| {
            let blocks = images.flat_map(|image| self.locals().map(move |local| (image, local)));
            blocks.flat_map(|(image, local)| self.from(local).read(image, bytes)).collect()
        };
        let strings = self.members().map(of).collect();
        let strings = algorithm::exchange_all(&self.exchange, strings).await;
        for (images, string) in self.members().zip(&strings) {
            check_length(string, bytes * images.len() * self.calls.len());
            if bytes > 0 {
                let mut blocks = string.chunks_exact(bytes);
                for local in self.locals() {
                    for (image, block) in images.clone().zip(&mut blocks) {
                        self.to(local).write(image, block);
                    }
                }
            }
        }
    }

    /// The local images' rows, each combined with those before it.
    fn local_prefixes(&self, reduction: Reduction, bytes: usize) -> Vec<Vec<u8>> {
        let mut prefixes: Vec<Vec<u8>> = Vec::new();
        for local in self.locals() {
            let row = self.from(local).read(0, bytes);
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
            check_length(&result, bytes);
            self.root_place(root, |call| call.to).write(0, &result);
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
            self.to(local).write(0, &result);
        }
    }
}

impl Rule {
    fn reduction(self) -> Reduction {
        Reduction::new(self.function, self.argument, self.element_bytes)
    }
}

fn check_length(string: &[u8], expected: usize) {
    if string.len() != expected {
        let got = string.len();
        fatal(format_args!("a collective for which another member gave {got} bytes and this one {expected}"));
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
