//! Work of libraries at the homes of tiered memory: a type that implements [`Service`] runs inside every
//! node's agent, where it reads, writes and updates the memory whose home is its node, even while the ranks
//! there compute; ranks call it with [`Runtime::call`](crate::Runtime::call).
//!
//! The daemons that `vgas run` starts are those of the `vgas` command, which has no services of other people. A program brings its
//! own by being the daemon of its nodes as well: its `main` begins with [`serve_node`], and it is started with
//! `vgas run --own-nodes`, or by `srun` and `mpirun`, where it is so anyway. `vgas/examples/log.rs` is such a program.

use crate::agent::AgentService;
use crate::lock::Locks;
pub use vgas_cache::Failure;
pub use vgas_cache::client::PendingCall;
pub use vgas_cache::service::{Call, Home, Library, Service, ServiceCounts, ServiceError, Services, Trial};

/// The argument of a program that is to be the daemon of a node.
pub const NODE_ARGUMENT: &str = "vgas-node";

/// If this process was started to be the daemon of a node, as by `vgas run --own-nodes`, is that until the job ends, with these
/// services, and ends the process. Otherwise returns at once. The first call of `main`: a daemon must do nothing else.
pub fn serve_node(services: impl FnOnce() -> Services) {
    if !std::env::args_os().skip(1).eq([NODE_ARGUMENT]) {
        return crate::started::serves_itself();
    }
    let status = node_main_with(services()).unwrap_or_else(|error| {
        vgas_rma::say::line(format_args!("vgas: {error}"));
        1
    });
    std::process::exit(status.into());
}

/// A service of every node that answers at once: it measures the cost of a call.
#[derive(Debug, Default)]
pub struct Ping;

impl Service for Ping {
    type Request = ();
    type Answer = ();
    const NAME: &'static str = "vgas.ping";

    fn called(&mut self, call: Call, (): (), home: &mut Home<'_, Self>) {
        home.answer(call, &());
    }
}

/// [`crate::launch::node_main`] with services.
///
/// # Errors
/// As there.
pub fn node_main_with(services: Services) -> crate::Result<u8> {
    // Those of this tree are everywhere.
    let agent = AgentService::with(services.with(Locks::default()).with(Ping));
    // SAFETY: the agent keeps the membership, and writes what ranks and the services of libraries ask for.
    Ok(unsafe { vgas_job::node_main(Box::new(agent)) }?)
}
