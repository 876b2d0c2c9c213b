//! The tables and questions on owned objects: boxes of chunks of columns, and tasks where they are.

use super::common::Outcome;
use super::csv;
use super::joins::{self, Join, Pair, Paired};
use super::queries::{self, Answered, Query};
use super::rows::{Columns, JoinColumns, Joined, Rows, Text};
use super::{Source, Workers};
use std::path::Path;
use vgas::Rank;
use vgas_objects::{DBox, DString, DVec, JoinHandle, Portable, Scope, Shareable, TaskError, scope, task};

/// Some rows of the table of the group-by queries.
#[derive(Portable, Shareable)]
pub struct Chunk {
    id1: DVec<Text>,
    id2: DVec<Text>,
    id3: DVec<Text>,
    id4: DVec<i32>,
    id5: DVec<i32>,
    id6: DVec<i32>,
    v1: DVec<i32>,
    v2: DVec<i32>,
    v3: DVec<f64>,
}

/// Some rows of a table of the joins.
#[derive(Portable, Shareable)]
pub struct JoinChunk {
    id1: DVec<i32>,
    id2: DVec<i32>,
    id5: DVec<Text>,
    id3: DVec<i32>,
    value: DVec<f64>,
}

/// The chunks of a table. Those of a number are made and looked at by the same thread each time.
pub type Frame = DVec<DBox<Chunk>>;
pub type JoinFrame = DVec<DBox<JoinChunk>>;

/// For each chunk, and each part, what it has.
type Pieces<K, S> = DVec<DVec<DVec<(K, S)>>>;

/// Groups, and what they come to, of each part.
type Answers<K, S> = DVec<(Answered, DVec<(K, S)>)>;

/// Rows of a join, and what they come to, of each chunk or part.
type Pairs = DVec<(Paired, DVec<Pair>)>;

/// What a thread has read of a file: chunks, the lines of each, and what is wrong in the next.
type Read = (DVec<DBox<Chunk>>, DVec<u64>, Option<(u64, DString)>);

impl Chunk {
    fn of(rows: Rows) -> DBox<Self> {
        let Rows { id1, id2, id3, id4, id5, id6, v1, v2, v3 } = rows;
        let (id1, id2, id3, id4, id5) = (row(&id1), row(&id2), row(&id3), row(&id4), row(&id5));
        let (id6, v1, v2, v3) = (row(&id6), row(&v1), row(&v2), row(&v3));
        DBox::new(Self { id1, id2, id3, id4, id5, id6, v1, v2, v3 })
    }

    fn columns(&self) -> Columns<'_> {
        let Self { id1, id2, id3, id4, id5, id6, v1, v2, v3 } = self;
        Columns { id1, id2, id3, id4, id5, id6, v1, v2, v3 }
    }
}

impl JoinChunk {
    fn of(rows: Joined) -> DBox<Self> {
        let Joined { id1, id2, id5, id3, value } = rows;
        let (id1, id2, id5, id3, value) = (row(&id1), row(&id2), row(&id5), row(&id3), row(&value));
        DBox::new(Self { id1, id2, id5, id3, value })
    }

    fn columns(&self) -> JoinColumns<'_> {
        let Self { id1, id2, id5, id3, value } = self;
        JoinColumns { id1, id2, id5, id3, value }
    }
}

/// A row of copies of values.
fn row<T: Portable + Copy>(values: &[T]) -> DVec<T> {
    let mut row = DVec::new();
    if let Err(error) = row.try_extend_from(values) {
        panic!("{error}");
    }
    row
}

/// A row of rows of copies of values.
fn rows_of<T: Portable + Copy>(parts: Vec<Vec<T>>) -> DVec<DVec<T>> {
    parts.iter().map(|part| row(part)).collect()
}

/// What each worker has done, on its rank.
fn each<'env, R: Portable>(
    workers: &Workers,
    begin: impl for<'scope> Fn(&'scope Scope<'scope, 'env>, Rank, usize) -> JoinHandle<'scope, R>,
) -> Outcome<DVec<R>> {
    Ok(scope(|scope| {
        let all: Vec<_> =
            (0..workers.count).map(|number| begin(scope, workers.place(number), number)).collect();
        all.into_iter().map(|one| one.join()).collect::<Result<_, TaskError>>()
    })?)
}

