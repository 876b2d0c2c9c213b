//! The conformance suite over the conduits that need no set-up of their own, shared memory and the simulated network, and over
//! hooked ones.

#[path = "tcp_support/fabric.rs"]
mod tcp;

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tcp::TcpFabric;
use vgas_rma::conduit::Conduit;
use vgas_rma::conduit::conformance::{Fabric, HookedFabric, SimFabric, SmpFabric, SmpNetworkFabric, run};
use vgas_rma::conduit::hook::{Count, Delay, Hooked, Link, Loss, Trace};
use vgas_rma::conduit::sim::SimOptions;
use vgas_rma::conduit::smp::RING_BYTES_MIN;
use vgas_rma::endpoint::{Endpoint, Token};
use vgas_rma::message::{Arrived, Destination, NOTE_HANDLER, Payload, Source};
use vgas_rma::{Layout, Peer, RegionId, RmaError};
use vgas_shm::Mapping;

#[test]
fn smp() {
    run(&SmpFabric::default());
}

/// Goal: between ranks that share memory, a medium payload lies at a multiple of 16 in the memory of its sender, so that it is copied
/// once; what a handler has taken as private bytes is not changed by later writes there. A payload to oneself is private.
#[test]
fn a_medium_is_handed_over_where_it_lies() {
    const HANDLER: u8 = 200;
    let fabric = SmpFabric::default();
    let layout = fabric.layout(2);
    let seen: Arc<Mutex<Vec<(usize, bool)>>> = Arc::default();
    let endpoints = fabric.connect(&layout, 4096).into_iter().map(|spec| {
        let endpoint = Endpoint::new(spec).expect("an endpoint");
        let (me, seen) = (endpoint.me(), seen.clone());
        let take = move |token: &Token<'_>, arguments: &[u32], payload: Arrived<'_>| {
            let Arrived::Medium(bytes) = payload else { panic!("not medium") };
            let (private, place) = (bytes.as_slice(), bytes.in_place());
            assert_eq!(place.is_some(), token.from() != me);
            if let Some(place) = place {
                assert!(
                    place.addr().is_multiple_of(16) && !private.as_ptr_range().contains(&place.cast_const())
                );
                // SAFETY: a handler may write there.
                unsafe { std::ptr::write_bytes(place, 0xee, bytes.len()) };
            }
            let is_right = private.iter().all(|&byte| byte == 7) && *bytes == *private;
            seen.lock().unwrap().push((arguments.len(), is_right && private.len() == bytes.len()));
        };
        endpoint.register(HANDLER, take).expect("a free index");
        endpoint.open();
        endpoint
    });
    let endpoints: Vec<_> = endpoints.collect();
    let source = vec![7; endpoints[0].medium_bytes_max()];
    // More than a ring holds, so that payloads lie over headers of earlier laps.
    let sizes = [0, 1, 8, 16, 48, 49, 64, 100, 512, 4096, 40_000, source.len()];
    for (round, bytes) in sizes.into_iter().cycle().take(20 * sizes.len()).enumerate() {
        let arguments = vec![9; round % 17];
        for to in &endpoints {
            let payload = Payload::Medium(Source::of(&source[..bytes]));
            endpoints[0].request(to.me(), HANDLER, &arguments, payload).expect("room");
            to.poll().expect("no failure");
        }
        let came = std::mem::take(&mut *seen.lock().unwrap());
        assert_eq!(came, vec![(arguments.len(), true); endpoints.len()], "{bytes} bytes");
    }
}

/// Rings of the smallest size are full, and wrap, all the time.
#[test]
fn smp_with_small_rings() {
    run(&SmpFabric { ring_bytes: RING_BYTES_MIN });
}

#[test]
fn sim() {
    run(&SimFabric { seed: 1, ranks_per_node: 1, options: SimOptions::default() });
}

/// Shared memory within nodes and a network between them: barriers have leaders, gets are answered in mediums.
#[test]
fn sim_with_several_ranks_a_node() {
    let options = SimOptions { long_to_operation: false, reorder_classes: false, ..SimOptions::default() };
    run(&SimFabric { seed: 2, ranks_per_node: 2, options });
}

/// All hooks around one another: a link that takes time inside, what watches outside. Nothing that holds without them may
/// fail with them.
fn hooked<F: Fabric>(inner: F, link: Link) -> impl Fabric {
    let wrap = move |network: Arc<dyn Conduit>, me: Peer, layout: &Layout| -> Arc<dyn Conduit> {
        let delayed = Arc::new(Delay::new(network, link).expect("a delay"));
        let lossy = Hooked::new(delayed, Arc::new(Loss::new().expect("a loss"))).expect("a hook");
        let traced = Hooked::new(Arc::new(lossy), Arc::new(Trace::new(me))).expect("a hook");
        let counts = Arc::new(Count::new(layout.peers()));
        Arc::new(Hooked::new(Arc::new(traced), counts).expect("a hook"))
    };
    HookedFabric { inner, name: "hooked", wrap }
}

