//! Channels: values on their way from many senders to one receiver, as bytes, in their order.
//!
//! A channel has a number, and is known here from when it is opened until its receiver has gone. It has room
//! for a number of values; those beyond wait with the message that has brought them, which is answered when
//! they are in. Senders are counted in units, as owners of counted values are (`sync/units.rs`): when none is
//! left, the receiver is told.

use super::bytes::Bytes;
use crate::heap::LIBRARY;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, VecDeque};
use std::time::{SystemTime, UNIX_EPOCH};
use vgas::NodeId;
use vgas::service::{Call, Home, Library, Service};

/// Most bytes that wait in a channel, whatever its room.
const WAITING_BYTES_MAX: usize = 64 << 20;
/// Most bytes of a value.
const VALUE_BYTES_MAX: u32 = 2048;

/// Request to the channels of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Opens one, for values of `bytes` bytes, with room for `room`, and one unit of senders.
    Open { bytes: u32, room: u32 },
    /// Adds units of senders.
    Draw { channel: u64, units: u64 },
    /// So many units of senders are not used any more.
    Leave { channel: u64, units: u64 },
    /// Values, one after the other; answered when there was room for all. `try_only`: now or not at all.
    Send { channel: u64, count: u32, values: Bytes, try_only: bool },
    /// Requests at most `most` values; answered when there are some, or with [`Answer::Nothing`] if
    /// `try_only`.
    Receive { channel: u64, most: u32, try_only: bool },
    /// The receiver stops waiting.
    Cancel { channel: u64 },
    /// The receiver will only empty it: senders are told so.
    Close { channel: u64 },
    /// Asks for the number of channels.
    Count,
}

/// Their answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Opened(u64),
    Done,
    /// There is no room now.
    Full,
    /// There is no receiver: this number of values, these, were not taken.
    Closed(u32, Bytes),
    Values(u32, Bytes),
    /// There are none now.
    Nothing,
    /// It is empty, and has no sender left.
    Ended,
    Counted(u64),
    /// This node is lost. To a sender: the receiver was there, as far as is known, and there is no room; this
    /// number of values, these, were not taken. To a receiver, once: senders may have been there, and all
    /// that has come was taken.
    Lost(u32, u32, Bytes),
    /// The request is invalid.
    Failed,
}

impl Answer {
    /// Returns true if the answer's values, if any, are at most `most`, each of `bytes` bytes: a home's
    /// answer is not trusted.
    pub fn is_whole(&self, bytes: usize, most: usize) -> bool {
        match self {
            Self::Closed(count, Bytes(values))
            | Self::Values(count, Bytes(values))
            | Self::Lost(_, count, Bytes(values)) => {
                let count = *count as usize;
                count <= most && count.checked_mul(bytes) == Some(values.len())
            }
            _ => true,
        }
    }
}

/// Values that have no room yet.
#[derive(Debug)]
struct Waiting {
    call: Call,
    values: Vec<u8>,
    count: usize,
    /// So many of them have found room.
    taken: usize,
}

#[derive(Debug)]
struct Channel {
    /// Bytes of a value.
    bytes: usize,
    room: usize,
    senders: u64,
    is_closed: bool,
    values: VecDeque<u8>,
    count: usize,
    waiting: VecDeque<Waiting>,
    /// The waiting receiver, and the most values that it takes.
    receiver: Option<(Call, usize)>,
    /// The receiver's last known node.
    receives_at: NodeId,
    /// That node, if it is lost.
    lost_receiver: Option<NodeId>,
    /// A lost node of which the receiver has not been told.
    lost_senders: Option<NodeId>,
}

/// The service of a node's channels.
#[derive(Debug)]
pub(crate) struct ChannelService {
    next: u64,
    channels: HashMap<u64, Channel>,
}

impl Default for ChannelService {
    fn default() -> Self {
        // Numbers that an earlier job has left in a heap mean nothing: they are lower.
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos() as u64);
        Self { next: now, channels: HashMap::new() }
    }
}

