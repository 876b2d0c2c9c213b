//! When a page is served in place (DESIGN properties 7 and 9): by the history of its writers, or because its owner
//! uses it through pointers. This is policy; what in-place service *is*, the home table says.

use vgas_rma::address::NodeId;

/// When nodes that write a page in turn make the home serve it in place, and when that ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct InPlaceService {
    /// So many writers in a row, each another node than the one before, and the home recalls the page.
    pub enter_after: u16,
    /// So many small operations in a row by the same node, and the page may migrate again.
    pub leave_after: u16,
}

/// A page's history of writers, and whether it is served in place now.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Place {
    /// The last writer.
    writer: Option<NodeId>,
    /// How often in a row the writer has been another one than before.
    changes: u16,
    /// The last node that was served in place, and how often in a row.
    served: Option<NodeId>,
    run: u16,
    /// Served in place because of the writers' history.
    active: bool,
    /// The owner uses the page through pointers.
    mapped: bool,
    /// A small put has been applied to the home's copy since it became the only one: it differs from NVMe, even if
    /// an Evict that was sent before says otherwise.
    written: bool,
}
