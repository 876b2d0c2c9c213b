//! How queue pairs find each other: over a connection of the tcp conduit, which proves the job's key before it carries
//! anything, and afterwards tells of peers that end. It brings two notices each way, and a third before them where librdmacm
//! connects (see `cm`):
//!
//! ```text
//! door:  version, address, port, token
//! place: version, number of the queue pair, first packet, MTU, LID, GID, READs under way that it can ask for and answer
//!                                                                   (the other side connects, then answers with its own)
//! ready: my queue pair receives                                             (the other side may send)
//! failed: there will be no connection
//! ```

#![forbid(unsafe_code)]

use super::cm::{Door, Token};
use super::connection::lock;
use super::packet::VERSION;
use super::verbs::{Place, Reads};
use crate::address::Peer;
use crate::conduit::tcp::TcpConduit;
use crate::conduit::{Conduit, Sent, Traffic};
use crate::error::{Result, RmaError};
use crate::message::{Delivery, Destination, Direction, Message, Payload, Sink};
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};

const PLACE: u8 = 1;
const READY: u8 = 2;
const DOOR: u8 = 3;
const FAILED: u8 = 4;

/// Words of an address and a token.
const DOOR_WORDS: usize = (16 + Token::BYTES) / 4;

/// What one side tells the other.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Notice {
    /// Where its queue pair is.
    Place(Place),
    /// That it receives.
    Ready,
    /// Where it is to be connected to through librdmacm.
    Door(Door),
    /// That it could not connect.
    Failed,
}

impl Notice {
    pub(super) fn encode(&self) -> (u8, Vec<u32>) {
        match self {
            Notice::Place(place) => {
                let mut words =
                    vec![VERSION, place.number, place.first_packet, place.mtu as u32, u32::from(place.lid)];
                let (gid, _) = place.gid.as_chunks::<4>();
                words.extend(gid.iter().map(|word| u32::from_le_bytes(*word)));
                words.push(u32::from(place.reads.asked) | u32::from(place.reads.answered) << 8);
                (PLACE, words)
            }
            Notice::Ready => (READY, vec![VERSION]),
            Notice::Door(door) => {
                let address = match door.address.ip() {
                    IpAddr::V4(address) => address.to_ipv6_mapped(),
                    IpAddr::V6(address) => address,
                };
                let mut words = vec![VERSION, u32::from(door.address.port())];
                for bytes in [&address.octets()[..], door.token.as_bytes()] {
                    words.extend(bytes.as_chunks::<4>().0.iter().map(|word| u32::from_le_bytes(*word)));
                }
                (DOOR, words)
            }
            Notice::Failed => (FAILED, vec![VERSION]),
        }
    }

    pub(super) fn decode(handler: u8, words: &[u32]) -> Result<Self, String> {
        if words.first() != Some(&VERSION) {
            return Err(format!("version {:?} of the ibv conduit, this is {VERSION}", words.first()));
        }
        match (handler, words) {
            (PLACE, &[_, number, first_packet, mtu @ 1..=5, lid, a, b, c, d, reads]) if lid <= 0xFFFF => {
                let mut gid = [0; 16];
                for (bytes, word) in gid.chunks_exact_mut(4).zip([a, b, c, d]) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
                // Numbers of queue pairs and packets have 24 bits.
                if number >> 24 != 0 || first_packet >> 24 != 0 {
                    return Err(format!("a queue pair {number} that starts with packet {first_packet}"));
                }
                let [asked, answered, 0, 0] = reads.to_le_bytes() else {
                    return Err(format!("{reads} READs"));
                };
                let (mtu, lid, reads) = (mtu as i32, lid as u16, Reads { asked, answered });
                Ok(Notice::Place(Place { number, first_packet, mtu, lid, gid, reads }))
            }
            (READY, [_]) => Ok(Notice::Ready),
            (DOOR, &[_, port @ 1..=0xFFFF, ref words @ ..]) if words.len() == DOOR_WORDS => {
                let mut bytes = [0; 4 * DOOR_WORDS];
                for (bytes, word) in bytes.chunks_exact_mut(4).zip(words) {
                    bytes.copy_from_slice(&word.to_le_bytes());
                }
                let (address, token) = bytes.split_at(16);
                let half = |_| "half a door".to_owned();
                let address = Ipv6Addr::from(<[u8; 16]>::try_from(address).map_err(half)?);
                let address = SocketAddr::new(address.to_canonical(), port as u16);
                let token = token.try_into().map_err(half)?;
                Ok(Notice::Door(Door { address, token: Token::from_bytes(token) }))
            }
            (FAILED, [_]) => Ok(Notice::Failed),
            _ => Err(format!("a notice {handler} with the words {words:?}")),
        }
    }
}

pub(super) struct Bootstrap {
    pub(super) tcp: TcpConduit,
    outgoing: Mutex<VecDeque<(Peer, Notice)>>,
    pending: AtomicUsize,
}

