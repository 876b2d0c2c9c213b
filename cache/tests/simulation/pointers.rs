//! What owners do to their own segments by plain loads and stores: mapping pages, using their frames, giving them back.
//! By hand: the same words in the table as a fault writes, without addresses and signals.

use super::Finding;
use super::cluster::Member;
use super::model::{Model, Place};
use super::plan::{PAGE, Plan};
use rand::RngExt;
use rand_chacha::ChaCha8Rng;
use vgas_cache::page::{PageInSegment, PageIndex};
use vgas_cache::pool::{ClaimedSlot, Fault, FaultSlots, FrameId, MAPPED_PAGES_MIN, Own, Returned};
use vgas_cache::{CacheError, Failure};
use vgas_rma::address::Rank;
use vgas_shm::Change;

/// A page that a rank has mapped.
struct Mapped {
    page: u64,
    frame: FrameId,
    write: bool,
}

/// A fault in flight.
struct Posted {
    slot: ClaimedSlot,
    /// The page it wants, and whether to write it, if it does not only give back.
    wanted: Option<(u64, bool)>,
    /// It gives back everything.
    is_all: bool,
}

/// One rank's pointers.
struct Owner {
    slots: FaultSlots,
    /// The number of its segment's first page.
    first_page: PageIndex,
    mapped: Vec<Mapped>,
    fault: Option<Posted>,
    /// Everything has been given back.
    ended: bool,
}

/// All ranks' pointers.
pub struct Pointers {
    owners: Vec<Owner>,
    left: u32,
}

impl Pointers {
    pub fn new(plan: &Plan, members: &[Member]) -> Self {
        let owner = |(rank, member): (usize, &Member)| Owner {
            slots: member.pool.fault_slots(),
            first_page: member.pool.layout().page_index(Rank(rank as u32), 0).unwrap_or(PageIndex(0)),
            mapped: Vec::new(),
            fault: None,
            ended: plan.partitions[rank] == 0,
        };
        Self { owners: members.iter().enumerate().map(owner).collect(), left: plan.operations }
    }

    /// Whether everything has been done and given back.
    pub fn is_over(&self) -> bool {
        self.owners.iter().all(|owner| owner.ended)
    }

    /// A rank does something with its pointers. A page that cannot be had is returned.
    pub fn turn(
        &mut self,
        rank: usize,
        member: &Member,
        model: &mut Model,
        random: &mut ChaCha8Rng,
    ) -> Result<Option<CacheError>, Finding> {
        let owner = &mut self.owners[rank];
        if owner.ended {
            return Ok(None);
        }
        if owner.fault.is_some() {
            return owner.go_on(rank);
        }
        if self.left == 0 {
            for mapped in owner.mapped.drain(..) {
                let _ = member.pool.unmap_own(owner.first_page + mapped.page);
            }
            owner.post(member, None, Returned::All(owner.first_page), false);
        } else if owner.mapped.is_empty() || random.random_range(0..3) == 0 {
            self.left -= 1;
            let page = random.random_range(0..model.segment_bytes(rank as u32) / PAGE as u64);
            if let Some(mapped) = owner.mapped.iter().position(|one| one.page == page) {
                // Hidden for another one, and wanted again before it was given back.
                owner.mapped.swap_remove(mapped);
                let returned = Returned::Page(owner.first_page + page);
                owner.post(member, Some((page, random.random())), returned, random.random());
            } else {
                let full = owner.mapped.len() == MAPPED_PAGES_MIN as usize;
                let returned = if full || (!owner.mapped.is_empty() && random.random()) {
                    let old = owner.mapped.swap_remove(random.random_range(0..owner.mapped.len()));
                    Returned::Page(owner.first_page + old.page)
                } else {
                    Returned::Nothing
                };
                owner.post(member, Some((page, random.random())), returned, random.random());
            }
        } else {
            self.left -= 1;
            let index = random.random_range(0..owner.mapped.len());
            owner.use_page(index, rank, member, model, random)?;
        }
        Ok(None)
    }

    /// For people: what is in flight.
    pub fn describe(&self) -> String {
        let faults = self.owners.iter().enumerate().filter_map(|(rank, owner)| {
            owner.fault.as_ref().map(|posted| format!("rank {rank}: fault of {:?}", posted.wanted))
        });
        faults.collect::<Vec<_>>().join("; ")
    }
}

