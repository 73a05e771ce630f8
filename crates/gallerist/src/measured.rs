//! What a run measures: its queries, their gallery, and the plan.
//!
//! `train` writes them at its end, `evaluate --run` embeds them again, and the report and the figures read them.
//!
//! # Example
//!
//! ```no_run
//! use std::path::Path;
//! use gallerist::{measured::Measured, train::RunDirectory};
//!
//! let run = RunDirectory::open(Path::new("runs/market1501"))?;
//! let measured = Measured::of_run(&run)?.expect("a run that was trained to its end, with test images");
//! println!("{} queries", measured.queries.embeddings.rows());
//! println!("CMC@1 {:.3}", measured.report()?.evaluation.metrics["cmc@1"]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use std::path::Path;

use gallerist_retrieval::eval::{EvaluationReport, Labelled, Plan, SideInfo};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix};
use gallerist_train::{Error, EvaluationConfig, Result, RunConfig, RunDirectory};

use crate::narrow::{Conditions, Narrowed, narrowed};

/// The embeddings that a run is measured on, and how.
#[derive(Clone, Debug)]
pub struct Measured {
    /// The queries; without a gallery, all test images, each compared with the others.
    pub queries: EmbeddingSet,
    /// What the queries are compared with.
    pub gallery: Option<EmbeddingSet>,
    /// What is measured of them, and by which rules: `plan.protocol` has the label of junk, and
    /// [`Plan::uses_cameras`] says whether images of the query's label and camera are skipped.
    pub plan: Plan,
    /// The sets of which only a part takes part: see [`narrow`](Self::narrow).
    pub narrowed: Vec<Narrowed>,
}

impl Measured {
    /// Embeddings and the measurements of `[evaluation]`, by its protocol, or by the one that queries and gallery both name if it
    /// names none. Cameras count between queries and a gallery that have them, not within one set. Rows are compared
    /// as the gallery declares, also where the protocol's publication does otherwise.
    ///
    /// # Errors
    ///
    /// When `[evaluation]` names an unknown metric or protocol.
    pub fn new(
        queries: EmbeddingSet,
        gallery: Option<EmbeddingSet>,
        evaluation: &EvaluationConfig,
    ) -> Result<Self> {
        let mut plan = evaluation.plan_for(common_protocol(&queries, gallery.as_ref()))?;
        plan.ignore_unusable_cameras((SideInfo::of_set(&queries), gallery.as_ref().map(SideInfo::of_set)));
        plan.options.metric = declared_metric(&queries, gallery.as_ref()).unwrap_or_default();
        Ok(Self { queries, gallery, plan, narrowed: Vec::new() })
    }

    /// Leaves out what does not meet the conditions.
    ///
    /// # Errors
    ///
    /// When no image of a set meets its condition, for a column that a set does not have, and for two different conditions
    /// without a gallery.
    pub fn narrow(&mut self, conditions: &Conditions) -> Result<()> {
        let one_set = self.gallery.is_none();
        if one_set && conditions.queries != conditions.gallery {
            return Err(Error::Retrieval(gallerist_retrieval::Error::Protocol {
                what: "there is no gallery:".into(),
                problem: "every image is a query against all others, and one condition holds for all".into(),
                hint: Some("give it as --where, or give queries and a gallery".into()),
            }));
        }
        let name = if one_set { "embeddings" } else { "queries" };
        let sides = [
            (Some(&mut self.queries), name, &conditions.queries),
            (self.gallery.as_mut(), "gallery", &conditions.gallery),
        ];
        for (set, name, condition) in sides {
            let (Some(set), Some(condition)) = (set, condition) else { continue };
            let whole = std::mem::replace(set, Matrix::new(0, 0, Vec::new())?.into());
            let (kept, part) = narrowed(whole, condition, name)?;
            *set = kept;
            self.narrowed.push(part);
        }
        Ok(())
    }

    /// What a run left in its directory; `None` where it has not come to its end, or has no test images.
    ///
    /// # Errors
    ///
    /// When a file cannot be read.
    pub fn of_run(run: &RunDirectory) -> Result<Option<Self>> {
        let (queries, gallery) = if run.query().exists() && run.gallery().exists() {
            (EmbeddingSet::load(run.query())?, Some(EmbeddingSet::load(run.gallery())?))
        } else if run.embeddings().exists() {
            (EmbeddingSet::load(run.embeddings())?, None)
        } else {
            return Ok(None);
        };
        let config = RunConfig::load(&run.config(), &[])?;
        Self::new(queries, gallery, &config.evaluation).map(Some)
    }

    /// Writes the embeddings into the run's directory.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn save(&self, run: &RunDirectory) -> Result<()> {
        match &self.gallery {
            None => self.queries.save(run.embeddings())?,
            Some(gallery) => {
                self.queries.save(run.query())?;
                gallery.save(run.gallery())?;
            }
        }
        Ok(())
    }

    /// The metrics and the other measurements of the plan.
    ///
    /// # Errors
    ///
    /// As [`Plan::run`], and when there are no labels.
    pub fn report(self) -> Result<EvaluationReport> {
        let side = |set: EmbeddingSet| Labelled::from_set(set, Path::new("the test images"));
        let gallery = self.gallery.map(side).transpose()?;
        Ok(self.plan.run(&side(self.queries)?, gallery.as_ref())?)
    }
}

/// The metric that the gallery declares, else the queries'. Where neither does, rows are compared by the cosine.
pub fn declared_metric(queries: &EmbeddingSet, gallery: Option<&EmbeddingSet>) -> Option<Metric> {
    gallery.and_then(|gallery| gallery.metric).or(queries.metric)
}

/// The protocol that queries and gallery both name.
pub fn common_protocol<'a>(queries: &'a EmbeddingSet, gallery: Option<&EmbeddingSet>) -> Option<&'a str> {
    let named = gallery?.protocol.as_deref()?;
    queries.protocol.as_deref().filter(|protocol| *protocol == named)
}
