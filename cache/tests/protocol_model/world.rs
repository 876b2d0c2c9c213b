//! The world's state and its moves.

use super::fault::Fault;
use super::invariant::Finding;
use std::collections::VecDeque;
use vgas_cache::protocol::{
    Action, Home, HomeAction, HomeEvent, InPlaceService, Line, LineEvent, Message, Outcome, Parameters,
    claim, home, line,
};
use vgas_rma::address::NodeId;

/// What is walked: sizes, settings, and how much may happen in total.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    pub nodes: u8,
    pub pages: u8,
    /// Frames of each node.
    pub frames: u8,
    pub cooperative: bool,
    pub in_place: Option<InPlaceService>,
    /// Page 0 is used by its owner through pointers.
    pub mapped: bool,
    /// Reads that are not hits.
    pub reads: u8,
    pub writes: u8,
    /// Puts of a whole page.
    pub wholes: u8,
    pub evictions: u8,
    /// Small operations sent because of an old hint, without having been referred.
    pub hinted: u8,
    /// Checkpoints of a page.
    pub cleans: u8,
    /// Pages that ranks of the home's node bring in by themselves.
    pub claims: u8,
    /// A rank may die with a claim, which ends the job.
    pub deaths: bool,
    /// NVMe operations that fail.
    pub failures: u8,
    /// Readers of a page are not supplied side by side.
    pub in_turn: bool,
    /// Readers ask for NVMe, although others have the page.
    pub nvm: bool,
    pub fault: Option<Fault>,
}

impl Setup {
    /// Nothing may happen yet.
    pub const fn quiet(nodes: u8, pages: u8) -> Self {
        Self {
            nodes,
            pages,
            frames: pages,
            cooperative: true,
            in_place: None,
            mapped: false,
            reads: 0,
            writes: 0,
            wholes: 0,
            evictions: 0,
            hinted: 0,
            cleans: 0,
            claims: 0,
            deaths: false,
            failures: 0,
            in_turn: false,
            nvm: false,
            fault: None,
        }
    }

    pub fn home_of(&self, page: u8) -> NodeId {
        NodeId(u32::from(page % self.nodes))
    }

    pub fn parameters(&self, page: u8) -> Parameters {
        Parameters {
            cooperative: self.cooperative,
            in_place: self.in_place,
            side_by_side: !self.in_turn,
            ..Parameters::of(self.home_of(page))
        }
    }
}

/// A page's content: how many writes it has seen.
pub type Version = u8;

/// What a rank of a node waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Want {
    Read,
    Write,
    Whole,
    /// The home's advice to take the page.
    Recall,
}

/// A node's side of one page.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Copy {
    pub line: Line,
    /// What the frame holds; `None` without a copy.
    pub content: Option<Version>,
    pub want: Option<Want>,
    /// A small operation in flight (a put, if `true`), which the home has not got yet.
    pub small: Option<bool>,
    /// The small operation is in the home's hands.
    pub small_at_home: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Nvm {
    #[default]
    Idle,
    Reading,
    Writing(Version),
}

/// The home's side of one page.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Default)]
pub struct Original {
    pub home: Home,
    /// What NVMe holds.
    pub stored: Version,
    pub nvm: Nvm,
    /// What a Pull has brought.
    pub pulled: Option<Version>,
    pub recall: bool,
    /// The newest content there is, anywhere.
    pub latest: Version,
    /// Whose the page is: the agent's or a rank's.
    pub claim: claim::State,
    /// The rank that has claimed it writes all of it.
    pub claimed_whole: bool,
    /// What has come to the home's node since a rank has claimed the page.
    pub parked: VecDeque<Parked>,
}

/// What waits for the end of a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Parked {
    Word(u8, Word),
    Ask(Want),
    Small(u8),
}

/// What travels on an ordered channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Word {
    Message(Message, Option<Version>),
    /// The home hands a small operation of a node to its own line.
    Apply {
        requester: u8,
        write: bool,
    },
}

