//! Everything that is measured of a test set, and the report of it.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::classes::RowClasses;
use super::verdict::{Judge, Judged};
use super::{
    Bootstrap, Calibration, EvalOptions, Evaluation, FalseRate, FewShot, FewShotOptions, Intervals, Measured,
    OpenSet, OpenSetOptions, Pooling, Protocol, Ranked, RowLabels, Setting, Side, Sightings, Task,
    ThresholdOptions, Verdict, Verification, VerificationOptions, calibrate, few_shot, open_set,
    pool_queries, verify,
};
use crate::cluster::{Agreement, Preset, agreement};
use crate::labels::{self, LabelSets};
use crate::rerank::{KReciprocal, QueryExpansion};
use crate::search::Metric;
use crate::{EmbeddingSet, Error, Matrix, Result};

/// Embeddings with the names of their classes.
#[derive(Clone, Debug, PartialEq)]
pub struct Labelled {
    /// One embedding per row.
    pub embeddings: Matrix,
    /// The label of each row; `a|b` is a set of two.
    pub labels: Vec<String>,
    /// The camera of each row, where the protocol is to know it.
    pub cameras: Option<Vec<String>>,
}

impl Labelled {
    /// Takes the embeddings, labels and cameras of a set; `file` names it in messages.
    ///
    /// # Errors
    /// [`Error::Protocol`] for a set without labels.
    pub fn from_set(set: EmbeddingSet, file: &Path) -> Result<Self> {
        let Some(labels) = set.labels else {
            return Err(Error::Protocol {
                what: "evaluation".to_owned(),
                problem: format!("needs a label for each row, and `{}` has none", file.display()),
                hint: Some(
                    "give a file of labels: .npy of integers, or text with one label a line".to_owned(),
                ),
            });
        };
        Ok(Self { embeddings: set.embeddings, labels, cameras: set.cameras })
    }

    /// The labels and cameras alone.
    pub fn named(&self) -> Named<'_> {
        Named { labels: &self.labels, cameras: self.cameras.as_deref() }
    }
}

/// What the images of one side show: all that the rules of a protocol look at.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// The label of each row; `a|b` is a set of two.
    pub labels: &'a [String],
    /// The camera of each row, where it is known.
    pub cameras: Option<&'a [String]>,
}

/// What is known of a side of an evaluation before its images are embedded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideInfo {
    /// Whether each row has a camera.
    pub cameras: bool,
    /// Whether some row has several labels (`a|b`).
    pub label_sets: bool,
}

impl SideInfo {
    fn of(side: Named) -> Self {
        Self { cameras: side.cameras.is_some(), label_sets: labels::are_sets(side.labels) }
    }

    /// What is known of the rows of `set`.
    pub fn of_set(set: &EmbeddingSet) -> Self {
        Self {
            cameras: set.cameras.is_some(),
            label_sets: set.labels.as_deref().is_some_and(labels::are_sets),
        }
    }
}

/// What is measured of a test set. The default is one [`Evaluation`] and nothing else.
///
/// ```
/// use gallerist_retrieval::{Matrix, cluster::Preset, eval::{Bootstrap, Labelled, Plan}};
///
/// let rows = Matrix::new(4, 2, vec![1.0, 0.0, 0.9, 0.1, 0.0, 1.0, 0.1, 0.9])?;
/// let labels = ["wren", "wren", "heron", "heron"].map(String::from).to_vec();
/// let set = Labelled { embeddings: rows, labels, cameras: None };
/// let plan = Plan {
///     cluster: Some(Preset::Faiss20),
///     bootstrap: Some(Bootstrap { resamples: 100, ..Bootstrap::default() }),
///     ..Plan::default()
/// };
/// let report = plan.run(&set, None)?;
/// assert_eq!(report.evaluation.metrics["recall@1"], 1.0);
/// assert_eq!(report.further.clustering.unwrap().nmi, 1.0);
/// assert_eq!(report.further.intervals.unwrap().metrics["map@r"].low, 1.0);
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    /// The benchmark with its rules: what is compared with what, cameras, junk.
    pub protocol: Option<&'static Protocol>,
    /// Cameras do not count, also where both sides have them.
    pub ignore_cameras: bool,
    /// The metrics, and how rows are compared.
    pub options: EvalOptions,
    /// The same metrics after re-ranking, as a row of its own.
    pub rerank: Option<KReciprocal>,
    /// The same metrics with expanded queries, as a row of its own.
    pub expansion: Option<QueryExpansion>,
    /// The same metrics with the images of an identity and a camera as one query, as a row of its own.
    pub multi_query: Option<Pooling>,
    /// NMI, AMI and pair F1 of a k-means clustering.
    pub cluster: Option<Preset>,
    /// The rates of accepting pairs.
    pub verification: Option<VerificationOptions>,
    /// Searches for known and unknown identities.
    pub open_set: Option<OpenSetOptions>,
    /// The threshold of a match for a wanted false match rate.
    pub threshold: Option<ThresholdOptions>,
    /// Retrieval in small galleries.
    pub few_shot: Option<FewShotOptions>,
    /// Confidence intervals for the metrics of every row.
    pub bootstrap: Option<Bootstrap>,
    /// Decides the first centres of k-means.
    pub seed: u64,
}

