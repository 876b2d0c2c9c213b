//! [`DString`]: text in the global heap.

use super::error::ObjectError;
use super::read_all::NotRead;
use super::vec::DVec;
use crate::glue::Glue;
use crate::layout::Layout;
use crate::portable::{Portable, Shareable};
use crate::word::Link;
use std::borrow::Borrow;
use std::fmt;
use std::hash::{Hash, Hasher};
use std::ops::Deref;
use std::panic::Location;

/// Owned, growable text in the global heap: like a `String`. Read, it is a `str`; another rank reads a copy. 32 bytes.
///
/// ```no_run
/// # use vgas_objects::{DBox, DString, Portable, Shareable};
/// #[derive(Portable, Shareable)]
/// struct Post { author: u64, text: DString }
/// let mut post = DBox::new(Post { author: 7, text: "good".into() });
/// post.text.push_str(" morning");
/// assert!(post.text.ends_with("morning"));
/// ```
#[derive(Default)]
pub struct DString {
    /// UTF-8.
    bytes: DVec<u8>,
}

// SAFETY: as its only field.
unsafe impl Portable for DString {
    const HAS_LINKS: bool = true;

    fn links(&self, visit: &mut dyn FnMut(&Link)) {
        self.bytes.links(visit);
    }

    fn weigh(&self, visit: &mut dyn FnMut(&Link, u64)) {
        self.bytes.weigh(visit);
    }

    fn glue(glue: &mut Glue) {
        glue.part::<DVec<u8>>();
    }

    fn describe(layout: &mut Layout) {
        layout.begin::<Self>();
    }
}

// SAFETY: as its only field.
unsafe impl Shareable for DString {}

fn text_of(bytes: &[u8]) -> Result<&str, ObjectError> {
    std::str::from_utf8(bytes).map_err(|why| ObjectError::Usage(format!("what lies there is no text: {why}")))
}

impl DString {
    /// Empty text, which takes no room.
    pub const fn new() -> Self {
        Self { bytes: DVec::new() }
    }

    /// A copy of this text, in this rank's partition: as `From`, but there may be no room.
    ///
    /// # Errors
    /// If this much room is not left in one piece, or there is no heap.
    #[track_caller]
    pub fn try_from_str(text: &str) -> Result<Self, ObjectError> {
        Ok(Self { bytes: DVec::try_from_slice(text.as_bytes())? })
    }