/// All that can differ between two moments.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct World {
    /// By page, then node.
    pub copies: Vec<Vec<Copy>>,
    pub originals: Vec<Original>,
    /// By sender, then receiver.
    pub channels: Vec<Vec<VecDeque<(u8, Word)>>>,
    /// What may still happen.
    pub reads: u8,
    pub writes: u8,
    pub wholes: u8,
    pub evictions: u8,
    pub hinted: u8,
    pub cleans: u8,
    pub claims: u8,
    pub failures: u8,
    /// A rank has died, and with it the job: nothing happens any more.
    pub ended: bool,
}

/// One thing that may happen next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Move {
    Read {
        node: u8,
        page: u8,
    },
    Write {
        node: u8,
        page: u8,
    },
    Whole {
        node: u8,
        page: u8,
    },
    Evict {
        node: u8,
        page: u8,
    },
    Hinted {
        node: u8,
        page: u8,
        write: bool,
    },
    Small {
        node: u8,
        page: u8,
    },
    Recall {
        page: u8,
    },
    Clean {
        page: u8,
    },
    Nvm {
        page: u8,
        fails: bool,
    },
    Deliver {
        from: u8,
        to: u8,
        position: u8,
    },
    /// The home's agent finds that it knows nothing of the page.
    Publish {
        page: u8,
    },
    Claim {
        page: u8,
        whole: bool,
    },
    Show {
        page: u8,
    },
    GiveBack {
        page: u8,
        fails: bool,
    },
    /// The home's agent looks again at what waits.
    Unpark {
        page: u8,
    },
    Die {
        page: u8,
    },
}

/// A row of a table that a move has taken.
#[derive(Clone, Copy, Debug)]
pub enum Row {
    Line { page: u8, node: u8, state: line::State, event: line::Event, next: line::State },
    Home { page: u8, state: home::State, event: home::Event, next: home::State },
    Claim { state: claim::State, event: claim::Event },
}

/// Who watches a move, for transcripts and logs.
pub trait Watch {
    fn sent(&mut self, _from: u8, _to: u8, _page: u8, _message: Message) {}
    fn row(&mut self, _row: Row) {}
    fn completed(&mut self, _node: u8, _page: u8, _what: &str) {}
}

/// Nobody watches.
pub struct Unwatched;
impl Watch for Unwatched {}

impl World {
    pub fn new(setup: &Setup) -> Self {
        let nodes = usize::from(setup.nodes);
        let mut world = Self {
            copies: vec![vec![Copy::default(); nodes]; usize::from(setup.pages)],
            originals: vec![Original::default(); usize::from(setup.pages)],
            channels: vec![vec![VecDeque::new(); nodes]; nodes],
            reads: setup.reads,
            writes: setup.writes,
            wholes: setup.wholes,
            evictions: setup.evictions,
            hinted: setup.hinted,
            cleans: setup.cleans,
            claims: setup.claims,
            failures: setup.failures,
            ended: false,
        };
        if setup.mapped {
            let mapped =
                home::step(&mut world.originals[0].home, &setup.parameters(0), HomeEvent::Mapped(true));
            assert!(mapped.is_ok_and(|actions| actions.is_empty()));
        }
        world
    }

    /// Everything that may happen now.
    pub fn moves(&self, setup: &Setup, moves: &mut Vec<Move>) {
        moves.clear();
        if self.ended {
            return;
        }
        for (from, receivers) in (0u8..).zip(&self.channels) {
            for (to, channel) in (0u8..).zip(receivers) {
                let positions = match setup.fault {
                    Some(Fault::UnorderedChannel) => channel.len(),
                    _ => channel.len().min(1),
                };
                moves.extend((0..positions as u8).map(|position| Move::Deliver { from, to, position }));
            }
        }
        for (page, original) in (0u8..).zip(&self.originals) {
            if original.nvm != Nvm::Idle {
                moves.push(Move::Nvm { page, fails: false });
                if self.failures > 0 {
                    moves.push(Move::Nvm { page, fails: true });
                }
            }
            let home = setup.home_of(page).0 as u8;
            self.moves_of_claims(setup, page, moves);
            if original.recall && self.may_ask(setup, home, page) {
                moves.push(Move::Recall { page });
            }
            if self.cleans > 0 {
                moves.push(Move::Clean { page });
            }
            for node in 0..setup.nodes {
                let copy = &self.copies[usize::from(page)][usize::from(node)];
                if copy.small.is_some() && !original.parked.contains(&Parked::Small(node)) {
                    moves.push(Move::Small { node, page });
                }
                if self.may_ask(setup, node, page) {
                    if self.reads > 0 && !copy.line.readable() {
                        moves.push(Move::Read { node, page });
                    }
                    if self.writes > 0 {
                        moves.push(Move::Write { node, page });
                    }
                    if self.wholes > 0 {
                        moves.push(Move::Whole { node, page });
                    }
                    if self.hinted > 0 && node != home && !copy.line.readable() {
                        moves.push(Move::Hinted { node, page, write: false });
                        moves.push(Move::Hinted { node, page, write: true });
                    }
                }
                // What waits for a claim comes before evictions.
                let waits = node == home && !original.parked.is_empty();
                if self.evictions > 0 && copy.line.stable() && copy.line.readable() && !waits {
                    moves.push(Move::Evict { node, page });
                }
            }
        }
    }

