//! [`DMap`]: an owned map in the global heap.

use super::entry::{Entry, OccupiedEntry, VacantEntry};
use super::error::ObjectError;
use super::part::Part;
use super::vec::DVec;
use crate::layout::Layout;
use crate::word::Link;
use crate::{Portable, Shareable};
use rustc_hash::FxHasher;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::iter::FusedIterator;
use std::ops::Deref;

/// Buckets that are brought at once while a key is looked for in a map of another rank: nearly always enough.
const LOOKED_AT: usize = 8;
/// The fewest buckets of a map that has some.
const BUCKETS_MIN: usize = 8;

/// An owned map of the global heap: as a `HashMap`, with buckets in one [`DVec`], up to three quarters of
/// them in use. 40 bytes.
///
/// One rank has it: the one that wrote last. [`DMap::get`] brings the few buckets in which a key may be;
/// iterating brings all; writing brings the map itself. All ranks of a job hash alike, without a secret: keys
/// chosen to collide make it slow.
///
/// A map that outlives its job ([`Objects::keep`](crate::Objects::keep)) has the hashes of its keys with it.
/// [`Objects::root`](crate::Objects::root) refuses it if this library, or std, hashes numbers or text
/// differently now. If the key's own [`Hash`] has changed, keys are not found, and may be inserted twice;
/// iterating finds all, and `map.drain().collect()` makes a map that finds them.
///
/// It panics where a [`DVec`] does.
///
/// ```no_run
/// use vgas_objects::{DMap, DString};
///
/// let mut ages: DMap<DString, u32> = DMap::new();
/// ages.insert("Ada".into(), 36);
/// *ages.get_or_insert_with("Grace".into(), || 84) += 1;
/// assert_eq!(ages.get("Grace").as_deref(), Some(&85));
/// assert_eq!(ages.remove("Ada"), Some(36));
/// ```
///
/// Beyond the rules of a [`DVec`], these do not compile: writing while a found value is in use,
///
/// ```
/// # use vgas_objects::DMap;
/// fn write(mut map: DMap<u64, u64>) { let found = map.get(&1); drop(found); map.insert(1, 2); }
/// ```
/// ```compile_fail,E0502
/// # use vgas_objects::DMap;
/// fn write(mut map: DMap<u64, u64>) { let found = map.get(&1); map.insert(1, 2); drop(found); }
/// ```
///
/// and keys that lie in memory of a process:
///
/// ```
/// # use vgas_objects::{DMap, DString};
/// fn named() -> DMap<DString, u64> { DMap::new() }
/// ```
/// ```compile_fail,E0277
/// # use vgas_objects::DMap;
/// fn named() -> DMap<String, u64> { DMap::new() }
/// ```
#[derive(Portable, Shareable)]
pub struct DMap<K: Portable, V: Portable> {
    /// As many as a power of two, or none. A key is in the first bucket that was free from its hash's place
    /// on.
    buckets: DVec<Bucket<K, V>>,
    len: usize,
}

/// Room for one key.
#[derive(Portable, Shareable)]
pub(super) struct Bucket<K: Portable, V: Portable> {
    /// Hash of its key: it tells most other keys apart without reading them, which may be remote in part.
    pub(super) hash: KeyHash,
    pub(super) entry: Option<(K, V)>,
}

/// The hash of a key, which stays in the heap: a heap whose keys were hashed by another function has another layout.
#[derive(Clone, Copy, PartialEq, Eq, Shareable)]
#[repr(transparent)]
pub(super) struct KeyHash(u64);

