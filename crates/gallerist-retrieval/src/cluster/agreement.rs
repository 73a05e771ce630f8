//! The agreement of two partitions of the same rows.

use std::collections::BTreeMap;

/// The sizes of the classes, of the clusters and of their intersections.
struct Table {
    rows: f64,
    classes: Vec<u64>,
    clusters: Vec<u64>,
    /// (class, cluster), and the number of rows in both.
    cells: Vec<((usize, usize), u64)>,
}

impl Table {
    fn new(classes: &[u32], clusters: &[u32]) -> Self {
        assert_eq!(classes.len(), clusters.len(), "two partitions of the same rows");
        let number = |names: &[u32]| -> (Vec<usize>, Vec<u64>) {
            let mut sizes = BTreeMap::new();
            for &name in names {
                *sizes.entry(name).or_insert(0u64) += 1;
            }
            let places: BTreeMap<u32, usize> = sizes.keys().copied().zip(0..).collect();
            (names.iter().map(|name| places[name]).collect(), sizes.into_values().collect())
        };
        let (class_of, class_sizes) = number(classes);
        let (cluster_of, cluster_sizes) = number(clusters);
        let mut cells = BTreeMap::new();
        for cell in class_of.into_iter().zip(cluster_of) {
            *cells.entry(cell).or_insert(0u64) += 1;
        }
        Self {
            rows: classes.len() as f64,
            classes: class_sizes,
            clusters: cluster_sizes,
            cells: cells.into_iter().collect(),
        }
    }

    fn entropy(&self, sizes: &[u64]) -> f64 {
        let term = |&size: &u64| -(size as f64 / self.rows) * (size as f64 / self.rows).ln();
        sizes.iter().map(term).sum()
    }

    fn mutual_information(&self) -> f64 {
        let term = |&((class, cluster), size): &((usize, usize), u64)| {
            let expected = self.classes[class] as f64 * self.clusters[cluster] as f64 / self.rows;
            size as f64 / self.rows * (size as f64 / expected).ln()
        };
        self.cells.iter().map(term).sum::<f64>().max(0.0)
    }

    /// The mutual information expected of partitions with these sizes, hypergeometric model: Vinh,
    /// Epps, Bailey: Information Theoretic Measures for Clusterings Comparison, 2010, equation 24.
    fn expected_mutual_information(&self) -> f64 {
        let rows = self.classes.iter().sum::<u64>();
        let ln_factorial: Vec<f64> = std::iter::once(0.0)
            .chain((1..=rows).scan(0.0, |sum, n| {
                *sum += (n as f64).ln();
                Some(*sum)
            }))
            .collect();
        let ln_factorial = |n: u64| ln_factorial[n as usize];
        // A pair of sizes contributes the same wherever it occurs, and few sizes are distinct.
        let tally = |sizes: &[u64]| {
            let mut tally = BTreeMap::new();
            for &size in sizes {
                *tally.entry(size).or_insert(0u64) += 1;
            }
            tally
        };
        let (classes, clusters) = (tally(&self.classes), tally(&self.clusters));
        let mut sum = 0.0;
        for (&a, &times_a) in &classes {
            for (&b, &times_b) in &clusters {
                let fixed =
                    ln_factorial(a) + ln_factorial(b) + ln_factorial(rows - a) + ln_factorial(rows - b)
                        - ln_factorial(rows);
                let mut pair = 0.0;
                for n in 1.max((a + b).saturating_sub(rows))..=a.min(b) {
                    let ln_probability = fixed
                        - ln_factorial(n)
                        - ln_factorial(a - n)
                        - ln_factorial(b - n)
                        - ln_factorial(rows + n - a - b);
                    let information = (self.rows * n as f64 / (a as f64 * b as f64)).ln();
                    pair += n as f64 / self.rows * information * ln_probability.exp();
                }
                sum += (times_a * times_b) as f64 * pair;
            }
        }
        sum
    }
}

/// `2 I / (H + H)`: the mutual information over the mean of the two entropies, from 0 to 1.
///
/// Two partitions without any information, each of one part, agree: 1. It favours many clusters;
/// [`adjusted_mutual_information`] does not.
///
/// # Panics
/// When the partitions are of different length.
pub fn normalized_mutual_information(classes: &[u32], clusters: &[u32]) -> f64 {
    let table = Table::new(classes, clusters);
    let entropies = table.entropy(&table.classes) + table.entropy(&table.clusters);
    if entropies == 0.0 { 1.0 } else { 2.0 * table.mutual_information() / entropies }
}

