//! Teams and their collectives: blocking ones here, those that proceed while the program computes in `started`.

mod started;

pub use started::CollectiveHandle;

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::sync::Arc;
use vgas_rma::Rank;
use vgas_rma::collective::{self, Blocks, Call, Combiner, Kind, Pattern, View};

/// Some ranks of a job, in an order, that do things together (GASNet's teams; MPI's communicators).
///
/// A *member* is named by its position, from 0. Each function below that is documented as *collective* is
/// called by all members, in the same order, with the same root and sizes; it waits for the caller's results,
/// and for its own messages to have left, not for others to be done. Those whose names end in `_nb` return at
/// once a [`CollectiveHandle`], and progress by themselves; they count as called when they are started. Any
/// thread may call; threads that would call collectives at the same time do so on teams of their own, because
/// the order is that of the team. Teams may overlap, and different teams need no common order. Messages for
/// handlers are served meanwhile. Not in handlers.
///
/// Puts before a collective are visible after it only if it is documented as a barrier.
///
/// # Errors
/// Members that do not agree are told: whichever finds another collective, root or size than its own ends
/// with [`RmaError::Collective`](vgas_rma::RmaError::Collective), which names the other, and tells all
/// members. Operations that had ended before on some member are unaffected there; this and every later
/// collective of the team ends with the error. Other teams are unaffected. A difference that shows in no
/// message, as of a member that does not call at all, is waited for.
///
/// # Examples
/// ```no_run
/// # fn example(runtime: &vgas::Runtime) -> vgas::Result<()> {
/// use vgas::Operator;
/// let world = runtime.world()?;
/// // The ranks as a table, three in a row: sums of the rows.
/// let row = world.split(world.rank() / 3, world.rank())?;
/// let mut sums = [f64::from(world.rank()), 1.0];
/// row.all_reduce(&mut sums, Operator::Sum)?;
/// assert_eq!(sums[1], f64::from(row.size()));
/// # Ok(()) }
/// ```
pub struct Team {
    runtime: Runtime,
    team: Arc<collective::Team>,
}

/// Combination of two elements. Sums and products of integers wrap around.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operator {
    /// Both added.
    Sum,
    /// Both multiplied.
    Product,
    /// The smaller one; of floating-point numbers, the one that is a number.
    Min,
    /// The larger one; likewise.
    Max,
}

/// Elements that an [`Operator`] combines: the numbers of Rust.
pub trait Number: Pod {
    /// Both, combined.
    fn combine(operator: Operator, left: Self, right: Self) -> Self;
}

macro_rules! numbers {
    ($($number:ty)*, $sum:expr, $product:expr) => {$(
        impl Number for $number {
            fn combine(operator: Operator, left: Self, right: Self) -> Self {
                let with = |combine: fn(Self, Self) -> Self| combine(left, right);
                match operator {
                    Operator::Sum => with($sum),
                    Operator::Product => with($product),
                    Operator::Min => left.min(right),
                    Operator::Max => left.max(right),
                }
            }
        }
    )*};
}

numbers!(u8 u16 u32 u64 u128 usize i8 i16 i32 i64 i128 isize, |a, b| a.wrapping_add(b), |a, b| a.wrapping_mul(b));
numbers!(f32 f64, |a, b| a + b, |a, b| a * b);

/// Combines elements of two members: an [`Operator`], or a function. It must be associative; members are
/// combined in their order, so it need not be commutative. It runs in the calling thread.
pub trait Combine<T> {
    /// Both, the earlier member's first.
    fn combine(&self, left: T, right: T) -> T;
}

impl<T: Number> Combine<T> for Operator {
    fn combine(&self, left: T, right: T) -> T {
        T::combine(*self, left, right)
    }
}

impl<T: Pod, F: Fn(T, T) -> T> Combine<T> for F {
    fn combine(&self, left: T, right: T) -> T {
        self(left, right)
    }
}

impl Runtime {
    /// Returns the team of all ranks.
    ///
    /// # Errors
    /// None that a job can have.
    pub fn world(&self) -> Result<Team> {
        Ok(Team { runtime: self.clone(), team: self.world_team().clone() })
    }
}

impl Team {
    /// This rank's position in the team.
    pub fn rank(&self) -> u32 {
        self.team.me()
    }