impl KeyHash {
    /// The same in every process.
    fn of(key: &(impl Hash + ?Sized)) -> Self {
        let mut hasher = FxHasher::default();
        key.hash(&mut hasher);
        // Its lower bits say where, and are the weaker ones.
        let hash = hasher.finish();
        Self((hash ^ (hash >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_right(32))
    }

    /// Returns the bucket where the search for the key begins, among `mask + 1`.
    fn first(self, mask: usize) -> usize {
        self.0 as usize & mask
    }
}

// SAFETY: a number, without links.
unsafe impl Portable for KeyHash {
    const HAS_LINKS: bool = false;

    fn links(&self, _: &mut dyn FnMut(&Link)) {}

    fn describe(layout: &mut Layout) {
        if layout.begin::<Self>() {
            let Self(of_both) = Self::of(&(7u64, "key"));
            layout.property::<Self>(&format!("{of_both:#x} of a number and a text"));
        }
    }
}

/// Takes what is in a bucket. Those behind it that came so far only because it was there go back: no key is behind a free bucket.
pub(super) fn take_at<K: Portable, V: Portable>(buckets: &mut [Bucket<K, V>], at: usize) -> Option<(K, V)> {
    let taken = buckets[at].entry.take()?;
    let mask = buckets.len() - 1;
    let (mut hole, mut at) = (at, at);
    loop {
        at = (at + 1) & mask;
        if buckets[at].entry.is_none() {
            return Some(taken);
        }
        let begins = buckets[at].hash.first(mask);
        if at.wrapping_sub(begins) & mask >= at.wrapping_sub(hole) & mask {
            buckets.swap(hole, at);
            hole = at;
        }
    }
}

/// Result of looking at a bucket.
enum Look {
    Key,
    Free,
    Other,
}

impl<K: Portable, V: Portable> Bucket<K, V> {
    fn look<Q: Eq + ?Sized>(&self, hash: KeyHash, key: &Q) -> Look
    where
        K: Borrow<Q>,
    {
        match &self.entry {
            None => Look::Free,
            Some((other, _)) if self.hash == hash && other.borrow() == key => Look::Key,
            Some(_) => Look::Other,
        }
    }
}

impl<K: Portable, V: Portable> DMap<K, V> {
    /// Without keys, and without a place in the heap before it has some.
    pub const fn new() -> Self {
        Self { buckets: DVec::new(), len: 0 }
    }

    /// Returns the number of keys.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it has no keys.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Drops all keys and values.
    pub fn clear(&mut self) {
        self.buckets.clear();
        self.len = 0;
    }

    /// Takes all keys and values, and the room that they had: the map is empty at once, whatever becomes of the iterator.
    ///
    /// # Panics
    /// If they cannot be reached; they are leaked then.
    #[track_caller]
    pub fn drain(&mut self) -> DMapIter<K, V> {
        std::mem::take(self).into_iter()
    }

    /// All values, for writing: they move here. In no order that means anything.
    ///
    /// # Panics
    /// If they cannot be reached.
    #[track_caller]
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut V> {
        self.iter_mut().map(|(_, value)| value)
    }

    /// Keys and values, for writing to the values: they move here. In no order that means anything.
    ///
    /// # Panics
    /// If they cannot be reached.
    #[track_caller]
    pub fn iter_mut(&mut self) -> DMapEntriesMut<'_, K, V> {
        DMapEntriesMut(self.buckets.as_mut_slice().iter_mut())
    }
}

impl<K: Portable + Hash + Eq, V: Portable> DMap<K, V> {
    /// Returns the bucket of a key, or the free one for it; the map is here then. It must have a free one.
    fn place<Q: Hash + Eq + ?Sized>(buckets: &[Bucket<K, V>], hash: KeyHash, key: &Q) -> (usize, bool)
    where
        K: Borrow<Q>,
    {
        let mask = buckets.len() - 1;
        let mut at = hash.first(mask);
        loop {
            match buckets[at].look(hash, key) {
                Look::Key => return (at, true),
                Look::Free => return (at, false),
                Look::Other => at = (at + 1) & mask,
            }
        }
    }

    /// Makes an empty map with room for `count` keys in this rank's partition.
    ///
    /// # Panics
    /// If this much room is not left in one piece, or there is no heap; [`DMap::try_with_capacity`] returns
    /// the error instead.
    #[track_caller]
    pub fn with_capacity(count: usize) -> Self {
        super::boxes::had(Self::try_with_capacity(count))
    }

    /// [`DMap::with_capacity`].
    ///
    /// # Errors
    /// If this much room is not left in one piece, or there is no heap.
    #[track_caller]
    pub fn try_with_capacity(count: usize) -> Result<Self, ObjectError> {
        let mut map = Self::new();
        map.try_reserve(count)?;
        Ok(map)
    }

    /// Makes room for `count` more keys: until then, no insertion moves the others. The map moves here.
    ///
    /// # Panics
    /// As [`DMap::insert`]; [`DMap::try_reserve`] returns the error instead.
    #[track_caller]
    pub fn reserve(&mut self, count: usize) {
        super::boxes::had(self.try_reserve(count));
    }

