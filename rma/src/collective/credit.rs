//! Flow control of strings that arrive before their operation begins.
//!
//! A short string is sent unasked, as long as the unacknowledged bytes sent so stay within [`CREDIT_BYTES`];
//! any other string is offered, and sent when its receiver asks for it. So a rank that calls late holds at
//! most that much for each other rank, and a note of each operation that others have begun. Credit comes back
//! in large portions: for small strings, one message in some thousands. No member ever waits for credit: an
//! offer needs none.

use super::lock;
use crate::Peer;
use std::collections::HashMap;
use std::sync::Mutex;

/// Bytes that a rank may have sent to another unasked.
pub(super) const CREDIT_BYTES: usize = 256 << 10;

/// The longest string that is sent unasked: a few times what a round trip costs more than a copy.
pub(super) const UNASKED_MAX: usize = 8 << 10;

/// Bytes that a string costs its receiver beyond its own.
const OVERHEAD_BYTES: usize = 64;

/// Credit returned by one message.
const PORTION_BYTES: usize = CREDIT_BYTES / 2;

/// This rank's strings to and from one other.
#[derive(Default)]
struct Account {
    /// Sent there, and not known to be taken.
    spent: usize,
    /// Come from there, and not taken.
    held: usize,
    /// Taken, and not told.
    owed: usize,
}

/// The accounts with all others.
#[derive(Default)]
pub(super) struct Credit(Mutex<HashMap<Peer, Account>>);

fn cost(bytes: usize) -> usize {
    bytes + OVERHEAD_BYTES
}

impl Credit {
    fn with<R>(&self, peer: Peer, act: impl FnOnce(&mut Account) -> R) -> R {
        act(lock(&self.0).entry(peer).or_default())
    }

    /// Returns true if a string may be sent unasked; it then counts as sent.
    pub(super) fn spend(&self, to: Peer, bytes: usize) -> bool {
        self.with(to, |account| {
            let may = bytes <= UNASKED_MAX && account.spent + cost(bytes) <= CREDIT_BYTES;
            account.spent += if may { cost(bytes) } else { 0 };
            may
        })
    }

    /// There was no room for a string for which credit was spent.
    pub(super) fn not_sent(&self, to: Peer, bytes: usize) {
        self.with(to, |account| account.spent -= cost(bytes));
    }

    /// Takes credit back from a peer. False: more than they were sent.
    pub(super) fn returned(&self, from: Peer, amount: usize) -> bool {
        self.with(from, |account| {
            let is_plausible = amount <= account.spent;
            account.spent = account.spent.saturating_sub(amount);
            is_plausible
        })
    }

    /// A string has come unasked. False: more than its sender had credit for.
    pub(super) fn arrived(&self, from: Peer, bytes: usize) -> bool {
        self.with(from, |account| {
            account.held += cost(bytes);
            bytes <= UNASKED_MAX && account.held + account.owed <= CREDIT_BYTES
        })
    }

    /// A string that came unasked was taken. Some: credit to return to the sender now.
    pub(super) fn taken(&self, from: Peer, bytes: usize) -> Option<usize> {
        self.with(from, |account| {
            account.held -= cost(bytes);
            account.owed += cost(bytes);
            (account.owed >= PORTION_BYTES).then(|| std::mem::take(&mut account.owed))
        })
    }

    /// There was no room to tell; the next string tries again.
    pub(super) fn not_told(&self, from: Peer, amount: usize) {
        self.with(from, |account| account.owed += amount);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goal: whatever the mix of strings, a receiver that takes nothing holds no more than the credit, and
    /// one that takes everything lets the sender continue for ever.
    #[test]
    fn a_receiver_holds_no_more_than_the_credit() {
        let (sender, receiver) = (Credit::default(), Credit::default());
        let (me, other) = (Peer(0), Peer(1));
        let mut strings = std::collections::VecDeque::new();
        for bytes in (0..=UNASKED_MAX).cycle().step_by(37) {
            if !sender.spend(other, bytes) {
                break;
            }
            assert!(receiver.arrived(me, bytes));
            strings.push_back(bytes);
        }
        assert!(strings.iter().map(|&bytes| cost(bytes)).sum::<usize>() > CREDIT_BYTES - cost(UNASKED_MAX));
        for _ in 0..10_000 {
            let bytes = strings.pop_front().expect("there is always one");
            if let Some(amount) = receiver.taken(me, bytes) {
                assert!(sender.returned(other, amount));
            }
            while sender.spend(other, 100) {
                assert!(receiver.arrived(me, 100));
                strings.push_back(100);
            }
        }
    }

    #[test]
    fn long_strings_are_never_sent_unasked() {
        let credit = Credit::default();
        assert!(credit.spend(Peer(1), UNASKED_MAX));
        assert!(!credit.spend(Peer(1), UNASKED_MAX + 1));
        assert!(!credit.arrived(Peer(1), UNASKED_MAX + 1));
    }

    #[test]
    fn a_peer_cannot_claim_more_than_there_is() {
        let credit = Credit::default();
        assert!(credit.spend(Peer(1), 100));
        assert!(!credit.returned(Peer(1), cost(100) + 1));
        for _ in 0..CREDIT_BYTES / cost(UNASKED_MAX) {
            assert!(credit.arrived(Peer(2), UNASKED_MAX));
        }
        assert!(!credit.arrived(Peer(2), UNASKED_MAX));
    }
}
