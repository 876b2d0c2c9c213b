//! The tables and questions on std: boxes of chunks of columns, and threads.

// As on objects, where a row of boxes moves no columns.
#![allow(clippy::vec_box)]

use super::common::Outcome;
use super::csv;
use super::joins::{self, Join, Pair, Paired};
use super::queries::{self, Answered, Query};
use super::rows::{Columns, JoinColumns, Joined, Rows, Text};
use super::{Source, Workers};
use std::path::Path;
use std::thread;

/// Some rows of the table of the group-by queries.
pub struct Chunk {
    id1: Vec<Text>,
    id2: Vec<Text>,
    id3: Vec<Text>,
    id4: Vec<i32>,
    id5: Vec<i32>,
    id6: Vec<i32>,
    v1: Vec<i32>,
    v2: Vec<i32>,
    v3: Vec<f64>,
}

/// Some rows of a table of the joins.
pub struct JoinChunk {
    id1: Vec<i32>,
    id2: Vec<i32>,
    id5: Vec<Text>,
    id3: Vec<i32>,
    value: Vec<f64>,
}

/// The chunks of a table. Those of a number are made and looked at by the same thread each time.
pub type Frame = Vec<Box<Chunk>>;
pub type JoinFrame = Vec<Box<JoinChunk>>;

/// For each chunk, and each part, what it has.
type Pieces<K, S> = Vec<Vec<Vec<(K, S)>>>;

/// Groups, and what they come to, of each part.
type Answers<K, S> = Vec<(Answered, Vec<(K, S)>)>;

/// Rows of a join, and what they come to, of each chunk or part.
type Pairs = Vec<(Paired, Vec<Pair>)>;

/// A thread's result of reading a file: chunks, the lines of each, and the error in the next.
type Read = (Vec<Box<Chunk>>, Vec<u64>, Option<(u64, String)>);

impl Chunk {
    fn of(rows: Rows) -> Box<Self> {
        let Rows { id1, id2, id3, id4, id5, id6, v1, v2, v3 } = rows;
        Box::new(Self { id1, id2, id3, id4, id5, id6, v1, v2, v3 })
    }

    fn columns(&self) -> Columns<'_> {
        let Self { id1, id2, id3, id4, id5, id6, v1, v2, v3 } = self;
        Columns { id1, id2, id3, id4, id5, id6, v1, v2, v3 }
    }
}

impl JoinChunk {
    fn of(rows: Joined) -> Box<Self> {
        let Joined { id1, id2, id5, id3, value } = rows;
        Box::new(Self { id1, id2, id5, id3, value })
    }

    fn columns(&self) -> JoinColumns<'_> {
        let Self { id1, id2, id5, id3, value } = self;
        JoinColumns { id1, id2, id5, id3, value }
    }
}

/// Runs `work` on every worker and returns the results.
fn each<R: Send>(workers: &Workers, work: impl Fn(usize) -> R + Sync) -> Outcome<Vec<R>> {
    let work = &work;
    thread::scope(|scope| {
        let all: Vec<_> = (0..workers.count).map(|number| scope.spawn(move || work(number))).collect();
        all.into_iter().map(|one| one.join().map_err(|_| "a thread has panicked".into())).collect()
    })
}

/// Brings the chunks of all workers into the order of their numbers.
fn in_order<C>(made: Vec<Vec<C>>) -> Vec<C> {
    let mut each: Vec<_> = made.into_iter().map(|chunks| chunks.into_iter()).collect();
    let workers = each.len();
    (0..).map_while(|number: usize| each[number % workers].next()).collect()
}

fn generate_some(source: &Source, workers: &Workers, number: usize) -> Vec<Box<Chunk>> {
    let chunks = workers.share(number, source.chunks());
    chunks
        .map(|(from, to)| Chunk::of(Rows::generate(source.seed, from, to, source.rows, source.groups)))
        .collect()
}

/// The table that a seed means.
pub fn generate(source: &Source, workers: &Workers) -> Outcome<Frame> {
    let made = each(workers, |number| generate_some(source, workers, number))?;
    Ok(in_order(made))
}

fn read_some(path: &Path, pieces: &[csv::Piece], workers: &Workers, number: usize) -> Read {
    let (mut chunks, mut lines) = (Vec::new(), Vec::new());
    for piece in workers.share(number, pieces.iter()) {
        match csv::read(path, *piece) {
            Ok((rows, count)) => {
                chunks.push(Chunk::of(rows));
                lines.push(count);
            }
            Err((line, why)) => return (chunks, lines, Some((line, why))),
        }
    }
    (chunks, lines, None)
}

