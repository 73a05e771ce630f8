//! The scale of the embeddings on which a loss learns.

use super::LossConfig;

impl LossConfig {
    /// The mean distance between two rows at which training begins well, for a loss that sees rows as the network
    /// gives them. A head that begins as LDA is scaled to it ([`crate::network::HeadInit::Lda`]).
    ///
    /// `None`: no distance is preferred. The head then begins with rows of a mean squared length of 1.
    pub fn initial_distance(&self) -> Option<f64> {
        match self {
            LossConfig::Srt(config) => Some(config.initial_distance()),
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
            LossConfig::ProxyNca(_) | LossConfig::ArcFace(_) | LossConfig::CosFace(_) | LossConfig::Ice(_) => {
                Some("scale")
            }
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
