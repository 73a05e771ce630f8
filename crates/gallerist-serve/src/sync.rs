//! The primitives of the server's concurrent code. Compiled with `--cfg shuttle` a model controls them
//! ([`gallerist_util::sync`]); tokio's semaphore and channel are then the real ones, which take one step at a time there.

#[cfg(not(shuttle))]
pub(crate) use tokio::task::spawn_blocking;

#[cfg(shuttle)]
pub(crate) use modelled::spawn_blocking;

#[cfg(shuttle)]
mod modelled {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use gallerist_util::sync::thread;
    use tokio::sync::oneshot;

    /// Like tokio's: the work starts at once, and continues if the future is dropped.
    pub(crate) fn spawn_blocking<T: Send + 'static>(
        work: impl FnOnce() -> T + Send + 'static,
    ) -> impl Future<Output = Result<T, ()>> + Send {
        let (send, receive) = oneshot::channel();
        thread::spawn(move || {
            let made = catch_unwind(AssertUnwindSafe(work)).map_err(drop);
            thread::yield_now();
            drop(send.send(made));
        });
        async { receive.await.expect("the work sends its result") }
    }
}
