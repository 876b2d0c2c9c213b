//! Collectives that go on while the program does something else.
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
//! | [`Team::split_nb`] | a colour and a key | the new team |
//!
//! Values are given away: the collective owns them until it is done, so that a handle may be dropped or forgotten at any time.

use super::{Combine, Team, bytes_of, combine_all, fill, part_of, strings};
use crate::error::Result;
use crate::runtime::Runtime;
use bytemuck::Pod;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use vgas_rma::RmaError;
use vgas_rma::collective::algorithm::{self, Meeting};
use vgas_rma::collective::{self, Call, Kind, Started, sequence};

/// A collective that was started: it goes on by itself, waited for or not, at once when some thread of the rank polls or waits for
/// anything, and within a millisecond when the rank computes and calls nothing.
///
/// It is also a future, for any executor: it is woken when the collective is done on this member, and when the job fails. Dropped, it
/// lets the collective go on, as the other members need it; the result is nobody's then.
#[must_use = "the result is there only after `wait`"]
pub struct CollectiveHandle<'a, R> {
    inner: Box<dyn Inner<R> + Send + 'a>,
}

/// A collective with what makes its result of what members have sent.
trait Inner<R> {
    fn test(&mut self) -> Result<Option<R>>;
    fn wait(self: Box<Self>) -> Result<R>;
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<R>>;
}

struct Mapped<T, F> {
    started: Started<T>,
    map: F,
}

impl<T, R, F: Fn(T) -> Result<R>> Inner<R> for Mapped<T, F> {
    fn test(&mut self) -> Result<Option<R>> {
        self.started.test()?.map(&self.map).transpose()
    }

    fn wait(self: Box<Self>) -> Result<R> {
        (self.map)(self.started.wait()?)
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<R>> {
        match Pin::new(&mut self.started).poll(context) {
            Poll::Ready(result) => Poll::Ready(result.map_err(Into::into).and_then(&self.map)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<'a, R> CollectiveHandle<'a, R> {
    fn new<T: Send + 'a>(started: Started<T>, map: impl Fn(T) -> Result<R> + Send + 'a) -> Self {
        Self { inner: Box::new(Mapped { started, map }) }
    }

    /// The result, once it is there; goes on as far as possible without waiting. After it was yielded there is none any more.
    ///
    /// # Errors
    /// Those of the collective, see [`Team`]; and when the result was yielded before.
    pub fn test(&mut self) -> Result<Option<R>> {
        self.inner.test()
    }

    /// Waits for the result; messages for handlers are served meanwhile. Not in handlers.
    ///
    /// # Errors
    /// As [`CollectiveHandle::test`].
    pub fn wait(self) -> Result<R> {
        self.inner.wait()
    }
}

impl<R> Future for CollectiveHandle<'_, R> {
    type Output = Result<R>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        self.inner.poll(context)
    }
}

impl<R> std::fmt::Debug for CollectiveHandle<'_, R> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a collective that was started")
    }
}

