//! Set-up over a network without connections of its own, or with some that must be made first: over a
//! connection of the tcp conduit, which proves the job's key before it carries anything, and afterwards
//! reports peers that end. The messages on it are *notices*. Their content is the conduit's ([`Notice`]);
//! this file delivers them whole, in order, from their proven sender, without waiting for any.

use crate::address::Peer;
use crate::conduit::tcp::TcpConduit;
use crate::conduit::{Conduit, Sent, Traffic};
use crate::error::{Result, RmaError};
use crate::message::{Delivery, Destination, Direction, Message, Payload, Sink};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

/// A message between the two sides of a conduit.
pub(in crate::conduit) trait Notice: Sized {
    /// Encodes its kind and its words: few enough for a short message, and with the conduit's version among
    /// them.
    fn encode(&self) -> (u8, Vec<u32>);

    /// From what a peer has sent.
    ///
    /// # Errors
    /// The error, in words.
    fn decode(number: u8, words: &[u32]) -> std::result::Result<Self, String>;
}

/// Bytes of a notice, such as an address, as its words. A multiple of four.
pub(in crate::conduit) fn words_of(bytes: &[u8]) -> impl Iterator<Item = u32> + '_ {
    bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word))
}

/// The bytes that these words are; none unless they are as many.
pub(in crate::conduit) fn bytes_of<const N: usize>(words: &[u32]) -> Option<[u8; N]> {
    let mut bytes = [0; N];
    let (places, rest) = bytes.as_chunks_mut::<4>();
    if places.len() != words.len() || !rest.is_empty() {
        return None;
    }
    for (place, word) in places.iter_mut().zip(words) {
        *place = word.to_le_bytes();
    }
    Some(bytes)
}

/// One side's way to tell the other ones.
pub(in crate::conduit) struct Notices<N> {
    /// Also reports peers that have ended.
    pub(in crate::conduit) tcp: TcpConduit,
    outgoing: Mutex<VecDeque<(Peer, N)>>,
    pending: AtomicUsize,
}

impl<N: Notice> Notices<N> {
    pub(in crate::conduit) fn new(tcp: TcpConduit) -> Self {
        Self { tcp, outgoing: Mutex::new(VecDeque::new()), pending: AtomicUsize::new(0) }
    }

    /// Returns true if notices wait to be sent.
    pub(in crate::conduit) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    /// Tells a peer something, now or as soon as it is connected.
    pub(in crate::conduit) fn tell(&self, to: Peer, notice: N) -> Result<()> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner).push_back((to, notice));
        self.flush()
    }

    /// Sends what waits. An error is the loss of the peer it names, whose notices are dropped.
    fn flush(&self) -> Result<()> {
        let mut outgoing = self.outgoing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut waiting = VecDeque::new();
        let mut result = Ok(());
        while let Some((to, notice)) = outgoing.pop_front() {
            if waiting.iter().any(|(peer, _)| *peer == to) {
                waiting.push_back((to, notice));
                continue;
            }
            let (handler, arguments) = notice.encode();
            let message = Message {
                direction: Direction::Request,
                handler,
                arguments: &arguments,
                payload: Payload::Short,
            };
            match self.tcp.try_send(to, &message) {
                Ok(Sent::Accepted) => {}
                Ok(Sent::Busy) => waiting.push_back((to, notice)),
                Err(error) => result = result.and(Err(error)),
            }
        }
        self.pending.store(waiting.len(), Ordering::Release);
        *outgoing = waiting;
        result
    }

    /// Sends and hears notices. An [`RmaError::Protocol`] returned by `hear` is blamed on the sender.
    pub(in crate::conduit) fn poll(&self, hear: &dyn Fn(Peer, N) -> Result<()>) -> Result<()> {
        if self.is_pending() {
            self.flush()?;
        }
        let ears = Ears { hear, trouble: RefCell::default() };
        let polled = self.tcp.poll(&ears, Traffic::Everything);
        ears.trouble.into_inner().map_or(Ok(()), Err).and(polled.map(|_| ()))
    }
}

pub(in crate::conduit) struct Ears<'a, N> {
    hear: &'a dyn Fn(Peer, N) -> Result<()>,
    /// Error of this side. The tcp conduit would blame it on the sender of the notice.
    trouble: RefCell<Option<RmaError>>,
}

