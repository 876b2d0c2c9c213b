//! What must hold at every moment, by name.

use super::world::{Nvm, Setup, Want, Word, World};
use std::fmt;
use vgas_cache::protocol::line::{Event, State};
use vgas_cache::protocol::{Line, Message, Violation, claim, home};

/// A broken invariant.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub invariant: &'static str,
    pub detail: String,
}

impl Finding {
    pub fn new(invariant: &'static str, detail: impl Into<String>) -> Self {
        Self { invariant, detail: detail.into() }
    }

    pub fn violation(violation: Violation) -> Self {
        Self::new("no_wrong_message", violation.to_string())
    }

    /// A line that has no copy was asked for it, or something else went wrong there.
    pub fn line_violation(node: u8, line: Line, violation: Violation) -> Self {
        use Event::{ForwardModified, ForwardShared, Own, Pull};
        let forward =
            matches!(violation, Violation::Line { event: ForwardShared | ForwardModified | Pull | Own, .. });
        let invariant = if forward && !line.answers() { "no_forward_to_nobody" } else { "no_wrong_message" };
        Self::new(invariant, format!("node {node}: {violation}"))
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.invariant, self.detail)
    }
}

/// Checks all invariants that concern a single moment.
pub fn check(setup: &Setup, world: &World) -> Result<(), Finding> {
    (0..setup.pages).try_for_each(|page| {
        single_writer_or_many_readers(world, page)?;
        read_returns_latest_write(world, page)?;
        one_answerer(setup, world, page)?;
        nothing_dirty_dropped(world, page)?;
        published_means_nobody_has_it(world, page)?;
        directory_is_right(setup, world, page)
    })
}

fn single_writer_or_many_readers(world: &World, page: u8) -> Result<(), Finding> {
    let copies = &world.copies[usize::from(page)];
    let writers = copies.iter().filter(|copy| copy.line.writable()).count();
    let readers = copies.iter().filter(|copy| copy.line.readable()).count();
    if writers > 1 || (writers == 1 && readers > 1) {
        return Err(Finding::new(
            "single_writer_or_many_readers",
            format!("page {page} has {writers} writers and {readers} readers"),
        ));
    }
    Ok(())
}

fn read_returns_latest_write(world: &World, page: u8) -> Result<(), Finding> {
    let latest = world.originals[usize::from(page)].latest;
    for (node, copy) in world.copies[usize::from(page)].iter().enumerate() {
        if copy.line.readable() && copy.content != Some(latest) {
            return Err(Finding::new(
                "read_returns_latest_write",
                format!("node {node} would read {:?} of page {page}, but {latest} was written", copy.content),
            ));
        }
    }
    Ok(())
}

/// Whether the home has already let a copy go, which does not know it yet.
fn let_go(world: &World, setup: &Setup, page: u8, node: usize) -> bool {
    let home = setup.home_of(page).0 as usize;
    world.channels[home][node]
        .iter()
        .any(|(of, word)| *of == page && matches!(word, Word::Message(Message::EvictAck, _)))
}

/// Whether nothing about a page is on its way.
fn silent(world: &World, page: u8) -> bool {
    world.channels.iter().flatten().flatten().all(|(of, _)| *of != page)
        && world.originals[usize::from(page)].nvm == Nvm::Idle
}

fn one_answerer(setup: &Setup, world: &World, page: u8) -> Result<(), Finding> {
    use State::{E, EiE, M, MiE, O, OiE, OmG, OwG};
    let answerers = world.copies[usize::from(page)]
        .iter()
        .enumerate()
        .filter(|(_, copy)| matches!(copy.line.state, O | OmG | OwG | OiE | E | EiE | M | MiE))
        .filter(|(node, _)| !let_go(world, setup, page, *node))
        .count();
    let home = world.originals[usize::from(page)].home.state();
    let one_needed = matches!(home, home::State::Owned | home::State::Exclusive) && silent(world, page);
    if answerers > 1 || (answerers == 0 && one_needed) {
        return Err(Finding::new(
            "one_answerer",
            format!("{answerers} nodes are M, E or O for page {page}, which is {home:?}"),
        ));
    }
    Ok(())
}

