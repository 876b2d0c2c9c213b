//! The watch of a rank: a thread that handles requests no thread was woken for.
//!
//! While all threads of a rank compute, requests of other ranks for tasks go unheard, and wakes that were
//! left out ([`super::pool`]) are to be made good. The watch looks every two milliseconds as long as there
//! may be something to see, and otherwise sleeps without a clock until it is woken.

use super::pool::Pool;
use super::sleeper::Sleeper;
use super::travel::ask_whether;
use crate::heap::{answer_questions, drop_for_others, has_drops_to_do, has_questions};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// Between two looks: short against the tenth of a second within which load is to be balanced, long against what a look costs.
const INTERVAL: Duration = Duration::from_millis(2);

/// Looks with nothing to see before it sleeps without a clock.
const QUIET: u32 = 16;

/// Ranks more that an idle rank asks at each look.
const ASKED_MORE: usize = 8;

#[derive(Default)]
pub(super) struct Watch {
    sleeper: Sleeper,
    /// A node is lost.
    doubts: AtomicBool,
}

impl Watch {
    /// As [`Sleeper::see`].
    #[inline]
    pub fn see(&self) {
        self.sleeper.see();
    }

    /// As [`Sleeper::wake`].
    pub fn wake(&self) {
        self.sleeper.wake();
    }

    /// Has the watch ask if the run continues.
    pub fn doubt(&self) {
        self.doubts.store(true, Ordering::SeqCst);
        self.wake();
    }
}

impl Pool {
    /// Runs the watch until the run is over.
    pub fn look_after(&self) {
        let watch = &self.watch;
        watch.sleeper.begin();
        let (mut seen, mut quiet, mut asked) = (u64::MAX, 0, 0);
        while !self.is_closed() {
            if watch.doubts.swap(false, Ordering::SeqCst) {
                // An error is the endpoint's, and found by the waiting thread.
                let _ = ask_whether(self);
            }
            self.give_room();
            answer_questions();
            if self.has_idle() {
                // No other thread may look at it until all meet.
                drop_for_others();
            }
            if self.is_over() {
                self.refuse_all();
                std::thread::park_timeout(INTERVAL);
                continue;
            }
            let activity = self.activity.load(Ordering::Relaxed);
            let is_same = activity == seen;
            seen = activity;
            if self.look(is_same) {
                quiet = 0;
            } else {
                quiet += u32::from(is_same);
                if is_same && self.has_idle() {
                    asked += ASKED_MORE;
                    // An error is the endpoint's, and found by the waiting thread.
                    let _ = self.ask(asked);
                } else {
                    asked = 0;
                }
            }
            if quiet >= QUIET {
                watch.sleeper.sleep_unless(|| {
                    let is_asked = has_questions() || self.rooms.are_wanted();
                    let has_work = self.has_idle() && (self.has_work() || has_drops_to_do());
                    let doubts = watch.doubts.load(Ordering::SeqCst);
                    let may_give = self.is_anybody_hungry() && self.has_work();
                    is_asked
                        || has_work
                        || may_give
                        || doubts
                        || !self.is_attended()
                        || self.is_over()
                        || self.is_closed()
                });
                quiet = 0;
                self.give_room();
            }
            std::thread::park_timeout(INTERVAL);
        }
        watch.sleeper.end();
    }

    /// Looks once; returns true if there was something to see. `is_same`: no thread has left the endpoint
    /// since the last look.
    fn look(&self, is_same: bool) -> bool {
        if self.has_work() && self.has_idle() {
            self.wake_one();
            return true;
        }
        let is_attended = self.is_attended();
        if !is_attended {
            if is_same && self.has_benched() {
                self.call_one();
            }
            // Polls for a rank that computes.
            let _ = self.runtime.poll();
        }
        self.give(1);
        !is_attended
    }
}
