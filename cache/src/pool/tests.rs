//! The two views against each other, in one process; single threads here, real threads in `tests/pool_threads.rs`.

use super::*;
use crate::page::PageIndex;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use vgas_nvm::StoredPage;
use vgas_shm::Mapping;

struct Pool {
    spec: PoolSpec,
    table: Arc<Mapping>,
    frames: Arc<Mapping>,
    agent: PoolAgent,
}

fn spec() -> PoolSpec {
    PoolSpec {
        page_bytes: 4096,
        frames: 8,
        page_bytes_max: 4 << 20,
        segment_pages_max: vec![16, 16],
        local_ranks: 2,
        wait_slots_per_rank: 3,
        hazard_slots_per_rank: 2,
        mapped_pages_per_rank: 0,
        agent_threads: 1,
        block_pages: 512,
    }
}

fn small() -> PageSize {
    PageSize::of_bytes(4096).unwrap()
}

fn pool() -> Pool {
    let spec = spec();
    let layout = TableLayout::new(&spec).unwrap();
    let table = Mapping::anonymous("table", layout.table_bytes()).unwrap();
    let frames = Mapping::anonymous("frames", layout.frames_bytes()).unwrap();
    let agent = PoolAgent::create(&spec, table.clone(), frames.clone(), Fences::Detect).unwrap();
    Pool { spec, table, frames, agent }
}

impl Pool {
    fn client(&self, local_rank: u32) -> PoolClient {
        PoolClient::attach(&self.spec, self.table.clone(), self.frames.clone(), local_rank).unwrap()
    }

    fn install(&self, page: u64, state: PageState, ahead: bool) -> FrameId {
        let frame = self.agent.take_frame(small()).unwrap();
        self.agent.frame_span(frame).unwrap().write(&[page as u8; 4096]);
        self.agent.install(PageIndex(page), frame, state, ahead).unwrap();
        frame
    }

    fn revoke(&mut self, page: u64, intent: Intent) -> Option<Outcome> {
        self.agent.revoke(PageIndex(page), intent).unwrap();
        self.poll().map(|(found, outcome)| {
            assert_eq!(found, page);
            outcome
        })
    }

    fn poll(&mut self) -> Option<(u64, Outcome)> {
        let mut done = Vec::new();
        self.agent.poll_revocations(&mut done).unwrap();
        assert!(done.len() <= 1);
        done.pop().map(|(page, outcome)| (page.0, outcome))
    }
}

fn get(client: &PoolClient, page: u64, in_page: u32) -> (Attempt, u8) {
    let mut byte = 0xee;
    // SAFETY: one private byte.
    let attempt = unsafe { client.try_get(client.page(PageIndex(page)), in_page, &raw mut byte, 1) };
    (attempt, byte)
}

fn put(client: &PoolClient, page: u64, in_page: u32, byte: u8) -> Attempt {
    // SAFETY: one private byte.
    unsafe { client.try_put(client.page(PageIndex(page)), in_page, &raw const byte, 1) }
}

#[test]
fn rights_decide_what_hits() {
    use PageState::*;
    let pool = pool();
    let client = pool.client(0);
    for (page, state, reads, writes) in [
        (0, Shared, true, false),
        (1, Owned, true, false),
        (2, Exclusive, true, true),
        (3, Modified, true, true),
        (4, Invalid, false, false),
        (5, InPlace, false, false),
    ] {
        match state {
            Invalid => {}
            InPlace => pool.agent.mark_in_place(PageIndex(page), true).unwrap(),
            state => drop(pool.install(page, state, false)),
        }
        let entry = pool.agent.entry(PageIndex(page)).unwrap();
        assert_eq!(entry.state(), state);
        let expected = if reads { (Attempt::Hit, page as u8) } else { (Attempt::Miss(entry), 0xee) };
        assert_eq!(get(&client, page, 4095), expected);
        let expected = if writes { Attempt::Hit } else { Attempt::Miss(entry) };
        assert_eq!(put(&client, page, 4095, 99), expected);
        if writes {
            assert_eq!(
                pool.agent.entry(PageIndex(page)).unwrap().state(),
                Modified,
                "the first write is seen by the agent"
            );
            assert_eq!(get(&client, page, 4095), (Attempt::Hit, 99));
        }
    }
    let counters = client.counters();
    assert_eq!((counters.get(Counter::GetHits), counters.get(Counter::PutHits)), (6, 2));
    assert_eq!(pool.agent.rank_counters(1).unwrap().get(Counter::GetHits), 0);
}

