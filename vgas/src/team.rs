//! Teams, and what all members of one do together: here by who waits for it, in `started` while the program does something else.

mod started;

pub use started::CollectiveHandle;

use crate::error::{Error, Result};
use crate::runtime::Runtime;
use bytemuck::Pod;
use std::sync::Arc;
use vgas_rma::Rank;
use vgas_rma::collective::algorithm::{self, Meeting, Part};
use vgas_rma::collective::{self, Call, Exchange, Kind, Landing, sequence};

/// Some ranks of a job, in an order, that do things together (GASNet's teams; MPI's communicators).
///
/// A *member* is named by its position, from 0. Each function below that says *collective* is called by all members, in the same
/// order, with the same root and sizes; it waits for what it gives its caller, and for what it sends to have left, not for others
/// to be done. Those whose names end in `_nb` return at once a [`CollectiveHandle`], and go on by themselves; they count as called
/// when they are started. Any thread may call; threads that would call collectives at the same time do so on teams of their own, because the
/// order is that of the team. Teams may overlap, and different teams need no common order. Messages for handlers are served
/// meanwhile. Not in handlers.
///
/// What puts before a collective have written is visible after it only where a barrier says so.
///
/// # Errors
/// Members that do not agree are told: whichever finds another collective, root or size than its own ends with
/// [`RmaError::Collective`](vgas_rma::RmaError::Collective), which names the other, and tells all members. What had ended before on
/// some member stays as it is there; this and every later collective of the team ends with the error. Other teams go on. A
/// difference that shows in no message, as of a member that does not call at all, is waited for.
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
pub struct Team<'a> {
    runtime: &'a Runtime,
    team: Arc<collective::Team>,
}

/// How two elements become one. Of whole numbers, sums and products wrap around.
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

/// What combines elements of two members: an [`Operator`], or a function. It must be associative; members are combined in
/// their order, so it need not be commutative. It runs in the calling thread.
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
    /// The team of all ranks. Costs as much as a list of them; keep it.
    ///
    /// # Errors
    /// None that a job can have.
    pub fn world(&self) -> Result<Team<'_>> {
        Ok(Team { runtime: self, team: self.collectives().world()? })
    }
}

