//! Landings: memory of this process that long messages of one peer may fill, for a layer above that asks for bytes by messages of its
//! own.
//!
//! They are to such a layer what the answers to gets are to this one: the bytes come straight to the
//! program's memory, and nowhere else. The requester names the landing in its request ([`Landing::number`]);
//! the answer is a long message to [`Destination::Operation`](crate::message::Destination::Operation) of that
//! number, and the handler of the answer ends the landing. A peer's message is complete before its next one,
//! so anything it sends after the answer finds no landing.

use super::Endpoint;
use crate::address::Peer;

/// Memory that a peer's long messages may fill until it is ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[must_use = "it stays open until it is ended"]
pub struct Landing(u64);

impl Landing {
    /// Its number, by which the peer names it in [`Destination::Operation`](crate::message::Destination::Operation).
    pub fn number(self) -> u64 {
        self.0
    }
}

impl Endpoint {
    /// Returns true if long messages between this peer and this endpoint may go to landings: if the conduit
    /// between them has [`Capabilities::long_to_operation`](crate::conduit::Capabilities::long_to_operation).
    pub fn may_land(&self, peer: Peer) -> bool {
        self.carrier_of(peer).is_some_and(|conduit| conduit.capabilities().long_to_operation)
    }

    /// Lets long messages of `from`, which is to be asked next, fill the bytes at `to`. Bytes from it that do
    /// not fit, and any from another peer, are an error that names the sender, and nothing is written.
    ///
    /// # Safety
    /// `to` is valid for writes of `bytes` bytes, and is not used otherwise until [`Endpoint::end_landing`]
    /// has returned.
    pub unsafe fn start_landing(&self, from: Peer, to: *mut u8, bytes: u64) -> Landing {
        Landing(self.operations.start(from, to, bytes, 1).id())
    }

    /// Ends a landing: when this returns, no message writes there any more. In the handler of an answer of the peer; elsewhere only
    /// when the endpoint has failed. A second call does nothing.
    pub fn end_landing(&self, landing: Landing) {
        if let Some(operation) = self.operations.find(landing.0) {
            self.end_operation(&operation);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RmaError;
    use crate::address::Layout;
    use crate::conduit::Sent;
    use crate::conduit::sim::{SimNetwork, SimOptions};
    use crate::endpoint::{EndpointSpec, handler_index::USER};
    use crate::message::{Arrived, Destination, Payload, Source};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{Arc, Mutex};

    /// Goal: bytes land in their place, from the requested peer, until the handler of the answer has ended
    /// the landing; before that nothing beside it, and after it nothing at all.
    #[test]
    fn bytes_land_from_one_peer_until_it_has_answered() {
        let layout = Layout::blocks(3, 3);
        // Messages to a landing: sender, place and size; and if it is accepted.
        let cases = [(0, 8, true), (4, 8, false), (u64::MAX, 8, false), (0, 17, false)];
        for (sender, at, bytes, is_right) in
            cases.map(|(at, bytes, right)| (1, at, bytes, right)).into_iter().chain([(2, 0, 8, false)])
        {
            let network = SimNetwork::new(1, layout.peers(), SimOptions::default()).expect("a network");
            let heard = Arc::new(AtomicUsize::new(0));
            let open: Arc<Mutex<Option<Landing>>> = Arc::default();
            let endpoints = [0, 1, 2].map(|peer| {
                let (me, network) = (Peer(peer), Some(network.conduit(Peer(peer))));
                let endpoint =
                    Endpoint::new(EndpointSpec { layout: layout.clone(), me, domain: None, network });
                let endpoint = endpoint.expect("an endpoint");
                let (heard, open) = (heard.clone(), open.clone());
                let answer = move |token: &super::super::Token<'_>, _: &[u32], payload: Arrived<'_>| {
                    let Arrived::Long(_, bytes) = payload else { panic!("not long") };
                    heard.fetch_add(bytes, Ordering::Relaxed);
                    if let Some(landing) = *open.lock().unwrap() {
                        token.endpoint().end_landing(landing);
                    }
                };
                endpoint.register(USER, answer).expect("a free index");
                endpoint.open();
                endpoint
            });
            assert!(endpoints[0].may_land(Peer(1)));
            let mut memory = [7u8; 24];
            // SAFETY: the memory outlives the network, and is read when nothing is in flight.
            let landing = unsafe { endpoints[0].start_landing(Peer(1), memory[8..].as_mut_ptr(), 8) };
            *open.lock().unwrap() = Some(landing);
            let from = &endpoints[sender as usize];
            let source = vec![1u8; bytes];
            let to = Destination::Operation { id: landing.number(), offset: at };
            let send = || from.try_request(Peer(0), USER, &[], Payload::Long(Source::of(&source), to));
            let deliver = || {
                (0..100).find_map(|_| {
                    network.step();
                    endpoints[0].poll().err()
                })
            };
            assert_eq!(send().expect("room"), Sent::Accepted);
            let refused = |error: Option<RmaError>| {
                assert!(
                    matches!(error, Some(RmaError::Protocol { peer: Some(Peer(by)), .. }) if by == sender)
                );
            };
            if is_right {
                assert!(deliver().is_none());
                assert_eq!(
                    (heard.load(Ordering::Relaxed), &memory[..8], &memory[16..]),
                    (8, &[7; 8][..], &[7; 8][..])
                );
                assert_eq!(memory[8..16], [1; 8]);
                memory = [9; 24];
                // It is over.
                assert_eq!(send().expect("room"), Sent::Accepted);
                refused(deliver());
                assert_eq!(memory, [9; 24]);
            } else {
                refused(deliver());
                assert_eq!((heard.load(Ordering::Relaxed), memory), (0, [7; 24]));
            }
            endpoints[0].end_landing(landing);
        }
    }
}
