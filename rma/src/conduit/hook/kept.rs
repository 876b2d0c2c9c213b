//! A message that a hook keeps, to send it later or again.

use crate::conduit::owned::OwnedMessage;
use crate::message::Message;

/// A copy of a message and of its payload.
#[derive(Debug)]
pub struct Kept(OwnedMessage);

impl Kept {
    /// Copies it: its source may be reused.
    pub fn of(message: &Message<'_>) -> Self {
        Self(OwnedMessage::of(message))
    }

    /// It, to be sent.
    pub fn message(&self) -> Message<'_> {
        self.0.message()
    }
}
