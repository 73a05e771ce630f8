//! Distances of positive and negative pairs.

use gallerist_data::Random;
use gallerist_learn::Result;
use gallerist_report::figure::{self, Distances, Figure};
use gallerist_retrieval::search::Metric;

use super::{Source, fault};

/// Pairs of each kind that are drawn where there are more.
const PAIRS: usize = 1_000_000;
const BINS: usize = 80;

/// Histograms of the distances of pairs of one class and of pairs of two, for each source.
///
/// All pairs are taken, or a million of each kind drawn at random by `seed`.
///
/// # Errors
///
/// When there are no labels, or no pair of one of the kinds.
pub fn distances(sources: &[Source], seed: u64) -> Result<Figure> {
    let mut runs = Vec::new();
    for source in sources {
        runs.push(histograms(source, seed)?);
    }
    let rows = match sources.iter().all(|source| source.metric == Metric::Cosine) {
        true => "normalised embeddings".to_owned(),
        false => {
            let scaled = sources.iter().filter(|source| source.metric == Metric::Cosine);
            let names: Vec<&str> = scaled.map(|source| source.name.as_str()).collect();
            let scaled = if names.is_empty() {
                String::new()
            } else {
                format!(", normalised for {}", names.join(", "))
            };
            format!("embeddings{scaled}")
        }
    };
    let note = format!(
        "Euclidean distances of the {rows}. The overlap is the area that both histograms share when each has the area 1."
    );
    Ok(figure::distances("Distances of pairs", &note, &runs))
}

pub(crate) fn histograms(source: &Source, seed: u64) -> Result<Distances> {
    let (_, encoded) = source.labels_of_pairs("a histogram of distances")?;
    let n = source.rows.rows();
    let mut members: Vec<Vec<usize>> = vec![Vec::new(); encoded.names.len()];
    encoded.ids.iter().enumerate().for_each(|(row, &id)| members[id as usize].push(row));
    // Pair i of all positive ones: classes stand one after the other.
    let ends: Vec<usize> = members
        .iter()
        .scan(0, |end, rows| {
            *end += rows.len() * (rows.len() - 1) / 2;
            Some(*end)
        })
        .collect();
    let positives = ends.last().copied().unwrap_or(0);
    let negatives = n * (n - 1) / 2 - positives;
    if positives == 0 || negatives == 0 {
        let kind = if positives == 0 { "no class has two rows" } else { "there is one class only" };
        return Err(fault("a histogram of distances", format!("needs pairs of both kinds: {kind}"), None));
    }
    let positive = |i: usize| {
        let class = ends.partition_point(|&end| end <= i);
        let (a, b) = pair(i - if class == 0 { 0 } else { ends[class - 1] });
        (members[class][a], members[class][b])
    };
    let positives: Vec<f32> =
        chosen(positives, seed, "plot/positives").map(positive).map(|pair| distance(source, pair)).collect();
    let is_negative = |&(a, b): &(usize, usize)| encoded.ids[a] != encoded.ids[b];
    let all = n * (n - 1) / 2;
    let negatives: Vec<f32> = if negatives <= PAIRS {
        (0..all).map(pair).filter(is_negative).map(|pair| distance(source, pair)).collect()
    } else {
        let mut random = Random::new(seed, "plot/negatives", 0, 0);
        std::iter::repeat_with(|| pair(random.below(all)))
            .filter(is_negative)
            .take(PAIRS)
            .map(|pair| distance(source, pair))
            .collect()
    };
    Ok(Distances::of(&source.name, &positives, &negatives, BINS))
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
    // The square root may be rounded across a whole number.
    while a * (a - 1) / 2 > i {
        a -= 1;
    }
    while a * (a + 1) / 2 <= i {
        a += 1;
    }
    (a, i - a * (a - 1) / 2)
}

fn distance(source: &Source, (a, b): (usize, usize)) -> f32 {
    let squares = source.rows.row(a).iter().zip(source.rows.row(b)).map(|(a, b)| (a - b) * (a - b));
    squares.sum::<f32>().sqrt()
}

#[cfg(test)]
mod tests {
    use super::*;

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
