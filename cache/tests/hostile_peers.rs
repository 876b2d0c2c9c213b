//! Goal: whatever a rank or another agent says to an agent, the agent ignores it or ends with a typed error that names the
//! sender; it never panics, and never touches memory that is not its own (promise 11).
//!
//! Method: a small cluster on the simulated network, with some pages cached and written; then a peer sends words drawn at
//! random, near the limits as often as anywhere, to every handler of the cache, with payloads of every kind.

mod simulation;

use proptest::prelude::*;
use simulation::cluster::{Cluster, Member};
use simulation::plan::{PAGE, Plan};
use simulation::run::prepare;
use std::sync::Arc;
use vgas_cache::page::PageIndex;
use vgas_cache::partition::Policy;
use vgas_cache::pool::{Fault, FrameId, MAPPED_PAGES_MIN, Returned};
use vgas_cache::region;
use vgas_cache::request::handler;
use vgas_cache::service::{Call, Home, Service, Services};
use vgas_rma::address::{NodeId, Peer, Rank};
use vgas_rma::endpoint::Endpoint;
use vgas_rma::message::{Destination, Payload, Source};
use vgas_shm::Change;

/// Who is hostile to the agent of node 0.
#[derive(Clone, Copy, Debug)]
enum Hostile {
    OwnRank,
    OtherRank,
    OtherAgent,
}

#[derive(Clone, Debug)]
enum Bytes {
    None,
    Medium(Vec<u8>),
    /// To an offset of the victim's frames.
    Long(u64, usize),
}

fn word() -> impl Strategy<Value = u32> {
    prop_oneof![
        8 => 0u32..20,
        1 => Just(u32::MAX),
        1 => Just(u32::MAX - 1),
        1 => Just(PAGE as u32),
        1 => Just(PAGE as u32 - 1),
        1 => Just(4 << 20),
        2 => any::<u32>(),
    ]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    let frames = 0..40 * PAGE as u64;
    prop_oneof![
        4 => Just(Bytes::None),
        3 => proptest::collection::vec(any::<u8>(), 0..40).prop_map(Bytes::Medium),
        1 => proptest::collection::vec(any::<u8>(), 4000..5000).prop_map(Bytes::Medium),
        2 => (0u64..20).prop_map(|frame| Bytes::Long(frame * PAGE as u64, PAGE)),
        1 => (frames, 0..2 * PAGE).prop_map(|(offset, bytes)| Bytes::Long(offset, bytes)),
    ]
}

fn message() -> impl Strategy<Value = (u8, Vec<u32>, Bytes)> {
    let words = prop_oneof![
        // Of the right number, with a page of the job.
        6 => (word(), 0u32..17, proptest::collection::vec(word(), 5)).prop_map(|(first, second, rest)| {
            [first, second].into_iter().chain(rest).collect()
        }),
        1 => proptest::collection::vec(word(), 0..=9),
    ];
    (handler::COHERENCE..=handler::SERVICE_ANSWER, words, bytes()).prop_map(|(index, mut words, bytes)| {
        if index <= handler::SEVERAL && words.len() == 7 {
            // Page below 2^32, a kind that exists.
            (words[1], words[2]) = (0, words[2] % 18);
            if index == handler::SEVERAL {
                words = words[2..5].to_vec();
            }
        } else if [handler::REQUEST, handler::IN_PLACE].contains(&index) {
            words.truncate(6);
        } else if index == handler::IN_PLACE_ANSWER || index == handler::SERVICE_ANSWER {
            words.truncate(2);
        } else if index == handler::SERVICE {
            words.truncate(3);
        }
        (index, words, bytes)
    })
}

