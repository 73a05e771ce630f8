//! Lloyd's k-means on the exact search.

use gallerist_util::interrupt;
use rand_chacha::ChaCha8Rng;
use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use crate::matrix::squared_distance;
use crate::random::{below, different, generator, unit};
use crate::search::{Metric, SearchOptions, search};
use crate::{Error, Matrix, Result};

/// How the first centres are chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Start {
    /// Different rows, drawn without preference.
    Rows,
    /// k-means++: rows drawn with probability proportional to the squared distance to the
    /// nearest centre chosen so far (Arthur, Vassilvitskii, 2007).
    PlusPlus,
}

/// What k-means runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KMeans {
    /// Number of clusters.
    pub clusters: usize,
    /// Runs; the one with the smallest mean squared distance is kept.
    pub starts: usize,
    /// Most assignments in one run; a run ends before when no row changes its cluster.
    pub iterations: usize,
    /// How the first centres are chosen.
    pub start: Start,
    /// Decides the choice of the first centres.
    pub seed: u64,
}

impl KMeans {
    /// As faiss clusters for the common evaluation scripts: one start from random rows, 20
    /// iterations.
    pub fn faiss20(clusters: usize, seed: u64) -> Self {
        Self { clusters, starts: 1, iterations: 20, start: Start::Rows, seed }
    }

    /// As scikit-learn's former default: the best of 10 starts by k-means++, 300 iterations each.
    /// (scikit-learn tries several candidates per centre; this is the plain form.)
    pub fn sklearn10(clusters: usize, seed: u64) -> Self {
        Self { clusters, starts: 10, iterations: 300, start: Start::PlusPlus, seed }
    }
}

gallerist_util::named_values! {
    /// The two variants of k-means that publications use.
    #[derive(Default)]
    pub enum Preset {
        /// [`KMeans::faiss20`].
        #[default]
        Faiss20 = "faiss20", "One random start, 20 iterations";
        /// [`KMeans::sklearn10`].
        Sklearn10 = "sklearn10", "Best of 10 k-means++ starts, up to 300 iterations each";
    }
}

impl Preset {
    /// The k-means of this preset.
    pub fn options(self, clusters: usize, seed: u64) -> KMeans {
        match self {
            Self::Faiss20 => KMeans::faiss20(clusters, seed),
            Self::Sklearn10 => KMeans::sklearn10(clusters, seed),
        }
    }
}

/// A k-means clustering.
#[derive(Clone, Debug, PartialEq)]
pub struct Clustering {
    /// The cluster of each row.
    pub assignments: Vec<u32>,
    /// One centre per cluster.
    pub centres: Matrix,
    /// The mean squared Euclidean distance of a row to its centre.
    pub mean_squared_distance: f64,
}

/// Clusters the rows by Lloyd's algorithm, with Euclidean distances.
///
/// A cluster that loses all its rows is moved to the row farthest from its own centre. Equal
/// distances go to the lower cluster. The same options give the same bits for any number of
/// threads.
///
/// # Errors
/// [`Error::Option`] when the number of clusters is 0 or larger than that of rows, or when there
/// are no starts or iterations; [`Error::NonFinite`] and [`Error::TooLong`].
pub fn kmeans(rows: &Matrix, options: &KMeans) -> Result<Clustering> {
    let refuse = |option, wanted, found: usize| Error::Option { option, wanted, found: found.to_string() };
    if options.clusters == 0 || options.clusters > rows.rows() {
        let wanted = "from 1 to the number of rows";
        return Err(refuse("the number of clusters", wanted, options.clusters));
    }
    if options.starts == 0 {
        return Err(refuse("the number of starts", "at least 1", 0));
    }
    if options.iterations == 0 {
        return Err(refuse("the number of iterations", "at least 1", 0));
    }
    let mut best: Option<Clustering> = None;
    for start in 0..options.starts {
        let mut random = generator(options.seed, start as u64);
        let found = lloyd(rows, options, &mut random)?;
        // The first of equals is kept.
        if best.as_ref().is_none_or(|best| found.mean_squared_distance < best.mean_squared_distance) {
            best = Some(found);
        }
    }
    Ok(best.expect("there is at least one start"))
}

fn lloyd(rows: &Matrix, options: &KMeans, random: &mut ChaCha8Rng) -> Result<Clustering> {
    let first = match options.start {
        Start::Rows => different(rows.rows(), options.clusters, random),
        Start::PlusPlus => plus_plus(rows, options.clusters, random),
    };
    let mut centres = rows.select(&first);
    let nearest = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(1) };
    let mut assignments = vec![u32::MAX; rows.rows()];
    let mut mean_squared_distance = 0.0;
    for _ in 0..options.iterations {
        let lists = search(rows, &centres, &nearest)?;
        let before =
            std::mem::replace(&mut assignments, lists.iter().map(|(indices, _)| indices[0]).collect());
        let distances: Vec<f64> = lists.iter().map(|(_, scores)| f64::from(scores[0])).collect();
        mean_squared_distance = distances.iter().map(|d| d * d).sum::<f64>() / rows.rows() as f64;
        if assignments == before {
            break;
        }
        centres = means(rows, &assignments, &distances, options.clusters);
    }
    Ok(Clustering { assignments, centres, mean_squared_distance })
}

