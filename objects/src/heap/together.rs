//! Collective passing of objects between ranks: ownership, or a borrow that ends before its owner continues.

use super::Messages;
use super::borrow::{MutRef, Ref};
use super::boxes::DBox;
use super::cannot_go_on;
use super::error::ObjectError;
use super::loans::{OpenLoan, borrow_from, dead_word, take_given};
use super::objects::Objects;
use crate::portable::{Portable, Shareable};
use crate::word::Word;
use rustc_hash::FxHasher;
use std::any::TypeId;
use std::hash::{Hash, Hasher};
use std::mem::ManuallyDrop;
use vgas::Rank;

/// A collective operation; the ranks must agree on it, and on the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum CollectiveKind {
    Hand = 1,
    Lend = 2,
    LendMut = 3,
    End = 4,
}

/// A type, as ranks of one program know it: they must mean the same one.
fn number_of<T: 'static>() -> u64 {
    // Without a key: the same in every process.
    let mut hasher = FxHasher::default();
    (TypeId::of::<T>(), size_of::<T>(), align_of::<T>()).hash(&mut hasher);
    hasher.finish()
}

impl Objects {
    /// Checks that there are such ranks, and that all can meet now.
    fn can_do(&self, call: &str, ranks: [Rank; 2]) -> Result<(), ObjectError> {
        self.can_meet(call)?;
        match ranks.into_iter().find(|rank| rank.0 >= self.ranks()) {
            None => Ok(()),
            Some(rank) => {
                let why = format!("`Objects::{call}`: there is no {rank} in a job of {}", self.ranks());
                Err(ObjectError::Usage(why))
            }
        }
    }