#[test]
fn ranges_outside_of_a_page_miss_without_a_trace() {
    let pool = pool();
    let client = pool.client(0);
    pool.install(31, PageState::Modified, false);
    let mut bytes = [0; 16];
    let mut attempt = |page, in_page, length| {
        // SAFETY: 16 private bytes are enough for every length used.
        unsafe { client.try_get(client.page(PageIndex(page)), in_page, bytes.as_mut_ptr(), length) }
    };
    assert_eq!(attempt(31, 4088, 8), Attempt::Hit);
    let outside = Attempt::Miss(Entry::INVALID);
    let behind = client.layout().pages();
    assert_eq!(attempt(31, 4089, 8), outside);
    assert_eq!(attempt(31, u32::MAX, 8), outside);
    assert_eq!(attempt(behind, 0, 8), outside);
    assert_eq!(attempt(u64::MAX, 0, 8), outside);
    assert_eq!(client.counters().get(Counter::GetHits), 1);
}

#[test]
fn a_broken_entry_is_a_miss_not_a_wild_access() {
    let pool = pool();
    let client = pool.client(0);
    let layout = client.layout().clone();
    let word = pool.table.atomic_u64(layout.entries as usize);
    word.store(Entry::new(PageState::Modified, FrameId(8)).word(), Relaxed);
    assert!(matches!(get(&client, 0, 0).0, Attempt::Miss(_)), "frame 8 of 8");
    assert!(matches!(put(&client, 0, 0, 1), Attempt::Miss(_)));
    assert!(client.try_pin(client.page(PageIndex(0)), PinMode::Read).is_none());
    word.store(Entry::new(PageState::Modified, FrameId(7)).word(), Relaxed);
    assert_eq!(put(&client, 0, 0, 1), Attempt::Hit, "frame 7 of 8");
    word.store(u64::MAX, Relaxed);
    assert!(matches!(get(&client, 0, 0).0, Attempt::Miss(_)));
}

#[test]
fn the_first_user_of_a_page_read_ahead_is_told_so_once() {
    let pool = pool();
    let client = pool.client(0);
    pool.install(3, PageState::Exclusive, true);
    assert_eq!(put(&client, 3, 0, 7), Attempt::HitNotify);
    assert_eq!(get(&client, 3, 0), (Attempt::Hit, 7));
    let entry = pool.agent.entry(PageIndex(3)).unwrap();
    assert!(entry.state() == PageState::Modified && !entry.ahead());
}

#[test]
fn the_frame_freed_last_is_handed_out_first_and_none_twice() {
    let mut pool = pool();
    let all: Vec<FrameId> = std::iter::from_fn(|| pool.agent.take_frame(small())).collect();
    assert_eq!(all, (0..8).map(FrameId).collect::<Vec<_>>());
    assert_eq!((pool.agent.free_frames(small()), pool.agent.take_frame(small())), (0, None));
    for frame in [5, 1, 7] {
        pool.agent.release(FrameId(frame)).unwrap();
    }
    let client = pool.client(0);
    assert_eq!(client.stage(small()).map(|staged| staged.into_id()), Some(FrameId(7)));
    assert_eq!(pool.agent.take_frame(small()), Some(FrameId(1)));
    // Dropped, a staged frame is free again.
    assert_eq!(client.stage(small()).map(|staged| staged.id()), Some(FrameId(5)));
    assert_eq!(pool.agent.take_frame(small()), Some(FrameId(5)));
    assert_eq!((pool.agent.free_frames(small()), pool.agent.take_frame(small())), (0, None));
}

#[test]
fn several_frames_are_taken_as_one_after_the_other_and_no_more_than_there_are() {
    let mut pool = pool();
    let mut taken = Vec::new();
    pool.agent.take_frames(small(), 3, &mut taken);
    assert_eq!((&taken[..], pool.agent.free_frames(small())), (&[0, 1, 2].map(FrameId)[..], 5));
    pool.agent.release(FrameId(1)).unwrap();
    pool.agent.take_frames(small(), 9, &mut taken);
    assert_eq!(taken[3..], [1, 3, 4, 5, 6, 7].map(FrameId));
    pool.agent.take_frames(small(), 1, &mut taken);
    assert_eq!((taken.len(), pool.agent.free_frames(small()), pool.agent.take_frame(small())), (9, 0, None));
}

