//! Mistakes that tests make on purpose, to see that they would be found: with the feature `faults`, and none otherwise.

/// A mistake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// A writer keeps the colour that other ranks have read.
    KeptColour = 1,
    /// A copy that is not used any more counts as used.
    ForgottenUse,
    /// A remote object that is freed stays there.
    ForgottenFree,
    /// A value in a closed channel is not dropped.
    ForgottenValue,
    /// A unit of a counted value is lost where many are drawn.
    LostUnit,
    /// The owners of a value keep a watcher when the value is gone.
    KeptWatcher,
    /// Homes are not told that objects read with others were given away.
    UnmarkedList,
    /// Nor that tied objects were.
    UnmarkedTies,
    /// A lock is not poisoned by a panic of its writer.
    LostPoison,
    /// An object once found unserved is taken to be so for ever.
    EndlessPeriod,
    /// A remote value that owns objects is not dropped there.
    ForgottenDrop,
    /// A rank asked about retired slots says that it has no copies from there, and keeps them.
    ConfirmedWithCopies,
}

#[cfg(feature = "faults")]
static PLANTED: std::sync::atomic::AtomicU8 = std::sync::atomic::AtomicU8::new(0);

/// Makes this mistake from now on, in this process, and no other.
#[cfg(feature = "faults")]
pub fn plant(fault: Fault) {
    PLANTED.store(fault as u8, std::sync::atomic::Ordering::Relaxed);
}

/// Returns true if this mistake is to be made.
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
