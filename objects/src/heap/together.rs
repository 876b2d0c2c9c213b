//! Objects that ranks pass to each other, all of them together: ownership, or a borrow that ends before its owner goes on.

use super::borrow::{MutRef, Ref};
use super::boxes::DBox;
use super::error::ObjectError;
use super::objects::Objects;
use crate::portable::{Portable, Shareable};
use crate::word::Word;
use std::mem::ManuallyDrop;
use vgas::Rank;

/// What the ranks do at the same time; they must agree on it, and on the type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
enum Deed {
    Hand = 1,
    Lend = 2,
    LendMut = 3,
    End = 4,
}

/// A type, as ranks of one program know it: they must mean the same one.
fn number_of<T>() -> u64 {
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let name = std::any::type_name::<T>().bytes().fold(0xcbf2_9ce4_8422_2325, mix);
    [size_of::<T>(), align_of::<T>()].iter().fold(name, |hash, number| mix(hash, *number as u8))
}

impl Objects {
    /// All ranks say what they do, and who gives which object; yields the object's word.
    fn agree<T>(&self, deed: Deed, ranks: [Rank; 2], given: Option<Word>) -> Result<Word, ObjectError> {
        let mut says = vec![deed as u8];
        for number in [u64::from(ranks[0].0), u64::from(ranks[1].0), number_of::<T>()] {
            says.extend(number.to_le_bytes());
        }
        let length = says.len();
        let bits = given.map_or(0, Word::bits);
        let all = self.runtime().barrier_exchange(&[&says[..], &bits.to_le_bytes()].concat())?;
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

    fn is_here(&self, word: Word) -> bool {
        let end = u64::from(self.runtime().ranks()) * self.heap.stride;
        word.address().wrapping_sub(self.heap.base) < end
    }

    /// One rank gives an object to another: only the box moves. `from` brings it, the others bring none; `to` gets it. Collective.
    ///
    /// # Errors
    /// The same on all ranks, when they do not call the same; the object stays where it is then, and is nobody's. When a peer is lost.
    pub fn hand<T: Portable>(
        &self,
        from: Rank,
        to: Rank,
        given: Option<DBox<T>>,
    ) -> Result<Option<DBox<T>>, ObjectError> {
        let word = self.agree::<T>(Deed::Hand, [from, to], given.map(DBox::into_word))?;
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
        let word = self.agree::<T>(Deed::Lend, [from, from], given.map(DBox::word))?;
        let end = End::<T> { objects: self, from, lent: None };
        let result = Ref::of(word).map(|value| read(&value));
        end.end()?;
        result
    }

    /// One rank lends an object to another for writing, as long as `write` runs there: it moves to where it is written, and
    /// the owner's box follows. Collective: returns when it is written, with what `write` has said on the rank where it ran.
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
        if let Some(owner) = &given {
            // The copy that it may have is of what is written now.
            self.heap.release(&owner.link);
        }
        let word = given.as_ref().map(|owner| DBox::word(owner));
        let word = self.agree::<T>(Deed::LendMut, [from, to], word)?;
        let lent = (to == self.rank()).then(|| ManuallyDrop::new(DBox::of(word)));
        let mut end = End::<T> { objects: self, from: to, lent };
        let result = match &mut end.lent {
            Some(lent) => MutRef::of(lent).map(|value| Some(write(value))),
            None => Ok(None),
        };
        let word = end.end()?;
        if let Some(owner) = given {
            owner.link.word = word.unwrap_or(owner.link.word);
        }
        result
    }
}

/// A borrow that all ranks are to end together: also when what they do panics, because the owner must not go on before.
struct End<'o, T: Portable> {
    objects: &'o Objects,
    from: Rank,
    /// Where the object is that was lent for writing.
    lent: Option<ManuallyDrop<DBox<T>>>,
}

impl<T: Portable> End<'_, T> {
    /// Waits for the others. Yields where an object that was written is now.
    fn end(self) -> Result<Option<Word>, ObjectError> {
        ManuallyDrop::new(self).wait()
    }

    fn wait(&self) -> Result<Option<Word>, ObjectError> {
        let (objects, from) = (self.objects, self.from);
        // Nobody writes in a borrow for reading, and then there is nothing to say.
        let word = self.lent.as_ref().map(|lent| DBox::word(lent));
        let says = [&[Deed::End as u8][..], &word.map_or(0, Word::bits).to_le_bytes()].concat();
        let all = objects.runtime().barrier_exchange(&says);
        let is_end = |said: &Vec<u8>| said.len() == says.len() && said[0] == says[0];
        match all {
            Ok(all) if all.iter().all(is_end) => {
                let bits = all.get(from.0 as usize).and_then(|said| said[1..].first_chunk::<8>());
                Ok(bits.and_then(|bits| Word::from_bits(u64::from_le_bytes(*bits))))
            }
            other => {
                // Somebody may still read what would be written next: nothing may go on.
                let why =
                    other.err().map_or("the ranks are at different calls".into(), |why| why.to_string());
                let message = format!("{} cannot end a borrow: {why}", objects.rank());
                let _ = objects.runtime().abort(&message, 1);
                vgas::say::line(format_args!("vgas: {message}"));
                std::process::abort()
            }
        }
    }
}

impl<T: Portable> Drop for End<'_, T> {
    fn drop(&mut self) {
        // Only while a panic unwinds.
        let _ = self.wait();
    }
}