impl<'a> Team<'a> {
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
    pub fn split(&self, colour: u32, key: u32) -> Result<Team<'a>> {
        Ok(Team { runtime: self.runtime, team: self.team.split(sequence::RANKS, colour, key)? })
    }

    /// Waits until all members have come here. What members have put before is visible to all of them after, also what went into
    /// relaxed segments. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and that of a put into a relaxed segment.
    pub fn barrier(&self) -> Result<()> {
        self.runtime.client().flush_relaxed()?;
        let exchange = self.begin(Call::of_all(Kind::Barrier))?;
        Ok(exchange.run(algorithm::meet(&exchange, Meeting::Before))?)
    }

    /// [`Team::barrier`] to which every member brings a value, and from which all take what all have brought, by position. It costs
    /// a message to each member.
    ///
    /// # Errors
    /// As [`Team::barrier`].
    pub fn barrier_with<T: Pod>(&self, brought: T) -> Result<Vec<T>> {
        self.runtime.client().flush_relaxed()?;
        let mut all = vec![T::zeroed(); self.size() as usize];
        self.gather_for_all(Kind::BarrierWith, &[brought], &mut all)?;
        Ok(all)
    }

    /// Gives all members the values of the root. Collective.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn broadcast<T: Pod>(&self, root: u32, values: &mut [T]) -> Result<()> {
        let exchange = self.begin(self.rooted(Kind::Broadcast, root)?)?;
        let is_root = root == self.rank();
        let own = is_root.then(|| bytes_of(values));
        let text = exchange.run(strings::broadcast(exchange.clone(), root, own, size_of_val(values)))?;
        if !is_root {
            fill(values, &text.into_bytes());
        }
        Ok(())
    }

    /// Gives each member its part of the root's values, by position; `all` is of as many parts as there are members at the root, and
    /// of no account elsewhere. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and at the root for another number of values, before anything is sent.
    pub fn scatter<T: Pod>(&self, root: u32, all: &[T], part: &mut [T]) -> Result<()> {
        let call = self.rooted(Kind::Scatter, root)?;
        let is_root = root == self.rank();
        if is_root {
            self.check_parts("a scatter", part.len(), all.len())?;
        }
        let exchange = self.begin(call)?;
        let (count, bytes) = (part.len(), size_of_val(part));
        let own = exchange.run(async {
            if !is_root {
                return algorithm::take_aside(&exchange, root, bytes).await;
            }
            algorithm::give_all(&exchange, |member| bytes_of(part_of(all, member, count)).into());
            bytes_of(part_of(all, root, count))
        })?;
        fill(part, &own);
        Ok(())
    }

    /// Gives the root the values of all members, by position; `all` is of as many parts as there are members at the root, and of no
    /// account elsewhere. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and at the root for another number of values, before anything is awaited.
    pub fn gather<T: Pod>(&self, root: u32, part: &[T], all: &mut [T]) -> Result<()> {
        let call = self.rooted(Kind::Gather, root)?;
        if root == self.rank() {
            self.check_parts("a gather", part.len(), all.len())?;
        }
        let exchange = self.begin(call)?;
        if root != self.rank() {
            return Ok(exchange.run(async { algorithm::give(&exchange, root, bytes_of(part).into()) })?);
        }
        let strings = exchange.run(algorithm::collect_aside(&exchange, |_| size_of_val(part)))?;
        self.fill_parts(all, part, &strings);
        Ok(())
    }

    /// Gives all members the values of all, by position: `all` is of as many parts as there are members. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and for another number of values, before anything is sent.
    pub fn all_gather<T: Pod>(&self, part: &[T], all: &mut [T]) -> Result<()> {
        self.gather_for_all(Kind::AllGather, part, all)
    }

    fn gather_for_all<T: Pod>(&self, kind: Kind, part: &[T], all: &mut [T]) -> Result<()> {
        self.check_parts("an all-gather", part.len(), all.len())?;
        let exchange = self.begin(Call::of_all(kind))?;
        let found = exchange.run(strings::all_gather(exchange.clone(), bytes_of(part)))?;
        self.fill_parts(all, part, &found);
        Ok(())
    }

    /// Each member gives every member a part of `from`, by position, and takes one of each into `to`. Collective.
    ///
    /// # Errors
    /// See [`Team`]; and for lengths that differ, or are not a multiple of the number of members, before anything is sent.
    pub fn all_to_all<T: Pod>(&self, from: &[T], to: &mut [T]) -> Result<()> {
        let count = from.len() / self.size() as usize;
        self.check_parts("an all-to-all", count, from.len())?;
        self.check_parts("an all-to-all", count, to.len())?;
        let exchange = self.begin(Call::of_all(Kind::AllToAll))?;
        let own = part_of(from, self.rank(), count);
        let strings = exchange.run(async {
            algorithm::give_all(&exchange, |member| bytes_of(part_of(from, member, count)).into());
            algorithm::collect_aside(&exchange, |_| size_of_val(own)).await
        })?;
        self.fill_parts(to, own, &strings);
        Ok(())
    }

    /// Combines the values of all members, one by one, in the order of the members; the root's become the result, others' stay.
    /// The same values give the same result in every run. Collective.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn reduce<T: Pod>(&self, root: u32, values: &mut [T], combine: impl Combine<T>) -> Result<()> {
        let exchange = self.begin(self.rooted(Kind::Reduce, root)?)?;
        let mine = bytes_of(values);
        let both = |left: &[u8], right: &[u8]| combine_all::<T>(left, right, &combine);
        if let Some(result) = exchange.run(algorithm::reduce(&exchange, root, mine, both))? {
            fill(values, &result);
        }
        Ok(())
    }

    /// [`Team::reduce`] with the result for all.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn all_reduce<T: Pod>(&self, values: &mut [T], combine: impl Combine<T>) -> Result<()> {
        let exchange = self.begin(Call::of_all(Kind::AllReduce))?;
        let mine = bytes_of(values);
        let both = |left: &[u8], right: &[u8]| combine_all::<T>(left, right, &combine);
        fill(values, &exchange.run(strings::all_reduce(exchange.clone(), mine, both))?);
        Ok(())
    }

    /// Each member's values become those of all members up to it, itself included, combined one by one in their order. Collective.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn scan<T: Pod>(&self, values: &mut [T], combine: impl Combine<T>) -> Result<()> {
        let exchange = self.begin(Call::of_all(Kind::Scan))?;
        let mine = bytes_of(values);
        let both = |left: &[u8], right: &[u8]| combine_all::<T>(left, right, &combine);
        fill(values, &exchange.run(strings::scan(exchange.clone(), mine, both))?);
        Ok(())
    }

    fn begin(&self, call: Call) -> Result<Exchange> {
        Ok(self.team.exchange(sequence::RANKS, call)?)
    }

    fn rooted(&self, kind: Kind, root: u32) -> Result<Call> {
        match root < self.size() {
            true => Ok(Call::with_root(kind, root)),
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

    /// Puts what members have given where it belongs; of this one that is `own`.
    fn fill_parts<T: Pod>(&self, all: &mut [T], own: &[T], strings: &[Vec<u8>]) {
        let count = own.len();
        for (member, string) in strings.iter().enumerate() {
            let part = &mut all[member * count..(member + 1) * count];
            match member == self.rank() as usize {
                true => part.copy_from_slice(own),
                false => fill(part, string),
            }
        }
    }
}

impl std::fmt::Debug for Team<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member {} of {:?}", self.rank(), self.members())
    }
}