    fn moves_of_claims(&self, setup: &Setup, page: u8, moves: &mut Vec<Move>) {
        use claim::State::{Agents, Awaited, Claimed, Stored};
        let original = &self.originals[usize::from(page)];
        let home = setup.home_of(page).0 as u8;
        let may_claim = original.claim == Stored || setup.fault == Some(Fault::ClaimOfWhatIsNotStored);
        match original.claim {
            Agents if self.claims > 0 && self.knows_nothing(setup, page) => {
                moves.push(Move::Publish { page })
            }
            Claimed | Awaited => {
                moves.push(Move::Show { page });
                moves.push(Move::GiveBack { page, fails: false });
                if self.failures > 0 {
                    moves.push(Move::GiveBack { page, fails: true });
                }
                if setup.deaths {
                    moves.push(Move::Die { page });
                }
            }
            _ => {}
        }
        if may_claim && self.claims > 0 && self.may_ask(setup, home, page) {
            moves.push(Move::Claim { page, whole: false });
            moves.push(Move::Claim { page, whole: true });
        }
        let ended = !matches!(original.claim, Claimed | Awaited);
        if ended && !original.parked.is_empty() && setup.fault != Some(Fault::ClaimsEndUnheard) {
            moves.push(Move::Unpark { page });
        }
    }

    /// Whether the home's agent knows nothing of a page: no entry, no copy, nothing in flight here.
    fn knows_nothing(&self, setup: &Setup, page: u8) -> bool {
        let original = &self.originals[usize::from(page)];
        let home = setup.home_of(page).0 as usize;
        let copy = &self.copies[usize::from(page)][home];
        let is_idle = original.home.is_idle() || setup.fault == Some(Fault::PublishedWithEntry);
        is_idle
            && original.nvm == Nvm::Idle
            && original.pulled.is_none()
            && !original.recall
            && original.parked.is_empty()
            && copy.line == Line::default()
            && copy.want.is_none()
            // What this node has said to itself is in the agent's own queue.
            && self.channels[home][home].iter().all(|(of, _)| *of != page)
    }

    /// Takes a step of the claim's table.
    fn step_claim(
        &mut self,
        page: u8,
        event: claim::Event,
        watch: &mut dyn Watch,
    ) -> Result<claim::Act, Finding> {
        let original = &mut self.originals[usize::from(page)];
        let state = original.claim;
        let Some((next, act)) = claim::cell(state, event) else {
            return Err(Finding::new("no_wrong_message", format!("{event:?} of page {page} in {state:?}")));
        };
        watch.row(Row::Claim { state, event });
        original.claim = next;
        Ok(act)
    }

    /// What the home's agent does before it looks at a page. True: a rank has claimed it.
    fn meets_claim(&mut self, setup: &Setup, page: u8, watch: &mut dyn Watch) -> Result<bool, Finding> {
        let original = &self.originals[usize::from(page)];
        let waits = !original.parked.is_empty();
        let ended = !matches!(original.claim, claim::State::Claimed | claim::State::Awaited);
        if setup.claims == 0 || (waits && ended) {
            return Ok(waits);
        }
        let act = self.step_claim(page, claim::Event::Withdraw, watch)?;
        Ok(act == claim::Act::Wait && setup.fault != Some(Fault::ClaimUnseen))
    }

