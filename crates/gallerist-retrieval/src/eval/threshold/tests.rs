use super::*;
use crate::Matrix;
use crate::eval::Side;
use crate::random::{below, unit};

/// The points of the unit circle at these angles.
fn circle(angles: &[f64]) -> Matrix {
    let rows = angles.iter().flat_map(|angle| [angle.cos() as f32, angle.sin() as f32]).collect();
    Matrix::new(angles.len(), 2, rows).unwrap()
}

fn every_row<'a>(rows: &'a Matrix, labels: &'a [u32]) -> Task<'a> {
    Task::every_row(Side::classes(rows, labels))
}

/// Identities at random angles, one image each, of which a share `heap` is at the angle 0. The false match rate of a
/// cosine t is known: two identities are both in the heap, or within arccos(t) of each other.
struct Population {
    heap: f64,
}

impl Population {
    fn draw(&self, identities: usize, random: &mut rand_chacha::ChaCha8Rng) -> Matrix {
        let angle = |random: &mut _| {
            let (heap, angle) = (unit(random) < self.heap, unit(random) * std::f64::consts::TAU);
            if heap { 0.0 } else { angle }
        };
        circle(&(0..identities).map(|_| angle(random)).collect::<Vec<_>>())
    }

    fn false_match_rate(&self, threshold: f32) -> f64 {
        let both = self.heap * self.heap;
        let within = f64::from(threshold).clamp(-1.0, 1.0).acos() / std::f64::consts::PI;
        if threshold > 1.0 { 0.0 } else { both + (1.0 - both) * within }
    }
}

#[test]
fn the_bound_holds_for_populations_whose_rate_is_known_and_the_measured_rate_has_no_bias() {
    let (runs, delta) = (400, 0.1);
    let limit = runs as f64 * (delta + 3.0 * (delta * (1.0 - delta) / runs as f64).sqrt());
    for (identities, heap, target) in [(40, 0.0, 0.2), (100, 0.0, 0.05), (100, 0.2, 0.1)] {
        let population = Population { heap };
        let mut random = generator(5, identities as u64);
        let labels: Vec<u32> = (0..identities as u32).collect();
        let ([mut beyond_bound, mut beyond_target], mut sum) = ([0usize; 2], 0.0);
        for _ in 0..runs {
            let rows = population.draw(identities, &mut random);
            let task = every_row(&rows, &labels);
            let options = ThresholdOptions {
                target,
                confidence: 1.0 - delta,
                splits: 0,
                guarantee: false,
                ..ThresholdOptions::default()
            };
            let plain = calibrate(&task, Metric::Cosine, &options).unwrap().rule;
            let rate = population.false_match_rate(plain.threshold);
            beyond_bound += usize::from(rate > plain.bound);
            sum += rate;
            let sure = ThresholdOptions { guarantee: true, ..options };
            let sure = calibrate(&task, Metric::Cosine, &sure).unwrap().rule;
            beyond_target += usize::from(population.false_match_rate(sure.threshold) > target);
        }
        let failures = [beyond_bound, beyond_target];
        assert!(failures.iter().all(|&count| (count as f64) < limit), "{identities} {heap}: {failures:?}");
        // The identities of a heap match all at once or not at all: there the rate only stays below.
        let mean = sum / f64::from(runs);
        let low = if heap > 0.0 { 0.0 } else { 0.9 * target };
        assert!((low..1.1 * target).contains(&mean), "{identities} {heap}: {mean}");
    }
}

#[test]
fn searches_of_unknown_identities_keep_the_bound_for_a_gallery_whose_rate_is_known() {
    // One image in the gallery: a stranger at a random angle is within arccos(t) of it with probability arccos(t) / pi.
    let (runs, delta, target) = (400, 0.1, 0.1);
    let gallery = circle(&[1.0]);
    let mut random = generator(8, 0);
    let [mut beyond_bound, mut beyond_target] = [0usize; 2];
    for _ in 0..runs {
        let angles: Vec<f64> = (0..60).map(|_| unit(&mut random) * std::f64::consts::TAU).collect();
        let (queries, labels) = (circle(&angles), (1..61).collect::<Vec<u32>>());
        let task = Task::split(Side::classes(&queries, &labels), Side::classes(&gallery, &[0]));
        for guarantee in [false, true] {
            let options = ThresholdOptions {
                rate: FalseRate::Search,
                target,
                confidence: 1.0 - delta,
                splits: 0,
                guarantee,
                seed: 0,
            };
            let found = calibrate(&task, Metric::Cosine, &options).unwrap();
            assert_eq!((found.identities, found.rule.gallery, found.rule.miss_rate), (60, Some(1), None));
            let rate = f64::from(found.rule.threshold).clamp(-1.0, 1.0).acos() / std::f64::consts::PI;
            beyond_bound += usize::from(!guarantee && rate > found.rule.bound);
            beyond_target += usize::from(guarantee && rate > target);
        }
    }
    let limit = f64::from(runs) * delta + 3.0 * (f64::from(runs) * delta * (1.0 - delta)).sqrt();
    let failures = [beyond_bound, beyond_target];
    assert!(failures.iter().all(|&count| (count as f64) < limit), "{failures:?}");
}

