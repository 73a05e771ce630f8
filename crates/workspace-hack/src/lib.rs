//! One set of features for the crates that the tensor engine depends on. This crate has no code.
//!
//! Cargo compiles a crate once for every set of features that the selected packages ask for. Without this crate,
//! `cargo test -p gallerist-loss` would compile the tensor engine, minutes of CPU time, a second time, because another
//! member asks one of its dependencies for one more feature. The manifest of this crate names the union of these features.
//! `gallerist-kernels`, on which every other member with the engine depends, depends on this crate, so that all selections
//! share one engine.
//!
//! This is the method of [cargo-hakari](https://docs.rs/cargo-hakari). The manifest is kept by hand, because the members
//! that do not need the engine must not depend on this crate: they build without the crates that it names.
//! `cargo xtask check features` reports a feature that is missing.
