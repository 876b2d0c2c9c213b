//! Calling the services of nodes ([`crate::service`]).

use super::remote::{Heard, RemoteOperations, RemoteState};
use super::{CacheError, Client, Core};
use crate::request::{InPlaceAnswer, handler, service_words};
use crate::service::{Service, ServiceCounts, ServiceError, decode, encode, number_of};
use serde::de::DeserializeOwned;
use std::marker::PhantomData;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use vgas_rma::address::NodeId;
use vgas_rma::conduit::Sent;
use vgas_rma::endpoint::{Endpoint, Token};
use vgas_rma::message::{Arrived, Payload, Source};

/// A call in flight. Dropped, it is made all the same, and its answer forgotten.
#[must_use = "a call has ended only when `test` has its answer"]
pub struct PendingCall<A> {
    core: Arc<Core>,
    name: &'static str,
    /// What messages call it.
    service: u32,
    node: NodeId,
    what: u32,
    request: Vec<u8>,
    asked: Option<u32>,
    /// The endpoint counts it as work until its answer comes.
    is_counted: bool,
    answer: PhantomData<fn() -> A>,
}

/// Registers what takes the answers in, for operations that this keeps track of.
pub(super) fn register(endpoint: &Endpoint, remote: &Arc<RemoteOperations>) -> Result<(), CacheError> {
    let (remote, layout) = (remote.clone(), endpoint.layout().clone());
    let take_in = move |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
        let answered = match (arguments, payload) {
            _ if layout.rank_of_peer(token.from()).is_some() => Heard::ByNobody,
            (&[number, 0], Arrived::Medium(_)) => {
                remote.answer(token.from(), number, InPlaceAnswer::Done, payload)
            }
            (&[number, code], _) => {
                let code = [code.to_le_bytes(), [0; 4]].concat();
                remote.answer(
                    token.from(),
                    number,
                    InPlaceAnswer::Failed,
                    Arrived::Medium(code.as_slice().into()),
                )
            }
            _ => Heard::ByNobody,
        };
        match answered {
            // SAFETY: it ends what the cache has begun.
            Heard::By(over) => over.settle(unsafe { token.raw_endpoint() }),
            Heard::ByNobody => {
                tracing::warn!(?arguments, "a service's answer that nobody waits for was ignored");
            }
        }
    };
    Ok(endpoint.register(handler::SERVICE_ANSWER, take_in)?)
}

/// Has those who await calls look again when a node is lost.
pub(super) fn tell_of_lost(endpoint: &Endpoint, remote: &Arc<RemoteOperations>) {
    let remote = remote.clone();
    endpoint.on_lost_node(move |_, _| remote.wakers().into_iter().for_each(Waker::wake));
}

impl Client {
    /// Calls a service of a node and waits for its answer; active messages are served meanwhile.
    ///
    /// # Errors
    /// [`CacheError::Service`] when the node does not have it, or the two do not understand each other; and when the job fails.
    pub fn call<S: Service>(&self, node: NodeId, request: &S::Request) -> Result<S::Answer, CacheError> {
        let pending = self.start_call::<S>(node, request)?;
        self.wait_for_call(pending)
    }

    /// Starts a call, for who must not wait: [`PendingCall::test`] lets it go on.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn start_call<S: Service>(
        &self,
        node: NodeId,
        request: &S::Request,
    ) -> Result<PendingCall<S::Answer>, CacheError> {
        let request = encode(request).map_err(|why| CacheError::Service { name: S::NAME, node, why })?;
        self.pending_call::<S, _>(node, service_words::CALL, request)
    }

    /// Tells a service of a node something, and does not wait for it to arrive; in order with this rank's calls of that node. What
    /// the service answers goes nowhere.
    ///
    /// # Errors
    /// [`CacheError::Service`] when the request does not fit a message, and when the job fails.
    pub fn tell<S: Service>(&self, node: NodeId, request: &S::Request) -> Result<(), CacheError> {
        let too_long = CacheError::Service { name: S::NAME, node, why: ServiceError::TooLong };
        let core = &*self.core;
        let request = match encode(request) {
            Ok(request) if request.len() <= core.medium_max && node.0 < core.layout.nodes() => request,
            _ => return Err(too_long),
        };
        let words = [0, number_of(S::NAME, S::LIBRARY), service_words::TELL];
        core.wait_for(|| {
            let payload = Payload::Medium(Source::of(&request));
            let to = core.layout.agent_of(node);
            Ok(core.endpoint.try_request(to, handler::SERVICE, &words, payload)? == Sent::Accepted)
        })
    }

    /// What a node's service was asked and has done.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn service_counts<S: Service>(&self, node: NodeId) -> Result<ServiceCounts, CacheError> {
        let pending = self.pending_call::<S, _>(node, service_words::COUNTS, Vec::new())?;
        self.wait_for_call(pending)
    }

    fn wait_for_call<A: DeserializeOwned>(&self, mut pending: PendingCall<A>) -> Result<A, CacheError> {
        let mut answer = None;
        self.core.wait_for(|| {
            answer = pending.test()?;
            Ok(answer.is_some())
        })?;
        let broken = || pending.error(ServiceError::Answer);
        answer.ok_or_else(broken)
    }

    fn pending_call<S: Service, A: DeserializeOwned>(
        &self,
        node: NodeId,
        what: u32,
        request: Vec<u8>,
    ) -> Result<PendingCall<A>, CacheError> {
        let (core, name) = (self.core.clone(), S::NAME);
        if node.0 >= core.layout.nodes() {
            let what = format!("a call of the service {name} of {node}, of {} nodes", core.layout.nodes());
            return Err(CacheError::Usage(what));
        }
        let mut pending = PendingCall {
            core,
            name,
            service: number_of(name, S::LIBRARY),
            node,
            what,
            request,
            asked: None,
            is_counted: false,
            answer: PhantomData,
        };
        if pending.request.len() > pending.core.medium_max {
            return Err(pending.error(ServiceError::TooLong));
        }
        pending.send()?;
        Ok(pending)
    }
}

