//! The network of a virtual cluster: one switch, to which each node has one cable with a rate each way and a delay.
//!
//! Virtual nodes have one machine's memory in common, and in it lies, of each node, until when its cable is
//! taken, up and down. The process that takes in a message reserves the time of its bytes on the sender's
//! uplink, and when that begins, on its own downlink, and delivers it when the last byte would have arrived.
//! So all processes of a node share its cable, and a node with many requesters is as slow as a real one; but
//! a message that waits for another node's uplink does not occupy a downlink. A cable is shared fairly, as
//! systems do (Linux's `fq_codel`): a message of one packet takes its time from the others, but does not wait
//! behind the long messages of other pairs of peers. The switch itself has room for everything.

#![forbid(unsafe_code)]

use super::unit::with_unit;
use crate::address::{Layout, NodeId, Peer};
use rustix::time::{ClockId, clock_gettime};
use std::fmt;
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use vgas_shm::Mapping;

/// Bytes of each message beside its payload: headers of the conduit and of the network below.
const OVERHEAD_BYTES: usize = 64;

/// Payload of a packet in most networks.
const PACKET_BYTES: usize = 1500;

/// The longest delay: peers take longer ones for a loss.
const DELAY_MAX_MICROS: u64 = 1_000_000;

/// The slowest cable, in bits a second.
const RATE_MIN: u64 = 1_000_000;

/// A cable. Written as `1gbit`, `1gbit,50us`, or `50us` where something else holds it back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cable {
    /// Bits a second, each way; none if this is not the limit.
    pub bits_per_second: Option<u64>,
    /// Microseconds from one node to another, through the switch.
    pub delay_micros: u64,
}

const RATES: &[(&str, u64)] = &[("kbit", 1_000), ("mbit", 1_000_000), ("gbit", 1_000_000_000)];
const TIMES: &[(&str, u64)] = &[("us", 1), ("ms", 1_000)];

impl Cable {
    /// Time that the bytes take to pass one point of it.
    pub fn transfer(&self, bytes: u64) -> Duration {
        let nanos = |rate| (u128::from(bytes) * 8_000_000_000 / u128::from(rate)) as u64;
        Duration::from_nanos(self.bits_per_second.map_or(0, nanos))
    }
}

impl FromStr for Cable {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let delay = |text: &str| with_unit(text.trim(), TIMES).filter(|&micros| micros <= DELAY_MAX_MICROS);
        if let Some(delay_micros) = delay(text) {
            return Ok(Self { bits_per_second: None, delay_micros });
        }
        let (rate, rest) = text.split_once(',').map_or((text, None), |(rate, rest)| (rate, Some(rest)));
        let rate = with_unit(rate.trim(), RATES).filter(|&rate| rate >= RATE_MIN);
        let rate = rate.ok_or("begins with no rate of at least `1mbit`")?;
        let rest = rest.map(|text| {
            delay(text).ok_or("has no delay of at most one second after the comma, such as `50us`")
        });
        Ok(Self { bits_per_second: Some(rate), delay_micros: rest.transpose()?.unwrap_or(0) })
    }
}

impl fmt::Display for Cable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(rate) = self.bits_per_second {
            let unit = RATES.iter().rev().find(|(_, factor)| rate.is_multiple_of(*factor));
            let (unit, factor) = unit.unwrap_or(&RATES[0]);
            write!(f, "{}{unit}{}", rate / factor, if self.delay_micros > 0 { "," } else { "" })?;
        }
        match self.delay_micros {
            0 if self.bits_per_second.is_some() => Ok(()),
            micros if micros > 0 && micros.is_multiple_of(1000) => write!(f, "{}ms", micros / 1000),
            micros => write!(f, "{micros}us"),
        }
    }
}

/// The switch, as one process sees it.
pub struct Switch {
    cable: Cable,
    layout: Layout,
    me: NodeId,
    /// Two words for each node: when its uplink and its downlink become free, in nanoseconds of the machine's
    /// steady clock.
    taken: Arc<Mapping>,
}

/// Now, by the clock that all processes of the machine share.
fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// Takes the next `nanos` of a cable, from `earliest` on at the earliest; returns when they begin.
fn take(word: &AtomicU64, earliest: u64, nanos: u64) -> u64 {
    let begin = |taken: u64| taken.max(earliest);
    let taken = word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |taken| Some(begin(taken) + nanos));
    begin(taken.unwrap_or(earliest))
}

impl Switch {
    /// Bytes of common memory for this many nodes.
    pub fn common_bytes(nodes: u32) -> u64 {
        u64::from(nodes) * 2 * size_of::<u64>() as u64
    }

    /// The switch of a job; none when the memory is too small for its nodes.
    pub fn new(cable: Cable, layout: Layout, me: Peer, common: Arc<Mapping>) -> Option<Self> {
        let fits = common.bytes() as u64 >= Self::common_bytes(layout.nodes());
        let me = layout.node_of_peer(me);
        fits.then_some(Self { cable, layout, me, taken: common })
    }

    fn word(&self, node: NodeId, is_down: bool) -> &AtomicU64 {
        self.taken.atomic_u64((node.0 as usize * 2 + usize::from(is_down)) * size_of::<u64>())
    }

    /// Reserves the uplink for a message that has been taken in now; returns when it begins.
    pub(super) fn up(&self, from: Peer, bytes: usize) -> Instant {
        self.reserve(self.layout.node_of_peer(from), false, bytes, Instant::now())
    }

