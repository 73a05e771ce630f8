//! The first weights of the heads, from the training images.

use std::sync::Arc;

use burn::module::Module;
use burn::tensor::{DType, Device, Tensor, TensorData};
use burn_linalg::svd;
use gallerist_data::{ImageSet, ImageStore, Random, Transform};

use super::RunConfig;
use crate::model::Model;
use crate::network::{HeadInit, InputShape, Network};
use crate::{Error, Result};

/// Images whose features are looked at.
const IMAGES: usize = 8192;

/// Directions with less than this share of the first one's variance are not made larger still.
const LEAST_SHARE: f64 = 1e-6;

/// Begins the heads of `network` as `network.head_init` says, from the images of `set`.
///
/// # Errors
///
/// [`Error::Value`] where a head is not linear or has more dimensions than there are images; errors of
/// reading images.
pub(super) fn begin(
    network: Network,
    config: &RunConfig,
    input: InputShape,
    set: &ImageSet,
) -> Result<Network> {
    if config.network.head_init == HeadInit::Random {
        return Ok(network);
    }
    let refused = |wanted: &str, found: String| Error::Value {
        key: "network.head_init".into(),
        wanted: wanted.into(),
        found,
    };
    let Some(features) = network.valid().features() else {
        return Err(refused("random for a network without linear heads", "pca_whitening".into()));
    };
    let widths = features.dimensions.clone();
    let mut drawn: Vec<u32> = (0..set.len() as u32).collect();
    Random::new(config.train.seed, "head init", 0, 0).shuffle(&mut drawn);
    drawn.truncate(IMAGES);
    let store = ImageStore::new(Arc::new(set.subset(&drawn)), Transform::evaluation(&config.image)?, 0);
    let model = Model::new(config.clone(), input, features).raw();
    let embedded = model.embed_items(&Arc::new(store), config.train.loader_threads, &mut |_, _| {})?;
    let rows = embedded.embeddings;
    let largest = network.dimensions.iter().copied().max().unwrap_or(0);
    if rows.rows() <= largest {
        return Err(refused(
            &format!("random, or more training images than the {largest} dimensions"),
            format!("pca_whitening and {} images", rows.rows()),
        ));
    }
    let mut network = network;
    let mut first = 0;
    for (head, width) in widths.into_iter().enumerate() {
        let part: Vec<&[f32]> = (0..rows.rows()).map(|row| &rows.row(row)[first..first + width]).collect();
        let Whitening { weight, bias } = whitening(&part, network.dimensions[head]);
        network = network.with_head(head, weight, bias);
        first += width;
    }
    Ok(network)
}

/// `y = x W + b` with uncorrelated values of the same variance, and a mean squared length of 1.
struct Whitening {
    /// `[width, dimensions]`.
    weight: Vec<f32>,
    bias: Vec<f32>,
}

/// The whitening to the first `dimensions` principal components of `rows`. Where rows are shorter than
/// that, the further components are 0.
fn whitening(rows: &[&[f32]], dimensions: usize) -> Whitening {
    let (count, width) = (rows.len() as f64, rows[0].len());
    let mut mean = vec![0f64; width];
    for row in rows {
        mean.iter_mut().zip(*row).for_each(|(m, &v)| *m += f64::from(v) / count);
    }
    let centred = rows.iter().flat_map(|row| row.iter().zip(&mean).map(|(&v, m)| f64::from(v) - m));
    let centred = TensorData::new(centred.collect(), [rows.len(), width]);
    let x = Tensor::<2>::from_data(centred, (&Device::flex(), DType::F64));
    let covariance = x.clone().transpose().matmul(x).mul_scalar(1.0 / count);
    // Of a symmetric matrix the singular vectors are the eigenvectors.
    let (vectors, variances, _) = svd::<2, 1>(covariance, SWEEPS);
    let host = |data: TensorData| data.try_into_vec::<f64>().expect("the features were given as f64");
    let (vectors, variances) = (host(vectors.into_data()), host(variances.into_data()));
    let least = variances[0] * LEAST_SHARE;
    let mut weight = vec![0f32; width * dimensions];
    let mut bias = vec![0f32; dimensions];
    for component in 0..dimensions.min(width) {
        let scale = 1.0 / (dimensions as f64 * variances[component].max(least).max(f64::MIN_POSITIVE)).sqrt();
        let direction = (0..width).map(|at| vectors[at * width + component] * scale);
        let mut shift = 0.0;
        for (at, value) in direction.enumerate() {
            weight[at * dimensions + component] = value as f32;
            shift -= mean[at] * value;
        }
        bias[component] = shift as f32;
    }
    Whitening { weight, bias }
}

/// The most that the engine's decomposition may take; it needs two or three for a singular value.
const SWEEPS: usize = 30;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whitened_rows_are_uncorrelated_with_a_mean_squared_length_of_one() {
        // Three directions of very different variance, turned and shifted.
        let mut random = Random::new(7, "a test", 0, 0);
        let mut draw = || random.between(-1.0, 1.0);
        let rows: Vec<Vec<f32>> = (0..400)
            .map(|_| {
                let [a, b, c] = [9.0 * draw(), draw(), 0.1 * draw()];
                let turned = [a + b + 5.0, a - b - 3.0, 2.0 * c + 0.5 * a, b + c];
                turned.map(|value| value as f32).to_vec()
            })
            .collect();
        let views: Vec<&[f32]> = rows.iter().map(Vec::as_slice).collect();
        let Whitening { weight, bias } = whitening(&views, 3);
        let embed = |row: &[f32], j: usize| {
            f64::from(bias[j]) + (0..4).map(|i| f64::from(row[i]) * f64::from(weight[i * 3 + j])).sum::<f64>()
        };
        for j in 0..3 {
            for k in 0..3 {
                let products = views.iter().map(|row| embed(row, j) * embed(row, k));
                let mean = products.sum::<f64>() / 400.0;
                let wanted = if j == k { 1.0 / 3.0 } else { 0.0 };
                assert!((mean - wanted).abs() < 1e-3, "{j}, {k}: {mean}");
            }
            let mean = views.iter().map(|row| embed(row, j)).sum::<f64>() / 400.0;
            assert!(mean.abs() < 1e-4, "mean {mean}");
        }
    }

    #[test]
    fn more_dimensions_than_features_stay_zero() {
        let rows = [[1.0f32, 2.0], [3.0, -1.0], [0.0, 0.5], [2.0, 2.0]];
        let views: Vec<&[f32]> = rows.iter().map(|row| &row[..]).collect();
        let Whitening { weight, bias } = whitening(&views, 4);
        assert!(weight.iter().chain(&bias).all(|value| value.is_finite()));
        assert!((0..2).all(|i| weight[i * 4 + 2] == 0.0 && weight[i * 4 + 3] == 0.0));
    }
}
