//! The tasks of a node: those that wait for a worker, and the workers that wait for one.
//!
//! A task is called for and answered when it has ended: two messages, whoever runs it. It begins on a rank of this node, or where a
//! node has asked for one because its workers had nothing to do; what has begun stays. The newest begins first here, and the oldest is
//! given away, so that those who divide their work keep the small pieces.

use super::bytes::Bytes;
use serde::{Deserialize, Serialize};
use std::collections::{HashMap, HashSet, VecDeque};
use vgas::service::{Call, Home, Service, ServiceError};
use vgas::{NodeId, Peer};

/// Nodes that are asked for a task at the same time.
const ASKED_MAX: usize = 8;

/// What the tasks of a node are asked.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Request {
    /// Runs a task; answered when it has ended.
    Run { place: Place, work: Work },
    /// A worker has nothing to do; answered with a task when there is one.
    Next { token: u64 },
    /// The worker with this token has something else to do: if it was not answered yet, it is now.
    Cancel { token: u64 },
    /// A task that was given to a worker, or another node, has ended.
    Done { id: u64, outcome: Bytes },
    /// The workers of another node have nothing to do; answered with a task when there is one too many.
    Hungry,
    /// Workers are coming.
    Begin,
    /// No worker gets a task any more.
    Stop,
}

/// Where a task may begin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Place {
    /// On this rank of the node that is asked.
    Rank(u32),
    /// On any rank of the node that is asked.
    Node,
    /// There, unless another node has nothing to do.
    Anywhere,
}

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Work {
    /// The number of the task's code in the program.
    pub entry: u32,
    pub arguments: Bytes,
}

/// What they answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Answer {
    Outcome(Bytes),
    Task { id: u64, work: Work },
    Nothing,
    Stopped,
}

/// Who hears of a task's end.
#[derive(Debug)]
enum Origin {
    Call(Call),
    /// Another node, where it has this number.
    Node(NodeId, u64),
}

#[derive(Debug)]
struct Waiting {
    origin: Origin,
    work: Work,
    may_leave: bool,
}

#[derive(Debug)]
struct Idle {
    worker: Peer,
    token: u64,
    call: Call,
}

/// The service of a node's tasks.
#[derive(Debug, Default)]
pub(crate) struct TaskService {
    next: u64,
    is_stopped: bool,
    waiting: VecDeque<Waiting>,
    /// For one rank only.
    named: HashMap<u32, VecDeque<Waiting>>,
    idle: Vec<Idle>,
    /// What has been given to a worker or another node.
    given: HashMap<u64, Origin>,
    /// Other nodes that want a task.
    hungry: VecDeque<Call>,
    /// Other nodes that were asked for one, by ticket.
    asked: HashMap<u64, NodeId>,
    asked_nodes: HashSet<NodeId>,
}

impl Service for TaskService {
    type Request = Request;
    type Answer = Answer;
    const NAME: &'static str = "objects.tasks";

    fn called(&mut self, call: Call, request: Request, home: &mut Home<'_, Self>) {
        match request {
            Request::Run { .. } | Request::Next { .. } if self.is_stopped => {
                return home.answer(call, &Answer::Stopped);
            }
            Request::Hungry if self.is_stopped => return home.answer(call, &Answer::Nothing),
            Request::Run { place: Place::Rank(rank), .. }
                if !home.layout().ranks_of(home.node()).contains(&rank) =>
            {
                return home.answer(call, &Answer::Nothing);
            }
            Request::Run { place, work } => {
                let waiting =
                    Waiting { origin: Origin::Call(call), work, may_leave: place == Place::Anywhere };
                match place {
                    Place::Rank(rank) => self.named.entry(rank).or_default().push_back(waiting),
                    Place::Node | Place::Anywhere => self.waiting.push_back(waiting),
                }
            }
            Request::Next { token } => {
                let worker = call.from();
                self.idle.push(Idle { worker, token, call });
            }
            Request::Cancel { token } => {
                let worker = call.from();
                let is_it = |idle: &Idle| (idle.worker, idle.token) == (worker, token);
                if let Some(at) = self.idle.iter().position(is_it) {
                    home.answer(self.idle.swap_remove(at).call, &Answer::Nothing);
                }
                return home.answer(call, &Answer::Nothing);
            }
            Request::Done { id, outcome } => {
                self.ended(id, outcome, home);
                return home.answer(call, &Answer::Nothing);
            }
            Request::Hungry => self.hungry.push_back(call),
            Request::Begin => {
                self.is_stopped = false;
                return home.answer(call, &Answer::Nothing);
            }
            Request::Stop => {
                self.stop(home);
                return home.answer(call, &Answer::Nothing);
            }
        }
        self.offer(home);
    }

