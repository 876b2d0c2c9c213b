//! The heap of a job: its beginning and its end.

use super::Messages;
use super::copies::Copies;
use super::elsewhere::RemoteRoom;
use super::error::ObjectError;
use super::head::{Head, tag_of};
use super::hooks::Hooks;
use super::period::PERIOD;
use super::replica::Replicas;
use super::retired::{bit, bits_of};
use super::{DBox, HEAP, Heap, Mapped, OWN, SEGMENT, mates};
use crate::slab::{Geometry, Memory, SLAB_BYTES, Slabs};
use crate::word::{ADDRESS_BITS, Colour};
use rustix::rand::{GetRandomFlags, getrandom};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas::{Rank, Runtime, SegmentOptions, SegmentOwner};

/// Leading words of each rank's barrier payload: numbers of drops.
const TOLD_AND_DONE: usize = 2;
/// Time that a rank waits for drops that are in flight to it: mostly longer than a message and its answer
/// take.
const QUIET: Duration = Duration::from_micros(300);

/// Tasks, as the heap calls them.
static HOOKS: Hooks = Hooks {
    serve_others: crate::task::see_others,
    request_slot: crate::task::ask_for_room,
    wait_until: |deadline, condition| crate::sync::until(deadline, condition),
};

/// Size of the heap. The same on all ranks.
#[derive(Clone, Copy, Debug)]
pub struct HeapOptions {
    /// Bytes of each rank's partition: values, copies and the allocator's records. It may be far larger than
    /// memory. Values larger than 32 KiB take multiples of 64 KiB, and smaller ones a slot of some size ([how
    /// much that is](crate::first_steps#3-how-large-it-may-become)). At least [`HeapOptions::BYTES_MIN`].
    pub bytes: u64,
    /// Number of copies of remote objects that a rank keeps, beyond which it drops the least recently used.
    /// Those in use stay.
    pub copies: usize,
    /// Bytes that copies may take of a rank's partition, beyond which the least recently used go; 0: a
    /// quarter of the node's cache, shared by its ranks. Those in use stay, on NVMe if memory has no room. In
    /// a partition that is full of values, copies take as many bytes of the process's memory instead.
    pub copy_bytes: u64,
    /// The last colour of a slot: fewer than 65,535 make slots retire early, for tests. Retired slots are of use again when all
    /// ranks have said that they have no copies from there ([when that is](crate::manual::limits#colours)).
    pub last_colour: u16,
    /// Backups of each rank's partition on other nodes, at most 1: then objects outlive a node that is lost,
    /// as [`Objects::replicate`] and the documentation of this crate say. They take as many bytes again of
    /// NVMe, and of the setting `segment.tiered_max`; a value passed on since the last write is copied by its
    /// next write. Needs two nodes, and the setting `run.survive`. A named heap has backups for this job
    /// only: the first pass-on backs up the whole partition, and a later job finds the last checkpoint, in
    /// which all nodes took part.
    pub replicas: u32,
}

impl HeapOptions {
    /// Smallest partition of a rank: one slab of objects, and the allocator's records.
    pub const BYTES_MIN: u64 = 2 * SLAB_BYTES;

    /// The usual ones.
    pub const DEFAULT: Self =
        Self { bytes: 1 << 30, copies: 1 << 16, copy_bytes: 0, last_colour: u16::MAX, replicas: 0 };
}

impl Default for HeapOptions {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// The heap of a job, seen from one rank. One exists per process, once.
#[derive(Debug)]
pub struct Objects {
    pub(super) heap: &'static Heap,
}

/// A process's use of the heap.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeapCounts {
    /// Objects and copies in this rank's partition, including those that others have let go of without this
    /// rank's knowledge yet.
    pub placed: u64,
    /// Copies among them.
    pub copies: u64,
    /// Slots whose colours are used up.
    pub retired: u64,
}

impl Objects {
    /// Attaches the heap: a tiered segment of each rank, at one address in all processes (as [`SegmentOptions::one_address`]), in the
    /// place of [`Runtime::attach`]. Collective. When it returns, boxes may be made everywhere.
    ///
    /// # Errors
    /// As [`Runtime::attach`]. On every rank, if the ranks do not run the same program, ask for different heaps, or if one of them attaches plain
    /// segments ([`Runtime::attach`]), by which it could write into the heap: the job ends then. If this process has had a heap.
    pub fn attach(runtime: &Runtime, options: &HeapOptions) -> Result<Self, ObjectError> {
        Self::begin(runtime, options, None)
    }