impl Service for ChannelService {
    type Request = Request;
    type Answer = Answer;
    const NAME: &'static str = "objects.channels";
    const LIBRARY: Library = LIBRARY;

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        match request {
            Request::Open { bytes, room } => {
                let at = home.layout().node_of_peer(call.from());
                let answer = self.open(bytes, room, at);
                home.answer(call, &answer);
            }
            Request::Draw { channel, units } => {
                if let Some(channel) = self.channels.get_mut(&channel) {
                    channel.senders = channel.senders.saturating_add(units);
                }
                home.answer(call, &Answer::Done);
            }
            Request::Leave { channel: number, units } => {
                home.answer(call, &Answer::Done);
                if let Some(channel) = self.channels.get_mut(&number) {
                    channel.senders = channel.senders.saturating_sub(units);
                    channel.serve(home);
                }
            }
            Request::Send { channel: number, count, values: Bytes(values), try_only } => {
                let Some(channel) = self.channels.get_mut(&number).filter(|channel| !channel.is_closed)
                else {
                    return home.answer(call, &Answer::Closed(count, Bytes(values)));
                };
                let count = count as usize;
                // A message without an answer could not be told to wait.
                if !call.is_awaited() || count.checked_mul(channel.bytes) != Some(values.len()) {
                    return home.answer(call, &Answer::Failed);
                }
                if try_only && (!channel.waiting.is_empty() || channel.count + count > channel.room) {
                    // There will be no room if the receiver is lost.
                    let answer = channel
                        .lost_receiver
                        .map_or(Answer::Full, |NodeId(lost)| Answer::Lost(lost, count as u32, Bytes(values)));
                    return home.answer(call, &answer);
                }
                channel.waiting.push_back(Waiting { call, values, count, taken: 0 });
                channel.serve(home);
                channel.refuse_if_lost(home);
            }
            Request::Receive { channel: number, most, try_only } => {
                let channel = match self.channels.get_mut(&number) {
                    Some(channel) if call.is_awaited() && channel.receiver.is_none() => channel,
                    Some(_) => return home.answer(call, &Answer::Failed),
                    // A channel of an earlier job.
                    None => return home.answer(call, &Answer::Ended),
                };
                (channel.receives_at, channel.lost_receiver) =
                    (home.layout().node_of_peer(call.from()), None);
                channel.receiver = Some((call, most.max(1) as usize));
                channel.serve(home);
                if try_only && let Some((call, _)) = channel.receiver.take() {
                    home.answer(call, &Answer::Nothing);
                }
                self.forget_if_over(number);
            }
            Request::Cancel { channel } => {
                let channel = self.channels.get_mut(&channel);
                if let Some((waits, _)) = channel.and_then(|channel| channel.receiver.take()) {
                    home.answer(waits, &Answer::Nothing);
                }
                home.answer(call, &Answer::Done);
            }
            Request::Close { channel: number } => {
                if let Some(channel) = self.channels.get_mut(&number) {
                    channel.close(home);
                }
                self.forget_if_over(number);
                home.answer(call, &Answer::Done);
            }
            Request::Count => home.answer(call, &Answer::Counted(self.channels.len() as u64)),
        }
    }

    /// A receiver that waited there waits no longer; values sent from there are received. Its number of
    /// senders is unknown: the receiver is told once. A sender that waits for room is told if the receiver
    /// was there.
    fn lost(&mut self, node: NodeId, home: &mut Home<'_, Self>) {
        let layout = home.layout().clone();
        let mut channels: Vec<_> = self.channels.iter_mut().collect();
        channels.sort_unstable_by_key(|(number, _)| **number);
        for (_, channel) in channels {
            channel.receiver.take_if(|(call, _)| layout.node_of_peer(call.from()) == node);
            channel.lost_senders = Some(node);
            if channel.receives_at == node {
                channel.lost_receiver = Some(node);
                channel.waiting.retain(|waiting| layout.node_of_peer(waiting.call.from()) != node);
            }
            channel.serve(home);
            channel.refuse_if_lost(home);
        }
    }
}

impl ChannelService {
    /// One whose numbers are the same each time.
    #[cfg(any(test, fuzzing))]
    pub(super) fn numbered() -> Self {
        Self { next: 0, channels: HashMap::new() }
    }