    /// [`DMap::reserve`].
    ///
    /// # Errors
    /// If so much room is not left in one piece, or the map cannot be reached; it is as it was then.
    #[track_caller]
    pub fn try_reserve(&mut self, count: usize) -> Result<(), ObjectError> {
        let wanted = self.len.saturating_add(count);
        match wanted.checked_mul(4).map(|four| four.div_ceil(3)) {
            Some(buckets) if buckets <= self.buckets.len() => Ok(()),
            Some(buckets) if wanted > 0 => self.try_have(buckets),
            Some(_) => Ok(()),
            None => Err(ObjectError::Usage(format!("no map has room for {wanted} keys"))),
        }
    }

    /// Makes room for one more key.
    #[track_caller]
    fn try_grow(&mut self) -> Result<(), ObjectError> {
        let before = self.buckets.len();
        if (self.len + 1) * 4 <= before * 3 {
            return Ok(());
        }
        self.try_have(2 * before)
    }

    /// Grows to at least `count` buckets.
    #[track_caller]
    fn try_have(&mut self, count: usize) -> Result<(), ObjectError> {
        let count = count.max(BUCKETS_MIN).checked_next_power_of_two();
        let count = count.ok_or_else(|| ObjectError::Usage("no map is so large".into()))?;
        let mut buckets: DVec<Bucket<K, V>> = DVec::try_with_capacity(count)?;
        buckets.extend((0..count).map(|_| Bucket { hash: KeyHash(0), entry: None }));
        // Here before any is taken out: an error leaves the map as it was.
        self.buckets.try_as_mut_slice()?;
        let all = buckets.as_mut_slice();
        for bucket in std::mem::take(&mut self.buckets).into_iter().filter(|bucket| bucket.entry.is_some()) {
            let mut at = bucket.hash.first(count - 1);
            while all[at].entry.is_some() {
                at = (at + 1) & (count - 1);
            }
            all[at] = bucket;
        }
        self.buckets = buckets;
        Ok(())
    }

    /// Sets what is at a key: yields what was there.
    ///
    /// # Panics
    /// If no room is left, or the map cannot be reached; [`DMap::try_insert`] returns the error instead.
    #[track_caller]
    pub fn insert(&mut self, key: K, value: V) -> Option<V> {
        super::boxes::had(self.try_insert(key, value))
    }

    /// [`DMap::insert`].
    ///
    /// # Errors
    /// If no room is left, or the map cannot be reached: key and value are dropped then.
    #[track_caller]
    pub fn try_insert(&mut self, key: K, value: V) -> Result<Option<V>, ObjectError> {
        self.try_grow()?;
        let hash = KeyHash::of(&key);
        let buckets = self.buckets.try_as_mut_slice()?;
        let (at, is_there) = Self::place(buckets, hash, &key);
        if is_there {
            return Ok(buckets[at].entry.as_mut().map(|(_, old)| std::mem::replace(old, value)));
        }
        buckets[at] = Bucket { hash, entry: Some((key, value)) };
        self.len += 1;
        Ok(None)
    }

    /// Finds the value at a key, or the place for it, once: the map moves here.
    ///
    /// ```no_run
    /// # use vgas_objects::{DMap, DString};
    /// # let mut seen: DMap<DString, u64> = DMap::new();
    /// *seen.entry("Ada".into()).or_default() += 1;
    /// ```
    ///
    /// # Panics
    /// As [`DMap::insert`]; [`DMap::try_entry`] returns the error instead.
    #[track_caller]
    pub fn entry(&mut self, key: K) -> Entry<'_, K, V> {
        super::boxes::had(self.try_entry(key))
    }

