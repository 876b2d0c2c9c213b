//! The patterns in which strings travel. Members are counted by position; every member runs the same function of its
//! operation with the same arguments, but for its own bytes. Tags keep the patterns of one operation apart.

use super::departure::Text;
use super::memory::Memory;
use super::operation::Exchange;

/// First tags of the patterns; rounds are added.
mod tag {
    pub const MEET_BEFORE: u32 = 0x100;
    pub const MEET_AFTER: u32 = 0x200;
    pub const DATA: u32 = 0x300;
    pub const UP: u32 = 0x400;
    pub const PREFIX: u32 = 0x500;
}

/// When a meeting takes place.
#[derive(Clone, Copy)]
pub(super) enum Meeting {
    Before,
    After,
}

/// Returns when all members have come: in round k a member hears of the 2^k before it.
pub(super) async fn meet(exchange: &Exchange, meeting: Meeting) {
    let first = match meeting {
        Meeting::Before => tag::MEET_BEFORE,
        Meeting::After => tag::MEET_AFTER,
    };
    let (members, me) = (exchange.team.size(), exchange.team.me());
    let (mut step, mut round) = (1, 0);
    while step < members {
        exchange.send((me + step) % members, first + round, Vec::new());
        exchange.receive((me + members - step) % members, first + round, 0).await;
        step *= 2;
        round += 1;
    }
}

/// Gives the root's bytes to everybody, down a binomial tree: a member, counted from the root, hears from the one without
/// its lowest bit. `at` holds them at the root, and gets them elsewhere; it stays as it is from then on.
pub(super) async fn broadcast(exchange: &Exchange, root: u32, at: Memory, bytes: usize) {
    let (members, me) = (exchange.team.size(), exchange.team.me());
    let position = (me + members - root) % members;
    let member_at = |position: u32| (position + root) % members;
    if position != 0 {
        let parent = member_at(position & (position - 1));
        exchange.expect_into(parent, tag::DATA, at, bytes);
        exchange.arrived(parent, tag::DATA).await;
    }
    let lowest = if position == 0 { members.next_power_of_two() } else { 1 << position.trailing_zeros() };
    let mut step = lowest / 2;
    while step > 0 {
        if position + step < members {
            exchange.send(member_at(position + step), tag::DATA, Text::Client(at, bytes));
        }
        step /= 2;
    }
}

/// Gives each other member its string: the root's part of a scatter, everybody's of an exchange.
pub(super) fn give_all(exchange: &Exchange, string_for: impl Fn(u32) -> Text) {
    for member in others(exchange) {
        exchange.send(member, tag::DATA, string_for(member));
    }
}

/// Takes the string of the root of a scatter.
pub(super) async fn take(exchange: &Exchange, root: u32, to: Memory, bytes: usize) {
    exchange.expect_into(root, tag::DATA, to, bytes);
    exchange.arrived(root, tag::DATA).await;
}

/// [`take`], to where the library likes.
pub(super) async fn take_aside(exchange: &Exchange, root: u32, bytes: usize) -> Vec<u8> {
    exchange.receive(root, tag::DATA, bytes).await
}

/// Gives the root of a gather its string.
pub(super) fn give(exchange: &Exchange, root: u32, text: Text) {
    exchange.send(root, tag::DATA, text);
}

/// Collects the strings of all others, each in the place and of the length that `place_of` says.
pub(super) async fn collect(exchange: &Exchange, place_of: impl Fn(u32) -> (Memory, usize)) {
    for member in others(exchange) {
        let (to, bytes) = place_of(member);
        exchange.expect_into(member, tag::DATA, to, bytes);
    }
    for member in others(exchange) {
        exchange.arrived(member, tag::DATA).await;
    }
}

/// Collects the strings of all others, of the lengths that `bytes_of` says; this member's own is empty.
pub(super) async fn collect_aside(exchange: &Exchange, bytes_of: impl Fn(u32) -> usize) -> Vec<Vec<u8>> {
    let mut strings = vec![Vec::new(); exchange.team.size() as usize];
    for member in others(exchange) {
        exchange.expect_aside(member, tag::DATA, bytes_of(member));
    }
    for member in others(exchange) {
        strings[member as usize] = exchange.arrived_aside(member, tag::DATA).await;
    }
    strings
}

/// The other members, beginning with the next, so that not everybody sends to the same first.
fn others(exchange: &Exchange) -> impl Iterator<Item = u32> {
    let (members, me) = (exchange.team.size(), exchange.team.me());
    (1..members).map(move |step| (me + step) % members)
}

/// Combines the strings of all members, in their order, at the root: up a binomial tree over ascending members, and from its
/// top to the root. `combine(left, right)` must be associative.
pub(super) async fn reduce(
    exchange: &Exchange,
    root: u32,
    mut mine: Vec<u8>,
    combine: impl Fn(&[u8], &[u8]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let (members, me) = (exchange.team.size(), exchange.team.me());
    let bytes = mine.len();
    let (mut step, mut round) = (1, 0);
    while step < members {
        if me & step != 0 {
            exchange.send(me - step, tag::UP + round, mine);
            return if me == root { Some(exchange.receive(0, tag::DATA, bytes).await) } else { None };
        }
        if me + step < members {
            let right = exchange.receive(me + step, tag::UP + round, bytes).await;
            mine = combine(&mine, &right);
        }
        step *= 2;
        round += 1;
    }
    // Only the first member comes here.
    if root == me {
        return Some(mine);
    }
    exchange.send(root, tag::DATA, mine);
    None
}

/// Combines the strings of the members before this one, in their order; nothing for the first. In round k a member knows
/// the 2^k before it.
pub(super) async fn prefix(
    exchange: &Exchange,
    mine: Vec<u8>,
    combine: impl Fn(&[u8], &[u8]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let (members, me) = (exchange.team.size(), exchange.team.me());
    let bytes = mine.len();
    let mut before: Option<Vec<u8>> = None;
    let (mut step, mut round) = (1, 0);
    while step < members {
        if me + step < members {
            let known = match &before {
                Some(before) => combine(before, &mine),
                None => mine.clone(),
            };
            exchange.send(me + step, tag::PREFIX + round, known);
        }
        if me >= step {
            let heard = exchange.receive(me - step, tag::PREFIX + round, bytes).await;
            before = Some(match &before {
                Some(before) => combine(&heard, before),
                None => heard,
            });
        }
        step *= 2;
        round += 1;
    }
    before
}