/// The same said about several pages of either node, some of none, with or without a frame beside each.
fn several() -> impl Strategy<Value = (u8, Vec<u32>, Bytes)> {
    let message = (0u32..18, 0u32..3, 0u32..3).prop_map(|(kind, a, b)| vec![kind, a, b]);
    let page = prop_oneof![16 => 0u64..24, 1 => any::<u64>()];
    let frame = prop_oneof![4 => 0u32..20, 1 => Just(u32::MAX), 1 => any::<u32>()];
    (message, proptest::collection::vec((page, frame), 0..6)).prop_map(|(words, pages)| {
        let bytes =
            pages.iter().flat_map(|(page, frame)| [&page.to_le_bytes()[..], &frame.to_le_bytes()].concat());
        (handler::SEVERAL, words, Bytes::Medium(bytes.collect()))
    })
}

/// Lists of atomic updates that are nearly right, or right: of pages of either node, some of none, with counts that are theirs or not.
fn updates() -> impl Strategy<Value = (u8, Vec<u32>, Bytes)> {
    let words = || prop_oneof![6 => 0u32..3, 1 => word()];
    let update =
        (0u64..24, prop_oneof![0u32..3, Just(508), Just(511), Just(512)], 0u32..9, 0u32..5, words(), words());
    let more = prop_oneof![6 => Just(0), 1 => any::<u32>()];
    (proptest::collection::vec(update, 0..6), 0u64..24, 0u32..16, more).prop_map(
        |(list, page, slot, more)| {
            let mut bytes = Vec::new();
            for (page, offset, change, kind, low, high) in &list {
                bytes.extend_from_slice(&page.to_le_bytes());
                for word in [8 * offset, change | kind << 8, *low, *high, 0, 0] {
                    bytes.extend_from_slice(&word.to_le_bytes());
                }
            }
            let first = u64::from_le_bytes(*bytes.first_chunk().unwrap_or(&page.to_le_bytes()));
            let count = (list.len() as u32).wrapping_add(more);
            (handler::IN_PLACE, vec![4, slot, first as u32, 0, count, 0], Bytes::Medium(bytes))
        },
    )
}

/// Questions for bytes that are to land somewhere: of pages of either node, some of none, that reach behind, with a landing or not.
fn fetches() -> impl Strategy<Value = (u8, Vec<u32>, Bytes)> {
    let bytes = prop_oneof![0u32..40_000, Just(256 << 10), Just((256 << 10) + 1), Just(u32::MAX)];
    let landing = prop_oneof![6 => Just(8), 1 => 0usize..20];
    (0u32..24, prop_oneof![0u32..4100, word()], bytes, 0u32..16, landing).prop_map(
        |(page, offset, bytes, slot, landing)| {
            (handler::IN_PLACE, vec![8, slot, page, 0, offset, bytes], Bytes::Medium(vec![1; landing]))
        },
    )
}

/// Does to the memory of its node what it is told, and asks its like elsewhere.
struct Obedient;

impl Service for Obedient {
    type Request = (u32, u64, u32, u8);
    type Answer = u8;
    const NAME: &'static str = "obedient";

    fn called(&mut self, call: Call, (owner, offset, bytes, what): Self::Request, home: &mut Home<'_, Self>) {
        match what {
            0 => home.read(Rank(owner), offset, bytes, 1),
            1 => home.write(Rank(owner), offset, vec![7; bytes as usize % 10_000], 2),
            2 => home.update(Rank(owner), offset, Change::Add(1u64), 3),
            3 => home.ask(NodeId(owner), &(owner, offset, bytes, 0), 4),
            4 => return home.pass_on(call, NodeId(owner), &(owner, offset, bytes, 6)),
            5 => home.read_in_memory(Rank(owner), offset, bytes, 5),
            _ => home.call_again(),
        }
        home.answer(call, &what);
    }
}

