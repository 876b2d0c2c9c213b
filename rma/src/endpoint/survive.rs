//! Going on without nodes that are lost.
//!
//! Without [`Endpoint::survive`], a peer that is lost fails the endpoint, and with it the job. With it, one
//! process decides for all: a broken connection is *reported*, to the launcher, and messages to that peer
//! wait, until the endpoint is told that the node is lost ([`Endpoint::lose_node`]). From then on
//!
//! * what is sent to a peer of that node, and what waits for an answer of it, ends with [`RmaError::PeerLost`];
//! * so does every barrier and collective of the job, in flight or later: they are of all ranks;
//! * what still comes from there is dropped: a process of the node that runs on for a moment changes nothing here;
//! * everything else goes on.
//!
//! ```text
//! NODE_LOST (node)      from the agent of a node to its ranks
//! ```

use super::wait::try_lock;
use super::{Endpoint, Handler, Token};
use crate::address::{Layout, NodeId, Peer, Rank};
use crate::conduit::Sent;
use crate::error::{Result, RmaError};
use crate::message::{Arrived, Payload};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, OnceLock, PoisonError};

const NODE_LOST: u8 = 15;

/// A peer whose connection broke, and of whose node nothing is known yet.
const BROKEN: u32 = 1;
/// A peer of a node that is lost.
const GONE: u32 = 2;

/// Is told of a peer whose connection broke.
pub type Report = Box<dyn Fn(Peer) + Send + Sync>;

/// Is told of a node that is lost.
type LossCallback = std::sync::Arc<dyn Fn(&Endpoint, NodeId) + Send + Sync>;

/// An endpoint's state of lost peers.
pub(super) struct LostPeers {
    /// Set where the endpoint goes on without lost peers.
    report: OnceLock<Report>,
    /// By peer.
    peers: Box<[AtomicU32]>,
    /// Some node is lost.
    any: AtomicBool,
    /// Operations that wait for a lost peer have not been ended yet.
    is_unsettled: AtomicBool,
    /// In the order in which they were lost.
    nodes: Mutex<Vec<NodeId>>,
    /// Callbacks for each loss.
    told: Mutex<Vec<LossCallback>>,
}

impl LostPeers {
    pub(super) fn new(layout: &Layout) -> Self {
        Self {
            report: OnceLock::new(),
            peers: (0..layout.peers()).map(|_| AtomicU32::new(0)).collect(),
            any: AtomicBool::new(false),
            is_unsettled: AtomicBool::new(false),
            nodes: Mutex::default(),
            told: Mutex::default(),
        }
    }

    #[inline]
    fn any(&self) -> bool {
        self.any.load(Ordering::Acquire)
    }

    fn state(&self, peer: Peer) -> Option<&AtomicU32> {
        self.peers.get(peer.0 as usize)
    }
}

pub(super) fn handlers() -> [(u8, Handler); 1] {
    [(NODE_LOST, Box::new(on_node_lost))]
}

fn on_node_lost(token: &Token<'_>, arguments: &[u32], _: Arrived<'_>) {
    let endpoint = token.endpoint();
    let &[node] = arguments else { return token.refuse("a malformed message about a lost node") };
    let own = endpoint.layout.node_of_peer(endpoint.me);
    let is_known = node < endpoint.layout.nodes() && NodeId(node) != own;
    // Only this node's agent says so, and only where it was asked for.
    if !is_known || token.from() != endpoint.layout.agent_of(own) || endpoint.lost.report.get().is_none() {
        return token.refuse(format!("says that node {node} is lost"));
    }
    endpoint.lose_node(NodeId(node));
}

impl Endpoint {
    /// From now on a lost peer does not fail this endpoint: it goes on without that peer's node, once it is told to. `report` hears
    /// of each peer whose connection broke, once, in the thread that noticed it; it must not wait for anything of this endpoint.
    /// Before [`Endpoint::open`].
    ///
    /// # Errors
    /// [`RmaError::Usage`] the second time.
    pub fn survive(&self, report: impl Fn(Peer) + Send + Sync + 'static) -> Result<()> {
        self.lost
            .report
            .set(Box::new(report))
            .map_err(|_| RmaError::Usage("an endpoint is told once to survive lost peers".into()))
    }

