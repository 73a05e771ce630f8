//! The list of losses, and what a run file's `[loss]` can ask of one.

use burn::tensor::Device;
use gallerist_retrieval::search::Metric;

use crate::angular::AngularConfig;
use crate::arc_face::ArcFaceConfig;
use crate::circle::CircleConfig;
use crate::contrastive::ContrastiveConfig;
use crate::cos_face::CosFaceConfig;
use crate::fast_ap::FastApConfig;
use crate::hist::HistConfig;
use crate::histogram::HistogramConfig;
use crate::hyperbolic::HyperbolicConfig;
use crate::ice::IceConfig;
use crate::lifted::LiftedConfig;
use crate::margin::MarginConfig;
use crate::multi_similarity::MultiSimilarityConfig;
use crate::n_pair::NPairConfig;
use crate::norm_softmax::NormSoftmaxConfig;
use crate::nra::NraConfig;
use crate::potential_field::PotentialFieldConfig;
use crate::proxy_anchor::ProxyAnchorConfig;
use crate::proxy_nca::ProxyNcaConfig;
use crate::ranking::AnyLoss;
use crate::recall_at_k::RecallAtKConfig;
use crate::rll::RllConfig;
use crate::roadmap::RoadmapConfig;
use crate::smooth_ap::SmoothApConfig;
use crate::soft_triple::SoftTripleConfig;
use crate::softmax::SoftmaxConfig;
use crate::spec::{LossShape, LossSpec};
use crate::spectral_clust::SpectralClustConfig;
use crate::srt::SrtConfig;
use crate::struct_clust::StructClustConfig;
use crate::sup_con::SupConConfig;
use crate::triplet_adaptive::TripletAdaptiveConfig;
use crate::triplet_all::TripletAllConfig;
use crate::triplet_batch_hard::TripletBatchHardConfig;
use crate::triplet_hard_negative::TripletHardNegativeConfig;
use crate::triplet_semihard::TripletSemihardConfig;
use crate::{Error, Result};

gallerist_util::kind! {
    /// `[loss]` of a run file: any configuration that implements [`LossSpec`].
    pub struct LossConfig(dyn LossSpec), tag = "name", default = RllConfig;
    RllConfig,
    ProxyNcaConfig,
    SoftmaxConfig,
    NormSoftmaxConfig,
    SoftTripleConfig,
    ProxyAnchorConfig,
    ArcFaceConfig,
    CosFaceConfig,
    SupConConfig,
    SmoothApConfig,
    RecallAtKConfig,
    RoadmapConfig,
    PotentialFieldConfig,
    HyperbolicConfig,
    HistConfig,
    StructClustConfig,
    SpectralClustConfig,
    NraConfig,
    SrtConfig,
    IceConfig,
    ContrastiveConfig,
    TripletAllConfig,
    TripletSemihardConfig,
    TripletBatchHardConfig,
    TripletHardNegativeConfig,
    TripletAdaptiveConfig,
    MultiSimilarityConfig,
    MarginConfig,
    NPairConfig,
    LiftedConfig,
    AngularConfig,
    HistogramConfig,
    FastApConfig,
    CircleConfig,
}

impl LossConfig {
    /// The loss; see [`LossSpec::build`].
    pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> AnyLoss {
        self.build(shape, seed, device)
    }

    /// How embeddings trained with this loss are compared, unless the run file sets `evaluation.metric`: by the cosine
    /// where they were scaled to length 1 before the loss (`normalized`), else by [`LossSpec::raw_metric`].
    pub fn metric(&self, normalized: bool) -> Metric {
        if normalized { Metric::Cosine } else { self.raw_metric() }
    }

    /// Refuses a loss that takes no cross-batch memory.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`], whose hint names the losses that take one.
    pub fn require_memory(&self) -> Result<()> {
        if self.takes_memory() {
            return Ok(());
        }
        Err(Error::Conflict {
            message: format!(
                "the loss `{}` compares no pairs across batches and takes no cross-batch memory",
                self.name()
            ),
            hint: format!("losses that take one: {}", LossConfig::with_memory().join(", ")),
        })
    }

    /// Refuses samples of several labels, if there are any, for a loss that needs one class per sample.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`], whose hint names the settings that take them.
    pub fn require_one_class(&self, has_label_sets: bool) -> Result<()> {
        match self.needs_one_class() {
            Some(hint) if has_label_sets => Err(Error::Conflict {
                message: format!(
                    "the loss `{}` needs one class per sample with these settings, and samples have several labels",
                    self.name()
                ),
                hint: hint.into(),
            }),
            _ => Ok(()),
        }
    }