/// The mean of each cluster's rows, summed in f64 in the order of the rows.
fn means(rows: &Matrix, assignments: &[u32], distances: &[f64], clusters: usize) -> Matrix {
    let cols = rows.cols();
    let mut members = vec![Vec::new(); clusters];
    for (row, &cluster) in assignments.iter().enumerate() {
        members[cluster as usize].push(row);
    }
    let mut farthest: Vec<usize> = Vec::new();
    if members.iter().any(Vec::is_empty) {
        farthest = (0..rows.rows()).collect();
        farthest.sort_by(|&a, &b| distances[b].total_cmp(&distances[a]).then(a.cmp(&b)));
    }
    let mut farthest = farthest.into_iter();
    for members in members.iter_mut().filter(|members| members.is_empty()) {
        members.extend(farthest.next());
    }
    let centre = |members: &Vec<usize>| {
        let mut sum = vec![0.0f64; cols];
        for &row in members {
            sum.iter_mut().zip(rows.row(row)).for_each(|(sum, &value)| *sum += f64::from(value));
        }
        sum.into_iter().map(|sum| (sum / members.len() as f64) as f32).collect::<Vec<_>>()
    };
    let data: Vec<Vec<f32>> = members.par_iter().map(centre).collect();
    Matrix::new(clusters, cols, data.concat()).expect("one centre per cluster")
}

fn plus_plus(rows: &Matrix, count: usize, random: &mut ChaCha8Rng) -> Vec<usize> {
    let mut chosen = vec![below(rows.rows(), random)];
    let mut nearest = vec![f64::INFINITY; rows.rows()];
    while chosen.len() < count {
        interrupt::point();
        let centre = rows.row(chosen[chosen.len() - 1]);
        nearest.par_iter_mut().enumerate().for_each(|(row, nearest)| {
            *nearest = nearest.min(squared_distance(rows.row(row), centre));
        });
        let total: f64 = nearest.iter().sum();
        let mut left = unit(random) * total;
        let drawn = nearest.iter().position(|&weight| {
            left -= weight;
            weight > 0.0 && left <= 0.0
        });
        // All rows are centres already, or the sum was rounded up: the first row not chosen.
        let drawn = drawn.unwrap_or_else(|| {
            (0..rows.rows()).find(|row| !chosen.contains(row)).expect("fewer centres than rows")
        });
        chosen.push(drawn);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use rand_chacha::rand_core::SeedableRng;

    use super::*;
    use crate::cluster::{agreement, normalized_mutual_information};

    /// `clusters` groups of `each` rows around points far from each other.
    fn groups(clusters: usize, each: usize) -> (Matrix, Vec<u32>) {
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut data = Vec::new();
        let mut labels = Vec::new();
        for row in 0..clusters * each {
            let class = row % clusters;
            let centre = [(class * 100) as f32, (class * class * 10) as f32, 50.0];
            data.extend(centre.map(|value| value + unit(&mut random) as f32));
            labels.push(class as u32);
        }
        (Matrix::new(clusters * each, 3, data).unwrap(), labels)
    }

    #[test]
    fn groups_far_from_each_other_are_found() {
        let (rows, labels) = groups(9, 11);
        let found = kmeans(&rows, &KMeans::sklearn10(9, 3)).unwrap();
        assert!((normalized_mutual_information(&labels, &found.assignments) - 1.0).abs() < 1e-12);
        let agreement = agreement(&rows, &labels, Metric::Euclidean, |k| KMeans::sklearn10(k, 3)).unwrap();
        assert!((agreement.ami - 1.0).abs() < 1e-12 && (agreement.pair_f1 - 1.0).abs() < 1e-12);
        assert_eq!(agreement.kmeans.clusters, 9);
    }

    #[test]
    fn every_row_is_with_its_nearest_centre_and_every_centre_is_a_mean() {
        let (rows, _) = groups(7, 13);
        let options = KMeans { iterations: 1000, ..KMeans::faiss20(5, 2) };
        let found = kmeans(&rows, &options).unwrap();
        let mut total = 0.0;
        for (row, &cluster) in found.assignments.iter().enumerate() {
            let distance = |centre| squared_distance(rows.row(row), found.centres.row(centre));
            let own = distance(cluster as usize);
            assert!((0..5).all(|centre| own <= distance(centre) * (1.0 + 1e-5)));
            total += own;
        }
        assert!((found.mean_squared_distance * 91.0 - total).abs() < 1e-3 * total);
        for cluster in 0..5 {
            let members: Vec<_> = (0..91).filter(|&row| found.assignments[row] == cluster).collect();
            for col in 0..3 {
                let sum: f64 = members.iter().map(|&row| f64::from(rows.row(row)[col])).sum();
                let centre = f64::from(found.centres.row(cluster as usize)[col]);
                assert!((sum / members.len() as f64 - centre).abs() < 1e-3);
            }
        }
    }

    #[test]
    fn duplicates_and_as_many_clusters_as_rows_leave_no_cluster_undefined() {
        let rows = Matrix::new(6, 1, vec![1.0, 1.0, 1.0, 1.0, 5.0, 5.0]).unwrap();
        for start in [Start::Rows, Start::PlusPlus] {
            for clusters in 1..=6 {
                let found = kmeans(&rows, &KMeans { start, ..KMeans::faiss20(clusters, 7) }).unwrap();
                assert!(found.centres.check_finite("centres").is_ok());
                assert!(found.assignments.iter().all(|&cluster| (cluster as usize) < clusters));
            }
        }
        assert!(kmeans(&rows, &KMeans::faiss20(7, 0)).is_err());
        assert!(kmeans(&rows, &KMeans::faiss20(0, 0)).is_err());
    }

    #[test]
    fn a_seed_gives_the_same_clusters_for_any_number_of_threads() {
        let (rows, _) = groups(11, 40);
        let run = |threads, seed| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let options = KMeans { starts: 2, ..KMeans::sklearn10(20, seed) };
            pool.install(|| kmeans(&rows, &options).unwrap())
        };
        assert_eq!(run(1, 5), run(3, 5));
        assert_ne!(run(1, 5).assignments, run(1, 6).assignments);
    }
}