    fn open(&mut self, bytes: u32, room: u32, receives_at: NodeId) -> Answer {
        if bytes > VALUE_BYTES_MAX {
            return Answer::Failed;
        }
        self.next += 1;
        let room = (room as usize).clamp(1, WAITING_BYTES_MAX / bytes.max(1) as usize);
        let channel = Channel {
            bytes: bytes as usize,
            room,
            senders: 1,
            is_closed: false,
            values: VecDeque::new(),
            count: 0,
            waiting: VecDeque::new(),
            receiver: None,
            receives_at,
            lost_receiver: None,
            lost_senders: None,
        };
        self.channels.insert(self.next, channel);
        Answer::Opened(self.next)
    }

    /// Forgets a channel that is closed and empty.
    fn forget_if_over(&mut self, number: u64) {
        if self.channels.get(&number).is_some_and(|channel| channel.is_closed && channel.count == 0) {
            self.channels.remove(&number);
        }
    }
}

impl Channel {
    /// Takes values in while there is room, and answers the waiting receiver.
    fn serve(&mut self, home: &mut Home<'_, ChannelService>) {
        self.take_in(home);
        if let Some((call, most)) = self.receiver.take() {
            if self.count > 0 {
                let count = most.min(self.count);
                self.count -= count;
                let values = self.values.drain(..count * self.bytes).collect();
                home.answer(call, &Answer::Values(count as u32, Bytes(values)));
                self.take_in(home);
            } else if self.senders == 0 || self.is_closed {
                home.answer(call, &Answer::Ended);
            } else if let Some(NodeId(lost)) = self.lost_senders.take() {
                home.answer(call, &Answer::Lost(lost, 0, Bytes(Vec::new())));
            } else {
                self.receiver = Some((call, most));
            }
        }
    }

    fn take_in(&mut self, home: &mut Home<'_, ChannelService>) {
        while let Some(first) = self.waiting.front_mut() {
            let count = (first.count - first.taken).min(self.room - self.count);
            let values = &first.values[first.taken * self.bytes..(first.taken + count) * self.bytes];
            self.values.extend(values);
            first.taken += count;
            self.count += count;
            if first.taken < first.count {
                return;
            }
            if let Some(first) = self.waiting.pop_front() {
                home.answer(first.call, &Answer::Done);
            }
        }
    }

    /// Answers senders that wait for room that no receiver will make.
    fn refuse_if_lost(&mut self, home: &mut Home<'_, ChannelService>) {
        let Some(NodeId(lost)) = self.lost_receiver else { return };
        for waiting in self.waiting.drain(..) {
            let rest = waiting.values[waiting.taken * self.bytes..].to_vec();
            home.answer(
                waiting.call,
                &Answer::Lost(lost, (waiting.count - waiting.taken) as u32, Bytes(rest)),
            );
        }
    }

