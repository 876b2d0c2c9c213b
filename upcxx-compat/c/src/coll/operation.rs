//! The life of one collective on this rank: images come, it runs, it is synchronised.

use super::arrival::Landing;
use super::departure::Text;
use super::memory::Memory;
use super::post::{self, Key, Tag, lock};
use super::team::Team;
use crate::fatal::fatal;
use crate::job;
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, TryLockError};
use std::task::{Context, Poll, Waker};
use vgas_rma::Peer;

/// What an operation does once all images of this rank have come.
pub(super) type Run = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Where a step of an operation runs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Where {
    /// In a handler of active messages.
    Handler,
    /// In a thread of the client that called this library.
    Client,
}

/// One collective on this rank.
pub(super) struct Operation {
    key: Key,
    mail: post::Box,
    run: Mutex<Option<Run>>,
    /// Something changed since the run was last looked at.
    is_stirred: AtomicBool,
    /// Calls functions of the client, which must not run in handlers.
    needs_client: AtomicBool,
    is_done: AtomicBool,
}

/// The operations that were begun here, or for which strings have come, and are not done.
static OPERATIONS: Mutex<Option<HashMap<Key, Arc<Operation>>>> = Mutex::new(None);

/// Operations that run, for [`progress`] to know whether there is anything to do.
static RUNNING: AtomicUsize = AtomicUsize::new(0);

/// The operation of that name; made when nothing of it was seen before.
pub(super) fn find(key: Key) -> Arc<Operation> {
    let mut operations = lock(&OPERATIONS);
    let made = || {
        Arc::new(Operation {
            key,
            mail: post::Box::default(),
            run: Mutex::default(),
            is_stirred: AtomicBool::new(false),
            needs_client: AtomicBool::new(false),
            is_done: AtomicBool::new(false),
        })
    };
    operations.get_or_insert_default().entry(key).or_insert_with(made).clone()
}

impl Operation {
    pub(super) fn key(&self) -> Key {
        self.key
    }

    pub(super) fn mail(&self) -> &post::Box {
        &self.mail
    }

    pub(super) fn is_done(&self) -> bool {
        self.is_done.load(Ordering::Acquire)
    }

    /// Starts it. `needs_client`: it calls functions of the client.
    pub(super) fn begin(self: &Arc<Self>, run: Run, needs_client: bool) {
        self.needs_client.store(needs_client, Ordering::Relaxed);
        *lock(&self.run) = Some(run);
        RUNNING.fetch_add(1, Ordering::Relaxed);
        self.step(Where::Client);
    }

    /// Goes as far as what has arrived allows. Whoever comes while another thread is at it leaves the work to that
    /// thread, which looks again before it goes.
    pub(super) fn step(&self, place: Where) {
        self.is_stirred.store(true, Ordering::SeqCst);
        if place == Where::Handler && self.needs_client.load(Ordering::Relaxed) {
            self.mail.flush(self.key);
            return;
        }
        while self.is_stirred.load(Ordering::SeqCst) {
            let mut run = match self.run.try_lock() {
                Ok(run) => run,
                Err(TryLockError::Poisoned(poisoned)) => PoisonError::into_inner(poisoned),
                Err(TryLockError::WouldBlock) => return,
            };
            self.is_stirred.store(false, Ordering::SeqCst);
            // Not begun here, or done: strings wait for their operation.
            let Some(future) = run.as_mut() else { return };
            let is_ready = future.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready();
            let is_sent = self.mail.flush(self.key);
            if is_ready && is_sent {
                *run = None;
                drop(run);
                return self.end();
            }
            if is_ready {
                // Only its last strings are left to be sent: it goes on as a future that is done already.
                *run = Some(Box::pin(std::future::ready(())));
            }
        }
    }

    fn end(&self) {
        lock(&OPERATIONS).get_or_insert_default().remove(&self.key);
        RUNNING.fetch_sub(1, Ordering::Relaxed);
        self.is_done.store(true, Ordering::Release);
        // Threads may wait for it while it was this one that moved it.
        job::joined().runtime.endpoint().notify_local();
    }
}

/// Moves all operations on: called where the client polls or waits.
pub(crate) fn progress() {
    if RUNNING.load(Ordering::Relaxed) == 0 {
        return;
    }
    let running: Vec<_> = lock(&OPERATIONS).iter().flat_map(|all| all.values().cloned()).collect();
    for operation in running {
        operation.step(Where::Client);
    }
}

/// What an algorithm does with its operation: exchange strings with the members of the team.
#[derive(Clone)]
pub(super) struct Exchange {
    pub team: Arc<Team>,
    pub operation: Arc<Operation>,
}

impl Exchange {
    fn peer(&self, member: u32) -> Peer {
        let rank = self.team.rank_of(member);
        job::joined().runtime.layout().peer_of_rank(rank)
    }

    /// Sends a string to a member. It does not wait; the operation is not done before it has left.
    pub(super) fn send(&self, to: u32, tag: Tag, text: impl Into<Text>) {
        self.operation.mail().send(self.peer(to), self.operation.key(), tag, text.into());
    }

    fn expect(&self, from: u32, tag: Tag, at: Landing, bytes: usize) {
        self.operation.mail().expect(self.operation.key(), self.peer(from), tag, at, bytes);
    }

    /// Waits for a string that is expected.
    async fn arrival(&self, from: u32, tag: Tag) -> Landing {
        let peer = self.peer(from);
        std::future::poll_fn(|_| match self.operation.mail().take(peer, tag) {
            Some(at) => Poll::Ready(at),
            None => Poll::Pending,
        })
        .await
    }

    /// Waits for the string of a member, of so many bytes.
    pub(super) async fn receive(&self, from: u32, tag: Tag, bytes: usize) -> Vec<u8> {
        self.expect_aside(from, tag, bytes);
        self.arrived_aside(from, tag).await
    }

    /// As [`Exchange::expect_into`], into memory of the library's own.
    pub(super) fn expect_aside(&self, from: u32, tag: Tag, bytes: usize) {
        self.expect(from, tag, Landing::Own(Vec::new()), bytes);
    }

    /// Waits for a string that is expected aside.
    pub(super) async fn arrived_aside(&self, from: u32, tag: Tag) -> Vec<u8> {
        match self.arrival(from, tag).await {
            Landing::Own(string) => string,
            Landing::Client(_) => fatal("a string of a collective was put where nobody waits for it"),
        }
    }

    /// Says that the string of a member, of so many bytes, goes there. Whoever expects several says so before waiting for
    /// the first: then they come together.
    pub(super) fn expect_into(&self, from: u32, tag: Tag, to: Memory, bytes: usize) {
        self.expect(from, tag, Landing::Client(to), bytes);
    }

    /// Waits for a string that is expected in the client's memory.
    pub(super) async fn arrived(&self, from: u32, tag: Tag) {
        self.arrival(from, tag).await;
    }
}