    fn answered(&mut self, ticket: u64, answer: Result<Answer, ServiceError>, home: &mut Home<'_, Self>) {
        let Some(node) = self.asked.remove(&ticket) else { return };
        self.asked_nodes.remove(&node);
        if let Ok(Answer::Task { id, work }) = answer {
            let waiting = Waiting { origin: Origin::Node(node, id), work, may_leave: false };
            self.waiting.push_back(waiting);
            self.offer(home);
        }
    }
}

impl TaskService {
    /// Gives tasks to workers, and what is too much to other nodes.
    fn offer(&mut self, home: &mut Home<'_, Self>) {
        let mut at = 0;
        while at < self.idle.len() {
            let named =
                home.layout().rank_of_peer(self.idle[at].worker).and_then(|rank| self.named.get_mut(&rank.0));
            let Some(task) = named.and_then(VecDeque::pop_front).or_else(|| self.waiting.pop_back()) else {
                at += 1;
                continue;
            };
            let idle = self.idle.swap_remove(at);
            self.give(idle.call, task, home);
        }
        while self.idle.is_empty() && !self.hungry.is_empty() {
            let Some(oldest) = self.waiting.iter().position(|task| task.may_leave) else { break };
            if let (Some(task), Some(call)) = (self.waiting.remove(oldest), self.hungry.pop_front()) {
                self.give(call, task, home);
            }
        }
        if !self.idle.is_empty() {
            self.look_elsewhere(home);
        }
    }

    fn give(&mut self, call: Call, task: Waiting, home: &mut Home<'_, Self>) {
        self.next += 1;
        self.given.insert(self.next, task.origin);
        home.answer(call, &Answer::Task { id: self.next, work: task.work });
    }

    /// Asks other nodes for a task, each one once at a time: they answer when they have one.
    fn look_elsewhere(&mut self, home: &mut Home<'_, Self>) {
        let (me, nodes) = (home.node().0, home.layout().nodes());
        for step in 1..nodes {
            let node = NodeId((me + step) % nodes);
            if self.asked.len() >= ASKED_MAX {
                return;
            }
            if self.asked_nodes.insert(node) {
                self.next += 1;
                self.asked.insert(self.next, node);
                home.ask(node, &Request::Hungry, self.next);
            }
        }
    }

    /// A task has ended: who has called for it hears of it.
    fn ended(&mut self, id: u64, outcome: Bytes, home: &mut Home<'_, Self>) {
        match self.given.remove(&id) {
            Some(Origin::Call(call)) => home.answer(call, &Answer::Outcome(outcome)),
            // Nobody hears of the answer.
            Some(Origin::Node(node, id)) => home.ask(node, &Request::Done { id, outcome }, 0),
            None => {}
        }
    }

