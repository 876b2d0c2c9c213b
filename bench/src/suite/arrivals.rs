//! Messages that benchmarks send each other, and what has come of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use vgas::Builder;
use vgas_rma::message::Payload;

/// Answered by [`PONG`], with the same arguments.
pub(super) const PING: u8 = 128;
/// Counted, as are the others.
pub(super) const PONG: u8 = 129;
/// One of many, without an answer.
pub(super) const FLOOD: u8 = 130;
/// That all of a flood have come.
pub(super) const FLOOD_END: u8 = 131;

/// Number of arrivals of each.
#[derive(Default)]
pub(super) struct Arrivals {
    pongs: AtomicU64,
    floods: AtomicU64,
    flood_ends: AtomicU64,
}

impl Arrivals {
    /// Adds the handlers of these messages to a job.
    pub fn counted(builder: Builder) -> (Builder, Arc<Self>) {
        let arrivals = Arc::new(Self::default());
        let counting = |count: fn(&Self) -> &AtomicU64| {
            let arrivals = arrivals.clone();
            move || {
                count(&arrivals).fetch_add(1, Ordering::Relaxed);
            }
        };
        let (pongs, floods, ends) =
            (counting(|all| &all.pongs), counting(|all| &all.floods), counting(|all| &all.flood_ends));
        let builder = builder
            .handler(PING, |token, arguments, _| token.check(token.reply(PONG, arguments, Payload::Short)))
            .handler(PONG, move |_, _, _| pongs())
            .handler(FLOOD, move |_, _, _| floods())
            .handler(FLOOD_END, move |_, _, _| ends());
        (builder, arrivals)
    }

    pub fn pongs(&self) -> u64 {
        self.pongs.load(Ordering::Relaxed)
    }

    pub fn floods(&self) -> u64 {
        self.floods.load(Ordering::Relaxed)
    }

    pub fn flood_ends(&self) -> u64 {
        self.flood_ends.load(Ordering::Relaxed)
    }
}
