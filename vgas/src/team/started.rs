//! Collectives that progress while the program does something else.
//!
//! | form | given | yields |
//! |---|---|---|
//! | [`Team::barrier_nb`] | | |
//! | [`Team::barrier_with_nb`] | a value | those of all |
//! | [`Team::broadcast_nb`] | values, of which the root's count | the root's |
//! | [`Team::scatter_nb`] | at the root, a part for each | this member's part |
//! | [`Team::gather_nb`] | a part | at the root, those of all |
//! | [`Team::all_gather_nb`] | a part | those of all |
//! | [`Team::all_to_all_nb`] | a part for each | a part of each |
//! | [`Team::reduce_nb`] | values | at the root, all combined |
//! | [`Team::all_reduce_nb`] | values | all combined |
//! | [`Team::scan_nb`] | values | those up to here, combined |
//! | [`Team::exclusive_scan_nb`] | values | those before here, combined |
//! | [`Team::split_nb`] | a colour and a key | the new team |
//!
//! Values are given away: the collective owns them until it is done, so that a handle may be dropped or forgotten at any time.

use super::{Combine, Elements, Team, bytes_of, values_of};
use crate::error::Result;
use bytemuck::Pod;
use std::marker::PhantomData;
use std::pin::Pin;
use std::task::{Context, Poll};
use vgas_rma::collective::{Call, Kind, Pattern, SharedCombiner, Started};

/// A collective in flight: it progresses by itself, waited for or not, at once when some thread of the rank
/// polls or waits for anything, and within a millisecond when the rank computes and calls nothing.
///
/// It is also a future, for any executor: it is woken when the collective is done on this member, and when
/// the job fails. Dropping it lets the collective continue, as the other members need it; the result is
/// discarded.
#[must_use = "the result is there only after `wait`"]
pub struct CollectiveHandle<R> {
    started: Started,
    /// Makes the result of the bytes that were taken.
    map: Box<dyn Fn(Vec<u8>) -> Result<R> + Send + 'static>,
}

impl<R: 'static> CollectiveHandle<R> {
    fn new(started: Started, map: impl Fn(Vec<u8>) -> Result<R> + Send + 'static) -> Self {
        Self { started, map: Box::new(map) }
    }

    /// Returns the result, once it is there; makes as much progress as possible without waiting. After it was
    /// yielded there is none any more.
    ///
    /// # Errors
    /// Those of the collective, see [`Team`]; and when the result was yielded before.
    pub fn test(&mut self) -> Result<Option<R>> {
        self.started.test()?.map(&self.map).transpose()
    }

    /// Waits for the result; messages for handlers are served meanwhile. Not in handlers.
    ///
    /// # Errors
    /// As [`CollectiveHandle::test`].
    pub fn wait(self) -> Result<R> {
        (self.map)(self.started.wait()?)
    }
}

impl<R> Future for CollectiveHandle<R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let ended = std::task::ready!(Pin::new(&mut self.started).poll(context));
        Poll::Ready(ended.map_err(Into::into).and_then(&self.map))
    }
}

impl<R> std::fmt::Debug for CollectiveHandle<R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a collective that was started")
    }
}

