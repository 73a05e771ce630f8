//! A training loop by hand: images, sampler, network, loss and one of Burn's optimisers, without a run directory.
//!
//! ```text
//! cargo run --release --example own_loop -- PHOTOS
//! ```

use std::error::Error;
use std::path::Path;
use std::sync::Arc;

use gallerist::burn::module::Module;
use gallerist::burn::optim::{AdamConfig, GradientsParams};
use gallerist::burn::tensor::{Device, Tensor, TensorData};
use gallerist::data::{AugmentConfig, ClassesImagesConfig};
use gallerist::loss::RllConfig;
use gallerist::network::ConvBlocksConfig;
use gallerist::pairwise::l2_normalize;
use gallerist::prelude::*;

/// Returns the loss of the first step and of the last one.
pub fn run(photos: &Path, steps: usize) -> Result<(f32, f32), Box<dyn Error>> {
    let device = Device::flex().autodiff();
    let images = Arc::new(ImageSet::open(photos)?);
    let sampler = ClassesImagesConfig { classes_per_batch: 4, images_per_class: 3, ..Default::default() };
    let sampler = SamplerConfig::from(sampler).build(&images)?;
    let transform = Transform::training(&ImageConfig::new(16, 3), &AugmentConfig::default())?;
    let store = Arc::new(ImageStore::new(images, transform, 1 << 28));

    let input = InputShape { channels: 3, height: 16, width: 16 };
    let network = ConvBlocksConfig { channels: vec![16, 16], dimensions: 16, ..Default::default() };
    let mut network = NetworkConfig::from(network).init(input, 1, &device)?;
    let loss = RllConfig::simpler().init();
    let mut optimizer = AdamConfig::new().init();

    // One epoch after the other; the loader decodes ahead.
    let plans = (0..).flat_map(move |epoch| BatchPlan::epoch(epoch, sampler.epoch(1, epoch)));
    let mut values = Vec::new();
    for batch in Loader::new(store, plans, LoaderOptions::training(1, 2))?.take(steps) {
        let batch = batch?;
        let (shape, labels) = (batch.shape(), batch.labels);
        let pixels = Tensor::<4>::from_data(TensorData::new(batch.images, shape), &device);
        let embeddings = l2_normalize(network.forward(pixels).remove(0));
        let output = loss.forward(embeddings, Labels::Classes(&labels), Progress::default());
        let gradients = GradientsParams::from_grads(output.value.backward(), &network);
        network = optimizer.step(1e-3, network, gradients);
        values.push(output.value.into_scalar::<f32>());
    }
    println!("{} parameters; loss {:?}", network.num_params(), values);
    Ok((values[0], values[values.len() - 1]))
}

fn main() -> Result<(), Box<dyn Error>> {
    let photos = std::env::args_os().nth(1).ok_or("usage: own_loop PHOTOS")?;
    run(Path::new(&photos), 200)?;
    Ok(())
}