    fn go_with_claims(&mut self, setup: &Setup, step: Move, watch: &mut dyn Watch) -> Result<(), Finding> {
        match step {
            Move::Publish { page } => self.step_claim(page, claim::Event::Publish, watch).map(drop),
            Move::Claim { page, whole } => {
                self.claims -= 1;
                let original = &mut self.originals[usize::from(page)];
                original.claimed_whole = whole;
                if setup.fault == Some(Fault::ClaimOfWhatIsNotStored) {
                    original.claim = claim::State::Stored;
                }
                self.step_claim(page, claim::Event::Claim, watch).map(drop)
            }
            Move::Show { page } => {
                self.step_claim(page, claim::Event::Show, watch)?;
                let node = setup.home_of(page);
                let original = &mut self.originals[usize::from(page)];
                let copy = &mut self.copies[usize::from(page)][node.0 as usize];
                copy.line = Line::default();
                original.home = Home::held_by(node);
                if std::mem::take(&mut original.claimed_whole) {
                    copy.line.state = line::State::M;
                    original.latest += 1;
                    copy.content = Some(original.latest);
                } else {
                    copy.line.state = line::State::E;
                    copy.content = Some(original.stored);
                }
                watch.completed(node.0 as u8, page, "brought in");
                Ok(())
            }
            Move::GiveBack { page, fails } => {
                self.failures -= u8::from(fails);
                self.originals[usize::from(page)].claimed_whole = false;
                let event = if fails { claim::Event::Fail } else { claim::Event::GiveBack };
                self.step_claim(page, event, watch).map(drop)
            }
            Move::Unpark { page } => {
                let home = setup.home_of(page).0 as u8;
                for parked in std::mem::take(&mut self.originals[usize::from(page)].parked) {
                    match parked {
                        Parked::Word(from, word) => self.deliver(setup, from, home, page, word, watch)?,
                        Parked::Ask(want) => self.ask(setup, home, page, want, watch)?,
                        Parked::Small(node) => self.small(setup, node, page, watch)?,
                    }
                }
                Ok(())
            }
            _ => {
                self.ended = true;
                Ok(())
            }
        }
    }

    /// Whether a node's ranks may ask for something: nothing is in flight for the page, and there is a frame.
    fn may_ask(&self, setup: &Setup, node: u8, page: u8) -> bool {
        let used = |page: &Vec<Copy>| {
            use line::State::{I, IiE};
            !matches!(page[usize::from(node)].line.state, I | IiE)
        };
        let copy = &self.copies[usize::from(page)][usize::from(node)];
        let others = self.copies.iter().enumerate().filter(|(p, _)| *p != usize::from(page));
        let has_frame = others.filter(|(_, page)| used(page)).count() < usize::from(setup.frames);
        copy.line.stable() && copy.want.is_none() && copy.small.is_none() && !copy.small_at_home && has_frame
    }

    /// Does one move.
    pub fn go(&mut self, setup: &Setup, step: Move, watch: &mut dyn Watch) -> Result<(), Finding> {
        match step {
            Move::Read { node, page } => {
                self.reads -= 1;
                self.ask(setup, node, page, Want::Read, watch)
            }
            Move::Write { node, page } => {
                self.writes -= 1;
                self.ask(setup, node, page, Want::Write, watch)
            }
            Move::Whole { node, page } => {
                self.wholes -= 1;
                self.ask(setup, node, page, Want::Whole, watch)
            }
            Move::Recall { page } => {
                self.originals[usize::from(page)].recall = false;
                self.ask(setup, setup.home_of(page).0 as u8, page, Want::Recall, watch)
            }
            Move::Evict { node, page } => {
                self.evictions -= 1;
                if setup.fault == Some(Fault::LeavesSilently) {
                    self.copies[usize::from(page)][usize::from(node)] = Copy::default();
                    return Ok(());
                }
                self.line(setup, node, page, LineEvent::Replace, None, watch)
            }
            Move::Hinted { node, page, write } => {
                self.hinted -= 1;
                self.copies[usize::from(page)][usize::from(node)].small = Some(write);
                Ok(())
            }
            Move::Small { node, page } => self.small(setup, node, page, watch),
            Move::Clean { page } => {
                self.cleans -= 1;
                if self.originals[usize::from(page)].claim != claim::State::Agents {
                    // Nothing is known of it that could be stored.
                    return Ok(());
                }
                self.home(setup, page, HomeEvent::Clean, watch)
            }
            Move::Nvm { page, fails } => self.nvm(setup, page, fails, watch),
            Move::Deliver { from, to, position } => {
                let channel = &mut self.channels[usize::from(from)][usize::from(to)];
                let Some((page, word)) = channel.remove(usize::from(position)) else { return Ok(()) };
                self.deliver(setup, from, to, page, word, watch)
            }
            _ => self.go_with_claims(setup, step, watch),
        }
    }

