//! Per-query results of a source, and the selection of queries to show.

use std::collections::HashMap;

use gallerist_data::Random;
use gallerist_report::{Hit, Item, Metric, RankedList, RankedSection};
use gallerist_retrieval::eval::{
    self, AveragePrecision, MapAtR, Measure, Measured, ReciprocalRank, TrapezoidPrecision,
};
use gallerist_train::Result;

use crate::plots::Source;

/// The area under the precision-recall curve.
const TRAPEZOID: Measure = Measure::of_all(&TrapezoidPrecision);
/// Average precision of the first R results.
const MAP_AT_R: Measure = Measure::of_all(&MapAtR);

/// The queries of a source with their average precision.
pub(crate) struct Ranking<'a> {
    source: &'a Source,
    /// The form of average precision: the first one in the source's plan, else `map`.
    precision: Measure,
    /// Average precision and reciprocal rank.
    measured: Measured,
    /// The number of relevant items of each query.
    relevant: Vec<usize>,
    results: usize,
}

impl<'a> Ranking<'a> {
    /// Evaluates every query; lists will have `results` items.
    pub(crate) fn new(source: &'a Source, results: usize) -> Result<Self> {
        let whole = Measure::of_all(&AveragePrecision);
        let forms = [TRAPEZOID, whole, MAP_AT_R];
        let asked = source.plan().options.measures.iter().find(|measure| forms.contains(measure));
        let precision = asked.copied().unwrap_or(whole);
        let measured = source.measure("ranked lists", vec![precision, Measure::of_all(&ReciprocalRank)])?;
        let rules = source.rules("ranked lists")?;
        let mut relevant = vec![0; measured.queries.len()];
        source.each_of_a_label(|query, items| {
            relevant[query] =
                items.iter().filter(|&&(item, _)| rules.verdict(query, item as usize).is_right()).count();
        });
        Ok(Self { source, precision, measured, relevant, results })
    }

    /// Describes the form of average precision in a sentence.
    pub(crate) fn precision_is(&self) -> String {
        let over = if self.precision == MAP_AT_R {
            "of the first R results, R being the number of right ones (map@r)"
        } else if self.precision == TRAPEZOID {
            "of the whole list, the area under the precision-recall curve (map_trapezoid)"
        } else {
            "of the whole list (map)"
        };
        format!("Average precision: {over}.")
    }

    /// Describes queries and gallery in a sentence.
    pub(crate) fn described(&self) -> String {
        self.source.described(&self.measured.evaluation)
    }

    fn precision(&self, query: usize) -> f64 {
        self.measured.queries.of(query)[0]
    }

    /// The rank of the first relevant item.
    fn first_right(&self, query: usize) -> Option<usize> {
        let reciprocal = self.measured.queries.of(query)[1];
        (reciprocal > 0.0).then(|| (1.0 / reciprocal).round() as usize)
    }

    /// Random queries.
    pub(crate) fn drawn(&self, seed: u64, count: usize) -> Vec<usize> {
        let mut drawn: Vec<usize> = (0..self.relevant.len()).collect();
        Random::new(seed, "report/queries", 0, 0).shuffle(&mut drawn);
        drawn.truncate(count);
        drawn
    }

    /// The queries with the lowest average precision, among those below 1.
    pub(crate) fn worst(&self, count: usize) -> Vec<usize> {
        self.by_precision(count, |a, b| a.total_cmp(&b))
    }

    /// The queries with the highest average precision; ties: more relevant items first.
    pub(crate) fn best(&self, count: usize) -> Vec<usize> {
        self.by_precision(count, |a, b| b.total_cmp(&a))
    }

    fn by_precision(&self, count: usize, order: impl Fn(f64, f64) -> std::cmp::Ordering) -> Vec<usize> {
        let has_match = |&query: &usize| self.measured.queries.has_match(query);
        let mut queries: Vec<usize> = (0..self.relevant.len()).filter(has_match).collect();
        queries.sort_by(|&a, &b| {
            order(self.precision(a), self.precision(b))
                .then(self.relevant[b].cmp(&self.relevant[a]))
                .then(a.cmp(&b))
        });
        queries.truncate(count);
        queries
    }