/// `(I - E) / ((H + H) / 2 - E)`, E being the mutual information expected by chance: about 0 for
/// a random clustering, 1 for a perfect one.
///
/// Source: Vinh, Epps, Bailey, 2010, with the arithmetic mean.
///
/// # Panics
/// When the partitions are of different length.
pub fn adjusted_mutual_information(classes: &[u32], clusters: &[u32]) -> f64 {
    let table = Table::new(classes, clusters);
    let parts = (table.classes.len(), table.clusters.len());
    // One part each, or one row per part in both: the expected agreement is that of the partitions themselves.
    if parts.0 == parts.1 && (parts.0 <= 1 || parts.0 == classes.len()) {
        return 1.0;
    }
    let expected = table.expected_mutual_information();
    let mean = (table.entropy(&table.classes) + table.entropy(&table.clusters)) / 2.0;
    let range = mean - expected;
    // The range may vanish, and its sign with it.
    let range = if range < 0.0 { range.min(-f64::EPSILON) } else { range.max(f64::EPSILON) };
    (table.mutual_information() - expected) / range
}

/// The F1 of the pairs: the harmonic mean of the share of same-cluster pairs that are of one
/// class and the share of same-class pairs that are in one cluster. 0 where there is no pair.
///
/// # Panics
/// When the partitions are of different length.
pub fn pair_f1(classes: &[u32], clusters: &[u32]) -> f64 {
    let table = Table::new(classes, clusters);
    let pairs = |size: u64| (size * (size - 1) / 2) as f64;
    let both: f64 = table.cells.iter().map(|&(_, size)| pairs(size)).sum();
    let of = |sizes: &[u64]| sizes.iter().map(|&size| pairs(size)).sum::<f64>();
    let all = of(&table.classes) + of(&table.clusters);
    if all == 0.0 { 0.0 } else { 2.0 * both / all }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn close(found: f64, wanted: f64) {
        assert!((found - wanted).abs() < 1e-12, "{found} and not {wanted}");
    }

    /// Classes 0 0 1 1, clusters 0 0 0 1: I = 3/4 ln(4/3) ... worked out by cell:
    /// (0,0): 1/2 ln(4*2/(2*3)); (1,0): 1/4 ln(4*1/(2*3)); (1,1): 1/4 ln(4*1/(2*1)).
    #[test]
    fn the_hand_worked_partition_has_its_values() {
        let (classes, clusters) = ([0, 0, 1, 1], [0, 0, 0, 1]);
        let information = 0.5 * (4f64 / 3.0).ln() + 0.25 * (2f64 / 3.0).ln() + 0.25 * 2f64.ln();
        let entropies = 2f64.ln() - 0.75 * 0.75f64.ln() - 0.25 * 0.25f64.ln();
        close(normalized_mutual_information(&classes, &clusters), 2.0 * information / entropies);
        // Pairs in one cluster: 3, in one class: 2, in both: 1.
        close(pair_f1(&classes, &clusters), 2.0 / 5.0);
        // With sizes (2, 2) and (3, 1) every arrangement gives the same information, the one
        // found: nothing is left to adjust.
        close(adjusted_mutual_information(&classes, &clusters), 0.0);
    }

    /// The expectation over all 4! arrangements of the clusters, each measured.
    #[test]
    fn the_expectation_is_the_mean_over_all_arrangements() {
        let classes = [0, 0, 0, 1, 1, 2];
        let clusters = [0, 1, 1, 1, 2, 2];
        let mut sum = 0.0;
        let mut count = 0.0;
        let mut order = [0, 1, 2, 3, 4, 5];
        permute(&mut order, 0, &mut |order| {
            let arranged: Vec<u32> = order.iter().map(|&at| clusters[at]).collect();
            sum += Table::new(&classes, &arranged).mutual_information();
            count += 1.0;
        });
        assert_eq!(count, 720.0);
        close(Table::new(&classes, &clusters).expected_mutual_information(), sum / count);
    }

    fn permute(order: &mut [usize; 6], from: usize, visit: &mut impl FnMut(&[usize; 6])) {
        if from == order.len() {
            return visit(order);
        }
        for other in from..order.len() {
            order.swap(from, other);
            permute(order, from + 1, visit);
            order.swap(from, other);
        }
    }

    #[test]
    fn equal_partitions_agree_whatever_their_names() {
        let (classes, renamed) = ([5, 5, 9, 9, 1], [0, 0, 1, 1, 2]);
        close(normalized_mutual_information(&classes, &renamed), 1.0);
        close(adjusted_mutual_information(&classes, &renamed), 1.0);
        close(pair_f1(&classes, &renamed), 1.0);
        close(normalized_mutual_information(&[1, 1], &[0, 0]), 1.0);
        close(adjusted_mutual_information(&[1, 1], &[0, 0]), 1.0);
        close(adjusted_mutual_information(&[1, 2], &[0, 1]), 1.0);
        close(pair_f1(&[1, 2], &[0, 1]), 0.0);
    }
}
