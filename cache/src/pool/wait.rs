//! Wait slots: where a rank's operation learns that the agent has finished its parts, and small answers about segments. Words
//! only, as atomics.

use super::PoolError;
use super::layout::INLINE_BYTES;
use super::shared::Shared;
use std::sync::Mutex;
use std::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release, SeqCst};

/// An operation of a rank that waits: the number that travels in its request. The generation in it keeps a late answer
/// from finishing a later operation in the same slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WaitId(pub u32);

/// How far the operation is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitStatus {
    /// So many parts are not finished.
    Pending(u32),
    /// All parts are; what the agent wrote before finishing them is visible.
    Done,
    /// All parts are finished, at least one in failure; the first failure is kept.
    Failed {
        /// What went wrong: the caller's and the agent's own numbering, never 0.
        code: u32,
        /// More about it.
        detail: u32,
    },
}

/// What finishing a part led to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Completed {
    /// Other parts are not finished yet.
    Partly,
    /// That was the last one.
    Entirely {
        /// The rank sleeps (or is about to) and must be woken.
        wake: bool,
    },
    /// No such operation waits: a late or wrong answer. Nothing was changed.
    Stale,
}

const STATUS: usize = 0;
const ERROR: usize = 1;
const INLINE: usize = 2;

const PARTS: u64 = u32::MAX as u64;
const FAILED: u64 = 1 << 32;
const SLEEPING: u64 = 1 << 33;
const GENERATION_SHIFT: u32 = 48;

impl WaitId {
    fn new(index: u32, generation: u16) -> Self {
        WaitId(index | u32::from(generation) << 16)
    }

    /// The number of the slot in which it waits.
    pub(crate) fn slot(self) -> u32 {
        self.0 & 0xffff
    }

    fn generation(self) -> u64 {
        u64::from(self.0 >> 16)
    }
}

/// The slots of one rank that are not in use; private to its process.
pub(super) struct WaitSlots {
    local_rank: u32,
    state: Mutex<Free>,
}

struct Free {
    free: Vec<(u32, u16)>,
    /// Given up while parts were pending: usable again when these are finished.
    abandoned: Vec<WaitId>,
}

impl WaitSlots {
    pub fn new(shared: &Shared, local_rank: u32) -> Self {
        let free = (0..shared.layout.spec.wait_slots_per_rank).rev().map(|index| (index, 0)).collect();
        Self { local_rank, state: Mutex::new(Free { free, abandoned: Vec::new() }) }
    }

    pub fn begin(&self, shared: &Shared, parts: u32) -> Option<WaitId> {
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if state.free.is_empty() {
            let Free { free, abandoned } = &mut *state;
            abandoned.retain(|&id| {
                let pending = matches!(status(shared, self.local_rank, id), WaitStatus::Pending(_));
                if !pending {
                    free.push((id.slot(), id.generation() as u16));
                }
                pending
            });
        }
        let (index, generation) = state.free.pop()?;
        drop(state);
        let id = WaitId::new(index, generation.wrapping_add(1));
        let word = |word| shared.wait_word(self.local_rank, index, word).expect("own slots are in range");
        word(ERROR).store(0, Relaxed);
        word(STATUS).store(id.generation() << GENERATION_SHIFT | u64::from(parts), Release);
        Some(id)
    }

    pub fn end(&self, shared: &Shared, id: WaitId) {
        let pending = matches!(status(shared, self.local_rank, id), WaitStatus::Pending(_));
        let mut state = self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        if pending {
            state.abandoned.push(id);
        } else {
            state.free.push((id.slot(), id.generation() as u16));
        }
    }
}

/// Adds parts to an operation of the calling rank.
pub(super) fn add_parts(shared: &Shared, local_rank: u32, id: WaitId, parts: u32) {
    if let Ok(word) = shared.wait_word(local_rank, id.slot(), STATUS) {
        word.fetch_add(u64::from(parts), Relaxed);
    }
}

pub(super) fn take_back_parts(shared: &Shared, local_rank: u32, id: WaitId, parts: u32) {
    if let Ok(word) = shared.wait_word(local_rank, id.slot(), STATUS) {
        word.fetch_sub(u64::from(parts), Relaxed);
    }
}