impl Owner {
    fn post(&mut self, member: &Member, wanted: Option<(u64, bool)>, returned: Returned, by_itself: bool) {
        let returned = match returned {
            Returned::Page(page) if member.pool.unmap_own(page) => Returned::Nothing,
            returned => returned,
        };
        if let Some((page, write)) = wanted
            && by_itself
            && let Own::Mapped(frame) = member.pool.map_own(self.first_page + page)
        {
            if write {
                assert!(member.pool.mark_modified(self.first_page + page), "nobody else has it");
            }
            self.mapped.push(Mapped { page, frame, write });
            if returned == Returned::Nothing {
                return;
            }
            let slot = self.slots.claim().expect("one fault at a time");
            self.slots.post(&slot, Fault { wanted: None, write: false, returned });
            self.fault = Some(Posted { slot, wanted: None, is_all: false });
            return;
        }
        let slot = self.slots.claim().expect("one fault at a time");
        let page = wanted.map(|(page, _)| self.first_page + page);
        self.slots
            .post(&slot, Fault { wanted: page, write: wanted.is_some_and(|(_, write)| write), returned });
        self.fault = Some(Posted { slot, wanted, is_all: matches!(returned, Returned::All(_)) });
    }

    fn go_on(&mut self, rank: usize) -> Result<Option<CacheError>, Finding> {
        let Some(Posted { slot, wanted, is_all }) = self.fault.take() else { return Ok(None) };
        let Some(answer) = self.slots.answer(&slot) else {
            self.fault = Some(Posted { slot, wanted, is_all });
            return Ok(None);
        };
        self.slots.give_back(slot);
        match (wanted, answer) {
            (Some((page, write)), Ok(frame)) => self.mapped.push(Mapped { page, frame, write }),
            (None, Ok(_)) => self.ended = is_all,
            (Some((page, _)), Err(code)) => {
                let reason = Failure::from_code(code);
                return Ok(Some(CacheError::Page {
                    owner: Rank(rank as u32).into(),
                    page: PageInSegment(page),
                    reason,
                    place: String::new(),
                }));
            }
            (None, Err(code)) => {
                return Err(Finding::new("pages cannot be given back", format!("rank {rank}: {code}")));
            }
        }
        Ok(None)
    }

    /// A load or a store.
    fn use_page(
        &mut self,
        index: usize,
        rank: usize,
        member: &Member,
        model: &mut Model,
        random: &mut ChaCha8Rng,
    ) -> Result<(), Finding> {
        let first_page = self.first_page;
        let Mapped { page, frame, write } = &mut self.mapped[index];
        let entry = member.pool.peek(first_page + *page);
        if !entry.state().writable() || entry.frame() != *frame || entry.held() {
            let what = format!("page {page} of rank {rank} in {frame:?} is {entry:?}");
            return Err(Finding::new("a mapped page was taken away", what));
        }
        if model.is_tally(rank as u32, *page) && random.random_range(0..4) == 0 {
            if !*write && !member.pool.mark_modified(first_page + *page) {
                return Err(Finding::new("a mapped page cannot be written", format!("page {page}")));
            }
            *write = true;
            model.begin_addition(rank as u32, *page);
            let was = member.frames.update(frame.0 as usize * PAGE, Change::Add(1u64).into());
            return model.end_addition(rank as u32, *page, was);
        }
        let at = |place: &Place| frame.0 as usize * PAGE + (place.bytes.start % PAGE as u64) as usize;
        match model.draw_store(rank as u32, *page, random).filter(|_| random.random()) {
            Some(place) => {
                if !*write && !member.pool.mark_modified(first_page + *page) {
                    return Err(Finding::new("a mapped page cannot be written", format!("page {page}")));
                }
                let content = model.begin_put(&place);
                member.frames.write(at(&place), &content);
                model.end_put(&place, true);
                *write = true;
                Ok(())
            }
            None => {
                let start = *page * PAGE as u64;
                let place = Place { owner: rank as u32, bytes: start..start + PAGE as u64 };
                let least = model.begin_get(&place);
                let mut content = vec![0; PAGE];
                member.frames.read(at(&place), &mut content);
                model.end_get(&place, &least, &content)
            }
        }
    }
}