    /// Number of members.
    pub fn size(&self) -> u32 {
        self.team.size()
    }

    /// The ranks of the members, by position.
    pub fn members(&self) -> &[Rank] {
        self.team.members()
    }

    /// Splits the team: members that give the same colour are a team, in the order of the keys that they give, and of their
    /// positions here where keys are equal. Collective. The new team is given up by being dropped.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn split(&self, colour: u32, key: u32) -> Result<Team> {
        Ok(Team { runtime: self.runtime.clone(), team: self.team.split(colour, key)? })
    }

    /// Waits until all members have come here. Earlier puts of members are visible to all of them afterwards,
    /// even those into relaxed segments. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and that of a put into a relaxed segment.
    pub fn barrier(&self) -> Result<()> {
        self.runtime.client().flush_relaxed()?;
        self.run::<u8>(Pattern::Barrier, 0, Blocks::InPlace(&mut []))
    }

    /// [`Team::barrier`] to which every member brings a value, and from which all take what all have brought, by position. Between nodes it
    /// costs a message to each member.
    ///
    /// # Errors
    /// As [`Team::barrier`].
    pub fn barrier_with<T: Pod>(&self, brought: T) -> Result<Vec<T>> {
        self.runtime.client().flush_relaxed()?;
        let mut all = vec![T::zeroed(); self.size() as usize];
        let blocks = Blocks::Apart(bytemuck::bytes_of(&brought), bytes_of_mut(&mut all));
        self.run_blocks(Pattern::AllGather, Call::of_all(Kind::BarrierWith), size_of::<T>(), blocks, None)?;
        Ok(all)
    }

    /// Gives all members the values of the root. Collective.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn broadcast<T: Pod>(&self, root: u32, values: &mut [T]) -> Result<()> {
        self.check_root(root)?;
        let count = values.len();
        self.run::<T>(Pattern::Broadcast { root }, count, Blocks::InPlace(bytes_of_mut(values)))
    }

    /// Gives each member its part of the root's values, by position; `all` is of as many parts as there are members at the root, and
    /// of no account elsewhere. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and at the root for another number of values, before anything is sent.
    pub fn scatter<T: Pod>(&self, root: u32, all: &[T], part: &mut [T]) -> Result<()> {
        self.check_root(root)?;
        if root == self.rank() {
            self.check_parts("a scatter", part.len(), all.len())?;
        }
        let count = part.len();
        self.run::<T>(Pattern::Scatter { root }, count, Blocks::Apart(bytes_of(all), bytes_of_mut(part)))
    }

    /// Gives the root the values of all members, by position; `all` is of as many parts as there are members at the root, and of no
    /// account elsewhere. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and at the root for another number of values, before anything is awaited.
    pub fn gather<T: Pod>(&self, root: u32, part: &[T], all: &mut [T]) -> Result<()> {
        self.check_root(root)?;
        if root == self.rank() {
            self.check_parts("a gather", part.len(), all.len())?;
        }
        let count = part.len();
        self.run::<T>(Pattern::Gather { root }, count, Blocks::Apart(bytes_of(part), bytes_of_mut(all)))
    }

    /// Gives all members the values of all, by position: `all` is of as many parts as there are members. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and for another number of values, before anything is sent.
    pub fn all_gather<T: Pod>(&self, part: &[T], all: &mut [T]) -> Result<()> {
        self.check_parts("an all-gather", part.len(), all.len())?;
        let count = part.len();
        self.run::<T>(Pattern::AllGather, count, Blocks::Apart(bytes_of(part), bytes_of_mut(all)))
    }

    /// Gives all members the values of all, by position, where members have different numbers of values. Collective.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn all_gatherv<T: Pod>(&self, part: &[T]) -> Result<Vec<Vec<T>>> {
        let all = self.team.all_gatherv(bytes_of(part))?;
        Ok(all.iter().map(|bytes| values_of(bytes.len() / size_of::<T>().max(1), bytes)).collect())
    }

    /// Each member gives every member a part of `from`, by position, and takes one of each into `to`. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and for lengths that differ, or are not a multiple of the number of members, before anything is sent.
    pub fn all_to_all<T: Pod>(&self, from: &[T], to: &mut [T]) -> Result<()> {
        let count = from.len() / self.size() as usize;
        self.check_parts("an all-to-all", count, from.len())?;
        self.check_parts("an all-to-all", count, to.len())?;
        self.run::<T>(Pattern::AllToAll, count, Blocks::Apart(bytes_of(from), bytes_of_mut(to)))
    }

    /// Combines the values of all members, one by one, in the order of the members; the root's become the result, the others' stay.
    /// Partial results are combined on the way, so `combine` must be associative; it need not be commutative. The same values give
    /// the same result in every run. Collective.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn reduce<T: Pod>(&self, root: u32, values: &mut [T], combine: impl Combine<T>) -> Result<()> {
        self.check_root(root)?;
        self.run_combining(Pattern::Reduce { root }, values, combine)
    }

    /// [`Team::reduce`] with the result for all.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn all_reduce<T: Pod>(&self, values: &mut [T], combine: impl Combine<T>) -> Result<()> {
        self.run_combining(Pattern::AllReduce, values, combine)
    }

    /// Each member's values become those of all members up to it, itself included, combined as in [`Team::reduce`]. Collective.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn scan<T: Pod>(&self, values: &mut [T], combine: impl Combine<T>) -> Result<()> {
        self.run_combining(Pattern::Scan { is_exclusive: false }, values, combine)
    }

    /// [`Team::scan`] without the member's own values; those of the first member stay. Collective.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn exclusive_scan<T: Pod>(&self, values: &mut [T], combine: impl Combine<T>) -> Result<()> {
        self.run_combining(Pattern::Scan { is_exclusive: true }, values, combine)
    }

    /// Runs a collective over blocks of `count` values.
    fn run<T: Pod>(&self, pattern: Pattern, count: usize, blocks: Blocks<'_>) -> Result<()> {
        self.run_blocks(pattern, pattern.call(), count * size_of::<T>(), blocks, None)
    }

    /// Runs a collective over private memory: a conduit may hand bytes to a system call, which cannot wait for a page of a local
    /// segment.
    fn run_blocks(
        &self,
        pattern: Pattern,
        call: Call,
        bytes: usize,
        blocks: Blocks<'_>,
        combiner: Option<&dyn Combiner>,
    ) -> Result<()> {
        let run = |blocks: Blocks<'_>| self.team.run(pattern, call, bytes, blocks, combiner);
        let is_local = |place: &[u8]| self.runtime.client().is_local(place.as_ptr());
        match blocks {
            Blocks::Apart(from, to) if is_local(to) => {
                let mut aside = to.to_vec();
                run(Blocks::Apart(&self.runtime.private(from), &mut aside))?;
                to.copy_from_slice(&aside);
            }
            Blocks::Apart(from, to) => run(Blocks::Apart(&self.runtime.private(from), to))?,
            Blocks::InPlace(both) if is_local(both) => {
                let mut aside = both.to_vec();
                run(Blocks::InPlace(&mut aside))?;
                both.copy_from_slice(&aside);
            }
            Blocks::InPlace(both) => run(Blocks::InPlace(both))?,
        }
        Ok(())
    }

    fn run_combining<T: Pod>(
        &self,
        pattern: Pattern,
        values: &mut [T],
        combine: impl Combine<T>,
    ) -> Result<()> {
        let (bytes, elements) = (size_of_val(values), Elements { combine, of: PhantomData });
        let blocks = Blocks::InPlace(bytes_of_mut(values));
        self.run_blocks(pattern, pattern.call(), bytes, blocks, Some(&elements))
    }

    fn check_root(&self, root: u32) -> Result<()> {
        match root < self.size() {
            true => Ok(()),
            false => Err(Error::Usage(format!("root {root} of a team of {}", self.size()))),
        }
    }

    fn check_parts(&self, what: &str, part: usize, all: usize) -> Result<()> {
        match part.checked_mul(self.size() as usize) == Some(all) {
            true => Ok(()),
            false => Err(Error::Usage(format!(
                "{what} of {all} values, which are not {part} for each of {} members",
                self.size()
            ))),
        }
    }
}