impl Bootstrap {
    pub(super) fn new(tcp: TcpConduit) -> Self {
        Self { tcp, outgoing: Mutex::default(), pending: AtomicUsize::new(0) }
    }

    /// Whether notices wait to be sent.
    pub(super) fn is_pending(&self) -> bool {
        self.pending.load(Ordering::Acquire) > 0
    }

    /// Tells a peer something, now or as soon as it is connected.
    pub(super) fn tell(&self, to: Peer, notice: Notice) -> Result<()> {
        lock(&self.outgoing).push_back((to, notice));
        self.flush()
    }

    /// Sends what waits. An error is the loss of the peer it names, whose notices are dropped.
    fn flush(&self) -> Result<()> {
        let mut outgoing = lock(&self.outgoing);
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

    /// Sends and hears notices.
    pub(super) fn poll(&self, hear: &dyn Fn(Peer, Notice) -> Result<()>) -> Result<()> {
        if self.is_pending() {
            self.flush()?;
        }
        let ears = Ears { hear, trouble: RefCell::default() };
        let polled = self.tcp.poll(&ears, Traffic::Everything);
        ears.trouble.into_inner().map_or(Ok(()), Err).and(polled.map(|_| ()))
    }
}

struct Ears<'a> {
    hear: &'a dyn Fn(Peer, Notice) -> Result<()>,
    /// What went wrong on this side. The tcp conduit would take it for the fault of who sent the notice.
    trouble: RefCell<Option<RmaError>>,
}

impl Sink for Ears<'_> {
    fn destination(&self, from: Peer, _: Destination, bytes: usize) -> Result<*mut u8, RmaError> {
        Err(RmaError::Protocol { peer: Some(from), what: format!("{bytes} bytes instead of a notice") })
    }

    fn deliver(&self, delivery: Delivery<'_>) -> Result<(), RmaError> {
        let notice = Notice::decode(delivery.handler, delivery.arguments)
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
    use proptest::prelude::*;
    use std::net::TcpListener;
    use std::time::{Duration, Instant};

    proptest! {
        #[test]
        fn what_is_encoded_is_decoded(
            number in 0u32..1 << 24, first_packet in 0u32..1 << 24, mtu in 1i32..=5, lid: u16, gid: [u8; 16],
            asked: u8, answered: u8, port in 1u16.., token: [u8; Token::BYTES], short: bool,
        ) {
            let reads = Reads { asked, answered };
            let address = if short { IpAddr::from([10, 9, 0, gid[0]]) } else { IpAddr::from(gid).to_canonical() };
            let door = Door { address: SocketAddr::new(address, port), token: Token::from_bytes(token) };
            let place = Place { number, first_packet, mtu, lid, gid, reads };
            for notice in [Notice::Place(place), Notice::Ready, Notice::Door(door), Notice::Failed] {
                let (handler, words) = notice.encode();
                prop_assert_eq!(Notice::decode(handler, &words), Ok(notice));
                prop_assert!(Notice::decode(handler, &words[..words.len() - 1]).is_err());
                prop_assert!(Notice::decode(5, &words).is_err());
            }
        }
    }

    /// Goal: who has no room for a queue pair, or a card of another kind, says so, and does not blame who wants to connect.
    #[test]
    fn trouble_of_this_side_is_no_fault_of_the_peer() {
        let layout = Layout::blocks(2, 2);
        let key = JobKey::generate().unwrap();
        let listeners: Vec<_> = (0..4).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
        let addresses: Vec<_> = listeners.iter().map(|l| l.local_addr().unwrap()).collect();
        let mut listeners = listeners.into_iter();
        let [a, b] = [0, 1].map(|me| {
            let (layout, key, addresses) = (layout.clone(), key.clone(), addresses.clone());
            let listener = listeners.next().unwrap();
            let spec = TcpSpec { layout, me: Peer(me), key, listener, addresses };
            Bootstrap::new(TcpConduit::new(spec).unwrap())
        });
        a.tell(Peer(1), Notice::Ready).unwrap();
        let start = Instant::now();
        let heard = |error: fn() -> RmaError| loop {
            a.poll(&|_, _| Ok(())).unwrap();
            if let Err(error) = b.poll(&|_, _| Err(error())) {
                break error;
            }
            assert!(start.elapsed() < Duration::from_secs(40), "the notice does not come");
        };
        let refused = heard(|| RmaError::Refused("no room".into()));
        assert!(matches!(refused, RmaError::Refused(_)), "{refused}");
        a.tell(Peer(1), Notice::Ready).unwrap();
        let refused = heard(|| RmaError::Protocol { peer: Some(Peer(0)), what: "it was ready twice".into() });
        assert!(matches!(refused, RmaError::Protocol { peer: Some(Peer(0)), .. }), "{refused}");
    }

    #[test]
    fn another_version_is_refused() {
        assert!(Notice::decode(READY, &[VERSION]).is_ok());
        assert!(Notice::decode(READY, &[VERSION + 1]).unwrap_err().contains("version"));
    }
}
