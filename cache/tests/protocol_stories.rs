//! The usual cases as stories: every message, every row and every end, in files under `protocol_stories`.
//!
//! A line that begins with `>` is a command, what follows is what happened. `VGAS_REWRITE=1 cargo test -p vgas-cache
//! --test protocol_stories` writes the files again. Commands:
//!
//! | command | does |
//! |---|---|
//! | `nodes N [without-cooperation] [in-place ENTER LEAVE] [mapped] [nvm]` | a new world; node 0 is the home; readers ask for NVMe |
//! | `read N`, `write N`, `whole N`, `evict N` | node N asks for it; nothing is delivered yet |
//! | `put N`, `get N` | node N sends a small operation |
//! | `deliver A B` | the next message from A to B arrives |
//! | `nvm`, `nvm fails` | the home's NVMe completes |
//! | `settle` | everything arrives and completes, in a fixed order, until nothing is outstanding |
//! | `count` | messages between different nodes since the last count or the beginning |

mod protocol_model;

use protocol_model::invariant;
use protocol_model::world::{Move, Row, Setup, Watch, World};
use std::fmt::Write as _;
use std::path::Path;
use vgas_cache::protocol::{InPlaceService, Message, trace};
use vgas_rma::address::NodeId;

/// Writes down what happens.
#[derive(Default)]
struct Told {
    text: String,
    log: String,
    between_nodes: usize,
}

impl Watch for Told {
    fn sent(&mut self, from: u8, to: u8, _page: u8, message: Message) {
        self.between_nodes += usize::from(from != to);
        let message =
            format!("{message:?}").replace("NodeId(", "node ").replace("),", ",").replace(") }", " }");
        writeln!(self.text, "    {from} -> {to}  {message}").unwrap();
    }

    fn row(&mut self, row: Row) {
        let (text, row) = match row {
            Row::Line { page, node, state, event, next } => (
                format!("line {node}: {state:?} + {event:?} = {next:?}"),
                trace::Row {
                    page: u64::from(page),
                    node: NodeId(u32::from(node)),
                    taken: trace::Taken::Line(state, event, next),
                },
            ),
            Row::Home { page, state, event, next } => (
                format!("home  : {state:?} + {event:?} = {next:?}"),
                trace::Row {
                    page: u64::from(page),
                    node: NodeId(0),
                    taken: trace::Taken::Home(state, event, next),
                },
            ),
            // The stories are about messages, of which a claim sends none.
            Row::Claim { .. } => return,
        };
        writeln!(self.text, "  {text}").unwrap();
        writeln!(self.log, "{row}").unwrap();
    }

    fn completed(&mut self, node: u8, _page: u8, what: &str) {
        writeln!(self.text, "    node {node}: {what}").unwrap();
    }
}

/// Runs the commands of a story and returns it with what happened, and the log of its rows.
fn tell(story: &str) -> (String, String) {
    let mut setup = Setup::quiet(1, 1);
    let mut world = World::new(&setup);
    let mut told = Told::default();
    for line in story.lines() {
        let Some(command) = line.strip_prefix("> ") else {
            if line.starts_with('#') {
                // A remark begins a new paragraph; its further lines follow it.
                let follows =
                    told.text.is_empty() || told.text.lines().last().is_some_and(|l| l.starts_with('#'));
                writeln!(told.text, "{}{line}", if follows { "" } else { "\n" }).unwrap();
            }
            continue;
        };
        writeln!(told.text, "\n> {command}").unwrap();
        let words: Vec<&str> = command.split_ascii_whitespace().collect();
        let number = |index: usize| -> u8 {
            words
                .get(index)
                .and_then(|word| word.parse().ok())
                .unwrap_or_else(|| panic!("a number in `{command}`"))
        };
        let step = match words[0] {
            "nodes" => {
                setup = Setup::quiet(number(1), 1);
                setup.cooperative = !words.contains(&"without-cooperation");
                setup.nvm = words.contains(&"nvm");
                setup.mapped = words.contains(&"mapped");
                setup.in_place = words.iter().position(|word| *word == "in-place").map(|at| InPlaceService {
                    enter_after: u16::from(number(at + 1)),
                    leave_after: u16::from(number(at + 2)),
                });
                world = World::new(&setup);
                continue;
            }
            "count" => {
                let count = std::mem::take(&mut told.between_nodes);
                writeln!(told.text, "    {count} messages between nodes").unwrap();
                continue;
            }
            "settle" => {
                while let Some(step) = next_without_asking(&setup, &world) {
                    go(&setup, &mut world, step, &mut told);
                }
                assert!(invariant::at_rest(&world), "`{command}` leaves something outstanding");
                continue;
            }
            "read" => Move::Read { node: number(1), page: 0 },
            "write" => Move::Write { node: number(1), page: 0 },
            "whole" => Move::Whole { node: number(1), page: 0 },
            "evict" => Move::Evict { node: number(1), page: 0 },
            "put" => Move::Hinted { node: number(1), page: 0, write: true },
            "get" => Move::Hinted { node: number(1), page: 0, write: false },
            "deliver" => Move::Deliver { from: number(1), to: number(2), position: 0 },
            "nvm" => Move::Nvm { page: 0, fails: words.contains(&"fails") },
            _ => panic!("`{command}` is no command"),
        };
        go(&setup, &mut world, step, &mut told);
    }
    (told.text, told.log)
}

