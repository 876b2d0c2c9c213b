//! Serde's view of boxes, rows, text and maps: a box is its object, a row a sequence, text a string, a map a
//! map.
//!
//! Serialising reads a value, as by a reference, and so brings a remote one; deserialised values are this
//! rank's. No room is an error of the format, not a panic.

use crate::{DBox, DMap, DString, DVec, Portable, Shareable, TBox};
use ::serde::de::{Error as _, MapAccess, SeqAccess, Visitor};
use ::serde::ser::Error as _;
use ::serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::fmt;
use std::hash::Hash;
use std::marker::PhantomData;

impl<T: Shareable + Serialize> Serialize for DBox<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.try_read().map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de, T: Portable + Deserialize<'de>> Deserialize<'de> for DBox<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::try_new(T::deserialize(deserializer)?).map_err(|refused| D::Error::custom(refused.why))
    }
}

impl<T: Shareable + Serialize> Serialize for TBox<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.try_read().map_err(S::Error::custom)?.serialize(serializer)
    }
}

impl<'de, T: Portable + Deserialize<'de>> Deserialize<'de> for TBox<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        DBox::deserialize(deserializer).map(Self::tie)
    }
}

impl<T: Shareable + Serialize> Serialize for DVec<T> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.try_as_slice().map_err(S::Error::custom)?)
    }
}

impl<'de, T: Portable + Deserialize<'de>> Deserialize<'de> for DVec<T> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Row<T>(PhantomData<T>);

        impl<'de, T: Portable + Deserialize<'de>> Visitor<'de> for Row<T> {
            type Value = DVec<T>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a sequence")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<DVec<T>, A::Error> {
                // The file may claim any length: room is made as values arrive.
                let mut row = DVec::new();
                while let Some(value) = sequence.next_element()? {
                    row.try_push(value).map_err(|refused| A::Error::custom(refused.why))?;
                }
                Ok(row)
            }
        }

        deserializer.deserialize_seq(Row(PhantomData))
    }
}

impl Serialize for DString {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.try_as_str().map_err(S::Error::custom)?)
    }
}

impl<'de> Deserialize<'de> for DString {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;

        impl Visitor<'_> for Text {
            type Value = DString;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string")
            }

            fn visit_str<E: ::serde::de::Error>(self, text: &str) -> Result<DString, E> {
                let mut new = DString::new();
                new.try_push_str(text).map_err(E::custom)?;
                Ok(new)
            }
        }

        deserializer.deserialize_str(Text)
    }
}

impl<K: Shareable + Serialize + Hash + Eq, V: Shareable + Serialize> Serialize for DMap<K, V> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_map(self.try_iter().map_err(S::Error::custom)?)
    }
}

impl<'de, K: Portable + Deserialize<'de> + Hash + Eq, V: Portable + Deserialize<'de>> Deserialize<'de>
    for DMap<K, V>
{
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Map<K, V>(PhantomData<(K, V)>);

        impl<'de, K: Portable + Deserialize<'de> + Hash + Eq, V: Portable + Deserialize<'de>> Visitor<'de>
            for Map<K, V>
        {
            type Value = DMap<K, V>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a map")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut entries: A) -> Result<DMap<K, V>, A::Error> {
                let mut map = DMap::new();
                while let Some((key, value)) = entries.next_entry()? {
                    map.try_insert(key, value).map_err(A::Error::custom)?;
                }
                Ok(map)
            }
        }

        deserializer.deserialize_map(Map(PhantomData))
    }
}