/// Brings the chunks of all workers into the order of their numbers.
fn in_order<C: Portable>(made: DVec<DVec<C>>) -> DVec<C> {
    let mut each: Vec<_> = made.into_iter().map(|chunks| chunks.into_iter()).collect();
    let workers = each.len();
    (0..).map_while(|number: usize| each[number % workers].next()).collect()
}

fn generate_some(source: &Source, workers: &Workers, number: usize) -> DVec<DBox<Chunk>> {
    let chunks = workers.share(number, source.chunks());
    chunks
        .map(|(from, to)| Chunk::of(Rows::generate(source.seed, from, to, source.rows, source.groups)))
        .collect()
}

/// The table that a seed means.
pub fn generate(source: &Source, workers: &Workers) -> Outcome<Frame> {
    let made = each(workers, |scope, place, number| {
        let task = task!(|(source, workers): (&Source, &Workers), number: usize| -> DVec<DBox<Chunk>> {
            generate_some(source, workers, number)
        });
        scope.spawn_to(place, task, (source, workers), number)
    })?;
    Ok(in_order(made))
}

fn read_some(path: &Path, pieces: &[csv::Piece], workers: &Workers, number: usize) -> Read {
    let (mut chunks, mut lines) = (DVec::new(), DVec::new());
    for piece in workers.share(number, pieces.iter()) {
        match csv::read(path, *piece) {
            Ok((rows, count)) => {
                chunks.push(Chunk::of(rows));
                lines.push(count);
            }
            Err((line, why)) => return (chunks, lines, Some((line, why.as_str().into()))),
        }
    }
    (chunks, lines, None)
}

/// The table of a file.
pub fn read(path: &Path, workers: &Workers) -> Outcome<Frame> {
    let pieces = csv::pieces(path)?;
    let (name, pieces) = (DString::from(&*path.to_string_lossy()), row(&pieces));
    let made = each(workers, |scope, place, number| {
        let task = task!(|(path, pieces, workers): (&DString, &DVec<csv::Piece>, &Workers),
                          number: usize|
         -> Read { read_some(Path::new(&**path), pieces, workers, number) });
        scope.spawn_to(place, task, (&name, &pieces, workers), number)
    })?;
    let found = made.iter().map(|(_, lines, wrong)| {
        (lines.to_vec(), wrong.as_ref().map(|(line, why)| (*line, why.to_string())))
    });
    csv::check(path, &found.collect::<Vec<_>>())?;
    Ok(in_order(made.into_iter().map(|(chunks, ..)| chunks).collect()))
}

fn gather_some<Q: Query>(frame: &Frame, workers: &Workers, number: usize) -> Pieces<Q::Key, Q::Sum> {
    let chunks = workers.share(number, frame.iter());
    chunks.map(|chunk| rows_of(queries::gather::<Q>(&chunk.columns(), workers.parts))).collect()
}

fn merge_some<Q: Query>(
    pieces: &DVec<Pieces<Q::Key, Q::Sum>>,
    workers: &Workers,
    number: usize,
) -> Answers<Q::Key, Q::Sum> {
    let merged = workers.share(number, 0..workers.parts).map(|part| {
        let pieces = pieces.iter().flat_map(|pieces| pieces.iter());
        let groups = queries::merge::<Q>(pieces.map(|piece| &piece[part][..]));
        (Answered::of::<Q>(&groups), row(&groups))
    });
    merged.collect()
}

/// Answers a question: each chunk's groups are gathered where it is, and those of a part are brought together.
pub fn group_by<Q: Query>(frame: &Frame, workers: &Workers) -> Outcome<Answered> {
    let pieces = each(workers, |scope, place, number| {
        let task = task!(|(frame, workers): (&Frame, &Workers), number: usize| -> Pieces<Q::Key, Q::Sum> {
            gather_some::<Q>(frame, workers, number)
        });
        scope.spawn_to(place, task, (frame, workers), number)
    })?;
    let answers = each(workers, |scope, place, number| {
        let task = task!(|(pieces, workers): (&DVec<Pieces<Q::Key, Q::Sum>>, &Workers),
                          number: usize|
         -> Answers<Q::Key, Q::Sum> { merge_some::<Q>(pieces, workers, number) });
        scope.spawn_to(place, task, (&pieces, workers), number)
    })?;
    let answers = answers.iter().flat_map(|answers| answers.iter());
    Ok(answers.fold(Answered::default(), |sum, (answered, _)| sum.and(answered)))
}

