//! Embeddings to plot, with the rules of their comparison and the locations of their images.

use std::collections::HashSet;
use std::path::{Path, PathBuf};

use gallerist_data::ImageSet;
use gallerist_retrieval::eval::{
    self, EvalOptions, Evaluation, EvaluationReport, Labelled, Measure, OpenSet, OpenSetOptions, Plan,
    Relevance, Rules, Setting, SharedLabels,
};
use gallerist_retrieval::file::Sources;
use gallerist_retrieval::labels::{self, LabelSets, empty_labels, without_label};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, Matrix, load_labels};
use gallerist_serve::SourceImages;
use gallerist_train::{Error, Result};
use gallerist_train::{EvaluationConfig, RunConfig, RunDirectory, TestImages, open_test_of};
use gallerist_util::text::shell_word;

use super::text::{fault, names_of};
use crate::Observer;
use crate::compatible::{both_have_cameras, cameras_count, check_one_set, same_embedding};
use crate::image_places::{ImagePlaces, sources_of};
use crate::measured::Measured;
use crate::narrow::{Conditions, Narrowed, WITH_LABELS};
use crate::pictures::Pictures;

/// Embeddings to plot: queries with their gallery, or one set whose rows are compared with each other.
///
/// All figures follow the plan of the source, so they agree with the metrics: items that take no rank (junk,
/// images of the query's class from its own camera) are in no list and no histogram.
#[derive(Debug)]
pub struct Source {
    /// The run's or the file's name; see [`name_apart`](Self::name_apart).
    pub name: String,
    /// The run, the file, or the files of queries and gallery; none for embeddings in memory.
    paths: Vec<PathBuf>,
    pub(crate) queries: Side,
    pub(crate) gallery: Option<Side>,
    plan: Plan,
    narrowed: Vec<Narrowed>,
}

/// Queries, or a gallery.
#[derive(Debug)]
pub(crate) struct Side {
    /// Embeddings and cameras; labels are empty if there are none.
    pub(crate) rows: Labelled,
    pub(crate) paths: Option<Vec<String>>,
    sources: Option<Sources>,
    images: Option<SourceImages>,
    /// Whether the images are those of the run, of all of its sources.
    of_run: bool,
}

/// A file of embeddings, with optional lists that override its labels and cameras.
#[derive(Clone, Copy, Debug)]
pub struct File<'a> {
    /// The embeddings.
    pub embeddings: &'a Path,
    /// One label per row.
    pub labels: Option<&'a Path>,
    /// One camera per row.
    pub cameras: Option<&'a Path>,
}

impl<'a> From<&'a Path> for File<'a> {
    fn from(embeddings: &'a Path) -> Self {
        Self { embeddings, labels: None, cameras: None }
    }
}

impl File<'_> {
    fn load(&self) -> Result<EmbeddingSet> {
        let mut set = EmbeddingSet::load(self.embeddings)?;
        if let Some(labels) = self.labels {
            set.labels = Some(load_labels(labels)?);
        }
        if let Some(cameras) = self.cameras {
            set.cameras = Some(load_labels(cameras)?);
        }
        set.check_counts()?;
        Ok(set)
    }
}

impl Side {
    fn new(set: EmbeddingSet, images: Option<ImageSet>, what: &'static str) -> Result<Self> {
        set.check_counts()?;
        set.embeddings.check_finite(what)?;
        let of_run = images.is_some();
        let images = match images {
            Some(images) => Some(SourceImages::new(images).of_sources(sources_of(&set))),
            None => ImagePlaces::of_set(&set).open(),
        };
        let EmbeddingSet { embeddings, labels, paths, cameras, sources, .. } = set;
        let rows = Labelled { embeddings, labels: labels.unwrap_or_default(), cameras };
        Ok(Self { rows, paths, sources, images, of_run })
    }

    /// The label of each row, if there are labels.
    pub(crate) fn labels(&self) -> Option<&[String]> {
        let labels = &self.rows.labels;
        (labels.len() == self.rows.embeddings.rows()).then_some(labels)
    }

    pub(crate) fn pictures(&self) -> Pictures<'_> {
        let (labels, paths) = (self.labels(), self.paths.as_deref());
        // All sources of a run are open, so a path of one image belongs to it, wherever the images were moved.
        let of_run = self.of_run;
        Pictures::of_rows(labels, paths, self.sources.as_ref(), self.images.as_ref(), move |_| of_run)
    }

    /// Whether the location of the images is known.
    pub(crate) fn has_images(&self) -> bool {
        self.images.is_some()
    }
}