/// Rows of identities of 1 to 5 images, of which some are duplicates, with labels and cameras.
fn rows(identities: usize, seed: u64) -> (Matrix, Vec<u32>, Vec<u32>) {
    let mut random = generator(seed, 0);
    let (mut values, mut labels, mut cameras) = (Vec::new(), Vec::new(), Vec::new());
    for identity in 0..identities {
        let place = [(); 3].map(|()| unit(&mut random) - 0.5);
        for _ in 0..1 + below(5, &mut random) {
            let noise = if below(4, &mut random) == 0 { 0.0 } else { 0.3 };
            values.extend(place.map(|value| (value + noise * (unit(&mut random) - 0.5)) as f32));
            // Rows are not in the order of their identities.
            labels.push((identity * 7 % identities) as u32);
            cameras.push(below(2, &mut random) as u32);
        }
    }
    (Matrix::new(labels.len(), 3, values).unwrap(), labels, cameras)
}

fn distance(a: &[f32], b: &[f32]) -> f64 {
    a.iter().zip(b).map(|(a, b)| f64::from(a - b) * f64::from(a - b)).sum::<f64>().sqrt()
}

/// The rates of a distance by f64 loops over identities.
fn naive(rows: &Matrix, labels: &[u32], cameras: Option<&[u32]>, threshold: f64) -> (f64, f64) {
    let classes = distinct(labels.iter().copied());
    let of = |class: u32| (0..labels.len()).filter(move |&row| labels[row] == class);
    let share = |pairs: Vec<(usize, usize)>| {
        let within = pairs.iter().filter(|&&(a, b)| distance(rows.row(a), rows.row(b)) <= threshold);
        (!pairs.is_empty()).then(|| within.count() as f64 / pairs.len() as f64)
    };
    let (mut impostor, mut genuine) = (Vec::new(), Vec::new());
    for (at, &a) in classes.iter().enumerate() {
        for &b in &classes[at + 1..] {
            impostor.extend(share(of(a).flat_map(|x| of(b).map(move |y| (x, y))).collect()));
        }
        let pairs = of(a).flat_map(|x| of(a).map(move |y| (x, y)));
        let counted = |&(x, y): &(usize, usize)| x < y && cameras.is_none_or(|of| of[x] != of[y]);
        genuine.extend(share(pairs.filter(counted).collect()));
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    (mean(&impostor), 1.0 - mean(&genuine))
}

#[test]
fn rates_are_those_of_loops_over_identities_and_the_threshold_is_the_most_permissive() {
    let (rows, labels, cameras) = rows(50, 3);
    for cameras in [None, Some(&cameras[..])] {
        let side = Side::classes(&rows, &labels);
        let task = Task::every_row(cameras.map_or(side, |cameras| side.with_cameras(cameras)));
        for target in [0.003, 0.02, 0.1, 0.4] {
            let options = ThresholdOptions { target, ..ThresholdOptions::default() };
            let found = calibrate(&task, Metric::Euclidean, &options).unwrap();
            let rule = &found.rule;
            // The threshold is the last f32 before the closest pair that is refused.
            let accepted = f64::from(rule.threshold) - 1e-6;
            let (rate, miss) = naive(&rows, &labels, cameras, accepted);
            assert!(
                (rule.measured - rate).abs() < 1e-9 && rate <= target,
                "{target}: {} {rate}",
                rule.measured
            );
            assert!((rule.miss_rate.unwrap() - miss).abs() < 1e-9, "{:?} {miss}", rule.miss_rate);
            let next = (0..labels.len())
                .flat_map(|a| (0..a).map(move |b| (a, b)))
                .filter(|&(a, b)| labels[a] != labels[b])
                .map(|(a, b)| distance(rows.row(a), rows.row(b)))
                .filter(|&d| d > accepted)
                .fold(f64::INFINITY, f64::min);
            assert!(naive(&rows, &labels, cameras, next + 1e-6).0 > target);
            assert!(rule.near >= rule.threshold);
            assert!(rule.bound > rule.measured);
        }
    }
}

#[test]
fn a_target_allows_all_of_its_false_matches_also_where_its_product_is_rounded_down() {
    let options = |rate, target| ThresholdOptions { rate, target, splits: 0, ..ThresholdOptions::default() };
    // 0.29 * 100 is 28.999999999999996.
    let queries = Matrix::new(100, 1, (1..=100u8).map(f32::from).collect()).unwrap();
    let (gallery, labels) = (Matrix::new(1, 1, vec![0.0]).unwrap(), (1..=100).collect::<Vec<u32>>());
    let task = Task::split(Side::classes(&queries, &labels), Side::classes(&gallery, &[0]));
    let found = calibrate(&task, Metric::Euclidean, &options(FalseRate::Search, 0.29)).unwrap();
    assert_eq!((found.impostors, found.rule.measured), (100, 0.29));
    // 0.41 * 300 is 122.99999999999999.
    let mut random = generator(3, 0);
    let angles: Vec<f64> = (0..25).map(|_| unit(&mut random) * std::f64::consts::TAU).collect();
    let (rows, labels) = (circle(&angles), (0..25).collect::<Vec<u32>>());
    let found = calibrate(&every_row(&rows, &labels), Metric::Cosine, &options(FalseRate::Comparison, 0.41));
    let found = found.unwrap();
    assert_eq!((found.impostors, found.rule.measured), (300, 0.41));
}

#[test]
fn searches_take_half_of_the_identities_out_of_the_gallery() {
    let (rows, labels, _) = rows(60, 4);
    let options = ThresholdOptions { rate: FalseRate::Search, target: 0.1, ..ThresholdOptions::default() };
    let found = calibrate(&every_row(&rows, &labels), Metric::Euclidean, &options).unwrap();
    assert_eq!(found.identities, 30);
    assert_eq!(found.rule.gallery.unwrap() + found.images, labels.len());
    assert!(found.notes[0].starts_with("30 identities were taken out"), "{:?}", found.notes);
    // The same identities as queries without a match, by hand.
    let problem = every_row(&rows, &labels).classed(true).unwrap().unwrap();
    let searched = search(&problem, Metric::Euclidean, 0).unwrap();
    let unknown: HashSet<u32> =
        searched.queries.iter().filter(|search| !search.known).map(|search| search.identity).collect();
    let threshold = f64::from(found.rule.threshold) - 1e-6;
    let (mut alarms, mut misses) = (Vec::new(), Vec::new());
    for class in distinct(labels.iter().copied()) {
        let images: Vec<usize> = (0..labels.len()).filter(|&row| labels[row] == class).collect();
        let nearest = |row: usize| {
            let items = (0..labels.len()).filter(|&item| item != row && !unknown.contains(&labels[item]));
            items
                .map(|item| (distance(rows.row(row), rows.row(item)), labels[item]))
                .min_by(|a, b| a.0.total_cmp(&b.0))
                .unwrap()
        };
        let share = |is: &dyn Fn((f64, u32)) -> bool| {
            images.iter().filter(|&&row| is(nearest(row))).count() as f64 / images.len() as f64
        };
        if unknown.contains(&class) {
            alarms.push(share(&|(d, _)| d <= threshold));
        } else if images.len() > 1 {
            misses.push(share(&|(d, label)| label != class || d > threshold));
        }
    }
    let mean = |of: &[f64]| of.iter().sum::<f64>() / of.len() as f64;
    assert!((found.rule.measured - mean(&alarms)).abs() < 1e-9);
    assert!((found.rule.miss_rate.unwrap() - mean(&misses)).abs() < 1e-9);
}

#[test]
fn a_seed_gives_the_same_result_for_any_number_of_threads_and_it_survives_json() {
    let (rows, labels, _) = rows(120, 9);
    for rate in [FalseRate::Comparison, FalseRate::Search] {
        let options = ThresholdOptions { rate, target: 0.05, ..ThresholdOptions::default() };
        let run = |threads| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| calibrate(&every_row(&rows, &labels), Metric::Cosine, &options).unwrap())
        };
        let one = run(1);
        assert_eq!(one, run(3));
        let held_out = one.held_out.as_ref().unwrap();
        assert_eq!(held_out.rates.len(), 10);
        assert!((0.02..0.09).contains(&held_out.mean), "{held_out:?}");
        let read: Calibration = serde_json::from_str(&serde_json::to_string(&one).unwrap()).unwrap();
        assert_eq!(read.rule.threshold, one.rule.threshold);
    }
}