/// What may happen of itself, the first in a fixed order.
fn next_without_asking(setup: &Setup, world: &World) -> Option<Move> {
    let mut moves = Vec::new();
    world.moves(setup, &mut moves);
    moves.into_iter().find(|step| {
        matches!(
            step,
            Move::Deliver { .. } | Move::Nvm { fails: false, .. } | Move::Small { .. } | Move::Recall { .. }
        )
    })
}

fn go(setup: &Setup, world: &mut World, step: Move, told: &mut Told) {
    // A story has no budget.
    (world.reads, world.writes, world.wholes, world.evictions) = (1, 1, 1, 1);
    (world.hinted, world.failures) = (1, 1);
    let mut moves = Vec::new();
    world.moves(setup, &mut moves);
    assert!(moves.contains(&step), "{step:?} cannot happen here:\n{}", told.text);
    world.go(setup, step, told).unwrap_or_else(|finding| panic!("{finding}\n{}", told.text));
    (world.reads, world.writes, world.wholes, world.evictions) = (0, 0, 0, 0);
    (world.hinted, world.failures) = (0, 0);
    invariant::check(setup, world).unwrap_or_else(|finding| panic!("{finding}\n{}", told.text));
}

#[test]
fn every_story_is_as_it_is_told_and_its_log_replays() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/protocol_stories");
    let rewrite = std::env::var_os("VGAS_REWRITE").is_some();
    let mut stories = 0;
    for entry in std::fs::read_dir(&folder).unwrap() {
        let path = entry.unwrap().path();
        let written = std::fs::read_to_string(&path).unwrap();
        let (told, log) = tell(&written);
        let rows = trace::replay(&log).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        assert!(rows > 0, "{} tells nothing", path.display());
        if rewrite {
            std::fs::write(&path, &told).unwrap();
        } else {
            assert_eq!(told, written, "{} is out of date; VGAS_REWRITE=1 writes it again", path.display());
        }
        stories += 1;
    }
    assert!(stories >= 6, "stories are missing in {}", folder.display());
}

/// Messages between nodes of one miss: the figures of the project's first issue, and what is reached.
#[test]
fn misses_cost_as_many_messages_as_promised() {
    let cost = |prologue: &str, miss: &str| {
        let (told, _) = tell(&format!("{prologue}\n> count\n{miss}\n> settle\n> count\n"));
        let last = told.lines().rfind(|line| line.ends_with("messages between nodes")).unwrap();
        last.split_ascii_whitespace().next().unwrap().parse::<usize>().unwrap()
    };
    let readers = |nodes: std::ops::Range<usize>| -> String {
        nodes.map(|node| format!("\n> read {node}\n> settle")).collect()
    };
    assert_eq!(cost("> nodes 6", "> read 1"), 2, "from the home's NVMe; at most 3");
    assert_eq!(cost("> nodes 6\n> write 0\n> settle", "> read 1"), 2, "from the home's DRAM; at most 3");
    assert_eq!(cost("> nodes 6\n> write 2\n> settle", "> read 1"), 4, "from a forwarder; at most 4");
    assert_eq!(cost("> nodes 6\n> write 2\n> settle", "> write 1"), 4, "from the only holder; at most 4 + 2");
    for sharers in 1..=4 {
        let shared = format!("> nodes 6{}", readers(1..sharers + 1));
        let put = cost(&shared, "> write 5");
        assert_eq!(put, 2 + 2 * sharers, "a put with {sharers} others; at most 4 + 2k");
        let whole = cost(&shared, "> whole 5");
        assert_eq!(whole, 3 + 2 * sharers, "a put of the whole page with {sharers} others; at most 4 + 2k");
        let upgrade = cost(&format!("{shared}\n> read 5\n> settle"), "> write 5");
        assert_eq!(upgrade, 3 + 2 * sharers, "an upgrade with {sharers} others; at most 4 + 2k");
    }
    assert_eq!(cost("> nodes 2 in-place 1 9\n> write 1\n> settle\n> write 0\n> settle", "> put 1"), 0);
}
