//! When a page is served in place (promises 7 and 9): by the history of its writers, or because its owner
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

impl InPlaceService {
    /// That of jobs: the page stays at its home after four changes of its writer, since a lock or a queue that is handed on once or twice
    /// is better off travelling; and may leave again when 64 operations in a row came from one node, which pay for the move.
    pub const USUAL: Self = Self { enter_after: 4, leave_after: 64 };
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

impl Place {
    /// Whether the page should be served in place whenever its home has the only copy.
    pub fn wanted(&self) -> bool {
        self.active || self.mapped
    }

    pub fn is_mapped(&self) -> bool {
        self.mapped
    }

    pub fn is_written(&self) -> bool {
        self.written
    }

    /// Whether the page is not fought for: this node has written it last, if anybody has, and nothing goes there in place.
    pub fn is_settled(&self, node: NodeId) -> bool {
        let writer = self.writer.is_none_or(|writer| writer == node);
        *self == Self { writer: self.writer, ..Self::default() } && writer
    }

    pub fn map(&mut self, mapped: bool) {
        self.mapped = mapped;
    }

    /// A node has become the only holder, to write. Whether the home should recall the page.
    pub fn wrote(&mut self, writer: NodeId, is_home: bool, service: Option<InPlaceService>) -> bool {
        let changed = self.writer.is_some_and(|last| last != writer);
        self.changes = if changed { self.changes.saturating_add(1) } else { 0 };
        self.writer = Some(writer);
        let enter = service.is_some_and(|service| self.changes >= service.enter_after);
        self.active = enter && is_home;
        enter && !is_home
    }

    /// The page has no only holder any more.
    pub fn left(&mut self) {
        self.active = false;
        self.written = false;
        self.served = None;
        self.run = 0;
    }

    /// A small operation of a node has been served in place.
    pub fn serve(&mut self, node: NodeId, write: bool, service: Option<InPlaceService>) {
        self.written |= write;
        self.run = if self.served == Some(node) { self.run.saturating_add(1) } else { 1 };
        self.served = Some(node);
        if service.is_some_and(|service| self.run >= service.leave_after) {
            self.migrate();
        }
    }

    /// A writer of the whole page wants it: whether it may have it. It needs no content, so moving the page costs
    /// less than sending all of it in small operations; but what the owner uses through pointers stays.
    pub fn give_way(&mut self) -> bool {
        if !self.mapped {
            self.migrate();
        }
        !self.mapped
    }

    fn migrate(&mut self) {
        self.active = false;
        self.changes = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SERVICE: Option<InPlaceService> = Some(InPlaceService { enter_after: 2, leave_after: 2 });
    const HOME: NodeId = NodeId(0);
    const A: NodeId = NodeId(1);
    const B: NodeId = NodeId(2);

    /// A page that A, B, A wrote, which the home then recalled.
    fn served() -> Place {
        let mut place = Place::default();
        assert!(!place.wrote(A, false, SERVICE));
        assert!(!place.wrote(B, false, SERVICE));
        assert!(place.wrote(A, false, SERVICE), "two changes of the writer");
        assert!(!place.wrote(HOME, true, SERVICE), "the home has it");
        assert!(place.wanted());
        place
    }

    #[test]
    fn a_node_that_writes_again_ends_the_row() {
        let mut place = Place::default();
        for _ in 0..10 {
            assert!(!place.wrote(A, false, SERVICE));
            assert!(!place.wrote(A, false, SERVICE));
            assert!(!place.wrote(B, false, SERVICE));
            assert!(!place.wrote(B, false, SERVICE));
        }
    }

    #[test]
    fn switched_off_it_never_begins() {
        let mut place = Place::default();
        assert!((0..100).all(|turn| !place.wrote(NodeId(turn % 2), turn % 2 == 0, None)));
        assert!(!place.wanted());
    }

    #[test]
    fn nodes_in_turn_keep_it_and_one_node_ends_it() {
        let mut place = served();
        for _ in 0..10 {
            place.serve(A, true, SERVICE);
            place.serve(B, true, SERVICE);
        }
        assert!(place.wanted() && place.is_written());
        place.serve(B, false, SERVICE);
        assert!(!place.wanted());
    }

    #[test]
    fn what_is_used_through_pointers_stays_in_place() {
        let mut place = served();
        place.map(true);
        (0..10).for_each(|_| place.serve(A, true, SERVICE));
        assert!(place.wanted() && !place.give_way());
        place.map(false);
        assert!(!place.wanted());
    }

    #[test]
    fn a_writer_of_the_whole_page_gets_it() {
        let mut place = served();
        assert!(place.give_way());
        assert!(!place.wanted());
    }
}