impl<N: Notice> Sink for Ears<'_, N> {
    fn destination(&self, from: Peer, _: Destination, bytes: usize) -> Result<*mut u8, RmaError> {
        Err(RmaError::Protocol { peer: Some(from), what: format!("{bytes} bytes instead of a notice") })
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError> {
        let notice = N::decode(delivery.handler, delivery.arguments)
            .map_err(|what| RmaError::Protocol { peer: Some(delivery.from), what })?;
        match (self.hear)(delivery.from, notice) {
            Err(error) if !matches!(error, RmaError::Protocol { .. }) => {
                self.trouble.borrow_mut().get_or_insert(error);
                Ok(())
            }
            heard => heard,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address::Layout;
    use crate::conduit::tcp::TcpSpec;
    use crate::key::JobKey;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    /// Those of a network whose endpoints have names of 16 bytes.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Named {
        At([u8; 16]),
        Ready,
    }

    impl Notice for Named {
        fn encode(&self) -> (u8, Vec<u32>) {
            match self {
                Self::At(name) => (1, words_of(name).collect()),
                Self::Ready => (2, Vec::new()),
            }
        }

        fn decode(number: u8, words: &[u32]) -> std::result::Result<Self, String> {
            match number {
                1 => bytes_of(words).map(Self::At).ok_or_else(|| format!("a name of {} words", words.len())),
                2 if words.is_empty() => Ok(Self::Ready),
                _ => Err(format!("a notice {number}")),
            }
        }
    }

    fn pair() -> [Notices<Named>; 2] {
        let layout = Layout::blocks(2, 2);
        let key = JobKey::generate().unwrap();
        let listeners: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
        let mut listeners = listeners.into_iter();
        [0, 1].map(|me| {
            let (layout, key, addresses) = (layout.clone(), key.clone(), addresses.clone());
            let listener = listeners.next().unwrap();
            let spec = TcpSpec { layout, me: Peer(me), key, listener, addresses };
            Notices::new(TcpConduit::new(spec).unwrap())
        })
    }

    /// Polls both until the second one returns the wanted value.
    fn until<T>([a, b]: &[Notices<Named>; 2], mut wanted: impl FnMut(&Notices<Named>) -> Option<T>) -> T {
        let start = Instant::now();
        loop {
            a.poll(&|_, _| Ok(())).unwrap();
            if let Some(found) = wanted(b) {
                return found;
            }
            assert!(start.elapsed() < Duration::from_secs(40), "the notice does not come");
        }
    }

    /// Goal: notices arrive in order and name their sender, even those sent before there was a connection.
    #[test]
    fn notices_come_in_order() {
        let both = pair();
        let said: Vec<Named> =
            (0..100).map(|n| if n % 3 == 2 { Named::Ready } else { Named::At([n; 16]) }).collect();
        said.iter().for_each(|notice| both[0].tell(Peer(1), *notice).unwrap());
        let heard = RefCell::new(Vec::new());
        until(&both, |b| {
            b.poll(&|from, notice| {
                assert_eq!(from, Peer(0));
                heard.borrow_mut().push(notice);
                Ok(())
            })
            .unwrap();
            (heard.borrow().len() >= said.len()).then_some(())
        });
        assert_eq!(*heard.borrow(), said);
        assert!(!both[0].is_pending());
    }

    /// Goal: a side that has no room for a connection, or a card of another kind, says so, and does not blame
    /// the connecting peer.
    #[test]
    fn trouble_of_this_side_is_no_fault_of_the_peer() {
        let both = pair();
        let heard = |error: fn() -> RmaError| {
            both[0].tell(Peer(1), Named::Ready).unwrap();
            until(&both, |b| b.poll(&|_, _| Err(error())).err())
        };
        let refused = heard(|| RmaError::Refused("no room".into()));
        assert!(matches!(refused, RmaError::Refused(_)), "{refused}");
        let refused = heard(|| RmaError::Protocol { peer: Some(Peer(0)), what: "it was ready twice".into() });
        assert!(matches!(refused, RmaError::Protocol { peer: Some(Peer(0)), .. }), "{refused}");
    }

    /// Goal: an invalid notice is the sender's fault, with the reason.
    #[test]
    fn nonsense_is_the_senders_fault() {
        let both = pair();
        let message =
            Message { direction: Direction::Request, handler: 1, arguments: &[7], payload: Payload::Short };
        let refused = until(&both, |b| {
            let _ = both[0].tcp.try_send(Peer(1), &message).unwrap();
            b.poll(&|_, notice| panic!("{notice:?}")).err()
        });
        let RmaError::Protocol { peer: Some(Peer(0)), what } = &refused else { panic!("{refused}") };
        assert!(what.contains("a name of 1 words"), "{what}");
    }

    #[test]
    fn words_are_bytes_of_one_length_only() {
        let bytes = [1, 2, 3, 4, 5, 6, 7, 8];
        let words: Vec<u32> = words_of(&bytes).collect();
        assert_eq!(bytes_of(&words), Some(bytes));
        assert_eq!(
            (bytes_of::<12>(&words), bytes_of::<4>(&words), bytes_of::<6>(&words)),
            (None, None, None)
        );
    }
}