    /// Tells the endpoint, on behalf of the job's decision, that a node is lost. See [`Endpoint::survive`],
    /// without which nothing happens.
    pub fn lose_node(&self, node: NodeId) {
        if self.lost.report.get().is_none() || node.0 >= self.layout.nodes() {
            return;
        }
        {
            let mut nodes = self.lost.nodes.lock().unwrap_or_else(PoisonError::into_inner);
            if nodes.contains(&node) {
                return;
            }
            let ranks = self.layout.ranks_of(node).map(|rank| self.layout.peer_of_rank(Rank(rank)));
            for peer in ranks.chain([self.layout.agent_of(node)]) {
                if let Some(state) = self.lost.state(peer) {
                    state.store(GONE, Ordering::Release);
                }
            }
            nodes.push(node);
        }
        self.lost.is_unsettled.store(true, Ordering::Release);
        self.lost.any.store(true, Ordering::Release);
        self.settle_lost();
        let told = self.lost.told.lock().unwrap_or_else(PoisonError::into_inner).clone();
        told.iter().for_each(|heard| heard(self, node));
        self.notify_local();
    }

    /// Tells a layer above of each node that is lost from now on, in the thread that hears of it, which may be in a handler: it must not
    /// wait. Peers of the node are [gone](Endpoint::is_gone) by then.
    pub fn on_lost_node(&self, heard: impl Fn(&Self, NodeId) + Send + Sync + 'static) {
        self.lost.told.lock().unwrap_or_else(PoisonError::into_inner).push(std::sync::Arc::new(heard));
    }