/// The metrics and the other measurements of a plan.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationReport {
    /// The metrics.
    #[serde(flatten)]
    pub evaluation: Evaluation,
    /// The other measurements.
    #[serde(flatten)]
    pub further: Further,
}

/// What can be measured in addition to the metrics.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Further {
    /// Confidence intervals of the metrics.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Intervals>,
    /// The metrics with pooled queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub multi_query: Option<EvaluationRow>,
    /// The metrics after re-ranking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reranked: Option<EvaluationRow>,
    /// The metrics with expanded queries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expanded: Option<EvaluationRow>,
    /// The agreement of clusters with classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clustering: Option<Agreement>,
    /// The rates of accepting pairs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verification: Option<Verification>,
    /// Searches for known and unknown identities.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub open_set: Option<OpenSet>,
    /// The threshold of a match.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threshold: Option<Calibration>,
    /// Retrieval in small galleries.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub few_shot: Option<FewShot>,
}

/// The metrics of another ranking of the same images.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationRow {
    /// The metrics.
    #[serde(flatten)]
    pub evaluation: Evaluation,
    /// Their confidence intervals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub intervals: Option<Intervals>,
}

impl Further {
    /// The rows with the names they have in JSON.
    pub fn rows(&self) -> impl Iterator<Item = (&'static str, &EvaluationRow)> {
        let rows =
            [("multi_query", &self.multi_query), ("reranked", &self.reranked), ("expanded", &self.expanded)];
        rows.into_iter().filter_map(|(name, row)| Some((name, row.as_ref()?)))
    }
}

impl Plan {
    /// What a protocol requires, and nothing else.
    pub fn of(protocol: &'static Protocol) -> Self {
        let options = EvalOptions { metric: protocol.metric, measures: protocol.measures() };
        Self { protocol: Some(protocol), options, ..Self::default() }
    }

