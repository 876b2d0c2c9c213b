//! Costs of the operations, in messages and comparisons.
//!
//! | operation | own object | object of another rank |
//! |---|---|---|
//! | read, `Deref` | two comparisons | *known copy*: one more comparison. *Copy on this node*: a table lookup. *Otherwise*: a request to the home and its reply; one more message if the home has the object on NVMe and another node has a copy |
//! | [`DBox::read_all`], [`DVec::read_all`], [`DString::read_all`], [`DArc::read_all`] | as one read each | one request and reply for each other node, more if the bytes do not fit one message |
//! | [`DBox::bring_all`], [`DVec::bring_all`] | as one read each | the same; afterwards the objects are this rank's |
//! | read or write of an object with a [`TBox`] in it | as one read or write each | one request and reply for the object and all that is tied to it |
//! | write, `DerefMut` | one word is checked; if another rank has read the object, its colour changes | a request and its reply, and a 64th of the message that frees 64 objects together |
//! | new | a slot | a request, its reply and a put, if this rank has no room |
//! | drop | free the slot | a 64th of a message; a request and its reply first, if dropping the object runs a `Drop` of the program |
//!
//! No rank helps with any of these: the node's daemon serves them ([`services`]). An object of a rank on the same node takes no message
//! while its page is resident. An object larger than a message is fetched by a get ([`vgas::Runtime::get`]).
//!
//! # Fetch many objects at once
//!
//! If you are about to follow many boxes, read them in one call:
//!
//! ```no_run
//! # use vgas_objects::{DBox, DVec, NotRead, Portable, Shareable};
//! #[derive(Portable, Shareable)]
//! struct Post { likes: u64, text: [u8; 200] }
//!
//! fn likes(page: &DVec<DBox<Post>>) -> Result<u64, NotRead> {
//!     Ok(DBox::try_read_all(page.iter())?.iter().map(|post| post.likes).sum())
//! }
//! ```
//!
//! If you know that objects are used together when you make them, tie them ([`TBox`]). If you are about to use a large own object that may
//! be on NVMe, call [`prefetch`] first.
//!
//! # Do not block a thread
//!
//! [`DBox::get`] and a [`JoinHandle`] are futures for the executor of your choice; none of its threads waits in them.
//!
//! [`DArc::read_all`]: crate::sync::DArc::read_all

#[cfg(doc)]
use crate::{DBox, DString, DVec, JoinHandle, TBox, prefetch, services};