pub(super) fn status(shared: &Shared, local_rank: u32, id: WaitId) -> WaitStatus {
    let Ok(word) = shared.wait_word(local_rank, id.slot(), STATUS) else { return WaitStatus::Done };
    let content = word.load(Acquire);
    match (content & PARTS, content & FAILED != 0) {
        (0, false) => WaitStatus::Done,
        (0, true) => {
            let error =
                shared.wait_word(local_rank, id.slot(), ERROR).map(|w| w.load(Relaxed)).unwrap_or(1 << 32);
            WaitStatus::Failed { code: (error >> 32) as u32, detail: error as u32 }
        }
        (parts, _) => WaitStatus::Pending(parts as u32),
    }
}

/// Announces that the rank is about to sleep. False when there is nothing left to wait for.
pub(super) fn prepare_sleep(shared: &Shared, local_rank: u32, id: WaitId) -> bool {
    let Ok(word) = shared.wait_word(local_rank, id.slot(), STATUS) else { return false };
    word.fetch_or(SLEEPING, SeqCst) & PARTS != 0
}

pub(super) fn cancel_sleep(shared: &Shared, local_rank: u32, id: WaitId) {
    if let Ok(word) = shared.wait_word(local_rank, id.slot(), STATUS) {
        word.fetch_and(!SLEEPING, Relaxed);
    }
}

/// Makes one pending part into several, each to be finished by itself. Nothing for an operation that does not wait.
pub(super) fn split_part(shared: &Shared, local_rank: u32, id: WaitId, into: u32) -> Result<(), PoolError> {
    let word = shared.wait_word(local_rank, id.slot(), STATUS)?;
    let content = word.load(Acquire);
    // The part is pending until the agent, who calls this, finishes it: the slot cannot change hands meanwhile.
    if content >> GENERATION_SHIFT == id.generation() && content & PARTS != 0 {
        word.fetch_add(u64::from(into.saturating_sub(1)), Relaxed);
    }
    Ok(())
}

/// Finishes `parts` parts; with an error if one is given.
pub(super) fn complete(
    shared: &Shared,
    local_rank: u32,
    id: WaitId,
    parts: u32,
    error: Option<(u32, u32)>,
) -> Result<Completed, PoolError> {
    let word = shared.wait_word(local_rank, id.slot(), STATUS)?;
    let mut content = word.load(Acquire);
    if content >> GENERATION_SHIFT != id.generation() || content & PARTS < u64::from(parts) {
        return Ok(Completed::Stale);
    }
    if let Some((code, detail)) = error {
        let first = u64::from(code.max(1)) << 32 | u64::from(detail);
        let _ = shared.wait_word(local_rank, id.slot(), ERROR)?.compare_exchange(0, first, AcqRel, Acquire);
    }
    loop {
        let failed = if error.is_some() { FAILED } else { 0 };
        let next = (content - u64::from(parts)) | failed;
        match word.compare_exchange_weak(content, next, SeqCst, Acquire) {
            Ok(_) if next & PARTS != 0 => return Ok(Completed::Partly),
            Ok(_) => return Ok(Completed::Entirely { wake: next & SLEEPING != 0 }),
            // The rank adds parts, or changes its sleeping flag; neither makes the answer stale.
            Err(now) => content = now,
        }
    }
}

/// Puts a small answer into the slot; before the part is finished.
pub(super) fn answer(shared: &Shared, local_rank: u32, id: WaitId, bytes: &[u8]) -> Result<(), PoolError> {
    if bytes.len() > INLINE_BYTES {
        let (value, limit) = (bytes.len() as u64, INLINE_BYTES as u64 + 1);
        return Err(PoolError::OutOfRange { what: "length of an inline answer", value, limit });
    }
    for (index, chunk) in bytes.chunks(8).enumerate() {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        shared.wait_word(local_rank, id.slot(), INLINE + index)?.store(u64::from_ne_bytes(word), Relaxed);
    }
    Ok(())
}

/// Reads a small answer; after the operation is done. At most [`INLINE_BYTES`] bytes are filled.
pub(super) fn read_answer(shared: &Shared, local_rank: u32, id: WaitId, to: &mut [u8]) {
    for (index, chunk) in to.chunks_mut(8).take(INLINE_BYTES / 8).enumerate() {
        if let Ok(word) = shared.wait_word(local_rank, id.slot(), INLINE + index) {
            chunk.copy_from_slice(&word.load(Relaxed).to_ne_bytes()[..chunk.len()]);
        }
    }
}