#[test]
fn free_frames_change_hands_between_threads_and_none_is_lost() {
    let pool = pool();
    let client = pool.client(0);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..20_000 {
                    // Held by this thread alone: a frame that two of them had would be free twice in the end.
                    let held = [client.stage(small()), client.stage(small())];
                    let [a, b] = held.each_ref().map(|staged| staged.as_ref().map(|staged| staged.id()));
                    assert!(a.is_none() || a != b);
                }
            });
        }
    });
    let all: std::collections::BTreeSet<_> = std::iter::from_fn(|| pool.agent.take_frame(small())).collect();
    assert_eq!((all.len(), pool.agent.free_frames(small())), (8, 0));
}

#[test]
fn a_revoked_page_is_held_until_the_agent_has_decided() {
    let mut pool = pool();
    let client = pool.client(0);
    let frame = pool.install(1, PageState::Modified, false);
    assert_eq!(put(&client, 1, 0, 5), Attempt::Hit);
    assert_eq!(pool.revoke(1, Intent::Revoke), Some(Outcome::Quiet));
    assert!(matches!(get(&client, 1, 0).0, Attempt::Miss(entry) if entry.held()));
    pool.agent.settle(PageIndex(1), PageState::Owned).unwrap();
    assert_eq!(get(&client, 1, 0), (Attempt::Hit, 5));
    assert!(matches!(put(&client, 1, 0, 6), Attempt::Miss(entry) if entry.state() == PageState::Owned));
    assert_eq!(pool.revoke(1, Intent::Evict), Some(Outcome::Quiet));
    assert_eq!(pool.agent.detach(PageIndex(1)).unwrap(), Some(frame));
    assert_eq!(pool.agent.frame_use(frame).unwrap(), FrameUse::Agent);
    assert_eq!(get(&client, 1, 0).0, Attempt::Miss(Entry::INVALID));
    pool.agent.release(frame).unwrap();
    assert_eq!(pool.agent.free_frames(small()), 8);
    assert!(pool.agent.release(frame).is_err(), "a free frame is not the agent's to free again");
    assert!(!pool.agent.revoking());
}

#[test]
fn a_page_in_use_is_not_quiet_and_nobody_waits_for_it() {
    let mut pool = pool();
    let client = pool.client(1);
    pool.install(6, PageState::Shared, false);
    assert_eq!(get(&client, 6, 0).0, Attempt::Hit);
    // As a thread that stands still in the middle of its copy: this thread's slot is the second of rank 1.
    let table = pool.table.clone();
    let slot = table.atomic_u64(client.shared.slot_offset(1, 1));
    slot.store(7, Relaxed);
    assert_eq!(pool.revoke(6, Intent::Revoke), None);
    assert_eq!(get(&client, 6, 0).0, Attempt::Miss(Entry::INVALID), "an interrupted use is not overwritten");
    assert_eq!(pool.poll(), None);
    slot.store(0, Relaxed);
    assert_eq!(pool.poll(), Some((6, Outcome::Quiet)));
}

#[test]
fn pins_keep_what_they_promise() {
    let mut pool = pool();
    let client = pool.client(0);
    let frame = pool.install(2, PageState::Exclusive, false);
    let read = client.try_pin(client.page(PageIndex(2)), PinMode::Read).unwrap();
    assert_eq!(pool.agent.pins(frame).unwrap(), Pins { readers: 1, writers: 0 });
    assert!(!pool.agent.evictable(frame, 0));
    assert_eq!(pool.revoke(2, Intent::Evict), Some(Outcome::Pinned));
    assert_eq!(get(&client, 2, 0).0, Attempt::Hit, "HOLD was taken back");

    let write = client.try_pin(client.page(PageIndex(2)), PinMode::Write).unwrap();
    assert_eq!(
        pool.agent.entry(PageIndex(2)).unwrap().state(),
        PageState::Modified,
        "it may be written from now on"
    );
    assert_eq!(pool.revoke(2, Intent::Revoke), None, "the write pin keeps the page");
    assert_eq!(put(&client, 2, 0, 42), Attempt::Hit, "and its node goes on using it");
    drop(write);
    assert!(read.is_current());
    assert_eq!(pool.poll(), Some((2, Outcome::Quiet)), "the read pin does not");
    assert!(!read.is_current());

    assert_eq!(pool.agent.detach(PageIndex(2)).unwrap(), Some(frame));
    pool.agent.release(frame).unwrap();
    assert_eq!(pool.agent.free_frames(small()), 7, "its bytes stay as they were until the unpin");
    let mut byte = 0;
    // SAFETY: one private byte.
    assert!(!unsafe { read.try_get(0, &raw mut byte, 1) });
    assert_eq!(byte, 42);
    assert_eq!(pool.agent.reclaim(), 1);
    drop(read);
    assert_eq!(pool.agent.reclaim(), 0);
    assert_eq!(pool.agent.free_frames(small()), 8);
}

