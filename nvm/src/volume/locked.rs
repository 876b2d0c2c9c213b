//! Work of a handle on shared state: starts operations on pages and handles their completions.

use super::io::{Gather, Job, PageAt, Pages, Part};
use super::*;

impl Locked<'_> {
    pub(super) fn complete(&mut self, Completion { key, spans, result }: Completion, sums: SmallList<Sums>) {
        match self.io.take(key) {
            Some(Job::Read(pages)) => self.complete_read(pages, spans, sums, result),
            Some(Job::Write(pages)) => self.complete_write(pages, spans, result),
            Some(Job::Part(part)) => self.complete_part(part, sums, result),
            Some(Job::Discard { segment, page, key }) => self.complete_discard(segment, page, key, result),
            Some(Job::Flush { segment }) => self.continue_flush(segment, spans, result),
            Some(Job::Direct) => self.io.direct.push((key, spans, result)),
            None => debug_assert!(false, "a completion without an operation"),
        }
    }

    pub(super) fn complete_read(
        &mut self,
        pages: Pages,
        spans: Spans,
        sums: SmallList<Sums>,
        result: Result<u64, DeviceError>,
    ) {
        if result.is_err() && pages.each.as_slice().len() > 1 {
            return self.retry_singly(Kind::Read, pages, spans);
        }
        let Some(found) = self.segments.get_mut(&pages.segment) else { return };
        let (segment, file, page_bytes) = (pages.segment, found.file, found.page_bytes);
        let mut sums = sums.into_iter();
        for (page, at) in (pages.first_page..).zip(pages.each.as_slice()) {
            let outcome = match (&result, sums.next()) {
                (Err(error), _) => Err(self.io.page_error(file, segment, page, PageOperation::Read, *error)),
                (Ok(_), None) => Ok(()),
                (Ok(_), Some(sums)) => verify_page(&mut found.table, page, at.checksum, sums, page_bytes)
                    .map_err(|wrong| {
                        let Mismatch { bytes, expected, found } = wrong;
                        let file = self.io.device.describe(file);
                        VolumeError::Corrupt { file, segment, page, bytes, expected, found }
                    }),
            };
            self.io.finish(at.key, outcome);
            self.busy.end(segment, page);
        }
    }

    pub(super) fn complete_part(
        &mut self,
        part: Part,
        sums: SmallList<Sums>,
        result: Result<u64, DeviceError>,
    ) {
        let Some(found) = self.segments.get(&part.segment) else { return };
        let Part { segment, page, key, from, expected } = part;
        let outcome = match result {
            Err(error) => Err(self.io.page_error(found.file, segment, page, PageOperation::Read, error)),
            Ok(_) => {
                let blocks = sums.into_iter().next().and_then(|sums| sums.blocks);
                match blocks.as_deref().and_then(|blocks| first_mismatch(from, &expected, blocks)) {
                    None => Ok(()),
                    Some(Mismatch { bytes, expected, found: sum }) => {
                        let file = self.io.device.describe(found.file);
                        Err(VolumeError::Corrupt { file, segment, page, bytes, expected, found: sum })
                    }
                }
            }
        };
        self.io.finish(key, outcome);
    }

    pub(super) fn complete_write(&mut self, pages: Pages, spans: Spans, result: Result<u64, DeviceError>) {
        if result.is_err() && pages.each.as_slice().len() > 1 {
            return self.retry_singly(Kind::Write, pages, spans);
        }
        let Some(found) = self.segments.get_mut(&pages.segment) else { return };
        let (segment, file) = (pages.segment, found.file);
        let mut next = pages.first_page;
        pages.each.for_each(|at| {
            let page = next;
            next += 1;
            let outcome = match &result {
                Ok(_) => {
                    found.table.store(page, at.place, at.checksum, at.blocks);
                    Ok(())
                }
                // The page's old content is either untouched or no longer matches its checksum, if it has
                // one.
                Err(error) => {
                    let had_content = matches!(found.table.entry(page), Entry::Stored { .. });
                    if had_content && !self.checksums && found.named.is_none() {
                        found.table.lose(page);
                    }
                    Err(self.io.page_error(file, segment, page, PageOperation::Write, *error))
                }
            };
            found.changes_in_flight -= 1;
            self.io.finish(at.key, outcome);
            self.busy.end(segment, page);
        });
        self.flush_if_drained(segment);
    }

    /// One bad page must not fail its neighbours: each page of a failed run is tried alone.
    pub(super) fn retry_singly(&mut self, kind: Kind, pages: Pages, spans: Spans) {
        let Some(found) = self.segments.get(&pages.segment) else { return };
        for ((page, at), span) in (pages.first_page..).zip(pages.each.as_slice()).zip(spans.as_slice()) {
            let offset = found.offset(page, at.place);
            let mut alone = Gather::new(pages.segment, found.file, kind, pages.summed);
            alone.add(self.io, page, offset, span.clone(), at.clone());
            alone.issue(self.io);
        }
    }

    pub(super) fn complete_discard(
        &mut self,
        segment: u32,
        page: u64,
        key: u64,
        result: Result<u64, DeviceError>,
    ) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        found.changes_in_flight -= 1;
        // A filesystem without holes keeps the space; the page reads as zeros all the same.
        let unsupported = DeviceError::of(Errno::OPNOTSUPP, 0);
        let outcome = match result.or_else(|error| if error == unsupported { Ok(0) } else { Err(error) }) {
            Ok(_) => {
                found.table.discard(page);
                Ok(())
            }
            Err(error) => Err(self.io.page_error(found.file, segment, page, PageOperation::Discard, error)),
        };
        self.io.finish(key, outcome);
        self.busy.end(segment, page);
        self.flush_if_drained(segment);
    }

    /// Starts a write or discard, or holds it while a checkpoint needs both places of its page. Writes of neighbours
    /// are gathered; the caller issues them.
    pub(super) fn change(&mut self, segment: u32, change: Change, gather: &mut Gather) {
        let Some(found) = self.segments.get_mut(&segment) else { return };
        let (page, key, file) = (change.page, change.key, found.file);
        if let Some(named) = &mut found.named
            && let Some(stopped) = named.stopped
        {
            let file = self.io.device.describe(file);
            self.io.finish(key, Err(stopped.error(file, segment)));
            return self.busy.end(segment, page);
        }
        let target = found.table.target(page);
        let place = match (&mut found.named, target) {
            (Some(named), target) if target.is_none() || named.must_hold(page) => {
                return named.held.push_back(change);
            }
            (_, Some(place)) => place,
            (_, None) => return debug_assert!(false, "a page without shadow has one place"),
        };
        let offset = found.offset(page, place);
        let written = found.table.entry(page) != Entry::Zeros;
        match change.from {
            Some((span, Sums { whole: checksum, blocks })) => {
                found.changes_in_flight += 1;
                gather.add(self.io, page, offset, span, PageAt { key, place, checksum, blocks });
            }
            None if found.named.is_none() && written => {
                found.changes_in_flight += 1;
                let kind = Kind::PunchHole { bytes: u64::from(found.page_bytes) };
                self.io.issue(Job::Discard { segment, page, key }, file, kind, offset, SmallList::None);
            }
            None => {
                if written {
                    found.table.discard(page);
                }
                self.io.finish(key, Ok(()));
                self.busy.end(segment, page);
            }
        }
    }

    pub(super) fn read_run(
        &mut self,
        segment: u32,
        first_page: u64,
        into: SmallList<(Span, u64)>,
    ) -> Result<()> {
        self.check_run(segment, first_page, &into)?;
        let Some(found) = self.segments.get(&segment) else { return Ok(()) };
        let summed = self.checksums || found.named.is_some();
        let mut gather = Gather::new(segment, found.file, Kind::Read, summed);
        let mut next = first_page;
        into.for_each(|(span, key)| {
            let page = next;
            next += 1;
            match found.table.entry(page) {
                Entry::Zeros => {
                    checksum::fill_zero(&span);
                    self.io.finish(key, Ok(()));
                }
                Entry::Lost => {
                    let file = self.io.device.describe(found.file);
                    self.io.finish(key, Err(VolumeError::Lost { file, segment, page }));
                }
                Entry::Stored { place, checksum } => {
                    let offset = found.offset(page, place);
                    self.busy.begin(segment, page);
                    gather.add(self.io, page, offset, span, PageAt { key, place, checksum, blocks: None });
                }
            }
        });
        gather.issue(self.io);
        Ok(())
    }

    pub(super) fn read_part(
        &mut self,
        segment: u32,
        page: u64,
        from: u32,
        into: Span,
        key: u64,
    ) -> Result<bool> {
        let found = self.segment(segment)?;
        let wrong = |number: usize| !number.is_multiple_of(PAGE_BYTES_MIN as usize);
        let (bytes, address) = (into.bytes(), into.address() as usize);
        let end = from as usize + bytes;
        if page >= found.table.pages() || end > found.page_bytes as usize || bytes == 0 {
            return Err(VolumeError::Usage(format!(
                "segment {segment} has {} pages of {} bytes; {bytes} bytes from {from} on of page {page} were asked for",
                found.table.pages(),
                found.page_bytes
            )));
        }
        if wrong(from as usize) || wrong(bytes) || wrong(address) {
            return Err(VolumeError::Usage(format!(
                "{bytes} bytes from {from} on at {address:#x} are no part of a page: all three must be multiples of \
                 {PAGE_BYTES_MIN}"
            )));
        }
        let (file, entry) = (found.file, found.table.entry(page));
        match entry {
            Entry::Zeros => {
                checksum::fill_zero(&into);
                self.io.finish(key, Ok(()));
            }
            Entry::Lost => {
                let file = self.io.device.describe(file);
                self.io.finish(key, Err(VolumeError::Lost { file, segment, page }));
            }
            Entry::Stored { place, checksum } => {
                let expected = if !self.checksums && found.named.is_none() {
                    Box::default()
                } else if found.page_bytes as usize == checksum::BLOCK_BYTES {
                    [checksum].into()
                } else {
                    let Some(blocks) = found.table.blocks(page) else { return Ok(false) };
                    blocks[from as usize / checksum::BLOCK_BYTES..end / checksum::BLOCK_BYTES].into()
                };
                let offset = found.offset(page, place) + u64::from(from);
                let part = Part { segment, page, key, from, expected };
                self.io.issue(Job::Part(part), file, Kind::Read, offset, into.into());
            }
        }
        Ok(true)
    }

    pub(super) fn write_run(&mut self, segment: u32, changes: SmallList<Change>) {
        let Some(file) = self.segments.get(&segment).map(|segment| segment.file) else { return };
        let mut gather = Gather::new(segment, file, Kind::Write, true);
        changes.for_each(|change| {
            self.busy.begin(segment, change.page);
            self.change(segment, change, &mut gather);
        });
        gather.issue(self.io);
    }

    /// Returns true if the pages of a segment have checksums.
    pub(super) fn is_summed(&self, segment: u32) -> bool {
        self.checksums || self.segments.get(&segment).is_some_and(|segment| segment.named.is_some())
    }

    pub(super) fn segment(&self, segment: u32) -> Result<&Segment> {
        self.segments
            .get(&segment)
            .ok_or_else(|| VolumeError::Usage(format!("there is no segment {segment}")))
    }

    pub(super) fn check_run(
        &self,
        segment: u32,
        first_page: u64,
        run: &SmallList<(Span, u64)>,
    ) -> Result<()> {
        let Segment { ref table, page_bytes, .. } = *self.segment(segment)?;
        let pages = table.pages();
        let count = run.as_slice().len() as u64;
        if first_page.checked_add(count).is_none_or(|end| end > pages) {
            return Err(VolumeError::Usage(format!(
                "segment {segment} has {pages} pages, {count} from page {first_page} on were asked for"
            )));
        }
        for (span, _) in run.as_slice() {
            let address = span.address() as usize;
            if span.bytes() != page_bytes as usize || !address.is_multiple_of(PAGE_BYTES_MIN as usize) {
                return Err(VolumeError::Usage(format!(
                    "memory for a page must have {} bytes at a multiple of {PAGE_BYTES_MIN}, not {} at {address:#x}",
                    page_bytes,
                    span.bytes(),
                )));
            }
        }
        Ok(())
    }
}

