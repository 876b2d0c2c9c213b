//! The services of libraries whose safety depends on segments of theirs.

/// What a service belongs to. Services of programs read and write the segments of programs alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Library {
    is_owner: bool,
}

impl Library {
    /// A service of a program.
    pub const NONE: Self = Self { is_owner: false };

    /// A service of the library that has attached segments of its own
    /// ([`Policy::owned`](crate::partition::Policy::owned)): it may read and write them.
    ///
    /// ```compile_fail,E0133
    /// const MINE: vgas_cache::service::Library = vgas_cache::service::Library::owner();
    /// ```
    ///
    /// # Safety
    /// The service is that library's, and writes only what it means to be there.
    pub const unsafe fn owner() -> Self {
        Self { is_owner: true }
    }

    /// Whether it owns segments.
    pub(crate) const fn is_owner(self) -> bool {
        self.is_owner
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::number_of;

    /// Goal: no name that a program gives its service makes it that of a library.
    #[test]
    fn programs_do_not_name_the_services_of_libraries() {
        // SAFETY: nothing is called.
        let library = unsafe { Library::owner() };
        for name in ["objects.heap", "objects.locks", "", "a", "b", "zz"] {
            let [of_library, of_program] = [library, Library::NONE].map(|library| number_of(name, library));
            assert!(of_library > u32::MAX / 2 && of_program <= u32::MAX / 2, "{name}");
        }
    }
}
