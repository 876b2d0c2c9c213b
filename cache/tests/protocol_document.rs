//! PROTOCOL.md prints the tables from the source, so that a change of one cell shows as one line in review.
//! `VGAS_REWRITE=1 cargo test -p vgas-cache --test protocol_document` brings it up to date.

use std::fmt::Write as _;
use std::path::Path;
use vgas_cache::protocol::{home, line};

const BEGIN: &str = "<!-- Printed from the source; see tests/protocol_document.rs. -->\n";
const END: &str = "<!-- End of what is printed. -->\n";

/// One row for each cell that is not *never*, state by state.
fn rows<S: Copy, E: Copy, A: Copy>(
    title: &str,
    states: &[S],
    events: &[E],
    cell: impl Fn(S, E) -> Option<(S, &'static [A])>,
    names: (fn(S) -> &'static str, fn(E) -> &'static str, fn(A) -> &'static str),
) -> String
where
    A: 'static,
{
    let (state_name, event_name, act_name) = names;
    let mut text = format!("### {title}\n\n| state | event | next | actions |\n|---|---|---|---|\n");
    for &state in states {
        for &event in events {
            if let Some((next, acts)) = cell(state, event) {
                let acts: Vec<&str> = acts.iter().map(|act| act_name(*act)).collect();
                let (state, event) = (state_name(state), event_name(event));
                writeln!(text, "| {state} | {event} | {} | {} |", state_name(next), acts.join(", ")).unwrap();
            }
        }
    }
    text
}

/// The whole matrix on one screen: the next state, `=` for "stays", a dot for "never".
fn matrix<S: Copy + PartialEq, E: Copy, A: 'static>(
    states: &[S],
    events: &[E],
    cell: impl Fn(S, E) -> Option<(S, &'static [A])>,
    names: (fn(S) -> &'static str, fn(E) -> &'static str),
) -> String {
    let (state_name, event_name) = names;
    let wide = states.iter().map(|state| state_name(*state).len()).max().unwrap_or(0);
    let first = events.iter().map(|event| event_name(*event).len()).max().unwrap_or(0);
    let mut text = format!("```text\n{:first$}", "");
    for &state in states {
        write!(text, " {:wide$}", state_name(state)).unwrap();
    }
    text.truncate(text.trim_end().len());
    text.push('\n');
    for &event in events {
        write!(text, "{:first$}", event_name(event)).unwrap();
        for &state in states {
            let next = match cell(state, event) {
                None => ".",
                Some((next, _)) if next == state => "=",
                Some((next, _)) => state_name(next),
            };
            write!(text, " {next:wide$}").unwrap();
        }
        text.truncate(text.trim_end().len());
        text.push('\n');
    }
    text.push_str("```\n");
    text
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
    use home::table::cell as home_cell;
    use line::table::cell as line_cell;
    let line_matrix =
        matrix(line::State::ALL, line::Event::ALL, line_cell, (line::State::name, line::Event::name));
    let parts = [
        "## The line".to_owned(),
        words("States", line::State::ALL, line::State::name, line::State::meaning),
        words("Events", line::Event::ALL, line::Event::name, line::Event::meaning),
        words("Actions", line::Act::ALL, line::Act::name, line::Act::meaning),
        format!("### On one screen\n\nNext state; `=` stays, `.` never.\n\n{line_matrix}"),
        rows(
            "Row by row",
            line::State::ALL,
            line::Event::ALL,
            line_cell,
            (line::State::name, line::Event::name, line::Act::name),
        ),
        "## The home".to_owned(),
        words("States", home::State::ALL, home::State::name, home::State::meaning),
        words("Events", home::Event::ALL, home::Event::name, home::Event::meaning),
        words("Actions", home::Act::ALL, home::Act::name, home::Act::meaning),
        rows(
            "Row by row",
            home::State::ALL,
            home::Event::ALL,
            home_cell,
            (home::State::name, home::Event::name, home::Act::name),
        ),
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