    /// Attaches a heap that outlives the job: as its last [`Objects::checkpoint`] has left it, or empty, if
    /// nothing has this name yet ([`SegmentOptions::name`]). [`Objects::root`] returns the objects found in
    /// it. Nothing is read for it but what is used.
    ///
    /// # Safety
    /// The files of this name were left by checkpoints of programs during which no thread, of any rank, used
    /// an object; nothing else has changed them. Those programs were built by the same version of the
    /// compiler, or have kept no enum with fields (and no option, result or duration) whose layout only its
    /// size reveals: [`Layout`](crate::Layout) cannot tell the places of variants' fields.
    ///
    /// # Errors
    /// As [`Objects::attach`]; when the name is that of another segment, of a heap of other addresses or another last colour, or of one
    /// that can only be read.
    pub unsafe fn attach_named(
        runtime: &Runtime,
        options: &HeapOptions,
        name: &str,
    ) -> Result<Self, ObjectError> {
        Self::begin(runtime, options, Some(name.to_owned()))
    }

    fn begin(runtime: &Runtime, options: &HeapOptions, name: Option<String>) -> Result<Self, ObjectError> {
        super::helper::keep_constructor();
        let (bytes, me, ranks) = (options.bytes, runtime.rank(), runtime.ranks());
        if HEAP.get().is_some() {
            return Err(ObjectError::Usage(
                "this process has, or has had, a heap: one is all it can have".into(),
            ));
        }
        if bytes < HeapOptions::BYTES_MIN {
            return Err(ObjectError::Usage(format!(
                "HeapOptions::bytes is {bytes}: the partition of a rank needs at least {}",
                HeapOptions::BYTES_MIN
            )));
        }
        if options.replicas > 1 {
            let asked = options.replicas;
            return Err(ObjectError::Usage(format!("a heap can have one replica, not {asked}")));
        }
        let HeapOptions { last_colour, replicas, .. } = options;
        let owner = SegmentOwner {
            slot: 0,
            library: "a heap of objects (Objects::attach)".into(),
            program: crate::task::program(),
            options: format!("{bytes} bytes a rank, {last_colour} colours, {replicas} replicas"),
        };
        let asked = SegmentOptions::tiered(bytes).one_address(true).home_only(true).maybe_name(name);
        // SAFETY: only the heap has the segment.
        let segment = unsafe { runtime.attach_owned(&asked, &owner) }?;
        let base_of = |rank| {
            let pointer = runtime.pointer_to(segment.address(Rank(rank), 0));
            pointer.map(|pointer| pointer.expose_provenance() as u64)
        };
        let local = segment.local()?;
        let own = local.base().expose_provenance() as u64;
        let base = base_of(0).unwrap_or(own);
        let stride = base_of(1).map_or(bytes, |second| second - base);
        let end = base + stride * u64::from(ranks);
        let geometry = Geometry::new(own, bytes);
        if ranks >= u32::from(u16::MAX) || end >> ADDRESS_BITS != 0 {
            return Err(ObjectError::Usage(format!("no pointer reaches all of {ranks} ranks")));
        }
        let memory = Mapped { base: own, bytes };
        let last = Colour(options.last_colour);
        let left = segment.reopened().filter(|reopened| reopened.checkpoint > 0);
        // Combined over all ranks, so that all of them refuse it. A full disk may be read as long as little
        // changes. SAFETY: it only asks.
        let client = unsafe { runtime.raw_client() };
        let is_writable = (0..ranks).all(|rank| client.check_writable((SEGMENT, Rank(rank))).is_ok());
        let left = left.map(|_| left_behind(&memory, is_writable, base, stride, last)).transpose()?;
        let jobs = left.map_or(0, |head| head.jobs + 1);
        let tag = tag_of(me.0, ranks, jobs)?;
        let replicas =
            (options.replicas > 0).then(|| Replicas::attach(runtime, bytes, &owner)).transpose()?;
        let mut slabs = match left {
            Some(head) => Slabs::reopen(memory, geometry, last, head.live, head.used),
            None => Slabs::new(memory, geometry, last),
        };
        if replicas.is_none() {
            // An object that has a backup moves when it is written after it was served: useless marks would
            // cost more there.
            slabs.mark_full_slabs();
        }
        let shared = mates::table(runtime, options.copies, &owner)?;
        let heap = Heap {
            copy_bytes_max: copy_bytes(runtime, options),
            slabs: Mutex::new(slabs),
            runtime: runtime.clone(),
            segment,
            _local: local,
            base,
            stride,
            bytes,
            geometry,
            last,
            jobs,
            first_tag: tag - u64::from(me.0),
            copies_max: options.copies,
            copies: Copies::sharing(shared),
            overflow: Default::default(),
            mates: Default::default(),
            serial: AtomicU64::new(1),
            frees: Mutex::default(),
            told: Mutex::default(),
            drops: Default::default(),
            questions: Default::default(),
            allocated: AtomicU64::new(1),
            // A backup has what its rank has written; values that other ranks write there would have none.
            elsewhere: RemoteRoom::new(ranks > 1 && options.replicas == 0, bytes),
            hooks: &HOOKS,
            roots: Mutex::new(left.and_then(|head| head.roots).map(DBox::of)),
            replicas,
            door: Default::default(),
        };
        if HEAP.set(heap).is_err() {
            return Err(ObjectError::Usage("two threads attach a heap at the same time".into()));
        }
        OWN.base.store(own, Ordering::Relaxed);
        OWN.large_words.store(geometry.large_words(own), Ordering::Relaxed);
        OWN.bytes.store(bytes, Ordering::Relaxed);
        OWN.tag.store(tag, Ordering::Release);
        if options.replicas == 0 {
            PERIOD.begin(tag);
        }
        let Some(heap) = HEAP.get() else { return Err(ObjectError::NoHeap) };
        let objects = Self { heap };
        super::drops::register(&heap.runtime)?;
        super::retired::register(&heap.runtime)?;
        crate::task::register(&heap.runtime)?;
        // All agree on the first rank's number: observers identify the job by it.
        let mut number = [0; 8];
        let drawn = getrandom(&mut number[..], GetRandomFlags::empty());
        drawn.map_err(|why| ObjectError::Usage(format!("no random number for the heap: {why}")))?;
        let numbers = heap.runtime.meet(&number)?;
        let number = numbers.first().and_then(|first| first.first_chunk()).copied().unwrap_or(number);
        heap.door.open(heap, u64::from_le_bytes(number));
        heap.runtime.on_finalize(|| {
            Self { heap }.end().map_err(|error| match error {
                ObjectError::Job(error) => error,
                error => vgas::Error::Usage(error.to_string()),
            })
        });
        Ok(objects)
    }

