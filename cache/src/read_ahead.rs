//! Which pages to fetch before anybody asks: a pure detector of scans. One in each agent, for what it is asked for,
//! and one in each rank, for what it brings in by itself.
//!
//! A *stream* is a reader that goes through the pages of a segment at a constant step: forwards, backwards, or skipping.
//! It is believed after three operations in a row that go on where the one before ended, or after four pages at another step;
//! others may lie between them, because several readers share a node. Random access practically never looks like that, so it
//! fetches nothing extra.
//!
//! An operation of many pages is one piece of evidence, not many: a tile of a matrix is read from one end to the other, and what
//! lies behind it is another rank's to read. What is left of such an operation will be read, so it is fetched without evidence, up
//! to its end.
//!
//! A believed stream keeps a *window* of pages ahead of its reader. Some of them carry the AHEAD mark, a few to a window:
//! when the reader comes to one, the window is filled up again behind its far end. So the device always has nearly a whole
//! window to work on, instead of going idle between one run and the next. Windows double for as long as they are used and
//! collapse when pages are evicted unused. What this is not: it knows neither which pages are cached nor where; the agent
//! skips those.

#![forbid(unsafe_code)]

use crate::page::PageIndex;
use crate::pool::PageSize;
use std::ops::Range;

/// First window of a stream: long enough to be worth its requests, short enough to be wrong.
pub const WINDOW_PAGES_MIN: u64 = 4;
/// The same in bytes; whichever is more.
pub const WINDOW_BYTES_MIN: u64 = 64 << 10;
/// Longest window unless configured: NVMe devices give their rate with 8 MiB in flight, and as much again may have
/// arrived while the reader was busy with something else.
pub const WINDOW_BYTES_MAX: u64 = 16 << 20;
/// A window is never longer than this part of the pool: each page comes up for eviction once before and once after it is
/// read, and frames are kept free besides: more would be evicted unread.
const POOL_PART: u64 = 8;
/// Marks in a window: the reader reports after each such part of it, so that no more than one part is missing from it.
const MARKS: u64 = 8;
/// Pages between two marks at most, in bytes: what one operation of a device moves.
const MARK_BYTES_MAX: u64 = 1 << 20;
/// Streams followed at the same time; more readers than that evict each other's.
const STREAMS: usize = 32;
/// Operations that missed, remembered to find new streams in.
const RECENT: usize = 32;
/// Of a segment with fewer pages than this times those, only the latest misses count, in proportion, but for these few: what is read at
/// random there looks like a stream too often.
const PAGES_TO_ONE_RECENT: u64 = 64;
const RECENT_MIN: usize = 4;
/// Steps further than this are not looked for: at random they would be found too often.
const STEP_MAX: u64 = 64;

/// The detector's limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReadAheadSettings {
    /// Size of a page.
    pub page_bytes: u32,
    /// Frames of the pool: a window is never longer than an eighth of it.
    pub pool_frames: u32,
    /// Longest window. 0 switches read-ahead off.
    pub window_bytes_max: u64,
}

impl ReadAheadSettings {
    /// How far ahead of a scan pages are fetched in jobs: some milliseconds of a fast device, and four pages of the largest size. An
    /// eighth of the pool is never exceeded.
    pub const WINDOW_BYTES_MAX: u64 = 16 << 20;
}

/// Pages to fetch: `first`, `first + step`, … (`count` of them), all inside the segment that was named.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// First page in the reader's direction.
    pub first: PageIndex,
    /// Distance from one page to the next; negative for a backward scan.
    pub step: i64,
    /// Number of pages, at least 1.
    pub count: u64,
    /// The first page gets the AHEAD mark, and every so many after it; none when nothing can follow this run.
    pub mark_every: Option<u64>,
}

impl Run {
    /// The pages in the reader's order, and whether each gets the AHEAD mark.
    pub fn pages(&self) -> impl Iterator<Item = (PageIndex, bool)> + use<> {
        let Run { first, step, count, mark_every } = *self;
        // Inside the segment, hence no overflow.
        (0..count).map(move |n| {
            let marked = mark_every.is_some_and(|every| n % every == 0);
            (PageIndex(first.0.wrapping_add_signed(step.wrapping_mul(n as i64))), marked)
        })
    }
}

