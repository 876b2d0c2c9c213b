//! The patterns in which strings travel. Members are counted by position; every member runs the same function of its
//! operation with the same arguments, but for its own bytes. Tags keep the patterns of one operation apart.

use super::operation::Exchange;
use super::post::Tag;
use crate::fatal::fatal;
use std::sync::Arc;

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
    disseminate(exchange, first, (), |_, _| (), |()| Vec::new(), |_| ()).await
}

/// Combines a value of every member, at every member, in any order and some of them twice: `combine` must not mind.
pub(super) async fn agree<T: Clone>(
    exchange: &Exchange,
    mine: T,
    combine: impl Fn(T, T) -> T,
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> T,
) -> T {
    disseminate(exchange, tag::MEET_BEFORE, mine, combine, encode, decode).await
}

async fn disseminate<T>(
    exchange: &Exchange,
    first: Tag,
    mine: T,
    combine: impl Fn(T, T) -> T,
    encode: impl Fn(&T) -> Vec<u8>,
    decode: impl Fn(&[u8]) -> T,
) -> T {
    let (members, me) = (exchange.team.size(), exchange.team.me());
    let mut known = mine;
    let (mut step, mut round) = (1, 0);
    while step < members {
        exchange.send((me + step) % members, first + round, encode(&known));
        let heard = exchange.receive((me + members - step) % members, first + round).await;
        known = combine(known, decode(&heard));
        step *= 2;
        round += 1;
    }
    known
}

/// Gives the root's bytes to everybody, down a binomial tree: a member, counted from the root, hears from the one without
/// its lowest bit.
pub(super) async fn broadcast(exchange: &Exchange, root: u32, bytes: Option<Vec<u8>>) -> Arc<[u8]> {
    let (members, me) = (exchange.team.size(), exchange.team.me());
    let position = (me + members - root) % members;
    let member_at = |position: u32| (position + root) % members;
    let bytes: Arc<[u8]> = match bytes {
        Some(bytes) => bytes.into(),
        None => exchange.receive(member_at(position & (position - 1)), tag::DATA).await.into(),
    };
    let lowest = if position == 0 { members.next_power_of_two() } else { 1 << position.trailing_zeros() };
    let mut step = lowest / 2;
    while step > 0 {
        if position + step < members {
            exchange.send(member_at(position + step), tag::DATA, bytes.clone());
        }
        step /= 2;
    }
    bytes
}

/// Gives each member its own string of the root's; `strings` is the root's, by member.
pub(super) async fn scatter(exchange: &Exchange, root: u32, strings: Option<Vec<Vec<u8>>>) -> Vec<u8> {
    let Some(strings) = strings else { return exchange.receive(root, tag::DATA).await };
    let mut mine = Vec::new();
    for (member, string) in (0..).zip(strings) {
        if member == root {
            mine = string;
        } else {
            exchange.send(member, tag::DATA, string);
        }
    }
    mine
}

/// Collects the strings of all members at the root, by member; nothing elsewhere.
pub(super) async fn gather(exchange: &Exchange, root: u32, mine: Vec<u8>) -> Option<Vec<Vec<u8>>> {
    if exchange.team.me() != root {
        exchange.send(root, tag::DATA, mine);
        return None;
    }
    Some(collect(exchange, mine).await)
}

/// Collects the strings of all members everywhere, by member.
pub(super) async fn gather_all(exchange: &Exchange, mine: Vec<u8>) -> Vec<Vec<u8>> {
    let shared: Arc<[u8]> = mine.as_slice().into();
    for member in others(exchange) {
        exchange.send(member, tag::DATA, shared.clone());
    }
    collect(exchange, mine).await
}

/// Gives each member a string of every other: `strings` is by receiver, the result by sender.
pub(super) async fn exchange_all(exchange: &Exchange, mut strings: Vec<Vec<u8>>) -> Vec<Vec<u8>> {
    for member in others(exchange) {
        exchange.send(member, tag::DATA, std::mem::take(&mut strings[member as usize]));
    }
    let mine = std::mem::take(&mut strings[exchange.team.me() as usize]);
    collect(exchange, mine).await
}

/// The other members, beginning with the next, so that not everybody sends to the same first.
fn others(exchange: &Exchange) -> impl Iterator<Item = u32> {
    let (members, me) = (exchange.team.size(), exchange.team.me());
    (1..members).map(move |step| (me + step) % members)
}

async fn collect(exchange: &Exchange, mine: Vec<u8>) -> Vec<Vec<u8>> {
    let mut strings = vec![Vec::new(); exchange.team.size() as usize];
    strings[exchange.team.me() as usize] = mine;
    for member in others(exchange) {
        strings[member as usize] = exchange.receive(member, tag::DATA).await;
    }
    strings
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
    let (mut step, mut round) = (1, 0);
    while step < members {
        if me & step != 0 {
            exchange.send(me - step, tag::UP + round, mine);
            return if me == root { Some(exchange.receive(0, tag::DATA).await) } else { None };
        }
        if me + step < members {
            let right = exchange.receive(me + step, tag::UP + round).await;
            check_length(&mine, &right);
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
            let heard = exchange.receive(me - step, tag::PREFIX + round).await;
            check_length(&mine, &heard);
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

fn check_length(left: &[u8], right: &[u8]) {
    if left.len() != right.len() {
        let (left, right) = (left.len(), right.len());
        fatal(format_args!("the members of a team reduce {left} and {right} bytes together"));
    }
}