impl Source {
    /// The test embeddings of a run, with the rules of its metrics.
    ///
    /// # Errors
    ///
    /// When there is no run, when it has no embeddings yet, or when a file cannot be read.
    pub fn of_run(path: &Path) -> Result<Self> {
        Self::of_run_where(path, &Conditions::default())
    }

    /// The test embeddings of a run that meet the conditions; figures say how many.
    ///
    /// # Errors
    ///
    /// As [`of_run`](Self::of_run) and [`Measured::narrow`].
    pub fn of_run_where(path: &Path, conditions: &Conditions) -> Result<Self> {
        let run = RunDirectory::open(path)?;
        let Some(mut measured) = Measured::of_run(&run)? else {
            let hint = match RunConfig::load(&run.config(), &[])?.data.has_test() {
                true => format!(
                    "train it to its end (`gallerist train --resume {}`), or give --embeddings FILE",
                    shell_word(&path.to_string_lossy())
                ),
                false => "its run file has no test images (data.test): give --embeddings FILE".into(),
            };
            return Err(Error::RunDirectory {
                path: path.into(),
                reason: "it holds no embeddings of test images".into(),
                hint: Some(hint),
            });
        };
        measured.narrow(conditions)?;
        // Pictures are optional: a run whose images were moved is plotted without them.
        let images = open_test_of(&run, &RunConfig::load(&run.config(), &[])?).ok().flatten();
        Self::at(&[path], measured, images)
    }

    /// The embeddings of a file, each row compared with all others; the file names the location of the images.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, when there is not one label per row, and for a protocol that needs a gallery: that of
    /// `evaluation`, or if `evaluation` names none, that of the file if it has junk.
    pub fn of_file(file: File, evaluation: &EvaluationConfig) -> crate::Result<Self> {
        Self::of_file_where(file, evaluation, &Conditions::default(), &mut ())
    }

    /// The embeddings of a file that meet the conditions; figures say how many. Warns of a protocol of the file that is not
    /// applied, and of rows that may be junk.
    ///
    /// # Errors
    ///
    /// As [`of_file`](Self::of_file) and [`Measured::narrow`].
    pub fn of_file_where(
        file: File,
        evaluation: &EvaluationConfig,
        conditions: &Conditions,
        observer: &mut dyn Observer,
    ) -> crate::Result<Self> {
        let mut measured = Measured::new(file.load()?, None, evaluation)?;
        measured.narrow(conditions)?;
        let protocol = evaluation.protocol.as_deref();
        check_one_set((file.embeddings, &measured.queries), protocol, observer)?;
        Ok(Self::at(&[file.embeddings], measured, None)?)
    }

    /// Queries and their gallery from two files, with the protocol of `evaluation`, or else the one named in both files.
    ///
    /// # Errors
    ///
    /// When a file cannot be read, when there is not one label (and camera) per row, for a protocol that is unknown or
    /// compares one set, for cameras of a list that would not count, and for embeddings of different networks or metrics.
    pub fn of_files(queries: File, gallery: File, evaluation: &EvaluationConfig) -> crate::Result<Self> {
        Self::of_files_where(queries, gallery, evaluation, &Conditions::default(), false, &mut ())
    }

    /// The queries and the images of the gallery that meet the conditions; figures say how many. With `force`, embeddings
    /// of different networks or metrics are compared, with a warning.
    ///
    /// # Errors
    ///
    /// As [`of_files`](Self::of_files) and [`Measured::narrow`].
    pub fn of_files_where(
        queries: File,
        gallery: File,
        evaluation: &EvaluationConfig,
        conditions: &Conditions,
        force: bool,
        observer: &mut dyn Observer,
    ) -> crate::Result<Self> {
        let (of_queries, of_gallery) = (queries.load()?, gallery.load()?);
        let sides = ((queries.embeddings, &of_queries), (gallery.embeddings, &of_gallery));
        both_have_cameras(queries.cameras, sides.1)?;
        both_have_cameras(gallery.cameras, sides.0)?;
        same_embedding(sides.0, sides.1, None, force, observer)?;
        let mut measured = Measured::new(of_queries, Some(of_gallery), evaluation)?;
        let cameras = queries.cameras.or(gallery.cameras);
        cameras_count(cameras, &measured.plan, evaluation.protocol.as_deref())?;
        measured.narrow(conditions)?;
        Ok(Self::at(&[queries.embeddings, gallery.embeddings], measured, None)?)
    }

