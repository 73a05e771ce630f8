//! Ranking losses: one file each, chosen by name in the run file's `[loss]`.
//!
//! A loss takes a batch of embeddings and its labels and returns a value that is connected to the embeddings, so that
//! `value.backward()` gives the gradient that its paper defines. It also returns diagnostics: per query the value and
//! how many positives and negatives contributed ([`Queries`]).
//!
//! Losses that compare samples with each other also take a memory of earlier batches:
//! [`RankingLoss::forward_against`].
//! The losses that are sums over pairs or triplets take a miner, which chooses the pairs they look at:
//! [`crate::miner`].
//!
//! A loss that is a function of one query's list (its distances, which of them are positives, its parameters) is a
//! [`ListLoss`]: about 60 lines with its documentation and without autodiff. The [`engine`] gives it products, memory
//! of `O(n d)`, threads, f32 and f64, miners, sets of labels and cross-batch memory. The lists may also be those of learnt
//! proxies, class weights or centres ([`Listed::forward_among`]). Other losses are tensor code
//! ([`PairLoss`], with [`toolbox`]) or implement [`RankingLoss`] directly.
//!
//! To add a loss: one file with its configuration ([`LossSpec`]) and its list function or tensor code, one line in the
//! list of [`LossConfig`], its tests and its documentation. A program adds its own by [`LossConfig::register`].
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
mod config;
mod contrastive;
mod cos_face;
pub mod cross_batch;
mod diagnostics;
pub mod engine;
mod fast_ap;
mod hist;
mod histogram;
mod hyperbolic;
mod ice;
mod init;
mod labels;
mod lifted;
mod lists;
mod margin;

pub mod miner;
mod multi_similarity;
mod n_pair;
mod norm_softmax;
mod nra;
mod parameters;
mod potential_field;
pub mod preset;
mod proxies;
mod proxy_anchor;
mod proxy_nca;
mod ranking;
mod recall_at_k;
mod rll;
mod roadmap;
mod rows;
mod simix;
mod smooth_ap;
mod soft_triple;
mod softmax;
mod spec;
mod spectral_clust;
mod srt;
mod statistics;
mod struct_clust;
mod sup_con;
pub mod toolbox;
mod triplet_adaptive;
mod triplet_all;
mod triplet_batch_hard;
mod triplet_hard_negative;
mod triplet_semihard;

pub use gallerist_tensor::{Error, Result};
pub use parameters::parameters;

pub use angular::{Angular, AngularConfig};
pub use arc_face::{ArcFace, ArcFaceConfig};
pub use circle::{Circle, CircleConfig};
pub use config::LossConfig;
pub use contrastive::{Contrastive, ContrastiveConfig};
pub use cos_face::{CosFace, CosFaceConfig};
pub use engine::{ListLoss, Listed};
pub use fast_ap::{FastAp, FastApConfig};
pub use hist::{Hist, HistConfig};
pub use histogram::{Histogram, HistogramConfig};
pub use hyperbolic::{Hyperbolic, HyperbolicConfig, HyperbolicNegatives};
pub use ice::{Ice, IceConfig, IceGradient};
pub use labels::Labels;
pub use lifted::{Lifted, LiftedConfig};
pub use lists::{CrossBatchRows, Lists};
pub use margin::{Margin, MarginBoundary, MarginConfig};
pub use multi_similarity::{MultiSimilarity, MultiSimilarityConfig};
pub use n_pair::{NPair, NPairConfig};
pub use norm_softmax::{NormSoftmax, NormSoftmaxConfig};
pub use nra::{Nra, NraConfig};
pub use potential_field::{PotentialField, PotentialFieldConfig, PotentialReduction};
pub use proxy_anchor::{ProxyAnchor, ProxyAnchorConfig};
pub use proxy_nca::{ProxyNca, ProxyNcaConfig};
pub use ranking::{AnyLoss, LossOutput, PairLoss, Progress, Queries, RankingLoss};
pub use recall_at_k::{RecallAtK, RecallAtKConfig};
pub use rll::{QueryWeighting, Rll, RllConfig, RllForm, RllGradient};
pub use roadmap::{Roadmap, RoadmapCalibration, RoadmapConfig};
pub use smooth_ap::{SmoothAp, SmoothApConfig};
pub use soft_triple::{SoftTriple, SoftTripleConfig};
pub use softmax::{Softmax, SoftmaxConfig};
pub use spec::{Limit, LossShape, LossSpec, in_range};
pub use spectral_clust::{SpectralClust, SpectralClustConfig, SpectralGradient};
pub use srt::{Srt, SrtConfig, SrtHardest};
pub use statistics::BatchStatistics;
pub use struct_clust::{StructClust, StructClustConfig};
pub use sup_con::{SupCon, SupConConfig, SupConForm};
pub use triplet_adaptive::{TripletAdaptive, TripletAdaptiveConfig};
pub use triplet_all::{TripletAll, TripletAllConfig};
pub use triplet_batch_hard::{TripletBatchHard, TripletBatchHardConfig};
pub use triplet_hard_negative::{TripletHardNegative, TripletHardNegativeConfig};
pub use triplet_semihard::{TripletSemihard, TripletSemihardConfig};
