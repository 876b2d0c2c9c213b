//! Real runs testify: each row taken is one line of text, and a log of them can be held against the tables.
//!
//! A line reads `page machine state event next`, for instance `7 line@1 S Invalidate I` or
//! `7 home@0 Shared Claim Transferring`.

use super::{home, line};
use std::collections::HashMap;
use std::fmt;
use vgas_rma::address::NodeId;

/// One row that was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The page, in the driver's numbering.
    pub page: u64,
    /// Where.
    pub node: NodeId,
    /// What.
    pub taken: Taken,
}

/// A row of one of the tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taken {
    /// Of a node's copy.
    Line(line::State, line::Event, line::State),
    /// Of the directory.
    Home(home::State, home::Event, home::State),
}

/// A log that the tables do not explain.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("line {number} of the log, `{text}`: {why}")]
pub struct ReplayError {
    /// Of the line, from 1.
    pub number: usize,
    /// The line.
    pub text: String,
    /// What is wrong with it.
    pub why: String,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Row { page, node: NodeId(node), taken } = self;
        match taken {
            Taken::Line(state, event, next) => {
                write!(f, "{page} line@{node} {} {} {}", state.name(), event.name(), next.name())
            }
            Taken::Home(state, event, next) => {
                write!(f, "{page} home@{node} {} {} {}", state.name(), event.name(), next.name())
            }
        }
    }
}

impl Row {
    /// Reads a line of a log.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let page = words.next()?.parse().ok()?;
        let (machine, node) = words.next()?.split_once('@')?;
        let node = NodeId(node.parse().ok()?);
        let (state, event, next) = (words.next()?, words.next()?, words.next()?);
        let taken = match machine {
            "line" => {
                Taken::Line(line::State::named(state)?, line::Event::named(event)?, line::State::named(next)?)
            }
            "home" => {
                Taken::Home(home::State::named(state)?, home::Event::named(event)?, home::State::named(next)?)
            }
            _ => return None,
        };
        words.next().is_none().then_some(Self { page, node, taken })
    }

    /// Whether the table has this row.
    fn is_in_table(&self) -> bool {
        match self.taken {
            Taken::Line(state, event, next) => {
                line::table::cell(state, event).is_some_and(|(to, _)| to == next)
            }
            Taken::Home(state, event, next) => {
                home::table::cell(state, event).is_some_and(|(to, _)| to == next)
            }
        }
    }
}

/// Holds a log against the tables: every row exists, and every machine goes on where it was. (A rank's write to an
/// exclusive copy is silent, so a line that was left in E may be found in M.) Empty lines and lines that begin with
/// `#` are passed over. Returns the number of rows.
///
/// # Errors
/// The first line that does not fit.
pub fn replay(log: &str) -> Result<usize, ReplayError> {
    let mut lines: HashMap<(u64, NodeId), line::State> = HashMap::new();
    let mut homes: HashMap<u64, home::State> = HashMap::new();
    let mut rows = 0;
    for (index, text) in log.lines().enumerate() {
        if text.trim().is_empty() || text.starts_with('#') {
            continue;
        }
        let wrong = |why: &str| ReplayError { number: index + 1, text: text.to_owned(), why: why.to_owned() };
        let row = Row::parse(text).ok_or_else(|| wrong("not `page machine state event next`"))?;
        if !row.is_in_table() {
            return Err(wrong("the table has no such row"));
        }
        match row.taken {
            Taken::Line(state, _, next) => {
                let silent = (line::State::E, line::State::M);
                if let Some(left) = lines.insert((row.page, row.node), next)
                    && left != state
                    && (left, state) != silent
                {
                    return Err(wrong(&format!("this copy was left in {}", left.name())));
                }
            }
            Taken::Home(state, _, next) => {
                if let Some(left) = homes.insert(row.page, next)
                    && left != state
                {
                    return Err(wrong(&format!("this entry was left in {}", left.name())));
                }
            }
        }
        rows += 1;
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
# node 1 reads a page that nobody has, writes it silently, and gives it up
7 line@1 I Read IsD
7 home@0 Nowhere Get NowhereReading
7 home@0 NowhereReading ReadForReader Exclusive
7 line@1 IsD DataExclusive E
7 line@1 M Replace MiE
";

    #[test]
    fn a_log_that_the_tables_explain_is_counted() {
        assert_eq!(replay(LOG), Ok(5));
        for text in LOG.lines().filter(|text| !text.starts_with('#')) {
            assert_eq!(Row::parse(text).unwrap().to_string(), text);
        }
    }

    #[test]
    fn a_row_that_does_not_exist_is_named() {
        let error = replay("7 line@1 I Read M").unwrap_err();
        assert_eq!(error.to_string(), "line 1 of the log, `7 line@1 I Read M`: the table has no such row");
        assert!(replay("7 line@1 I Read").unwrap_err().why.starts_with("not `page"));
    }

    #[test]
    fn a_machine_that_jumps_is_named() {
        let error = replay(&format!("{LOG}7 home@0 Shared Claim Transferring")).unwrap_err();
        assert_eq!((error.number, error.why.as_str()), (7, "this entry was left in Exclusive"));
    }
}