fn generate_joined(
    source: &Source,
    workers: &Workers,
    (table, number): (usize, usize),
) -> DVec<DBox<JoinChunk>> {
    let of = source.of_table(table);
    let made = workers.share(number, of.chunks()).map(|(from, to)| match table {
        0 => Joined::generate(of.seed, from, to, of.rows),
        _ => Joined::generate_right(of.seed, from, to),
    });
    made.map(JoinChunk::of).collect()
}

/// A table of the joins: the left one is the first, the right ones follow.
pub fn generate_table(source: &Source, workers: &Workers, table: usize) -> Outcome<JoinFrame> {
    let made = each(workers, |scope, place, number| {
        let task = task!(|(source, workers): (&Source, &Workers),
                          number: (usize, usize)|
         -> DVec<DBox<JoinChunk>> { generate_joined(source, workers, number) });
        scope.spawn_to(place, task, (source, workers), (table, number))
    })?;
    Ok(in_order(made))
}

fn join_some<J: Join>(left: &JoinFrame, right: &JoinFrame, workers: &Workers, number: usize) -> Pairs {
    let table = joins::index(right.iter().flat_map(|chunk| joins::keyed::<J>(chunk.columns())));
    let joined = workers.share(number, left.iter()).map(|chunk| {
        let pairs = joins::probe::<J>(&table, joins::keyed::<J>(chunk.columns()));
        (Paired::of(&pairs), row(&pairs))
    });
    joined.collect()
}

fn spread_some<J: Join>(frame: &JoinFrame, workers: &Workers, number: usize) -> Pieces<J::Key, f64> {
    let chunks = workers.share(number, frame.iter());
    chunks.map(|chunk| rows_of(joins::spread::<J>(chunk.columns(), workers.parts))).collect()
}

fn join_parts<J: Join>(
    left: &DVec<Pieces<J::Key, f64>>,
    right: &DVec<Pieces<J::Key, f64>>,
    workers: &Workers,
    number: usize,
) -> Pairs {
    let joined = workers.share(number, 0..workers.parts).map(|part| {
        let table = joins::index(
            right.iter().flat_map(|pieces| pieces.iter()).flat_map(|piece| piece[part].iter().copied()),
        );
        let left = left.iter().flat_map(|pieces| pieces.iter()).flat_map(|piece| piece[part].iter().copied());
        let pairs = joins::probe::<J>(&table, left);
        (Paired::of(&pairs), row(&pairs))
    });
    joined.collect()
}

/// Joins two tables: all workers read all of a small one; with a big one, both are cut into parts by their keys.
pub fn join<J: Join>(left: &JoinFrame, right: &JoinFrame, workers: &Workers) -> Outcome<Paired> {
    let pairs = if J::IS_BIG {
        let left = each(workers, |scope, place, number| {
            let task =
                task!(|(frame, workers): (&JoinFrame, &Workers), number: usize| -> Pieces<J::Key, f64> {
                    spread_some::<J>(frame, workers, number)
                });
            scope.spawn_to(place, task, (left, workers), number)
        })?;
        let right = each(workers, |scope, place, number| {
            let task =
                task!(|(frame, workers): (&JoinFrame, &Workers), number: usize| -> Pieces<J::Key, f64> {
                    spread_some::<J>(frame, workers, number)
                });
            scope.spawn_to(place, task, (right, workers), number)
        })?;
        each(workers, |scope, place, number| {
            let task = task!(|(left, right, workers): (
                &DVec<Pieces<J::Key, f64>>,
                &DVec<Pieces<J::Key, f64>>,
                &Workers
            ),
                              number: usize|
             -> Pairs { join_parts::<J>(left, right, workers, number) });
            scope.spawn_to(place, task, (&left, &right, workers), number)
        })?
    } else {
        each(workers, |scope, place, number| {
            let task = task!(|(left, right, workers): (&JoinFrame, &JoinFrame, &Workers),
                              number: usize|
             -> Pairs { join_some::<J>(left, right, workers, number) });
            scope.spawn_to(place, task, (left, right, workers), number)
        })?
    };
    let pairs = pairs.iter().flat_map(|pairs| pairs.iter());
    Ok(pairs.fold(Paired::default(), |sum, (paired, _)| sum.and(paired)))
}