/// Calls of that service: well-formed, of places that exist and of others.
fn calls() -> impl Strategy<Value = (u8, Vec<u32>, Bytes)> {
    let offset = prop_oneof![0u64..80_000, any::<u64>(), Just(u64::MAX), Just(8 * PAGE as u64 - 1)];
    let bytes = prop_oneof![0u32..20_000, Just(u32::MAX)];
    let kind = prop_oneof![0u32..4, (0u32..6).prop_map(|caller| 3 | caller << 8)];
    (0u32..4, offset, bytes, 0u8..8, 0u32..16, kind).prop_map(|(owner, offset, bytes, what, slot, kind)| {
        // As `postcard` has it: numbers in groups of seven bits.
        let mut words = Vec::new();
        for mut number in [u64::from(owner), offset, u64::from(bytes)] {
            while number >= 128 {
                words.push(number as u8 | 128);
                number >>= 7;
            }
            words.push(number as u8);
        }
        words.push(what);
        let name = b"obedient"
            .iter()
            .fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(*byte)).wrapping_mul(0x0100_0193));
        (handler::SERVICE, vec![slot, name, kind], Bytes::Medium(words))
    })
}

/// Two nodes with a rank each whose pages have been used.
fn cluster() -> (Cluster, Vec<Member>) {
    let mut plan = Plan::draw(7);
    (plan.nodes, plan.ranks, plan.frames, plan.partitions) = (2, 2, 16, vec![8, 8]);
    plan.kinds.truncate(1);
    (plan.named, plan.operations, plan.requests_max) = (false, 30, 64);
    plan.in_place = Some(vgas_cache::protocol::InPlaceService { enter_after: 1, leave_after: 4 });
    let (mut cluster, members) = prepare(&plan).expect("nothing goes wrong before");
    for node in &mut cluster.nodes {
        node.agents[0].set_services(Services::default().with(Obedient));
    }
    (cluster, members)
}

fn say(from: &Arc<Endpoint>, to: Peer, (index, words, bytes): &(u8, Vec<u32>, Bytes)) {
    let page = vec![0xAA; 2 * PAGE];
    let payload = match bytes {
        Bytes::None => Payload::Short,
        Bytes::Medium(bytes) => Payload::Medium(Source::of(bytes)),
        Bytes::Long(offset, bytes) => Payload::Long(
            Source::of(&page[..*bytes]),
            Destination::Region { region: region::FRAMES, owner: to, offset: *offset },
        ),
    };
    // Full, or refused on this side: then it does not arrive.
    let _ = from.try_request(to, *index, words, payload);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn an_agent_ignores_or_names_a_hostile_peer(
        hostile in prop_oneof![Just(Hostile::OwnRank), Just(Hostile::OtherRank), Just(Hostile::OtherAgent)],
        messages in proptest::collection::vec(prop_oneof![4 => message(), 1 => updates(), 1 => several(), 1 => calls(), 1 => fetches()], 1..24),
    ) {
        let (mut cluster, members) = cluster();
        let victim = members[0].agent;
        let from = match hostile {
            Hostile::OwnRank => members[0].endpoint.clone(),
            Hostile::OtherRank => members[1].endpoint.clone(),
            Hostile::OtherAgent => cluster.nodes[1].endpoint.clone(),
        };
        let name = cluster.layout.describe(from.me());
        'all: for message in &messages {
            say(&from, victim, message);
            for _ in 0..30 {
                cluster.network.step();
                cluster.milliseconds += 1;
                cluster.nodes[0].simulate_time(cluster.milliseconds * 1_000_000);
                if let Err(finding) = cluster.turn_of_all(0) {
                    let named = finding.detail.contains(&name) || finding.detail.contains(&from.me().to_string());
                    prop_assert!(named, "{finding}, but it was {name}");
                    break 'all;
                }
            }
        }
    }
}