/// Collectives as strings of bytes, which they own.
mod strings {
    use super::{Exchange, Landing, Part, algorithm};
    use vgas_rma::collective::Text;

    /// `own`: at the root.
    pub(super) async fn broadcast(exchange: Exchange, root: u32, own: Option<Vec<u8>>, bytes: usize) -> Text {
        let part = match own {
            Some(own) => Part::Give(own.into()),
            None => Part::Take(Landing::Own(Vec::new()), bytes),
        };
        algorithm::broadcast(&exchange, root, part).await
    }

    /// Nothing for this member's own.
    pub(super) async fn all_gather(exchange: Exchange, own: Vec<u8>) -> Vec<Vec<u8>> {
        let (bytes, text) = (own.len(), Text::from(own));
        algorithm::give_all(&exchange, |_| text.clone());
        algorithm::collect_aside(&exchange, |_| bytes).await
    }

    pub(super) async fn all_reduce(
        exchange: Exchange,
        mine: Vec<u8>,
        combine: impl Fn(&[u8], &[u8]) -> Vec<u8>,
    ) -> Vec<u8> {
        let bytes = mine.len();
        let part = match algorithm::reduce(&exchange, 0, mine, combine).await {
            Some(sum) => Part::Give(sum.into()),
            None => Part::Take(Landing::Own(Vec::new()), bytes),
        };
        algorithm::broadcast(&exchange, 0, part).await.into_bytes()
    }

    pub(super) async fn scan(
        exchange: Exchange,
        mine: Vec<u8>,
        combine: impl Fn(&[u8], &[u8]) -> Vec<u8>,
    ) -> Vec<u8> {
        match algorithm::prefix(&exchange, mine.clone(), &combine).await {
            Some(before) => combine(&before, &mine),
            None => mine,
        }
    }
}

fn bytes_of<T: Pod>(values: &[T]) -> Vec<u8> {
    bytemuck::cast_slice(values).to_vec()
}

fn part_of<T>(all: &[T], member: u32, count: usize) -> &[T] {
    &all[member as usize * count..][..count]
}

/// Makes the values those that a string of their length has.
fn fill<T: Pod>(values: &mut [T], string: &[u8]) {
    bytemuck::cast_slice_mut(values).copy_from_slice(string);
}

/// Elements of two strings, combined one by one.
fn combine_all<T: Pod>(left: &[u8], right: &[u8], combine: &impl Combine<T>) -> Vec<u8> {
    let mut together = left.to_vec();
    // Elements without bytes are all the same.
    let bytes = size_of::<T>().max(1);
    for (left, right) in together.chunks_exact_mut(bytes).zip(right.chunks_exact(bytes)) {
        let both = combine.combine(bytemuck::pod_read_unaligned(left), bytemuck::pod_read_unaligned(right));
        left.copy_from_slice(bytemuck::bytes_of(&both));
    }
    together
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
        let sum = combine_all::<u16>(&[1, 0, 2, 0], &[255, 0, 5, 0], &Operator::Sum);
        assert_eq!(sum, [0, 1, 7, 0]);
        assert!(combine_all::<[u8; 0]>(&[], &[], &|left, _| left).is_empty());
    }
}
