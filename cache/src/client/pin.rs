//! Pinning through the client: bring the page in, then keep it.

use super::{Client, Known};
use crate::error::CacheError;
use crate::partition::PartitionId;
use crate::pool::{Page, PinMode, PinnedPage};
use crate::protocol::InPlaceService;
use crate::request::Request;
use std::time::{Duration, Instant};

/// Between bringing a page in and pinning it another node may take it. Each attempt waits for the page, so that this
/// many are minutes of the worst sharing there is.
const ATTEMPTS_MAX: u32 = 100_000;

/// So many attempts in a row end service in place, unless another node's come in between ([`InPlaceService::USUAL`]).
const ATTEMPTS_IN_A_ROW: u32 = 2 * InPlaceService::USUAL.leave_after as u32;

/// The longest pause after the first such row, doubled after each further one, up to 64 times.
const PAUSE: Duration = Duration::from_millis(1);

impl Client {
    /// Brings the page of a byte to this node with the right that the mode needs, and keeps it: see [`PinMode`]. Waits,
    /// serving active messages meanwhile.
    ///
    /// # Errors
    /// Besides those of a get: [`CacheError::Usage`] for a page that cannot be kept, because it is served in place at
    /// its home for as long as several nodes write it in turn, or because it is pinned too often already.
    pub fn pin(
        &self,
        of: impl Into<PartitionId>,
        offset: u64,
        mode: PinMode,
    ) -> Result<PinnedPage, CacheError> {
        let of = of.into();
        let Some(Known { partition, .. }) = self.check(of, offset, 1)? else {
            return Err(CacheError::OutOfRange { owner: of, offset, bytes: 1, limit: 0 });
        };
        if mode == PinMode::Write {
            self.check_writable(of)?;
        }
        if self.core.stays_at_home(&partition) {
            let what = format!("pages of {of} stay at their home; use put and get");
            return Err(CacheError::Usage(what));
        }
        let page = Page { number: partition.page_at(offset), size: partition.size };
        for attempt in 0..ATTEMPTS_MAX {
            if attempt > 0 && attempt.is_multiple_of(ATTEMPTS_IN_A_ROW) {
                self.let_others_pin(attempt / ATTEMPTS_IN_A_ROW)?;
            }
            if let Some(pinned) = self.pool.try_pin(page, mode) {
                return Ok(pinned);
            }
            match mode {
                PinMode::Read => {
                    let mut byte = 0u8;
                    // SAFETY: rule 1: a local of one byte.
                    unsafe { self.get(of, offset, &raw mut byte, 1) }?;
                }
                PinMode::Write => self.ask_and_wait(|wait| Request::Own { page: page.number, wait }, &[])?,
            }
        }
        Err(CacheError::Usage(format!(
            "page {} of the segment of {of} cannot be pinned: several nodes write it in turn, or it is pinned too \
             often; try again later, or use put and get",
            offset >> partition.size.shift()
        )))
    }

    /// Pauses for a time that no other node takes as well: nodes that want to pin a page which is served in place all end each other's rows
    /// of reads, and only a row makes the page leave its home.
    fn let_others_pin(&self, round: u32) -> Result<(), CacheError> {
        let seed = (u64::from(self.core.endpoint.me().0) << 32) | u64::from(round);
        let share = seed.wrapping_add(1).wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 56;
        let pause = PAUSE * (1 << (round - 1).min(6)) * share as u32 / 256;
        self.core.endpoint.wait_until(Some(Instant::now() + pause), || false)?;
        Ok(())
    }
}
