//! [`Entry`]: the value, or its future place, at a key of a [`DMap`](super::DMap), which is looked up once.

use super::map::{Bucket, KeyHash, take_at};
use crate::Portable;
use std::fmt;

/// The value at a key of a [`DMap`](super::DMap), or the place for it: [`DMap::entry`](super::DMap::entry).
/// The map is here as long as there is one.
///
/// As std's, it panics only if the user's own code does: room for one more key was made before.
pub enum Entry<'m, K: Portable, V: Portable> {
    /// Something is.
    Occupied(OccupiedEntry<'m, K, V>),
    /// Nothing is.
    Vacant(VacantEntry<'m, K, V>),
}

/// A key that is in a [`DMap`](super::DMap).
pub struct OccupiedEntry<'m, K: Portable, V: Portable> {
    pub(super) buckets: &'m mut [Bucket<K, V>],
    pub(super) len: &'m mut usize,
    pub(super) at: usize,
}

/// A key that is not in a [`DMap`](super::DMap), and room for it.
pub struct VacantEntry<'m, K: Portable, V: Portable> {
    pub(super) buckets: &'m mut [Bucket<K, V>],
    pub(super) len: &'m mut usize,
    pub(super) at: usize,
    pub(super) hash: KeyHash,
    pub(super) key: K,
}

impl<'m, K: Portable, V: Portable> Entry<'m, K, V> {
    /// Returns the value, for writing; inserts this one if there was none.
    pub fn or_insert(self, value: V) -> &'m mut V {
        self.or_insert_with(|| value)
    }

    /// Returns the value, for writing; inserts the result of `make` if there was none.
    pub fn or_insert_with(self, make: impl FnOnce() -> V) -> &'m mut V {
        self.or_insert_with_key(|_| make())
    }

    /// Returns the value, for writing; inserts the result of `make` for the key if there was none.
    pub fn or_insert_with_key(self, make: impl FnOnce(&K) -> V) -> &'m mut V {
        match self {
            Self::Occupied(entry) => entry.into_mut(),
            Self::Vacant(entry) => {
                let value = make(&entry.key);
                entry.insert(value)
            }
        }
    }

    /// Returns the value, for writing; inserts the default if there was none.
    pub fn or_default(self) -> &'m mut V
    where
        V: Default,
    {
        self.or_insert_with(V::default)
    }

    /// Changes what is there, if something is.
    pub fn and_modify(mut self, change: impl FnOnce(&mut V)) -> Self {
        if let Self::Occupied(entry) = &mut self {
            change(entry.get_mut());
        }
        self
    }

    /// The key.
    pub fn key(&self) -> &K {
        match self {
            Self::Occupied(entry) => entry.key(),
            Self::Vacant(entry) => entry.key(),
        }
    }
}

impl<'m, K: Portable, V: Portable> OccupiedEntry<'m, K, V> {
    fn entry(&self) -> &(K, V) {
        match &self.buckets[self.at].entry {
            Some(entry) => entry,
            None => unreachable!("an occupied place"),
        }
    }

    /// The key that is in the map.
    pub fn key(&self) -> &K {
        &self.entry().0
    }

    /// Returns the value.
    pub fn get(&self) -> &V {
        &self.entry().1
    }

    /// Returns the value, for writing.
    pub fn get_mut(&mut self) -> &mut V {
        value_of(&mut self.buckets[self.at])
    }

    /// Returns the value, for writing as long as the map is borrowed.
    pub fn into_mut(self) -> &'m mut V {
        value_of(&mut self.buckets[self.at])
    }

    /// Replaces the value; returns the old one.
    pub fn insert(&mut self, value: V) -> V {
        std::mem::replace(self.get_mut(), value)
    }

    /// Takes what is there.
    pub fn remove(self) -> V {
        self.remove_entry().1
    }

    /// Takes the key and its value.
    pub fn remove_entry(self) -> (K, V) {
        match take_at(self.buckets, self.at) {
            Some(entry) => {
                *self.len -= 1;
                entry
            }
            None => unreachable!("an occupied place"),
        }
    }
}

impl<'m, K: Portable, V: Portable> VacantEntry<'m, K, V> {
    /// The key.
    pub fn key(&self) -> &K {
        &self.key
    }

    /// The key, which is not put into the map.
    pub fn into_key(self) -> K {
        self.key
    }

    /// Puts a value there.
    pub fn insert(self, value: V) -> &'m mut V {
        let bucket = &mut self.buckets[self.at];
        *bucket = Bucket { hash: self.hash, entry: Some((self.key, value)) };
        *self.len += 1;
        value_of(bucket)
    }
}

/// The value of a bucket that has one.
fn value_of<K: Portable, V: Portable>(bucket: &mut Bucket<K, V>) -> &mut V {
    match &mut bucket.entry {
        Some((_, value)) => value,
        None => unreachable!("an occupied place"),
    }
}

impl<K: Portable, V: Portable> fmt::Debug for Entry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Occupied(entry) => entry.fmt(f),
            Self::Vacant(entry) => entry.fmt(f),
        }
    }
}

impl<K: Portable, V: Portable> fmt::Debug for OccupiedEntry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OccupiedEntry(of {} keys)", self.len)
    }
}

impl<K: Portable, V: Portable> fmt::Debug for VacantEntry<'_, K, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "VacantEntry(of {} keys)", self.len)
    }
}
