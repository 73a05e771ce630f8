//! Ranking losses: one file each, chosen by name in the run file's `[loss]`.
//!
//! A loss takes a batch of embeddings and its labels and returns a value that is connected to the
//! embeddings, so that `value.backward()` gives the gradient its paper defines. It also says what it saw:
//! per query its value and how many positives and negatives took part ([`Queries`]).
//!
//! Losses that compare samples with each other ([`PairLoss`]) can look at a memory of earlier batches,
//! too: [`RankingLoss::forward_against`].
//! The losses that are sums over pairs or triplets take a miner, which chooses the pairs they look at:
//! [`crate::miner`].
//!
//! To add a loss: one file with its configuration and its [`PairLoss`] (or [`RankingLoss`] where it compares
//! no pairs), one entry in `losses!`, its tests and its documentation.
//!
//! # Example: a loss in a training loop of one's own
//!
//! ```
//! use burn::tensor::{Device, Distribution, Tensor};
//! use gallerist_loss::{Labels, Progress, RankingLoss, RllConfig};
//! use gallerist_tensor::pairwise::l2_normalize;
//!
//! let device = Device::flex().autodiff();
//! let embeddings = Tensor::<2>::random([6, 8], Distribution::Default, &device).require_grad();
//!
//! let loss = RllConfig::simpler().init();
//! let output = loss.forward(l2_normalize(embeddings.clone()), Labels::Classes(&[0, 0, 1, 1, 2, 2]), Progress::default());
//! let gradient = embeddings.grad(&output.value.backward()).unwrap();
//! assert_eq!(gradient.dims(), [6, 8]);
//! ```

#![recursion_limit = "256"]

mod angular;
mod arc_face;
mod circle;
mod classify;
mod contrastive;
mod cos_face;
mod fast_ap;
mod histogram;
mod ice;
mod init;
mod lifted;
mod lists;
mod margin;
pub mod memory;
pub mod miner;
mod multi_similarity;
mod n_pair;
mod norm_softmax;
mod nra;
mod pairs;
mod parameters;
pub mod preset;
mod proxy_anchor;
mod proxy_nca;
mod rll;
mod rows;
mod scale;
mod smooth_ap;
mod soft_triple;
mod softmax;
mod spectral_clust;
mod srt;
mod struct_clust;
mod sup_con;
mod triplet_adaptive;
mod triplet_all;
mod triplet_batch_hard;
mod triplet_hard_negative;
mod triplet_semihard;

use burn::module::Module;
use burn::tensor::{Device, Tensor};
use gallerist_retrieval::search::Metric;
use serde::{Deserialize, Serialize};

pub use gallerist_tensor::{Error, Result};
pub use parameters::parameters;

pub use angular::{Angular, AngularConfig};
pub use arc_face::{ArcFace, ArcFaceConfig};
pub use circle::{Circle, CircleConfig};
pub use contrastive::{Contrastive, ContrastiveConfig};
pub use cos_face::{CosFace, CosFaceConfig};
pub use fast_ap::{FastAp, FastApConfig};
pub use histogram::{Histogram, HistogramConfig};
pub use ice::{Ice, IceConfig, IceGradient};
pub use lifted::{Lifted, LiftedConfig};
pub use lists::{Lists, Memory, PairLoss};
pub use margin::{Margin, MarginBoundary, MarginConfig};
pub use multi_similarity::{MultiSimilarity, MultiSimilarityConfig};
pub use n_pair::{NPair, NPairConfig};
pub use norm_softmax::{NormSoftmax, NormSoftmaxConfig};
pub use nra::{Nra, NraConfig};
pub(crate) use pairs::Pairs;
pub use proxy_anchor::{ProxyAnchor, ProxyAnchorConfig};
pub use proxy_nca::{ProxyNca, ProxyNcaConfig};
pub use rll::{QueryWeighting, Rll, RllConfig, RllForm};
pub use rows::on_general_path;
pub use smooth_ap::{SmoothAp, SmoothApConfig};
pub use soft_triple::{SoftTriple, SoftTripleConfig};
pub use softmax::{Softmax, SoftmaxConfig};
pub use spectral_clust::{SpectralClust, SpectralClustConfig, SpectralGradient};
pub use srt::{Srt, SrtConfig, SrtHardest};
pub use struct_clust::{StructClust, StructClustConfig};
pub use sup_con::{SupCon, SupConConfig, SupConForm};
pub use triplet_adaptive::{TripletAdaptive, TripletAdaptiveConfig};
pub use triplet_all::{TripletAll, TripletAllConfig};
pub use triplet_batch_hard::{TripletBatchHard, TripletBatchHardConfig};
pub use triplet_hard_negative::{TripletHardNegative, TripletHardNegativeConfig};
pub use triplet_semihard::{TripletSemihard, TripletSemihardConfig};

