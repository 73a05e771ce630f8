//! What is evaluated, and by which rules.

use std::path::PathBuf;

use gallerist_nn::Products;
use gallerist_retrieval::cluster::Preset;
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::eval::{
    Bootstrap, EvalOptions, EvaluationReport, FewShotOptions, OneShot, OpenSetOptions, Plan, Pooling,
    VerificationOptions,
};
use gallerist_retrieval::rerank::{KReciprocal, QueryExpansion};
use gallerist_retrieval::search::Metric;
use gallerist_tensor::device::DeviceChoice;
use gallerist_train::{self as train, BrokenImage, CheckpointKind, EvaluationConfig};

use crate::Result;
use crate::narrow::{Conditions, Narrowed};

/// What [`evaluate`](crate::evaluate()) measures.
#[derive(Clone, Debug)]
pub enum EvaluateInput {
    /// The test images of a run, or other images, embedded by the network of the run.
    Run(EvaluateRun),
    /// A file of embeddings: each row is a query against all others.
    Embeddings(EmbeddingsFile),
    /// Queries against a gallery: a file of embeddings, an index, or a collection `milvus://HOST[:PORT]/COLLECTION` or
    /// `qdrant://HOST[:PORT]/COLLECTION`. Of an index, the ranked lists are measured.
    Pair {
        /// The queries.
        queries: EmbeddingsFile,
        /// The gallery.
        gallery: EmbeddingsFile,
    },
    /// An index, queried with the embeddings it was built from: each item is a query against all others.
    Items {
        /// The embeddings of the items.
        embeddings: EmbeddingsFile,
        /// The index.
        index: EmbeddingsFile,
    },
}

/// The network of a run, and the images it is measured on.
#[derive(Clone, Debug, Default)]
pub struct EvaluateRun {
    /// The run directory.
    pub run: PathBuf,
    /// The checkpoint; `None`: `evaluation.checkpoint` of the run.
    pub checkpoint: Option<CheckpointKind>,
    /// The images of the queries and of the gallery; by default the test images of the run. Labels are read as the run
    /// reads them (`data.label`), and images with bounding boxes are cut to them if the run does so (`data.crop_boxes`).
    pub images: Option<(ImagePart, ImagePart)>,
    /// The device of the network.
    pub device: DeviceChoice,
    /// The products of the network on the CPU; absent: those of its run.
    pub products: Option<Products>,
    /// A folder that caches decoded images; by default `data.cache_folder` of the run file, if it exists.
    pub cache: Option<PathBuf>,
    /// Whether the first image that cannot be read is an error; it is also one where the run file says so
    /// (`data.strict`).
    pub strict: bool,
    /// Runs of one-shot classification, such as Omniglot's `all_runs.zip`, that are measured as well.
    pub one_shot: Option<PathBuf>,
}

/// Images, or one split of them.
#[derive(Clone, Debug)]
pub struct ImagePart {
    /// A data set, folder, manifest or zip archive.
    pub path: PathBuf,
    /// Only this split; by default `query` of queries and `gallery` of a gallery, if it exists.
    pub split: Option<String>,
}

/// A file of embeddings, with lists that replace its own labels and cameras.
#[derive(Clone, Debug)]
pub struct EmbeddingsFile {
    /// The embeddings.
    pub path: PathBuf,
    /// One label per row.
    pub labels: Option<PathBuf>,
    /// One camera per row.
    pub cameras: Option<PathBuf>,
}

impl<P: Into<PathBuf>> From<P> for EmbeddingsFile {
    fn from(path: P) -> Self {
        Self { path: path.into(), labels: None, cameras: None }
    }
}

/// The result of [`evaluate`](crate::evaluate()).
#[derive(Clone, Debug)]
pub struct Evaluated {
    /// The metrics and the additional measurements.
    pub report: EvaluationReport,
    /// One-shot classification.
    pub one_shot: Option<OneShot>,
    /// Images that could not be read.
    pub broken_images: Vec<BrokenImage>,
    /// The sets of which only a part took part.
    pub narrowed: Vec<Narrowed>,
}