    /// The nodes that are lost, in the order in which they were.
    pub fn lost_nodes(&self) -> Vec<NodeId> {
        if !self.lost.any() {
            return Vec::new();
        }
        self.lost.nodes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Returns true if any node is lost.
    #[inline]
    pub fn has_lost(&self) -> bool {
        self.lost.any()
    }

    /// Returns true if a peer is of a lost node.
    #[inline]
    pub fn is_gone(&self, peer: Peer) -> bool {
        self.lost.any() && self.is_marked_gone(peer)
    }

    #[cold]
    fn is_marked_gone(&self, peer: Peer) -> bool {
        self.lost.state(peer).is_some_and(|state| state.load(Ordering::Acquire) == GONE)
    }

    /// Returns true if a peer is of a node that is lost, or may turn out to be: its connection broke.
    #[cold]
    pub(super) fn is_broken(&self, peer: Peer) -> bool {
        self.lost.state(peer).is_some_and(|state| state.load(Ordering::Acquire) != 0)
    }

    /// An error if a peer is of a node that is lost; `during` says what is to be done with it.
    ///
    /// # Errors
    /// [`RmaError::PeerLost`].
    #[inline]
    pub fn check_peer(&self, peer: Peer, during: &str) -> Result<()> {
        if self.is_gone(peer) { Err(self.gone(peer, during)) } else { Ok(()) }
    }

    /// An error if any node is lost: what all ranks take part in cannot be any more.
    ///
    /// # Errors
    /// [`RmaError::PeerLost`].
    #[inline]
    pub fn check_all(&self, during: &str) -> Result<()> {
        if !self.lost.any() {
            return Ok(());
        }
        match self.lost_nodes().first() {
            Some(&node) => Err(self.gone(self.layout.agent_of(node), during)),
            None => Ok(()),
        }
    }

    #[cold]
    fn gone(&self, peer: Peer, during: &str) -> RmaError {
        let (who, node) = (self.layout.describe(peer), self.layout.node_of_peer(peer));
        let reason = format!("{node} is lost, and the job goes on without it");
        RmaError::PeerLost { peer, who, during: during.into(), reason }
    }

    /// Tells a rank of this node that a node is lost. For its agent.
    ///
    /// # Errors
    /// As [`Endpoint::try_request`].
    pub fn try_tell_lost(&self, to: Peer, node: NodeId) -> Result<Sent> {
        self.try_request(to, NODE_LOST, &[node.0], Payload::Short)
    }

    /// Fails the endpoint with an error of sending to a peer, unless the peer is of a lost node: it has no
    /// waiters there.
    pub(crate) fn fail_of(&self, to: Peer, error: RmaError) {
        if !(matches!(error, RmaError::PeerLost { .. }) && self.is_gone(to)) {
            self.fail(error);
        }
    }

    /// Judges an error of the network: it is nothing yet, if the endpoint continues without lost peers and
    /// this is one.
    #[cold]
    pub(super) fn weigh(&self, error: RmaError) -> Result<()> {
        let peer = match &error {
            RmaError::PeerLost { peer, .. } => *peer,
            // Messages from there are not believed, either.
            RmaError::Protocol { peer: Some(peer), .. } if self.is_gone(*peer) => return Ok(()),
            _ => return Err(error),
        };
        let (Some(report), Some(state)) = (self.lost.report.get(), self.lost.state(peer)) else {
            return Err(error);
        };
        if state.compare_exchange(0, BROKEN, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            tracing::info!(%error, "waits to be told what becomes of it");
            report(peer);
        }
        Ok(())
    }

    /// Ends operations that wait for answers of lost peers, unless another thread is delivering: then the
    /// next poll does.
    pub(super) fn settle_lost(&self) {
        if !self.lost.is_unsettled.load(Ordering::Acquire) {
            return;
        }
        // Bytes may be on their way into memory of an operation.
        let Some(_delivering) = try_lock(&self.delivering) else { return };
        self.lost.is_unsettled.store(false, Ordering::Release);
        self.operations
            .lose(|server| self.is_gone(server), |server| self.gone(server, "waiting for its answer"));
        self.notify_local();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::conduit::sim::{SimNetwork, SimOptions};
    use crate::endpoint::EndpointSpec;
    use crate::message::Direction;
    use std::sync::Arc;

    const ASKED: u8 = crate::endpoint::handler_index::USER;

    fn endpoint(network: &Arc<SimNetwork>, me: u32, reports: Option<Arc<AtomicU32>>) -> Arc<Endpoint> {
        let layout = Layout::blocks(3, 3);
        let network = Some(network.conduit(Peer(me)));
        let endpoint = Endpoint::new(EndpointSpec { layout, me: Peer(me), domain: None, network }).unwrap();
        endpoint.register(ASKED, |_, _, _| {}).unwrap();
        if let Some(reports) = reports {
            let count = move |peer: Peer| {
                reports.fetch_add(1 + 100 * peer.0, Ordering::SeqCst);
            };
            endpoint.survive(count).unwrap();
        }
        endpoint.open();
        endpoint
    }

    fn is_lost<T: std::fmt::Debug>(result: &Result<T>) -> bool {
        matches!(result, Err(RmaError::PeerLost { peer: Peer(2 | 5), .. }))
    }

    /// Goal: a lost peer is reported once, and what is sent to it waits; once its node is declared lost, what concerns it ends with an
    /// error, barriers too, and the others are reached as before.
    #[test]
    fn it_goes_on_without_a_lost_node() {
        let options = SimOptions { delay_steps: 1..=1, steps_by_polling: true, ..SimOptions::default() };
        let network = SimNetwork::new(1, 6, options).unwrap();
        let reports = Arc::new(AtomicU32::new(0));
        let (zero, one) = [(0, reports.clone()), (1, Arc::default())]
            .map(|(me, reports)| endpoint(&network, me, Some(reports)))
            .into();
        let ask = |to| zero.try_request(Peer(to), ASKED, &[], Payload::Short);
        let mut got = [0];
        // Rank 2's agent serves its segment.
        let get = zero.operations.start(Peer(5), got.as_mut_ptr(), 1, 1);
        network.lose(Peer(2));
        for _ in 0..4 {
            zero.poll().unwrap();
            assert_eq!(ask(2).unwrap(), Sent::Busy);
        }
        assert_eq!(reports.load(Ordering::SeqCst), 201, "once, of peer 2");
        assert!(!zero.has_lost());
        let told = Arc::new(AtomicU32::new(0));
        let count = told.clone();
        zero.on_lost_node(move |endpoint, node| {
            assert!(endpoint.is_gone(Peer(2)) && node == NodeId(2));
            count.fetch_add(1, Ordering::SeqCst);
        });
        zero.barrier_notify(crate::endpoint::BarrierName::Anonymous).unwrap();
        zero.lose_node(NodeId(2));
        zero.lose_node(NodeId(2));
        assert_eq!((zero.lost_nodes(), told.load(Ordering::SeqCst)), (vec![NodeId(2)], 1));
        assert!(is_lost(&ask(2)) && is_lost(&ask(5)));
        assert!(is_lost(&zero.barrier_try(crate::endpoint::BarrierName::Anonymous)));
        assert!(is_lost(&zero.wait_sync(get.into())), "it waits for nobody");
        assert_eq!(ask(1).unwrap(), Sent::Accepted);
        assert!((0..9).map(|_| one.poll().unwrap()).sum::<usize>() > 0, "the others are reached");
        assert!(zero.check_failure().is_ok());
    }

    /// Goal: an answer to a peer whose connection broke, or whose node is lost, is dropped; the endpoint goes on.
    #[test]
    fn answers_to_the_lost_are_dropped() {
        let options = SimOptions { delay_steps: 1..=1, steps_by_polling: true, ..SimOptions::default() };
        let network = SimNetwork::new(1, 6, options).unwrap();
        let zero = endpoint(&network, 0, Some(Arc::default()));
        for _ in 0..2 {
            network.lose(Peer(2));
            let token = Token::new(&zero, Peer(2), Direction::Request);
            token.check(token.reply_short(ASKED, &[]));
            zero.check_failure().unwrap();
            zero.lose_node(NodeId(2));
        }
    }

    /// Goal: an operation with a lost peer ends with an error, and ends no other; background progress reports
    /// a broken connection like any other thread.
    #[test]
    fn operations_with_the_lost_end_alone() {
        let options = SimOptions { delay_steps: 1..=1, steps_by_polling: true, ..SimOptions::default() };
        let network = SimNetwork::new(1, 6, options).unwrap();
        let reports = Arc::new(AtomicU32::new(0));
        let zero = endpoint(&network, 0, Some(reports.clone()));
        let _waits = zero.operations.start(Peer(1), std::ptr::null_mut(), 0, 1);
        network.lose(Peer(2));
        zero.deliver_own().unwrap();
        assert_eq!(reports.load(Ordering::SeqCst), 201);
        zero.lose_node(NodeId(2));
        let sent = zero.send_parts(Peer(5), None, 0, 16, 8, |_, _, _| zero.check_peer(Peer(5), "sending"));
        assert!(is_lost(&sent.map(drop)));
        zero.check_failure().unwrap();
    }

    /// Goal: without [`Endpoint::survive`], an endpoint fails with its peer; and only its own agent may
    /// report a loss.
    #[test]
    fn others_fail_as_before() {
        let options = SimOptions { delay_steps: 1..=1, steps_by_polling: true, ..SimOptions::default() };
        let network = SimNetwork::new(1, 6, options).unwrap();
        let reports = Arc::new(AtomicU32::new(0));
        let (zero, one) = (endpoint(&network, 0, None), endpoint(&network, 1, Some(reports)));
        assert_eq!(zero.try_tell_lost(Peer(1), NodeId(2)).unwrap(), Sent::Accepted);
        let refused = (0..9).find_map(|_| one.poll().err());
        assert!(matches!(refused, Some(RmaError::Protocol { peer: Some(Peer(0)), .. })), "{refused:?}");
        network.lose(Peer(2));
        let failed = (0..9).find_map(|_| zero.poll().err().map(Err::<(), _>));
        assert!(failed.is_some_and(|failed| is_lost(&failed)));
        zero.lose_node(NodeId(2));
        assert!(!zero.has_lost() && zero.check_failure().is_err());
    }
}
