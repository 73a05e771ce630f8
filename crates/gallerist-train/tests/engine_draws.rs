//! Random numbers that parts of a program draw from the engine's generator. There is one in a process: this file has one test.

#[path = "common/own.rs"]
mod own;

use std::sync::atomic::AtomicBool;

use burn::module::Module;
use burn::nn::{Dropout, DropoutConfig, Linear, LinearConfig};
use burn::tensor::{Device, Distribution, Tensor};
use gallerist_data::ImageSet;
use gallerist_loss::{AnyLoss, LossConfig, LossShape, LossSpec};
use gallerist_nn::{AnyEmbedder, Embedder, Head, NetworkSpec, Setting};
use gallerist_train::checkpoint::Checkpoint;
use gallerist_train::{LossTerms, TrainerBuilder};
use gallerist_util::registry::Named;
use own::{StopAfter, config, images};
use serde::{Deserialize, Serialize};

/// A network of Burn's layers, which draw their weights on first use, with dropout.
#[derive(Module, Debug)]
struct Dropping {
    hidden: Linear,
    dropout: Dropout,
    head: Linear,
}

impl Embedder for Dropping {
    fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        let hidden = self.hidden.forward(images.flatten(1, 3)).tanh();
        vec![self.head.forward(self.dropout.forward(hidden))]
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
struct DroppingConfig {}

impl Named for DroppingConfig {
    const NAME: &'static str = "dropping";
}

impl NetworkSpec for DroppingConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::only(4)]
    }

    fn build(&self, Setting { input, device, .. }: Setting<'_>) -> gallerist_nn::Result<AnyEmbedder> {
        let hidden = LinearConfig::new(input.channels * input.height * input.width, 6).init(device);
        let head = LinearConfig::new(6, 4).init(device);
        Ok(Dropping { hidden, dropout: DropoutConfig::new(0.5).init(), head }.boxed())
    }
}

/// A loss that draws random numbers when it is built.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
struct DrawingConfig {
    draws: usize,
}

impl Named for DrawingConfig {
    const NAME: &'static str = "drawing";
}

impl LossSpec for DrawingConfig {
    fn build(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        for _ in 0..self.draws {
            Tensor::<1>::random([7], Distribution::Default, device).into_data();
        }
        LossConfig::default().init(shape, seed, device)
    }
}

#[test]
fn draws_of_the_engine_depend_on_seed_and_step_alone() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    images(&data);
    let never = AtomicBool::new(false);
    let parts = |draws: usize| {
        let mut config = config(&data, "");
        config.network = DroppingConfig {}.into();
        config.loss = LossTerms(vec![LossConfig::from(DrawingConfig { draws }).into()]);
        let (train, validation) = ImageSet::open(&data).unwrap().split_classes(0.25, 0).unwrap();
        TrainerBuilder::new(&config).images(train, Some(validation))
    };
    let tensors = |name: &str| {
        Checkpoint::load(&folder.path().join(name).join("checkpoints/last.safetensors")).unwrap().network
    };

    parts(0).start(&folder.path().join("none")).unwrap();
    parts(3).start(&folder.path().join("three")).unwrap();
    assert_eq!(tensors("none"), tensors("three"), "first weights");

    let whole = folder.path().join("whole");
    parts(0).start(&whole).unwrap().run(&mut (), &never).unwrap();
    let halved = folder.path().join("halved");
    let stop = AtomicBool::new(false);
    parts(0).start(&halved).unwrap().run(&mut StopAfter(3, &stop), &stop).unwrap();
    parts(0).resume(&halved).unwrap().run(&mut (), &never).unwrap();
    assert_eq!(tensors("whole"), tensors("halved"), "after a resume");
}