    fn ask(
        &mut self,
        setup: &Setup,
        node: u8,
        page: u8,
        want: Want,
        watch: &mut dyn Watch,
    ) -> Result<(), Finding> {
        self.copies[usize::from(page)][usize::from(node)].want = Some(want);
        if setup.home_of(page).0 as u8 == node && self.meets_claim(setup, page, watch)? {
            self.originals[usize::from(page)].parked.push_back(Parked::Ask(want));
            return Ok(());
        }
        let event = match want {
            Want::Read => LineEvent::Read,
            Want::Write | Want::Recall => LineEvent::Write,
            Want::Whole => LineEvent::WriteWhole,
        };
        self.line(setup, node, page, event, None, watch)
    }

    /// A small operation reaches the home; unlike agents' messages, in no order with anything else.
    fn small(&mut self, setup: &Setup, node: u8, page: u8, watch: &mut dyn Watch) -> Result<(), Finding> {
        if self.copies[usize::from(page)][usize::from(node)].small.is_none() {
            return Ok(());
        }
        if self.meets_claim(setup, page, watch)? {
            let original = &mut self.originals[usize::from(page)];
            if !original.parked.contains(&Parked::Small(node)) {
                original.parked.push_back(Parked::Small(node));
            }
            return Ok(());
        }
        let copy = &mut self.copies[usize::from(page)][usize::from(node)];
        let Some(write) = copy.small.take() else { return Ok(()) };
        if setup.fault == Some(Fault::InPlaceBesideCopies) {
            let home = setup.home_of(page).0 as usize;
            let copies = &mut self.copies[usize::from(page)];
            if write
                && copies[home].line.readable()
                && copies.iter().filter(|c| c.line.readable()).count() > 1
            {
                let original = &mut self.originals[usize::from(page)];
                original.latest += 1;
                copies[home].content = Some(original.latest);
                return Ok(());
            }
        }
        self.copies[usize::from(page)][usize::from(node)].small_at_home = true;
        let parameters = setup.parameters(page);
        let original = &mut self.originals[usize::from(page)];
        let event = HomeEvent::InPlace { from: NodeId(u32::from(node)), write };
        let mut rows = Vec::new();
        let actions = home::step_observed(&mut original.home, &parameters, event, &mut |s, e, n| {
            rows.push(Row::Home { page, state: s, event: e, next: n });
        })
        .map_err(Finding::violation)?;
        rows.into_iter().for_each(|row| watch.row(row));
        match actions[..] {
            [HomeAction::Apply { write }] => {
                let home = parameters.node.0 as usize;
                self.channels[home][home].push_back((page, Word::Apply { requester: node, write }));
                Ok(())
            }
            [HomeAction::Decline] => {
                let copy = &mut self.copies[usize::from(page)][usize::from(node)];
                copy.small_at_home = false;
                watch.completed(node, page, "not in place");
                // The normal way; the frame is there, because nothing else has happened on this node's page.
                let want = if write { Want::Write } else { Want::Read };
                if self.may_ask(setup, node, page) {
                    self.ask(setup, node, page, want, watch)
                } else {
                    Ok(())
                }
            }
            _ => Err(Finding::new(
                "no_wrong_message",
                format!("a small operation was answered by {actions:?}"),
            )),
        }
    }

