//! PROTOCOL.md prints the tables from the source, so that a change of one cell shows as one line in review.
//! `VGAS_REWRITE=1 cargo test -p vgas-cache --test protocol_document` brings it up to date.

use std::fmt::Write as _;
use std::path::Path;
use vgas_cache::protocol::{claim, home, line};

const BEGIN: &str = "<!-- Printed from the source; see tests/protocol_document.rs. -->\n";
const END: &str = "<!-- End of what is printed. -->\n";

/// What a cell that is not *never* says: the next state and the actions.
type Cell<S, A> = (S, &'static [A]);

/// A table, and how its words are written.
struct Table<S: 'static, E: 'static, A: 'static> {
    states: &'static [S],
    events: &'static [E],
    cell: fn(S, E) -> Option<Cell<S, A>>,
    state_name: fn(S) -> &'static str,
    event_name: fn(E) -> &'static str,
    act_name: fn(A) -> &'static str,
}

const LINE: Table<line::State, line::Event, line::Act> = Table {
    states: line::State::ALL,
    events: line::Event::ALL,
    cell: line::table::cell,
    state_name: line::State::name,
    event_name: line::Event::name,
    act_name: line::Act::name,
};

const HOME: Table<home::State, home::Event, home::Act> = Table {
    states: home::State::ALL,
    events: home::Event::ALL,
    cell: home::table::cell,
    state_name: home::State::name,
    event_name: home::Event::name,
    act_name: home::Act::name,
};

const CLAIM: Table<claim::State, claim::Event, claim::Act> = Table {
    states: claim::State::ALL,
    events: claim::Event::ALL,
    cell: claim_cell,
    state_name: claim::State::name,
    event_name: claim::Event::name,
    act_name: claim::Act::name,
};

/// The table of claims has one action a cell.
fn claim_cell(state: claim::State, event: claim::Event) -> Option<Cell<claim::State, claim::Act>> {
    let (next, act) = claim::cell(state, event)?;
    let at = claim::Act::ALL.iter().position(|other| *other == act)?;
    let acts = if act == claim::Act::Nothing { &[] } else { &claim::Act::ALL[at..=at] };
    Some((next, acts))
}

impl<S: Copy + PartialEq, E: Copy, A: Copy> Table<S, E, A> {
    /// One row for each cell that is not *never*, state by state.
    fn rows(&self) -> String {
        let mut text = "### Row by row\n\n| state | event | next | actions |\n|---|---|---|---|\n".to_owned();
        for &state in self.states {
            for &event in self.events {
                if let Some((next, acts)) = (self.cell)(state, event) {
                    let acts: Vec<&str> = acts.iter().map(|act| (self.act_name)(*act)).collect();
                    let (state, next) = ((self.state_name)(state), (self.state_name)(next));
                    let event = (self.event_name)(event);
                    writeln!(text, "| {state} | {event} | {next} | {} |", acts.join(", ")).unwrap();
                }
            }
        }
        text
    }

    /// The whole matrix on one screen: the next state, `=` for "stays", a dot for "never".
    fn matrix(&self) -> String {
        let names: Vec<&str> = self.states.iter().map(|state| (self.state_name)(*state)).collect();
        let wide = names.iter().map(|name| name.len()).max().unwrap_or(0);
        let first = self.events.iter().map(|event| (self.event_name)(*event).len()).max().unwrap_or(0);
        let mut lines = vec![(String::new(), names)];
        for &event in self.events {
            let cells = self.states.iter().map(|&state| match (self.cell)(state, event) {
                None => ".",
                Some((next, _)) if next == state => "=",
                Some((next, _)) => (self.state_name)(next),
            });
            lines.push(((self.event_name)(event).to_owned(), cells.collect()));
        }
        let mut text = "### On one screen\n\nNext state; `=` stays, `.` never.\n\n```text\n".to_owned();
        for (name, cells) in lines {
            let cells: String = cells.iter().map(|cell| format!(" {cell:wide$}")).collect();
            writeln!(text, "{}", format!("{name:first$}{cells}").trim_end()).unwrap();
        }
        text + "```\n"
    }
}

fn words<W: Copy>(
    title: &str,
    all: &[W],
    name: fn(W) -> &'static str,
    meaning: fn(W) -> &'static str,
) -> String {
    let mut text = format!("**{title}**\n\n| word | meaning |\n|---|---|\n");
    for &word in all {
        writeln!(text, "| {} | {} |", name(word), meaning(word)).unwrap();
    }
    text
}

fn printed() -> String {
    let parts = [
        "## The line".to_owned(),
        words("States", line::State::ALL, line::State::name, line::State::meaning),
        words("Events", line::Event::ALL, line::Event::name, line::Event::meaning),
        words("Actions", line::Act::ALL, line::Act::name, line::Act::meaning),
        LINE.matrix(),
        LINE.rows(),
        "## The home".to_owned(),
        words("States", home::State::ALL, home::State::name, home::State::meaning),
        words("Events", home::Event::ALL, home::Event::name, home::Event::meaning),
        words("Actions", home::Act::ALL, home::Act::name, home::Act::meaning),
        HOME.rows(),
        "## The claim".to_owned(),
        words("States", claim::State::ALL, claim::State::name, claim::State::meaning),
        words("Events", claim::Event::ALL, claim::Event::name, claim::Event::meaning),
        words("Actions", claim::Act::ALL, claim::Act::name, claim::Act::meaning),
        CLAIM.matrix(),
        CLAIM.rows(),
    ];
    parts.map(|part| part.trim_end().to_owned() + "\n").join("\n")
}

#[test]
fn the_document_prints_the_tables() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("PROTOCOL.md");
    let document = std::fs::read_to_string(&path).unwrap();
    let (before, rest) = document.split_once(BEGIN).expect("PROTOCOL.md has a place for the tables");
    let (found, after) = rest.split_once(END).expect("PROTOCOL.md ends the place for the tables");
    let wanted = format!("\n{}\n", printed());
    if std::env::var_os("VGAS_REWRITE").is_some() {
        std::fs::write(&path, format!("{before}{BEGIN}{wanted}{END}{after}")).unwrap();
    } else {
        assert!(found == wanted, "PROTOCOL.md is out of date; VGAS_REWRITE=1 brings it up to date");
    }
}