#[test]
fn evicting_and_then_revoking_ends_once_as_a_revocation() {
    let mut pool = pool();
    let client = pool.client(0);
    pool.install(2, PageState::Shared, false);
    let pin = client.try_pin(client.page(PageIndex(2)), PinMode::Read).unwrap();
    pool.agent.revoke(PageIndex(2), Intent::Evict).unwrap();
    assert_eq!(pool.revoke(2, Intent::Revoke), Some(Outcome::Quiet));
    assert_eq!(pool.poll(), None);
    drop(pin);
}

/// Goal: pages are left in the order in which they were asked for, also around one that is not: who reads on waits for the first.
#[test]
fn pages_are_left_in_the_order_in_which_they_were_revoked() {
    let mut pool = pool();
    for page in 0..6 {
        pool.install(page, PageState::Modified, false);
    }
    let client = pool.client(0);
    let pin = client.try_pin(client.page(PageIndex(2)), PinMode::Write).unwrap();
    (0..6).for_each(|page| pool.agent.revoke(PageIndex(page), Intent::Revoke).unwrap());
    let mut done = Vec::new();
    pool.agent.poll_revocations(&mut done).unwrap();
    assert_eq!(done, [0, 1, 3, 4, 5].map(|page| (PageIndex(page), Outcome::Quiet)));
    drop(pin);
    done.clear();
    pool.agent.poll_revocations(&mut done).unwrap();
    assert_eq!(done, [(PageIndex(2), Outcome::Quiet)]);
    assert!(!pool.agent.revoking());
}

#[test]
fn frames_change_hands_only_with_their_owner() {
    let pool = pool();
    let (first, second) = (pool.client(0), pool.client(1));
    let mut staged = first.stage(small()).unwrap();
    // SAFETY: four private bytes.
    unsafe { staged.write(4092, [1u8, 2, 3, 4].as_ptr(), 4) };
    let frame = staged.into_id();
    assert!(pool.agent.adopt(frame, 1).is_err(), "rank 1 does not have it");
    pool.agent.adopt(frame, 0).unwrap();
    assert!(pool.agent.adopt(frame, 0).is_err(), "twice");
    assert!(matches!(pool.agent.adopt(FrameId(8), 0), Err(PoolError::OutOfRange { limit: 8, .. })));
    pool.agent.install(PageIndex(9), frame, PageState::Modified, false).unwrap();
    assert_eq!(get(&second, 9, 4094), (Attempt::Hit, 3));
    drop(second.stage(small()).unwrap());
    assert_eq!(pool.agent.free_frames(small()), 7);
    let all: Vec<_> = std::iter::from_fn(|| second.stage(small())).collect();
    assert_eq!(all.len(), 7);
    assert!(pool.agent.take_frame(small()).is_none());
}

#[test]
fn reservations_end_with_the_copy_or_the_deadline() {
    let pool = pool();
    let client = pool.client(0);
    let frame = pool.install(4, PageState::Shared, false);
    pool.agent.reserve(frame, 100).unwrap();
    assert!(pool.agent.reserved(frame, 99).unwrap() && !pool.agent.evictable(frame, 99));
    assert!(!pool.agent.reserved(frame, 100).unwrap());
    client.taken(PageIndex(4));
    client.taken(PageIndex(4));
    assert!(!pool.agent.reserved(frame, 0).unwrap());
    pool.agent.reserve(frame, 50).unwrap();
    assert!(pool.agent.reserved(frame, 49).unwrap(), "one taken too often does not count against the next");
}

