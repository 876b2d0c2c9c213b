//! Barriers: a number of parties that continue once all have come.

use crate::heap::LIBRARY;
use serde::{Deserialize, Serialize};
use std::collections::HashMap;
use vgas::NodeId;
use vgas::service::{Call, Home, Library, Service};

/// Request to the barriers of a node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// The caller has come to the barrier of this name, one of `parties`; answered when all have.
    Come { name: u64, parties: u32 },
}

/// Their answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    /// All have come; whether this one was the last.
    Passed(bool),
    /// This node is lost, and possibly a party that was still to come.
    Lost(u32),
    /// The others have come to a barrier of another number, or there are no waiters.
    Failed,
}

/// Those that have come to a barrier.
#[derive(Debug)]
struct Waiting {
    parties: u32,
    calls: Vec<Call>,
}

/// The service of a node's barriers.
#[derive(Debug, Default)]
pub(crate) struct BarrierService {
    waiting: HashMap<u64, Waiting>,
    lost: Option<u32>,
}

impl Service for BarrierService {
    type Request = Request;
    type Answer = Answer;
    const NAME: &'static str = "objects.barriers";
    const LIBRARY: Library = LIBRARY;

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        let Request::Come { name, parties } = request;
        if !call.is_awaited() {
            return;
        }
        let waiting = self.waiting.entry(name).or_insert(Waiting { parties, calls: Vec::new() });
        if waiting.parties != parties || self.lost.is_some() {
            if waiting.calls.is_empty() {
                self.waiting.remove(&name);
            }
            return home.answer(call, &self.lost.map_or(Answer::Failed, Answer::Lost));
        }
        if waiting.calls.len() + 1 < parties as usize {
            return waiting.calls.push(call);
        }
        for other in self.waiting.remove(&name).into_iter().flat_map(|waiting| waiting.calls) {
            home.answer(other, &Answer::Passed(false));
        }
        home.answer(call, &Answer::Passed(true));
    }

    /// Parties still to come may have been there.
    fn lost(&mut self, node: NodeId, home: &mut Home<'_, Self>) {
        self.lost = Some(node.0);
        for call in self.waiting.drain().flat_map(|(_, waiting)| waiting.calls) {
            home.answer(call, &Answer::Lost(node.0));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas::service::Trial;
    use vgas::{Layout, NodeId, Rank};

    /// Goal: a waiter for a party that may have been on a lost node is released, and no party waits from then
    /// on.
    #[test]
    fn nobody_waits_for_a_lost_node() {
        let mut trial = Trial::new(BarrierService::default(), Layout::blocks(4, 2), NodeId(0), 0);
        let come = Request::Come { name: 7, parties: 3 };
        let before = trial.call(Rank(0), &come);
        trial.lose(NodeId(1));
        let after = trial.call(Rank(1), &come);
        assert_eq!(
            [before, after].map(|call| trial.answer(call)),
            [Some(Ok(Answer::Lost(1))), Some(Ok(Answer::Lost(1)))]
        );
        assert!(trial.service().waiting.is_empty());
    }

    /// Goal: no party continues before all have come, one of them is the last, and the next round begins
    /// again; a party with another number is refused without effect.
    #[test]
    fn all_go_on_together() {
        let mut trial = Trial::new(BarrierService::default(), Layout::blocks(4, 2), NodeId(0), 0);
        let come = Request::Come { name: 7, parties: 3 };
        for _ in 0..3 {
            let calls = [0, 1].map(|rank| trial.call(Rank(rank), &come));
            let other = trial.call(Rank(3), &Request::Come { name: 7, parties: 2 });
            trial.tell(Rank(3), &come);
            assert_eq!(trial.answer(other), Some(Ok(Answer::Failed)));
            assert!(calls.iter().all(|call| trial.answer(*call).is_none()));
            let last = trial.call(Rank(3), &come);
            assert!(calls.iter().all(|call| trial.answer(*call) == Some(Ok(Answer::Passed(false)))));
            assert_eq!(trial.answer(last), Some(Ok(Answer::Passed(true))));
        }
        for parties in [0, 1] {
            let alone = trial.call(Rank(0), &Request::Come { name: 8, parties });
            assert_eq!(trial.answer(alone), Some(Ok(Answer::Passed(true))));
        }
        assert!(trial.service().waiting.is_empty());
    }
}