/// What a query's positives are: the other samples of its class, or those sharing a label.
#[derive(Clone, Copy, Debug)]
pub enum Labels<'a> {
    /// One class per sample.
    Classes(&'a [u32]),
    /// A set of labels per sample; two samples that share one are positives of each other.
    Sets(&'a [Vec<u32>]),
}

impl Labels<'_> {
    /// Number of samples.
    pub fn len(&self) -> usize {
        match self {
            Labels::Classes(classes) => classes.len(),
            Labels::Sets(sets) => sets.len(),
        }
    }

    /// Whether there is no sample.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Whether samples `i` and `j` belong together.
    pub fn related(&self, i: usize, j: usize) -> bool {
        lists::share_a_label(self.of(i), self.of(j))
    }
}

impl<'a> Labels<'a> {
    /// The labels of sample `i`.
    pub fn of(self, i: usize) -> &'a [u32] {
        match self {
            Labels::Classes(classes) => &classes[i..=i],
            Labels::Sets(sets) => &sets[i],
        }
    }
}

/// How far training has come; losses with a schedule read it.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// Steps done.
    pub step: usize,
    /// Steps in all.
    pub steps: usize,
}

impl Default for Progress {
    /// The first of one step.
    fn default() -> Self {
        Progress { step: 0, steps: 1 }
    }
}

/// What a loss saw, per query.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Queries {
    /// The loss of each query, before the mean over the batch.
    pub loss: Vec<f32>,
    /// Number of positives of each query, in batch and memory.
    pub positives: Vec<u32>,
    /// Number of negatives of each query.
    pub negatives: Vec<u32>,
    /// Positives that contribute to the gradient (non-trivial, "mined").
    pub mined_positives: Vec<u32>,
    /// Negatives that contribute to the gradient.
    pub mined_negatives: Vec<u32>,
    /// Terms of each query's loss, where the loss can have dead ones; else empty.
    pub terms: Vec<u32>,
    /// Terms that cost something and have no gradient ("dead"); empty where the loss has none.
    pub dead_terms: Vec<u32>,
    /// Something about the batch the user should be told once.
    pub note: Option<&'static str>,
}

impl Queries {
    /// Share of all positive pairs that are non-trivial; 0 where there is none.
    pub fn positive_share(&self) -> f32 {
        share(&self.mined_positives, &self.positives)
    }

    /// Share of all negative pairs that are non-trivial; 0 where there is none.
    pub fn negative_share(&self) -> f32 {
        share(&self.mined_negatives, &self.negatives)
    }

    /// Share of all terms that are dead; 0 where the loss has no such terms.
    pub fn dead_share(&self) -> f32 {
        share(&self.dead_terms, &self.terms)
    }
}

fn share(part: &[u32], all: &[u32]) -> f32 {
    let sum = |v: &[u32]| v.iter().map(|&x| x as u64).sum::<u64>() as f32;
    if sum(all) == 0.0 { 0.0 } else { sum(part) / sum(all) }
}

/// What a loss returns.
#[derive(Clone, Debug)]
pub struct LossOutput {
    /// The value, shape `[1]`, connected to the embeddings.
    pub value: Tensor<1>,
    /// What it saw.
    pub queries: Queries,
}

/// A loss over the ranked lists of a batch.
pub trait RankingLoss {
    /// The loss of a batch, connected to `embeddings`.
    ///
    /// # Shapes
    ///
    /// `embeddings` `[n, d]`, as the loss wants them (see [`LossConfig::normalized`]); `labels`
    /// of `n` samples.
    ///
    /// # Panics
    ///
    /// If `embeddings` and `labels` disagree about `n`.
    fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput;

