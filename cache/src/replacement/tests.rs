//! The policies against naive models.