#[derive(Clone, Debug)]
struct Stream {
    segment: Range<PageIndex>,
    step: i64,
    /// The page that would be fetched next; none when that is outside of the segment.
    next: Option<PageIndex>,
    /// Pages to be ahead of the reader, and the most there may be: less than the detector's limit after a collapse.
    window: u64,
    limit: u64,
    /// Pages from where the reader was last seen to `next`: the ones that it has not come to yet.
    unread: u64,
    /// When it last moved.
    moved: u64,
}

/// A detector for each size of pages, once it is needed.
#[derive(Debug)]
pub struct Detectors {
    settings: Option<ReadAheadSettings>,
    by_size: [Option<ReadAhead>; PageSize::COUNT],
}

impl Detectors {
    /// With these limits, of a pool that is as large in bytes for pages of any size; none: scans are not looked for.
    pub fn new(settings: Option<ReadAheadSettings>) -> Self {
        Self { settings, by_size: Default::default() }
    }

    /// That of pages of this size.
    pub fn of(&mut self, size: PageSize) -> Option<&mut ReadAhead> {
        let settings = self.settings?;
        let pool_bytes = u64::from(settings.pool_frames) * u64::from(settings.page_bytes);
        let (page_bytes, pool_frames) = (size.bytes(), (pool_bytes >> size.shift()) as u32);
        let settings = ReadAheadSettings { page_bytes, pool_frames, ..settings };
        Some(self.by_size[size.index()].get_or_insert_with(|| ReadAhead::new(settings)))
    }
}

/// What somebody has to wait for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Missed {
    /// The pages, from the first one that is not here; the others of them are here, or on their way now.
    pub pages: Range<PageIndex>,
    /// Where the operation ends that they are the first part of: as far as this its caller will read.
    pub end: PageIndex,
}

impl Missed {
    /// All of an operation: nothing of it is left.
    pub fn all(pages: Range<PageIndex>) -> Self {
        Self { end: pages.end, pages }
    }
}

/// The detector.
#[derive(Debug)]
pub struct ReadAhead {
    window_min: u64,
    window_max: u64,
    /// Most pages from one mark to the next.
    mark_every_max: u64,
    streams: Vec<Stream>,
    /// The last operations that missed, the oldest at `recent_at` once full.
    recent: Vec<Range<PageIndex>>,
    recent_at: usize,
    clock: u64,
}

impl ReadAhead {
    /// A detector that has seen nothing.
    pub fn new(settings: ReadAheadSettings) -> Self {
        let page = u64::from(settings.page_bytes.max(1));
        let window_max = (settings.window_bytes_max / page).min(u64::from(settings.pool_frames) / POOL_PART);
        let window_min = WINDOW_PAGES_MIN.max(WINDOW_BYTES_MIN / page).min(window_max);
        Self {
            window_min,
            window_max,
            mark_every_max: (MARK_BYTES_MAX / page).max(1),
            streams: Vec::with_capacity(STREAMS),
            recent: Vec::with_capacity(RECENT),
            recent_at: 0,
            clock: 0,
        }
    }

    /// Whether requests for so many pages at a time look as far ahead as any window: their reader has the next one in flight anyway, and
    /// shorter runs would only cut it.
    pub fn is_outrun_by(&self, pages: u64) -> bool {
        self.window_max <= pages
    }

