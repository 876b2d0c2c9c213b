//! Mistakes that tests make on purpose, to see that they would be found: with the feature `faults`, and none otherwise.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Who writes what others have read leaves its colour.
    KeptColour = 1,
    /// A copy that is not used any more counts as used.
    ForgottenUse,
    /// What is freed of another rank's stays there.
    ForgottenFree,
    /// What nobody receives from a channel is not dropped.
    ForgottenValue,
    /// A unit of a counted value is lost where many are drawn.
    LostUnit,
    /// The owners of a value keep a watcher when the value is gone.
    KeptWatcher,
    /// Homes are not told that what is read with others was given away.
    UnmarkedList,
    /// Nor that what comes with what it is tied to was.
    UnmarkedTies,
    /// A lock is not poisoned by a panic of who was to change its value.
    LostPoison,
    /// What was found to be seen by nobody is taken to be so for ever.
    EndlessPeriod,
    /// What owns objects, and is another rank's, is not dropped there.
    ForgottenDrop,
    /// Who is asked about slots whose colours are used up says that it has no copies from there, and keeps them.
    ConfirmedWithCopies,
}

#[cfg(feature = "faults")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Makes this mistake from now on, in this process, and no other.
#[cfg(feature = "faults")]
pub fn plant(fault: Fault) {
    PLANTED.store(fault as u8, std::sync::atomic::Ordering::Relaxed);
}

/// Whether this mistake is to be made.
#[cfg(feature = "faults")]
pub(crate) fn is_planted(fault: Fault) -> bool {
    PLANTED.load(std::sync::atomic::Ordering::Relaxed) == fault as u8
}

/// Never.
#[cfg(not(feature = "faults"))]
#[inline(always)]
pub(crate) const fn is_planted(_: Fault) -> bool {
    false
}
