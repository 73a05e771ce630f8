//! A program with a loss, a network, an image source and a metric of its own, and all commands of `gallerist`.

use gallerist::burn;
use gallerist::burn::module::Module;
use gallerist::burn::nn::{Linear, LinearConfig};
use gallerist::burn::tensor::{Device, Tensor, TensorData, activation::tanh};
use gallerist::data::{AddressedSource, Error, Image};
use gallerist::loss::{AnyLoss, Lists, LossShape, PairLoss, Queries};
use gallerist::prelude::*;
use gallerist::retrieval::eval::{RankMetric, RelevantRanks};
use serde::{Deserialize, Serialize};

/// A linear network with one hidden layer.
#[derive(Module, Debug)]
struct Perceptron {
    hidden: Linear,
    head: Linear,
}

impl Embedder for Perceptron {
    fn forward(&self, images: Tensor<4>) -> Vec<Tensor<2>> {
        vec![self.head.forward(tanh(self.hidden.forward(images.flatten(1, 3))))]
    }
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct PerceptronConfig {
    hidden: usize,
    dimensions: usize,
}

impl Default for PerceptronConfig {
    fn default() -> Self {
        PerceptronConfig { hidden: 32, dimensions: 8 }
    }
}

impl Named for PerceptronConfig {
    const NAME: &'static str = "perceptron";
}

impl NetworkSpec for PerceptronConfig {
    fn heads(&self) -> Vec<Head> {
        vec![Head::only(self.dimensions)]
    }

    fn build(&self, setting: Setting<'_>) -> gallerist::network::Result<AnyEmbedder> {
        let (input, device) = (setting.input, setting.device);
        device.seed(setting.seed);
        let hidden = LinearConfig::new(input.channels * input.height * input.width, self.hidden).init(device);
        let head = LinearConfig::new(self.hidden, self.dimensions).init(device);
        Ok(Perceptron { hidden, head }.boxed())
    }
}

/// The mean distance of positive pairs minus that of negative pairs.
#[derive(Module, Debug)]
struct Contrast {
    #[module(skip)]
    config: ContrastConfig,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct ContrastConfig {
    push: f64,
}

impl Default for ContrastConfig {
    fn default() -> Self {
        ContrastConfig { push: 1.0 }
    }
}

impl Named for ContrastConfig {
    const NAME: &'static str = "contrast";
}

impl LossSpec for ContrastConfig {
    fn build(&self, _shape: LossShape, _seed: u64, _device: &Device) -> AnyLoss {
        Contrast { config: self.clone() }.boxed()
    }
}

impl PairLoss for Contrast {
    fn forward_lists(&self, lists: &Lists<'_>, _progress: Progress) -> LossOutput {
        let [n, m] = lists.dims();
        let sign = |at: usize| match (at / m, at % m) {
            (i, j) if i == j => 0.0,
            (i, j) if lists.related(i, j) => 1.0,
            _ => -self.config.push as f32,
        };
        let signs = TensorData::new((0..n * m).map(sign).collect::<Vec<f32>>(), [n, m]);
        let signs = Tensor::<2>::from_data(signs, &lists.embeddings().device());
        LossOutput { value: (lists.distances() * signs).mean(), queries: Queries::default() }
    }
}

/// `stripes://N`: N classes of ten images; the class is the distance of the stripes.
struct Stripes {
    address: String,
    classes: usize,
}

impl AddressedSource for Stripes {
    const SCHEME: &'static str = "stripes";

    fn open(rest: &str) -> Result<Self, Error> {
        let address = format!("stripes://{rest}");
        match rest.parse() {
            Ok(classes) => Ok(Stripes { address, classes }),
            Err(_) => Err(Error::Source {
                name: address,
                problem: "its number of classes is no number".into(),
                hint: Some("write it as `stripes://8`".into()),
            }),
        }
    }
}

impl ImageSource for Stripes {
    fn name(&self) -> &str {
        &self.address
    }

    fn list(&mut self) -> Result<ImageListing, Error> {
        let record = |i| {
            ImageRecord::new(format!("{}/{}", i / 10, i % 10)).with_label(format!("every {}", i / 10 + 2))
        };
        Ok((0..10 * self.classes).map(record).collect::<Vec<_>>().into())
    }

    fn read(&self, number: usize, _path: &str) -> Result<ImageContent, Error> {
        let (distance, shift) = (number / 10 + 2, number % 10);
        let pixel = |at: usize| if (at % 16 + shift) % distance == 0 { 200 } else { 40 };
        Ok(ImageContent::Decoded(Image::new(16, 16, 1, (0..16 * 16).map(pixel).collect())))
    }
}

/// The rank of the last relevant item, as a share of the best possible one.
struct LastRank;

impl RankMetric for LastRank {
    fn name(&self) -> &'static str {
        "last_rank"
    }

    fn value(&self, ranks: &RelevantRanks<'_>, _k: Option<usize>) -> f64 {
        ranks.iter().last().map_or(0.0, |rank| ranks.relevant() as f64 / f64::from(rank))
    }
}

fn main() -> std::process::ExitCode {
    let registry =
        Registry::default().loss::<ContrastConfig>().network::<PerceptronConfig>().source::<Stripes>().metric(&LastRank);
    gallerist::cli::run(&registry)
}