#[test]
fn too_few_identities_are_refused_with_the_smallest_rate_that_they_guarantee() {
    let (rows, labels, _) = rows(60, 2);
    let run = |rate, target, guarantee| {
        let options = ThresholdOptions { rate, target, guarantee, ..ThresholdOptions::default() };
        calibrate(&every_row(&rows, &labels), Metric::Cosine, &options)
    };
    let message = |found: Result<Calibration>| {
        let error = found.unwrap_err();
        format!("{error} | {}", error.hint().unwrap_or_default())
    };
    // 1 - 0.05^(1/30) = 0.0951.
    assert_eq!(
        message(run(FalseRate::Comparison, 0.01, true)),
        "a false match rate of 0.01 cannot be guaranteed with confidence 0.95: 60 identities guarantee 0.096 at best, 598 \
         are needed | give more identities, --far 0.096, or leave out --guarantee"
    );
    assert!(run(FalseRate::Comparison, 0.1, true).is_ok());
    let refused = message(run(FalseRate::Comparison, 1e-9, false));
    assert!(refused.contains("less than one of them may be accepted"), "{refused}");
    assert!(run(FalseRate::Comparison, 0.0, false).is_err());
    assert!(run(FalseRate::Search, 0.6, false).is_err());
    let found = run(FalseRate::Comparison, 0.01, false).unwrap();
    assert!(found.rule.bound > 0.0951 && (found.smallest_guaranteed - 0.0950).abs() < 2e-4);
    assert_eq!(found.identities_needed, 598);
}