    /// As [`new`](Self::new), of a run or of files, which name it.
    fn at(paths: &[&Path], measured: Measured, images: Option<TestImages>) -> Result<Self> {
        let source = Self::new(names_of(paths).join(" against "), measured, images)?;
        Ok(Self { paths: paths.iter().map(|&path| path.to_owned()).collect(), ..source })
    }

    /// Embeddings and the plan of their evaluation. Without `images`, the embeddings name the location of the
    /// images.
    ///
    /// # Errors
    ///
    /// For values that are not finite, and for a plan that does not fit.
    pub fn new(name: String, measured: Measured, images: Option<TestImages>) -> Result<Self> {
        let Measured { queries, gallery, plan, narrowed } = measured;
        let what = if gallery.is_some() { "queries" } else { "embeddings" };
        let (of_queries, of_gallery) = images.map_or((None, None), |test| (Some(test.queries), test.gallery));
        let queries = Side::new(queries, of_queries, what)?;
        let gallery = gallery.map(|gallery| Side::new(gallery, of_gallery, "the gallery")).transpose()?;
        Ok(Self { name, paths: Vec::new(), queries, gallery, plan, narrowed })
    }

    /// Renames sources of runs and files so that those of different paths have different names ([`names_of`]). Other sources,
    /// made by [`new`](Self::new), keep their names.
    pub fn name_apart(sources: &mut [Self]) {
        let paths: Vec<&PathBuf> = sources.iter().flat_map(|source| &source.paths).collect();
        let mut names = names_of(&paths).into_iter();
        for source in sources.iter_mut().filter(|source| !source.paths.is_empty()) {
            let of_source: Vec<String> = names.by_ref().take(source.paths.len()).collect();
            source.name = of_source.join(" against ");
        }
    }

    /// The metrics and all other measurements of the plan.
    ///
    /// # Errors
    ///
    /// As [`Plan::run`], and when there are no labels.
    pub fn report(&self) -> Result<EvaluationReport> {
        self.check_labels("evaluation")?;
        Ok(self.plan.run(&self.queries.rows, self.gallery_rows())?)
    }

    /// The metrics of the plan and the distance of rows.
    pub(crate) fn plan(&self) -> &Plan {
        &self.plan
    }

    pub(crate) fn metric(&self) -> Metric {
        self.plan.options.metric
    }

    pub(crate) fn gallery_rows(&self) -> Option<&Labelled> {
        self.gallery.as_ref().map(|gallery| &gallery.rows)
    }

    /// The gallery of the queries; without a gallery, the queries themselves.
    pub(crate) fn items(&self) -> &Side {
        self.gallery.as_ref().unwrap_or(&self.queries)
    }

    /// The rules of the plan, without its metrics.
    fn measuring(&self, measures: Vec<Measure>) -> Plan {
        Plan {
            protocol: self.plan.protocol,
            ignore_cameras: self.plan.ignore_cameras,
            options: EvalOptions { metric: self.metric(), measures },
            ..Plan::default()
        }
    }

    /// Evaluates other metrics with the rules of the plan.
    pub(crate) fn measure(&self, what: &str, measures: Vec<Measure>) -> Result<eval::Measured> {
        self.check_labels(what)?;
        Ok(self.measuring(measures).measure(&self.queries.rows, self.gallery_rows())?)
    }

    /// Open-set identification with the rules of the plan.
    pub(crate) fn open_set(&self, options: &OpenSetOptions) -> Result<OpenSet> {
        self.check_labels("open-set identification")?;
        Ok(self.measuring(Vec::new()).open_set(&self.queries.rows, self.gallery_rows(), options)?)
    }

    /// The first `k` items of the ranked lists of some queries, as the metrics see them.
    pub(crate) fn ranked(&self, of: &[usize], k: usize) -> Result<Vec<eval::Ranked>> {
        self.check_labels("ranked lists")?;
        Ok(self.measuring(Vec::new()).ranked(&self.queries.rows, self.gallery_rows(), of, k)?)
    }

    pub(crate) fn rules(&self, what: &str) -> Result<Rules> {
        self.check_labels(what)?;
        let gallery = self.gallery_rows().map(Labelled::named);
        Ok(self.measuring(Vec::new()).rules(self.queries.rows.named(), gallery)?)
    }

    /// The labels of queries and items as sets.
    pub(crate) fn label_sets(&self) -> (LabelSets, LabelSets) {
        let (queries, items) = (&self.queries.rows.labels, &self.items().rows.labels);
        if labels::are_sets(queries) || labels::are_sets(items) {
            return labels::encode_sets(queries, items);
        }
        let (queries, items) = labels::encode_both(queries, items);
        let sets = |ids: Vec<u32>| LabelSets::new(ids.into_iter().map(|id| vec![id]));
        (sets(queries.ids), sets(items.ids))
    }