    /// Measures `queries` against `gallery`, or every row of `queries` against the others.
    ///
    /// Cameras count where both sides have them and the protocol, if there is one, knows cameras.
    ///
    /// # Errors
    /// [`Error::Protocol`] where the protocol, or what is measured in addition to the metrics, needs a gallery,
    /// one set only, cameras, or single labels, and was given something else; and the errors of what is
    /// measured.
    pub fn run(&self, queries: &Labelled, gallery: Option<&Labelled>) -> Result<EvaluationReport> {
        let data = self.checked(queries, gallery)?;
        let junk = data.junk;
        let task = data.task(queries, gallery);
        let junk_items = data.junk_items();
        let measured = task.measure(&self.options)?;
        let unmatched = super::unmatched::note(&measured.queries, &queries.labels);
        let row = |measured: Measured, classes: &[u32]| -> Result<EvaluationRow> {
            let run = |bootstrap: &Bootstrap| bootstrap.run(&measured.queries, classes);
            let intervals = self.bootstrap.as_ref().map(run).transpose()?;
            Ok(EvaluationRow {
                evaluation: Evaluation { junk: junk_items, ..self.named(measured.evaluation) },
                intervals,
            })
        };
        let classes = &data.query_classes;
        let multi_query = match (self.multi_query, data.query_cameras.as_deref()) {
            (Some(pooling), Some(cameras)) => {
                let images = Sightings { embeddings: &queries.embeddings, identities: classes, cameras };
                let pooled = pool_queries(images, pooling, self.options.metric)?;
                let mut of = Task::split(pooled.sightings().side(), task.sides().1).without(junk);
                of = if self.uses_cameras() { of } else { of.without_cameras() };
                let mut measured = of.measure(&self.options)?;
                let how = if pooling == Pooling::Max { "max" } else { "average" };
                measured.evaluation.protocol += &format!(", several images a query, {how} pooling");
                Some(row(measured, &pooled.identities)?)
            }
            _ => None,
        };
        let reranked = self.rerank.map(|rerank| task.measure_reranked(&self.options, &rerank));
        let expanded = self.expansion.map(|expansion| task.measure_expanded(&self.options, &expansion));
        let metric = self.options.metric;
        let one_set = &queries.embeddings;
        let cluster = |preset: Preset| agreement(one_set, classes, metric, |k| preset.options(k, self.seed));
        let further = Further {
            multi_query,
            reranked: reranked.transpose()?.map(|measured| row(measured, classes)).transpose()?,
            expanded: expanded.transpose()?.map(|measured| row(measured, classes)).transpose()?,
            clustering: self.cluster.map(cluster).transpose()?,
            verification: self
                .verification
                .as_ref()
                .map(|options| verify(&task, metric, options))
                .transpose()?,
            open_set: self.open_set.as_ref().map(|options| open_set(&task, metric, options)).transpose()?,
            threshold: self
                .threshold
                .as_ref()
                .map(|options| calibrate(&task, metric, options))
                .transpose()?,
            few_shot: self
                .few_shot
                .map(|options| few_shot(one_set, classes, metric, &options))
                .transpose()?,
            intervals: None,
        };
        let EvaluationRow { mut evaluation, intervals } = row(measured, classes)?;
        let one_label = super::one_label::note(&queries.labels, gallery.map(|set| &*set.labels));
        self.add_notes(&mut evaluation, unmatched, one_label);
        Ok(EvaluationReport { evaluation, further: Further { intervals, ..further } })
    }

