//! A task in the thread that wants it done.

use super::entry::{Task, code_of};
use super::job::settled;
use super::lend::{self, Arguments};
use super::{TaskError, rank};
use crate::portable::Portable;
use vgas::Rank;

/// Returns a task's number, which is the same in every process of the job.
pub(crate) fn number_of<A, R>(task: Task<A, R>) -> Option<u32> {
    task.number()
}

/// Runs the task of a number, made for these types; the message of its panic is its error.
pub(crate) fn run_here<'s, A: Arguments<'s>, R: Portable>(
    number: u32,
    lent: A::Lent,
    given: A::Values,
) -> Result<R, TaskError> {
    let me = rank().unwrap_or(Rank(u32::MAX));
    let mut back = Vec::new();
    let bytes = lend::pack::<A, R>(lent, given, &mut back);
    let outcome = code_of(number).and_then(|code| code(&bytes)).ok_or(TaskError::Misread(me))?;
    settled(me, &outcome, &back)
}