    /// Returns the runtime that the heap was attached to. Nothing that the program does with it reaches the
    /// heap's objects. Call a collective operation, such as a barrier, on all ranks at the same point, so not
    /// while another thread, or a closure around the call, hands or lends objects.
    pub fn runtime(&self) -> &Runtime {
        &self.heap.runtime
    }

    pub(crate) fn job(&self) -> &'static Runtime {
        &self.heap.runtime
    }

    /// Number of ranks of the job.
    pub fn ranks(&self) -> u32 {
        self.heap.runtime.ranks()
    }

    /// This rank.
    pub fn rank(&self) -> Rank {
        self.heap.runtime.rank()
    }

    /// Returns the content of this rank's partition, after taking note of values freed by other ranks, and
    /// dropping those they have let go of.
    ///
    /// # Errors
    /// If another rank has freed what is no object.
    pub fn counts(&self) -> Result<HeapCounts, ObjectError> {
        self.heap.collect()?;
        self.heap.drop_come(usize::MAX)?;
        let slabs = self.heap.slabs();
        Ok(HeapCounts {
            placed: slabs.live(),
            copies: self.heap.copies.kept().0 as u64,
            retired: slabs.retired().len() as u64,
        })
    }

    /// Drops all unused copies, of this rank or, if they are shared in place, of its node.
    ///
    /// # Errors
    /// None, unless the heap has ended.
    pub fn drop_copies(&self) -> Result<(), ObjectError> {
        while self.heap.evict()? {}
        Ok(())
    }

    /// A barrier that tidies up: values dropped by other ranks are gone after it, with all that they owned,
    /// and slots whose colours are used up begin again, if no rank uses copies from there. Collective.
    ///
    /// # Errors
    /// If a peer is lost, or has freed what is no object; and within [`Objects::run`], which has one `main`,
    /// where all ranks cannot meet.
    pub fn barrier(&self) -> Result<(), ObjectError> {
        self.can_meet("barrier")?;
        let (heap, runtime) = (self.heap, &self.heap.runtime);
        crate::sync::flush()?;
        crate::sync::settle()?;
        crate::sync::look();
        heap.flush()?;
        heap.replicate()?;
        let _no_questions = heap.questions.at_barrier();
        let (own, all) = self.come_to_rest()?;
        heap.has_met()?;
        heap.collect()?;
        let asked: Vec<u64> = all
            .iter()
            .flat_map(|bytes| bytes.as_chunks::<8>().0.iter().skip(TOLD_AND_DONE))
            .map(|chunk| u64::from_le_bytes(*chunk))
            .collect();
        if asked.is_empty() {
            return Ok(());
        }
        // All ranks together may ask about more than a barrier carries, also in bits: those that do not fit stay retired.
        let mut bits = bits_of(&heap.drop_copies_from(&asked)?);
        bits.truncate(CARRIED_MAX);
        let answers = runtime.meet(&bits)?;
        let (free, used): (Vec<u64>, Vec<u64>) = own.into_iter().partition(|address| {
            let at = asked.iter().position(|other| other == address).unwrap_or(usize::MAX);
            answers.iter().all(|answer| bit(answer, at))
        });
        heap.questions.refuse(used.into_iter());
        heap.revive(&free)
    }

    /// Refuses a collective call within a run: it would wait for ranks that do not make it.
    pub(super) fn can_meet(&self, call: &str) -> Result<(), ObjectError> {
        match self.ranks() > 1 && crate::task::is_within_run() {
            false => Ok(()),
            true => Err(ObjectError::Usage(format!(
                "`Objects::{call}` is of all ranks, which do not meet within `Objects::run`: call it before that, or afterwards"
            ))),
        }
    }

    /// Meets all ranks until all values that they have let go of are dropped, mostly after one meeting.
    /// Returns the retired slots that this rank then asks about, and every rank's contribution: number of
    /// objects let go of, number dropped for other ranks, and the slots it asks about.
    fn come_to_rest(&self) -> Result<(Vec<u64>, Vec<Vec<u8>>), ObjectError> {
        let (heap, runtime) = (self.heap, &self.heap.runtime);
        let mut has_met = false;
        loop {
            // Messages there and back arrive while this waits, mostly.
            loop {
                heap.drop_come(usize::MAX)?;
                crate::sync::flush()?;
                heap.flush()?;
                let until = Instant::now() + QUIET;
                if !heap.has_come() && (!has_met || !crate::sync::until(Some(until), || heap.has_come())?) {
                    break;
                }
            }
            let own = heap.retired_to_ask();
            let brought = heap.drops_told_and_done().into_iter().chain(own.iter().copied());
            let bytes: Vec<u8> = brought.flat_map(u64::to_le_bytes).collect();
            let all = runtime.meet(&bytes)?;
            let sum = |at: usize| {
                let numbers = all.iter().filter_map(|bytes| bytes.as_chunks::<8>().0.get(at));
                numbers.fold(0, |sum: u64, number| sum.wrapping_add(u64::from_le_bytes(*number)))
            };
            // A rank that says that it has dropped more is wrong, and is not waited for.
            if sum(0) <= sum(1) {
                return Ok((own, all));
            }
            has_met = true;
        }
    }

    /// Ends the heap, and this rank's part of the job ([`Runtime::finalize`], which ends the heap by itself if a program calls it).
    /// Collective. Boxes that are left become empty names: using them panics, dropping them is a no-op; a thread that still reads
    /// through a reference then ends the process by a fault.
    ///
    /// # Errors
    /// If a peer is lost; not if the heap continues without it ([`HeapOptions::replicas`]).
    pub fn finalize(self) -> Result<(), ObjectError> {
        self.end()?;
        Ok(self.heap.runtime.finalize()?)
    }

    /// Ends the heap. No-op the second time.
    fn end(&self) -> Result<(), ObjectError> {
        if OWN.tag.load(Ordering::Acquire) == 0 {
            return Ok(());
        }
        match self.barrier().and_then(|()| self.print_report()) {
            // Other ranks may have begun something together before they hear of the loss, and want this rank's part in it.
            Err(_) if self.heap.goes_on() => self.heap.runtime.meet_survivors()?,
            met => met?,
        }
        self.heap.door.close();
        self.heap.mates.close();
        PERIOD.end();
        OWN.bytes.store(0, Ordering::Relaxed);
        OWN.tag.store(0, Ordering::Release);
        Ok(())
    }
}