    /// Nobody runs tasks any more: who waits for one hears of it.
    fn stop(&mut self, home: &mut Home<'_, Self>) {
        self.is_stopped = true;
        self.idle.drain(..).for_each(|idle| home.answer(idle.call, &Answer::Stopped));
        self.hungry.drain(..).for_each(|call| home.answer(call, &Answer::Nothing));
        let named = std::mem::take(&mut self.named).into_values().flatten();
        for task in self.waiting.drain(..).chain(named) {
            if let Origin::Call(call) = task.origin {
                home.answer(call, &Answer::Stopped);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use vgas::service::Trial;
    use vgas::{Layout, Rank};

    fn trial() -> Trial<TaskService> {
        Trial::new(TaskService::default(), Layout::blocks(4, 2), NodeId(0), 0)
    }

    fn run(place: Place, entry: u32) -> Request {
        Request::Run { place, work: Work { entry, arguments: Bytes(vec![1]) } }
    }

    fn task(answer: Option<Result<Answer, ServiceError>>) -> Option<(u64, u32)> {
        match answer {
            Some(Ok(Answer::Task { id, work })) => Some((id, work.entry)),
            _ => None,
        }
    }

    /// Goal: a task waits for a worker or a worker for a task; its caller is answered when it has ended; names are heeded, and the newest
    /// comes first otherwise.
    #[test]
    fn tasks_and_workers_find_each_other() {
        let mut trial = trial();
        let first = trial.call(Rank(3), &run(Place::Node, 1));
        trial.call(Rank(3), &run(Place::Anywhere, 2));
        let named = trial.call(Rank(3), &run(Place::Rank(1), 3));
        let next = trial.call(Rank(0), &Request::Next { token: 1 });
        assert_eq!(task(trial.answer(next)).unwrap().1, 2);
        let next = trial.call(Rank(1), &Request::Next { token: 1 });
        let (id, entry) = task(trial.answer(next)).unwrap();
        assert_eq!(entry, 3);
        let next = trial.call(Rank(0), &Request::Next { token: 2 });
        let (other, _) = task(trial.answer(next)).unwrap();
        trial.tell(Rank(1), &Request::Done { id, outcome: Bytes(vec![7]) });
        trial.tell(Rank(1), &Request::Done { id, outcome: Bytes(vec![8]) });
        trial.tell(Rank(1), &Request::Done { id: 99, outcome: Bytes(vec![9]) });
        assert_eq!(trial.answer(named), Some(Ok(Answer::Outcome(Bytes(vec![7])))));
        assert_eq!(trial.answer(first), None);
        trial.tell(Rank(0), &Request::Done { id: other, outcome: Bytes(vec![5]) });
        assert_eq!(trial.answer(first), Some(Ok(Answer::Outcome(Bytes(vec![5])))));
    }

    /// Goal: a worker that has something else to do is not given a task; all hear of the end.
    #[test]
    fn workers_leave() {
        let mut trial = trial();
        let next = trial.call(Rank(0), &Request::Next { token: 5 });
        trial.call(Rank(1), &Request::Cancel { token: 5 });
        assert_eq!(trial.answer(next), None, "another rank's");
        trial.call(Rank(0), &Request::Cancel { token: 5 });
        assert_eq!(trial.answer(next), Some(Ok(Answer::Nothing)));
        let (waits, hungry) =
            (trial.call(Rank(3), &run(Place::Rank(0), 1)), trial.call(Rank(1), &Request::Hungry));
        let idle = trial.call(Rank(1), &Request::Next { token: 1 });
        trial.call(Rank(0), &Request::Stop);
        assert_eq!(trial.answer(waits), Some(Ok(Answer::Stopped)));
        assert_eq!(trial.answer(hungry), Some(Ok(Answer::Nothing)));
        assert_eq!(trial.answer(idle), Some(Ok(Answer::Stopped)));
        let late = trial.call(Rank(2), &run(Place::Node, 1));
        assert_eq!(trial.answer(late), Some(Ok(Answer::Stopped)));
        trial.call(Rank(0), &Request::Begin);
        let again = trial.call(Rank(2), &run(Place::Node, 1));
        assert_eq!(trial.answer(again), None);
    }

    /// Goal: another node gets a task that may leave when no worker is free, the oldest, and its end is heard of.
    #[test]
    fn what_is_too_much_leaves() {
        let mut trial = trial();
        let hungry = trial.call(Rank(2), &Request::Hungry);
        trial.call(Rank(0), &run(Place::Node, 1));
        assert_eq!(trial.answer(hungry), None, "it may not leave");
        let call = trial.call(Rank(0), &run(Place::Anywhere, 2));
        let (id, entry) = task(trial.answer(hungry)).unwrap();
        assert_eq!(entry, 2);
        trial.call(Rank(2), &Request::Done { id, outcome: Bytes(vec![3]) });
        assert_eq!(trial.answer(call), Some(Ok(Answer::Outcome(Bytes(vec![3])))));
    }
}
