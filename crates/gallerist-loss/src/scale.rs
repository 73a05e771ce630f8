//! The scale of the embeddings on which a loss learns.

use super::{LiftedConfig, LossConfig, NPairConfig, TripletAdaptiveConfig, TripletBatchHardConfig};

impl LossConfig {
    /// The mean distance between two rows at which training begins well, for a loss that sees rows as the network
    /// gives them. A head that begins as LDA is scaled to it ([`gallerist_nn::HeadInit::Lda`]).
    ///
    /// `None`: no distance is preferred. The head then begins with rows of a mean squared length of 1.
    pub fn initial_distance(&self) -> Option<f64> {
        match self {
            LossConfig::Srt(config) => Some(config.initial_distance()),
            LossConfig::TripletBatchHard(_) => Some(TripletBatchHardConfig::INITIAL_DISTANCE),
            LossConfig::TripletAdaptive(_) => Some(TripletAdaptiveConfig::INITIAL_DISTANCE),
            LossConfig::Lifted(_) => Some(LiftedConfig::INITIAL_DISTANCE),
            LossConfig::NPair(_) => Some(NPairConfig::INITIAL_DISTANCE),
            // NRA and Spectral Clust do not depend on the scale, and softmax learns weights of its own. The others
            // are for normalised rows.
            _ => None,
        }
    }

    /// The parameter that says which differences of distances or similarities the loss tells apart: a temperature,
    /// a scale or a margin. `None` where the loss has none.
    pub fn scale_parameter(&self) -> Option<&'static str> {
        match self {
            LossConfig::Rll(_) => Some("t_neg"),
            LossConfig::NormSoftmax(_)
            | LossConfig::SupCon(_)
            | LossConfig::SmoothAp(_)
            | LossConfig::Srt(_) => Some("temperature"),
            LossConfig::ProxyNca(_)
            | LossConfig::ArcFace(_)
            | LossConfig::CosFace(_)
            | LossConfig::Ice(_) => Some("scale"),
            LossConfig::ProxyAnchor(_) | LossConfig::Lifted(_) => Some("alpha"),
            LossConfig::SoftTriple(_) => Some("lambda"),
            LossConfig::MultiSimilarity(_) => Some("beta"),
            LossConfig::Circle(_) => Some("gamma"),
            LossConfig::TripletBatchHard(config) if config.soft => None,
            LossConfig::Contrastive(_)
            | LossConfig::Margin(_)
            | LossConfig::TripletAll(_)
            | LossConfig::TripletSemihard(_)
            | LossConfig::TripletBatchHard(_)
            | LossConfig::TripletHardNegative(_)
            | LossConfig::TripletAdaptive(_) => Some("margin"),
            LossConfig::Softmax(_)
            | LossConfig::StructClust(_)
            | LossConfig::SpectralClust(_)
            | LossConfig::Nra(_)
            | LossConfig::NPair(_)
            | LossConfig::Angular(_)
            | LossConfig::Histogram(_)
            | LossConfig::FastAp(_) => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use burn::tensor::{Device, Distribution, Tensor};

    use super::*;
    use crate::{Labels, LossShape, Progress, RankingLoss};
    use gallerist_tensor::pairwise::host;

    fn losses() -> impl Iterator<Item = LossConfig> {
        LossConfig::NAMES.iter().map(|name| toml::from_str(&format!("name = {name:?}")).unwrap())
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
            let depends = (value(10.0) / value(1.0) - 1.0).abs() > 1e-3;
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
    fn a_scale_parameter_is_one_of_the_losses_parameters() {
        for config in losses() {
            let parameters = config.parameters();
            let known =
                |key: &str| parameters.iter().any(|parameter| parameter.starts_with(&format!("{key} =")));
            assert!(config.scale_parameter().is_none_or(known), "{}: {parameters:?}", config.name());
        }
    }
}