    /// Calls the function for each query with the items that share a label with it, in ascending order, including items
    /// that take no rank.
    pub(crate) fn each_of_a_label(&self, mut take: impl FnMut(usize, &[(u32, u32)])) {
        let (queries, items) = self.label_sets();
        let shared = SharedLabels::new(&queries, &items);
        let mut found = Vec::new();
        for query in 0..queries.len() {
            found.clear();
            shared.relevant(query, &mut found);
            take(query, &found);
        }
    }

    /// Returns an error for rows that have no ranked list or no label, as an evaluation does: for embeddings without labels, rows
    /// with an empty one, fewer rows than a list needs, and rows of zeros under the cosine.
    pub(crate) fn check_labels(&self, what: &str) -> Result<()> {
        let (rows, least) = (self.items().rows.embeddings.rows(), if self.gallery.is_some() { 1 } else { 2 });
        if rows < least {
            let rows_of = if least == 1 { "row" } else { "rows" };
            let problem = format!("needs at least {least} {rows_of}, and `{}` has {rows}", self.name);
            return Err(fault(what, problem, None));
        }
        let name = if self.gallery.is_some() { "queries" } else { "embeddings" };
        for (side, name, option) in [
            (Some(&self.queries), name, "--query-labels"),
            (self.gallery.as_ref(), "gallery", "--gallery-labels"),
        ] {
            let Some(side) = side else { continue };
            let Some(labels) = side.labels() else {
                let option = if self.gallery.is_some() { option } else { "--labels" };
                return Err(fault(
                    what,
                    format!("needs a label for each row, and `{}` has none", self.name),
                    Some(&format!("give {option} FILE: .npy of integers, or text with one label a line")),
                ));
            };
            if let Some(problem) = empty_labels(without_label(labels), &format!("the {name}")) {
                let problem = format!("needs a label for each row, and {problem}");
                return Err(fault(what, problem, Some(WITH_LABELS)));
            }
            eval::check_rows(side.rows.embeddings.view(), self.metric(), name)?;
        }
        Ok(())
    }

    /// The rows for all distances: scaled to length 1 if they are compared by cosine, else unchanged.
    pub(crate) fn compared(&self, side: &'_ Side) -> Matrix {
        match self.metric() {
            Metric::Cosine => side.rows.embeddings.l2_normalized().0,
            Metric::Euclidean | Metric::InnerProduct => side.rows.embeddings.clone(),
        }
    }