    /// All of many texts, to read: of another node, by one message to it, as of [`DBox::read_all`](crate::DBox::read_all).
    ///
    /// # Panics
    /// If one of them cannot be reached, or there is no room for the copies; [`DString::try_read_all`]
    /// returns the error instead.
    #[track_caller]
    pub fn read_all<'t>(texts: impl IntoIterator<Item = &'t Self>) -> Vec<&'t str> {
        match Self::try_read_all(texts) {
            Ok(all) => all,
            Err(why) => panic!("{why}"),
        }
    }

    /// [`DString::read_all`].
    ///
    /// # Errors
    /// If one of them cannot be reached, is no text, or there is no room for its copy: the error names it,
    /// and the cause.
    #[track_caller]
    pub fn try_read_all<'t>(texts: impl IntoIterator<Item = &'t Self>) -> Result<Vec<&'t str>, NotRead> {
        let here = Location::caller();
        let all = DVec::try_read_all(texts.into_iter().map(|text| &text.bytes))?;
        let texts = all.into_iter().enumerate();
        texts.map(|(at, bytes)| text_of(bytes).map_err(|why| NotRead::of(at, why, here))).collect()
    }

    /// Bytes of it; no message is needed to know.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Returns true if it is empty.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Adds text at the end; all of it comes here.
    ///
    /// # Panics
    /// If there is no room; [`DString::try_push_str`] returns the error instead.
    #[track_caller]
    pub fn push_str(&mut self, text: &str) {
        if let Err(error) = self.try_push_str(text) {
            super::boxes::fail(&error);
        }
    }

    /// Adds text at the end; all of it comes here.
    ///
    /// # Errors
    /// If there is no room, or it cannot be reached; nothing is added then.
    #[track_caller]
    pub fn try_push_str(&mut self, text: &str) -> Result<(), ObjectError> {
        self.bytes.try_extend_from(text.as_bytes())
    }

    /// Takes the last character; the text comes here.
    ///
    /// # Panics
    /// If it cannot be reached.
    #[track_caller]
    pub fn pop(&mut self) -> Option<char> {
        super::boxes::had(self.bytes.try_as_mut_slice().map(|_| ()));
        let last = self.chars().next_back()?;
        self.bytes.truncate(self.len() - last.len_utf8());
        Some(last)
    }

    /// Removes all but the first `bytes` bytes; the text comes here.
    ///
    /// # Panics
    /// If they do not end between two characters, or it cannot be reached.
    #[track_caller]
    pub fn truncate(&mut self, bytes: usize) {
        super::boxes::had(self.bytes.try_as_mut_slice().map(|_| ()));
        assert!(bytes >= self.len() || self.is_char_boundary(bytes), "{bytes} bytes end within a character");
        self.bytes.truncate(bytes);
    }

    /// Removes all of it.
    pub fn clear(&mut self) {
        self.bytes.clear();
    }

    /// All of it, to read.
    ///
    /// # Errors
    /// If it cannot be reached, or there is no room for a copy; and when what is there is no text, as a rank
    /// of another program may have left it.
    #[track_caller]
    pub fn try_as_str(&self) -> Result<&str, ObjectError> {
        text_of(self.bytes.try_as_slice()?)
    }

    /// In memory of this process.
    ///
    /// # Errors
    /// As [`DString::try_as_str`]; it is leaked then.
    #[track_caller]
    pub fn into_string(self) -> Result<String, ObjectError> {
        let bytes = self.bytes.into_vec()?;
        String::from_utf8(bytes)
            .map_err(|why| ObjectError::Usage(format!("what lay there is no text: {why}")))
    }
}

impl Deref for DString {
    type Target = str;

    #[track_caller]
    fn deref(&self) -> &str {
        super::boxes::had(self.try_as_str())
    }
}

impl From<&str> for DString {
    /// # Panics
    /// If there is no room.
    #[track_caller]
    fn from(text: &str) -> Self {
        let mut new = Self::new();
        new.push_str(text);
        new
    }
}

impl Extend<char> for DString {
    #[track_caller]
    fn extend<I: IntoIterator<Item = char>>(&mut self, characters: I) {
        // Not in a closure, whose panics would name this line.
        for character in characters {
            self.push(character);
        }
    }
}

impl fmt::Write for DString {
    fn write_str(&mut self, text: &str) -> fmt::Result {
        self.try_push_str(text).map_err(|_| fmt::Error)
    }
}

impl fmt::Display for DString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        str::fmt(self, f)
    }
}

impl fmt::Debug for DString {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&**self, f)
    }
}

impl PartialEq for DString {
    #[track_caller]
    fn eq(&self, other: &Self) -> bool {
        **self == **other
    }
}

impl Eq for DString {}

impl PartialEq<str> for DString {
    #[track_caller]
    fn eq(&self, other: &str) -> bool {
        **self == *other
    }
}

impl PartialEq<&str> for DString {
    #[track_caller]
    fn eq(&self, other: &&str) -> bool {
        **self == **other
    }
}

impl PartialOrd for DString {
    #[track_caller]
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for DString {
    #[track_caller]
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (**self).cmp(&**other)
    }
}

impl Hash for DString {
    #[track_caller]
    fn hash<H: Hasher>(&self, state: &mut H) {
        (**self).hash(state);
    }
}

// They hash and compare as what they deref to.
impl Borrow<str> for DString {
    #[track_caller]
    fn borrow(&self) -> &str {
        self
    }
}

impl AsRef<str> for DString {
    #[track_caller]
    fn as_ref(&self) -> &str {
        self
    }
}