/// Rules, metrics and further measurements. The default computes what the run or the files ask for.
#[derive(Clone, Debug, Default)]
pub struct EvaluateOptions {
    /// The rules and metrics of a benchmark, or `none`; by default those of the run, or of the protocol that both files
    /// name.
    pub protocol: Option<String>,
    /// The names of the metrics, such as `recall@1`; by default those of the protocol.
    pub metrics: Vec<String>,
    /// The values of K of Recall@K, with precision@1, MAP@R and R-precision, if there are no `metrics`.
    pub recall_at: Vec<usize>,
    /// The distance or similarity of two rows; by default the one that the run or the files declare.
    pub metric: Option<Metric>,
    /// Skips images with the query's label from the query's own camera.
    pub across_cameras: bool,
    /// Compares embeddings of different models or metrics, with a warning.
    pub force: bool,
    /// Additional results after re-ranking.
    pub rerank: Option<KReciprocal>,
    /// Additional results after query expansion.
    pub expansion: Option<QueryExpansion>,
    /// Additional results with all query images of one identity and camera merged into one query.
    pub multi_query: Option<Pooling>,
    /// Clusters the embeddings by this variant of k-means.
    pub cluster: Option<Preset>,
    /// Verification over all pairs.
    pub verification: Option<VerificationOptions>,
    /// Open-set identification.
    pub open_set: Option<OpenSetOptions>,
    /// Few-shot episodes.
    pub few_shot: Option<FewShotOptions>,
    /// Confidence intervals.
    pub bootstrap: Option<Bootstrap>,
    /// Only queries that meet this condition on their columns take part. Without a gallery, all images must meet it, and
    /// `gallery_condition` is the same.
    pub query_condition: Option<Condition>,
    /// Only images of the gallery that meet this condition take part.
    pub gallery_condition: Option<Condition>,
    /// The seed of bootstrap, k-means, episodes and open set, also of those that the run asks for. `None`: those of these
    /// options and of the run keep their own; k-means has 0.
    pub seed: Option<u64>,
    /// Writes an HTML report.
    pub page: Option<PathBuf>,
}

impl EvaluateOptions {
    /// The conditions on queries and gallery.
    pub(super) fn conditions(&self) -> Conditions {
        Conditions { queries: self.query_condition.clone(), gallery: self.gallery_condition.clone() }
    }

    /// What `[evaluation]` of the run, if there is one, and the protocol ask for.
    pub(super) fn evaluation(&self, of_run: Option<&EvaluationConfig>) -> EvaluationConfig {
        let of_run = of_run.cloned().unwrap_or_default();
        match &self.protocol {
            Some(name) => EvaluationConfig { protocol: Some(name.clone()), metrics: Vec::new(), ..of_run },
            None => of_run,
        }
    }

    /// The plan with what the options ask for.
    pub(super) fn plan(&self, mut plan: Plan) -> Result<Plan> {
        if !self.recall_at.is_empty() {
            plan.options =
                EvalOptions { metric: plan.options.metric, ..EvalOptions::recall_at(&self.recall_at) };
        }
        if !self.metrics.is_empty() {
            plan.options.measures = train::measures(&self.metrics)?;
        }
        if let Some(metric) = self.metric {
            plan.options.metric = metric;
        }
        let mut plan = Plan {
            rerank: self.rerank.or(plan.rerank),
            expansion: self.expansion.or(plan.expansion),
            multi_query: self.multi_query,
            cluster: self.cluster.or(plan.cluster),
            verification: self.verification.clone().or(plan.verification),
            open_set: self.open_set.clone().or(plan.open_set),
            few_shot: self.few_shot.or(plan.few_shot),
            bootstrap: self.bootstrap.or(plan.bootstrap),
            ..plan
        };
        if let Some(seed) = self.seed {
            plan.open_set = plan.open_set.map(|options| OpenSetOptions { seed, ..options });
            plan.few_shot = plan.few_shot.map(|options| FewShotOptions { seed, ..options });
            plan.bootstrap = plan.bootstrap.map(|options| Bootstrap { seed, ..options });
            plan.seed = seed;
        }
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seed_replaces_those_of_the_run() {
        let of_run = Plan {
            open_set: Some(OpenSetOptions { seed: 1, ..OpenSetOptions::default() }),
            few_shot: Some(FewShotOptions { seed: 2, ..FewShotOptions::default() }),
            bootstrap: Some(Bootstrap { seed: 3, ..Bootstrap::default() }),
            ..Plan::default()
        };
        let seeds = |seed| {
            let plan = EvaluateOptions { seed, ..EvaluateOptions::default() }.plan(of_run.clone()).unwrap();
            (
                plan.open_set.unwrap().seed,
                plan.few_shot.unwrap().seed,
                plan.bootstrap.unwrap().seed,
                plan.seed,
            )
        };
        assert_eq!(seeds(None), (1, 2, 3, 0));
        assert_eq!(seeds(Some(7)), (7, 7, 7, 7));
    }
}