/// The table of a file.
pub fn read(path: &Path, workers: &Workers) -> Outcome<Frame> {
    let pieces = csv::pieces(path)?;
    let made = each(workers, |number| read_some(path, &pieces, workers, number))?;
    let found = made.iter().map(|(_, lines, wrong)| {
        (lines.to_vec(), wrong.as_ref().map(|(line, why)| (*line, why.to_string())))
    });
    csv::check(path, &found.collect::<Vec<_>>())?;
    Ok(in_order(made.into_iter().map(|(chunks, ..)| chunks).collect()))
}

fn gather_some<Q: Query>(frame: &Frame, workers: &Workers, number: usize) -> Pieces<Q::Key, Q::Sum> {
    let chunks = workers.share(number, frame.iter());
    let chunks = queries::expecting(chunks, |chunk| Q::expect(&chunk.columns()));
    chunks.map(|chunk| queries::gather::<Q>(&chunk.columns(), workers.parts)).collect()
}

fn merge_some<Q: Query>(
    pieces: &[Pieces<Q::Key, Q::Sum>],
    workers: &Workers,
    number: usize,
) -> Answers<Q::Key, Q::Sum> {
    let merged = workers.share(number, 0..workers.parts).map(|part| {
        let pieces = pieces.iter().flat_map(|pieces| pieces.iter());
        let groups = queries::merge::<Q>(pieces.map(|piece| &piece[part][..]));
        (Answered::of::<Q>(&groups), groups)
    });
    merged.collect()
}

/// Answers a question: each chunk's groups are gathered where it is, and those of a part are brought together.
pub fn group_by<Q: Query>(frame: &Frame, workers: &Workers) -> Outcome<Answered> {
    let pieces: Vec<_> = each(workers, |number| gather_some::<Q>(frame, workers, number))?;
    let answers = each(workers, |number| merge_some::<Q>(&pieces, workers, number))?;
    let answers = answers.iter().flat_map(|answers| answers.iter());
    Ok(answers.fold(Answered::default(), |sum, (answered, _)| sum.and(answered)))
}

fn generate_joined(
    source: &Source,
    workers: &Workers,
    (table, number): (usize, usize),
) -> Vec<Box<JoinChunk>> {
    let of = source.of_table(table);
    let made = workers.share(number, of.chunks()).map(|(from, to)| match table {
        0 => Joined::generate(of.seed, from, to, of.rows),
        _ => Joined::generate_right(of.seed, from, to),
    });
    made.map(JoinChunk::of).collect()
}

/// A table of the joins: the left one is the first, the right ones follow.
pub fn generate_table(source: &Source, workers: &Workers, table: usize) -> Outcome<JoinFrame> {
    let made = each(workers, |number| generate_joined(source, workers, (table, number)))?;
    Ok(in_order(made))
}

fn join_some<J: Join>(left: &JoinFrame, right: &JoinFrame, workers: &Workers, number: usize) -> Pairs {
    let table = joins::index(right.iter().flat_map(|chunk| joins::keyed::<J>(chunk.columns())));
    let joined = workers.share(number, left.iter()).map(|chunk| {
        let pairs = joins::probe::<J>(&table, joins::keyed::<J>(chunk.columns()));
        (Paired::of(&pairs), pairs)
    });
    joined.collect()
}

fn spread_some<J: Join>(frame: &JoinFrame, workers: &Workers, number: usize) -> Pieces<J::Key, f64> {
    let chunks = workers.share(number, frame.iter());
    chunks.map(|chunk| joins::spread::<J>(chunk.columns(), workers.parts)).collect()
}

fn join_parts<J: Join>(
    left: &[Pieces<J::Key, f64>],
    right: &[Pieces<J::Key, f64>],
    workers: &Workers,
    number: usize,
) -> Pairs {
    let joined = workers.share(number, 0..workers.parts).map(|part| {
        let table = joins::index(
            right.iter().flat_map(|pieces| pieces.iter()).flat_map(|piece| piece[part].iter().copied()),
        );
        let left = left.iter().flat_map(|pieces| pieces.iter()).flat_map(|piece| piece[part].iter().copied());
        let pairs = joins::probe::<J>(&table, left);
        (Paired::of(&pairs), pairs)
    });
    joined.collect()
}

/// Joins two tables: all workers read all of a small one; with a big one, both are cut into parts by their keys.
pub fn join<J: Join>(left: &JoinFrame, right: &JoinFrame, workers: &Workers) -> Outcome<Paired> {
    let pairs = if J::IS_BIG {
        let left: Vec<_> = each(workers, |number| spread_some::<J>(left, workers, number))?;
        let right: Vec<_> = each(workers, |number| spread_some::<J>(right, workers, number))?;
        each(workers, |number| join_parts::<J>(&left, &right, workers, number))?
    } else {
        each(workers, |number| join_some::<J>(left, right, workers, number))?
    };
    let pairs = pairs.iter().flat_map(|pairs| pairs.iter());
    Ok(pairs.fold(Paired::default(), |sum, (paired, _)| sum.and(paired)))
}