#[test]
fn uses_leave_the_clock_in_the_frame() {
    let pool = pool();
    let client = pool.client(0);
    let frame = pool.install(4, PageState::Shared, false);
    let before = pool.agent.stamp(frame).unwrap();
    assert_eq!(get(&client, 4, 0).0, Attempt::Hit);
    assert_eq!(pool.agent.stamp(frame).unwrap(), before, "the read that the page was fetched for");
    pool.agent.tick();
    assert_eq!(get(&client, 4, 0).0, Attempt::Hit);
    assert_ne!(pool.agent.stamp(frame).unwrap(), before);
}

#[test]
fn waits_count_down_fail_and_are_not_confused() {
    let pool = pool();
    let client = pool.client(1);
    let agent = &pool.agent;
    let id = client.begin_wait(2).unwrap();
    assert_eq!(client.wait_status(id), WaitStatus::Pending(2));
    client.add_parts(id, 1);
    assert_eq!(agent.complete(1, id, 2).unwrap(), Completed::Partly);
    assert!(client.prepare_sleep(id));
    agent.answer(1, id, b"sixty-four bytes at most").unwrap();
    assert_eq!(agent.complete(1, id, 1).unwrap(), Completed::Entirely { wake: true });
    assert!(!client.prepare_sleep(id), "nothing to sleep for");
    let mut answer = [0; 24];
    client.read_answer(id, &mut answer);
    assert_eq!(&answer, b"sixty-four bytes at most");
    assert_eq!(client.wait_status(id), WaitStatus::Done);
    assert_eq!(agent.complete(1, id, 1).unwrap(), Completed::Stale, "nothing is pending");
    client.end_wait(id);

    let next = client.begin_wait(2).unwrap();
    assert_ne!(next, id);
    assert_eq!(agent.complete(1, id, 1).unwrap(), Completed::Stale, "an answer to the operation before");
    assert_eq!(agent.fail(1, next, 1, 7, 70).unwrap(), Completed::Partly);
    assert_eq!(agent.fail(1, next, 1, 8, 80).unwrap(), Completed::Entirely { wake: false });
    assert_eq!(client.wait_status(next), WaitStatus::Failed { code: 7, detail: 70 });
    client.end_wait(next);

    assert!(agent.complete(2, id, 1).is_err(), "rank 2 of 2");
    assert!(agent.complete(1, WaitId(3), 1).is_err(), "slot 3 of 3");
    assert!(agent.answer(1, id, &[0; 65]).is_err());
}

#[test]
fn slots_given_up_early_come_back_when_their_answers_have_come() {
    let pool = pool();
    let client = pool.client(0);
    let ids: Vec<_> = (0..3).map(|_| client.begin_wait(1).unwrap()).collect();
    ids.iter().for_each(|&id| client.end_wait(id));
    assert_eq!(client.begin_wait(1), None, "all are waited for by late answers");
    pool.agent.complete(0, ids[1], 1).unwrap();
    let id = client.begin_wait(1).unwrap();
    assert!(!ids.contains(&id));
    assert_eq!(client.begin_wait(1), None);
}

#[test]
fn attaching_checks_whose_table_it_is() {
    let pool = pool();
    let attach = |spec: &PoolSpec, rank| {
        PoolClient::attach(spec, pool.table.clone(), pool.frames.clone(), rank).map(drop)
    };
    assert!(matches!(attach(&pool.spec, 2), Err(PoolError::OutOfRange { .. })));
    attach(&pool.spec, 1).unwrap();
    let client = pool.client(1);
    assert!(matches!(attach(&pool.spec, 1), Err(PoolError::Mismatch(_))), "attached already");
    drop(client);
    attach(&pool.spec, 1).unwrap();
    let other = PoolSpec { segment_pages_max: vec![15, 17], ..pool.spec.clone() };
    assert!(matches!(attach(&other, 1), Err(PoolError::Mismatch(_))), "other segments");
    let larger = PoolSpec { frames: 9, ..pool.spec.clone() };
    assert!(matches!(attach(&larger, 1), Err(PoolError::Mismatch(_))), "frames that are not mapped");
    let empty = Mapping::anonymous("empty", pool.table.bytes() as u64).unwrap();
    let result = PoolClient::attach(&pool.spec, empty, pool.frames.clone(), 0);
    assert!(matches!(result, Err(PoolError::Mismatch(_))), "nobody made it");
}

