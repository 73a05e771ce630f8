//! Distances of positive and negative pairs.

use std::borrow::Borrow;

use gallerist_data::Random;
use gallerist_report::figure::{self, Distances, Figure};
use gallerist_retrieval::eval::Verdict;
use gallerist_train::Result;

use super::source::Source;
use super::text::{fault, joined, measure};

/// Size of the sample of each kind of pairs.
const PAIRS: usize = 1_000_000;
const BINS: usize = 80;

/// Histograms of the distances of positive and negative pairs, for each source: pairs of images of one class
/// and of two classes, or of a query and a gallery image. Items that take no rank are excluded.
///
/// Uses all pairs, or a random sample of a million of each kind, given by `seed`.
///
/// # Errors
///
/// When there are no labels, or no pair of one of the kinds.
pub fn distances<S: Borrow<Source>>(sources: &[S], seed: u64) -> Result<Figure> {
    let mut runs = Vec::new();
    for source in sources {
        runs.push(histograms(source.borrow(), seed)?);
    }
    let kind = |source: &Source| {
        let pairs = match &source.gallery {
            None => String::new(),
            Some(_) => {
                let by = source.plan().protocol.map_or(String::new(), |p| format!(" by {}", p.name));
                format!(" between queries and gallery{by}, what takes up no rank left out")
            }
        };
        (
            source.name.clone(),
            format!("{}{pairs}.{}", measure(source.metric()).replace("distance", "distances"), source.part()),
        )
    };
    let kinds: Vec<_> = sources.iter().map(|source| kind(source.borrow())).collect();
    let note = format!(
        "{} The overlap is the area that both histograms share when each has the area 1.",
        joined(&kinds)
    );
    Ok(figure::distances("Distances of pairs", &note, &runs))
}

pub(crate) fn histograms(source: &Source, seed: u64) -> Result<Distances> {
    const WHAT: &str = "a histogram of distances";
    let rules = source.rules(WHAT)?;
    let one_set = source.gallery.is_none();
    let (n, m) = (source.queries.rows.embeddings.rows(), source.items().rows.embeddings.rows());
    // In one set, a pair belongs to its later row.
    let is_pair = |query: usize, item: usize| !one_set || item < query;
    let right = |query: usize, items: &[(u32, u32)]| -> Vec<usize> {
        let items = items.iter().map(|&(item, _)| item as usize);
        items.filter(|&item| is_pair(query, item) && rules.verdict(query, item).is_right()).collect()
    };
    let junk = (0..m).filter(|&item| rules.is_junk(item)).count();
    let (mut positives, mut alike) = (0, 0);
    source.each_of_a_label(|query, items| {
        positives += right(query, items).len();
        let of_label =
            |&&(item, _): &&(u32, u32)| is_pair(query, item as usize) && !rules.is_junk(item as usize);
        alike += items.iter().filter(of_label).count();
    });
    let all = if one_set { n * n.saturating_sub(1) / 2 } else { n * m };
    let negatives = if one_set { all - alike } else { n * (m - junk) - alike };
    if positives == 0 || negatives == 0 {
        let kind = match (positives, one_set) {
            (0, true) => "no class has two rows",
            (0, false) => "no gallery image is right for a query",
            (_, true) => "there is one class only",
            (_, false) => "no gallery image is wrong for a query",
        };
        return Err(fault(WHAT, format!("needs pairs of both kinds: {kind}"), None));
    }
    let queries = source.compared(&source.queries);
    let gallery = source.gallery.as_ref().map(|gallery| source.compared(gallery));
    let items = gallery.as_ref().unwrap_or(&queries);
    let distance = |(query, item): (usize, usize)| {
        let squares = queries.row(query).iter().zip(items.row(item)).map(|(a, b)| (a - b) * (a - b));
        squares.sum::<f32>().sqrt()
    };

    // The selected positive pairs, ascending, in the order of the queries.
    let mut chosen: Vec<usize> = chosen(positives, seed, "plot/positives").collect();
    chosen.sort_unstable();
    let mut of_right = Vec::with_capacity(chosen.len());
    let mut chosen = chosen.into_iter().peekable();
    let mut before = 0;
    source.each_of_a_label(|query, items| {
        if chosen.peek().is_none() {
            return;
        }
        let right = right(query, items);
        while let Some(at) = chosen.next_if(|&at| at < before + right.len()) {
            of_right.push(distance((query, right[at - before])));
        }
        before += right.len();
    });

    let place = |i: usize| if one_set { pair(i) } else { (i / m, i % m) };
    let is_wrong = |&(query, item): &(usize, usize)| rules.verdict(query, item) == Verdict::Wrong;
    let of_wrong: Vec<f32> = if negatives <= PAIRS {
        (0..all).map(place).filter(is_wrong).map(distance).collect()
    } else {
        let mut random = Random::new(seed, "plot/negatives", 0, 0);
        std::iter::repeat_with(|| place(random.below(all)))
            .filter(is_wrong)
            .take(PAIRS)
            .map(distance)
            .collect()
    };
    Ok(Distances::of(&source.name, &of_right, &of_wrong, BINS))
}

