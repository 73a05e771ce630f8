//! The cross-batch memory: a ring of the latest rows, and its state.

use std::collections::{BTreeMap, VecDeque};

use burn::tensor::{Device, Tensor, TensorData};
use gallerist_loss::cross_batch::{CrossBatchMemory, XbmConfig};
use gallerist_loss::{CrossBatchRows, Labels, LossConfig};
use proptest::prelude::*;
use serde_json::json;

fn memory(size: usize, start_step: usize, d: usize) -> CrossBatchMemory {
    CrossBatchMemory::new(&XbmConfig { size, start_step }, d)
}

/// Rows of 2 values that tell their number.
fn numbered(from: usize, count: usize) -> Tensor<2> {
    let values: Vec<f32> = (from..from + count).flat_map(|i| [i as f32, -(i as f32)]).collect();
    Tensor::from_data(TensorData::new(values, [count, 2]), &Device::flex().autodiff())
}

fn rows(memory: &CrossBatchRows<'_>) -> Vec<Vec<f32>> {
    let values: Vec<f32> = memory.embeddings.clone().into_data().try_into_vec().unwrap();
    values.chunks(2).map(<[f32]>::to_vec).collect()
}

/// Rows and labels in the order of the rows' numbers.
fn contents(kept: &CrossBatchMemory) -> Vec<(usize, Vec<u32>)> {
    let Some(memory) = kept.gallery() else { return Vec::new() };
    assert!(!memory.embeddings.is_tracked());
    let label = |j: usize| match memory.labels {
        Labels::Classes(classes) => vec![classes[j]],
        Labels::Sets(sets) => sets[j].clone(),
    };
    let mut contents: Vec<(usize, Vec<u32>)> = rows(&memory)
        .iter()
        .enumerate()
        .map(|(j, row)| {
            assert_eq!(row[1], -row[0]);
            (row[0] as usize, label(j))
        })
        .collect();
    contents.sort();
    contents
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    #[test]
    fn the_latest_rows_are_kept_with_their_labels(
        size in 1usize..20,
        batches in prop::collection::vec(0usize..25, 1..12),
        in_sets in any::<bool>(),
        stop in 0usize..12,
    ) {
        let mut kept = memory(size, 0, 2);
        let mut wanted = VecDeque::new();
        let mut number = 0;
        for (step, &n) in batches.iter().enumerate() {
            let classes: Vec<u32> = (number..number + n).map(|i| i as u32 * 65_537).collect();
            let sets: Vec<Vec<u32>> = classes.iter().map(|&c| vec![c; c as usize % 3]).collect();
            let labels = if in_sets { Labels::Sets(&sets) } else { Labels::Classes(&classes) };
            kept.push(step, &numbered(number, n), labels);
            for i in 0..n {
                wanted.push_back((number + i, if in_sets { sets[i].clone() } else { vec![classes[i]] }));
            }
            while wanted.len() > size {
                wanted.pop_front();
            }
            number += n;
            prop_assert_eq!(kept.len(), wanted.len());
            prop_assert_eq!(kept.is_empty(), wanted.is_empty());
            prop_assert_eq!(contents(&kept), Vec::from(wanted.clone()));
            if step == stop {
                // Saved and restored, it goes on with the same rows in the same places.
                let mut other = memory(size, 0, 2);
                other.restore(kept.state(), &Device::flex().autodiff()).unwrap();
                let places = |kept: &CrossBatchMemory| kept.gallery().map(|memory| rows(&memory));
                prop_assert_eq!(places(&other), places(&kept));
                prop_assert_eq!(contents(&other), contents(&kept));
                kept = other;
            }
        }
    }
}

#[test]
fn nothing_is_kept_before_the_start_step() {
    let mut kept = memory(4, 2, 2);
    for step in 0..4usize {
        assert_eq!(kept.len(), 2 * step.saturating_sub(2), "{step}");
        kept.push(step, &numbered(2 * step, 2), Labels::Classes(&[1, 2]));
    }
    assert_eq!(contents(&kept).iter().map(|row| row.0).collect::<Vec<_>>(), [4, 5, 6, 7]);
}