    /// The metrics alone, with the values of each query that they are the means of.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn measure(&self, queries: &Labelled, gallery: Option<&Labelled>) -> Result<Measured> {
        let rules = self.checked(queries, gallery)?;
        let Measured { evaluation, queries } = rules.task(queries, gallery).measure(&self.options)?;
        let evaluation = Evaluation { junk: rules.junk_items(), ..self.named(evaluation) };
        Ok(Measured { evaluation, queries })
    }

    /// Open-set identification alone.
    ///
    /// # Errors
    /// As [`run`](Self::run) and [`open_set`].
    pub fn open_set(
        &self,
        queries: &Labelled,
        gallery: Option<&Labelled>,
        options: &OpenSetOptions,
    ) -> Result<OpenSet> {
        open_set(&self.checked(queries, gallery)?.task(queries, gallery), self.options.metric, options)
    }

    /// The first `k` items of the ranked lists of the queries `of`: the lists that the metrics are computed
    /// from, without the images that take up no rank ([`Task::ranked`]).
    ///
    /// ```
    /// use gallerist_retrieval::{Matrix, eval::{Labelled, Plan, Protocol}};
    ///
    /// let side = |rows: &[f32], labels: &[&str], cameras: &[&str]| {
    ///     let text = |of: &[&str]| of.iter().map(|name| name.to_string()).collect::<Vec<_>>();
    ///     let embeddings = rows.iter().flat_map(|angle| [angle.cos(), angle.sin()]).collect();
    ///     let embeddings = Matrix::new(rows.len(), 2, embeddings)?;
    ///     Ok::<_, gallerist_retrieval::Error>(
    ///         Labelled { embeddings, labels: text(labels), cameras: Some(text(cameras)) })
    /// };
    /// let queries = side(&[0.0], &["0007"], &["1"])?;
    /// // The query's person from the query's camera, junk, a distractor, and the query's person from camera 2.
    /// let gallery = side(&[0.1, 0.2, 0.3, 0.4], &["0007", "-1", "0000", "0007"], &["1", "2", "2", "2"])?;
    /// let plan = Plan::of(Protocol::named("market1501").unwrap());
    /// let list = &plan.ranked(&queries, Some(&gallery), &[0], 10)?[0];
    /// let found: Vec<_> = list.items.iter().map(|hit| (hit.item, hit.is_right())).collect();
    /// assert_eq!(found, [(2, false), (3, true)]);
    /// # Ok::<(), gallerist_retrieval::Error>(())
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run) and [`Task::ranked`].
    pub fn ranked(
        &self,
        queries: &Labelled,
        gallery: Option<&Labelled>,
        of: &[usize],
        k: usize,
    ) -> Result<Vec<Ranked>> {
        self.checked(queries, gallery)?.task(queries, gallery).ranked(self.options.metric, of, k)
    }

    /// Who is right for whom and who takes up no rank, without embeddings: for lists that were ranked
    /// elsewhere.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn rules(&self, queries: Named, gallery: Option<Named>) -> Result<Rules> {
        let rows = gallery.map(|side| (side, side.labels.len()));
        self.check((queries, queries.labels.len()), rows)?;
        Ok(self.encode(queries, gallery))
    }

    fn checked(&self, queries: &Labelled, gallery: Option<&Labelled>) -> Result<Rules> {
        let rows = gallery.map(|side| (side.named(), side.embeddings.rows()));
        self.check((queries.named(), queries.embeddings.rows()), rows)?;
        Ok(self.encode(queries.named(), gallery.map(Labelled::named)))
    }

    pub(super) fn encode(&self, queries: Named, gallery: Option<Named>) -> Rules {
        let mut rules = Rules::new(queries, gallery, self.uses_cameras());
        rules.junk = self.protocol.and_then(|protocol| rules.class_named(protocol.junk?));
        rules
    }

    /// Whether a gallery image of the query's label from the query's own camera is skipped, where both sides
    /// have cameras.
    pub fn uses_cameras(&self) -> bool {
        !self.ignore_cameras && self.protocol.is_none_or(|protocol| protocol.setting == Setting::Cameras)
    }

    /// Ignores cameras if no protocol uses them and they cannot count: within one set, and between images
    /// with several labels.
    pub fn ignore_unusable_cameras(&mut self, (queries, gallery): (SideInfo, Option<SideInfo>)) {
        let sets = queries.label_sets || gallery.is_some_and(|side| side.label_sets);
        self.ignore_cameras |= gallery.is_none() || sets && self.protocol.is_none();
    }

    /// Whether the plan can be run on these queries and this gallery, before anything is embedded.
    ///
    /// ```
    /// use gallerist_retrieval::eval::{SideInfo, Plan, Protocol};
    /// let plan = Plan::of(Protocol::named("market1501").unwrap());
    /// let cameras = SideInfo { cameras: true, label_sets: false };
    /// assert!(plan.fits(cameras, Some(cameras)).is_ok());
    /// assert!(plan.fits(cameras, None).is_err()); // there is no gallery
    /// ```
    ///
    /// # Errors
    /// [`Error::Protocol`] as for [`run`](Self::run).
    pub fn fits(&self, queries: SideInfo, gallery: Option<SideInfo>) -> Result<()> {
        let refuse = |what: &str, problem: &str, hint: &str| {
            Err(Error::Protocol {
                what: what.to_owned(),
                problem: problem.to_owned(),
                hint: Some(hint.to_owned()),
            })
        };
        if let Some(protocol) = self.protocol {
            let what = format!("the protocol `{}`", protocol.name);
            match (protocol.setting, gallery) {
                (Setting::EveryImage, Some(_)) => {
                    let problem = "compares every image with all the others, and there is a gallery";
                    return refuse(&what, problem, "give one file of embeddings");
                }
                (Setting::Split | Setting::Cameras, None) => {
                    let problem = "compares queries with a gallery, and there is one set of images";
                    return refuse(&what, problem, "give a file of queries and a file of the gallery");
                }
                (Setting::Cameras, Some(gallery)) if !queries.cameras || !gallery.cameras => {
                    let side = if !queries.cameras { "queries" } else { "gallery" };
                    let problem = format!("needs the camera of each image, and the {side} have none");
                    return refuse(&what, &problem, "give a file with one camera a line");
                }
                _ => {}
            }
        }
        if self.multi_query.is_some() && (gallery.is_none() || !queries.cameras) {
            let problem =
                "pools the images of an identity and a camera, and needs queries with cameras and a gallery";
            return refuse("multi-query", problem, "give query cameras, or leave multi-query out");
        }
        if gallery.is_some() && self.threshold.is_some_and(|options| options.rate == FalseRate::Comparison) {
            let problem = "is calibrated on the pairs of one set, and there is a gallery";
            let hint = "calibrate it per search: rate = \"search\"";
            return refuse("a threshold per comparison", problem, hint);
        }
        if gallery.is_some() {
            let hint = "run it on one file of embeddings";
            if self.cluster.is_some() {
                return refuse("clustering", "needs one set of images, and there is a gallery", hint);
            }
            if self.few_shot.is_some() {
                return refuse("few-shot retrieval", "needs one set of images, and there is a gallery", hint);
            }
        }
        if queries.label_sets || gallery.is_some_and(|side| side.label_sets) {
            let of_classes = [
                (self.cluster.is_some(), "clustering"),
                (self.verification.is_some(), "verification"),
                (self.open_set.is_some(), "open-set identification"),
                (self.threshold.is_some(), "the threshold of a match"),
                (self.few_shot.is_some(), "few-shot retrieval"),
                (self.multi_query.is_some(), "multi-query"),
                (self.uses_cameras() && queries.cameras, "an evaluation across cameras"),
            ];
            if let Some((_, what)) = of_classes.into_iter().find(|(asked, _)| *asked) {
                let problem = "needs one class per row, and some rows have several labels (`a|b`)";
                return refuse(what, problem, "leave it out, or give labels without `|`");
            }
        }
        Ok(())
    }

    /// With the protocol's name, and how rows were compared unless it is the cosine.
    pub(super) fn named(&self, mut evaluation: Evaluation) -> Evaluation {
        if evaluation.metric != Metric::Cosine {
            evaluation.protocol += &format!(", rows compared by {}", evaluation.metric);
        }
        match self.protocol {
            None => evaluation,
            Some(protocol) => {
                Evaluation { protocol: format!("{}: {}", protocol.name, evaluation.protocol), ..evaluation }
            }
        }
    }

    /// The notes of a report, in their order.
    pub(super) fn add_notes(
        &self,
        evaluation: &mut Evaluation,
        unmatched: Option<String>,
        one_label: Option<String>,
    ) {
        let size =
            self.protocol.and_then(|protocol| protocol.size_note(evaluation.queries, evaluation.gallery));
        evaluation.notes.extend(size.into_iter().chain(unmatched).chain(one_label));
    }

    /// RowLabels and cameras of each side, with its number of rows.
    fn check(&self, queries: (Named, usize), gallery: Option<(Named, usize)>) -> Result<()> {
        for (rows, side) in [("queries", Some(queries)), ("gallery rows", gallery)] {
            let Some((side, wanted)) = side else { continue };
            let rows = if gallery.is_none() { "embeddings" } else { rows };
            let cameras = side.cameras.map_or(wanted, <[String]>::len);
            for (what, found) in [("labels", side.labels.len()), ("cameras", cameras)] {
                if found != wanted {
                    return Err(Error::Count { what, rows, wanted, found });
                }
            }
        }
        self.fits(SideInfo::of(queries.0), gallery.map(|(side, _)| SideInfo::of(side)))
    }
}

