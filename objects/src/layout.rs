//! Memory layout of a type's values, in words that another job can compare: values of an earlier job are read
//! only as the type that they were.

use crate::portable::Portable;
use std::any::TypeId;
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// The layouts of a type and of all types that it is made of, or has boxes of, by name.
///
/// Names, sizes, alignments, and fields with their offsets; of enums, the representation, and the variants in
/// their order, with their discriminants and fields. Two compilers that place the fields of a variant
/// differently within the same size are not told apart
/// ([`Objects::attach_named`](crate::Objects::attach_named) requires that of its caller).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    types: BTreeMap<&'static str, Type>,
    /// A name that two types have.
    ambiguous: Option<&'static str>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Type {
    id: TypeId,
    text: String,
}

impl Layout {
    /// Describes a type.
    pub fn of<T: Portable>() -> Self {
        let mut layout = Self::default();
        T::describe(&mut layout);
        layout.begin::<T>();
        layout
    }

    /// For the derive: begins a type; false if it is described already, as a recursive one is.
    #[doc(hidden)]
    pub fn begin<T: 'static>(&mut self) -> bool {
        let (name, id) = (std::any::type_name::<T>(), TypeId::of::<T>());
        if let Some(known) = self.types.get(name) {
            if known.id != id {
                self.ambiguous = Some(name);
            }
            return false;
        }
        let text = format!("{} bytes at {}", size_of::<T>(), align_of::<T>());
        self.types.insert(name, Type { id, text });
        true
    }

    /// Returns a name that two of the types have, as those of blocks of one function may: another job could not tell them apart.
    pub fn ambiguous(&self) -> Option<&'static str> {
        self.ambiguous
    }

    /// Adds a word to the description of a type that was begun.
    fn add<T>(&mut self, what: fmt::Arguments<'_>) {
        if let Some(known) = self.types.get_mut(std::any::type_name::<T>()) {
            // Writing into a string does not fail.
            let _ = known.text.write_fmt(what);
        }
    }

    /// For the derive, and for types of this crate: a property of a type that was begun.
    #[doc(hidden)]
    pub fn property<T>(&mut self, text: &str) {
        self.add::<T>(format_args!(", {text}"));
    }

    /// For the derive: a variant of an enum that was begun, and its discriminant.
    #[doc(hidden)]
    pub fn variant<T>(&mut self, name: &str, discriminant: i128) {
        self.add::<T>(format_args!(", {name} = {discriminant}"));
    }

    /// For the derive: a field of a type that was begun, and its offset, if known.
    #[doc(hidden)]
    pub fn field<T, Field>(&mut self, name: &str, offset: Option<usize>) {
        let field = std::any::type_name::<Field>();
        match offset {
            Some(offset) => self.add::<T>(format_args!(", {name} at {offset}: {field}")),
            None => self.add::<T>(format_args!(", {name}: {field}")),
        }
    }

    /// Returns the first difference from another layout, given as text; none if there is none.
    pub fn differs_from(&self, text: &str) -> Option<String> {
        let line = |name: &str| {
            text.lines().find(|line| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(": ")))
        };
        self.types.iter().find_map(|(name, own)| {
            let own = format!("{name}: {}", own.text);
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
        self.types.iter().try_for_each(|(name, known)| writeln!(f, "{name}: {}", known.text))
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

    /// Goal: another size, field or variant, even of a part, is another layout; the same is the same.
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

    /// Goal: variants are told apart by their names, their order and their discriminants, also those without fields.
    #[test]
    fn variants_are_described() {
        mod before {
            #[derive(crate::Portable)]
            #[expect(dead_code, reason = "the type matters")]
            #[repr(u8)]
            pub enum State {
                Idle,
                Busy = 7,
                Dead,
            }
        }
        let text = Layout::of::<before::State>().to_string();
        assert!(text.contains("State: 1 bytes at 1, as u8, Idle = 0, Busy = 7, Dead = 8"), "{text}");
        #[derive(crate::Portable)]
        #[expect(dead_code, reason = "the type matters")]
        #[repr(i8)]
        enum Signed<T> {
            First(T) = -3,
            Second { of: T },
        }
        let text = Layout::of::<Signed<u32>>().to_string();
        assert!(text.contains(", First = -3, First.0: u32, Second = -2, Second.of: u32"), "{text}");
    }

    /// Goal: the parts of a tuple, and the size of an option, count although they have no names of their own.
    #[test]
    fn types_of_std_are_described() {
        let text = Layout::of::<(u8, Option<u32>)>().to_string();
        assert!(
            text.contains("Option<u32>: 8 bytes at 4") && text.contains("): 12 bytes at 4, 0 at "),
            "{text}"
        );
    }

    /// Goal: two types with one name are noticed, wherever in a type they are.
    #[test]
    fn types_of_one_name_are_ambiguous() {
        fn first() -> impl Portable {
            #[derive(crate::Portable)]
            struct Inner(u64);
            Inner(1)
        }
        fn of<A: Portable, B: Portable>(_: &A, _: &B) -> Layout {
            Layout::of::<(A, [Option<B>; 2])>()
        }
        let (a, b) = {
            #[derive(crate::Portable)]
            struct Inner(u64);
            let a = Inner(1);
            let b = {
                #[derive(crate::Portable)]
                struct Inner(u64);
                Inner(2)
            };
            (a, b)
        };
        assert_eq!((of(&a, &a).ambiguous(), of(&a, &first()).ambiguous()), (None, None));
        assert!(of(&a, &b).ambiguous().is_some_and(|name| name.ends_with("Inner")));
    }
}
