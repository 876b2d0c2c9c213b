//! One collective with the arguments of all images of this rank: from the client's memory to strings and back.

use super::reduction::Reduction;
use super::team::Team;
use super::{flag, lock};
use crate::fatal::{fail, fatal};
use libc::{c_int, c_void};
use std::sync::Arc;
use vgas_rma::collective::algorithm::{self, Meeting, Part};
use vgas_rma::collective::{
    self, Exchange, InFlight, Landing, Operation, Pattern, TeamCall, Text, View, sequence,
};

/// Kind of a collective, with the arguments in which all images agree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Broadcast { root: u32 },
    Scatter { root: u32 },
    Gather { root: u32 },
    AllGather,
    AllToAll,
    Reduce { root: u32, rule: Rule },
    Scan { rule: Rule },
}

/// Function and types of a reduction.
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
    /// Takes C's arguments: an address, and if it is that of a list.
    pub(super) fn new(address: *mut c_void, is_list: c_int) -> Self {
        if is_list == 0 { Self::One(address) } else { Self::List(address.cast_const().cast()) }
    }
}

/// A call of one image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub kind: Kind,
    /// Bytes of a block: one image's data for another.
    pub bytes: usize,
    pub flags: c_int,
    pub to: Places,
    pub from: Places,
}

// SAFETY: rule 1: the memory is valid for any thread of the process until the operation was synchronised.
unsafe impl Send for Call {}
// SAFETY: as above; a call is not changed once it is made.
unsafe impl Sync for Call {}

/// The calls of this rank's images that have come to an operation.
pub(super) struct Gathering {
    operation: Arc<Operation>,
    calls: Vec<Option<Call>>,
}

/// One operation with the calls of this rank's images.
struct Started {
    team: Arc<Team>,
    exchange: Exchange,
    calls: Vec<Call>,
    /// First image of this rank, and number of images in all.
    first: u32,
    images: u32,
}

impl Started {
    fn members(&self) -> impl Iterator<Item = std::ops::Range<u32>> {
        (0..self.team.size()).map(|member| self.images_of(member))
    }

    fn images_of(&self, member: u32) -> std::ops::Range<u32> {
        self.team.images_of(member)
    }

    /// The member that an image belongs to, and the image's place among the images there.
    fn locate(&self, image: u32) -> (u32, u32) {
        let member = self.team.member_of_image(image);
        (member, image - self.team.images_of(member).start)
    }

    fn is_root(&self, root: u32) -> bool {
        self.locate(root).0 == self.team.me()
    }

    /// Returns the place of a local image, of `bytes` bytes, among those of each image.
    fn place(&self, local: u32, bytes: usize, places: impl Fn(&Call) -> Places) -> View {
        let call = &self.calls[local as usize];
        let address = match places(call) {
            Places::One(address) => address,
            Places::List(list) => {
                let index = if call.flags & flag::SINGLE != 0 { self.first + local } else { local };
                // SAFETY: rule 1: a list of the local images' places, or of all images' if it is the same everywhere.
                unsafe { list.add(index as usize).read() }
            }
        };
        // SAFETY: rule 1: valid until the operation was synchronised, which is after it is done.
        unsafe { View::new(address.cast(), bytes) }
    }

    /// The place of the root image, which is here.
    fn root_place(&self, root: u32, bytes: usize, places: impl Fn(&Call) -> Places) -> View {
        match places(&self.calls[self.locate(root).1 as usize]) {
            // SAFETY: as in `place`.
            Places::One(address) => unsafe { View::new(address.cast(), bytes) },
            Places::List(_) => fatal("a root has one place"),
        }
    }

    /// The bytes of a block of each image.
    fn of_all(&self, bytes: usize) -> usize {
        bytes * self.images as usize
    }

    fn locals(&self) -> std::ops::Range<u32> {
        0..self.calls.len() as u32
    }

    fn to(&self, local: u32, bytes: usize) -> View {
        self.place(local, bytes, |call| call.to)
    }

    fn from(&self, local: u32, bytes: usize) -> View {
        self.place(local, bytes, |call| call.from)
    }