/// Who is right for whom and who takes up no rank, by the labels and cameras of queries and gallery.
///
/// ```
/// use gallerist_retrieval::eval::{Named, Plan, Protocol, Verdict};
///
/// let text = |of: [&str; 3]| of.map(String::from);
/// let (people, cameras) = (text(["0007", "-1", "0000"]), text(["2", "1", "1"]));
/// let gallery = Named { labels: &people, cameras: Some(&cameras) };
/// let query = Named { labels: &people[..1], cameras: Some(&cameras[1..2]) };
/// let rules = Plan::of(Protocol::named("market1501").unwrap()).rules(query, Some(gallery))?;
/// let verdicts = [0, 1, 2].map(|item| rules.verdict(0, item));
/// assert_eq!(verdicts, [Verdict::Right { grade: 1 }, Verdict::Skipped, Verdict::Wrong]);
/// assert!(rules.is_junk(1));
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct Rules {
    names: Vec<String>,
    query_classes: Vec<u32>,
    gallery_classes: Vec<u32>,
    sets: Option<(LabelSets, LabelSets)>,
    query_cameras: Option<Vec<u32>>,
    gallery_cameras: Option<Vec<u32>>,
    cameras_count: bool,
    junk: Option<u32>,
    /// Queries are the gallery.
    same: bool,
}

