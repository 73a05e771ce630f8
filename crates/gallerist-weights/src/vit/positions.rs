//! Positions for another grid of patches.

use std::collections::BTreeMap;

use burn::tensor::TensorData;
use gallerist_data::Size;
use gallerist_nn::Network;
use gallerist_nn::graph::Op;

use crate::tensors::values;

/// Makes the positions of a file those of `network`: interpolates them where the grid of patches differs, and adds the
/// position of the class token to that token where the network has no such position. Returns both grids where it
/// interpolates.
///
/// `images` tells the size of the images that the file was trained on, if the file has it, as our own files do. Otherwise the
/// grid of the file is the square of as many patches. If there is none, it is the grid of the network.
///
/// Positions that cannot be made to fit are unchanged.
pub(crate) fn fit_positions(
    network: &Network,
    tensors: &mut BTreeMap<String, TensorData>,
    images: impl FnOnce() -> Option<Size>,
) -> Option<[[usize; 2]; 2]> {
    let tokens = network.steps.iter().find_map(|step| match &step.op {
        Op::Tokens(tokens) => Some(tokens),
        _ => None,
    })?;
    let [_, wanted, width] = tokens.pos_embed.as_ref()?.dims();
    let data = tensors.get("pos_embed")?;
    let [1, count, found_width] = data.shape()[..] else { return None };
    if found_width != width {
        return None;
    }
    let own = images().and_then(|images| grid_of(tensors, images, count));
    let area = |grid: &[usize; 2]| grid[0] * grid[1];
    let class =
        tensors.contains_key("cls_token") && has_class_position(count, area(&own.unwrap_or(tokens.grid)));
    let of_patches = count - usize::from(class);
    let fits = |grid: &[usize; 2]| area(grid) == of_patches;
    let square = square_root(of_patches).map(|side| [side; 2]);
    let from = own.filter(fits).or(square).or(Some(tokens.grid).filter(fits))?;
    if from == tokens.grid && class == tokens.has_class_position() {
        return None;
    }
    let all = values(data);
    let (first, patches) = all.split_at(if class { width } else { 0 });
    let (first, patches) = (first.to_vec(), patches.to_vec());
    let patches = if from == tokens.grid { patches } else { resample(&patches, width, from, tokens.grid) };
    let mut row = Vec::with_capacity(wanted * width);
    match (tokens.has_class_position(), class) {
        (true, true) => row.extend(&first),
        (true, false) => row.resize(width, 0.0),
        (false, true) => {
            let token = tensors.get_mut("cls_token").expect("looked for above");
            let sum = values(token).iter().zip(&first).map(|(token, position)| token + position).collect();
            *token = TensorData::new(sum, token.shape().to_vec());
        }
        (false, false) => {}
    }
    row.extend(patches);
    tensors.insert("pos_embed".into(), TensorData::new(row, [1, wanted, width]));
    (from != tokens.grid).then_some([from, tokens.grid])
}

/// The grid of the patches of images of this size, by the tensors of a file; at most `most` patches.
fn grid_of(tensors: &BTreeMap<String, TensorData>, images: Size, most: usize) -> Option<[usize; 2]> {
    let patch = *tensors.get("patch_embed.proj.weight")?.shape().to_vec().last()?;
    let (rows, columns) = (images.height.checked_div(patch)?, images.width.checked_div(patch)?);
    rows.checked_mul(columns).is_some_and(|patches| patches <= most).then_some([rows, columns])
}

/// Whether one of `count` positions is that of the class token, for a network with `area` patches.
fn has_class_position(count: usize, area: usize) -> bool {
    let is_square = |count: usize| square_root(count).is_some();
    count == area + 1 || (count != area && !is_square(count) && count.checked_sub(1).is_some_and(is_square))
}

/// The side of a square grid of so many patches.
pub(super) fn square_root(count: usize) -> Option<usize> {
    let side = count.isqrt();
    (count > 0 && side * side == count).then_some(side)
}

/// Bicubic interpolation with antialiasing of `[rows, columns, width]` values, as
/// `torch.nn.functional.interpolate(mode="bicubic", antialias=True)` does it: timm's way of changing positions.
fn resample(x: &[f32], width: usize, [rows, columns]: [usize; 2], to: [usize; 2]) -> Vec<f32> {
    let (down, across) = (weights(rows, to[0]), weights(columns, to[1]));
    let mut middle = vec![0.0f64; rows * to[1] * width];
    for row in 0..rows {
        for (j, (first, kernel)) in across.iter().enumerate() {
            let out = &mut middle[(row * to[1] + j) * width..][..width];
            for (k, weight) in kernel.iter().enumerate() {
                let from = &x[(row * columns + first + k) * width..][..width];
                out.iter_mut().zip(from).for_each(|(sum, &value)| *sum += weight * f64::from(value));
            }
        }
    }
    let mut result = Vec::with_capacity(to[0] * to[1] * width);
    let line = to[1] * width;
    for (first, kernel) in &down {
        let mut sum = vec![0.0f64; line];
        for (k, weight) in kernel.iter().enumerate() {
            let from = &middle[(first + k) * line..][..line];
            sum.iter_mut().zip(from).for_each(|(sum, &value)| *sum += weight * value);
        }
        result.extend(sum.into_iter().map(|value| value as f32));
    }
    result
}

/// For each of `to` positions, the first of `from` values that it takes, and their weights.
fn weights(from: usize, to: usize) -> Vec<(usize, Vec<f64>)> {
    let scale = from as f64 / to as f64;
    let stretch = scale.max(1.0);
    let support = 2.0 * stretch;
    let of = |i: usize| {
        let center = scale * (i as f64 + 0.5);
        let first = (center - support + 0.5).max(0.0) as usize;
        let end = ((center + support + 0.5) as usize).min(from);
        let kernel: Vec<f64> = (first..end).map(|j| cubic((j as f64 - center + 0.5) / stretch)).collect();
        let sum: f64 = kernel.iter().sum();
        (first, kernel.into_iter().map(|weight| weight / sum).collect())
    };
    (0..to).map(of).collect()
}

/// Keys' cubic kernel with a = -1/2.
fn cubic(x: f64) -> f64 {
    const A: f64 = -0.5;
    let x = x.abs();
    if x < 1.0 {
        ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
    } else if x < 2.0 {
        (((x - 5.0) * x + 8.0) * x - 4.0) * A
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn weights_sum_to_one_and_the_same_size_is_unchanged() {
        for (from, to) in [(37, 16), (16, 37), (14, 7), (1, 5), (5, 1)] {
            for (first, kernel) in weights(from, to) {
                assert!(first + kernel.len() <= from);
                assert!((kernel.iter().sum::<f64>() - 1.0).abs() < 1e-12);
            }
        }
        let x: Vec<f32> = (0..3 * 4 * 2).map(|i| (i * i % 7) as f32).collect();
        assert_eq!(resample(&x, 2, [3, 4], [3, 4]), x);
    }

    #[test]
    fn the_position_of_a_class_token_is_found_by_the_number() {
        assert!(has_class_position(197, 49) && has_class_position(50, 49) && has_class_position(1370, 256));
        assert!(
            !has_class_position(196, 49) && !has_class_position(49, 49) && !has_class_position(1369, 256)
        );
        // A grid of 2 x 28, as it was trained.
        assert!(has_class_position(57, 56) && !has_class_position(56, 56));
    }
}
