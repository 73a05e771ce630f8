//! Issues of image sets, against definitions in plain f64 loops and on constructed sets.

use gallerist_retrieval::issues::{IssueOptions, Issues, coincidence, find_issues};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{Error, Matrix};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

struct Normal(ChaCha8Rng);

impl Normal {
    fn next(&mut self) -> f64 {
        let unit = |random: &mut ChaCha8Rng| (random.next_u64() >> 11) as f64 / (1u64 << 53) as f64;
        let (a, b) = (1.0 - unit(&mut self.0), unit(&mut self.0));
        (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos()
    }
}

/// Classes of these sizes around random centres at distance about `apart`, in 8 dimensions.
fn clusters(sizes: &[usize], apart: f64, seed: u64) -> (Matrix, Vec<u32>) {
    const DIMENSIONS: usize = 8;
    let mut random = Normal(ChaCha8Rng::seed_from_u64(seed));
    let (mut data, mut labels) = (Vec::new(), Vec::new());
    for (class, &size) in sizes.iter().enumerate() {
        let centre: Vec<f64> = (0..DIMENSIONS).map(|_| apart / 4.0 * random.next()).collect();
        for _ in 0..size {
            data.extend(centre.iter().map(|c| (c + random.next()) as f32));
            labels.push(class as u32);
        }
    }
    (Matrix::new(labels.len(), DIMENSIONS, data).unwrap(), labels)
}

fn euclidean() -> IssueOptions {
    IssueOptions { metric: Metric::Euclidean, ..IssueOptions::default() }
}

fn distance(rows: &Matrix, a: usize, b: usize) -> f64 {
    let squared = |(x, y): (&f32, &f32)| (f64::from(*x) - f64::from(*y)).powi(2);
    rows.row(a).iter().zip(rows.row(b)).map(squared).sum::<f64>().sqrt()
}

/// The distance of a row to its own class and the nearest other class, by the definition.
fn class_distances(rows: &Matrix, labels: &[u32], radius: f64, row: usize) -> Option<(f64, u32, f64)> {
    let to_class = |class: u32| {
        let mut found: Vec<f64> = (0..rows.rows())
            .filter(|&other| other != row && labels[other] == class)
            .map(|other| distance(rows, row, other))
            .filter(|&distance| distance > radius)
            .collect();
        found.sort_by(f64::total_cmp);
        found
    };
    let mean = |of: &[f64], depth: usize| {
        let nearest = &of[..depth.min(of.len())];
        nearest.iter().sum::<f64>() / nearest.len() as f64
    };
    let own = to_class(labels[row]);
    let depth = own.len().div_ceil(2).min(5);
    let classes = *labels.iter().max().unwrap() + 1;
    let other = (0..classes)
        .filter(|&class| class != labels[row])
        .map(|class| (class, to_class(class)))
        .filter(|(_, found)| found.len() >= depth.clamp(1, 2))
        .map(|(class, found)| (class, mean(&found, depth)))
        .min_by(|a, b| a.1.total_cmp(&b.1))?;
    (depth > 0).then(|| (mean(&own, depth), other.0, other.1))
}

#[test]
fn class_distances_are_those_of_the_definition() {
    for (sizes, seed) in [(&[20, 20, 20][..], 1), (&[1, 2, 3, 4, 7, 11], 2), (&[30, 2], 3)] {
        let (rows, labels) = clusters(sizes, 3.0, seed);
        let options = IssueOptions { probability: 0.0, duplicates: 0.8, ..euclidean() };
        let found = find_issues(&rows, Some(&labels), &options).unwrap();
        let wanted: Vec<_> = (0..rows.rows())
            .filter_map(|row| Some((row, class_distances(&rows, &labels, found.duplicate_distance, row)?)))
            .collect();
        assert_eq!(found.wrong_labels.len(), wanted.len());
        for (row, (own, suggested, other)) in wanted {
            let wrong = found.wrong_labels.iter().find(|wrong| wrong.row == row).unwrap();
            assert_eq!((wrong.label, wrong.suggested), (labels[row], suggested), "row {row}");
            assert!((wrong.own_distance - own).abs() < 1e-5 * own, "row {row}");
            assert!((wrong.suggested_distance - other).abs() < 1e-5 * other, "row {row}");
            for (list, label) in [(&wrong.own, wrong.label), (&wrong.against, suggested)] {
                assert!(list.iter().all(|n| labels[n.row] == label && n.row != row));
                assert!(list.is_sorted_by(|a, b| a.distance <= b.distance));
            }
        }
        assert!(found.wrong_labels.is_sorted_by(|a, b| a.probability >= b.probability));
    }
}

#[test]
fn exchanged_labels_are_found_with_the_label_they_had() {
    let (rows, truth) = clusters(&[20; 15], 14.0, 4);
    let mut labels = truth.clone();
    for row in (0..rows.rows()).step_by(20) {
        labels[row] = (truth[row] + 3) % 15;
    }
    let found = find_issues(&rows, Some(&labels), &euclidean()).unwrap();
    let mut wrong: Vec<usize> = found.wrong_labels.iter().map(|wrong| wrong.row).collect();
    wrong.sort_unstable();
    assert_eq!(wrong, (0..rows.rows()).step_by(20).collect::<Vec<_>>());
    assert!(found.wrong_labels.iter().all(|wrong| wrong.suggested == truth[wrong.row]));
    assert!((found.noise_rate - 0.05).abs() < 0.01, "{}", found.noise_rate);
}

#[test]
fn clean_labels_of_separate_classes_have_no_issues() {
    let (rows, labels) = clusters(&[20; 10], 16.0, 5);
    let found = find_issues(&rows, Some(&labels), &euclidean()).unwrap();
    assert!(found.wrong_labels.is_empty() && found.same_class.is_empty(), "{found:?}");
    assert_eq!(found.not_judged, 0);
}

#[test]
fn copies_of_an_image_do_not_confirm_its_wrong_label() {
    let (rows, mut labels) = clusters(&[20; 6], 14.0, 6);
    // Row 0 three times more, all with the label of another class.
    let mut data = rows.as_slice().to_vec();
    data.extend(rows.row(0).repeat(3));
    labels.extend([4; 3]);
    labels[0] = 4;
    let rows = Matrix::new(labels.len(), rows.cols(), data).unwrap();
    let found = find_issues(&rows, Some(&labels), &euclidean()).unwrap();
    let mut wrong: Vec<_> = found.wrong_labels.iter().map(|wrong| (wrong.row, wrong.suggested)).collect();
    wrong.sort_unstable();
    assert_eq!(wrong, [(0, 0), (120, 0), (121, 0), (122, 0)]);
    assert_eq!(found.duplicates[0].rows, [0, 120, 121, 122]);
    assert_eq!(found.duplicates[0].distance, 0.0);
}

#[test]
fn near_duplicates_are_all_pairs_below_the_distance() {
    let (rows, labels) = clusters(&[25; 4], 4.0, 7);
    let options = IssueOptions { duplicates: 1.1, ..euclidean() };
    let found = find_issues(&rows, None, &options).unwrap();
    // Components by relabelling until nothing changes.
    let mut component: Vec<usize> = (0..rows.rows()).collect();
    loop {
        let before = component.clone();
        for a in 0..rows.rows() {
            for b in 0..rows.rows() {
                if distance(&rows, a, b) <= found.duplicate_distance {
                    component[a] = component[a].min(component[b]);
                }
            }
        }
        if before == component {
            break;
        }
    }
    let mut groups: Vec<&Vec<usize>> = found.duplicates.iter().map(|group| &group.rows).collect();
    groups.sort();
    let wanted: Vec<Vec<usize>> = (0..rows.rows())
        .map(|root| (0..rows.rows()).filter(|&row| component[row] == root).collect())
        .filter(|rows: &Vec<usize>| rows.len() > 1)
        .collect();
    assert!(!wanted.is_empty());
    assert_eq!(groups, wanted.iter().collect::<Vec<_>>());
    assert!(found.wrong_labels.is_empty() && found.same_class.is_empty());
    drop(labels);
}

#[test]
fn a_row_far_from_all_others_is_an_outlier() {
    let (rows, mut labels) = clusters(&[20; 5], 6.0, 8);
    let mut data = rows.as_slice().to_vec();
    data.extend([60.0; 8]);
    labels.push(2);
    let rows = Matrix::new(labels.len(), 8, data).unwrap();
    let found = find_issues(&rows, Some(&labels), &euclidean()).unwrap();
    assert_eq!(found.outliers[0].row, 100);
    assert!(found.outliers[0].distance > found.outlier_distance.unwrap());
    // Without spread there is no scale, and no outlier.
    let same = Matrix::new(9, 1, vec![1.0; 9]).unwrap();
    let found = find_issues(&same, None, &euclidean()).unwrap();
    assert_eq!((found.outliers.len(), found.outlier_distance), (0, None));
    assert_eq!(found.duplicates[0].rows.len(), 9);
}

#[test]
fn two_names_of_one_class_are_found() {
    let (rows, mut labels) = clusters(&[40, 20, 20, 20], 12.0, 9);
    // Every second image of the first class has another name.
    (0..40).step_by(2).for_each(|row| labels[row] = 4);
    let found = find_issues(&rows, Some(&labels), &euclidean()).unwrap();
    assert_eq!(found.same_class.len(), 1, "{:?}", found.same_class);
    let pair = &found.same_class[0];
    assert_eq!((pair.labels, pair.images), ([0, 4], [20, 20]));
    assert!((0.75..1.25).contains(&pair.mixing), "{pair:?}");
    assert!(pair.coincidence.score().abs() < 3.0, "{pair:?}");
    // An image of two mixed classes is no wrong label.
    assert!(found.wrong_labels.len() <= 2, "{:?}", found.wrong_labels);
}

#[test]
fn exchangeable_labels_have_the_expected_coincidences_on_average() {
    let (mut sum, mut squares) = (0.0, 0.0);
    for seed in 0..200 {
        let mut random = Normal(ChaCha8Rng::seed_from_u64(seed));
        let places: Vec<f64> = (0..24).map(|_| random.next()).collect();
        let neighbours: Vec<Vec<usize>> = (0..24)
            .map(|row| {
                let mut others: Vec<usize> = (0..24).filter(|&other| other != row).collect();
                others.sort_by(|&a, &b| {
                    (places[a] - places[row]).abs().total_cmp(&(places[b] - places[row]).abs())
                });
                others.truncate(3);
                others
            })
            .collect();
        let labels: Vec<bool> = (0..24).map(|row| row % 3 == 0).collect();
        let score = coincidence(&neighbours, &labels).score();
        (sum, squares) = (sum + score, squares + score * score);
    }
    let mean: f64 = sum / 200.0;
    // The standard error of the mean is 0.07, of the variance about 0.1.
    assert!(mean.abs() < 0.25, "{mean}");
    assert!((squares / 200.0 - mean * mean - 1.0).abs() < 0.4, "{squares}");
}

#[test]
fn images_alone_in_their_class_are_counted_and_not_judged() {
    let (rows, labels) = clusters(&[1, 12, 12, 2], 10.0, 10);
    let options = IssueOptions { probability: 0.0, ..euclidean() };
    let found = find_issues(&rows, Some(&labels), &options).unwrap();
    assert_eq!(found.not_judged, 1);
    assert!(found.wrong_labels.iter().all(|wrong| wrong.row != 0 && wrong.suggested != 0));
    let one_class = find_issues(&rows, Some(&vec![7; rows.rows()]), &options).unwrap();
    assert!(one_class.wrong_labels.is_empty());
}

#[test]
fn cosine_ignores_the_lengths_of_rows() {
    let (rows, mut labels) = clusters(&[15; 5], 14.0, 11);
    labels[3] = 2;
    let scaled: Vec<f32> =
        rows.as_slice().iter().enumerate().map(|(i, v)| v * f32::powi(2.0, (i / 8 % 5) as i32)).collect();
    let scaled = Matrix::new(rows.rows(), 8, scaled).unwrap();
    let options = IssueOptions::default();
    let find = |rows: &Matrix| find_issues(rows, Some(&labels), &options).unwrap();
    assert_eq!(find(&rows), find(&scaled));
    assert_eq!(find(&rows).wrong_labels[0].row, 3);
}

#[test]
fn any_number_of_threads_gives_the_same_issues() {
    let (rows, labels) = clusters(&[9, 30, 14, 22, 50], 3.0, 12);
    let options = IssueOptions { probability: 0.0, duplicates: 0.9, mixing: 0.1, ..euclidean() };
    let with = |threads: usize| -> Issues {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| find_issues(&rows, Some(&labels), &options).unwrap())
    };
    assert_eq!(with(1), with(3));
}

