//! Placing objects near their use.

use super::{TaskError, TaskPlace, scope};
use crate::heap::DBox;
use crate::portable::Portable;

impl<T: Portable> DBox<T> {
    /// Places a value on another rank: it is made here, and [moved](DBox::move_to).
    ///
    /// # Errors
    /// As [`DBox::move_to`]; the value is dropped then.
    ///
    /// # Panics
    /// As [`DBox::new`].
    #[track_caller]
    pub fn new_on(place: impl Into<TaskPlace>, value: T) -> Result<Self, TaskError> {
        let mut new = Self::new(value);
        Self::move_to(&mut new, place)?;
        Ok(new)
    }

    /// Moves the object to a rank, or to a rank of a node: a task there brings it, by a message and its
    /// answer if it is here. Other ranks' copies of it are not found again. With [`TaskPlace::Anywhere`], it
    /// stays.
    ///
    /// # Errors
    /// If no tasks run ([`Objects::run`](crate::Objects::run)), or there is no room: the object stays in
    /// place.
    pub fn move_to(this: &mut Self, place: impl Into<TaskPlace>) -> Result<(), TaskError> {
        match place.into() {
            TaskPlace::Anywhere => Ok(()),
            place => scope(|scope| {
                let bring = crate::task!(|object: &mut DBox<T>, _n: ()| -> () {
                    object.get_mut();
                });
                scope.spawn_to(place, bring, this, ()).join()
            }),
        }
    }
}
