//! The locks and threads of code that is modelled.
//!
//! They are those of the standard library. Compiled with `--cfg shuttle` they are those of [shuttle], which runs a test under
//! many schedules of its threads, one thread at a time, and reports a deadlock or a failed assertion with the schedule that led
//! to it (`docs/reliability.md`, Concurrency). Code that is modelled takes them from here, other code from `std`.
//!
//! [shuttle]: https://docs.rs/shuttle

#[cfg(shuttle)]
pub use shuttle::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc,
    },
    thread,
};
#[cfg(not(shuttle))]
pub use std::{
    sync::{
        Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard, atomic, mpsc,
    },
    thread,
};