    /// [`DMap::entry`].
    ///
    /// # Errors
    /// If no room is left, or the map cannot be reached: the key is dropped then.
    #[track_caller]
    pub fn try_entry(&mut self, key: K) -> Result<Entry<'_, K, V>, ObjectError> {
        self.try_grow()?;
        let hash = KeyHash::of(&key);
        let Self { buckets, len } = self;
        let buckets = buckets.try_as_mut_slice()?;
        let (at, is_there) = Self::place(buckets, hash, &key);
        Ok(match is_there {
            true => Entry::Occupied(OccupiedEntry { buckets, len, at }),
            false => Entry::Vacant(VacantEntry { buckets, len, at, hash, key }),
        })
    }

    /// Returns the value at a key, for writing; inserts the result of `make` if there was none.
    ///
    /// # Panics
    /// As [`DMap::insert`].
    #[track_caller]
    pub fn get_or_insert_with(&mut self, key: K, make: impl FnOnce() -> V) -> &mut V {
        self.entry(key).or_insert_with(make)
    }

    /// Returns the value at a key, for writing: the map moves here.
    ///
    /// # Panics
    /// If it cannot be reached; [`DMap::try_get_mut`] returns the error instead.
    #[track_caller]
    pub fn get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<&mut V>
    where
        K: Borrow<Q>,
    {
        super::boxes::had(self.try_get_mut(key))
    }

    /// [`DMap::get_mut`].
    ///
    /// # Errors
    /// If the map cannot be reached, or there is no room for it here.
    #[track_caller]
    pub fn try_get_mut<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Result<Option<&mut V>, ObjectError>
    where
        K: Borrow<Q>,
    {
        if self.len == 0 {
            return Ok(None);
        }
        let buckets = self.buckets.try_as_mut_slice()?;
        let (at, _) = Self::place(buckets, KeyHash::of(key), key);
        Ok(buckets[at].entry.as_mut().map(|(_, value)| value))
    }

    /// Takes what is at a key: the map moves here.
    ///
    /// # Panics
    /// If it cannot be reached; [`DMap::try_remove`] returns the error instead.
    #[track_caller]
    pub fn remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<V>
    where
        K: Borrow<Q>,
    {
        super::boxes::had(self.try_remove(key))
    }

    /// [`DMap::remove`].
    ///
    /// # Errors
    /// If the map cannot be reached, or there is no room for it here.
    #[track_caller]
    pub fn try_remove<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Result<Option<V>, ObjectError>
    where
        K: Borrow<Q>,
    {
        Ok(self.try_remove_entry(key)?.map(|(_key, value)| value))
    }

    /// Takes a key and its value: the map moves here.
    ///
    /// # Panics
    /// If it cannot be reached; [`DMap::try_remove_entry`] returns the error instead.
    #[track_caller]
    pub fn remove_entry<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Option<(K, V)>
    where
        K: Borrow<Q>,
    {
        super::boxes::had(self.try_remove_entry(key))
    }

    /// [`DMap::remove_entry`].
    ///
    /// # Errors
    /// If the map cannot be reached, or there is no room for it here.
    #[track_caller]
    pub fn try_remove_entry<Q: Hash + Eq + ?Sized>(&mut self, key: &Q) -> Result<Option<(K, V)>, ObjectError>
    where
        K: Borrow<Q>,
    {
        if self.len == 0 {
            return Ok(None);
        }
        let buckets = self.buckets.try_as_mut_slice()?;
        let (at, _) = Self::place(buckets, KeyHash::of(key), key);
        let taken = take_at(buckets, at);
        self.len -= usize::from(taken.is_some());
        Ok(taken)
    }

    /// Drops all keys and values for which `is_kept` returns false: the map moves here. Should `is_kept`
    /// panic, all are still there.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[track_caller]
    pub fn retain(&mut self, mut is_kept: impl FnMut(&K, &mut V) -> bool) {
        if self.len == 0 {
            return;
        }
        let buckets = self.buckets.as_mut_slice();
        let mut leaves = |(key, value): &mut (K, V)| !is_kept(key, value);
        let leaving: Vec<bool> =
            buckets.iter_mut().map(|bucket| bucket.entry.as_mut().is_some_and(&mut leaves)).collect();
        if !leaving.contains(&true) {
            return;
        }
        // All are taken out and the kept put back, since none may be behind a free bucket. The others are dropped when this is done: a drop
        // may panic.
        let mut taken = Vec::with_capacity(self.len);
        for (bucket, leaves) in buckets.iter_mut().zip(leaving) {
            taken.extend(bucket.entry.take().map(|entry| (bucket.hash, entry, leaves)));
        }
        let mask = buckets.len() - 1;
        let mut gone = Vec::new();
        for (hash, entry, leaves) in taken {
            if leaves {
                gone.push(entry);
                continue;
            }
            let mut at = hash.first(mask);
            while buckets[at].entry.is_some() {
                at = (at + 1) & mask;
            }
            buckets[at] = Bucket { hash, entry: Some(entry) };
        }
        self.len -= gone.len();
    }
}

