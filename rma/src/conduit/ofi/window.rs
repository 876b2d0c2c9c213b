//! Packets in the order of their numbers, whatever order a network delivers them in, and each once. Pure.

#![forbid(unsafe_code)]

use std::collections::VecDeque;

/// Packets that a side may have sent beyond those that the other one has acknowledged. As many may wait here
/// for an earlier one. Part of the version.
pub(super) const WINDOW: u32 = 256;

/// Handling of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Order {
    /// It is the next: now; afterwards [`Window::following`] may have more.
    Next,
    /// It waits for earlier ones, as a copy.
    Early,
    /// It has come before.
    Again,
    /// It is beyond any packet that the peer may send yet.
    Beyond,
}

/// See the file's page.
#[derive(Debug, Default)]
pub(super) struct Window {
    /// The number that comes next.
    next: u32,
    /// The packet with the next number, which is none, and those that follow it.
    early: VecDeque<Option<Vec<u8>>>,
}

impl Window {
    /// Takes a packet in.
    pub(super) fn arrive(&mut self, number: u32, packet: &[u8]) -> Order {
        let ahead = number.wrapping_sub(self.next);
        match ahead {
            0 => {
                self.advance();
                Order::Next
            }
            1..WINDOW => {
                let at = ahead as usize;
                if self.early.len() <= at {
                    self.early.resize(at + 1, None);
                }
                if self.early[at].is_some() {
                    return Order::Again;
                }
                self.early[at] = Some(packet.to_vec());
                Order::Early
            }
            _ if (ahead as i32) < 0 => Order::Again,
            _ => Order::Beyond,
        }
    }

    /// The next packet, if it has come early, with its number.
    pub(super) fn following(&mut self) -> Option<(u32, Vec<u8>)> {
        let packet = self.early.front_mut()?.take()?;
        let number = self.next;
        self.advance();
        Some((number, packet))
    }

    fn advance(&mut self) {
        self.next = self.next.wrapping_add(1);
        self.early.pop_front();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn packet(number: u32) -> [u8; 4] {
        number.to_le_bytes()
    }

    proptest! {
        /// Goal: whatever the order, and however often each comes, packets leave in order and once.
        #[test]
        fn packets_leave_in_order(
            first: u32, swaps in prop::collection::vec((0usize..200, 0usize..200), 0..300), repeat in prop::collection::vec(0usize..200, 0..50),
        ) {
            let mut numbers: Vec<u32> = (0..200).map(|n| first.wrapping_add(n)).collect();
            for (a, b) in swaps {
                numbers.swap(a, b);
            }
            for at in repeat {
                let number = numbers[at];
                numbers.insert((at * 7) % numbers.len(), number);
            }
            let mut window = Window { next: first, ..Window::default() };
            let mut left = Vec::new();
            for number in numbers {
                if window.arrive(number, &packet(number)) == Order::Next {
                    left.push(number);
                    while let Some((number, bytes)) = window.following() {
                        prop_assert_eq!(bytes, packet(number));
                        left.push(number);
                    }
                }
            }
            let wanted: Vec<u32> = (0..200).map(|n| first.wrapping_add(n)).collect();
            prop_assert_eq!(left, wanted);
            prop_assert!(window.early.is_empty());
        }
    }

    #[test]
    fn the_window_has_two_ends() {
        let mut window = Window::default();
        assert_eq!(window.arrive(WINDOW, &[]), Order::Beyond);
        assert_eq!(window.arrive(WINDOW - 1, &[]), Order::Early);
        assert_eq!(window.arrive(WINDOW - 1, &[]), Order::Again);
        assert_eq!(window.arrive(u32::MAX, &[]), Order::Again);
        assert_eq!(window.arrive(0, &[]), Order::Next);
        assert_eq!(window.arrive(0, &[]), Order::Again);
        assert!(window.following().is_none());
    }
}
