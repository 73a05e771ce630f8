//! Every row's ranked list of the others, and which queries are worth looking at.

use std::collections::HashMap;

use gallerist_data::Random;
use gallerist_report::{Hit, Item, Metric, RankedList, RankedSection};
use gallerist_retrieval::search::{self, RankedLists, SearchOptions, self_search};
use gallerist_retrieval::{Matrix, Result, labels};

/// Results among which a query's average precision is taken.
const DEPTH: usize = 100;
/// The same in words.
pub(crate) const AMONG: &str = "among its first 100 results";

/// The ranked lists of labelled rows.
pub(crate) struct Ranking {
    names: Vec<String>,
    ids: Vec<u32>,
    lists: RankedLists,
    /// The average precision of each query.
    precision: Vec<f64>,
    /// The number of other rows of each query's class.
    relevant: Vec<usize>,
    results: usize,
    /// What the distances are called.
    measure: &'static str,
}

impl Ranking {
    /// Ranks at least `results` rows for each of at least two, by the Euclidean distance of `rows`, called `measure`.
    pub(crate) fn new(
        rows: &Matrix,
        names: &[String],
        results: usize,
        measure: &'static str,
    ) -> Result<Self> {
        let labels::Encoded { ids, names } = labels::encode(names);
        let most = rows.rows().saturating_sub(1);
        let options = SearchOptions {
            metric: search::Metric::Euclidean,
            exclude_self: true,
            ..SearchOptions::new(results.max(DEPTH).min(most).max(1))
        };
        let lists = self_search(rows, &options)?;
        let sizes = ids.iter().fold(HashMap::new(), |mut sizes: HashMap<u32, usize>, &id| {
            *sizes.entry(id).or_default() += 1;
            sizes
        });
        let relevant: Vec<usize> = ids.iter().map(|id| sizes[id] - 1).collect();
        let precision = (0..ids.len()).map(|i| average_precision(&lists, &ids, i, relevant[i])).collect();
        Ok(Self { names, ids, lists, precision, relevant, results, measure })
    }

    /// Queries drawn at random.
    pub(crate) fn drawn(&self, seed: u64, count: usize) -> Vec<usize> {
        let mut drawn: Vec<usize> = (0..self.ids.len()).collect();
        Random::new(seed, "report/queries", 0, 0).shuffle(&mut drawn);
        drawn.truncate(count);
        drawn
    }

    /// The queries of the lowest average precision, of those that could have a higher one.
    pub(crate) fn worst(&self, count: usize) -> Vec<usize> {
        self.by_precision(count, |a, b| a.total_cmp(&b))
    }

    /// The queries of the highest average precision; of equals the one with more to find.
    pub(crate) fn best(&self, count: usize) -> Vec<usize> {
        self.by_precision(count, |a, b| b.total_cmp(&a))
    }

    fn by_precision(&self, count: usize, order: impl Fn(f64, f64) -> std::cmp::Ordering) -> Vec<usize> {
        let mut queries: Vec<usize> = (0..self.ids.len()).filter(|&i| self.relevant[i] > 0).collect();
        queries.sort_by(|&a, &b| {
            order(self.precision[a], self.precision[b])
                .then(self.relevant[b].cmp(&self.relevant[a]))
                .then(a.cmp(&b))
        });
        queries.truncate(count);
        queries
    }

    /// The pairs of classes of which the first is most often nearest to the second: the names, how
    /// often, of how many, and the queries.
    pub(crate) fn confused(&self, count: usize) -> Vec<Confusion<'_>> {
        let mut pairs: HashMap<(u32, u32), Vec<usize>> = HashMap::new();
        for (query, &id) in self.ids.iter().enumerate() {
            if let Some(&nearest) = self.lists.indices(query).first() {
                pairs.entry((id, self.ids[nearest as usize])).or_default().push(query);
            }
        }
        let mut pairs: Vec<Confusion<'_>> = pairs
            .into_iter()
            .filter(|((a, b), _)| a != b)
            .map(|((a, b), queries)| Confusion {
                class: &self.names[a as usize],
                with: &self.names[b as usize],
                of: self.relevant[queries[0]] + 1,
                queries,
            })
            .collect();
        pairs.sort_by(|a, b| {
            let share = |c: &Confusion<'_>| c.queries.len() as f64 / c.of as f64;
            (share(b).total_cmp(&share(a))).then(b.of.cmp(&a.of)).then(a.queries.cmp(&b.queries))
        });
        pairs.truncate(count);
        pairs
    }

    /// The lists of some queries under one heading.
    pub(crate) fn section(
        &self,
        title: &str,
        note: &str,
        queries: &[usize],
        item: &dyn Fn(usize) -> Item,
    ) -> RankedSection {
        let list = |&query: &usize| RankedList {
            query: item(query),
            scores: vec![Metric::share("average precision", self.precision[query])],
            note: None,
            results: (self.lists.indices(query).iter())
                .zip(self.lists.scores(query))
                .take(self.results)
                .map(|(&index, &distance)| Hit {
                    item: item(index as usize),
                    distance: f64::from(distance),
                    correct: Some(self.ids[index as usize] == self.ids[query]),
                })
                .collect(),
        };
        RankedSection {
            title: title.into(),
            note: Some(note.into()),
            measure: self.measure.into(),
            lists: queries.iter().map(list).collect(),
        }
    }
}

/// A class whose rows are often nearest to another class's.
pub(crate) struct Confusion<'a> {
    /// The class of the queries.
    pub(crate) class: &'a str,
    /// The class of their nearest rows.
    pub(crate) with: &'a str,
    /// Rows of the first class.
    pub(crate) of: usize,
    /// The queries, in ascending order.
    pub(crate) queries: Vec<usize>,
}

/// Average precision over the first `min(relevant, depth)` results (MAP@R's form).
fn average_precision(lists: &RankedLists, ids: &[u32], query: usize, relevant: usize) -> f64 {
    let indices = lists.indices(query);
    let depth = relevant.min(indices.len());
    let (mut hits, mut sum) = (0usize, 0.0);
    for (rank, &index) in indices.iter().take(depth).enumerate() {
        if ids[index as usize] == ids[query] {
            hits += 1;
            sum += hits as f64 / (rank + 1) as f64;
        }
    }
    if depth == 0 { 0.0 } else { sum / depth as f64 }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Three wrens and two herons on a line; the third wren stands among the herons.
    fn line() -> Ranking {
        let rows = Matrix::new(5, 1, vec![0.0, 0.1, 5.0, 5.2, 6.0]).unwrap();
        let names = ["wren", "wren", "wren", "heron", "heron"].map(String::from);
        Ranking::new(&rows, &names, 2, "distance").unwrap()
    }

    #[test]
    fn the_worst_queries_find_none_of_their_class() {
        // The stray wren finds two herons, the heron beside it finds the wren. All others find only their
        // class; of equals those come first that have more to find.
        assert_eq!(line().worst(3), [2, 3, 0]);
        assert_eq!(line().best(3), [0, 1, 4]);
    }

    #[test]
    fn confused_classes_come_by_the_share_of_their_rows() {
        let ranking = line();
        let pairs = ranking.confused(5);
        let shown: Vec<_> = pairs.iter().map(|c| (c.class, c.with, c.queries.clone(), c.of)).collect();
        assert_eq!(shown, [("heron", "wren", vec![3], 2), ("wren", "heron", vec![2], 3)]);
    }
}