    /// Somebody had to wait for pages of a segment (whose page numbers are given): what to fetch besides, if they are part of a scan,
    /// or of an operation of which more is left. Call it once for each request, in the order of the requests.
    pub fn miss(&mut self, missed: &Missed, segment: Range<PageIndex>) -> Option<Run> {
        let pages = &missed.pages;
        let inside = |page: PageIndex| segment.contains(&page);
        if self.window_max == 0 || pages.is_empty() || !inside(pages.start) || !inside(pages.end.step(-1)?) {
            return None;
        }
        self.clock += 1;
        // A stream whose reader has come to its end without a mark: its pages were lost or could not be fetched. It has
        // to prove itself again; were it to go on, random misses would keep dead streams alive.
        self.streams.retain(|stream| !stream.next.is_some_and(|next| pages.contains(&next)));
        // A page that was fetched for a stream and lost again: nothing new, and the loss has been reported.
        if self.follows(pages.start) {
            return None;
        }
        let counted =
            (((segment.end - segment.start) / PAGES_TO_ONE_RECENT) as usize).clamp(RECENT_MIN, RECENT);
        let end = missed.end.min(segment.end).max(pages.end);
        let operation = pages.start..end;
        // A later part of an operation says nothing that its first part has not said.
        let is_part = |kept: &Range<PageIndex>| kept.end == end && kept.start < pages.start;
        let step = if self.recent.iter().any(is_part) {
            None
        } else {
            let step = self.step_of(&operation, counted);
            self.remember(operation);
            step
        };
        let (step, first, segment) = match step {
            Some(1) => (1, pages.end, segment),
            Some(step) => (step, pages.start.step(step)?, segment),
            None if end > pages.end => (1, pages.end, segment.start..end),
            None => return None,
        };
        if !segment.contains(&first) {
            return None;
        }
        // The next operation is as long, most likely.
        let window = self.window_min.max(pages.end - pages.start).min(self.window_max);
        let stream = Stream {
            segment,
            step,
            next: Some(first),
            window: window.div_ceil(2),
            limit: self.window_max,
            unread: 0,
            moved: self.clock,
        };
        let index = if self.streams.len() < STREAMS {
            self.streams.push(stream);
            self.streams.len() - 1
        } else {
            let index = (0..STREAMS).min_by_key(|&index| self.streams[index].moved)?;
            self.streams[index] = stream;
            index
        };
        self.advance(index, 0)
    }

    fn remember(&mut self, operation: Range<PageIndex>) {
        if self.recent.len() < RECENT {
            self.recent.push(operation);
        } else {
            self.recent[self.recent_at] = operation;
            self.recent_at = (self.recent_at + 1) % RECENT;
        }
    }

    /// A reader has come to a page with the AHEAD mark, used or only asked for: what to fetch next.
    pub fn used(&mut self, page: PageIndex) -> Option<Run> {
        self.clock += 1;
        let streams = self.streams.iter().enumerate();
        let (index, unread) =
            streams.filter_map(|(index, stream)| Some((index, stream.unread_after(page)?))).next()?;
        self.advance(index, unread)
    }

    /// Whether a page was fetched for a stream whose reader has not come to it yet.
    pub fn follows(&self, page: PageIndex) -> bool {
        self.streams.iter().any(|stream| stream.unread_after(page).is_some())
    }

    /// A page that was read ahead has been evicted without a use: its stream starts small again, and stays below half
    /// of what it had reached.
    pub fn evicted_unused(&mut self, page: PageIndex) {
        if let Some(stream) = self.streams.iter_mut().find(|stream| stream.unread_after(page).is_some()) {
            // Only the first of the pages of a run that went too far counts.
            if stream.window > self.window_min {
                stream.limit = (stream.window / 2).max(self.window_min);
            }
            stream.window = self.window_min.div_ceil(2);
        }
    }

    /// Fills the window of a stream whose reader has so many pages before it; ends the stream at the segment's end.
    fn advance(&mut self, index: usize, unread: u64) -> Option<Run> {
        let (clock, mark_every_max) = (self.clock, self.mark_every_max);
        let stream = &mut self.streams[index];
        let first = stream.next?;
        stream.moved = clock;
        stream.window = (stream.window * 2).clamp(1, stream.limit);
        stream.unread = unread;
        let room = match stream.step {
            step if step > 0 => (stream.segment.end - first - 1) / step as u64 + 1,
            step => (first - stream.segment.start) / step.unsigned_abs() + 1,
        };
        let count = stream.window.saturating_sub(unread).min(room);
        if count == 0 {
            return None;
        }
        // Inside the segment by the choice of `count`.
        let last = PageIndex(first.0.wrapping_add_signed(stream.step * (count as i64 - 1)));
        stream.next = step_from(last, stream.step, &stream.segment);
        stream.unread += count;
        let mark_every = stream.next.map(|_| (stream.window / MARKS).clamp(1, mark_every_max));
        let run = Run { first, step: stream.step, count, mark_every };
        if stream.next.is_none() {
            self.streams.swap_remove(index);
        }
        Some(run)
    }