#[test]
fn smp_as_the_network() {
    run(&SmpNetworkFabric);
}

#[test]
fn hooked_smp() {
    run(&hooked(
        SmpNetworkFabric,
        Link { latency: Duration::from_micros(20), bytes_per_second: Some(4 << 30) },
    ));
}

#[test]
fn hooked_sim() {
    let sim = SimFabric { seed: 4, ranks_per_node: 1, options: SimOptions::default() };
    run(&hooked(sim, Link { latency: Duration::from_micros(20), bytes_per_second: None }));
}

#[test]
fn hooked_tcp() {
    let tcp = TcpFabric { ranks_per_node: 1 };
    run(&hooked(tcp, Link { latency: Duration::from_micros(100), bytes_per_second: Some(1 << 30) }));
}

/// Goal: a guarded region takes what its guard expects; anything else is its sender's fault, and is not written.
#[test]
fn a_guard_refuses_what_is_not_expected() {
    let fabric = SimFabric { seed: 5, ranks_per_node: 1, options: SimOptions::default() };
    let specs = fabric.connect(&fabric.layout(2), 4096);
    let endpoints: Vec<_> = specs.into_iter().map(|spec| Endpoint::new(spec).unwrap()).collect();
    let (sender, receiver) = (&endpoints[2], &endpoints[3]);
    let memory = Mapping::anonymous("vgas-guarded", 4096).unwrap();
    let notes = Arc::new(Mutex::new(Vec::new()));
    let taken = notes.clone();
    receiver
        .register(NOTE_HANDLER, move |_, arguments, _| taken.lock().unwrap().push(arguments.to_vec()))
        .unwrap();
    receiver.expose(RegionId::BLOCKS, memory.clone()).unwrap();
    let expected = |from, offset, bytes| (from, offset, bytes) == (Peer(2), 64, 64);
    receiver.guard(RegionId::BLOCKS, Box::new(expected)).unwrap();
    for region in [RegionId::BLOCKS, RegionId(u16::MAX)] {
        assert!(matches!(receiver.guard(region, Box::new(expected)), Err(RmaError::Usage(_))), "{region:?}");
    }
    endpoints.iter().for_each(|endpoint| endpoint.open());
    let send = |index: u32| {
        let (region, owner) = (RegionId::BLOCKS, Peer(3));
        let place = Destination::Region { region, owner, offset: u64::from(index) * 64 };
        sender.request(owner, NOTE_HANDLER, &[index, 7], Payload::Long(Source::of(&[9; 64]), place)).unwrap();
    };
    let deadline = Some(Instant::now() + Duration::from_secs(30));
    send(1);
    assert!(receiver.wait_until(deadline, || !notes.lock().unwrap().is_empty()).unwrap());
    assert_eq!(*notes.lock().unwrap(), [[1, 7]]);
    send(2);
    let waited = receiver.wait_until(deadline, || false);
    assert!(matches!(waited, Err(RmaError::Protocol { peer: Some(Peer(2)), .. })), "{waited:?}");
    let mut bytes = [1; 192];
    memory.read(0, &mut bytes);
    assert!(bytes[..64] == [0; 64] && bytes[64..128] == [9; 64] && bytes[128..] == [0; 64]);
}

/// A rank that disappears: the others' waits end with an error that names it, also those that wait for somebody else.
#[test]
fn the_loss_of_a_peer_ends_every_wait() {
    let options = SimOptions { losses: vec![(20, Peer(2))], ..SimOptions::default() };
    let fabric = SimFabric { seed: 3, ranks_per_node: 1, options };
    let specs = fabric.connect(&fabric.layout(3), 4096);
    let endpoints: Vec<_> = specs.into_iter().map(|spec| Endpoint::new(spec).unwrap()).collect();
    endpoints.iter().for_each(|endpoint| endpoint.open());
    std::thread::scope(|scope| {
        for endpoint in &endpoints[..2] {
            scope.spawn(move || {
                let deadline = Instant::now() + Duration::from_secs(30);
                let waited = endpoint.wait_until(Some(deadline), || false);
                assert!(matches!(waited, Err(RmaError::PeerLost { peer: Peer(2), .. })), "{waited:?}");
                let sent = endpoint.request(Peer(2), 200, &[], Payload::Short);
                assert!(matches!(sent, Err(RmaError::PeerLost { peer: Peer(2), .. })), "{sent:?}");
            });
        }
    });
}
