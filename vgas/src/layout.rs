//! From the job's settings to sizes: pools, regions, limits. Every process of a job computes the same from the same
//! settings, so that only the settings need to travel.

use crate::config::{Auto, ConduitChoice, Settings};
use crate::error::{Error, Result};
use vgas_cache::pool::{MAPPED_PAGES_MIN, PageSize, PoolSpec, TableLayout};
use vgas_cache::region;
use vgas_rma::domain::RegionSpec;
use vgas_rma::{Layout, NodeId, Rank, RegionId};

/// Operations that a rank may have waiting at its agent at the same time; further ones wait for a slot.
const WAIT_SLOTS_PER_RANK: u32 = 512;

/// Threads of a rank that use pages without taking turns.
const HAZARD_SLOTS_PER_RANK: u32 = 64;

/// Most pages that a rank keeps mapped unless told otherwise: each may take two of the 65,530 mappings that Linux allows a
/// process (`vm.max_map_count`).
const MAPPED_PAGES_MAX: u64 = 1 << 14;

/// Frames beside those that ranks keep mapped: the home's reserve, one to be free for the next miss, and what a put or get of
/// each rank is about to use.
const FRAMES_BESIDE_MAPPED_MIN: u64 = 6;

/// Bytes of neighbouring pages that one thread of an agent serves: a scan that comes to the next thread's is recognised again
/// there, which takes a few misses. One by operations of half as many bytes and more is so only where blocks in a row are one thread's.
const SHARD_BLOCK_BYTES: u64 = 4 << 20;

/// Blocks that a pool has at least, where it is not smaller than so many of the smallest pages: they change from pages of one size to
/// those of another.
const BLOCKS_MIN: u64 = 16;

/// Most frames: the page table has 32 bits for the number, and the queues some of them.
const FRAMES_MAX: u64 = 1 << 30;

/// The cache pool of a node.
pub fn pool_spec(settings: &Settings, layout: &Layout, node: NodeId) -> Result<PoolSpec> {
    let Auto::Is(size) = &settings.cache.size else {
        return Err(Error::Usage("the launcher has not resolved cache.size".into()));
    };
    let page = settings.cache.page.bytes();
    let frames = (size.bytes() / page).min(FRAMES_MAX);
    let local_ranks = layout.ranks_of(node).len() as u32;
    // Each thread of the agent keeps a frame back.
    let beside_mapped = FRAMES_BESIDE_MAPPED_MIN + u64::from(settings.agent.threads - 1);
    let frames_min =
        crate::config::CACHE_PAGES_MIN.max(beside_mapped + u64::from(MAPPED_PAGES_MIN * local_ranks));
    if frames < frames_min {
        return Err(Error::Usage(format!(
            "a cache of {} holds {frames} pages of {}; {local_ranks} ranks on a node need at least {frames_min}: \
             set cache.size (--cache) to {} or more, or cache.page (--page) to less",
            size,
            settings.cache.page,
            crate::config::Size::of_bytes(frames_min * page),
        )));
    }
    let mapped_pages_per_rank = mapped_pages(settings, frames, u64::from(local_ranks))?;
    let pages = settings.segment.tiered_max.bytes().div_ceil(page);
    Ok(PoolSpec {
        page_bytes: page as u32,
        frames: frames as u32,
        page_bytes_max: largest_page(settings, frames * page),
        segment_pages_max: vec![pages; layout.ranks() as usize],
        local_ranks,
        wait_slots_per_rank: WAIT_SLOTS_PER_RANK,
        hazard_slots_per_rank: HAZARD_SLOTS_PER_RANK,
        mapped_pages_per_rank,
        agent_threads: settings.agent.threads,
        block_pages: block_pages(settings),
    })
}

/// The largest pages that segments may have: as large as is possible where a node has room for some of them.
fn largest_page(settings: &Settings, pool_bytes: u64) -> u32 {
    let least = settings.cache.page.bytes() as u32;
    let fits = |bytes: &u32| *bytes <= least || u64::from(*bytes) <= pool_bytes / BLOCKS_MIN;
    let largest = PageSize::all().rev().map(|size| size.bytes()).find(fits);
    largest.unwrap_or(least).max(least)
}

/// Neighbouring pages that one thread of an agent serves.
fn block_pages(settings: &Settings) -> u64 {
    let page = settings.cache.page.bytes();
    // Small segments are shared out, too.
    let bytes = (settings.segment.tiered_max.bytes() / 256).clamp(page, SHARD_BLOCK_BYTES.max(page));
    1 << (bytes / page).ilog2()
}

/// Pages of its own segment that a rank keeps mapped.
fn mapped_pages(settings: &Settings, frames: u64, local_ranks: u64) -> Result<u32> {
    let least = u64::from(MAPPED_PAGES_MIN);
    let pages = match &settings.local.mapped {
        Auto::Auto => (frames / 2 / local_ranks).min(MAPPED_PAGES_MAX),
        Auto::Is(size) => {
            let pages = size.bytes() / settings.cache.page.bytes();
            let most = (frames / 2 / local_ranks).max(least);
            if pages > most {
                let most = crate::config::Size::of_bytes(most * settings.cache.page.bytes());
                return Err(Error::Usage(format!(
                    "local.mapped = {size}: at most {most}, half of the cache divided by the {local_ranks} ranks of a node"
                )));
            }
            pages
        }
    };
    Ok(pages.max(least) as u32)
}

/// The shared regions of all peers of a job.
pub fn regions(settings: &Settings, layout: &Layout) -> Result<Vec<RegionSpec>> {
    let mut regions = Vec::new();
    for rank in (0..layout.ranks()).map(Rank) {
        let (owner, bytes) = (layout.peer_of_rank(rank), settings.segment.pinned_max.bytes());
        if bytes > 0 {
            regions.push(RegionSpec { owner, region: RegionId::SEGMENT, bytes });
        }
        if settings.conduit == ConduitChoice::Smp && layout.nodes() > 1 {
            let bytes = region::LANDINGS_BYTES;
            regions.push(RegionSpec { owner, region: region::LANDINGS, bytes });
        }
    }
    for node in (0..layout.nodes()).map(NodeId) {
        let table =
            TableLayout::new(&pool_spec(settings, layout, node)?).map_err(vgas_cache::CacheError::from)?;
        let owner = layout.agent_of(node);
        regions.push(RegionSpec { owner, region: region::FRAMES, bytes: table.frames_bytes() });
        regions.push(RegionSpec { owner, region: region::TABLE, bytes: table.table_bytes() });
    }
    Ok(regions)
}