#[test]
fn what_is_refused_for_its_classes_is_refused_before_it_is_embedded() {
    let mut random = generator(9, 0);
    let [mut accepted, mut refused] = [0; 2];
    for seed in 0..600 {
        let (rows, classes) = (2 + below(14, &mut random), 1 + below(7, &mut random));
        let mut side = || {
            let labels: Vec<u32> = (0..rows).map(|_| below(classes, &mut random) as u32).collect();
            let values = (0..2 * rows).map(|_| (unit(&mut random) + 0.1) as f32).collect();
            (Matrix::new(rows, 2, values).unwrap(), labels)
        };
        let ((queries, query_labels), (gallery, gallery_labels)) = (side(), side());
        let one_set = below(2, &mut random) == 0;
        let task = match one_set {
            true => every_row(&queries, &query_labels),
            false => {
                Task::split(Side::classes(&queries, &query_labels), Side::classes(&gallery, &gallery_labels))
            }
        };
        let known = RowClasses {
            queries: &query_labels,
            gallery: (!one_set).then_some(&gallery_labels[..]),
            junk: None,
        };
        let text = |found: Result<()>| found.map_err(|error| format!("{error} {:?}", error.hint()));
        for rate in [FalseRate::Comparison, FalseRate::Search] {
            if rate == FalseRate::Comparison && !one_set {
                continue;
            }
            for (target, guarantee) in [(0.5, true), (0.4, false), (0.1, false), (0.02, false), (0.02, true)]
            {
                let options =
                    ThresholdOptions { rate, target, guarantee, seed, ..ThresholdOptions::default() };
                let found = text(calibrate(&task, Metric::Cosine, &options).map(drop));
                assert_eq!(text(options.check_rows(&known)), found, "{known:?} {options:?}");
                if found.is_ok() { accepted += 1 } else { refused += 1 }
            }
        }
        let options = OpenSetOptions { seed, ..OpenSetOptions::default() };
        let found = text(open_set(&task, Metric::Cosine, &options).map(drop));
        assert_eq!(text(options.check_rows(&known)), found, "{known:?}");
    }
    assert!(accepted > 400 && refused > 400, "{accepted} {refused}");
}