impl std::fmt::Debug for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {} of {:?}", self.rank(), self.members())
    }
}

fn bytes_of<T: Pod>(values: &[T]) -> &[u8] {
    bytemuck::cast_slice(values)
}

fn bytes_of_mut<T: Pod>(values: &mut [T]) -> &mut [u8] {
    bytemuck::cast_slice_mut(values)
}

/// So many values, as bytes of their length have them.
fn values_of<T: Pod>(count: usize, bytes: &[u8]) -> Vec<T> {
    let mut values = vec![T::zeroed(); count];
    bytes_of_mut(&mut values).copy_from_slice(bytes);
    values
}

/// Combines elements of memory that other processes may write: chunk by chunk, in copies.
struct Elements<T, C> {
    combine: C,
    of: PhantomData<fn(T)>,
}

/// Bytes of elements that are combined at once.
const CHUNK_BYTES: usize = 512;

impl<T: Pod, C: Combine<T>> Elements<T, C> {
    fn combine_chunks(&self, [left, right, result]: [View; 3], lefts: &mut [T], rights: &mut [T]) {
        let mut at = 0;
        while at < result.bytes() {
            let count = lefts.len().min((result.bytes() - at) / size_of::<T>());
            let bytes = count * size_of::<T>();
            let (lefts, rights) = (&mut lefts[..count], &mut rights[..count]);
            left.part(at, bytes).read_into(bytes_of_mut(lefts));
            right.part(at, bytes).read_into(bytes_of_mut(rights));
            for (left, right) in lefts.iter_mut().zip(rights) {
                *left = self.combine.combine(*left, *right);
            }
            result.part(at, bytes).write(bytes_of(lefts));
            at += bytes;
        }
    }
}