    /// The blocks of all local images, one after the other, in memory of the library's own.
    fn local_blocks(&self, bytes: usize) -> Vec<u8> {
        let mut blocks = vec![0; bytes * self.calls.len()];
        if bytes > 0 {
            for (local, block) in self.locals().zip(blocks.chunks_exact_mut(bytes)) {
                self.from(local, bytes).read_into(block);
            }
        }
        blocks
    }

    /// Returns this rank's contribution for all others: in place, if it is one block that is not written
    /// meanwhile. `to` is where the blocks of all images are written.
    fn gift(&self, bytes: usize, to: Option<View>) -> Text {
        let from = self.from(0, bytes);
        let is_safe = to.is_none_or(|to| {
            let own = to.part(self.first as usize * bytes, bytes);
            from == own || !from.overlaps(to)
        });
        if self.calls.len() == 1 && is_safe {
            return Text::View(from);
        }
        self.local_blocks(bytes).into()
    }

    /// Returns the place of a member's images among the blocks of all images.
    fn blocks_of(&self, member: u32, all: View, bytes: usize) -> View {
        let images = self.images_of(member);
        all.part(images.start as usize * bytes, images.len() * bytes)
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
            Kind::AllGather => self.gather_all(bytes).await,
            Kind::AllToAll => self.exchange(bytes).await,
            Kind::Reduce { root, rule } => self.reduce(root, rule, bytes).await,
            Kind::Scan { rule } => self.scan(rule, bytes, flags & flag::EXCLUSIVE_SCAN != 0).await,
        }
        if flags & flag::OUT_ALLSYNC != 0 {
            algorithm::meet(&self.exchange, Meeting::After).await;
        }
    }

    async fn broadcast(&self, root: u32, bytes: usize) {
        let at = self.to(0, bytes);
        let part = if self.is_root(root) {
            at.copy_from(self.root_place(root, bytes, |call| call.from));
            Part::Give(Text::View(at))
        } else {
            Part::Take(Landing::View(at), bytes)
        };
        algorithm::broadcast(&self.exchange, self.locate(root).0, part).await;
        for local in self.locals().skip(1) {
            self.to(local, bytes).copy_from(at);
        }
    }

    async fn scatter(&self, root: u32, bytes: usize) {
        let root_member = self.locate(root).0;
        if self.is_root(root) {
            let from = self.root_place(root, self.of_all(bytes), |call| call.from);
            let own = |local: u32| from.part((self.first + local) as usize * bytes, bytes);
            // Bytes written here while others' blocks have not left must not be among them.
            let is_safe = |local| {
                let to = self.to(local, bytes);
                to == own(local) || !to.overlaps(from)
            };
            let is_safe = self.locals().all(is_safe);
            let own_blocks: Vec<Vec<u8>> = self.locals().map(|local| own(local).read()).collect();
            algorithm::give_all(&self.exchange, |member| {
                let blocks = self.blocks_of(member, from, bytes);
                if is_safe { Text::View(blocks) } else { blocks.read().into() }
            });
            for (local, block) in self.locals().zip(own_blocks) {
                self.to(local, bytes).write(&block);
            }
        } else if self.calls.len() == 1 {
            algorithm::take(&self.exchange, root_member, self.to(0, bytes)).await;
        } else {
            let blocks = algorithm::take_aside(&self.exchange, root_member, bytes * self.calls.len()).await;
            if bytes > 0 {
                for (local, block) in self.locals().zip(blocks.chunks_exact(bytes)) {
                    self.to(local, bytes).write(block);
                }
            }
        }
    }

    async fn gather(&self, root: u32, bytes: usize) {
        if !self.is_root(root) {
            return algorithm::give(&self.exchange, self.locate(root).0, self.gift(bytes, None));
        }
        let to = self.root_place(root, self.of_all(bytes), |call| call.to);
        let own = self.local_blocks(bytes);
        self.blocks_of(self.team.me(), to, bytes).write(&own);
        algorithm::collect(&self.exchange, |member| self.blocks_of(member, to, bytes)).await;
    }

    async fn gather_all(&self, bytes: usize) {
        let all_bytes = self.of_all(bytes);
        let to = self.to(0, all_bytes);
        let gift = self.gift(bytes, Some(to));
        let own = self.local_blocks(bytes);
        algorithm::give_all(&self.exchange, |_| gift.clone());
        self.blocks_of(self.team.me(), to, bytes).write(&own);
        algorithm::collect(&self.exchange, |member| self.blocks_of(member, to, bytes)).await;
        for local in self.locals().skip(1) {
            self.to(local, all_bytes).copy_from(to);
        }
    }

    async fn exchange(&self, bytes: usize) {
        let all_bytes = self.of_all(bytes);
        let is_simple = self.images == self.team.size();
        let (to, from) = (self.to(0, all_bytes), self.from(0, all_bytes));
        if is_simple && !to.overlaps(from) {
            let of = |member, all| self.blocks_of(member, all, bytes);
            algorithm::give_all(&self.exchange, |member| Text::View(of(member, from)));
            let me = self.team.me();
            of(me, to).copy_from(of(me, from));
            return algorithm::collect(&self.exchange, |member| of(member, to)).await;
        }
        // A string for a member holds, for each image there, a block of each image here.
        let string_for = |member: u32| -> Vec<u8> {
            let blocks =
                self.images_of(member).flat_map(|image| self.locals().map(move |local| (image, local)));
            blocks
                .flat_map(|(image, local)| {
                    self.from(local, all_bytes).part(image as usize * bytes, bytes).read()
                })
                .collect()
        };
        let bytes_of = |member: u32| bytes * self.images_of(member).len() * self.calls.len();
        let mine = string_for(self.team.me());
        algorithm::give_all(&self.exchange, |member| string_for(member).into());
        let mut strings = algorithm::collect_aside(&self.exchange, bytes_of).await;
        strings[self.team.me() as usize] = mine;
        for (images, string) in self.members().zip(&strings) {
            if bytes > 0 {
                let mut blocks = string.chunks_exact(bytes);
                for local in self.locals() {
                    for (image, block) in images.clone().zip(&mut blocks) {
                        self.to(local, all_bytes).part(image as usize * bytes, bytes).write(block);
                    }
                }
            }
        }
    }

    /// The local images' rows, each combined with those before it.
    fn local_prefixes(&self, reduction: Reduction, bytes: usize) -> Vec<Vec<u8>> {
        let mut prefixes: Vec<Vec<u8>> = Vec::new();
        for local in self.locals() {
            let row = self.from(local, bytes).read();
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
            self.root_place(root, bytes, |call| call.to).write(&result);
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
            self.to(local, bytes).write(&result);
        }
    }
}