    /// The losses that take a cross-batch memory, by their names in the run file.
    pub fn with_memory() -> Vec<&'static str> {
        names_where(|loss| loss.takes_memory())
    }

    /// The losses that take `[loss.miner]`: those that are sums over pairs or triplets which a miner can choose (see
    /// [`crate::miner`]).
    pub fn with_miner() -> Vec<&'static str> {
        names_where(|loss| loss.takes_miner())
    }

    /// The keys of `[loss]` as TOML.
    pub fn to_toml(&self) -> String {
        toml::to_string(self).expect("parameters are plain data")
    }

    /// The parameters as `key = value`, the name left out.
    pub fn parameters(&self) -> Vec<String> {
        crate::parameters::parameters(self)
    }
}

fn names_where(fits: impl Fn(&dyn LossSpec) -> bool) -> Vec<&'static str> {
    let defaults = LossConfig::all_defaults();
    defaults.iter().filter(|loss| fits(&***loss)).map(|loss| loss.name()).collect()
}
#[cfg(test)]
mod tests {
    use burn::module::Module;
    use burn::tensor::{Device, Distribution, Tensor};

    use super::*;
    use crate::{Labels, Progress};
    use gallerist_tensor::pairwise::host;

    fn losses() -> impl Iterator<Item = LossConfig> {
        LossConfig::all_defaults().into_iter()
    }

    #[test]
    fn a_loss_on_rows_that_are_not_normalised_declares_a_distance_or_does_not_depend_on_it() {
        let device = Device::flex();
        device.seed(3);
        let rows = Tensor::<2>::random([12, 4], Distribution::Default, &device);
        let classes = [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3];
        for config in losses().filter(|config| !config.normalized()) {
            let loss = config.init(LossShape { classes: 4, dimensions: 4 }, 1, &device);
            let value = |factor: f64| {
                let rows = rows.clone().mul_scalar(factor);
                host(&loss.forward(rows, Labels::Classes(&classes), Progress::default()).value)[0]
            };
            // The epsilon in a norm of `hist` counts among short rows.
            let short = if config.name() == "hist" { 10.0 } else { 1.0 };
            let depends = (value(10.0 * short) / value(short) - 1.0).abs() > 1e-3;
            // A classifier's weights learn the scale.
            let declares = config.initial_distance().is_some() || config.name() == "softmax";
            assert_eq!(declares, depends, "{}: {} and {}", config.name(), value(1.0), value(10.0));
        }
    }

    #[test]
    fn the_distance_of_srt_is_in_temperatures() {
        let config: LossConfig = toml::from_str("name = \"srt\"\ntemperature = 0.25").unwrap();
        assert_eq!(config.initial_distance(), Some(5.0));
    }

    #[test]
    fn sets_of_labels_are_refused_by_the_losses_that_need_one_class() {
        assert!(losses().all(|config| config.require_one_class(true).is_ok()));
        let config: LossConfig = toml::from_str("name = \"margin\"\nboundary = \"per_class\"").unwrap();
        config.require_one_class(false).unwrap();
        let error = config.require_one_class(true).unwrap_err();
        assert!(error.to_string().contains("the loss `margin` needs one class per sample"), "{error}");
        assert!(error.hint().unwrap().contains("boundary = \"learnt\""));
        // The others compute with sets.
        let device = Device::flex().autodiff();
        let rows = Tensor::<2>::random([4, 3], Distribution::Default, &device).require_grad();
        let sets = [vec![0, 1], vec![1, 2], vec![0], vec![2, 3]];
        let learnt = toml::from_str("name = \"margin\"\nboundary = \"learnt\"").unwrap();
        for config in losses().chain([learnt]) {
            let loss = config.init(LossShape { classes: 4, dimensions: 3 }, 1, &device);
            let output = loss.forward(rows.clone(), Labels::Sets(&sets), Progress::default());
            assert_eq!(output.value.dims(), [1], "{}", config.name());
        }
    }

    #[test]
    fn a_batch_of_no_rows_has_no_cost_of_rows() {
        let device = Device::flex().autodiff();
        for config in losses() {
            let loss = config.init(LossShape { classes: 4, dimensions: 3 }, 1, &device);
            let rows = Tensor::<2>::zeros([0, 3], &device).require_grad();
            let output = loss.forward(rows, Labels::Classes(&[]), Progress::default());
            assert_eq!(output.value.dims(), [1], "{}", config.name());
            assert!(output.value.is_tracked(), "{}", config.name());
            let value = output.value.clone().into_scalar::<f32>();
            // Proxies and centres may cost something without rows.
            let learns = loss.num_params() > 0;
            assert!(value == 0.0 || learns && value.is_finite(), "{}: {value}", config.name());
            output.value.backward();
        }
    }

    #[test]
    fn a_scale_parameter_is_one_of_the_losses_parameters() {
        for config in losses() {
            let parameters = config.parameters();
            let known =
                |key: &str| parameters.iter().any(|parameter| parameter.starts_with(&format!("{key} =")));
            assert!(config.scale_parameter().is_none_or(known), "{}: {parameters:?}", config.name());
        }
    }
}
