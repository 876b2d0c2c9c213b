//! State that outlives a job: named objects, and checkpoints of the heap.

use super::Messages;
use super::boxes::DBox;
use super::error::{ObjectError, OtherLayout, Refused};
use super::objects::Objects;
use super::replica::{MEETINGS, Replicated};
use crate::layout::Layout;
use crate::word::Word;
use crate::{Portable, Shareable};
use std::any::TypeId;
use std::collections::BTreeMap;
use std::mem::offset_of;
use std::sync::{Mutex, MutexGuard, PoisonError};
use vgas::{NodeId, Rank, Reopened};

/// Most bytes of a root's name.
const NAME_BYTES: usize = 64;
/// Most bytes of a layout's text that are stored, to tell what differs.
const TEXT_BYTES: usize = 1536;
/// Bytes of the digest of a layout's whole text.
const DIGEST_BYTES: usize = 16;

/// The types of the objects that this job has kept, by their names in the heap: within a job, types count rather than their layouts.
static KEPT: Mutex<BTreeMap<String, TypeId>> = Mutex::new(BTreeMap::new());

fn kept() -> MutexGuard<'static, BTreeMap<String, TypeId>> {
    // Each change is one step.
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Describes a type whose values outlive the job.
///
/// # Errors
/// When two types in it have one name.
fn layout_of<T: Portable>(name: &str) -> Result<Layout, ObjectError> {
    let layout = Layout::of::<T>();
    match layout.ambiguous() {
        None => Ok(layout),
        Some(both) => {
            let type_name = std::any::type_name::<T>();
            let why = format!(
                "two types in it are named \"{both}\", which a later job cannot tell apart; move one into a module"
            );
            Err(ObjectError::Layout(Box::new(OtherLayout { name: name.into(), type_name, why })))
        }
    }
}

/// An object that is found by name, in the list of a rank.
#[derive(Portable, Shareable)]
pub(super) struct Root {
    name: [u8; NAME_BYTES],
    layout: [u8; DIGEST_BYTES],
    text: [u8; TEXT_BYTES],
    /// [`Word`]: its type is not known here.
    word: u64,
    next: Option<DBox<Root>>,
}

/// Text in a field, followed by zeros.
fn field<const N: usize>(text: &str) -> [u8; N] {
    let mut field = [0; N];
    let bytes = text.len().min(N);
    field[..bytes].copy_from_slice(&text.as_bytes()[..bytes]);
    field
}

fn text_of(field: &[u8]) -> String {
    String::from_utf8_lossy(field).trim_end_matches('\0').to_owned()
}

/// The same in every process and with every version of this library that has this format.
fn digest_of(layout: &str) -> [u8; DIGEST_BYTES] {
    let digest = blake3::hash(layout.as_bytes());
    std::array::from_fn(|at| digest.as_bytes()[at])
}

/// An object's name in a heap at rest.
pub(super) struct RootAt {
    pub name: String,
    /// The beginning of its layout: the type that was kept.
    pub layout: String,
    /// Its word's bits, and those of the next name's.
    pub word: u64,
    pub after: u64,
}

/// Reads one, through what reads bytes at offsets of it.
pub(super) fn root_at<E>(mut read: impl FnMut(u64, &mut [u8]) -> Result<(), E>) -> Result<RootAt, E> {
    let (mut name, mut text, mut words) = ([0; NAME_BYTES], [0; TEXT_BYTES], [[0; 8]; 2]);
    read(offset_of!(Root, name) as u64, &mut name)?;
    read(offset_of!(Root, text) as u64, &mut text)?;
    read(offset_of!(Root, word) as u64, &mut words[0])?;
    // A box begins with its word, which is 0 where there is none.
    read(offset_of!(Root, next) as u64, &mut words[1])?;
    let [word, after] = words.map(u64::from_le_bytes);
    let plain =
        |text: String| text.chars().filter(|letter| !letter.is_control() || *letter == '\n').collect();
    Ok(RootAt { name: plain(text_of(&name)), layout: plain(text_of(&text)), word, after })
}