impl Rules {
    fn new(queries: Named, gallery: Option<Named>, cameras_count: bool) -> Self {
        let gallery_labels = gallery.map_or(&[][..], |side| side.labels);
        let (of_queries, of_gallery) = labels::encode_both(queries.labels, gallery_labels);
        let sets = labels::are_sets(queries.labels) || labels::are_sets(gallery_labels);
        let gallery_cameras = gallery.and_then(|side| side.cameras);
        let (query_numbers, gallery_numbers) =
            labels::encode_both(queries.cameras.unwrap_or(&[]), gallery_cameras.unwrap_or(&[]));
        Self {
            names: of_queries.names,
            query_classes: of_queries.ids,
            gallery_classes: of_gallery.ids,
            sets: sets.then(|| labels::encode_sets(queries.labels, gallery_labels)),
            query_cameras: queries.cameras.map(|_| query_numbers.ids),
            gallery_cameras: gallery_cameras.map(|_| gallery_numbers.ids),
            cameras_count,
            junk: None,
            same: gallery.is_none(),
        }
    }

    /// What gallery item `item` is to query `query`.
    ///
    /// # Panics
    /// When there is no such query or item.
    pub fn verdict(&self, query: usize, item: usize) -> Verdict {
        self.judge().verdict(query, item)
    }

    /// Whether gallery item `item` is skipped for every query.
    ///
    /// # Panics
    /// When there is no such item.
    pub fn is_junk(&self, item: usize) -> bool {
        self.judge().is_junk(item)
    }

    /// Gallery items that are skipped for every query.
    fn junk_items(&self) -> usize {
        let is_junk = |class: &&u32| self.junk == Some(**class);
        if self.same { 0 } else { self.gallery_classes.iter().filter(is_junk).count() }
    }

    /// The classes of queries and gallery.
    pub fn classes(&self) -> RowClasses<'_> {
        let gallery = (!self.same).then_some(&*self.gallery_classes);
        RowClasses { queries: &self.query_classes, gallery, junk: self.junk }
    }

    fn class_named(&self, name: &str) -> Option<u32> {
        self.names.iter().position(|known| known == name).map(|at| at as u32)
    }

    pub(super) fn judge(&self) -> Judge<'_> {
        let queries = self.queries();
        let gallery = if self.same { queries } else { self.gallery() };
        Judge { queries, gallery, same: self.same, junk: self.junk }
    }

    fn queries(&self) -> Judged<'_> {
        self.side(&self.query_classes, self.sets.as_ref().map(|sets| &sets.0), &self.query_cameras)
    }

    fn gallery(&self) -> Judged<'_> {
        self.side(&self.gallery_classes, self.sets.as_ref().map(|sets| &sets.1), &self.gallery_cameras)
    }

    fn side<'a>(
        &self,
        classes: &'a [u32],
        sets: Option<&'a LabelSets>,
        cameras: &'a Option<Vec<u32>>,
    ) -> Judged<'a> {
        Judged {
            labels: sets.map_or(RowLabels::Classes(classes), RowLabels::Sets),
            cameras: cameras.as_deref().filter(|_| self.cameras_count),
        }
    }

    fn task<'a>(&'a self, queries: &'a Labelled, gallery: Option<&'a Labelled>) -> Task<'a> {
        let side = |of: &'a Labelled, Judged { labels, cameras }: Judged<'a>| Side {
            embeddings: of.embeddings.view(),
            labels,
            cameras,
        };
        let of_queries = side(queries, self.queries());
        let task = match gallery {
            None => Task::every_row(of_queries),
            Some(gallery) => Task::split(of_queries, side(gallery, self.gallery())),
        };
        task.without(self.junk)
    }
}
