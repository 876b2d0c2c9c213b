//! How long this node waits for a page, by where it comes from: measured while the job runs, for each home and size of pages, so that
//! cooperation is not slower than the device that it spares.
//!
//! A forward takes three messages between nodes, the home's read of its NVMe one or two and the device's time. Which is faster depends on
//! links, devices and what else these do; nobody need say so. A node asks the home for NVMe ([`Message::GetShared`]) where that was faster, and
//! now and then to see whether it still is what it was: for pages that somebody waits for. What is read ahead has time.
//!
//! What a node takes of a drive, all others that share it cannot have, while each holder has a link of its own. So the time of NVMe counts as
//! often as there are nodes: many spare the drive unless it is faster by far. Of two, each reads what it can read sooner: the other one
//! has no more than its link to offer, and the drive is as fast for it.
//!
//! [`Message::GetShared`]: crate::protocol::Message::GetShared

use crate::agent::wire::Origin;
use crate::pool::PageSize;
use rustc_hash::FxHashMap;
use vgas_rma::address::NodeId;

/// How many pages of a home are asked for the one way before one is asked for the other way.
const LOOK_AGAIN: u32 = 64;

/// A time in nanoseconds, of which newer values count more.
#[derive(Clone, Copy, Debug, Default)]
struct Average(Option<u64>);

impl Average {
    /// One in so many parts is of the newest value.
    const WEIGHT: u64 = 8;

    fn add(&mut self, nanoseconds: u64) {
        let before = self.0.unwrap_or(nanoseconds);
        self.0 = Some((before * (Self::WEIGHT - 1)).saturating_add(nanoseconds) / Self::WEIGHT);
    }
}

/// Of the pages of a home.
#[derive(Debug, Default)]
struct OfHome {
    nvm: Average,
    peers: Average,
    /// How many pages were asked for since the other way was taken.
    same_way: u32,
}

/// What was measured.
#[derive(Debug)]
pub struct CostModel {
    /// How often the time of NVMe counts.
    weight: u64,
    of: FxHashMap<(NodeId, PageSize), OfHome>,
}

impl CostModel {
    /// Nothing yet, in a job of so many nodes.
    pub fn new(nodes: u32) -> Self {
        Self { weight: if nodes > 2 { nodes.into() } else { 1 }, of: FxHashMap::default() }
    }

    /// A page of this home has come so long after it was asked for.
    pub fn took(&mut self, home: NodeId, size: PageSize, from: NodeId, origin: Origin, nanoseconds: u64) {
        let of_home = self.of.entry((home, size)).or_default();
        match origin {
            Origin::Nvm => of_home.nvm.add(nanoseconds),
            Origin::Cache if from != home => of_home.peers.add(nanoseconds),
            // Neither is asked for by choice.
            Origin::Cache | Origin::Zeros => {}
        }
    }

    /// Whether to ask for NVMe.
    pub fn prefers_nvm(&mut self, home: NodeId, size: PageSize) -> bool {
        let Some(of_home) = self.of.get_mut(&(home, size)) else { return false };
        let (Some(nvm), Some(peers)) = (of_home.nvm.0, of_home.peers.0) else { return false };
        let prefers = nvm.saturating_mul(self.weight) < peers;
        of_home.same_way += 1;
        if of_home.same_way < LOOK_AGAIN {
            return prefers;
        }
        of_home.same_way = 0;
        !prefers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOME: NodeId = NodeId(0);
    const PEER: NodeId = NodeId(1);
    const SIZE: PageSize = PageSize::of_shift(16);

    /// Goal: cooperation until both are known; then NVMe where it is clearly faster, and the other way now and then; each home by itself.
    #[test]
    fn what_was_faster_is_asked_for() {
        let asked = |costs: &mut CostModel| {
            (0..4 * LOOK_AGAIN).filter(|_| costs.prefers_nvm(HOME, SIZE)).count() as u32
        };
        let mut costs = CostModel::new(2);
        assert_eq!(asked(&mut costs), 0);
        costs.took(HOME, SIZE, PEER, Origin::Cache, 1000);
        costs.took(HOME, SIZE, HOME, Origin::Cache, 1);
        assert_eq!(asked(&mut costs), 0, "what comes from the home's own DRAM is neither");
        costs.took(HOME, SIZE, HOME, Origin::Nvm, 400);
        assert_eq!(asked(&mut costs), 4 * (LOOK_AGAIN - 1));
        assert!(!costs.prefers_nvm(PEER, SIZE));
        // The device is slower now.
        (0..80).for_each(|_| costs.took(HOME, SIZE, HOME, Origin::Nvm, 1100));
        assert_eq!(asked(&mut costs), 4);
    }

    /// Goal: what two nodes read from a drive, many leave to others.
    #[test]
    fn the_more_share_a_drive_the_more_it_is_spared() {
        let prefers = |nodes| {
            let mut costs = CostModel::new(nodes);
            costs.took(HOME, SIZE, PEER, Origin::Cache, 1000);
            costs.took(HOME, SIZE, HOME, Origin::Nvm, 250);
            costs.prefers_nvm(HOME, SIZE)
        };
        assert_eq!([2, 3, 4, 5].map(prefers), [true, true, false, false]);
    }
}