impl Objects {
    fn roots(&self) -> MutexGuard<'_, Option<DBox<Root>>> {
        // Changed in steps that leave a list.
        self.heap.roots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives an object to the heap, where [`Objects::root`] finds it by its name, in this job or, after a [`Objects::checkpoint`], a later
    /// one. Names are a rank's: at most 64 bytes of text without zeros.
    ///
    /// # Errors
    /// With the object, when the name is no name or is taken, or no room is left; and when two types in the object's have one name.
    pub fn keep<T: Portable>(&self, name: &str, object: DBox<T>) -> Result<(), Refused<DBox<T>>> {
        let refuse = |value, why| Err(Refused { value, why: Box::new(why) });
        if name.is_empty() || name.len() > NAME_BYTES || name.contains('\0') {
            let why = format!("{name:?} names no object: 1 to {NAME_BYTES} bytes of text do");
            return refuse(object, ObjectError::Usage(why));
        }
        let mut roots = self.roots();
        if names(&roots).iter().any(|other| other == name) {
            return refuse(
                object,
                ObjectError::Usage(format!("{} has an object {name:?} already", self.rank())),
            );
        }
        let text = match layout_of::<T>(name) {
            Ok(layout) => layout.to_string(),
            Err(why) => return refuse(object, why),
        };
        let root = Root {
            name: field(name),
            layout: digest_of(&text),
            text: field(&text),
            word: DBox::word(&object).bits(),
            next: None,
        };
        match DBox::try_new_here(root) {
            Ok(mut root) => {
                object.into_word();
                root.get_mut().next = roots.take();
                *roots = Some(root);
                kept().insert(name.into(), TypeId::of::<T>());
                Ok(())
            }
            Err(refused) => Err(Refused { value: object, why: refused.why }),
        }
    }

    /// Takes an object that this rank, or in an earlier job the rank with its number, has [kept](Objects::keep) under a name; none if
    /// there is none.
    ///
    /// # Errors
    /// [`ObjectError::Layout`] if it was of another type, or the type has changed, or two types in it have
    /// one name; it stays in place.
    pub fn root<T: Portable>(&self, name: &str) -> Result<Option<DBox<T>>, ObjectError> {
        let layout = layout_of::<T>(name)?;
        let mut roots = self.roots();
        let Some(place) = find(&mut roots, name) else { return Ok(None) };
        let Some(root) = place.as_mut().map(DBox::get_mut) else { return Ok(None) };
        if root.layout != digest_of(&layout.to_string()) {
            let differs = layout.differs_from(&text_of(&root.text));
            let why = differs.unwrap_or_else(|| "in what is too long to be kept".into());
            let type_name = std::any::type_name::<T>();
            return Err(ObjectError::Layout(Box::new(OtherLayout { name: name.into(), type_name, why })));
        }
        if kept().get(name).is_some_and(|kept| *kept != TypeId::of::<T>()) {
            let type_name = std::any::type_name::<T>();
            let why = "it was kept as another type of this name".into();
            return Err(ObjectError::Layout(Box::new(OtherLayout { name: name.into(), type_name, why })));
        }
        let word = Word::from_bits(root.word).filter(|word| self.is_here(*word));
        let word =
            word.ok_or_else(|| ObjectError::Usage(format!("the heap's object {name:?} is nowhere")))?;
        let next = root.next.take();
        *place = next;
        kept().remove(name);
        Ok(Some(DBox::of(word)))
    }

    /// The names of all objects that this rank can find.
    pub fn root_names(&self) -> Vec<String> {
        names(&self.roots())
    }