    /// The most confused pairs of classes: queries of the first class whose nearest item is of the second. Returns the
    /// names, the number of such queries, the number of queries of the class, and the queries.
    pub(crate) fn confused(&self, count: usize) -> Result<Vec<Confusion<'a>>> {
        let (queries, items) = (&self.source.queries.rows.labels, &self.source.items().rows.labels);
        let mut sizes: HashMap<&str, usize> = HashMap::new();
        queries.iter().for_each(|label| *sizes.entry(label).or_default() += 1);
        let all: Vec<usize> = (0..queries.len()).collect();
        let mut pairs: HashMap<(&str, &str), Vec<usize>> = HashMap::new();
        for list in self.source.ranked(&all, 1)? {
            if let Some(nearest) = list.items.first().filter(|nearest| !nearest.is_right()) {
                let pair = (queries[list.query].as_str(), items[nearest.item].as_str());
                pairs.entry(pair).or_default().push(list.query);
            }
        }
        let mut pairs: Vec<Confusion<'_>> = pairs
            .into_iter()
            .map(|((class, with), queries)| Confusion { class, with, of: sizes[class], queries })
            .collect();
        pairs.sort_by(|a, b| {
            let share = |c: &Confusion<'_>| c.queries.len() as f64 / c.of as f64;
            (share(b).total_cmp(&share(a))).then(b.of.cmp(&a.of)).then(a.queries.cmp(&b.queries))
        });
        pairs.truncate(count);
        Ok(pairs)
    }

    /// The lists of some queries under one heading; `query` and `item` return the entry of a row.
    pub(crate) fn section(
        &self,
        title: &str,
        note: &str,
        queries: &[usize],
        (query, item): (&dyn Fn(usize) -> Item, &dyn Fn(usize) -> Item),
    ) -> Result<RankedSection> {
        let hit = |found: &eval::RankedItem| Hit {
            item: item(found.item),
            distance: f64::from(found.score),
            correct: Some(found.is_right()),
        };
        let list = |found: &eval::Ranked| RankedList {
            query: query(found.query),
            scores: vec![Metric::share("average precision", self.precision(found.query))],
            note: self.remark(found),
            results: found.items.iter().map(hit).collect(),
        };
        let lists = self.source.ranked(queries, self.results.max(1))?;
        Ok(RankedSection {
            title: title.into(),
            note: Some(note.into()),
            measure: self.source.score_is().into(),
            lists: lists.iter().map(list).collect(),
        })
    }

    /// The rank of the first relevant item, if it is not among the shown items.
    fn remark(&self, list: &eval::Ranked) -> Option<String> {
        if list.relevant == 0 {
            return Some("Nothing in the gallery is right.".into());
        }
        let first = self.first_right(list.query)?;
        (first > list.items.len()).then(|| format!("The first right one has rank {first}."))
    }
}

/// A class whose queries often have a nearest item of another class.
pub(crate) struct Confusion<'a> {
    /// The class of the queries.
    pub(crate) class: &'a str,
    /// The class of the nearest items.
    pub(crate) with: &'a str,
    /// Queries of the first class.
    pub(crate) of: usize,
    /// The queries, in ascending order.
    pub(crate) queries: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use gallerist_retrieval::search;
    use gallerist_retrieval::{EmbeddingSet, Matrix};
    use gallerist_train::EvaluationConfig;

    use super::*;
    use crate::measured::Measured;

    fn source(queries: EmbeddingSet, gallery: Option<EmbeddingSet>, protocol: Option<&str>) -> Source {
        let config = EvaluationConfig { protocol: protocol.map(String::from), ..EvaluationConfig::default() };
        let mut measured = Measured::new(queries, gallery, &config).unwrap();
        measured.plan.options.metric = search::Metric::Euclidean;
        Source::new("line".into(), measured, None).unwrap()
    }

    fn set(places: &[f32], labels: &[&str], cameras: Option<&[&str]>) -> EmbeddingSet {
        let text = |of: &[&str]| of.iter().map(|name| name.to_string()).collect::<Vec<_>>();
        EmbeddingSet {
            labels: Some(text(labels)),
            cameras: cameras.map(text),
            ..Matrix::new(places.len(), 1, places.to_vec()).unwrap().into()
        }
    }

    /// Three wrens and two herons on a line; the third wren is among the herons.
    fn line() -> Source {
        let names = ["wren", "wren", "wren", "heron", "heron"];
        source(set(&[0.0, 0.1, 5.0, 5.2, 6.0], &names, None), None, None)
    }

    #[test]
    fn the_worst_queries_find_none_of_their_class() {
        // The stray wren finds two herons, the heron next to it finds the wren. All others find only their
        // class; of equals those come first that have more to find.
        let line = line();
        let ranking = Ranking::new(&line, 2).unwrap();
        assert_eq!(ranking.worst(3), [2, 3, 0]);
        assert_eq!(ranking.best(3), [0, 1, 4]);
    }

    #[test]
    fn confused_classes_come_by_the_share_of_their_rows() {
        let line = line();
        let pairs = Ranking::new(&line, 2).unwrap().confused(5).unwrap();
        let shown: Vec<_> = pairs.iter().map(|c| (c.class, c.with, c.queries.clone(), c.of)).collect();
        assert_eq!(shown, [("heron", "wren", vec![3], 2), ("wren", "heron", vec![2], 3)]);
    }

    #[test]
    fn lists_of_persons_hold_no_junk_and_no_image_of_the_querys_camera() {
        let queries = set(&[0.0], &["0007"], Some(&["c1"]));
        let labels = ["0007", "-1", "0000", "0002", "0007"];
        let gallery = set(&[0.1, 0.2, 0.3, 0.4, 0.5], &labels, Some(&["c1", "c2", "c2", "c3", "c2"]));
        let source = source(queries, Some(gallery), Some("market1501"));
        let ranking = Ranking::new(&source, 2).unwrap();
        let row = |row: usize| Item { path: Some(row.to_string()), ..Item::default() };
        let section = ranking.section("lists", "", &[0], (&row, &row)).unwrap();
        let list = &section.lists[0];
        let shown: Vec<_> =
            list.results.iter().map(|hit| (hit.item.path.as_deref().unwrap(), hit.correct)).collect();
        assert_eq!(shown, [("2", Some(false)), ("3", Some(false))]);
        assert_eq!(list.note.as_deref(), Some("The first right one has rank 3."));
        // Rank 3, the only right one: precision 0 of 2 before it, 1 of 3 at it.
        assert!((list.scores[0].value - (0.0 + 1.0 / 3.0) / 2.0).abs() < 1e-15);
        assert!(ranking.precision_is().contains("map_trapezoid"));
        assert_eq!(
            ranking.described(),
            "1 query against a gallery of 4 images (market1501: queries against the other cameras' images), \
             compared by the Euclidean distance. Left out: 1 junk image."
        );
    }
}