/// Messages that once did harm: an overflow, a loop of 2^32 turns, an error that named nobody, a put that was reported done by
/// somebody who was not asked.
#[test]
fn messages_that_did_harm_are_refused_by_name() {
    let short = |index, words: &[u32]| (index, words.to_vec(), Bytes::None);
    let rank = |words: &[u32]| (Hostile::OwnRank, short(handler::REQUEST, words));
    let agent = |index, words: &[u32]| (Hostile::OtherAgent, short(index, words));
    let pieces = |count, list: &[u32], bytes: usize| {
        let list = list.iter().flat_map(|word| word.to_le_bytes());
        let data = Bytes::Medium(list.chain(std::iter::repeat_n(9, bytes)).collect());
        (Hostile::OtherAgent, (handler::IN_PLACE, vec![3, 1, 0, 0, count, 0], data))
    };
    let sizes = Bytes::Medium(vec![0; 32]);
    let cases = [
        (
            "pages at the end of the numbers",
            (Hostile::OtherAgent, (handler::SEVERAL, vec![0, 0, 0], Bytes::Medium(vec![0xff; 24]))),
        ),
        (
            "several of what comes with content",
            (Hostile::OtherAgent, (handler::SEVERAL, vec![4, 1, 0], Bytes::Medium(vec![0; 24]))),
        ),
        (
            "a page that the victim is to send to itself",
            (
                Hostile::OtherAgent,
                (handler::SEVERAL, vec![5, 0, 0], Bytes::Medium([12].into_iter().chain([0; 11]).collect())),
            ),
        ),
        ("an answer to itself", agent(handler::COHERENCE, &[7, 0, 0, 12, 0, 0, 0])),
        (
            "what is said about no page",
            (Hostile::OtherAgent, (handler::SEVERAL, vec![0, 0, 0], Bytes::Medium(vec![]))),
        ),
        ("2^32 pages at once", rank(&[0, 0, 0, 0, u32::MAX, 0])),
        ("a slot that does not exist", rank(&[3, 60_000, 0, 0, 0, 0])),
        ("a frame that is not the rank's", rank(&[2, 0, 0, 0, 3, 0])),
        ("a stored page without content", agent(handler::COHERENCE, &[0, 0, 4, 1, 0, 0, 2])),
        ("an answer that nobody waits for", agent(handler::IN_PLACE_ANSWER, &[1, 0])),
        ("more bytes than a message has", agent(handler::IN_PLACE, &[0, 1, 0, 0, 0, u32::MAX])),
        ("a piece that reaches behind its page", pieces(1, &[4090, 10], 10)),
        ("more pieces than are listed", pieces(1000, &[0, 4], 4)),
        ("pieces with more bytes than follow", pieces(2, &[0, 4, 8, 4], 4)),
        ("pieces with fewer bytes than follow", pieces(1, &[0, 4], 8)),
        ("a piece of 2^32 bytes less one", pieces(1, &[1, u32::MAX], 8)),
        ("a partition of a size that pages cannot have", rank(&[6, 0, 1, 0, 11 << 16, 0x108])),
        ("a partition that is treated in no known way", rank(&[6, 0, 1, 0, 12 << 16, 0x1_0000])),
        ("a segment beyond the last", rank(&[15, 0, 0, 0, 1024, 0])),
        ("a partition given up by an agent", agent(handler::IN_PLACE, &[7, 1, 0, 0, 1, 0])),
        ("a piece that is no piece of its page", agent(handler::IN_PLACE, &[5, 1, 0, 0, 4090, 10])),
        (
            "bytes behind the end of a segment",
            (Hostile::OtherAgent, (handler::IN_PLACE, vec![8, 1, 7, 0, 4000, 97], Bytes::Medium(vec![0; 8]))),
        ),
        (
            "more bytes than may be asked for",
            (
                Hostile::OtherAgent,
                (handler::IN_PLACE, vec![8, 1, 0, 0, 0, 1 << 19], Bytes::Medium(vec![0; 8])),
            ),
        ),
        ("bytes that are to land nowhere", agent(handler::IN_PLACE, &[8, 1, 0, 0, 0, 8])),
        (
            "content for a frame that waits for none",
            (
                Hostile::OtherAgent,
                (handler::DATA, vec![0, 0, 4, 0, 0, 2, 0], Bytes::Long(2 * PAGE as u64, PAGE)),
            ),
        ),
        (
            "the same in two words",
            (Hostile::OtherAgent, (handler::DATA, vec![2, 7], Bytes::Long(2 * PAGE as u64, PAGE))),
        ),
    ];
    for (what, (hostile, message)) in cases {
        let (mut cluster, members) = cluster();
        let from = match hostile {
            Hostile::OwnRank => &members[0].endpoint,
            _ => &cluster.nodes[1].endpoint,
        };
        let name = cluster.layout.describe(from.me());
        let peer = from.me().to_string();
        let frames: Vec<FrameId> = cluster.nodes[0].pool().frames().collect();
        let content = |cluster: &Cluster| -> Vec<Vec<u8>> {
            let mut page = vec![0; PAGE];
            let mut read = |frame| {
                cluster.nodes[0].pool().frame_span(frame).expect("of the pool").read(&mut page);
                page.clone()
            };
            frames.iter().copied().map(&mut read).collect()
        };
        let before = content(&cluster);
        say(from, members[0].agent, &message);
        let finding = (0..100).find_map(|_| {
            cluster.network.step();
            cluster.turn_of_all(0).err()
        });
        let detail = finding.unwrap_or_else(|| panic!("{what}: accepted")).detail;
        assert!(detail.contains(&name) || detail.contains(&peer), "{what}: {detail}");
        assert!(before == content(&cluster), "{what}: refused after it was written");
    }
    // Sizes of ranks that do not exist: the request fails, the agent goes on.
    let (mut cluster, members) = cluster();
    let (size, policy) = (12 << 16, Policy::default().encode());
    let words = vec![9, 0, u32::MAX, 0, size, policy];
    say(&members[0].endpoint, members[0].agent, &(handler::REQUEST, words, sizes));
    for _ in 0..100 {
        cluster.network.step();
        cluster.turn_of_all(0).expect("the agent goes on");
    }
}