impl<K: Shareable + Hash + Eq, V: Shareable> DMap<K, V> {
    /// Returns the value at a key, for reading. For a remote map, this brings a few buckets.
    ///
    /// # Panics
    /// If they cannot be reached; [`DMap::try_get`] returns the error instead.
    #[track_caller]
    pub fn get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Option<MapRef<'_, K, V>>
    where
        K: Borrow<Q>,
    {
        super::boxes::had(self.try_get(key))
    }

    /// [`DMap::get`].
    ///
    /// # Errors
    /// If the buckets cannot be reached, or there is no room for their copies.
    #[track_caller]
    pub fn try_get<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> Result<Option<MapRef<'_, K, V>>, ObjectError>
    where
        K: Borrow<Q>,
    {
        if self.len == 0 {
            return Ok(None);
        }
        let hash = KeyHash::of(key);
        let count = self.buckets.len();
        let mut from = hash.first(count - 1);
        loop {
            let part = self.buckets.range(from..count.min(from + LOOKED_AT))?;
            for at in 0..part.len() {
                match part[at].look(hash, key) {
                    Look::Key => return Ok(Some(MapRef { part, at })),
                    Look::Free => return Ok(None),
                    Look::Other => {}
                }
            }
            from = (from + part.len()) & (count - 1);
        }
    }

    /// Returns true if the key has a value. Costs what [`DMap::get`] does.
    ///
    /// # Panics
    /// As [`DMap::get`].
    #[track_caller]
    pub fn contains_key<Q: Hash + Eq + ?Sized>(&self, key: &Q) -> bool
    where
        K: Borrow<Q>,
    {
        self.get(key).is_some()
    }
}

impl<K: Shareable, V: Shareable> DMap<K, V> {
    /// Keys and values, for reading: all are brought. In no order that means anything.
    ///
    /// # Panics
    /// If they cannot be reached; [`DMap::try_iter`] returns the error instead.
    #[track_caller]
    pub fn iter(&self) -> DMapEntries<'_, K, V> {
        super::boxes::had(self.try_iter())
    }

    /// [`DMap::iter`].
    ///
    /// # Errors
    /// If they cannot be reached, or there is no room for a copy.
    #[track_caller]
    pub fn try_iter(&self) -> Result<DMapEntries<'_, K, V>, ObjectError> {
        Ok(DMapEntries(self.buckets.try_as_slice()?.iter()))
    }

    /// All keys; costs what [`DMap::iter`] does.
    ///
    /// # Panics
    /// If they cannot be reached.
    #[track_caller]
    pub fn keys(&self) -> impl Iterator<Item = &K> {
        self.iter().map(|(key, _)| key)
    }

    /// All values; costs what [`DMap::iter`] does.
    ///
    /// # Panics
    /// If they cannot be reached.
    #[track_caller]
    pub fn values(&self) -> impl Iterator<Item = &V> {
        self.iter().map(|(_, value)| value)
    }
}

/// A value found at a key of a [`DMap`]: local, or brought for this guard alone.
pub struct MapRef<'m, K: Shareable, V: Shareable> {
    part: Part<'m, Bucket<K, V>>,
    at: usize,
}

impl<K: Shareable, V: Shareable> MapRef<'_, K, V> {
    fn entry(&self) -> &(K, V) {
        match &self.part[self.at].entry {
            Some(entry) => entry,
            None => unreachable!("it was found there, and is borrowed"),
        }
    }

    /// Returns the key, as stored in the map.
    pub fn key(&self) -> &K {
        &self.entry().0
    }
}

impl<K: Shareable, V: Shareable> Deref for MapRef<'_, K, V> {
    type Target = V;

    fn deref(&self) -> &V {
        &self.entry().1
    }
}

impl<K: Shareable, V: Shareable + fmt::Debug> fmt::Debug for MapRef<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        V::fmt(self, f)
    }
}

