//! The patterns in which strings travel. Members are counted by position; every member runs the same function of its
//! operation with the same arguments, but for its own bytes. Tags keep the patterns of one operation apart.

use super::arrival::Landing;
use super::departure::Text;
use super::operation::Exchange;
use super::view::View;

/// First tags of the patterns; rounds are added.
mod tag {
    pub const MEET_BEFORE: u32 = 0x100;
    pub const MEET_AFTER: u32 = 0x200;
    pub const DATA: u32 = 0x300;
    pub const UP: u32 = 0x400;
    pub const PREFIX: u32 = 0x500;
}

/// Time of a meeting.
#[derive(Clone, Copy)]
pub enum Meeting {
    /// Before anything is given.
    Before,
    /// After everything was taken.
    After,
}

/// Returns when all members have come: in round k a member hears of the 2^k before it.
pub async fn meet(exchange: &Exchange, meeting: Meeting) {
    let first = match meeting {
        Meeting::Before => tag::MEET_BEFORE,
        Meeting::After => tag::MEET_AFTER,
    };
    let (members, me) = (exchange.team().size(), exchange.team().me());
    let (mut step, mut round) = (1, 0);
    while step < members {
        exchange.send((me + step) % members, first + round, Vec::new().into());
        exchange.receive((me + members - step) % members, first + round, 0).await;
        step *= 2;
        round += 1;
    }
}

/// A member's part in a broadcast.
pub enum Part {
    /// The root gives this.
    Give(Text),
    /// Receives bytes of others, there.
    Take(Landing, usize),
    /// Others take as many bytes as the root has.
    TakeAny,
}

/// Broadcasts the root's bytes, down a binomial tree: a member, counted from the root, receives them from the
/// one without its lowest bit. Returns them. They stay as they are until the operation is done.
pub async fn broadcast(exchange: &Exchange, root: u32, part: Part) -> Text {
    let (members, me) = (exchange.team().size(), exchange.team().me());
    let position = (me + members - root) % members;
    let member_at = |position: u32| (position + root) % members;
    let text = match part {
        Part::Give(text) => text,
        part => {
            let parent = member_at(position & position.wrapping_sub(1));
            match part {
                Part::Take(landing, bytes) => exchange.expect(parent, tag::DATA, landing, bytes),
                _ => exchange.expect_any(parent, tag::DATA),
            }
            match exchange.arrival(parent, tag::DATA).await {
                Landing::Own(own) => own.into(),
                Landing::View(view) => Text::View(view),
            }
        }
    };
    let lowest = if position == 0 { members.next_power_of_two() } else { 1 << position.trailing_zeros() };
    let mut step = lowest / 2;
    while step > 0 {
        if position + step < members {
            exchange.send(member_at(position + step), tag::DATA, text.clone());
        }
        step /= 2;
    }
    text
}

/// Gives each other member its string: the root's part of a scatter, every member's of an all-to-all.
pub fn give_all(exchange: &Exchange, string_for: impl Fn(u32) -> Text) {
    for member in others(exchange) {
        exchange.send(member, tag::DATA, string_for(member));
    }
}

/// Takes the string of the root of a scatter.
pub async fn take(exchange: &Exchange, root: u32, to: View) {
    exchange.expect(root, tag::DATA, Landing::View(to), to.bytes());
    exchange.arrival(root, tag::DATA).await;
}

/// [`take`] of `bytes` bytes, into memory of the engine's own.
pub async fn take_aside(exchange: &Exchange, root: u32, bytes: usize) -> Vec<u8> {
    exchange.receive(root, tag::DATA, bytes).await
}

/// Gives the root of a gather its string.
pub fn give(exchange: &Exchange, root: u32, text: Text) {
    exchange.send(root, tag::DATA, text);
}

/// Collects the strings of all others, each where `place_of` says, and as long.
pub async fn collect(exchange: &Exchange, place_of: impl Fn(u32) -> View) {
    for member in others(exchange) {
        let to = place_of(member);
        exchange.expect(member, tag::DATA, Landing::View(to), to.bytes());
    }
    for member in others(exchange) {
        exchange.arrival(member, tag::DATA).await;
    }
}