    /// Reserves the way down for a message whose way up begins then; returns when it would have come.
    pub(super) fn down(&self, bytes: usize, up: Instant) -> Instant {
        let begin = self.reserve(self.me, true, bytes, up);
        begin
            + self.cable.transfer((bytes + OVERHEAD_BYTES) as u64)
            + Duration::from_micros(self.cable.delay_micros)
    }

    /// Reserves one way of a cable from `earliest` on at the earliest; returns when the bytes begin to pass.
    fn reserve(&self, node: NodeId, is_down: bool, bytes: usize, earliest: Instant) -> Instant {
        let bytes = bytes + OVERHEAD_BYTES;
        let nanos = self.cable.transfer(bytes as u64).as_nanos() as u64;
        // The same moment by the clock of this process and by that of all.
        let (here, now) = (Instant::now(), now());
        let ahead = earliest.saturating_duration_since(here).as_nanos() as u64;
        let late = here.saturating_duration_since(earliest).as_nanos() as u64;
        let earliest_nanos = (now + ahead).saturating_sub(late);
        let begin = take(self.word(node, is_down), earliest_nanos, nanos);
        let waits = if bytes <= PACKET_BYTES { 0 } else { begin - earliest_nanos };
        earliest + Duration::from_nanos(waits)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: the output is read back as the same, and an invalid cable is refused with the valid forms.
    #[test]
    fn cables_are_written_as_they_are_read() {
        for (text, printed) in [
            ("1gbit", "1gbit"),
            ("1000mbit, 50us", "1gbit,50us"),
            ("2500mbit,2000us", "2500mbit,2ms"),
            ("1mbit,0us", "1mbit"),
            ("2000us", "2ms"),
            ("0us", "0us"),
        ] {
            let cable: Cable = text.parse().unwrap();
            assert_eq!(cable.to_string(), printed);
            assert_eq!(printed.parse(), Ok(cable));
        }
        for text in
            ["", "1", "1gib", "999kbit", "-1gbit", "1.5gbit", "99999999999gbit", "1001ms", "50us,1gbit"]
        {
            assert!(text.parse::<Cable>().unwrap_err().contains("1mbit"), "{text}");
        }
        for text in ["1gbit,", "1gbit,50", "1gbit,1001ms", "1gbit,1us,1us"] {
            assert!(text.parse::<Cable>().unwrap_err().contains("50us"), "{text}");
        }
    }

    fn switches() -> Vec<Switch> {
        let layout = Layout::blocks(3, 3);
        let common = Mapping::anonymous("switch", Switch::common_bytes(3)).unwrap();
        let cable = "8mbit,1ms".parse().unwrap();
        let switch = |rank| Switch::new(cable, layout.clone(), Peer(rank), common.clone()).unwrap();
        (0..3).map(switch).collect()
    }

    /// Goal: messages of one node to two others pass its cable one after the other, and so do those of two to
    /// one; between other nodes nothing waits. 2000 bytes take 2 ms, and there is 1 ms of delay.
    #[test]
    fn nodes_share_their_cables_and_nothing_else() {
        let bytes = 2000 - OVERHEAD_BYTES;
        let milliseconds = |due: Instant, start: Instant| due.duration_since(start).as_secs_f64() * 1e3;
        let [zero, one, two] = &switches()[..] else { unreachable!() };
        let start = Instant::now();
        let from_zero = [one, two].map(|to| milliseconds(to.down(bytes, to.up(Peer(0), bytes)), start));
        assert!(from_zero[0] >= 3.0 && from_zero[1] >= from_zero[0] + 1.99, "{from_zero:?}");
        let [zero_two, ..] = &switches()[..] else { unreachable!() };
        let start = Instant::now();
        let from = |peer| milliseconds(zero_two.down(bytes, zero_two.up(Peer(peer), bytes)), start);
        let to_zero = [from(1), from(2)];
        assert!(to_zero[1] >= to_zero[0] + 1.99, "{to_zero:?}");
        // The way up of node 2 was free, and node 0 has got nothing yet at the first switch.
        let start = Instant::now();
        let due = milliseconds(zero.down(bytes, zero.up(Peer(2), bytes)), start);
        assert!((3.0..60_000.0).contains(&due), "{due}");
    }

    /// Goal: a message of one packet takes its time from long messages, which it does not wait for.
    #[test]
    fn packets_pass_long_messages() {
        let [_, one, two] = &switches()[..] else { unreachable!() };
        let milliseconds = |due: Instant, start: Instant| due.duration_since(start).as_secs_f64() * 1e3;
        let start = Instant::now();
        one.down(100_000, one.up(Peer(0), 100_000));
        let due = |bytes| milliseconds(two.down(bytes, two.up(Peer(0), bytes)), start);
        let [packet, long] = [1000 - OVERHEAD_BYTES, 2000 - OVERHEAD_BYTES].map(due);
        // 2 ms, and then behind 100 and that one, unless this thread was kept waiting between.
        assert!(packet < 100.0 && long >= 104.0, "{packet} {long}");
    }

    #[test]
    fn too_little_memory_is_refused() {
        let common = Mapping::anonymous("switch", 8).unwrap();
        assert!(Switch::new("1gbit".parse().unwrap(), Layout::blocks(2000, 2000), Peer(0), common).is_none());
    }
}