impl Rule {
    fn reduction(self) -> Reduction {
        Reduction::new(self.function, self.argument, self.element_bytes)
    }
}

impl Kind {
    fn root(self) -> Option<u32> {
        match self {
            Self::Broadcast { root }
            | Self::Scatter { root }
            | Self::Gather { root }
            | Self::Reduce { root, .. } => Some(root),
            Self::AllGather | Self::AllToAll | Self::Scan { .. } => None,
        }
    }

    /// Returns the part that members must agree on; the root by the member that it is on.
    fn call(self, member_of: impl Fn(u32) -> u32) -> collective::Call {
        use collective::Kind as Said;
        let with_root = |kind, root| collective::Call::with_root(kind, member_of(root));
        match self {
            Self::Broadcast { root } => with_root(Said::Broadcast, root),
            Self::Scatter { root } => with_root(Said::Scatter, root),
            Self::Gather { root } => with_root(Said::Gather, root),
            Self::Reduce { root, .. } => with_root(Said::Reduce, root),
            Self::AllGather => collective::Call::of_all(Said::AllGather),
            Self::AllToAll => collective::Call::of_all(Said::AllToAll),
            Self::Scan { .. } => collective::Call::of_all(Said::Scan),
        }
    }
}

impl Call {
    /// Returns the only place of this rank in a list or not, of `bytes` bytes.
    fn only_place(&self, places: Places, index: u32, bytes: usize) -> View {
        let address = match places {
            Places::One(address) => address,
            Places::List(list) => {
                let index = if self.flags & flag::SINGLE != 0 { index } else { 0 };
                // SAFETY: rule 1: a list of the local images' places, or of all images' if it is the same everywhere.
                unsafe { list.add(index as usize).read() }
            }
        };
        // SAFETY: rule 1: valid until the operation was synchronised, which is after it is done.
        unsafe { View::new(address.cast(), bytes) }
    }