    /// Description of the numbers in a ranked list.
    pub(crate) fn score_is(&self) -> &'static str {
        match self.metric() {
            Metric::Euclidean => "Euclidean distance",
            Metric::Cosine => "cosine similarity",
            Metric::InnerProduct => "inner product",
        }
    }

    /// Describes queries, gallery and rules in a sentence.
    pub(crate) fn described(&self, evaluation: &Evaluation) -> String {
        let by = format!("compared by the {}", self.score_is());
        // An evaluation by another metric than cosine names it.
        let evaluated = evaluation.protocol.split(", rows compared by").next().unwrap_or_default();
        let mut text = match &self.gallery {
            None => {
                let named = self.plan.protocol.map_or(String::new(), |p| format!(" (protocol {})", p.name));
                format!(
                    "Every one of {} images is a query against the others{named}, {by}.",
                    evaluation.queries
                )
            }
            Some(_) => format!(
                "{} against a gallery of {} ({evaluated}), {by}.",
                many(evaluation.queries, "query", "queries"),
                many(evaluation.gallery, "image", "images")
            ),
        };
        if evaluation.junk > 0 {
            text.push_str(&format!(" Left out: {}.", many(evaluation.junk, "junk image", "junk images")));
        }
        text + &self.part()
    }

    /// Which images take part, as sentences with a space before each; empty if all do.
    pub(crate) fn part(&self) -> String {
        self.narrowed.iter().map(|part| format!(" {part}.")).collect()
    }

    /// The images that can be plotted as points: all images of one set; of queries and a gallery, both, or the gallery
    /// only, without junk.
    pub(crate) fn points(&self, what: Points) -> Result<Vec<Point>> {
        let queries = (0..self.queries.rows.embeddings.rows()).map(|row| Point { gallery: false, row });
        let Some(gallery) = &self.gallery else { return Ok(queries.collect()) };
        let (Some(_), Some(of_gallery)) = (self.queries.labels(), gallery.labels()) else {
            let items = (0..gallery.rows.embeddings.rows()).map(|row| Point { gallery: true, row });
            return Ok(if what == Points::All { queries.chain(items).collect() } else { items.collect() });
        };
        let rules = self.rules("a drawing")?;
        let looked_for = self.looked_for();
        let is_distractor = |label: &str| looked_for.as_ref().is_some_and(|known| !known.contains(label));
        let items = (0..of_gallery.len())
            .filter(|&row| !rules.is_junk(row) && (what == Points::All || !is_distractor(&of_gallery[row])))
            .map(|row| Point { gallery: true, row });
        Ok(if what == Points::All { queries.chain(items).collect() } else { items.collect() })
    }

    /// In a set of persons, the labels of the queries: gallery images without one of them are distractors.
    fn looked_for(&self) -> Option<HashSet<&str>> {
        self.plan.protocol.filter(|protocol| protocol.setting == Setting::Cameras)?;
        Some(self.queries.rows.labels.iter().map(String::as_str).collect())
    }

    pub(crate) fn side(&self, point: Point) -> &Side {
        if point.gallery { self.items() } else { &self.queries }
    }

    /// The embeddings of some points: as they are compared, or unchanged.
    pub(crate) fn rows_of(&self, points: &[Point], as_compared: bool) -> Matrix {
        let matrix = |side: &'_ Side| match as_compared {
            true => self.compared(side),
            false => side.rows.embeddings.clone(),
        };
        let queries = matrix(&self.queries);
        let gallery = self.gallery.as_ref().map(matrix);
        let rows = |of_gallery: bool| -> Vec<usize> {
            points.iter().filter(|point| point.gallery == of_gallery).map(|point| point.row).collect()
        };
        let (first, second) = (queries.select(&rows(false)), gallery.map(|all| all.select(&rows(true))));
        match second {
            None => first,
            // Points list queries first.
            Some(second) => {
                let values = [first.as_slice(), second.as_slice()].concat();
                Matrix::new(points.len(), second.cols(), values).expect("rows of one width")
            }
        }
    }

    /// The class of each point and the names of the classes; empty without labels.
    pub(crate) fn classes_of(&self, points: &[Point]) -> Option<labels::Encoded> {
        let looked_for = self.looked_for();
        let name = |&point: &Point| {
            let label = &self.side(point).labels()?[point.row];
            let known = looked_for.as_ref().is_none_or(|known| known.contains(label.as_str()));
            Some(if known { label.clone() } else { "distractors".to_owned() })
        };
        let names: Option<Vec<String>> = points.iter().map(name).collect();
        names.map(|names| labels::encode(&names))
    }
}

fn many(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}

/// Which images are points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Points {
    /// Queries and gallery.
    All,
    /// The gallery without distractors.
    Gallery,
}

/// A query or a gallery image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Point {
    pub(crate) gallery: bool,
    pub(crate) row: usize,
}

#[cfg(test)]
mod tests {
    use crate::pictures::tests::{equal_paths, open, shown};

    use super::*;

    #[test]
    fn images_of_one_path_in_two_folders_are_shown_each_as_it_is() {
        let (dir, places, set) = equal_paths();
        let side =
            |set: &EmbeddingSet, images| shown(&Side::new(set.clone(), images, "rows").unwrap().pictures());
        let both = [Some(10), Some(200)];
        assert_eq!(side(&set, Some(open(&places))), both);
        // The embeddings name the folders, also as earlier versions wrote them.
        assert_eq!(side(&set, None), both);
        let old = format!("{} and 1 more", places[0].display());
        assert_eq!(side(&EmbeddingSet { source: Some(old), ..set.clone() }, None), both);

        // The images of a run may have been moved. A path that both folders have may then be of either.
        let moved = ["c", "d"].map(|name| dir.path().join(name));
        std::fs::rename(&places[0], &moved[0]).unwrap();
        std::fs::rename(&places[1], &moved[1]).unwrap();
        assert_eq!(side(&set, Some(open(&moved))), [None, None]);
        std::fs::rename(moved[1].join("1.bmp"), moved[1].join("2.bmp")).unwrap();
        let paths = Some(vec!["1.bmp".to_owned(), "2.bmp".to_owned()]);
        assert_eq!(side(&EmbeddingSet { paths, ..set.clone() }, Some(open(&moved))), both);
        assert_eq!(side(&set, None), [None, None]);
    }
}