    /// The step at which an operation follows the latest so many, if it does.
    fn step_of(&self, operation: &Range<PageIndex>, counted: usize) -> Option<i64> {
        let (page, counted) = (operation.start, counted.min(self.recent.len()));
        let length = operation.end - operation.start;
        // Of reads at random hardly any is near another one: one look at all, without a branch for each, tells.
        let reach = STEP_MAX.max(length);
        let near = |earlier: &Range<PageIndex>| {
            (earlier.end.0.wrapping_sub(page.0).wrapping_add(reach) <= 2 * reach)
                | (page.0.wrapping_sub(earlier.start.0).wrapping_add(reach) <= 2 * reach)
        };
        if !self.recent.iter().fold(false, |any, earlier| any | near(earlier)) {
            return None;
        }
        // Ages of the earlier ones: 0 is the latest. Each goes on where the one before it ended, or within it.
        let comes_before = |step: i64, now: &Range<PageIndex>, earlier: &Range<PageIndex>| match step {
            1 => earlier.start < now.start && now.start <= earlier.end && earlier.end < now.end,
            _ => now.start < earlier.start && earlier.start <= now.end && now.end < earlier.end,
        };
        let goes_on = |step: i64| {
            let (mut now, mut older_than) = (operation, 0);
            (0..2).all(|_| {
                let mut ages = older_than..counted;
                let found = ages.find(|&age| comes_before(step, now, self.recent_by_age(age)));
                found.is_some_and(|age| {
                    (now, older_than) = (self.recent_by_age(age), age + 1);
                    true
                })
            })
        };
        if let Some(step) = [1, -1].into_iter().find(|&step| goes_on(step)) {
            return Some(step);
        }
        if length > 1 {
            return None;
        }
        // Another step: only from single pages, the latest, and with one more of them, because there are many steps to find. A
        // reader that skips pages leaves those between alone; one that does not is no such reader, however even its
        // misses lie: what else it reads was cached.
        let single = |age: usize| {
            let earlier = self.recent_by_age(age);
            (earlier.end - earlier.start == 1).then_some(earlier.start)
        };
        let follows = |step: i64| {
            let mut older_than = 0;
            (1..=3).all(|n| {
                let Some(wanted) = page.step(-step * n) else { return false };
                let found = (older_than..counted).find(|&age| single(age) == Some(wanted));
                found.map(|age| older_than = age + 1).is_some()
            })
        };
        let skips = |step: i64| {
            let reach = 3 * step.unsigned_abs();
            let mut near = self.recent.iter().map(|earlier| page.distance(earlier.start));
            near.all(|far| far.unsigned_abs() > reach || far.signum() != step.signum() || far % step == 0)
        };
        (0..counted.min(RECENT / 4)).find_map(|age| {
            let step = page.distance(single(age)?);
            let near = (2..=STEP_MAX).contains(&step.unsigned_abs());
            (near && follows(step) && skips(step)).then_some(step)
        })
    }

    fn recent_by_age(&self, age: usize) -> &Range<PageIndex> {
        &self.recent[(self.recent_at + self.recent.len() - 1 - age) % self.recent.len()]
    }
}

impl Stream {
    /// How many pages follow this one up to the last one fetched, itself included; none for a page that the stream has
    /// not fetched, or that its reader has left behind.
    fn unread_after(&self, page: PageIndex) -> Option<u64> {
        let distance = self.next?.distance(page).wrapping_mul(self.step.signum());
        let step = self.step.unsigned_abs() as i64;
        let pages = distance / step;
        (distance > 0 && distance % step == 0 && pages <= self.unread as i64).then_some(pages as u64)
    }
}