/// All of `0..count`, or [`PAIRS`] of them.
fn chosen(count: usize, seed: u64, purpose: &'static str) -> Box<dyn Iterator<Item = usize>> {
    if count <= PAIRS {
        return Box::new(0..count);
    }
    let mut random = Random::new(seed, purpose, 0, 0);
    Box::new(std::iter::repeat_with(move || random.below(count)).take(PAIRS))
}

/// The pair `i` in the order (1, 0), (2, 0), (2, 1), (3, 0)…
fn pair(i: usize) -> (usize, usize) {
    let mut a = (((8.0 * i as f64 + 1.0).sqrt() + 1.0) / 2.0) as usize;
    // The square root may round to the next integer.
    while a * (a - 1) / 2 > i {
        a -= 1;
    }
    while a * (a + 1) / 2 <= i {
        a += 1;
    }
    (a, i - a * (a - 1) / 2)
}

#[cfg(test)]
mod tests {
    use gallerist_retrieval::{EmbeddingSet, Matrix};
    use gallerist_train::EvaluationConfig;

    use super::*;
    use crate::measured::Measured;

    #[test]
    fn pairs_of_persons_leave_out_junk_and_the_querys_camera() {
        let side = |rows: usize, salt: usize| -> EmbeddingSet {
            let names = ["0002", "0007", "0000", "-1"];
            let known = if salt == 0 { 2 } else { names.len() };
            EmbeddingSet {
                labels: Some((0..rows).map(|row| names[row * 5 % known].into()).collect()),
                cameras: Some((0..rows).map(|row| format!("c{}", row * 7 % 3)).collect()),
                ..Matrix::new(rows, 1, (0..rows).map(|row| (row * 11 % 17 + salt + 1) as f32).collect())
                    .unwrap()
                    .into()
            }
        };
        let (queries, gallery) = (side(9, 0), side(40, 1));
        let (mut right, mut wrong) = (0, 0);
        let text = |list: &Option<Vec<String>>, row: usize| list.as_ref().unwrap()[row].clone();
        for query in 0..9 {
            for item in (0..40).filter(|&item| text(&gallery.labels, item) != "-1") {
                let same = text(&queries.labels, query) == text(&gallery.labels, item);
                let camera = text(&queries.cameras, query) == text(&gallery.cameras, item);
                right += u64::from(same && !camera);
                wrong += u64::from(!same);
            }
        }
        let config = EvaluationConfig { protocol: Some("market1501".into()), ..EvaluationConfig::default() };
        let measured = Measured::new(queries.clone(), Some(gallery), &config).unwrap();
        let found = histograms(&Source::new("persons".into(), measured, None).unwrap(), 1).unwrap();
        assert_eq!(
            (found.positives.iter().sum::<u64>(), found.negatives.iter().sum::<u64>()),
            (right, wrong)
        );

        // One set: each pair once.
        let config = EvaluationConfig::default();
        let one = Measured::new(side(40, 1), None, &config).unwrap();
        let found = histograms(&Source::new("one".into(), one, None).unwrap(), 1).unwrap();
        // Four classes of ten.
        assert_eq!(found.positives.iter().sum::<u64>(), 4 * 45);
        assert_eq!(found.negatives.iter().sum::<u64>(), 40 * 39 / 2 - 4 * 45);
    }

    #[test]
    fn pairs_are_numbered_without_gaps() {
        let wanted: Vec<(usize, usize)> = (1..60).flat_map(|a| (0..a).map(move |b| (a, b))).collect();
        let found: Vec<(usize, usize)> = (0..wanted.len()).map(pair).collect();
        assert_eq!(found, wanted);
        for a in [94_906_266, 3_000_000_000] {
            assert_eq!(pair(a * (a - 1) / 2), (a, 0));
            assert_eq!(pair(a * (a - 1) / 2 - 1), (a - 1, a - 2));
        }
    }
}
