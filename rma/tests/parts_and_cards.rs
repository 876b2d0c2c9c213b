//! What an endpoint says of a further pinned segment to a conduit whose device reads and writes memory by itself, without such a
//! device: which bytes it may register, and when it has to give them back.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use vgas_rma::conduit::smp;
use vgas_rma::conduit::{Capabilities, Conduit, Sent, Traffic};
use vgas_rma::domain::{Domain, DomainSpec, RegionSpec};
use vgas_rma::endpoint::{Endpoint, EndpointSpec};
use vgas_rma::error::Result;
use vgas_rma::message::{Message, Sink};
use vgas_rma::{Layout, Peer, Rank, RegionId};
use vgas_shm::Span;

const REGION_BYTES: u64 = 1 << 20;

/// A conduit that reaches nobody, and notes what it has to forget.
struct Card {
    capabilities: Capabilities,
    never: OwnedFd,
    forgotten: Mutex<Vec<(Peer, RegionId)>>,
    offered: Mutex<Vec<(RegionId, usize)>>,
}

impl Card {
    fn new() -> Arc<Self> {
        let capabilities = Capabilities {
            medium_bytes_max: 4096,
            long_bytes_max: 4096,
            ordered: true,
            long_to_operation: true,
            load_store: false,
            one_sided: true,
            atomics: false,
            polls_through_kernel: false,
        };
        let never = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
        Arc::new(Self { capabilities, never, forgotten: Mutex::default(), offered: Mutex::default() })
    }

    fn has_forgotten(&self, owner: Peer, region: RegionId) -> bool {
        self.forgotten.lock().unwrap().contains(&(owner, region))
    }
}

// SAFETY: it brings nothing.
unsafe impl vgas_rma::conduit::Trusted for Card {}

impl Conduit for Card {
    fn name(&self) -> &'static str {
        "card"
    }

    fn capabilities(&self) -> &Capabilities {
        &self.capabilities
    }

    fn reaches(&self, _: Peer) -> bool {
        false
    }

    fn try_send(&self, _: Peer, _: &Message<'_>) -> Result<Sent> {
        Ok(Sent::Busy)
    }

    fn offer(&self, region: RegionId, memory: Span) {
        self.offered.lock().unwrap().push((region, memory.bytes()));
    }

    fn forget(&self, owner: Peer, region: RegionId) {
        self.forgotten.lock().unwrap().push((owner, region));
    }

    fn poll(&self, _: &dyn Sink, _: Traffic) -> Result<usize> {
        Ok(0)
    }

    fn wait_descriptor(&self) -> BorrowedFd<'_> {
        self.never.as_fd()
    }

    fn arm(&self) -> bool {
        true
    }

    fn disarm(&self) {}
}

/// Goal: a card gets a part's bytes and no others, and has given them back when the owner's detach returns; another part of the
/// same name is other memory. Method: a rank and its agent, each with such a conduit.
#[test]
fn cards_register_a_part_and_give_it_back() {
    let (layout, members) = (Layout::blocks(1, 1), vec![Peer(0), Peer(1)]);
    let ring_bytes = smp::RING_BYTES_DEFAULT;
    let control_bytes = smp::control_bytes(members.len(), ring_bytes);
    let regions = vec![RegionSpec { owner: Peer(0), region: RegionId::SEGMENT, bytes: REGION_BYTES }];
    let spec = DomainSpec { members, control_bytes, ring_bytes, regions, common_bytes: 0 };
    let domain = Arc::new(Domain::create(spec).unwrap());
    let cards = [Card::new(), Card::new()];
    let [rank, agent] = [0, 1].map(|me| {
        let (layout, domain) = (layout.clone(), Some(domain.clone()));
        let network = Some(cards[me as usize].clone() as Arc<dyn Conduit>);
        Endpoint::new(EndpointSpec { layout, me: Peer(me), domain, network }).unwrap()
    });
    agent.serve_segments().unwrap();
    rank.open();
    agent.open();
    let done = AtomicBool::new(false);
    let region = RegionId(RegionId::FURTHER.0 + 5);
    let part = (region, Rank(0));
    let granted = || agent.registrable(Peer(7), Peer(0), region);
    std::thread::scope(|scope| {
        scope.spawn(|| agent.wait_until(None, || done.load(Ordering::SeqCst)).unwrap());
        rank.attach_segment(100).unwrap();
        assert!(granted().is_none(), "nothing is attached");
        for bytes in [5000, 70_000] {
            rank.attach_part(region, bytes).unwrap();
            let memory = granted().expect("a part to register");
            let at = REGION_BYTES - bytes.next_multiple_of(4096);
            assert_eq!((memory.bytes(), memory.offset()), (bytes as usize, at as usize));
            let mut last = [1];
            rank.get(part, bytes - 1, &mut last).unwrap();
            assert_eq!(last, [0], "something is left of the one before");
            memory.write(&vec![7; bytes as usize]);
            rank.get(part, bytes - 1, &mut last).unwrap();
            assert_eq!(last, [7], "a device writes into other memory");
            rank.get(Rank(0), 99, &mut last).unwrap();
            assert_eq!(last, [0], "a device writes into the first segment");
            cards.iter().for_each(|card| card.forgotten.lock().unwrap().clear());
            rank.detach_part(region).unwrap();
            for card in &cards {
                assert!(card.has_forgotten(Peer(0), region), "a key of a detached part is still good");
            }
            assert!(granted().is_none(), "a part that has gone is registered");
        }
        let offered = cards[0].offered.lock().unwrap();
        assert_eq!(*offered, [(RegionId::SEGMENT, 100), (region, 5000), (region, 70_000)]);
        done.store(true, Ordering::SeqCst);
        agent.notify_local();
    });
}
