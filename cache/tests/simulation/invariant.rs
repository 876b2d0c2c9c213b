//! What must hold between two turns, and at rest, whatever the traffic.

use super::Finding;
use super::cluster::Cluster;
use vgas_cache::client::SegmentPages;
use vgas_cache::page::PageIndex;
use vgas_cache::pool::{FrameId, FrameUse, PageSize, PageState};

fn states(cluster: &Cluster, page: PageIndex) -> impl Iterator<Item = (usize, PageState)> + '_ {
    cluster.nodes.iter().enumerate().map(move |(node, one)| {
        let entry = one.pool().entry(page).expect("a page of the job");
        (node, entry.state())
    })
}

/// Many readers or one writer, and one owner at most, and no copy of what a rank may claim or has claimed: at every moment, as
/// the ranks see it.
pub fn check(cluster: &Cluster) -> Result<(), Finding> {
    let pages = cluster.nodes[0].pool().layout().pages();
    for page in PageIndex::each(PageIndex(0)..PageIndex(pages)) {
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

/// When nothing is in flight: all copies of a page are equal, every frame is accounted for, nobody holds a page.
pub fn check_at_rest(cluster: &Cluster) -> Result<(), Finding> {
    let pages = cluster.nodes[0].pool().layout().pages();
    for page in PageIndex::each(PageIndex(0)..PageIndex(pages)) {
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
            let span = pool.frame_span(entry.frame()).expect("a frame");
            let mut bytes = vec![0; span.bytes()];
            span.read(&mut bytes);
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
        let frames: Vec<FrameId> = pool.frames().collect();
        let uses: Vec<FrameUse> =
            frames.iter().map(|&frame| pool.frame_use(frame).expect("a frame")).collect();
        // The reserve of the home, of each shard and size; see `Agent::reserve_size`.
        let shards = one.agents.len();
        let sizes = PageSize::all().filter(|&size| pool.blocks_of(size) > 0);
        let reserve: usize = sizes
            .map(|size| shards * (pool.layout().frames_of(size) as usize / shards / 16).clamp(1, 64))
            .sum();
        let kept = uses.iter().filter(|used| **used == FrameUse::Agent).count();
        let lost = uses.iter().any(|used| matches!(used, FrameUse::Staged { .. } | FrameUse::Vacated));
        let orphans = uses.iter().zip(&frames).any(|(used, &frame)| match *used {
            FrameUse::Page(page) => {
                let is_here = pool.entry(page).is_ok_and(|e| e.state().readable() && e.frame() == frame);
                !is_here || pool.layout().size_of(page) != pool.size_of_frame(frame).expect("a frame")
            }
            _ => false,
        });
        if kept > reserve || lost || orphans {
            return Err(Finding::new("a frame is lost", format!("node {node}: {uses:?}")));
        }
    }
    Ok(())
}

/// Nothing is left of a segment that was given up, as the only one of those behind it: no copy, no claim to be made.
pub fn check_gone(cluster: &Cluster, kind: &SegmentPages) -> Result<(), Finding> {
    for (node, one) in cluster.nodes.iter().enumerate() {
        for agent in &one.agents {
            if agent.partitions().any(|found| found.segment == kind.segment) {
                return Err(Finding::new("a segment was not forgotten", format!("{kind:?} at node {node}")));
            }
        }
        let (pool, known) = (one.pool(), one.agents[0].partitions().collect::<Vec<_>>());
        for page in PageIndex::each(PageIndex(0)..PageIndex(pool.layout().pages())) {
            let state = pool.entry(page).expect("a page of the job").state();
            let is_known = known.iter().any(|found| found.range().contains(&page));
            let is_left = state.readable() || matches!(state, PageState::Stored | PageState::Claimed);
            if is_left && !is_known {
                return Err(Finding::new(
                    "a page of no segment",
                    format!("page {page} at node {node}: {state:?}"),
                ));
            }
        }
    }
    Ok(())
}
