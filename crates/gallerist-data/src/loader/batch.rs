//! Batches: planned and finished.

use std::time::Duration;

use crate::error::Broken;

/// One batch to be made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchPlan {
    /// The epoch; with the position it fixes the random changes of an image.
    pub epoch: u64,
    /// Position of the batch's first image within the epoch.
    pub first: u64,
    /// Indices of images.
    pub items: Vec<u32>,
}

impl BatchPlan {
    /// The batches of one epoch, as a sampler forms them.
    ///
    /// A run that resumes in the middle of an epoch skips the batches it has
    /// used; the others are the same as without the interruption.
    pub fn epoch(epoch: u64, batches: Vec<Vec<u32>>) -> impl Iterator<Item = BatchPlan> + Send {
        let mut next = 0;
        batches.into_iter().map(move |items| {
            let first = next;
            next += items.len() as u64;
            BatchPlan { epoch, first, items }
        })
    }

    /// All images of a set in their order, in blocks of `size`; the last may be shorter.
    ///
    /// # Panics
    ///
    /// If `size` is 0.
    pub fn in_order(images: usize, size: usize) -> impl Iterator<Item = BatchPlan> + Send {
        assert!(size > 0, "blocks of 0 images");
        (0..images).step_by(size).map(move |first| BatchPlan {
            epoch: 0,
            first: first as u64,
            items: (first as u32..images.min(first + size) as u32).collect(),
        })
    }
}

/// A batch, ready for the network.
#[derive(Clone, Debug)]
pub struct Batch {
    /// Position in the plan, from 0.
    pub index: u64,
    /// Its epoch.
    pub epoch: u64,
    /// Tensors `[n, views, c, h, w]`.
    pub images: Vec<f32>,
    /// Tensors of each image, see [`Transform::views`](crate::Transform::views); 1 in training.
    pub views: usize,
    /// Channels, height and width.
    pub image_shape: [usize; 3],
    /// The image in each of the `n` places, replacements included.
    pub items: Vec<u32>,
    /// The class of each; empty for a set without labels.
    pub labels: Vec<u32>,
    /// Broken images found, see [`OnBroken`](crate::OnBroken). Their order is that of the plan.
    pub broken: Vec<Broken>,
    /// Places where a broken image was replaced.
    pub replaced: usize,
    /// How long the consumer waited for this batch.
    pub waited: Duration,
}

impl Batch {
    /// Number of images.
    pub fn len(&self) -> usize {
        self.items.len()
    }

    /// True when every image of the plan was broken and excluded.
    pub fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// `[n * views, c, h, w]`.
    pub fn shape(&self) -> [usize; 4] {
        let [c, h, w] = self.image_shape;
        [self.len() * self.views, c, h, w]
    }
}
