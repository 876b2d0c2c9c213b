//! Goal: the handshake between users and the agent (`vgas_cache::pool`) is right on processors that delay stores, and
//! the barrier is what makes it right.
//!
//! Method: a model of total-store-order processors, as small as the question: one page, one frame, one word of content,
//! a store buffer per user. A user announces the page, loads the entry, reads the frame, clears its slot; the agent sets
//! HOLD, runs its barrier, looks at the slots, reuses the frame for another page. All interleavings of two users (each
//! with two uses) and the agent are walked. `membarrier` is modelled by what it promises: a full barrier on every
//! processor, which drains its store buffer. The walk must find the fault when the barrier or the slot is left out:
//! otherwise it would prove nothing.

use std::collections::{HashSet, VecDeque};

const USERS: usize = 2;
const USES: u8 = 2;

/// Which parts of the handshake are carried out.
#[derive(Clone, Copy)]
struct Parts {
    /// The agent's barrier drains the users' store buffers (`membarrier`).
    agent_drains_users: bool,
    /// Each user drains its own store buffer between its announcement and its look at the entry (a fence).
    user_fence: bool,
    /// The agent sets HOLD before it looks.
    hold: bool,
    /// The agent looks at the slots.
    look: bool,
}

const WITH_MEMBARRIER: Parts = Parts { agent_drains_users: true, user_fence: false, hold: true, look: true };
const WITH_FENCES: Parts = Parts { agent_drains_users: false, user_fence: true, hold: true, look: true };

#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    /// The entry says: page in frame, users welcome.
    open: bool,
    /// What the frame holds: the page, or something else.
    frame_is_page: bool,
    /// The slots as memory has them.
    slots: [bool; USERS],
    users: [User; USERS],
    agent: Agent,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct User {
    at: Step,
    uses_left: u8,
    /// Stores to the user's slot that have not reached memory, oldest first.
    delayed: VecDeque<bool>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Step {
    Announce,
    Fence,
    Look,
    Copy,
    Clear,
}

#[derive(Clone, PartialEq, Eq, Hash)]
enum Agent {
    Hold,
    Barrier,
    /// Looks at slot `n`; a slot found in use means "later", which is to look again from the first one.
    LookAt(usize),
    Reuse,
    /// The page is brought back (into the same frame, for want of another) and opened again.
    Reopen,
    Done,
}

/// All next states; `Err` when a user reads bytes that are not the page's.
fn next(state: &State, parts: Parts) -> Result<Vec<State>, &'static str> {
    let mut all = Vec::new();
    for index in 0..USERS {
        let user = &state.users[index];
        let with = |change: &dyn Fn(&mut State)| {
            let mut next = state.clone();
            change(&mut next);
            next
        };
        // A delayed store reaches memory whenever it likes.
        if !user.delayed.is_empty() {
            all.push(with(&|next| drain_one(next, index)));
        }
        if user.uses_left == 0 {
            continue;
        }
        all.push(match user.at {
            Step::Announce => with(&|next| {
                next.users[index].delayed.push_back(true);
                next.users[index].at = if parts.user_fence { Step::Fence } else { Step::Look };
            }),
            Step::Fence => with(&|next| {
                while !next.users[index].delayed.is_empty() {
                    drain_one(next, index);
                }
                next.users[index].at = Step::Look;
            }),
            Step::Look => {
                with(&|next| next.users[index].at = if next.open { Step::Copy } else { Step::Clear })
            }
            Step::Copy if !state.frame_is_page => return Err("a user reads another page's bytes"),
            Step::Copy => with(&|next| next.users[index].at = Step::Clear),
            Step::Clear => with(&|next| {
                next.users[index].delayed.push_back(false);
                next.users[index].at = Step::Announce;
                next.users[index].uses_left -= 1;
            }),
        });
    }
    let mut next = state.clone();
    match state.agent {
        // A locked instruction: nothing of the agent's is delayed.
        Agent::Hold => {
            next.open = !parts.hold;
            next.agent = Agent::Barrier;
        }
        Agent::Barrier => {
            for index in 0..USERS {
                while parts.agent_drains_users && !next.users[index].delayed.is_empty() {
                    drain_one(&mut next, index);
                }
            }
            next.agent = if parts.look { Agent::LookAt(0) } else { Agent::Reuse };
        }
        Agent::LookAt(slot) if state.slots[slot] => next.agent = Agent::LookAt(0),
        Agent::LookAt(slot) if slot + 1 < USERS => next.agent = Agent::LookAt(slot + 1),
        Agent::LookAt(_) => next.agent = Agent::Reuse,
        Agent::Reuse => {
            next.open = false;
            next.frame_is_page = false;
            next.agent = Agent::Reopen;
        }
        Agent::Reopen => {
            next.frame_is_page = true;
            next.open = true;
            next.agent = Agent::Done;
        }
        Agent::Done => return Ok(all),
    }
    all.push(next);
    Ok(all)
}

fn drain_one(state: &mut State, user: usize) {
    if let Some(value) = state.users[user].delayed.pop_front() {
        state.slots[user] = value;
    }
}

/// Walks everything; the number of states, or the fault that was found.
fn walk(parts: Parts) -> Result<usize, &'static str> {
    let user = User { at: Step::Announce, uses_left: USES, delayed: VecDeque::new() };
    let first = State {
        open: true,
        frame_is_page: true,
        slots: [false; USERS],
        users: std::array::from_fn(|_| user.clone()),
        agent: Agent::Hold,
    };
    let mut seen = HashSet::from([first.clone()]);
    let mut open = vec![first];
    while let Some(state) = open.pop() {
        let following = next(&state, parts)?;
        if following.is_empty() {
            // Nothing left to do: the agent must have got its page, whatever the users did.
            assert!(state.agent == Agent::Done);
        }
        open.extend(following.into_iter().filter(|next| seen.insert(next.clone())));
    }
    Ok(seen.len())
}

#[test]
fn the_handshake_is_right_with_membarrier_and_with_fences() {
    for (parts, least) in [(WITH_MEMBARRIER, 1000), (WITH_FENCES, 1000)] {
        let states = walk(parts).unwrap();
        assert!(states > least, "only {states} states were walked");
    }
}

#[test]
fn leaving_out_any_part_is_found() {
    let fault = Err("a user reads another page's bytes");
    assert_eq!(walk(Parts { agent_drains_users: false, ..WITH_MEMBARRIER }), fault, "no barrier");
    assert_eq!(walk(Parts { user_fence: false, ..WITH_FENCES }), fault, "no fence");
    assert_eq!(walk(Parts { hold: false, ..WITH_MEMBARRIER }), fault, "no HOLD");
    assert_eq!(walk(Parts { look: false, ..WITH_MEMBARRIER }), fault, "no look at the slots");
}