/// What a rank writes into its fault slots is data, too: a page that is not its own to map or to give back, or more of them
/// than it may keep, ends with an error that names it.
#[test]
fn faults_that_would_do_harm_are_refused_by_name() {
    let maps = |page| Fault { wanted: Some(page), write: true, returned: Returned::Nothing };
    let returns = |page| Fault { wanted: None, write: false, returned: Returned::Page(page) };
    let more = (0..=u64::from(MAPPED_PAGES_MIN)).map(PageIndex).map(maps).collect();
    let cases: [(&str, Vec<Fault>); 7] = [
        ("a page of another rank's segment", vec![maps(PageIndex(8))]),
        ("a page that no segment has", vec![maps(PageIndex(1 << 50))]),
        ("a page mapped twice", vec![maps(PageIndex(0)), maps(PageIndex(0))]),
        ("more pages than may be mapped", more),
        ("a page given back that was not mapped", vec![returns(PageIndex(0))]),
        ("a page given back twice", vec![maps(PageIndex(0)), returns(PageIndex(0)), returns(PageIndex(0))]),
        ("a page that no segment has given back", vec![returns(PageIndex(u64::MAX - 2))]),
    ];
    for (what, faults) in cases {
        let (mut cluster, members) = cluster();
        let slots = members[0].pool.fault_slots();
        let mut finding = None;
        for fault in faults {
            slots.post(&slots.claim().expect("few faults"), fault);
            finding = finding.or_else(|| {
                (0..100).find_map(|_| {
                    cluster.network.step();
                    cluster.turn_of_all(0).err()
                })
            });
        }
        let detail = finding.unwrap_or_else(|| panic!("{what}: accepted")).detail;
        let name = cluster.layout.describe(members[0].endpoint.me());
        assert!(detail.contains(&name), "{what}: {detail}");
    }
}
