//! Entry points for fuzz targets: the readers of settings and of locks' messages, on arbitrary bytes. They
//! panic if a reader does, or if the decoded value does not round-trip. Built only for tests and fuzzing
//! (`fuzz/README.md`); not a public interface.

pub use crate::config::fuzzing::settings;
pub use crate::lock::fuzzing::locks;