#[test]
fn bad_input_is_refused() {
    let (rows, labels) = clusters(&[5, 5], 3.0, 13);
    let find = |rows: &Matrix, labels: &[u32], options: IssueOptions| {
        find_issues(rows, Some(labels), &options).unwrap_err()
    };
    assert!(matches!(find(&rows, &labels[1..], euclidean()), Error::Count { wanted: 10, found: 9, .. }));
    for options in [
        IssueOptions { metric: Metric::InnerProduct, ..euclidean() },
        IssueOptions { k: 0, ..euclidean() },
        IssueOptions { per_class: 0, ..euclidean() },
        IssueOptions { probability: 1.5, ..euclidean() },
        IssueOptions { mixing: -0.1, ..euclidean() },
        IssueOptions { duplicates: f64::NAN, ..euclidean() },
        IssueOptions { outliers: f64::INFINITY, ..euclidean() },
    ] {
        assert!(matches!(find(&rows, &labels, options), Error::Option { .. }));
    }
    let zero = Matrix::new(3, 1, vec![1.0, 0.0, 0.0]).unwrap();
    assert!(matches!(
        find(&zero, &[0, 0, 1], IssueOptions::default()),
        Error::ZeroRows { row: 1, count: 2, .. }
    ));
    let nan = Matrix::new(2, 1, vec![1.0, f32::NAN]).unwrap();
    assert!(matches!(find(&nan, &[0, 1], euclidean()), Error::NonFinite { row: 1, .. }));
    assert!(matches!(find(&rows.select(&[0]), &[0], euclidean()), Error::Empty { .. }));
}
