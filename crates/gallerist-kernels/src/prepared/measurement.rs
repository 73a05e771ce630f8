//! Running a network to measure the ranges of its layers.

use rayon::prelude::*;

use super::plan::Plan;
use super::ranges::{Ranges, Values};

/// The values of a network's layers for some images: made by [`Builder::measure`](super::Builder::measure).
pub struct Measurement {
    /// All layers are outputs.
    plan: Plan,
    values: Vec<Values>,
}

impl Measurement {
    pub(super) fn new(plan: Plan) -> Self {
        let values = (0..plan.outputs()).map(|i| Values::new(plan.output(i)[2])).collect();
        Self { plan, values }
    }

    /// Adds the values of `count` images `[count, channels, height, width]`. All values of the network's layers are in memory
    /// at a time, those of about 4 images of 224 x 224 pixels and ResNet-50 in 200 MB.
    ///
    /// # Panics
    ///
    /// If there are not as many values as `count` images have.
    pub fn add(&mut self, images: &[f32], count: usize) {
        let outputs = self.plan.run(images, count, &vec![true; self.plan.outputs()]);
        self.values.par_iter_mut().zip(outputs.par_iter()).for_each(|(seen, values)| {
            values.iter().for_each(|values| seen.add(values));
        });
    }

    /// For each layer the range whose bytes have the smallest mean squared error. `None` if a layer has given NaN or infinity,
    /// or there were no images.
    pub fn finish(&self) -> Option<Ranges> {
        self.values.par_iter().map(Values::finish).collect::<Option<_>>().map(Ranges)
    }
}
