//! What files of other programs tell of the network and its images.

use std::path::Path;

use crate::preprocessing::Preprocessing;

/// What a file tells of its network.
#[derive(Clone, Debug)]
pub(crate) struct Described {
    /// The program whose names its tensors have.
    pub(crate) whose: &'static str,
    /// The keys of `[network]` whose values differ from the defaults.
    pub(crate) network: toml::Table,
    /// The preparation of its images.
    pub(crate) images: Preprocessing,
}

/// Mean and standard deviation of torchvision's images.
pub(crate) const IMAGENET: ([f32; 3], [f32; 3]) = ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225]);
/// Images from -1 to 1.
pub(crate) const HALF: ([f32; 3], [f32; 3]) = ([0.5; 3], [0.5; 3]);

/// Colour images with the mean and standard deviation that the files in the folder of a model name.
pub(crate) fn preprocessing_beside(model: &Path, side: usize) -> Option<Preprocessing> {
    let (mean, std) = Beside::read(model).statistics?;
    Some(Preprocessing { mean, std, ..Preprocessing::rgb(side) })
}

/// Settings from the `config.json` and the `preprocessor_config.json` in the folder of the weights.
#[derive(Default)]
pub(crate) struct Beside {
    /// Mean and standard deviation.
    pub(crate) statistics: Option<(Vec<f32>, Vec<f32>)>,
    /// The activation in the MLPs.
    pub(crate) activation: Option<&'static str>,
    /// timm's name of the network.
    pub(crate) architecture: Option<String>,
}

impl Beside {
    pub(crate) fn read(weights: &Path) -> Self {
        let read = |name: &str| -> Option<serde_json::Value> {
            let path = weights.parent()?.join(name);
            serde_json::from_str(&gallerist_retrieval::file::read_regular_to_string(&path).ok()?).ok()
        };
        let (config, processor) = (read("config.json"), read("preprocessor_config.json"));
        let timm = config.as_ref().and_then(|config| config.get("pretrained_cfg"));
        let three = |of: &serde_json::Value, key: &str| -> Option<Vec<f32>> {
            let values: Vec<f32> =
                of.get(key)?.as_array()?.iter().filter_map(|v| Some(v.as_f64()? as f32)).collect();
            (values.len() == 3 && values.iter().all(|v| v.is_finite())).then_some(values)
        };
        let of = |of: Option<&serde_json::Value>, mean: &str, std: &str| {
            Some((three(of?, mean)?, three(of?, std)?))
        };
        let statistics =
            of(timm, "mean", "std").or_else(|| of(processor.as_ref(), "image_mean", "image_std"));
        let config = config.as_ref();
        let hidden = config
            .map(|config| config.get("vision_config").unwrap_or(config))
            .and_then(|config| config.get("hidden_act")?.as_str());
        let architecture = config.and_then(|config| config.get("architecture")?.as_str());
        let activation = match (hidden, architecture) {
            (Some("quick_gelu"), _) => Some("quick_gelu"),
            (Some("gelu_pytorch_tanh" | "gelu_new"), _) => Some("gelu_tanh"),
            (Some("gelu"), _) => Some("gelu"),
            (_, Some(name)) if name.contains("quickgelu") => Some("quick_gelu"),
            _ => None,
        };
        Beside { statistics, activation, architecture: architecture.map(str::to_owned) }
    }

    /// Colour images with the mean and standard deviation of these settings, or else these.
    pub(crate) fn images(&self, side: usize, (mean, std): ([f32; 3], [f32; 3])) -> Preprocessing {
        let (mean, std) = self.statistics.clone().unwrap_or((mean.to_vec(), std.to_vec()));
        Preprocessing { mean, std, ..Preprocessing::rgb(side) }
    }
}