// SAFETY: the views are used in the call only.
unsafe impl<T: Pod, C: Combine<T>> Combiner for Elements<T, C> {
    fn combine(&self, left: View, right: View, result: View) {
        // Elements without bytes are all the same.
        if size_of::<T>() == 0 {
            return;
        }
        let mut room = [[0u128; CHUNK_BYTES / 16]; 2];
        let [lefts, rights] = &mut room;
        let most = CHUNK_BYTES / size_of::<T>() * size_of::<T>();
        let casts = |room| bytemuck::try_cast_slice_mut::<u8, T>(&mut bytes_of_mut(room)[..most]);
        match (casts(lefts), casts(rights)) {
            (Ok(lefts), Ok(rights)) if most > 0 => {
                self.combine_chunks([left, right, result], lefts, rights);
            }
            _ => self.combine_chunks([left, right, result], &mut [T::zeroed()], &mut [T::zeroed()]),
        }
    }

    fn element_bytes(&self) -> usize {
        size_of::<T>()
    }

    fn needs_caller(&self) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn operators_are_those_of_numbers() {
        let of = |operator| [Number::combine(operator, 200u8, 100), Number::combine(operator, 3, 2)];
        assert_eq!([Operator::Sum, Operator::Product].map(of), [[44, 5], [32, 6]]);
        assert_eq!([Operator::Min, Operator::Max].map(of), [[100, 2], [200, 3]]);
        assert_eq!(Operator::Min.combine(f64::NAN, 1.0), 1.0);
        assert_eq!(Combine::combine(&|a: u32, b: u32| a ^ b, 6, 3), 5);
    }

    #[test]
    fn elements_of_any_size_are_combined() {
        fn combined<T: Pod>(mut left: Vec<T>, mut right: Vec<T>, combine: impl Combine<T>) -> Vec<T> {
            let [from, with] = [&mut left, &mut right].map(|values| {
                let bytes = bytes_of_mut(values);
                // SAFETY: the vectors outlive the call.
                unsafe { View::new(bytes.as_mut_ptr(), bytes.len()) }
            });
            Elements { combine, of: PhantomData }.combine(from, with, from);
            left
        }
        let numbers = |factor: u16| (0..1001).map(|number| number * factor).collect::<Vec<u16>>();
        assert_eq!(combined(numbers(2), numbers(3), Operator::Sum), numbers(5));
        let large = |value| vec![[value; 1000]; 3];
        let both = |left: [u8; 1000], right: [u8; 1000]| [left[0] + right[999]; 1000];
        assert_eq!(combined(large(1), large(2), both), large(3));
        assert!(combined(vec![[0u8; 0]; 3], vec![[0u8; 0]; 3], |left, _| left).len() == 3);
    }
}
