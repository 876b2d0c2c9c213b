//! Entry points for fuzz targets: the readers of settings and of locks' messages, on arbitrary bytes. They
//! panic if a reader does, or if the decoded value does not round-trip. They panic if a reader does, or if
//! what it has made of the bytes is not what it is again when it was written and read once more. Part of no
//! build but tests and fuzzing (`fuzz/README.md`); no interface.

pub use crate::config::fuzzing::settings;
pub use crate::lock::fuzzing::locks;