#[test]
fn more_threads_than_slots_take_turns() {
    // Two slots a rank: one of its own for the first thread, the other is shared by all the rest.
    let pool = pool();
    let client = pool.client(0);
    pool.install(1, PageState::Modified, false);
    let barrier = std::sync::Barrier::new(4);
    let work = || {
        assert_eq!(get(&client, 1, 0), (Attempt::Hit, 1));
        barrier.wait();
        for _ in 0..1000 {
            assert_eq!(get(&client, 1, 0), (Attempt::Hit, 1));
        }
        // Who ends gives its slot away; not before all have counted.
        barrier.wait();
    };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(work)).collect();
        // The end of the scope alone does not wait for what threads do last: giving their slots back.
        threads.into_iter().for_each(|thread| thread.join().unwrap());
    });
    let counters = client.counters();
    assert_eq!(counters.get(Counter::GetHits), 4 * 1001);
    assert_eq!(counters.get(Counter::SlowPaths), 3 * 1001);
    // The first thread has ended, its slot is free again.
    assert_eq!(get(&client, 1, 0), (Attempt::Hit, 1));
    assert_eq!(client.counters().get(Counter::SlowPaths), 3 * 1001);
}

fn state(pool: &Pool, page: u64) -> PageState {
    pool.agent.entry(PageIndex(page)).unwrap().state()
}

/// Goal: of all who want a stored page one gets it; the agent hears of the end of a claim exactly if it has waited for it.
#[test]
fn a_page_is_claimed_once_and_shown_or_given_back() {
    let stored = StoredPage::At { place: vgas_nvm::Place::B, checksum: Some(7) };
    let pool = pool();
    let (one, other) = (pool.client(0), pool.client(1));
    assert!(one.claim(PageIndex(3)).is_none(), "it was not published");
    pool.agent.publish(PageIndex(3), stored).unwrap();
    assert_eq!(get(&one, 3, 0).0, Attempt::Miss(Entry::of_stored(stored)));
    let free = pool.agent.free_frames(small());
    let claim = one.claim(PageIndex(3)).unwrap();
    assert_eq!((claim.page, claim.stored), (PageIndex(3), stored));
    assert!(one.claim(PageIndex(3)).is_none() && other.claim(PageIndex(3)).is_none());
    assert_eq!(pool.agent.free_frames(small()), free - 1, "whoever comes too late keeps no frame");

    // Nobody waits: shown without a word. The agent finds the frame, once.
    one.claimed_span(&claim).write(&[5; 4096]);
    assert!(!one.show(claim, PageState::Exclusive, true));
    assert_eq!((get(&other, 3, 9), state(&pool, 3)), ((Attempt::HitNotify, 5), PageState::Exclusive));
    let mut filled = Vec::new();
    pool.agent.take_filled(&mut filled).unwrap();
    let frame = pool.agent.entry(PageIndex(3)).unwrap().frame();
    assert_eq!(filled, [(frame, PageIndex(3))]);
    assert!(!pool.agent.has_filled());

    // The agent comes while a rank has it: it waits, and is rung.
    pool.agent.publish(PageIndex(4), StoredPage::Zeros).unwrap();
    let claim = one.claim(PageIndex(4)).unwrap();
    assert!(!pool.agent.withdraw(PageIndex(4)).unwrap() && pool.agent.is_claimed(PageIndex(4)).unwrap());
    assert!(one.show(claim, PageState::Modified, false), "the agent waits");
    assert_eq!(state(&pool, 4), PageState::Modified);
    assert!(!pool.agent.entry(PageIndex(4)).unwrap().held());

    // The agent comes first: the page is its own, and no rank gets it.
    pool.agent.publish(PageIndex(5), stored).unwrap();
    assert!(pool.agent.withdraw(PageIndex(5)).unwrap());
    assert!(one.claim(PageIndex(5)).is_none());

    // Given back, it can be claimed again; not what could not be read.
    pool.agent.publish(PageIndex(6), stored).unwrap();
    let free = pool.agent.free_frames(small());
    assert!(!one.give_back(one.claim(PageIndex(6)).unwrap(), false));
    let claim = other.claim(PageIndex(6)).unwrap();
    assert!(!pool.agent.withdraw(PageIndex(6)).unwrap());
    assert!(other.give_back(claim, true), "the agent waits");
    assert_eq!((state(&pool, 6), pool.agent.free_frames(small())), (PageState::Invalid, free));
}

