//! Batches in preparation, cut into one part per thread.

use std::ops::Range;
use std::sync::Arc;

use gallerist_collective::part;

use super::batch::BatchPlan;
use super::options::LoaderOptions;
use crate::canvas::{self, Piece};
use crate::error::{Broken, Error};

/// A batch in preparation.
pub(super) struct Slot {
    pub(super) index: u64,
    pub(super) plan: Arc<BatchPlan>,
    /// Places of the batch that this process loads.
    places: Range<usize>,
    /// First of these places that no worker has taken.
    pub(super) untaken: usize,
    /// Where the parts' images go, until a worker takes it.
    pub(super) pieces: Vec<Option<Piece>>,
    /// Finished parts in the order of the batch; `None` while in preparation.
    pub(super) parts: Vec<Option<Result<Part, Error>>>,
    pub(super) missing: usize,
}

/// A run of places of one batch.
pub(super) struct Part {
    /// The images of `items`, then unused values in place of those that were left out.
    pub(super) images: Piece,
    pub(super) items: Vec<u32>,
    pub(super) broken: Vec<Broken>,
    pub(super) replaced: usize,
}

/// What a worker makes: the images at some places of a batch.
pub(super) struct Task {
    pub(super) index: u64,
    pub(super) part: usize,
    pub(super) places: Range<usize>,
    pub(super) plan: Arc<BatchPlan>,
    pub(super) images: Piece,
}

impl Slot {
    pub(super) fn new(index: u64, plan: BatchPlan, options: &LoaderOptions, image_length: usize) -> Slot {
        let places = part(plan.items.len(), options.rank, options.ranks);
        let (total, size) = (places.len(), part_size(places.len(), options.threads));
        let lengths = (0..total).step_by(size).map(|start| size.min(total - start) * image_length);
        let pieces: Vec<_> = canvas::cut(lengths).into_iter().map(Some).collect();
        Slot {
            index,
            plan: Arc::new(plan),
            untaken: places.start,
            places,
            parts: pieces.iter().map(|_| None).collect(),
            missing: pieces.len(),
            pieces,
        }
    }

    pub(super) fn failed(index: u64, message: String) -> Slot {
        let plan = BatchPlan { epoch: 0, first: 0, items: Vec::new() };
        let parts = vec![Some(Err(Error::Panic { batch: index, message }))];
        Slot { index, plan: Arc::new(plan), places: 0..0, untaken: 0, pieces: Vec::new(), parts, missing: 0 }
    }

    /// Whether there are places that no worker has taken.
    pub(super) fn has_work(&self) -> bool {
        self.untaken < self.places.end
    }

    pub(super) fn take(&mut self, threads: usize) -> Task {
        let start = self.untaken;
        let size = part_size(self.places.len(), threads);
        self.untaken = self.places.end.min(start + size);
        let part = (start - self.places.start) / size;
        Task {
            index: self.index,
            part,
            places: start..self.untaken,
            plan: self.plan.clone(),
            images: self.pieces[part].take().expect("a part is taken once"),
        }
    }
}

/// Places in one task: a batch is cut into one part per thread, so that the
/// first batch comes as fast as all threads can make it.
fn part_size(items: usize, threads: usize) -> usize {
    items.div_ceil(threads).max(1)
}