/// Bytes of a page that are not what was written.
struct Mismatch {
    bytes: std::ops::Range<u32>,
    expected: u32,
    found: u32,
}

/// Checksums of a page.
#[derive(Clone, Debug, Default)]
pub(super) struct Sums {
    pub(super) whole: u32,
    /// Checksum of each block, if these are kept.
    pub(super) blocks: Option<Box<[u32]>>,
}

impl Sums {
    /// Computes the checksums of a page, and of its blocks if these are kept and it has several.
    pub(super) fn of(span: &Span, with_blocks: bool) -> Self {
        match with_blocks && span.bytes() > checksum::BLOCK_BYTES {
            true => {
                let blocks = checksum::of_blocks(span);
                Self { whole: checksum::of_joined(&blocks), blocks: Some(blocks) }
            }
            false => Self { whole: checksum::of_span(span), blocks: None },
        }
    }
}

/// Holds what the bytes of a whole page add up to against its checksum, and those of its blocks if they are known; otherwise
/// they are from now on.
fn verify_page(
    table: &mut PageTable,
    page: u64,
    expected: u32,
    Sums { whole: found, blocks }: Sums,
    page_bytes: u32,
) -> Result<(), Mismatch> {
    let known = table.blocks(page);
    if found != expected {
        let block = known.zip(blocks.as_deref()).and_then(|(known, read)| first_mismatch(0, known, read));
        return Err(block.unwrap_or(Mismatch { bytes: 0..page_bytes, expected, found }));
    }
    if known.is_none()
        && let Some(blocks) = blocks
    {
        table.learn(page, blocks);
    }
    Ok(())
}

/// The first of some neighbouring blocks that is not what it should be; the first of them all begins at byte `from`.
fn first_mismatch(from: u32, expected: &[u32], found: &[u32]) -> Option<Mismatch> {
    let starts = (from..).step_by(checksum::BLOCK_BYTES);
    let mut blocks = starts.zip(expected.iter().zip(found));
    let (start, (&expected, &found)) = blocks.find(|(_, (expected, found))| expected != found)?;
    Some(Mismatch { bytes: start..start + checksum::BLOCK_BYTES as u32, expected, found })
}
