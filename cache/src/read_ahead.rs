//! Which pages to fetch before anybody asks: a pure detector of scans. One in each agent, for what it is asked for,
//! and one in each rank, for what it brings in by itself.
//!
//! A *stream* is a reader that goes through the pages of a segment at a constant step: forwards, backwards, or skipping.
//! It is believed after three misses in a row of neighbours, or four at another step; other misses may lie between them,
//! because several readers share a node. Random access practically never looks like that, so it fetches nothing extra.
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
/// Misses remembered to find new streams in.
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

/// The detector.
#[derive(Debug)]
pub struct ReadAhead {
    window_min: u64,
    window_max: u64,
    /// Most pages from one mark to the next.
    mark_every_max: u64,
    streams: Vec<Stream>,
    /// The last misses, the oldest at `recent_at` once full.
    recent: Vec<PageIndex>,
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

    /// Somebody had to wait for a page of a segment (whose page numbers are given): what to fetch besides, if it is
    /// part of a scan. Call it once for each page, in the order of the requests. `dense`: it was asked for together with its
    /// neighbours, so that other steps than to the next page need not be looked for.
    pub fn miss(&mut self, page: PageIndex, segment: Range<PageIndex>, dense: bool) -> Option<Run> {
        if self.window_max == 0 || !segment.contains(&page) {
            return None;
        }
        self.clock += 1;
        // A stream whose reader has come to its end without a mark: its pages were lost or could not be fetched. It has
        // to prove itself again; were it to go on, random misses would keep dead streams alive.
        self.streams.retain(|stream| stream.next != Some(page));
        // A page that was fetched for a stream and lost again: nothing new, and the loss has been reported.
        if self.follows(page) {
            return None;
        }
        let pages = segment.end.0 - segment.start.0;
        let counted = ((pages / PAGES_TO_ONE_RECENT) as usize).clamp(RECENT_MIN, RECENT);
        let step = self.step_of(page, dense, counted);
        if self.recent.len() < RECENT {
            self.recent.push(page);
        } else {
            self.recent[self.recent_at] = page;
            self.recent_at = (self.recent_at + 1) % RECENT;
        }
        let step = step?;
        let next = step_from(page, step, &segment)?;
        let stream = Stream {
            segment,
            step,
            next: Some(next),
            window: self.window_min.div_ceil(2),
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

    /// The step at which the page follows the latest so many misses, if it does.
    fn step_of(&self, page: PageIndex, dense: bool, counted: usize) -> Option<i64> {
        let counted = counted.min(self.recent.len());
        // Of reads at random hardly any is near another one: one look at all, without a branch for each, tells.
        let near = |earlier: PageIndex| page.0.wrapping_sub(earlier.0).wrapping_add(STEP_MAX) <= 2 * STEP_MAX;
        if !self.recent.iter().fold(false, |any, &earlier| any | near(earlier)) {
            return None;
        }
        // Ages of the earlier misses: 0 is the latest.
        let age_of = |wanted: Option<PageIndex>, older_than: usize| {
            let wanted = wanted?;
            (older_than..counted).find(|&age| self.recent_by_age(age) == wanted)
        };
        let follows = |step: i64, times: u64| {
            let mut older_than = 0;
            (1..=times).all(|n| {
                let earlier = page.step(-step * n as i64);
                age_of(earlier, older_than).map(|age| older_than = age + 1).is_some()
            })
        };
        if let Some(step) = [1, -1].into_iter().find(|&step| follows(step, 2)) {
            return Some(step);
        }
        if dense {
            return None;
        }
        // Another step: only from the latest misses, and with one more of them, because there are many steps to find. A
        // reader that skips pages leaves those between alone; one that does not is no such reader, however even its
        // misses lie: what else it reads was cached.
        let skips = |step: i64| {
            let reach = 3 * step.unsigned_abs();
            let mut near = self.recent.iter().map(|earlier| page.distance(*earlier));
            near.all(|far| far.unsigned_abs() > reach || far.signum() != step.signum() || far % step == 0)
        };
        (0..counted.min(RECENT / 4)).find_map(|age| {
            let earlier = self.recent_by_age(age);
            let step = page.distance(earlier);
            let near = (2..=STEP_MAX).contains(&step.unsigned_abs());
            (near && follows(step, 3) && skips(step)).then_some(step)
        })
    }

    fn recent_by_age(&self, age: usize) -> PageIndex {
        self.recent[(self.recent_at + self.recent.len() - 1 - age) % self.recent.len()]
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
                self.ahead.miss(page, self.segment.clone(), false)
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
        assert_eq!(ahead.miss(PageIndex(1000), segment.clone(), false), None);
        assert_eq!(ahead.miss(PageIndex(1001), segment.clone(), false), None);
        let mut run = ahead.miss(PageIndex(1002), segment, false).unwrap();
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
                if let Some(run) = reader.ahead.miss(PageIndex(page), PageIndex(0)..PageIndex(pages), false) {
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
        let mut run = (0..3).find_map(|page| ahead.miss(PageIndex(page), segment.clone(), false)).unwrap();
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
            assert_eq!(
                ahead.miss(PageIndex(page), PageIndex(0)..PageIndex(10_000), false),
                None,
                "page {page}"
            );
        }
        // Asked for in blocks of 16, of which one is missing.
        let mut ahead = detector(1 << 20);
        for page in (0..1600).step_by(16) {
            assert_eq!(
                ahead.miss(PageIndex(page), PageIndex(0)..PageIndex(10_000), true),
                None,
                "page {page}"
            );
        }
        assert!(ahead.streams.is_empty(), "streams that fetch nothing would hide misses");
    }

    #[test]
    fn the_end_of_the_segment_ends_the_stream() {
        let mut ahead = detector(1 << 20);
        let run = (90..93)
            .find_map(|page| ahead.miss(PageIndex(page), PageIndex(0)..PageIndex(100), false))
            .unwrap();
        assert_eq!(run, Run { first: PageIndex(93), step: 1, count: 7, mark_every: None });
        assert_eq!(ahead.miss(PageIndex(99), PageIndex(0)..PageIndex(100), false), None);
        let mut ahead = detector(1 << 20);
        assert!(
            (97..100).all(|page| ahead.miss(PageIndex(page), PageIndex(0)..PageIndex(100), false).is_none()),
            "nothing follows"
        );
    }

    #[test]
    fn a_tiny_pool_or_a_limit_of_zero_switches_it_off() {
        let mut off =
            ReadAhead::new(ReadAheadSettings { page_bytes: PAGE, pool_frames: 1000, window_bytes_max: 0 });
        let mut tiny = detector(7);
        for page in 0..100 {
            assert_eq!(off.miss(PageIndex(page), PageIndex(0)..PageIndex(1000), false), None);
            assert_eq!(tiny.miss(PageIndex(page), PageIndex(0)..PageIndex(1000), false), None);
        }
    }
}