/// Keys and values of a [`DMap`]: those not taken are dropped with it.
pub struct DMapIter<K: Portable, V: Portable> {
    buckets: std::vec::IntoIter<Bucket<K, V>>,
    left: usize,
}

impl<K: Portable, V: Portable> Iterator for DMapIter<K, V> {
    type Item = (K, V);

    fn next(&mut self) -> Option<(K, V)> {
        let entry = self.buckets.find_map(|bucket| bucket.entry)?;
        self.left -= 1;
        Some(entry)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<K: Portable, V: Portable> ExactSizeIterator for DMapIter<K, V> {}
impl<K: Portable, V: Portable> FusedIterator for DMapIter<K, V> {}

impl<K: Portable, V: Portable> fmt::Debug for DMapIter<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DMapIter({} keys)", self.left)
    }
}

impl<K: Portable, V: Portable> IntoIterator for DMap<K, V> {
    type Item = (K, V);
    type IntoIter = DMapIter<K, V>;

    /// Brings the entries here if they are remote.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[track_caller]
    fn into_iter(self) -> DMapIter<K, V> {
        DMapIter { left: self.len, buckets: self.buckets.into_iter() }
    }
}

/// Keys and values of a [`DMap`], for reading.
pub struct DMapEntries<'m, K: Portable, V: Portable>(std::slice::Iter<'m, Bucket<K, V>>);

impl<'m, K: Portable, V: Portable> Iterator for DMapEntries<'m, K, V> {
    type Item = (&'m K, &'m V);

    fn next(&mut self) -> Option<(&'m K, &'m V)> {
        self.0.find_map(|bucket| bucket.entry.as_ref()).map(|(key, value)| (key, value))
    }
}

impl<K: Portable, V: Portable> FusedIterator for DMapEntries<'_, K, V> {}

impl<K: Portable, V: Portable> fmt::Debug for DMapEntries<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DMapEntries(..)")
    }
}

/// Keys and values of a [`DMap`], for writing to the values.
pub struct DMapEntriesMut<'m, K: Portable, V: Portable>(std::slice::IterMut<'m, Bucket<K, V>>);

impl<'m, K: Portable, V: Portable> Iterator for DMapEntriesMut<'m, K, V> {
    type Item = (&'m K, &'m mut V);

    fn next(&mut self) -> Option<(&'m K, &'m mut V)> {
        self.0.find_map(|bucket| bucket.entry.as_mut()).map(|(key, value)| (&*key, value))
    }
}

impl<K: Portable, V: Portable> FusedIterator for DMapEntriesMut<'_, K, V> {}

impl<K: Portable, V: Portable> fmt::Debug for DMapEntriesMut<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DMapEntriesMut(..)")
    }
}

impl<'m, K: Shareable, V: Shareable> IntoIterator for &'m DMap<K, V> {
    type Item = (&'m K, &'m V);
    type IntoIter = DMapEntries<'m, K, V>;

    /// As [`DMap::iter`].
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    fn into_iter(self) -> DMapEntries<'m, K, V> {
        self.iter()
    }
}

impl<'m, K: Portable, V: Portable> IntoIterator for &'m mut DMap<K, V> {
    type Item = (&'m K, &'m mut V);
    type IntoIter = DMapEntriesMut<'m, K, V>;

    /// As [`DMap::iter_mut`].
    ///
    /// # Panics
    /// As there.
    #[track_caller]
    fn into_iter(self) -> DMapEntriesMut<'m, K, V> {
        self.iter_mut()
    }
}

impl<K: Portable + Hash + Eq, V: Portable> Extend<(K, V)> for DMap<K, V> {
    #[track_caller]
    fn extend<I: IntoIterator<Item = (K, V)>>(&mut self, all: I) {
        for (key, value) in all {
            self.insert(key, value);
        }
    }
}

impl<K: Portable + Hash + Eq, V: Portable> FromIterator<(K, V)> for DMap<K, V> {
    #[track_caller]
    fn from_iter<I: IntoIterator<Item = (K, V)>>(all: I) -> Self {
        let mut map = Self::new();
        map.extend(all);
        map
    }
}

impl<K: Portable, V: Portable> Default for DMap<K, V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<K: Portable, V: Portable> fmt::Debug for DMap<K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DMap({} keys)", self.len)
    }
}
