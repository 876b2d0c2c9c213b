//! Goal: the prediction is of the protocol that ships, the same for the same seed, and of the machine that was told.

use super::cluster::Plan;
use super::machine::Rating;
use super::programs;
use super::simulate::{self, Seen};
use vgas_cache::pool::Counter;

fn rating() -> Rating {
    Rating {
        link: Some("1gbit,50us".parse().unwrap()),
        drive: Some("200MiB,50k".parse().unwrap()),
        message_ns: 2000,
        page_ns: 20_000,
        page_bytes: 64 << 10,
        cores: 0,
    }
}

fn plan(nodes: u32) -> Plan {
    let rating = rating();
    Plan { seed: 1, nodes, frames: 32, pages: 0, owners: 1, cooperative: true, in_place: true, rating }
}

/// All that a row can be made of.
fn all(seen: &Seen) -> String {
    format!("{seen:?}")
}

/// Goal: the same seed gives the same run, to the nanosecond and the message, in each figure.
#[test]
fn a_seed_determines_what_is_predicted() {
    let scan = |seed, at_random| all(&simulate::scan(&Plan { seed, ..plan(6) }, 80, 1, at_random).unwrap());
    for at_random in [false, true] {
        assert_eq!(scan(3, at_random), scan(3, at_random));
    }
    let share = || all(&simulate::share(&plan(5), 9).unwrap());
    assert_eq!(share(), share());
    let product = || {
        let gemm = super::growth::product_plan(640, 4, 64 << 10, 16 << 20).unwrap();
        let product = programs::Product { plan: &gemm, page_bytes: 64 << 10, panels: 3, gflops: 50.0 };
        all(&simulate::multiply(&Plan { frames: 256, ..plan(4) }, &product).unwrap())
    };
    assert_eq!(product(), product());
}

/// Goal: messages are those of the protocol's own stories, `cold_read` and `read_served_by_forwarder`: both
/// of two nodes request one page at once; the other node asks and the home answers from NVMe; then that node
/// sends it to the home's own node, on the home's request. Four in all, since what a node says to itself is
/// no message between nodes.
#[test]
fn messages_are_those_of_the_protocol() {
    let seen = simulate::scan(&plan(2), 1, 1, false).unwrap();
    let counted = [Counter::GetMisses, Counter::FromNvm, Counter::FromPeer, Counter::Forwards];
    assert_eq!(counted.map(|counter| seen.counters.get(counter)), [2, 1, 1, 1], "{seen:?}");
    let barrier = 2;
    assert_eq!(seen.messages - barrier, 2 + 2, "{seen:?}");
    // A put of another node into a page that is served in place: there and back. The home's own are hits.
    let puts = 20;
    let seen = simulate::share(&plan(3), puts).unwrap();
    let barriers = 2 * 3;
    assert_eq!(seen.counters.get(Counter::InPlaceServed), 2 * puts, "{seen:?}");
    assert_eq!(seen.messages, 2 * 2 * puts + barriers, "{seen:?}");
}

/// Goal: a barrier takes a message of each rank in each of as many steps as its logarithm.
#[test]
fn a_barrier_has_as_many_steps_as_its_logarithm() {
    for (nodes, steps) in [(2, 1), (4, 2), (5, 3), (16, 4)] {
        let seen = simulate::meet(&plan(nodes), 10).unwrap();
        assert_eq!(seen.messages, u64::from(nodes) * steps * 10);
    }
}

/// Goal: a faster link helps where the link is the limit, by as much as it is faster; and hardly where it is not.
#[test]
fn twice_the_link_is_twice_the_rate_where_it_is_the_limit() {
    let time = |link: &str, drive: &str| {
        let rating =
            Rating { link: Some(link.parse().unwrap()), drive: Some(drive.parse().unwrap()), ..rating() };
        let plan = Plan { cooperative: false, rating, ..plan(8) };
        simulate::scan(&plan, 80, 1, false).unwrap().ns as f64
    };
    let by_link = time("1gbit,50us", "2000MiB") / time("2gbit,50us", "2000MiB");
    assert!((1.8..2.1).contains(&by_link), "{by_link}");
    let by_drive = time("10gbit,50us", "20MiB") / time("20gbit,50us", "20MiB");
    assert!((0.95..1.15).contains(&by_drive), "{by_drive}");
}

/// Goal: a processor that needs longer for a message makes puts that are served in place slower, which all pass the home's.
#[test]
fn a_slower_processor_is_slower() {
    let time = |message_ns| {
        let rating = Rating { message_ns, ..rating() };
        simulate::share(&Plan { rating, ..plan(16) }, 20).unwrap().ns as f64
    };
    assert!(time(20_000) > 2.0 * time(5_000));
}

/// Goal: readers of more than their caches hold are as fast as their links nearly all the time, not only until the caches are full: what is
/// read ahead waits for the frames of evictions, which take as long as the pages before them on the way.
#[test]
fn a_scan_of_more_than_the_caches_keeps_links_busy() {
    let (nodes, data) = (6, 320);
    let plan = Plan { frames: 128, ..plan(nodes) };
    let seen = simulate::scan(&plan, data, 1, false).unwrap();
    let link_ns = seen.used[1..].iter().map(|used| used.link_ns[1]).min().unwrap();
    let share = link_ns as f64 / seen.ns as f64;
    assert!(share > 0.75, "the links to readers were busy for {share:.2} of the time: {seen:?}");
}

/// Goal: where all caches together hold the data, NVMe is read hardly more than once for each page, however often all nodes read all of it:
/// what the home's own rank reads before all others it gives up before they come, and its drive reads that once more.
#[test]
fn caches_that_hold_the_data_together_keep_it() {
    let (nodes, data) = (4, 640);
    let plan = Plan { frames: 256, ..plan(nodes) };
    for at_random in [false, true] {
        let seen = simulate::scan(&plan, data, 2, at_random).unwrap();
        let share = seen.counters.get(Counter::FromNvm) as f64 / data as f64;
        assert!(share < 1.6, "{share:.2} pages from NVMe for each page, at random: {at_random}");
    }
}

/// Goal: what has just been written, and NVMe has not, is read from node to node as well: its owner's link carries it hardly more than once.
#[test]
fn what_was_just_written_is_read_from_node_to_node() {
    let (nodes, data) = (8, 100);
    let plan = Plan { frames: 256, ..plan(nodes) };
    let seen = simulate::scan_written(&plan, data, false).unwrap();
    let counted = [Counter::FromHome, Counter::FromPeer].map(|counter| seen.counters.get(counter));
    assert_eq!(counted.iter().sum::<u64>(), u64::from(nodes - 1) * data, "{seen:?}");
    assert!(counted[0] <= data + data / 10, "{seen:?}");
    let without = simulate::scan_written(&Plan { cooperative: false, ..plan }, data, false).unwrap();
    assert!(without.ns > 3 * seen.ns, "{} ns without cooperation, {} with it", without.ns, seen.ns);
}