    /// Makes the heap durable, on all ranks together, as [`vgas::Runtime::checkpoint`]: a later job that
    /// [attaches](Objects::attach_named) it finds it as it is now, with all objects that
    /// [roots](Objects::keep) have or lead to. Objects reachable only from this job's variables take room
    /// there, and are leaked. Collective; no thread of any rank may use objects meanwhile
    /// ([`Objects::attach_named`]).
    ///
    /// Locks must be free at a checkpoint. While a [`Guard`](crate::sync::Guard) exists, even a forgotten one, the heap has the value that was released
    /// last, and the guard may have given away parts of it: a later job would find these twice. Read guards are allowed. Values in flight in a
    /// [`channel`](crate::sync::channel) are not part of a checkpoint.
    ///
    /// # Errors
    /// As there; [`ObjectError::LockHeld`] on all ranks, if one of them holds a lock; when the heap has no name; and when a node is lost, whose part is
    /// missing. The last checkpoint stays then.
    pub fn checkpoint(&self) -> Result<(), ObjectError> {
        let heap = self.heap;
        if !heap.runtime.has_named_segments() {
            return Err(ObjectError::Usage(
                "a heap without a name is gone with its job: `Objects::attach_named` gives it one".into(),
            ));
        }
        self.barrier()?;
        if heap.has_replicas() {
            // Replaced slots keep their place until all have met twice more; a later job would not know their
            // owner. Ranks hear at the last of these what others have freed of theirs then.
            (0..MEETINGS).try_for_each(|_| self.barrier())?;
        }
        self.let_locks_settle()?;
        let roots = self.roots().as_ref().map(DBox::word);
        heap.head(roots).write(heap);
        Ok(heap.segment.checkpoint()?)
    }

    /// Waits until the values of released locks are written. Fails on all ranks if one of them holds a lock. Collective.
    fn let_locks_settle(&self) -> Result<(), ObjectError> {
        let held = crate::sync::settle_locks()?;
        let said: Vec<u8> = held.map_or_else(Vec::new, |at| {
            [u64::from(at.rank.0), at.offset].into_iter().flat_map(u64::to_le_bytes).collect()
        });
        let all = self.heap.runtime.meet(&said)?;
        let held = (0..).zip(&all).find_map(|(holder, said)| match said.as_chunks::<8>().0 {
            [owner, at] => Some((holder, u64::from_le_bytes(*owner), u64::from_le_bytes(*at))),
            _ => None,
        });
        match held {
            Some((holder, owner, at)) => {
                Err(ObjectError::LockHeld { holder: Rank(holder), owner: Rank(owner as u32), at })
            }
            None => Ok(()),
        }
    }

    /// Brings this rank's backup up to date: the present objects of its partition are found after the loss of
    /// its node, if their words are known elsewhere. Passing objects on does so by itself. Nothing happens
    /// without [`HeapOptions::replicas`](super::HeapOptions).
    ///
    /// # Errors
    /// If the backup cannot be written. That its node is lost is none: the heap continues without.
    pub fn replicate(&self) -> Result<Replicated, ObjectError> {
        self.heap.replicate()
    }

    /// The nodes that are lost, and without which the job continues ([`vgas::Runtime::lost_nodes`]), as far
    /// as this rank has heard by now, of messages that have come, which this takes in.
    pub fn lost_nodes(&self) -> Vec<NodeId> {
        if !self.job().messages().in_handler() {
            // An error is found by the waiting thread.
            let _ = self.job().poll();
        }
        self.job().lost_nodes()
    }

    /// Returns what was found under the heap's name; none if it was created now, or has no name.
    pub fn reopened(&self) -> Option<Reopened> {
        self.heap.segment.reopened()
    }
}

/// Returns the place of a name in a list.
fn find<'r>(mut place: &'r mut Option<DBox<Root>>, name: &str) -> Option<&'r mut Option<DBox<Root>>> {
    while text_of(&place.as_ref()?.name) != name {
        place = &mut place.as_mut()?.get_mut().next;
    }
    Some(place)
}

/// All of a list.
fn names(roots: &Option<DBox<Root>>) -> Vec<String> {
    let all = std::iter::successors(roots.as_deref(), |root| root.next.as_deref());
    all.map(|root| text_of(&root.name)).collect()
}