/// # Collectives that are started
///
/// As those without `_nb`, with values that are given away and results that are yielded. What is wrong with the arguments of a call is
/// an error of the call; that members do not agree, one of the handle, or of the call where it is known by then.
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
impl<'a> Team<'a> {
    /// [`Team::split`]. The members of the new team may use it as soon as they have it.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn split_nb(&self, colour: u32, key: u32) -> Result<CollectiveHandle<'a, Team<'a>>> {
        let runtime: &'a Runtime = self.runtime;
        let started = self.team.start_split(sequence::RANKS, colour, key)?;
        let made = move |team: Result<Arc<collective::Team>, RmaError>| Ok(Team { runtime, team: team? });
        Ok(CollectiveHandle::new(started, made))
    }

    /// [`Team::barrier`]: done when all members have started it. What this member has put into relaxed segments before is sent, and
    /// waited for, when it is started.
    ///
    /// # Errors
    /// As [`Team::barrier`].
    pub fn barrier_nb(&self) -> Result<CollectiveHandle<'a, ()>> {
        self.runtime.client().flush_relaxed()?;
        let exchange = self.begin(Call::of_all(Kind::Barrier))?;
        let run = exchange.clone();
        let started = exchange.start(async move { algorithm::meet(&run, Meeting::Before).await }, false);
        Ok(CollectiveHandle::new(started, Ok))
    }

    /// [`Team::barrier_with`], likewise.
    ///
    /// # Errors
    /// As [`Team::barrier`].
    pub fn barrier_with_nb<T: Pod + Send>(&self, brought: T) -> Result<CollectiveHandle<'a, Vec<T>>> {
        self.runtime.client().flush_relaxed()?;
        self.start_all_gather(Kind::BarrierWith, vec![brought])
    }

    /// [`Team::broadcast`]: `values` are as many everywhere; those of others than the root are of no account.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn broadcast_nb<T: Pod + Send>(
        &self,
        root: u32,
        values: Vec<T>,
    ) -> Result<CollectiveHandle<'a, Vec<T>>> {
        let exchange = self.begin(self.rooted(Kind::Broadcast, root)?)?;
        let (count, own) = (values.len(), (root == self.rank()).then(|| bytes_of(&values)));
        let run = strings::broadcast(exchange.clone(), root, own, size_of_val(&values[..]));
        let started = exchange.start(run, false);
        Ok(CollectiveHandle::new(started, move |text| Ok(values_of(count, &text.into_bytes()))))
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
    ) -> Result<CollectiveHandle<'a, Vec<T>>> {
        let call = self.rooted(Kind::Scatter, root)?;
        let (is_root, me) = (root == self.rank(), self.rank());
        if is_root {
            self.check_parts("a scatter", count, all.len())?;
        }
        let exchange = self.begin(call)?;
        let run = exchange.clone();
        let started = exchange.start(
            async move {
                if !is_root {
                    return algorithm::take_aside(&run, root, count * size_of::<T>()).await;
                }
                algorithm::give_all(&run, |member| bytes_of(part_of(&all, member, count)).into());
                bytes_of(part_of(&all, me, count))
            },
            false,
        );
        Ok(CollectiveHandle::new(started, move |part| Ok(values_of(count, &part))))
    }

    /// [`Team::gather`]: yields the parts of all members one after the other at the root, None elsewhere.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn gather_nb<T: Pod + Send>(
        &self,
        root: u32,
        part: Vec<T>,
    ) -> Result<CollectiveHandle<'a, Option<Vec<T>>>> {
        let exchange = self.begin(self.rooted(Kind::Gather, root)?)?;
        let (is_root, me, own) = (root == self.rank(), self.rank(), bytes_of(&part));
        let count = part.len() * self.size() as usize;
        let run = exchange.clone();
        let started = exchange.start(
            async move {
                if !is_root {
                    algorithm::give(&run, root, own.into());
                    return None;
                }
                let others = algorithm::collect_aside(&run, |_| own.len()).await;
                Some(together(others, me, own))
            },
            false,
        );
        Ok(CollectiveHandle::new(started, move |all| Ok(all.map(|all| values_of(count, &all)))))
    }

    /// [`Team::all_gather`]: yields the parts of all members one after the other.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn all_gather_nb<T: Pod + Send>(&self, part: Vec<T>) -> Result<CollectiveHandle<'a, Vec<T>>> {
        self.start_all_gather(Kind::AllGather, part)
    }

    fn start_all_gather<T: Pod + Send>(
        &self,
        kind: Kind,
        part: Vec<T>,
    ) -> Result<CollectiveHandle<'a, Vec<T>>> {
        let exchange = self.begin(Call::of_all(kind))?;
        let (me, own, count) = (self.rank(), bytes_of(&part), part.len() * self.size() as usize);
        let run = exchange.clone();
        let started = exchange
            .start(async move { together(strings::all_gather(run, own.clone()).await, me, own) }, false);
        Ok(CollectiveHandle::new(started, move |all| Ok(values_of(count, &all))))
    }

    /// [`Team::all_to_all`]: yields a part of each member, one after the other.
    ///
    /// # Errors
    /// As [`Team::all_to_all`].
    pub fn all_to_all_nb<T: Pod + Send>(&self, from: Vec<T>) -> Result<CollectiveHandle<'a, Vec<T>>> {
        let count = from.len() / self.size() as usize;
        self.check_parts("an all-to-all", count, from.len())?;
        let exchange = self.begin(Call::of_all(Kind::AllToAll))?;
        let (me, all) = (self.rank(), from.len());
        let run = exchange.clone();
        let started = exchange.start(
            async move {
                algorithm::give_all(&run, |member| bytes_of(part_of(&from, member, count)).into());
                let own = bytes_of(part_of(&from, me, count));
                let others = algorithm::collect_aside(&run, |_| own.len()).await;
                together(others, me, own)
            },
            false,
        );
        Ok(CollectiveHandle::new(started, move |found| Ok(values_of(all, &found))))
    }

    /// [`Team::reduce`]: yields the result at the root, None elsewhere. `combine` runs in whichever thread lets the collective go on:
    /// one that polls or waits, or the endpoint's own.
    ///
    /// # Errors
    /// See [`Team`].
    pub fn reduce_nb<T: Pod + Send>(
        &self,
        root: u32,
        values: Vec<T>,
        combine: impl Combine<T> + Send + Sync + 'static,
    ) -> Result<CollectiveHandle<'a, Option<Vec<T>>>> {
        let exchange = self.begin(self.rooted(Kind::Reduce, root)?)?;
        let (count, mine) = (values.len(), bytes_of(&values));
        let run = exchange.clone();
        let both = move |left: &[u8], right: &[u8]| combine_all::<T>(left, right, &combine);
        let started = exchange.start(async move { algorithm::reduce(&run, root, mine, both).await }, true);
        Ok(CollectiveHandle::new(started, move |result| Ok(result.map(|result| values_of(count, &result)))))
    }

    /// [`Team::all_reduce`]; see [`Team::reduce_nb`].
    ///
    /// # Errors
    /// See [`Team`].
    pub fn all_reduce_nb<T: Pod + Send>(
        &self,
        values: Vec<T>,
        combine: impl Combine<T> + Send + Sync + 'static,
    ) -> Result<CollectiveHandle<'a, Vec<T>>> {
        let exchange = self.begin(Call::of_all(Kind::AllReduce))?;
        let both = move |left: &[u8], right: &[u8]| combine_all::<T>(left, right, &combine);
        let started = exchange.start(strings::all_reduce(exchange.clone(), bytes_of(&values), both), true);
        Ok(CollectiveHandle::new(started, move |result| Ok(values_of(values.len(), &result))))
    }

    /// [`Team::scan`]; see [`Team::reduce_nb`].
    ///
    /// # Errors
    /// See [`Team`].
    pub fn scan_nb<T: Pod + Send>(
        &self,
        values: Vec<T>,
        combine: impl Combine<T> + Send + Sync + 'static,
    ) -> Result<CollectiveHandle<'a, Vec<T>>> {
        let exchange = self.begin(Call::of_all(Kind::Scan))?;
        let both = move |left: &[u8], right: &[u8]| combine_all::<T>(left, right, &combine);
        let started = exchange.start(strings::scan(exchange.clone(), bytes_of(&values), both), true);
        Ok(CollectiveHandle::new(started, move |result| Ok(values_of(values.len(), &result))))
    }
}

/// The strings of all members, one after the other; of this one, `own`.
fn together(mut strings: Vec<Vec<u8>>, me: u32, own: Vec<u8>) -> Vec<u8> {
    strings[me as usize] = own;
    strings.concat()
}

/// So many values, as a string of their length has them.
fn values_of<T: Pod>(count: usize, string: &[u8]) -> Vec<T> {
    let mut values = vec![T::zeroed(); count];
    fill(&mut values, string);
    values
}