    /// Returns values without room to their senders.
    fn close(&mut self, home: &mut Home<'_, ChannelService>) {
        self.is_closed = true;
        for waiting in self.waiting.drain(..) {
            let rest = waiting.values[waiting.taken * self.bytes..].to_vec();
            home.answer(waiting.call, &Answer::Closed((waiting.count - waiting.taken) as u32, Bytes(rest)));
        }
        if let Some((call, _)) = self.receiver.take() {
            home.answer(call, &Answer::Nothing);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas::service::Trial;
    use vgas::{Layout, NodeId, Rank};

    fn trial(bytes: u32, room: u32) -> (Trial<ChannelService>, u64) {
        let mut trial = Trial::new(ChannelService::default(), Layout::blocks(4, 2), NodeId(0), 0);
        let opened = trial.call(Rank(0), &Request::Open { bytes, room });
        let Some(Ok(Answer::Opened(channel))) = trial.answer(opened) else { panic!("it was not opened") };
        (trial, channel)
    }

    fn send(channel: u64, values: &[u8], try_only: bool) -> Request {
        Request::Send { channel, count: values.len() as u32, values: Bytes(values.to_vec()), try_only }
    }

    fn receive(channel: u64, try_only: bool) -> Request {
        Request::Receive { channel, most: 3, try_only }
    }

    /// Goal: when a node is lost, the receiver is told once, after the values that had come; a sender that
    /// waits for room is told if the receiver was there, with the values that found none, and waits again
    /// when another rank receives.
    #[test]
    fn ends_on_a_lost_node_are_waited_for_no_more() {
        let (mut trial, channel) = trial(1, 2);
        let lost = |count, rest: &[u8]| Some(Ok(Answer::Lost(1, count, Bytes(rest.to_vec()))));
        // Rank 2 receives, which is lost.
        let gone = trial.call(Rank(2), &receive(channel, false));
        let sent = trial.call(Rank(1), &send(channel, &[1, 2, 3], false));
        assert!(trial.answer(gone).is_some() && trial.answer(sent).is_some());
        let waits = trial.call(Rank(1), &send(channel, &[4, 5, 6], false));
        let there = trial.call(Rank(3), &send(channel, &[7], false));
        assert!(trial.answer(waits).is_none() && trial.answer(there).is_none());
        trial.lose(NodeId(1));
        assert_eq!((trial.answer(waits), trial.answer(there)), (lost(2, &[5, 6]), None));
        let full = trial.call(Rank(0), &send(channel, &[8], false));
        assert_eq!(trial.answer(full), lost(1, &[8]));
        let tried = trial.call(Rank(0), &send(channel, &[8], true));
        assert_eq!(trial.answer(tried), lost(1, &[8]), "trying again would not help");
        // Another rank goes on with the end that receives.
        let values = trial.call(Rank(0), &receive(channel, false));
        assert_eq!(trial.answer(values), Some(Ok(Answer::Values(2, Bytes(vec![3, 4])))));
        let none = trial.call(Rank(0), &receive(channel, false));
        assert_eq!(trial.answer(none), lost(0, &[]));
        let again = trial.call(Rank(0), &receive(channel, false));
        let one = trial.call(Rank(1), &send(channel, &[9], false));
        assert_eq!(trial.answer(again), Some(Ok(Answer::Values(1, Bytes(vec![9])))));
        assert_eq!(trial.answer(one), Some(Ok(Answer::Done)));
        let count = trial.call(Rank(0), &Request::Count);
        assert_eq!(trial.answer(count), Some(Ok(Answer::Counted(1))));
    }

    fn values(values: &[u8]) -> Option<Result<Answer, vgas::service::ServiceError>> {
        Some(Ok(Answer::Values(values.len() as u32, Bytes(values.to_vec()))))
    }

    /// Goal: values arrive in the order in which they were sent, at most `most` at once; a sender without
    /// room waits, and is answered when all of its values are in; a `try_only` request is not queued.
    #[test]
    fn values_wait_for_room_in_their_order() {
        let (mut trial, channel) = trial(1, 3);
        let first = trial.call(Rank(1), &send(channel, &[1, 2], false));
        assert_eq!(trial.answer(first), Some(Ok(Answer::Done)));
        let tried = trial.call(Rank(2), &send(channel, &[7, 8], true));
        assert_eq!(trial.answer(tried), Some(Ok(Answer::Full)));
        let second = trial.call(Rank(1), &send(channel, &[3, 4, 5, 6], false));
        let third = trial.call(Rank(3), &send(channel, &[9], false));
        let tried = trial.call(Rank(2), &send(channel, &[7], true));
        assert_eq!(trial.answer(tried), Some(Ok(Answer::Full)), "it would pass others");
        let got = trial.call(Rank(0), &receive(channel, false));
        assert_eq!(trial.answer(got), values(&[1, 2, 3]));
        assert_eq!((trial.answer(second), trial.answer(third)), (Some(Ok(Answer::Done)), None));
        let got = trial.call(Rank(0), &receive(channel, false));
        assert_eq!(trial.answer(got), values(&[4, 5, 6]));
        assert_eq!(trial.answer(third), Some(Ok(Answer::Done)));
        let got = trial.call(Rank(0), &receive(channel, true));
        assert_eq!(trial.answer(got), values(&[9]));
        let none = trial.call(Rank(0), &receive(channel, true));
        assert_eq!(trial.answer(none), Some(Ok(Answer::Nothing)));
    }

    /// Goal: a waiting receiver gets the values that come, is told that there are no senders left, or is
    /// called back.
    #[test]
    fn who_waits_hears_of_the_end() {
        let (mut trial, channel) = trial(1, 3);
        let waits = trial.call(Rank(0), &receive(channel, false));
        assert_eq!(trial.answer(waits), None);
        trial.call(Rank(1), &send(channel, &[4], false));
        assert_eq!(trial.answer(waits), values(&[4]));
        let waits = trial.call(Rank(0), &receive(channel, false));
        trial.tell(Rank(0), &Request::Cancel { channel });
        assert_eq!(trial.answer(waits), Some(Ok(Answer::Nothing)));
        trial.call(Rank(2), &Request::Draw { channel, units: 9 });
        let waits = trial.call(Rank(0), &receive(channel, false));
        trial.tell(Rank(1), &Request::Leave { channel, units: 1 });
        trial.tell(Rank(2), &Request::Leave { channel, units: 8 });
        assert_eq!(trial.answer(waits), None, "there is a sender left");
        trial.tell(Rank(3), &Request::Leave { channel, units: 1 });
        assert_eq!(trial.answer(waits), Some(Ok(Answer::Ended)));
    }

    /// Goal: when the receiver has closed, senders are told and have their values again; values taken in can
    /// still be had, and then nothing is left.
    #[test]
    fn what_is_closed_is_emptied() {
        let (mut trial, channel) = trial(1, 2);
        let waits = trial.call(Rank(1), &send(channel, &[1, 2, 3, 4], false));
        trial.tell(Rank(0), &Request::Close { channel });
        assert_eq!(trial.answer(waits), Some(Ok(Answer::Closed(2, Bytes(vec![3, 4])))));
        let late = trial.call(Rank(1), &send(channel, &[5], true));
        assert_eq!(trial.answer(late), Some(Ok(Answer::Closed(1, Bytes(vec![5])))));
        let got = trial.call(Rank(0), &receive(channel, false));
        assert_eq!(trial.answer(got), values(&[1, 2]));
        assert!(trial.service().channels.is_empty());
        let late = trial.call(Rank(1), &send(channel, &[6], false));
        assert_eq!(trial.answer(late), Some(Ok(Answer::Closed(1, Bytes(vec![6])))));
    }

    /// Goal: invalid requests are refused, whatever the numbers are, without effect. Values without bytes are
    /// counted.
    #[test]
    fn nonsense_is_refused() {
        let (mut trial, channel) = trial(0, u32::MAX);
        let none = Request::Send { channel, count: 1, values: Bytes(vec![1]), try_only: false };
        let huge = Request::Send { channel, count: u32::MAX, values: Bytes(Vec::new()), try_only: true };
        for (request, answer) in [
            (Request::Open { bytes: u32::MAX, room: 1 }, Answer::Failed),
            (none, Answer::Failed),
            (huge, Answer::Full),
            (Request::Receive { channel: 0, most: 0, try_only: false }, Answer::Ended),
            (Request::Draw { channel: 0, units: u64::MAX }, Answer::Done),
            (Request::Close { channel: 0 }, Answer::Done),
        ] {
            let call = trial.call(Rank(3), &request);
            assert_eq!(trial.answer(call), Some(Ok(answer)), "{request:?}");
        }
        let parked = trial.call(Rank(0), &receive(channel, false));
        let other = trial.call(Rank(3), &receive(channel, false));
        assert_eq!((trial.answer(parked), trial.answer(other)), (None, Some(Ok(Answer::Failed))));
        trial.tell(Rank(1), &send(channel, &[], false));
        let empty = Request::Send { channel, count: 2, values: Bytes(Vec::new()), try_only: false };
        trial.call(Rank(1), &empty);
        assert_eq!(trial.answer(parked), Some(Ok(Answer::Values(2, Bytes(Vec::new())))));
    }
}
