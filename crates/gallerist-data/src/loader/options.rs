//! How a loader works.

/// How an image is treated that cannot be read or decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnBroken {
    /// Another image of its class takes its place, the same in every run; the
    /// broken one is reported once per [`ImageStore`](crate::ImageStore). Batches keep their size.
    /// If the whole class is broken, the loader ends with
    /// [`Error::BrokenClass`](crate::Error::BrokenClass).
    Replace,
    /// It is left out of its batch and reported, every time.
    Exclude,
    /// The loader ends with its error.
    Fail,
}

/// How a [`Loader`](crate::Loader) works.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoaderOptions {
    /// Worker threads, at least 1.
    pub threads: usize,
    /// Batches in preparation or waiting for the consumer, at least 1. This bounds the
    /// memory.
    pub prefetch: usize,
    /// How broken images are treated.
    pub on_broken: OnBroken,
    /// Seed of the random changes and replacements.
    pub seed: u64,
    /// This process, from 0, of the [`ranks`](Self::ranks) that share a plan.
    pub rank: usize,
    /// Processes that share a plan: of every batch, each loads the part that
    /// [`part`](gallerist_collective::part) gives it. Random changes and replacements of an image
    /// are those of the whole batch. 1: all of it.
    pub ranks: usize,
}

impl LoaderOptions {
    /// Broken images are replaced; twice as many batches ahead as threads.
    pub fn training(seed: u64, threads: usize) -> LoaderOptions {
        let prefetch = 2 * threads.max(1);
        LoaderOptions { threads, prefetch, on_broken: OnBroken::Replace, seed, rank: 0, ranks: 1 }
    }

    /// Broken images are left out and reported.
    pub fn evaluation(threads: usize) -> LoaderOptions {
        LoaderOptions { on_broken: OnBroken::Exclude, ..LoaderOptions::training(0, threads) }
    }

    /// With `strict`, the loader ends with the error of the first broken image.
    #[must_use]
    pub fn strict(self, strict: bool) -> LoaderOptions {
        let on_broken = if strict { OnBroken::Fail } else { self.on_broken };
        LoaderOptions { on_broken, ..self }
    }
}
