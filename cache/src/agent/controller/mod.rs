//! The cache controller: this node's copies of pages, and the directory of the pages whose home is here.
//!
//! It takes the steps of the protocol's tables, on the node's pool. What ranks and other agents ask for comes in by `want_*`, `serve_*`
//! and [`CacheController::receive`]; services, checkpoints and read-ahead stand above, and it knows nothing of them.
//!
//! | file | holds |
//! |---|---|
//! | `lines/` | this node's copies: what ranks want of them, what messages do to them |
//! | `homes.rs` | the directory of pages whose home is here |
//! | `fast_path.rs` | the fast path of pages whose home is here and of which no other node has a copy |
//! | `claims.rs` | such pages that ranks bring in by themselves |
//! | `mapped.rs` | pages that their owner uses through plain pointers |
//! | `work.rs` | atomic updates, parts of pages, and other work on bytes of pages whose home is here |
//! | `cost_model.rs` | how long pages take, by where they come from |

mod claims;
mod cost_model;
mod fast_path;
mod homes;
mod lines;
mod mapped;
mod work;

use super::context::NodeContext;
use crate::page::PageIndex;
use crate::protocol::home;
pub use claims::Claims;
pub use cost_model::CostModel;
pub use homes::HomePage;
pub use lines::{Deferred, Lines};
pub use mapped::Mapped;
use rustc_hash::FxHashMap;

/// The protocol's machines of one shard, with what they need.
pub struct CacheController {
    pub ctx: NodeContext,
    pub lines: Lines,
    pub homes: FxHashMap<PageIndex, HomePage>,
    /// Nodes that are sending pages of these homes to readers.
    pub sending: home::Sending,
    pub claims: Claims,
    pub mapped: Mapped,
    pub costs: CostModel,
}