#[test]
fn the_gallery_is_not_changed_by_what_is_pushed_later() {
    let mut kept = memory(3, 0, 2);
    kept.push(0, &numbered(0, 3), Labels::Classes(&[0, 1, 2]));
    let before = kept.gallery().unwrap().embeddings;
    kept.push(1, &numbered(3, 2), Labels::Classes(&[3, 4]));
    assert_eq!(before.into_data(), numbered(0, 3).into_data());
}

#[test]
fn states_that_do_not_fit_are_refused_and_change_nothing() {
    let mut full = memory(4, 0, 2);
    full.push(0, &numbered(0, 6), Labels::Classes(&[0, 1, 2, 3, 4, 5]));
    let good = full.state();
    let mut sets = memory(4, 0, 2);
    sets.push(0, &numbered(0, 3), Labels::Sets(&[vec![1], vec![], vec![2, 3, 4]]));
    let of_sets = sets.state();
    let tensor = |values: &[f32], shape: [usize; 2]| TensorData::new(values.to_vec(), shape);
    let with = |state: &BTreeMap<String, TensorData>, name: &str, data: Option<TensorData>| {
        let mut state = state.clone();
        match data {
            Some(data) => state.insert(name.into(), data),
            None => state.remove(name),
        };
        state
    };
    let nan = f32::NAN;
    for bad in [
        with(&good, "embeddings", None),
        with(&good, "next", None),
        with(&good, "labels", None),
        with(&good, "embeddings", Some(tensor(&[0.0; 10], [5, 2]))),
        with(&good, "embeddings", Some(tensor(&[0.0; 12], [4, 3]))),
        with(&good, "embeddings", Some(tensor(&[], [0, 2]))),
        with(&good, "embeddings", Some(TensorData::new(vec![0.0f32; 8], [8]))),
        with(&good, "embeddings", Some(TensorData::new(vec![0.0f64; 8], [4, 2]))),
        with(&good, "next", Some(tensor(&[0.0, 4.0], [1, 2]))),
        with(&good, "next", Some(tensor(&[0.0, 1.5], [1, 2]))),
        with(&good, "next", Some(tensor(&[0.0, 1.0, 0.0, 1.0], [2, 2]))),
        with(&good, "next", Some(tensor(&[nan, 1.0], [1, 2]))),
        with(&good, "labels", Some(tensor(&[0.0; 6], [3, 2]))),
        with(&good, "labels", Some(tensor(&[0.0; 8], [2, 4]))),
        with(&good, "labels", Some(tensor(&[-1.0; 8], [4, 2]))),
        with(&good, "labels", Some(tensor(&[65536.0; 8], [4, 2]))),
        with(&good, "counts", Some(tensor(&[0.0; 8], [4, 2]))),
        with(&of_sets, "counts", None),
        with(&of_sets, "counts", Some(tensor(&[0.0, 1.0, 0.0, 3.0, 0.0, 2.0], [3, 2]))),
        with(&of_sets, "next", Some(tensor(&[0.0, 2.0], [1, 2]))),
    ] {
        let mut kept = memory(4, 0, 2);
        kept.push(0, &numbered(10, 1), Labels::Classes(&[9]));
        let what = format!("{bad:?}");
        let message = kept.restore(bad, &Device::flex()).expect_err(&what);
        assert_eq!(contents(&kept), [(10, vec![9])], "{message}");
    }
    let mut kept = memory(4, 0, 2);
    kept.restore(of_sets, &Device::flex()).unwrap();
    assert_eq!(contents(&kept), contents(&sets));
    kept.restore(BTreeMap::new(), &Device::flex()).unwrap();
    assert!(kept.is_empty() && kept.gallery().is_none());
}

#[test]
fn a_size_of_zero_and_a_loss_without_pairs_are_refused() {
    let loss = |name: &str| serde_json::from_value::<LossConfig>(json!({"name": name})).unwrap();
    assert!(XbmConfig::default().validate(&loss("rll")).is_ok());
    let error = XbmConfig { size: 0, start_step: 0 }.validate(&loss("rll")).unwrap_err();
    assert_eq!(error.to_string(), "`xbm.size` must be 1 or more, not 0");
    for name in ["softmax", "proxy_anchor", "struct_clust", "spectral_clust", "n_pair"] {
        let error = XbmConfig::default().validate(&loss(name)).unwrap_err();
        assert!(error.to_string().contains(&format!("`{name}`")), "{error}");
    }
    assert!(serde_json::from_value::<XbmConfig>(json!({"sise": 3})).is_err());
}
