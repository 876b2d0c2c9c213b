//! How the values of a type lie in memory, in words that another job can compare: what an earlier one has left is only read as what it was.

use crate::portable::Portable;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The layouts of a type and of all types that it is made of, or has boxes of, by name.
///
/// Names, sizes and fields with their offsets; of enums, the fields of each variant: a compiler that arranges the same variants in
/// another way within the same size is not noticed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    types: BTreeMap<&'static str, String>,
}

impl Layout {
    /// Of a type.
    pub fn of<T: Portable>() -> Self {
        let mut layout = Self::default();
        T::describe(&mut layout);
        layout.begin::<T>();
        layout
    }

    /// For the derive: begins a type; false if it is described already, as a recursive one is.
    #[doc(hidden)]
    pub fn begin<T>(&mut self) -> bool {
        let name = std::any::type_name::<T>();
        let is_new = !self.types.contains_key(name);
        self.types.entry(name).or_insert_with(|| format!("{} bytes at {}", size_of::<T>(), align_of::<T>()));
        is_new
    }

    /// For the derive: a field of a type that was begun, and where it is, if that is known.
    #[doc(hidden)]
    pub fn field<T, Field>(&mut self, name: &str, offset: Option<usize>) {
        if let Some(text) = self.types.get_mut(std::any::type_name::<T>()) {
            let at = offset.map(|offset| format!(" at {offset}")).unwrap_or_default();
            // Writing into a string does not fail.
            let _ = write!(text, ", {name}{at}: {}", std::any::type_name::<Field>());
        }
    }

    /// What of this is said otherwise in the text of another, as that has written it.
    pub fn differs_from(&self, text: &str) -> Option<String> {
        let line = |name: &str| {
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(": ")))
        };
        self.types.iter().find_map(|(name, own)| {
            let own = format!("{name}: {own}");
            let other = line(name);
            (other != Some(&own)).then(|| match other {
                Some(other) => format!("it is \"{own}\", and was \"{other}\""),
                None => {
                    let known: Vec<&str> =
                        text.lines().filter_map(|line| Some(line.split_once(": ")?.0)).take(3).collect();
                    format!("it is \"{own}\", which was not among {}", known.join(", "))
                }
            })
        })
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.types.iter().try_for_each(|(name, text)| writeln!(f, "{name}: {text}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Portable, Shareable};

    #[derive(Portable, Shareable)]
    struct Pair<T> {
        first: T,
        second: Option<Tag>,
    }

    #[derive(Portable, Shareable)]
    enum Tag {
        None,
        Two(u8, [u32; 3]),
    }

    /// Goal: another size, field or variant is another layout, also of a part; the same is the same.
    #[test]
    fn parts_are_described() {
        let _ = Pair { first: 1u64, second: Some(Tag::Two(1, [2; 3])) };
        let _ = Tag::None;
        let (of_u64, of_u32) = (Layout::of::<Pair<u64>>(), Layout::of::<Pair<u32>>());
        assert_eq!(of_u64.differs_from(&Layout::of::<Pair<u64>>().to_string()), None);
        assert!(of_u64.differs_from(&of_u32.to_string()).is_some());
        let text = of_u64.to_string();
        for words in ["first at ", "Two.1: [u32; 3]", "Tag: 16 bytes at 4"] {
            assert!(text.contains(words), "{words}: {text}");
        }
        let changed = text.replace("[u32; 3]", "[u32; 4]");
        let why = of_u64.differs_from(&changed).unwrap();
        assert!(why.contains("Two.1: [u32; 3]") && why.contains("and was"), "{why}");
    }
}
