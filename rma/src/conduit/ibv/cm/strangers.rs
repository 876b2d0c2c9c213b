//! Connections through librdmacm that are refused, and addresses without a listener. Skipped, visibly, if
//! there is no device, or the network of its addresses is not given.

use super::super::hostile::{BOUND, Victim, fair_get, pair_of, part};
use super::super::verbs::Reads;
use super::super::{IbvOptions, available, cm_available};
use super::*;
use crate::address::RegionId;
use crate::conduit::{Conduit, Place as Target, Sent, Traffic};
use std::time::Instant;

/// Options with the network of this machine's devices: that of the guest, or as `VGAS_TEST_IBV_NETWORK` says. None: skipped.
fn options(test: &str) -> Option<IbvOptions> {
    let guest = std::env::var_os("RXE_GUEST").map(|_| "10.9.0.0/24".to_owned());
    let network = guest.clone().or_else(|| std::env::var("VGAS_TEST_IBV_NETWORK").ok());
    match (available().and_then(|()| cm_available()), network) {
        (Ok(()), Some(network)) => {
            // An emulated processor answers late.
            Some(IbvOptions { network: Some(network.parse().unwrap()), retries: 7, ..IbvOptions::default() })
        }
        (missing, _) => {
            assert!(guest.is_none(), "the guest must have what this tests: {missing:?}");
            println!("skipped: {test}: no librdmacm, or no network of RDMA devices (VGAS_TEST_IBV_NETWORK)");
            None
        }
    }
}

/// Makes the first conduit connect to the second, until one of them has an error; which, and the error.
fn error_of([a, b]: [&IbvConduit; 2], mut meanwhile: impl FnMut()) -> (usize, RmaError) {
    let sinks = [Victim::new(1), Victim::new(2)];
    let target = Target { owner: Peer(1), region: RegionId::SEGMENT, offset: 0 };
    let begun = Instant::now();
    assert_eq!(a.start_get(Peer(1), target, part(0)).unwrap(), Sent::Busy, "there is no connection yet");
    loop {
        for (index, conduit) in [a, b].into_iter().enumerate() {
            if let Err(error) = conduit.poll(&sinks[index], Traffic::Everything) {
                return (index, error);
            }
        }
        meanwhile();
        assert!(begun.elapsed() < BOUND, "no error came");
    }
}

fn poll_error(conduit: &IbvConduit) -> RmaError {
    let (sink, begun) = (Victim::new(3), Instant::now());
    loop {
        if let Err(error) = conduit.poll(&sink, Traffic::Everything) {
            return error;
        }
        assert!(begun.elapsed() < BOUND, "no error came");
    }
}

/// Connects to a conduit's listener with these bytes, while the conduit polls; why it was refused.
fn refusal(victim: &IbvConduit, sink: &Victim, bytes: &[u8]) -> String {
    let channel = Channel::new().unwrap();
    let id = Id::new(&channel).unwrap();
    let door = victim.manager.as_ref().unwrap().address;
    id.resolve_address(SocketAddr::new(door.ip(), 0), door, LOOKING_MAX).unwrap();
    let begun = Instant::now();
    loop {
        victim.poll(sink, Traffic::Everything).unwrap();
        match channel.next() {
            Some((_, News::AddressResolved)) => id.resolve_route(LOOKING_MAX).unwrap(),
            Some((_, News::RouteResolved)) => id.connect(77, Reads { asked: 1, answered: 1 }, bytes).unwrap(),
            Some((_, News::Failed(reason))) => return reason,
            Some((_, News::Accepted(_))) => panic!("a stranger was let in"),
            Some(_) | None => assert!(begun.elapsed() < BOUND, "nobody answers a stranger"),
        }
    }
}

/// Goal: a stranger without the token that was told to a peer over its tcp connection gets no queue pair, nor
/// with a used one; and a refused stranger disturbs no connection.
#[test]
fn strangers_are_refused_and_peers_are_served() {
    let Some(options) = options("strangers_are_refused_and_peers_are_served") else { return };
    let [a, b] = pair_of([options.clone(), options]);
    let sinks = [Victim::new(1), Victim::new(2)];
    let request = |peer: u32, token: &[u8]| [&peer.to_le_bytes(), token].concat();
    let strangers = |token: &[u8]| {
        for bytes in [
            vec![],
            vec![1; 7],
            request(0, &[0; 32]),
            request(0, token),
            request(1, &[9; 32]),
            request(u32::MAX, &[]),
        ] {
            let reason = refusal(&b, &sinks[1], &bytes);
            assert!(reason.contains("refused"), "{bytes:?}: {reason}");
        }
    };
    strangers(&[5; 32]);
    fair_get("after strangers", [&a, &b], [&sinks[0], &sinks[1]]);
    let used = a.manager.as_ref().unwrap().with(Peer(1), |call| call.door.unwrap().token);
    strangers(used.unwrap().as_bytes());
    fair_get("after strangers who have heard a token", [&a, &b], [&sinks[0], &sinks[1]]);
}