/// The newest content exists somewhere, unless somebody is about to overwrite all of it; and where the directory
/// relies on NVMe, it is there.
fn nothing_dirty_dropped(world: &World, page: u8) -> Result<(), Finding> {
    let original = &world.originals[usize::from(page)];
    let copies = &world.copies[usize::from(page)];
    let latest = Some(original.latest);
    let overwritten = copies.iter().any(|copy| {
        copy.line.state == State::ImG || (copy.want == Some(Want::Whole) && copy.line.state == State::ImA)
    });
    let travels = world
        .channels
        .iter()
        .flatten()
        .flatten()
        .any(|(of, word)| *of == page && matches!(word, Word::Message(_, content) if *content == latest));
    let somewhere = travels
        || original.stored == original.latest
        || original.pulled == latest
        || original.nvm == Nvm::Writing(original.latest)
        || copies.iter().any(|copy| copy.content == latest);
    if !somewhere && !overwritten {
        return Err(Finding::new(
            "nothing_dirty_dropped",
            format!("nobody has version {} of page {page}", original.latest),
        ));
    }
    let relies = matches!(original.home.state(), home::State::Nowhere | home::State::Shared);
    if relies && original.stored != original.latest {
        return Err(Finding::new(
            "nothing_dirty_dropped",
            format!("NVMe has version {} of page {page}, not {}", original.stored, original.latest),
        ));
    }
    Ok(())
}

/// What a rank may claim, or has claimed, nobody has, and NVMe has the newest of it.
fn published_means_nobody_has_it(world: &World, page: u8) -> Result<(), Finding> {
    let original = &world.originals[usize::from(page)];
    if original.claim == claim::State::Agents {
        return Ok(());
    }
    let copies = world.copies[usize::from(page)].iter().filter(|copy| copy.line.readable()).count();
    if copies > 0 || original.stored != original.latest {
        return Err(Finding::new(
            "published_means_nobody_has_it",
            format!("page {page} is {:?}, with {copies} copies", original.claim),
        ));
    }
    Ok(())
}

/// When nothing is on its way, the directory lists exactly who has a copy.
fn directory_is_right(setup: &Setup, world: &World, page: u8) -> Result<(), Finding> {
    let home = &world.originals[usize::from(page)].home;
    if home.waiting() > usize::from(setup.nodes) + 1 {
        return Err(Finding::new("directory_is_right", format!("{} requests wait", home.waiting())));
    }
    if !silent(world, page) || home.requester().is_some() {
        return Ok(());
    }
    for (node, copy) in world.copies[usize::from(page)].iter().enumerate() {
        let listed = home.holders().any(|holder| holder.0 as usize == node);
        if listed != copy.line.answers() {
            return Err(Finding::new(
                "directory_is_right",
                format!("node {node} is {:?} for page {page}; listed: {listed}", copy.line.state),
            ));
        }
    }
    Ok(())
}

/// Whether nothing is outstanding anywhere.
pub fn at_rest(world: &World) -> bool {
    if world.ended {
        return true;
    }
    let claimed = |original: &super::world::Original| {
        matches!(original.claim, claim::State::Claimed | claim::State::Awaited)
    };
    world.originals.iter().all(|original| !claimed(original) && original.parked.is_empty())
        && world.channels.iter().flatten().all(|channel| channel.is_empty())
        && world.originals.iter().all(|original| {
            original.nvm == Nvm::Idle && original.home.waiting() == 0 && original.home.requester().is_none()
        })
        && world.copies.iter().flatten().all(|copy| {
            copy.line.stable() && copy.want.is_none() && copy.small.is_none() && !copy.small_at_home
        })
}