    fn nvm(&mut self, setup: &Setup, page: u8, fails: bool, watch: &mut dyn Watch) -> Result<(), Finding> {
        let original = &mut self.originals[usize::from(page)];
        self.failures -= u8::from(fails);
        let event = match std::mem::take(&mut original.nvm) {
            Nvm::Reading if fails => HomeEvent::NvmReadFailed,
            Nvm::Reading => HomeEvent::NvmRead,
            Nvm::Writing(_) if fails => HomeEvent::NvmWriteFailed,
            Nvm::Writing(version) => {
                if setup.fault != Some(Fault::LostWriteBack) {
                    original.stored = version;
                }
                HomeEvent::NvmWritten
            }
            Nvm::Idle => return Ok(()),
        };
        self.home(setup, page, event, watch)
    }

    fn deliver(
        &mut self,
        setup: &Setup,
        from: u8,
        to: u8,
        page: u8,
        word: Word,
        watch: &mut dyn Watch,
    ) -> Result<(), Finding> {
        let sender = NodeId(u32::from(from));
        match word {
            Word::Apply { requester, write } => {
                self.line(setup, to, page, LineEvent::Apply { write }, None, watch)?;
                let copy = &mut self.copies[usize::from(page)][usize::from(to)];
                let original = &mut self.originals[usize::from(page)];
                if copy.content != Some(original.latest) {
                    return Err(Finding::new(
                        "read_returns_latest_write",
                        format!("page {page} was served in place from an old copy"),
                    ));
                }
                if write {
                    original.latest += 1;
                    copy.content = Some(original.latest);
                }
                self.copies[usize::from(page)][usize::from(requester)].small_at_home = false;
                watch.completed(requester, page, if write { "put in place" } else { "got in place" });
                Ok(())
            }
            Word::Message(message, content) if message.is_for_home() => {
                if setup.home_of(page).0 as u8 != to {
                    return Err(Finding::new(
                        "no_wrong_message",
                        format!("{message:?} for the home of page {page} went to node {to}"),
                    ));
                }
                if self.meets_claim(setup, page, watch)? {
                    self.originals[usize::from(page)].parked.push_back(Parked::Word(from, word));
                    return Ok(());
                }
                if matches!(message, Message::PulledData { dirty: true }) {
                    self.originals[usize::from(page)].pulled = content;
                }
                if setup.fault == Some(Fault::StaleDirectory) && matches!(message, Message::Evict { .. }) {
                    let back = &mut self.channels[usize::from(to)][usize::from(from)];
                    back.push_back((page, Word::Message(Message::EvictAck, None)));
                    return Ok(());
                }
                self.home(setup, page, HomeEvent::Message { from: sender, message }, watch)
            }
            Word::Message(message, content) => {
                self.line(setup, to, page, LineEvent::Message { from: sender, message }, content, watch)
            }
        }
    }

    /// One step of a home, and its actions.
    fn home(
        &mut self,
        setup: &Setup,
        page: u8,
        event: HomeEvent,
        watch: &mut dyn Watch,
    ) -> Result<(), Finding> {
        let parameters = setup.parameters(page);
        let node = parameters.node.0 as u8;
        let original = &mut self.originals[usize::from(page)];
        let mut rows = Vec::new();
        let actions = home::step_observed(&mut original.home, &parameters, event, &mut |s, e, n| {
            rows.push(Row::Home { page, state: s, event: e, next: n });
        })
        .map_err(Finding::violation)?;
        rows.into_iter().for_each(|row| watch.row(row));
        for action in actions {
            let original = &mut self.originals[usize::from(page)];
            match action {
                HomeAction::Send { to, message } => {
                    let content = message.carries_page().then_some(original.stored);
                    self.send(setup, node, to, page, message, content, watch);
                }
                HomeAction::ReadNvm => original.nvm = Nvm::Reading,
                HomeAction::WriteNvm => match original.pulled.take() {
                    Some(version) => original.nvm = Nvm::Writing(version),
                    None => {
                        return Err(Finding::new("nothing_dirty_dropped", "nothing was pulled, but stored"));
                    }
                },
                HomeAction::Recall => original.recall = true,
                HomeAction::Cleaned => watch.completed(node, page, "cleaned"),
                HomeAction::NotCleaned => watch.completed(node, page, "not cleaned"),
                HomeAction::Apply { .. } | HomeAction::Decline => {
                    return Err(Finding::new("no_wrong_message", "a small operation that nobody asked for"));
                }
            }
        }
        Ok(())
    }