    /// The same collective where each rank has one image.
    fn of_ranks(&self, me: u32, size: u32, call: collective::Call) -> TeamCall {
        let (one, all) = (self.bytes, self.bytes * size as usize);
        let to = |bytes| Some(self.only_place(self.to, me, bytes));
        let from = |bytes| Some(self.only_place(self.from, me, bytes));
        let (pattern, from, to) = match self.kind {
            Kind::Broadcast { root } => {
                (Pattern::Broadcast { root }, if root == me { from(one) } else { None }, to(one))
            }
            Kind::Scatter { root } => {
                (Pattern::Scatter { root }, if root == me { from(all) } else { None }, to(one))
            }
            Kind::Gather { root } => {
                (Pattern::Gather { root }, from(one), if root == me { to(all) } else { None })
            }
            Kind::AllGather => (Pattern::AllGather, from(one), to(all)),
            Kind::AllToAll => (Pattern::AllToAll, from(all), to(all)),
            Kind::Reduce { root, .. } => {
                (Pattern::Reduce { root }, from(one), if root == me { to(one) } else { None })
            }
            Kind::Scan { .. } => {
                let is_exclusive = self.flags & flag::EXCLUSIVE_SCAN != 0;
                (Pattern::Scan { is_exclusive }, from(one), to(one))
            }
        };
        let combiner = match self.kind {
            Kind::Reduce { rule, .. } | Kind::Scan { rule } => Some(Box::new(rule.reduction()) as _),
            _ => None,
        };
        let is_entered_together = self.flags & flag::IN_ALLSYNC != 0;
        let is_left_together = self.flags & flag::OUT_ALLSYNC != 0;
        TeamCall { pattern, call, bytes: one, is_entered_together, is_left_together, from, to, combiner }
    }
}

/// Adds the call of the calling thread's image; the last one of this rank begins the operation. None: it is done.
pub(super) unsafe fn start(team: *const Team, call: Call) -> Option<InFlight> {
    // SAFETY: as the caller promised.
    let team = unsafe { Team::of(team) };
    if call.flags & flag::NO_IMAGES != 0 || team.images() == team.size() {
        if let Some(root) = call.kind.root() {
            team.rank_of(root);
        }
        let call = call.of_ranks(team.me(), team.size(), call.kind.call(|root| root));
        return team.ranks().start(call).unwrap_or_else(|error| fail(error));
    }
    let mine = team.images_of(team.me());
    let (local, count) = (team.local_image(), mine.len());
    let operation = team.ranks().next_operation(sequence::IMAGES, local).unwrap_or_else(|error| fail(error));
    let Some(calls) = gathered(&team, &operation, call, local as usize, count) else {
        return Some(InFlight::Messages(operation));
    };
    let needs_client = match call.kind {
        Kind::Reduce { rule, .. } | Kind::Scan { rule } => rule.reduction().needs_client(),
        _ => false,
    };
    let exchange = Exchange::new(
        team.ranks().clone(),
        operation.clone(),
        call.kind.call(|root| team.member_of_image(root)),
    );
    let (first, images) = (mine.start, team.images());
    let started = Started { team: team.clone(), exchange: exchange.clone(), calls, first, images };
    debug_assert!(started.first < started.images);
    exchange.begin(Box::pin(started.run()), needs_client);
    Some(InFlight::Messages(operation))
}

/// Adds the call of an image to those of an operation; all of them, with the last.
fn gathered(
    team: &Team,
    operation: &Arc<Operation>,
    call: Call,
    local: usize,
    count: usize,
) -> Option<Vec<Call>> {
    if count == 1 {
        return Some(vec![call]);
    }
    let mut gathering = lock(&team.gathering);
    let found = gathering.iter().position(|gathered| Arc::ptr_eq(&gathered.operation, operation));
    let at = found.unwrap_or_else(|| {
        gathering.push(Gathering { operation: operation.clone(), calls: vec![None; count] });
        gathering.len() - 1
    });
    let calls = &mut gathering[at].calls;
    if calls.iter().flatten().any(|other| other.kind != call.kind || other.bytes != call.bytes) {
        fatal(format_args!("the images of a rank call different collectives: {:?} and another", call.kind));
    }
    calls[local] = Some(call);
    let is_whole = calls.iter().all(Option::is_some);
    is_whole.then(|| gathering.swap_remove(at).calls.into_iter().flatten().collect())
}