/// # Collectives that are started
///
/// As those without `_nb`, with values that are given away and results that are yielded. Invalid arguments
/// are an error of the call; a disagreement of the members, one of the handle, or of the call if it is known
/// by then.
///
/// ```no_run
/// # fn example(runtime: &vgas::Runtime) -> vgas::Result<()> {
/// use vgas::Operator;
/// let world = runtime.world()?;
/// let sum = world.all_reduce_nb(vec![f64::from(world.rank())], Operator::Sum)?;
/// let everybody = world.all_gather_nb(vec![world.rank()])?;
/// // The program computes meanwhile.
/// assert_eq!(everybody.wait()?.len(), world.size() as usize);
/// println!("{}", sum.wait()?[0]);
/// # Ok(()) }
/// ```
impl Team {
    /// [`Team::split`]. The members of the new team may use it as soon as they have it.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn split_nb(&self, colour: u32, key: u32) -> Result<CollectiveHandle<Team>> {
        let runtime = self.runtime.clone();
        let (started, wish) = self.team.start_split(colour, key)?;
        Ok(CollectiveHandle::new(started, move |gathered| {
            Ok(Team { runtime: runtime.clone(), team: wish.team(&gathered)? })
        }))
    }

    /// [`Team::barrier`]: done when all members have started it. Earlier puts of this member into relaxed
    /// segments are sent, and waited for, when it is started.
    ///
    /// # Errors
    /// As [`Team::barrier`].
    pub fn barrier_nb(&self) -> Result<CollectiveHandle<()>> {
        self.runtime.client().flush_relaxed()?;
        let started = self.start::<u8>(Pattern::Barrier, 0, &[])?;
        Ok(CollectiveHandle::new(started, |_| Ok(())))
    }

    /// [`Team::barrier_with`], likewise.
    ///
    /// # Errors
    /// As [`Team::barrier`].
    pub fn barrier_with_nb<T: Pod + Send>(&self, brought: T) -> Result<CollectiveHandle<Vec<T>>> {
        self.runtime.client().flush_relaxed()?;
        let (call, own) = (Call::of_all(Kind::BarrierWith), bytemuck::bytes_of(&brought).to_vec());
        let started = self.team.start_owned(Pattern::AllGather, call, own.len(), own, None)?;
        Ok(Self::yielding(started, self.size() as usize))
    }

    /// [`Team::broadcast`]: `values` has the same length everywhere; only the root's content matters.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn broadcast_nb<T: Pod + Send>(&self, root: u32, values: Vec<T>) -> Result<CollectiveHandle<Vec<T>>> {
        self.check_root(root)?;
        let given = if root == self.rank() { &values[..] } else { &[] };
        let started = self.start(Pattern::Broadcast { root }, values.len(), given)?;
        Ok(Self::yielding(started, values.len()))
    }

    /// [`Team::scatter`]: `all` is of `count` values for each member at the root, and of no account elsewhere.
    ///
    /// # Errors
    /// As [`Team::scatter`].
    pub fn scatter_nb<T: Pod + Send>(
        &self,
        root: u32,
        all: Vec<T>,
        count: usize,
    ) -> Result<CollectiveHandle<Vec<T>>> {
        self.check_root(root)?;
        let is_root = root == self.rank();
        if is_root {
            self.check_parts("a scatter", count, all.len())?;
        }
        let given = if is_root { &all[..] } else { &[] };
        Ok(Self::yielding(self.start(Pattern::Scatter { root }, count, given)?, count))
    }

    /// [`Team::gather`]: yields the parts of all members one after the other at the root, None elsewhere.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn gather_nb<T: Pod + Send>(
        &self,
        root: u32,
        part: Vec<T>,
    ) -> Result<CollectiveHandle<Option<Vec<T>>>> {
        self.check_root(root)?;
        let (is_root, count) = (root == self.rank(), part.len() * self.size() as usize);
        let started = self.start(Pattern::Gather { root }, part.len(), &part)?;
        Ok(CollectiveHandle::new(started, move |all| Ok(is_root.then(|| values_of(count, &all)))))
    }

    /// [`Team::all_gather`]: yields the parts of all members one after the other.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn all_gather_nb<T: Pod + Send>(&self, part: Vec<T>) -> Result<CollectiveHandle<Vec<T>>> {
        let started = self.start(Pattern::AllGather, part.len(), &part)?;
        Ok(Self::yielding(started, part.len() * self.size() as usize))
    }

    /// [`Team::all_to_all`]: yields a part of each member, one after the other.
    ///
    /// # Errors
    /// As [`Team::all_to_all`].
    pub fn all_to_all_nb<T: Pod + Send>(&self, from: Vec<T>) -> Result<CollectiveHandle<Vec<T>>> {
        let count = from.len() / self.size() as usize;
        self.check_parts("an all-to-all", count, from.len())?;
        Ok(Self::yielding(self.start(Pattern::AllToAll, count, &from)?, from.len()))
    }

    /// [`Team::reduce`]: returns the result at the root, None elsewhere. `combine` runs in any thread that
    /// makes progress on the collective: one that polls or waits, or the endpoint's own.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn reduce_nb<T: Pod + Send>(
        &self,
        root: u32,
        values: Vec<T>,
        combine: impl Combine<T> + Send + Sync + 'static,
    ) -> Result<CollectiveHandle<Option<Vec<T>>>> {
        self.check_root(root)?;
        let (is_root, count) = (root == self.rank(), values.len());
        let started = self.start_combining(Pattern::Reduce { root }, &values, combine)?;
        Ok(CollectiveHandle::new(started, move |result| Ok(is_root.then(|| values_of(count, &result)))))
    }

    /// [`Team::all_reduce`]; see [`Team::reduce_nb`].
    ///
    /// # Errors
    /// See [`Team`].
    pub fn all_reduce_nb<T: Pod + Send>(
        &self,
        values: Vec<T>,
        combine: impl Combine<T> + Send + Sync + 'static,
    ) -> Result<CollectiveHandle<Vec<T>>> {
        Ok(Self::yielding(self.start_combining(Pattern::AllReduce, &values, combine)?, values.len()))
    }

    /// [`Team::scan`]; see [`Team::reduce_nb`].
    ///
    /// # Errors
    /// See [`Team`].
    pub fn scan_nb<T: Pod + Send>(
        &self,
        values: Vec<T>,
        combine: impl Combine<T> + Send + Sync + 'static,
    ) -> Result<CollectiveHandle<Vec<T>>> {
        let pattern = Pattern::Scan { is_exclusive: false };
        Ok(Self::yielding(self.start_combining(pattern, &values, combine)?, values.len()))
    }

    /// [`Team::exclusive_scan`]; see [`Team::reduce_nb`].
    ///
    /// # Errors
    /// See [`Team`].
    pub fn exclusive_scan_nb<T: Pod + Send>(
        &self,
        values: Vec<T>,
        combine: impl Combine<T> + Send + Sync + 'static,
    ) -> Result<CollectiveHandle<Vec<T>>> {
        let pattern = Pattern::Scan { is_exclusive: true };
        Ok(Self::yielding(self.start_combining(pattern, &values, combine)?, values.len()))
    }

    /// Starts a collective over blocks of `count` values.
    fn start<T: Pod>(&self, pattern: Pattern, count: usize, given: &[T]) -> Result<Started> {
        let (bytes, given) = (count * size_of::<T>(), bytes_of(given).to_vec());
        Ok(self.team.start_owned(pattern, pattern.call(), bytes, given, None)?)
    }

    fn start_combining<T: Pod>(
        &self,
        pattern: Pattern,
        values: &[T],
        combine: impl Combine<T> + Send + Sync + 'static,
    ) -> Result<Started> {
        let (bytes, given) = (size_of_val(values), bytes_of(values).to_vec());
        let combiner: SharedCombiner = Box::new(Elements { combine, of: PhantomData });
        Ok(self.team.start_owned(pattern, pattern.call(), bytes, given, Some(combiner))?)
    }

    /// Makes the handle of a collective with a result of `count` values.
    fn yielding<T: Pod>(started: Started, count: usize) -> CollectiveHandle<Vec<T>> {
        CollectiveHandle::new(started, move |bytes| Ok(values_of(count, &bytes)))
    }
}