    /// One step of a line, and its actions.
    fn line(
        &mut self,
        setup: &Setup,
        node: u8,
        page: u8,
        event: LineEvent,
        content: Option<Version>,
        watch: &mut dyn Watch,
    ) -> Result<(), Finding> {
        let home = setup.home_of(page);
        let copy = &mut self.copies[usize::from(page)][usize::from(node)];
        let before = copy.line;
        let (after, actions) = line::step(before, home, event)
            .map_err(|violation| Finding::line_violation(node, before, violation))?;
        if let Ok((named, _)) = line::classify(before, home, event) {
            watch.row(Row::Line { page, node, state: before.state, event: named, next: after.state });
        }
        copy.line = after;
        if content.is_some() {
            copy.content = content;
        }
        let supplied = copy.content;
        if !after.answers() && !matches!(after.state, line::State::ImA | line::State::IeA) {
            copy.content = None;
        }
        for action in actions {
            match action {
                Action::Send { to, message } => {
                    let content = if message.carries_page() { supplied } else { None };
                    if message.carries_page() && content.is_none() {
                        return Err(Finding::new(
                            "no_forward_to_nobody",
                            format!("node {node} has no content of page {page} to send"),
                        ));
                    }
                    self.send(setup, node, to, page, message, content, watch);
                }
                Action::Complete(outcome) => self.complete(setup, node, page, outcome, watch)?,
                Action::Apply { .. } | Action::Drop => {}
            }
        }
        Ok(())
    }

    fn complete(
        &mut self,
        setup: &Setup,
        node: u8,
        page: u8,
        outcome: Outcome,
        watch: &mut dyn Watch,
    ) -> Result<(), Finding> {
        let copy = &mut self.copies[usize::from(page)][usize::from(node)];
        let original = &mut self.originals[usize::from(page)];
        let want = if outcome == Outcome::NotEvicted { None } else { copy.want.take() };
        match (outcome, want) {
            (Outcome::Writable, Some(Want::Write | Want::Whole)) => {
                original.latest += 1;
                copy.content = Some(original.latest);
                watch.completed(node, page, "written");
                if copy.line.state == line::State::E {
                    // The right came with a copy that equals NVMe: the write makes it differ.
                    let before = copy.line;
                    let (after, _) = line::step(before, setup.home_of(page), LineEvent::Write)
                        .map_err(|violation| Finding::line_violation(node, before, violation))?;
                    copy.line = after;
                    let (state, event, next) = (before.state, line::Event::Write, after.state);
                    watch.row(Row::Line { page, node, state, event, next });
                }
            }
            (Outcome::Writable, _) => watch.completed(node, page, "recalled"),
            (Outcome::Readable, _) => watch.completed(node, page, "read"),
            (Outcome::InPlace, Some(want @ (Want::Read | Want::Write | Want::Whole))) => {
                copy.small = Some(want != Want::Read);
                watch.completed(node, page, "referred");
            }
            (Outcome::InPlace, _) => watch.completed(node, page, "referred"),
            (Outcome::Failed(_), _) => watch.completed(node, page, "failed"),
            (Outcome::NotEvicted, _) => watch.completed(node, page, "not evicted"),
        }
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "a message with all that goes with it")]
    fn send(
        &mut self,
        setup: &Setup,
        from: u8,
        to: NodeId,
        page: u8,
        message: Message,
        content: Option<Version>,
        watch: &mut dyn Watch,
    ) {
        let message = match message {
            Message::GetShared { .. } => Message::GetShared { nvm: setup.nvm },
            other => other,
        };
        watch.sent(from, to.0 as u8, page, message);
        let post = |world: &mut World, from: u8, to: NodeId, message: Message| {
            world.channels[usize::from(from)][to.0 as usize]
                .push_back((page, Word::Message(message, content)));
        };
        match setup.fault {
            None => post(self, from, to, message),
            Some(fault) => {
                for (from, to, message) in fault.plant(from, to, message) {
                    post(self, from, to, message);
                }
            }
        }
    }
}