/// Goal: the accepting side proves that it is the peer, too.
#[test]
fn somebody_else_at_the_peers_address_is_not_talked_to() {
    let Some(options) = options("somebody_else_at_the_peers_address_is_not_talked_to") else { return };
    let [a, b] = pair_of([options.clone(), options]);
    // It has not got what was told to the peer.
    let forge = || {
        let wrong = Token::from_bytes([7; 32]);
        let manager = b.manager.as_ref().unwrap();
        let _ = manager.with(Peer(0), |call| call.door.iter_mut().for_each(|door| door.token = wrong));
    };
    let (who, error) = error_of([&a, &b], forge);
    assert!(who == 0 && matches!(error, RmaError::PeerLost { peer: Peer(1), .. }), "{who}: {error}");
    assert!(error.to_string().contains("somebody else"), "{error}");
    let told = poll_error(&b);
    assert!(matches!(told, RmaError::PeerLost { peer: Peer(0), .. }), "{told}");
}

/// Goal: an address without a host, and one without a listener, are the loss of the peer, for both sides,
/// soon.
#[test]
fn an_address_without_the_peer_is_its_loss() {
    let Some(options) = options("an_address_without_the_peer_is_its_loss") else { return };
    for (nowhere, why) in [(Some([10, 9, 0, 200]), "has its address"), (None, "nobody listens")] {
        if nowhere.is_some() && std::env::var_os("RXE_GUEST").is_none() {
            println!("skipped: an address that nobody has: unknown in this network");
            continue;
        }
        let [a, mut b] = pair_of([options.clone(), options.clone()]);
        let address = &mut b.manager.as_mut().unwrap().address;
        match nowhere {
            Some(nowhere) => address.set_ip(nowhere.into()),
            None => address.set_port(9),
        }
        let address = *address;
        let begun = Instant::now();
        let (who, error) = error_of([&a, &b], || {});
        assert!(who == 0 && matches!(error, RmaError::PeerLost { peer: Peer(1), .. }), "{who}: {error}");
        let said = error.to_string();
        let parts = [why, "rank 1", "connecting", &address.to_string()];
        assert!(parts.iter().all(|part| said.contains(part)), "{said}");
        assert!(begun.elapsed() < LOOKING_MAX + Duration::from_secs(20), "after {:?}", begun.elapsed());
        let told = poll_error(&b);
        assert!(matches!(told, RmaError::PeerLost { peer: Peer(0), .. }), "{told}");
    }
}

/// Goal: an impossible setting is refused with the available values.
#[test]
fn a_network_without_this_machine_is_refused() {
    let Some(options) = options("a_network_without_this_machine_is_refused") else { return };
    let refused = |network: &str, device: Option<&str>| {
        let made = Manager::new(Peer(0), network.parse().unwrap(), (device, None), 0);
        match made.err() {
            Some(RmaError::Refused(what)) => what,
            other => panic!("{other:?}"),
        }
    };
    let nowhere = refused("192.0.2.0/24", None);
    assert!(nowhere.contains("192.0.2.0/24") && nowhere.contains("127.0.0.1 (lo)"), "{nowhere}");
    let no_card = refused("127.0.0.0/8", None);
    assert!(no_card.contains("no RDMA device") && no_card.contains("127.0.0.1"), "{no_card}");
    let network = options.network.unwrap();
    let other = refused(&network.to_string(), Some("mlx5_99"));
    assert!(other.contains("is of port"), "{other}");
}

/// Goal: a setting that one side has alone is named.
#[test]
fn a_network_of_one_side_alone_is_refused() {
    let Some(options) = options("a_network_of_one_side_alone_is_refused") else { return };
    for with_network in 0..2 {
        let mut both = [options.clone(), options.clone()];
        both[1 - with_network].network = None;
        let conduits = pair_of(both);
        let (_, error) = error_of([&conduits[0], &conduits[1]], || {});
        assert!(
            matches!(error, RmaError::Refused(_)) && error.to_string().contains("ibv.network"),
            "{error}"
        );
    }
}