/// Returns an earlier job's header of its heap, if this job can attach it.
fn left_behind(
    memory: &Mapped,
    is_writable: bool,
    base: u64,
    stride: u64,
    last: Colour,
) -> Result<Head, ObjectError> {
    if !is_writable {
        return Err(ObjectError::Usage(
            "the heap can only be read where it is stored: reading it changes it, so copy its files elsewhere".into(),
        ));
    }
    let head = Head::read(|at| u64::from(memory.load(at)) | u64::from(memory.load(at + 4)) << 32)?;
    if (head.base, head.stride) != (base, stride) {
        return Err(ObjectError::Usage(format!(
            "the heap was at {:#x}, {:#x} bytes a rank, and can now be at {base:#x}, {stride:#x} bytes a rank, only: \
             its pointers would mean nothing",
            head.base, head.stride
        )));
    }
    if head.last_colour != last.0 {
        return Err(ObjectError::Usage(format!("the heap has {} colours, not {}", head.last_colour, last.0)));
    }
    Ok(head)
}

/// Bytes that copies may take of this rank's partition.
fn copy_bytes(runtime: &Runtime, options: &HeapOptions) -> u64 {
    let ranks = runtime.layout().ranks_of(runtime.node()).len().max(1) as u64;
    match options.copy_bytes {
        0 => {
            let pool = runtime.cache_layout().spec();
            u64::from(pool.frames) * u64::from(pool.page_bytes) / 4 / ranks
        }
        bytes => bytes,
    }
}

/// Most bytes that a barrier carries of one rank.
const CARRIED_MAX: usize = 1024;