    /// The loss of a batch whose ranked lists go on with a memory of earlier batches ([`Memory`]). Without
    /// one, or with an empty one, it is [`RankingLoss::forward`] to the last bit.
    ///
    /// # Panics
    ///
    /// As [`RankingLoss::forward`]; if the memory's dimensions are not the embeddings'; if there is a memory
    /// and the loss takes none ([`RankingLoss::takes_memory`]).
    fn forward_against(
        &self,
        embeddings: Tensor<2>,
        labels: Labels<'_>,
        memory: Option<Memory<'_>>,
        progress: Progress,
    ) -> LossOutput {
        assert!(memory.is_none(), "a memory for a loss that compares no pairs");
        self.forward(embeddings, labels, progress)
    }

    /// Whether the loss compares pairs, and so takes a memory.
    fn takes_memory() -> bool
    where
        Self: Sized,
    {
        false
    }
}

/// What the losses with learnt parameters need to know; the others ignore it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LossShape {
    /// Number of training classes; their labels are `0..classes`.
    pub classes: usize,
    /// Number of dimensions of an embedding.
    pub dimensions: usize,
}

/// Declares every loss once: what it is, its name in run files, whether its paper normalises the
/// embeddings first, by which metric rows are compared that it was trained on as the network gives them, and how the
/// loss is made from its configuration.
macro_rules! losses {
    ($($(#[$doc:meta])* $variant:ident($config:ty => $loss:ty), $name:literal, normalized: $normalized:literal, raw: $raw:ident, $init:expr;)*) => {
        /// `[loss]` of a run file.
        #[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
        #[serde(tag = "name")]
        pub enum LossConfig {
            $($(#[$doc])* #[serde(rename = $name)] $variant($config),)*
        }

        impl LossConfig {
            /// Every loss by its name in the run file.
            pub const NAMES: &[&str] = &[$($name),*];

            /// The loss, with its learnt parameters (if it has any) for `shape`, drawn from `seed`, on `device`.
            pub fn init(&self, shape: LossShape, seed: u64, device: &Device) -> Loss {
                match self {
                    $(LossConfig::$variant(config) => {
                        let init: fn(&$config, LossShape, u64, &Device) -> $loss = $init;
                        Loss::$variant(init(config, shape, seed, device))
                    })*
                }
            }

            /// Whether the paper normalises the embeddings before this loss.
            pub fn normalized(&self) -> bool {
                match self {
                    $(LossConfig::$variant(_) => $normalized,)*
                }
            }

            /// How embeddings trained with this loss are compared, unless the run file says otherwise
            /// (`evaluation.metric`).
            ///
            /// Rows that were scaled to length 1 before the loss (`normalized`) are compared by the cosine. Rows that
            /// were trained as the network gives them are compared by the Euclidean distance where the loss is made
            /// of distances, and by the cosine where it is made of inner products or where its paper scales the rows
            /// at test (NRA).
            pub fn metric(&self, normalized: bool) -> Metric {
                match self {
                    _ if normalized => Metric::Cosine,
                    $(LossConfig::$variant(_) => Metric::$raw,)*
                }
            }

            /// The name in the run file.
            pub fn name(&self) -> &'static str {
                match self {
                    $(LossConfig::$variant(_) => $name,)*
                }
            }

            /// Whether the loss compares pairs, and so takes a cross-batch memory.
            pub fn takes_memory(&self) -> bool {
                match self {
                    $(LossConfig::$variant(_) => <$loss>::takes_memory(),)*
                }
            }

            /// Refuses a loss that takes no cross-batch memory.
            ///
            /// # Errors
            ///
            /// [`crate::Error::Conflict`], whose hint names the losses that take one.
            pub fn require_memory(&self) -> crate::Result<()> {
                match self.takes_memory() {
                    true => Ok(()),
                    false => Err(crate::Error::Conflict {
                        message: format!(
                            "the loss `{}` compares no pairs across batches and takes no cross-batch memory",
                            self.name()
                        ),
                        hint: format!("losses that take one: {}", LossConfig::with_memory().join(", ")),
                    }),
                }
            }

            /// The losses that take a cross-batch memory, by their names in the run file.
            pub fn with_memory() -> Vec<&'static str> {
                let all = [$(($name, <$loss>::takes_memory())),*];
                all.into_iter().filter(|(_, takes)| *takes).map(|(name, _)| name).collect()
            }

            /// The losses that take `[loss.miner]`: those that are sums over pairs or triplets which a
            /// miner can choose (see [`crate::miner`]).
            pub const WITH_MINER: &[&str] = &[
                "contrastive",
                "triplet_all",
                "margin",
                "multi_similarity",
                "lifted",
                "circle",
                "angular",
                "sup_con",
            ];

            /// The keys of `[loss]` as TOML.
            pub fn to_toml(&self) -> String {
                toml::to_string(self).expect("parameters are plain data")
            }

            /// The parameters as `key = value`, the name left out.
            pub fn parameters(&self) -> Vec<String> {
                crate::parameters(self)
            }

            /// The parameters whose default follows from others or is "none": key and what it is then.
            pub fn derived_parameters(&self) -> Vec<(&'static str, &'static str)> {
                match self {
                    LossConfig::Rll(config) => config.derived_parameters(),
                    _ => Vec::new(),
                }
            }

            /// Checks the ranges of the parameters.
            pub fn validate(&self) -> crate::Result<()> {
                match self {
                    $(LossConfig::$variant(config) => config.validate(),)*
                }
            }
        }

        /// Any loss of this crate. A module, because some losses learn parameters of their own.
        #[derive(Module, Debug)]
        pub enum Loss {
            $($(#[$doc])* $variant($loss),)*
        }

        impl RankingLoss for Loss {
            fn forward(&self, embeddings: Tensor<2>, labels: Labels<'_>, progress: Progress) -> LossOutput {
                self.forward_against(embeddings, labels, None, progress)
            }

            fn forward_against(
                &self,
                embeddings: Tensor<2>,
                labels: Labels<'_>,
                memory: Option<Memory<'_>>,
                progress: Progress,
            ) -> LossOutput {
                let [n, _] = embeddings.dims();
                assert_eq!(n, labels.len(), "{n} embeddings and {} labels", labels.len());
                match self {
                    $(Loss::$variant(loss) => loss.forward_against(embeddings, labels, memory, progress),)*
                }
            }
        }
    };
}

losses! {
    /// Ranked list loss.
    Rll(RllConfig => Rll), "rll", normalized: true, raw: Euclidean, |c, _, _, _| c.init();
    /// Proxy-NCA.
    ProxyNca(ProxyNcaConfig => ProxyNca), "proxy_nca", normalized: true, raw: Euclidean, |c, shape, seed, device| c.init(shape, seed, device);
    /// Softmax: cross entropy of a linear classifier.
    Softmax(SoftmaxConfig => Softmax), "softmax", normalized: false, raw: Cosine, |c, shape, seed, device| c.init(shape, seed, device);
    /// SoftMax-norm: softmax with normalised weights and a temperature.
    NormSoftmax(NormSoftmaxConfig => NormSoftmax), "norm_softmax", normalized: true, raw: Cosine, |c, shape, seed, device| c.init(shape, seed, device);
    /// SoftTriple.
    SoftTriple(SoftTripleConfig => SoftTriple), "soft_triple", normalized: true, raw: Cosine, |c, shape, seed, device| c.init(shape, seed, device);
    /// Proxy-Anchor.
    ProxyAnchor(ProxyAnchorConfig => ProxyAnchor), "proxy_anchor", normalized: true, raw: Cosine, |c, shape, seed, device| c.init(shape, seed, device);
    /// ArcFace.
    ArcFace(ArcFaceConfig => ArcFace), "arc_face", normalized: true, raw: Cosine, |c, shape, seed, device| c.init(shape, seed, device);
    /// CosFace.
    CosFace(CosFaceConfig => CosFace), "cos_face", normalized: true, raw: Cosine, |c, shape, seed, device| c.init(shape, seed, device);
    /// Supervised contrastive loss and NT-Xent.
    SupCon(SupConConfig => SupCon), "sup_con", normalized: true, raw: Cosine, |c, _, _, _| c.init();
    /// Smooth-AP.
    SmoothAp(SmoothApConfig => SmoothAp), "smooth_ap", normalized: true, raw: Cosine, |c, _, _, _| c.init();
    /// Struct Clust: facility location.
    StructClust(StructClustConfig => StructClust), "struct_clust", normalized: true, raw: Euclidean, |c, _, _, _| c.init();
    /// Spectral Clust.
    SpectralClust(SpectralClustConfig => SpectralClust), "spectral_clust", normalized: false, raw: Cosine, |c, _, _, _| c.init();
    /// Nonlinear rank approximation.
    Nra(NraConfig => Nra), "nra", normalized: false, raw: Cosine, |c, _, _, _| c.init();
    /// Soft ranking threshold.
    Srt(SrtConfig => Srt), "srt", normalized: false, raw: Euclidean, |c, _, _, _| c.init();
    /// Instance cross entropy.
    Ice(IceConfig => Ice), "ice", normalized: true, raw: Cosine, |c, _, _, _| c.init();
    /// Contrastive loss.
    Contrastive(ContrastiveConfig => Contrastive), "contrastive", normalized: true, raw: Euclidean, |c, _, _, _| c.init();
    /// Triplet loss over all triplets.
    TripletAll(TripletAllConfig => TripletAll), "triplet_all", normalized: true, raw: Euclidean, |c, _, _, _| c.init();
    /// Triplet loss with semi-hard negatives.
    TripletSemihard(TripletSemihardConfig => TripletSemihard), "triplet_semihard", normalized: true, raw: Euclidean, |c, _, _, _| c.init();
    /// Batch-hard triplet loss.
    TripletBatchHard(TripletBatchHardConfig => TripletBatchHard), "triplet_batch_hard", normalized: false, raw: Euclidean, |c, _, _, _| c.init();
    /// Triplet loss with the hardest negative.
    TripletHardNegative(TripletHardNegativeConfig => TripletHardNegative), "triplet_hard_negative", normalized: true, raw: Euclidean, |c, _, _, _| c.init();
    /// Adaptively weighted triplet loss.
    TripletAdaptive(TripletAdaptiveConfig => TripletAdaptive), "triplet_adaptive", normalized: false, raw: Euclidean, |c, _, _, _| c.init();
    /// Multi-Similarity loss.
    MultiSimilarity(MultiSimilarityConfig => MultiSimilarity), "multi_similarity", normalized: true, raw: Cosine, |c, _, _, _| c.init();
    /// Margin loss with distance-weighted sampling.
    Margin(MarginConfig => Margin), "margin", normalized: true, raw: Euclidean, |c, shape, _, device| c.init(shape, device);
    /// N-pair-mc.
    NPair(NPairConfig => NPair), "n_pair", normalized: false, raw: Cosine, |c, _, _, _| c.init();
    /// Lifted structured loss.
    Lifted(LiftedConfig => Lifted), "lifted", normalized: false, raw: Euclidean, |c, _, _, _| c.init();
    /// Angular loss.
    Angular(AngularConfig => Angular), "angular", normalized: true, raw: Cosine, |c, _, _, _| c.init();
    /// Histogram loss.
    Histogram(HistogramConfig => Histogram), "histogram", normalized: true, raw: Cosine, |c, _, _, _| c.init();
    /// FastAP.
    FastAp(FastApConfig => FastAp), "fast_ap", normalized: true, raw: Euclidean, |c, _, _, _| c.init();
    /// Circle loss.
    Circle(CircleConfig => Circle), "circle", normalized: true, raw: Cosine, |c, _, _, _| c.init();
}

impl Default for LossConfig {
    fn default() -> Self {
        LossConfig::Rll(RllConfig::simpler())
    }
}

/// Refuses a parameter of `[loss]` that is not finite or does not fit.
pub(crate) fn in_range(key: &str, value: f64, fits: bool, wanted: &str) -> crate::Result<()> {
    crate::Error::require(format!("loss.{key}"), value, fits, wanted)
}