fn step_from(page: PageIndex, step: i64, segment: &Range<PageIndex>) -> Option<PageIndex> {
    page.step(step).filter(|next| segment.contains(next))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha8Rng;
    use rustc_hash::FxHashSet;

    const PAGE: u32 = 4096;

    fn detector(pool_frames: u32) -> ReadAhead {
        ReadAhead::new(ReadAheadSettings {
            page_bytes: PAGE,
            pool_frames,
            window_bytes_max: WINDOW_BYTES_MAX,
        })
    }

    /// An operation on one page.
    fn one(page: u64) -> Missed {
        Missed::all(PageIndex(page)..PageIndex(page + 1))
    }

    /// The first so many pages of an operation on more.
    fn part(first: u64, pages: u64, of: u64) -> Missed {
        Missed { pages: PageIndex(first)..PageIndex(first + pages), end: PageIndex(first + of) }
    }

    /// A reader over an endless cache whose fetches complete at once: what was demanded, what was fetched ahead.
    struct Reader {
        ahead: ReadAhead,
        cached: FxHashSet<PageIndex>,
        marks: FxHashSet<PageIndex>,
        segment: Range<PageIndex>,
        misses: u64,
        fetched: u64,
        /// Most pages that any fetched page was ahead of the reader.
        furthest: u64,
    }

    impl Reader {
        fn new(pool_frames: u32, pages: u64) -> Self {
            Self {
                ahead: detector(pool_frames),
                cached: FxHashSet::default(),
                marks: FxHashSet::default(),
                segment: PageIndex(0)..PageIndex(pages),
                misses: 0,
                fetched: 0,
                furthest: 0,
            }
        }

        fn read(&mut self, page: u64) {
            let page = PageIndex(page);
            let reader_at = page;
            let run = if self.cached.insert(page) {
                self.misses += 1;
                self.ahead.miss(&Missed::all(page..page + 1), self.segment.clone())
            } else if self.marks.remove(&page) {
                self.ahead.used(page)
            } else {
                None
            };
            let Some(run) = run else { return };
            for (page, marked) in run.pages() {
                assert!(self.segment.contains(&page), "{run:?} leaves {:?}", self.segment);
                self.fetched += u64::from(self.cached.insert(page));
                if marked {
                    self.marks.insert(page);
                }
                self.furthest =
                    self.furthest.max(page.distance(reader_at).unsigned_abs() / run.step.unsigned_abs());
            }
        }
    }

    #[test]
    fn a_scan_waits_three_times_and_then_never_again() {
        for (step, first) in [(1, 0), (-1, 99_999), (3, 7), (-5, 99_990)] {
            let mut reader = Reader::new(1 << 20, 100_000);
            let mut page = first as i64;
            let mut reads = 0;
            while (0..100_000).contains(&page) {
                reader.read(page as u64);
                page += step;
                reads += 1;
            }
            assert_eq!(reader.misses, if i64::abs(step) == 1 { 3 } else { 4 }, "step {step}");
            assert_eq!(reader.misses + reader.fetched, reads, "step {step}: nothing but what was read");
            let window = WINDOW_BYTES_MAX / u64::from(PAGE);
            assert!((window - 1..=window).contains(&reader.furthest), "{} ahead", reader.furthest);
        }
    }

    #[test]
    fn windows_double_from_64_kib_to_an_eighth_of_the_pool() {
        let mut ahead = detector(800);
        let segment = PageIndex(1000)..PageIndex(100_000);
        assert_eq!(ahead.miss(&one(1000), segment.clone()), None);
        assert_eq!(ahead.miss(&one(1001), segment.clone()), None);
        let mut run = ahead.miss(&one(1002), segment).unwrap();
        assert_eq!((run.first, run.count), (PageIndex(1003), 16));
        let mut windows = Vec::new();
        for _ in 0..5 {
            let reader_at = run.first;
            let next = ahead.used(reader_at).unwrap();
            assert_eq!(next.first, run.first + run.count);
            windows.push(next.first + next.count - reader_at);
            run = next;
        }
        assert_eq!(windows, [32, 64, 100, 100, 100]);
        assert_eq!(ahead.used(PageIndex(1)), None, "a page that no stream has fetched");
    }

    #[test]
    fn a_window_is_never_short_of_more_than_one_part_in_eight() {
        let mut reader = Reader::new(1 << 20, 1 << 20);
        (0..20_000).for_each(|page| reader.read(page));
        let window = WINDOW_BYTES_MAX / u64::from(PAGE);
        for page in 20_000..30_000 {
            reader.read(page);
            let ahead =
                (page + 1..).take_while(|&page| reader.cached.contains(&PageIndex(page))).count() as u64;
            assert!((window - window / MARKS..=window).contains(&(ahead + 1)), "{ahead} ahead of {page}");
        }
    }

    #[test]
    fn random_reads_fetch_nothing_extra() {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        for pages in [160, 640, 4096, 65_536, 1 << 24] {
            let mut reader = Reader::new(1 << 20, pages);
            for _ in 0..100_000 {
                // No cache: each read misses.
                let page = random.random_range(0..pages);
                if let Some(run) = reader.ahead.miss(&one(page), PageIndex(0)..PageIndex(pages)) {
                    reader.fetched += run.count;
                }
            }
            // Of few pages, what is fetched besides is read soon as well.
            let most = if pages < 4096 { 100_000 / 20 } else { 100_000 / 200 };
            assert!(reader.fetched <= most, "{} extra of 100000 over {pages}", reader.fetched);
        }
    }

    #[test]
    fn interleaved_readers_are_told_apart() {
        let mut reader = Reader::new(1 << 20, 1_000_000);
        let mut random = ChaCha8Rng::seed_from_u64(2);
        // Starts at odd distances, so that no step joins two readers.
        let mut at: Vec<u64> = (0..7).map(|n| n * 100_003 + n * n * 17).collect();
        for _ in 0..70_000 {
            let who = random.random_range(0..at.len());
            reader.read(at[who]);
            at[who] += 1;
        }
        assert!(reader.misses <= 7 * 8, "{} misses", reader.misses);
    }

    #[test]
    fn eviction_of_unused_pages_makes_the_window_collapse() {
        let mut ahead = detector(1 << 20);
        let segment = PageIndex(0)..PageIndex(1_000_000);
        let mut run = (0..3).find_map(|page| ahead.miss(&one(page), segment.clone())).unwrap();
        let mut at = PageIndex(0);
        for _ in 0..5 {
            at = run.first;
            run = ahead.used(at).unwrap();
        }
        let end = run.first + run.count;
        assert_eq!(end - at, 16 << 5);
        ahead.evicted_unused(run.first + 3);
        ahead.evicted_unused(run.first + 4);
        let mut windows = Vec::new();
        for at in PageIndex::each(at..end).step_by(16) {
            if let Some(next) = ahead.used(at) {
                windows.push(next.first + next.count - at);
            }
        }
        assert_eq!(windows.iter().max(), Some(&256), "below half of 512");
    }

    #[test]
    fn even_misses_of_a_dense_reader_are_no_steps() {
        // Every page is read, but only some miss: at a step of 7, each with its neighbour.
        let mut ahead = detector(1 << 20);
        for page in (0..700).step_by(7).flat_map(|page| [page, page + 1]) {
            assert_eq!(ahead.miss(&one(page), PageIndex(0)..PageIndex(10_000)), None, "page {page}");
        }
        // Asked for in blocks of 16, of which one is missing, and not the first: the stream would find nothing that it may fetch.
        let mut ahead = detector(1 << 20);
        for page in (0..1600).step_by(16) {
            assert_eq!(
                ahead.miss(&part(page + 5, 11, 11), PageIndex(0)..PageIndex(10_000)),
                None,
                "page {page}"
            );
        }
        assert!(ahead.streams.is_empty(), "streams that fetch nothing would hide misses");
    }

    /// Goal: of a large operation, what is left is fetched at once, and nothing behind its end: its pages are one piece of evidence.
    #[test]
    fn an_operation_is_fetched_to_its_end_and_no_further() {
        let segment = PageIndex(0)..PageIndex(100_000);
        // Tiles that lie apart.
        let mut ahead = detector(1 << 20);
        for first in (0..50_000).step_by(1000) {
            let mut last = ahead.miss(&part(first, 64, 200), segment.clone()).unwrap();
            assert_eq!((last.first, last.step, last.count), (PageIndex(first + 64), 1, 64));
            while let Some(next) = ahead.used(last.first) {
                assert_eq!(next.first, last.first + last.count);
                last = next;
            }
            assert_eq!(last.first + last.count, PageIndex(first + 200));
            assert_eq!(
                ahead.miss(&part(first + 64, 64, 136), segment.clone()).map(|run| run.first + run.count),
                Some(PageIndex(first + 192)),
                "lost again"
            );
        }
        // All of it is on its way.
        let mut ahead = detector(1 << 20);
        for first in (0..50_000).step_by(1000) {
            assert_eq!(ahead.miss(&part(first, 64, 64), segment.clone()), None);
        }
    }

    /// Goal: operations that go on where the one before ended are a scan, forwards and backwards, with others between them; the window
    /// is as long as an operation at least.
    #[test]
    fn large_operations_in_a_row_are_a_scan() {
        let segment = PageIndex(0)..PageIndex(100_000);
        let mut random = ChaCha8Rng::seed_from_u64(3);
        let mut ahead = detector(1 << 20);
        let mut scan = |operations: [Range<u64>; 3]| {
            let mut runs = operations.map(|pages| {
                let other = random.random_range(0..1000) * 64 + 30_000;
                assert_eq!(ahead.miss(&part(other, 40, 40), segment.clone()), None);
                ahead.miss(
                    &part(pages.start, pages.end - pages.start, pages.end - pages.start),
                    segment.clone(),
                )
            });
            assert_eq!(runs[..2], [None, None]);
            runs[2].take().unwrap()
        };
        let run = scan([1000..1040, 1040..1080, 1080..1120]);
        assert_eq!((run.first, run.step, run.count), (PageIndex(1120), 1, 40));
        // Each begins in the page in which the one before ended.
        let run = scan([2000..2017, 2016..2033, 2032..2049]);
        assert_eq!((run.first, run.step, run.count), (PageIndex(2049), 1, 18));
        let run = scan([5080..5120, 5040..5080, 5000..5040]);
        assert_eq!((run.first, run.step, run.count), (PageIndex(4999), -1, 40));
        // Backwards by more than is asked for at a time: what is left of each is fetched forwards.
        let mut ahead = detector(1 << 20);
        for first in [7128, 7000] {
            let run = ahead.miss(&part(first, 32, 128), segment.clone()).unwrap();
            assert_eq!((run.first, run.step), (PageIndex(first + 32), 1));
        }
        let run = ahead.miss(&part(6872, 32, 128), segment.clone()).unwrap();
        assert_eq!((run.first, run.step), (PageIndex(6871), -1));
        let run = ahead.miss(&part(6904, 32, 96), segment.clone()).unwrap();
        assert_eq!((run.first, run.step), (PageIndex(6936), 1));
    }

    /// Goal: what a peer says of the end of its operation asks for nothing outside of the segment.
    #[test]
    fn an_operation_ends_with_its_segment() {
        let mut ahead = detector(1 << 20);
        let missed = Missed { pages: PageIndex(10)..PageIndex(20), end: PageIndex(u64::MAX) };
        let run = ahead.miss(&missed, PageIndex(0)..PageIndex(25)).unwrap();
        assert_eq!(run, Run { first: PageIndex(20), step: 1, count: 5, mark_every: None });
        let again = Missed { pages: PageIndex(5)..PageIndex(8), end: PageIndex(u64::MAX) };
        assert!(ahead.miss(&again, PageIndex(0)..PageIndex(25)).is_some());
        let missed = Missed { pages: PageIndex(10)..PageIndex(30), end: PageIndex(0) };
        assert_eq!(ahead.miss(&missed, PageIndex(0)..PageIndex(25)), None);
    }

    #[test]
    fn the_end_of_the_segment_ends_the_stream() {
        let mut ahead = detector(1 << 20);
        let run = (90..93).find_map(|page| ahead.miss(&one(page), PageIndex(0)..PageIndex(100))).unwrap();
        assert_eq!(run, Run { first: PageIndex(93), step: 1, count: 7, mark_every: None });
        assert_eq!(ahead.miss(&one(99), PageIndex(0)..PageIndex(100)), None);
        let mut ahead = detector(1 << 20);
        assert!(
            (97..100).all(|page| ahead.miss(&one(page), PageIndex(0)..PageIndex(100)).is_none()),
            "nothing follows"
        );
    }

    #[test]
    fn a_tiny_pool_or_a_limit_of_zero_switches_it_off() {
        let mut off =
            ReadAhead::new(ReadAheadSettings { page_bytes: PAGE, pool_frames: 1000, window_bytes_max: 0 });
        let mut tiny = detector(7);
        for page in 0..100 {
            assert_eq!(off.miss(&one(page), PageIndex(0)..PageIndex(1000)), None);
            assert_eq!(tiny.miss(&one(page), PageIndex(0)..PageIndex(1000)), None);
        }
    }
}