/// Goal: neighbours are claimed together as far as one operation reads them and frames are free.
#[test]
fn runs_of_pages_are_claimed_together() {
    let at = |place| StoredPage::At { place, checksum: None };
    let pool = pool();
    let client = pool.client(0);
    for page in 0..8 {
        let stored = if page < 3 { at(vgas_nvm::Place::A) } else { at(vgas_nvm::Place::B) };
        pool.agent.publish(PageIndex(page), stored).unwrap();
    }
    let first = client.claim_run(PageIndex(0), 8);
    assert_eq!(first.iter().map(|claim| claim.page.0).collect::<Vec<_>>(), [0, 1, 2]);
    assert_eq!(pool.agent.free_frames(small()), 5, "what was not needed is free again");
    assert!(client.claim_run(PageIndex(0), 2).is_empty());
    let rest = client.claim_run(PageIndex(3), 8);
    assert_eq!(rest.iter().map(|claim| claim.page.0).collect::<Vec<_>>(), [3, 4, 5, 6, 7]);
    assert_eq!(pool.agent.free_frames(small()), 0);
    for claim in first.into_iter().chain(rest) {
        assert!(!client.give_back(claim, false));
    }
    assert_eq!(pool.agent.free_frames(small()), 8);
}

/// Goal: an owner keeps a page without asking exactly while the agent knows nothing of it; the agent learns whether it does.
#[test]
fn an_owner_maps_what_the_agent_knows_nothing_of() {
    let mut pool = pool();
    let client = pool.client(0);
    let shown = |page: PageIndex| {
        pool.agent.publish(page, StoredPage::Zeros).unwrap();
        assert_eq!(client.map_own(page), Own::Stored);
        assert!(!client.show(client.claim(page).unwrap(), PageState::Exclusive, false));
        pool.agent.entry(page).unwrap().frame()
    };
    let (first, second) = (shown(PageIndex(0)), shown(PageIndex(1)));
    assert_eq!(client.map_own(PageIndex(0)), Own::Mapped(first));
    assert_eq!(client.map_own(PageIndex(0)), Own::Agents, "once");
    assert!(!pool.agent.evictable(first, 0), "it is pinned");
    assert_eq!(pool.agent.know(PageIndex(0)).unwrap(), Some(first));
    assert!(!client.unmap_own(PageIndex(0)), "the agent knows, and must be told");
    assert_eq!(client.map_own(PageIndex(0)), Own::Agents);
    pool.agent.unkeep_mapped(first).unwrap();

    assert_eq!(pool.agent.know(PageIndex(1)).unwrap(), None, "it was not mapped");
    assert_eq!(client.map_own(PageIndex(1)), Own::Agents);
    pool.agent.know_nothing(second).unwrap();
    assert_eq!(client.map_own(PageIndex(1)), Own::Mapped(second));
    assert!(client.unmap_own(PageIndex(1)));
    assert_eq!(pool.revoke(1, Intent::Evict), Some(Outcome::Quiet), "nothing keeps it any more");
    assert_eq!(client.map_own(PageIndex(1)), Own::Agents, "it is held");
}

/// Goal: a frame that is filled again before the agent has looked is told once, with what it holds then.
#[test]
fn frames_that_ranks_fill_are_told_once() {
    let mut pool = pool();
    let client = pool.client(0);
    let mut frames = Vec::new();
    for page in [0, 1] {
        pool.agent.publish(PageIndex(page), StoredPage::Zeros).unwrap();
        assert!(!client.show(client.claim(PageIndex(page)).unwrap(), PageState::Exclusive, false));
        frames.push(pool.agent.entry(PageIndex(page)).unwrap().frame());
        if page == 0 {
            // Taken away before anybody has heard of it; the frame freed last is the next one.
            let frame = pool.agent.detach(PageIndex(page)).unwrap().unwrap();
            pool.agent.release(frame).unwrap();
        }
    }
    assert_eq!(frames[0], frames[1]);
    let mut filled = Vec::new();
    pool.agent.take_filled(&mut filled).unwrap();
    assert_eq!(filled, [(frames[1], PageIndex(1))]);
}
