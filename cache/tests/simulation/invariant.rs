//! What must hold between two turns, and at rest, whatever the traffic.

use super::Finding;
use super::cluster::Cluster;
use super::plan::PAGE;
use vgas_cache::pool::{FrameId, FrameUse, PageState};

fn states(cluster: &Cluster, page: u64) -> impl Iterator<Item = (usize, PageState)> + '_ {
    cluster.nodes.iter().enumerate().map(move |(node, one)| {
        let entry = one.pool().entry(page).expect("a page of the job");
        (node, entry.state())
    })
}

/// Many readers or one writer, and one owner at most, and no copy of what a rank may claim or has claimed: at every moment, as
/// the ranks see it.
pub fn check(cluster: &Cluster) -> Result<(), Finding> {
    let pages = cluster.nodes[0].pool().layout().pages();
    for page in 0..pages {
        let (mut copies, mut writers, mut owners, mut published) = (0, 0, 0, 0);
        for (_, state) in states(cluster, page) {
            copies += u32::from(state.readable());
            writers += u32::from(state.writable());
            owners += u32::from(state == PageState::Owned);
            published += u32::from(matches!(state, PageState::Stored | PageState::Claimed));
        }
        if published > 1 || (published == 1 && copies > 0) {
            let all: Vec<_> = states(cluster, page).collect();
            return Err(Finding::new("a page with copies may be claimed", format!("page {page}: {all:?}")));
        }
        if writers + owners > 1 || (writers == 1 && copies > 1) {
            let all: Vec<_> = states(cluster, page).collect();
            return Err(Finding::new(
                "several nodes may write, or read what one writes",
                format!("page {page}: {all:?}"),
            ));
        }
    }
    Ok(())
}

/// When nothing is under way: all copies of a page are equal, every frame is accounted for, nobody holds a page.
pub fn check_at_rest(cluster: &Cluster) -> Result<(), Finding> {
    let pages = cluster.nodes[0].pool().layout().pages();
    for page in 0..pages {
        let mut first: Option<(usize, Vec<u8>)> = None;
        for (node, one) in cluster.nodes.iter().enumerate() {
            let pool = one.pool();
            let entry = pool.entry(page).expect("a page of the job");
            if entry.held() {
                return Err(Finding::new("a page is held at rest", format!("page {page} at node {node}")));
            }
            if entry.state() == PageState::Claimed {
                return Err(Finding::new("a page is claimed at rest", format!("page {page} at node {node}")));
            }
            if !entry.state().readable() {
                continue;
            }
            let mut bytes = vec![0; PAGE];
            pool.frame_span(entry.frame()).expect("a frame").read(&mut bytes);
            match &first {
                Some((other, content)) if *content != bytes => {
                    let what = format!("page {page} at nodes {other} and {node}");
                    return Err(Finding::new("copies differ", what));
                }
                Some(_) => {}
                None => first = Some((node, bytes)),
            }
        }
    }
    for (node, one) in cluster.nodes.iter().enumerate() {
        let pool = one.pool();
        let frames = pool.layout().spec().frames;
        let uses: Vec<FrameUse> =
            (0..frames).map(|frame| pool.frame_use(FrameId(frame)).expect("a frame")).collect();
        // The reserve of the home, of each shard; see `Agent::with`.
        let shards = one.agents.len();
        let reserve = shards * (frames as usize / shards / 16).clamp(1, 64);
        let kept = uses.iter().filter(|used| **used == FrameUse::Agent).count();
        let lost = uses.iter().any(|used| matches!(used, FrameUse::Staged { .. }));
        let orphans = uses.iter().zip(0..).any(|(used, frame)| match *used {
            FrameUse::Page(page) => {
                pool.entry(page).is_ok_and(|e| !e.state().readable() || e.frame() != FrameId(frame))
            }
            _ => false,
        });
        if kept > reserve || lost || orphans {
            return Err(Finding::new("a frame is lost", format!("node {node}: {uses:?}")));
        }
    }
    Ok(())
}