impl<A> PendingCall<A> {
    fn error(&self, why: ServiceError) -> CacheError {
        CacheError::Service { name: self.name, node: self.node, why }
    }

    /// Whether it is on its way: what is sent to that node later comes after it. Else there was no room, and [`PendingCall::test`] sends it.
    pub fn is_sent(&self) -> bool {
        self.asked.is_some()
    }

    /// Sends it, if it is not on its way yet and there is room; whether it is.
    ///
    /// # Errors
    /// When the job fails.
    pub fn try_send(&mut self) -> Result<bool, CacheError> {
        if self.asked.is_none() {
            self.send()?;
        }
        Ok(self.asked.is_some())
    }

    /// Sends it, if there is room.
    fn send(&mut self) -> Result<(), CacheError> {
        let to = self.core.layout.agent_of(self.node);
        let Some(slot) = self.core.remote.begin_for_any_agent() else { return Ok(()) };
        let words = [slot, self.service, self.what];
        let payload = Payload::Medium(Source::of(&self.request));
        if self.core.endpoint.try_request(to, handler::SERVICE, &words, payload)? == Sent::Accepted {
            self.asked = Some(slot);
        } else {
            let _ = self.core.remote.abandon(slot);
        }
        Ok(())
    }
}

impl<A: DeserializeOwned> PendingCall<A> {
    /// Goes on without waiting; the answer, once it is there.
    ///
    /// # Errors
    /// As [`Client::call`].
    pub fn test(&mut self) -> Result<Option<A>, CacheError> {
        let Some(slot) = self.asked else {
            self.send()?;
            return Ok(None);
        };
        match self.core.remote.finish(slot) {
            RemoteState::Pending => {
                self.core.endpoint.check_failure()?;
                // Who was asked answers, or has passed it on: where nodes may be lost, a service passes on nothing to others.
                self.core
                    .endpoint
                    .check_peer(self.core.layout.agent_of(self.node), "waiting for its answer")?;
                Ok(None)
            }
            RemoteState::Done(bytes) => match decode(&bytes) {
                Some(answer) => Ok(Some(answer)),
                None => Err(self.error(ServiceError::Answer)),
            },
            RemoteState::Failed(code, _) => Err(self.error(ServiceError::from_code(code))),
            RemoteState::NotInPlace | RemoteState::Landed => Err(self.error(ServiceError::Answer)),
        }
    }
}

impl<A> Drop for PendingCall<A> {
    fn drop(&mut self) {
        if let Some(slot) = self.asked
            && self.core.remote.abandon(slot).waker.is_some()
        {
            self.core.endpoint.work_ended(1);
        }
    }
}

/// The answer wakes whoever awaits it, when some thread takes it in: one that polls or waits, or the endpoint's own within a
/// millisecond. Awaiting runs no handler of a program, and keeps no thread.
impl<A: DeserializeOwned> Future for PendingCall<A> {
    type Output = Result<A, CacheError>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        loop {
            if let Some(ended) = self.test().transpose() {
                return Poll::Ready(ended);
            }
            let Some(slot) = self.asked else {
                // There was no room for it. Rare, and over when messages have left.
                context.waker().wake_by_ref();
                return Poll::Pending;
            };
            // Until the answer has come, somebody looks for it.
            let is_first = !std::mem::replace(&mut self.is_counted, true);
            if is_first {
                self.core.endpoint.work_started();
            }
            let is_awaited = self.core.remote.wakes(slot, context.waker());
            // Looked at afterwards: who tells of a lost node does so after the node is gone.
            if is_awaited && !self.core.endpoint.is_gone(self.core.layout.agent_of(self.node)) {
                return Poll::Pending;
            }
            if is_first && !is_awaited {
                self.core.endpoint.work_ended(1);
            }
        }
    }
}