/// Collects the strings of all others, of the lengths that `bytes_of` says; this member's own is empty.
pub async fn collect_aside(exchange: &Exchange, bytes_of: impl Fn(u32) -> usize) -> Vec<Vec<u8>> {
    let mut strings = vec![Vec::new(); exchange.team().size() as usize];
    for member in others(exchange) {
        exchange.expect(member, tag::DATA, Landing::Own(Vec::new()), bytes_of(member));
    }
    for member in others(exchange) {
        strings[member as usize] = exchange.arrival_aside(member, tag::DATA).await;
    }
    strings
}

/// Returns the other members, beginning with the next, so that members do not all send to the same first.
fn others(exchange: &Exchange) -> impl Iterator<Item = u32> {
    let (members, me) = (exchange.team().size(), exchange.team().me());
    (1..members).map(move |step| (me + step) % members)
}

/// Combines the strings of all members, in their order, at the root: up a binomial tree over ascending members, and from its
/// top to the root. `combine(left, right)` must be associative.
pub async fn reduce(
    exchange: &Exchange,
    root: u32,
    mut mine: Vec<u8>,
    combine: impl Fn(&[u8], &[u8]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let (members, me) = (exchange.team().size(), exchange.team().me());
    let bytes = mine.len();
    let (mut step, mut round) = (1, 0);
    while step < members {
        if me & step != 0 {
            exchange.send(me - step, tag::UP + round, mine.into());
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
    exchange.send(root, tag::DATA, mine.into());
    None
}

/// Combines the strings of the members before this one, in their order; nothing for the first. In round k a member knows
/// the 2^k before it.
pub async fn prefix(
    exchange: &Exchange,
    mine: Vec<u8>,
    combine: impl Fn(&[u8], &[u8]) -> Vec<u8>,
) -> Option<Vec<u8>> {
    let (members, me) = (exchange.team().size(), exchange.team().me());
    let bytes = mine.len();
    let mut before: Option<Vec<u8>> = None;
    let (mut step, mut round) = (1, 0);
    while step < members {
        if me + step < members {
            let known = match &before {
                Some(before) => combine(before, &mine),
                None => mine.clone(),
            };
            exchange.send(me + step, tag::PREFIX + round, known.into());
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

/// Gives all members the strings of all, of any lengths, by position: the first member gathers them, and broadcasts them as one. None:
/// the first member has sent something else.
pub(super) async fn all_gatherv(exchange: &Exchange, own: &[u8]) -> Option<Vec<Vec<u8>>> {
    let (members, me) = (exchange.team().size(), exchange.team().me());
    if me > 0 {
        exchange.send(0, tag::UP, own.to_vec().into());
        let flat = broadcast(exchange, 0, Part::TakeAny).await.into_bytes();
        return unflatten(&flat, members as usize);
    }
    let mut strings = vec![own.to_vec()];
    (1..members).for_each(|member| exchange.expect_any(member, tag::UP));
    for member in 1..members {
        strings.push(exchange.arrival_aside(member, tag::UP).await);
    }
    broadcast(exchange, 0, Part::Give(flatten(&strings).into())).await;
    Some(strings)
}

/// Strings as one, each after its length.
pub(crate) fn flatten(strings: &[Vec<u8>]) -> Vec<u8> {
    let mut flat = Vec::new();
    for string in strings {
        flat.extend_from_slice(&(string.len() as u64).to_le_bytes());
        flat.extend_from_slice(string);
    }
    flat
}

/// None: it is not this number of strings, or not only they.
pub(crate) fn unflatten(mut flat: &[u8], count: usize) -> Option<Vec<Vec<u8>>> {
    let mut strings = Vec::with_capacity(count);
    for _ in 0..count {
        let (length, rest) = flat.split_first_chunk::<8>()?;
        let (string, rest) = rest.split_at_checked(usize::try_from(u64::from_le_bytes(*length)).ok()?)?;
        strings.push(string.to_vec());
        flat = rest;
    }
    flat.is_empty().then_some(strings)
}