    /// Agrees with all ranks on the operation, the ranks and the object; returns the object's word.
    fn agree<T: 'static>(
        &self,
        deed: CollectiveKind,
        ranks: [Rank; 2],
        given: Option<Word>,
    ) -> Result<Word, ObjectError> {
        let mut says = vec![deed as u8];
        for number in [u64::from(ranks[0].0), u64::from(ranks[1].0), number_of::<T>()] {
            says.extend(number.to_le_bytes());
        }
        let length = says.len();
        let bits = given.map_or(0, Word::bits);
        crate::sync::settle()?;
        if given.is_some() {
            super::pass_on(deed != CollectiveKind::Lend)?;
        }
        let all = self.job().meet(&[&says[..], &bits.to_le_bytes()].concat())?;
        self.heap.has_met()?;
        let differs = all.iter().position(|said| said.get(..length) != Some(&says));
        if let Some(other) = differs {
            let (me, other) = (self.rank(), Rank(other as u32));
            return Err(ObjectError::Usage(format!(
                "{me} is at {deed:?} of a {}, from {} to {}; {other} is not",
                std::any::type_name::<T>(),
                ranks[0],
                ranks[1]
            )));
        }
        let words = all.iter().map(|said| {
            let bits = said.get(length..).and_then(|bits| bits.first_chunk::<8>());
            bits.and_then(|bits| Word::from_bits(u64::from_le_bytes(*bits)))
        });
        let giving: Vec<_> =
            (0..).map(Rank).zip(words).filter_map(|(rank, word)| Some((rank, word?))).collect();
        match giving[..] {
            [(rank, word)] if rank == ranks[0] && self.is_here(word) => Ok(word),
            _ => Err(ObjectError::Usage(format!(
                "{deed:?}: {} gives an object of the heap, and nobody else",
                ranks[0]
            ))),
        }
    }

    pub(super) fn is_here(&self, word: Word) -> bool {
        let end = u64::from(self.job().ranks()) * self.heap.stride;
        word.address().wrapping_sub(self.heap.base) < end
    }

    /// One rank gives an object to another: only the box moves. `from` brings it, the others bring none; `to` gets it. Collective.
    ///
    /// # Errors
    /// The same on all ranks, if they do not call the same; the object stays in place then, without an owner.
    /// When a peer is lost. With the object dropped, where there is no such rank, and within
    /// [`Objects::run`], where ranks do not meet.
    pub fn hand<T: Portable>(
        &self,
        from: Rank,
        to: Rank,
        given: Option<DBox<T>>,
    ) -> Result<Option<DBox<T>>, ObjectError> {
        self.can_do("hand", [from, to])?;
        let word = self.agree::<T>(CollectiveKind::Hand, [from, to], given.map(DBox::into_word))?;
        Ok((to == self.rank()).then(|| DBox::of(word)))
    }

    /// One rank lends an object to all for reading, itself included, as long as `read` runs. Collective: returns when all have read.
    ///
    /// # Errors
    /// As [`Objects::hand`], but the object stays its owner's; on a rank to which it could not be brought, when all have read.
    pub fn lend<T: Shareable, R>(
        &self,
        from: Rank,
        given: Option<&DBox<T>>,
        read: impl FnOnce(&Ref<'_, T>) -> R,
    ) -> Result<R, ObjectError> {
        self.can_do("lend", [from, from])?;
        let word = self.agree::<T>(CollectiveKind::Lend, [from, from], given.map(DBox::word))?;
        let end = End::<T> { objects: self, word, from, lent: None, owner: None, loan: None };
        let result = Ref::of(word).map(|value| read(&value));
        end.end()?;
        result
    }

    /// One rank lends an object to another for writing, as long as `write` runs there: it moves to the
    /// writer, and the owner's box follows. Collective: returns when it is written, with the result of
    /// `write` on the rank where it ran.
    ///
    /// # Errors
    /// As [`Objects::lend`].
    pub fn lend_mut<T: Shareable, R>(
        &self,
        from: Rank,
        to: Rank,
        given: Option<&mut DBox<T>>,
        write: impl FnOnce(MutRef<'_, T>) -> R,
    ) -> Result<Option<R>, ObjectError> {
        self.can_do("lend_mut", [from, to])?;
        if let Some(owner) = &given {
            // The copy that it may have is of what is written now.
            self.heap.release(&owner.link);
        }
        let word = self.agree::<T>(
            CollectiveKind::LendMut,
            [from, to],
            given.as_ref().map(|owner| DBox::word(owner)),
        )?;
        let lent = (to == self.rank()).then(|| ManuallyDrop::new(DBox::of(word)));
        let notify = move || crate::task::tell_lender(from, None, word.bits());
        let loan = lent.as_ref().filter(|_| T::HAS_LINKS).and_then(|_| borrow_from(from, notify));
        let mut end = End::<T> { objects: self, word, from: to, lent, owner: given, loan };
        let result = match &mut end.lent {
            Some(lent) => lent.try_write().map(|value| Some(write(value))),
            None => Ok(None),
        };
        end.end()?;
        result
    }
}

/// A borrow that all ranks end together: even by a panic, because the owner must not continue before.
struct End<'o, 'b, T: Portable> {
    objects: &'o Objects,
    /// Agreed word of the borrow, which tells the borrows of several threads apart.
    word: Word,
    from: Rank,
    /// Box of an object that is lent for writing.
    lent: Option<ManuallyDrop<DBox<T>>>,
    /// The box that was lent from, which follows.
    owner: Option<&'b mut DBox<T>>,
    /// Loan from another node that this rank writes.
    loan: Option<OpenLoan>,
}

impl<T: Portable> End<'_, '_, T> {
    /// Waits for the others.
    fn end(self) -> Result<(), ObjectError> {
        ManuallyDrop::new(self).wait()
    }

    fn wait(&mut self) -> Result<(), ObjectError> {
        let (objects, from) = (self.objects, self.from);
        drop(self.loan.take());
        // A borrow for reading does not write, and then there is nothing to say.
        let now = self.lent.as_ref().map_or(0, |lent| DBox::word(lent).bits());
        let says =
            [&[CollectiveKind::End as u8][..], &self.word.bits().to_le_bytes(), &now.to_le_bytes()].concat();
        let same = says.len() - size_of_val(&now);
        let settled = crate::sync::settle();
        let settled = settled.and_then(|()| match self.lent {
            Some(_) => objects.heap.replicate().map(drop),
            None => Ok(()),
        });
        let all = settled.and_then(|()| Ok(objects.job().meet(&says)?));
        let is_end = |said: &Vec<u8>| said.len() == says.len() && said[..same] == says[..same];
        match all {
            Ok(all) if all.iter().all(is_end) => {
                let bits = all.get(from.0 as usize).and_then(|said| said[same..].first_chunk::<8>());
                let word = bits.and_then(|bits| Word::from_bits(u64::from_le_bytes(*bits)));
                if let (Some(owner), Some(word)) = (&mut self.owner, word) {
                    take_given(self.word);
                    owner.link.word = word;
                }
                objects.heap.has_met()
            }
            // Holders of the object have the passed-on value, which is not written; its owner has it as it
            // was, unless the writer is lost, and may have passed on a part of it.
            Err(why) if objects.heap.goes_on() => {
                let node = objects.job().layout().node_of(from);
                if let Some(owner) = &mut self.owner
                    && take_given(self.word)
                    && objects.job().is_lost(from)
                {
                    owner.link.word = dead_word(node)?;
                }
                Err(why)
            }
            other => {
                // The old value may still be read, and would be written next.
                let why =
                    other.err().map_or("the ranks are at different calls".into(), |why| why.to_string());
                cannot_go_on(&format!("{} cannot end a borrow: {why}", objects.rank()))
            }
        }
    }
}

impl<T: Portable> Drop for End<'_, '_, T> {
    fn drop(&mut self) {
        // Only while a panic unwinds.
        let _ = self.wait();
    }
}
