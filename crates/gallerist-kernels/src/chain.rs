//! A chain of convolutions, each followed by batch norm and an activation, as one operation.
//!
//! A chain is limited by memory bandwidth. It keeps only the result of each convolution: the next layer computes the
//! normalisation and activation of a tile when it reads the tile. The sums for statistics and gradients are computed from
//! a tile that was just written and is still in the cache. So each of the feature maps is written once and read once in
//! the forward pass, and once or twice in the backward pass.

use burn::tensor::ops::ConvOptions;
use rayon::prelude::*;

use crate::buffer::Buffer;
use crate::conv::{self, Source};
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::nhwc::Contiguous;
use crate::norm::{self, Activation, Affine, Deviations, GradientSums, Linear, Moments};
use crate::profile;

/// Elements of a part of the last maps that is worked on at a time.
const PART_ELEMENTS: usize = 32 * 1024;

/// The shortcut that is added to the last normalised maps, before their activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortcut {
    None,
    /// The chain's input.
    Input,
    /// Other maps.
    Other,
}

/// The options of a layer.
#[derive(Clone, Debug)]
pub(crate) struct LayerOptions {
    pub(crate) convolution: ConvOptions<2>,
    pub(crate) epsilon: f64,
    pub(crate) activation: Activation,
    /// True: normalise by the statistics of the batch.
    pub(crate) batch_statistics: bool,
}

/// The tensors of a layer. `statistics` are the fixed mean and variance, if it does not use those of the batch.
pub(crate) struct LayerValues {
    pub(crate) weight: Contiguous,
    pub(crate) weight_shape: [usize; 4],
    pub(crate) gamma: Contiguous,
    pub(crate) beta: Contiguous,
    pub(crate) statistics: Option<[Contiguous; 2]>,
}

/// A layer after the forward pass.
struct Layer {
    weight: Contiguous,
    sizes: Geometry,
    affine: Affine,
    activation: Activation,
    batch_statistics: bool,
    /// The convolution's result; empty where it is not kept.
    maps: Buffer,
}

/// A chain after its forward pass.
pub(crate) struct Chain {
    layers: Vec<Layer>,
    shortcut: Shortcut,
}

/// The gradients of a layer that are needed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted {
    pub(crate) weight: bool,
    pub(crate) affine: bool,
}

/// Sums of the gradient of the last maps before their activation, if they are needed.
pub(crate) struct LastSums(Option<GradientSums>);

/// The gradients of a layer's parameters.
#[derive(Default)]
pub(crate) struct LayerGradients {
    pub(crate) weight: Option<Buffer>,
    pub(crate) gamma_beta: Option<[Vec<f32>; 2]>,
}

/// The gradients of a chain.
pub(crate) struct ChainGradients {
    /// `None` if it was accumulated into an earlier one.
    pub(crate) x: Option<Buffer>,
    pub(crate) layers: Vec<LayerGradients>,
}

impl Chain {
    /// The result of a chain, mean and variance of every layer that computes them from the batch, and the chain for the
    /// backward pass. Without `keep` the layers' maps are freed at once, and the next layers reuse their memory.
    pub(crate) fn forward(
        x: &[f32],
        maps: Maps,
        layers: Vec<(LayerOptions, LayerValues)>,
        shortcut: Shortcut,
        other: Option<&[f32]>,
        keep: bool,
    ) -> (Buffer, Vec<Option<Moments>>, Chain) {
        let mut done: Vec<Layer> = Vec::with_capacity(layers.len());
        let mut all_moments = Vec::with_capacity(layers.len());
        let mut input = maps;
        for (options, values) in layers {
            let sizes = Geometry::new(input, values.weight_shape, &options.convolution)
                .expect("the caller of the operation has checked the sizes");
            let source = done.last().map_or(Source::Values(x), Layer::activated);
            let channels = sizes.output.channels;
            let deviations = |_: usize, values: &mut [f32]| norm::deviations(values, channels);
            let after = options.batch_statistics.then_some(&deviations as conv::After<'_, Deviations>);
            let (result, parts) = conv::forward(&source, &values.weight, None, &sizes, after);
            let moments = options.batch_statistics.then(|| Moments::join(parts, channels));
            let [mean, variance]: [&[f32]; 2] = match (&moments, &values.statistics) {
                (Some(moments), _) => [&moments.mean, &moments.variance],
                (None, Some([mean, variance])) => [mean, variance],
                (None, None) => unreachable!("statistics are of the batch or given"),
            };
            if let (false, Some(before)) = (keep, done.last_mut()) {
                before.maps = Buffer::new(0);
            }
            let ranks = moments.as_ref().and_then(|moments| moments.ranks.clone());
            let affine =
                Affine::new(&values.gamma, &values.beta, mean, variance, options.epsilon).over(ranks);
            input = sizes.output;
            done.push(Layer {
                weight: values.weight,
                sizes,
                affine,
                activation: options.activation,
                batch_statistics: options.batch_statistics,
                maps: result,
            });
            all_moments.push(moments);
        }
        let last = done.last_mut().expect("a chain has a layer");
        let other = if shortcut == Shortcut::Input { Some(x) } else { other };
        let y = norm::apply(&last.maps, &last.affine, other, last.activation);
        if !keep {
            last.maps = Buffer::new(0);
        }
        (y, all_moments, Chain { layers: done, shortcut })
    }

    /// Sizes of the result.
    pub(crate) fn output(&self) -> Maps {
        self.last().sizes.output
    }

    /// Whether [`Chain::backward`] can accumulate into an earlier gradient.
    pub(crate) fn accumulates(&self) -> bool {
        !self.layers[0].sizes.is_depthwise()
    }

    /// Whether [`Chain::mask`] comes before [`Chain::backward`].
    pub(crate) fn masks(&self) -> bool {
        self.needs_result() || self.last().activation.is_costly()
    }

    /// Whether [`Chain::mask`] needs the result: something is added to the last normalised maps before their activation.
    pub(crate) fn needs_result(&self) -> bool {
        self.shortcut != Shortcut::None && self.last().activation != Activation::None
    }

    /// Turns `dy`, the gradient of the result `y`, in place into the gradient of the last maps before their activation.
    /// This is also the gradient of the shortcut.
    ///
    /// # Panics
    ///
    /// If the result is [needed](Self::needs_result) and not given.
    pub(crate) fn mask(&self, y: Option<&[f32]>, dy: &mut [f32], wanted: Wanted) -> LastSums {
        let _measured = profile::scope("batch norm, sums of the gradient");
        let (last, part) = (self.last(), self.part());
        let y = self.needs_result().then(|| y.expect("the result of a chain that needs it"));
        let parts = dy.par_chunks_mut(part).enumerate().map(|(index, dy)| {
            let first = index * part;
            let Some(y) = y else { return last.mask(first, dy, last.needs_sums(wanted)) };
            norm::mask_by_result(&y[first..][..dy.len()], dy, last.activation);
            last.sum(first, dy, Activation::None, wanted)
        });
        last.join(parts.collect())
    }

    /// The sums of the gradient of the last maps before their activation from `dy`, the gradient of the result that
    /// [`Chain::mask`] has not changed.
    pub(crate) fn sum(&self, dy: &[f32], wanted: Wanted) -> LastSums {
        let _measured = profile::scope("batch norm, sums of the gradient");
        let (last, part) = (self.last(), self.part());
        let tasks = dy.par_chunks(part).enumerate();
        last.join(tasks.map(|(index, dy)| last.sum(index * part, dy, last.activation, wanted)).collect())
    }

    fn last(&self) -> &Layer {
        self.layers.last().expect("a chain has a layer")
    }

    /// Elements of a part of the last maps.
    fn part(&self) -> usize {
        let channels = self.output().channels;
        (PART_ELEMENTS / channels).max(1) * channels
    }

    /// The needed gradients from `dy`, the gradient of the result after [`Chain::mask`], and its sums. The gradient of `x` is
    /// accumulated into `earlier`, if there is one ([`Chain::accumulates`]).
    pub(crate) fn backward(
        &self,
        x: &[f32],
        dy: &[f32],
        LastSums(mut sums): LastSums,
        x_wanted: bool,
        mut earlier: Option<&mut [f32]>,
        wanted: &[Wanted],
    ) -> ChainGradients {
        let count = self.layers.len();
        let mut gradients: Vec<LayerGradients> = Vec::with_capacity(count);
        // The activation between `dy` and the last normalised maps. It is applied when `dy` is read, which costs less than
        // a pass that writes its gradient.
        let mut activation = if self.masks() { Activation::None } else { self.last().activation };
        let mut of_inner: Option<Buffer> = None;
        let mut of_x = None;
        for k in (0..count).rev() {
            let layer = &self.layers[k];
            let mut own = LayerGradients::default();
            let normalised = of_inner.as_deref().unwrap_or(dy);
            let linear = layer.linear(sums.as_ref(), activation);
            let dz = layer.result_gradient(normalised, linear.as_ref(), activation);
            activation = Activation::None;
            let below = k.checked_sub(1).map(|below| &self.layers[below]);
            let source = below.map_or(Source::Values(x), Layer::activated);
            let mut dx = None;
            let mut parts = vec![];
            let needed =
                if k > 0 { wanted[..k].iter().any(|w| w.weight || w.affine) || x_wanted } else { x_wanted };
            if needed {
                let sums_below = below.is_some_and(|below| below.needs_sums(wanted[k - 1]));
                let after =
                    |first: usize, dx: &mut [f32]| self.complete_part(below, sums_below, dy, first, dx);
                let after: conv::After<'_, Option<[Vec<f64>; 2]>> = &after;
                let (after, sizes) = (Some(after), &layer.sizes);
                let earlier = if k == 0 { earlier.take() } else { None };
                (dx, parts) = if wanted[k].weight {
                    let both = conv::both_gradients(&source, &layer.weight, &dz, sizes, earlier, after);
                    own.weight = Some(both.weight);
                    (both.input, both.parts)
                } else {
                    conv::input_gradient(&layer.weight, &dz, sizes, earlier, after)
                };
            } else if wanted[k].weight {
                own.weight = Some(conv::weight_gradient(&source, &dz, &layer.sizes));
            }
            if wanted[k].affine {
                own.gamma_beta = sums.take().map(|sums| [sums.gamma, sums.beta]);
            }
            gradients.push(own);
            if !needed {
                gradients.resize_with(count, LayerGradients::default);
                break;
            }
            match below {
                Some(below) => {
                    let parts: Option<Vec<_>> = parts.into_iter().collect();
                    sums = parts
                        .map(|parts| GradientSums::join(parts, &below.affine, below.sizes.output.pixels()));
                    of_inner = dx;
                }
                None => of_x = dx,
            }
        }
        gradients.reverse();
        ChainGradients { x: of_x, layers: gradients }
    }

    /// Completes a part of the gradient of a layer's input, from element `first` on, while it is in the cache. Before the
    /// layer `below` the activation is applied in place, and the sums that this layer needs are returned. At the chain's
    /// start the gradient of the shortcut is accumulated; `dy` is the gradient of the result.
    fn complete_part(
        &self,
        below: Option<&Layer>,
        sums_below: bool,
        dy: &[f32],
        first: usize,
        dx: &mut [f32],
    ) -> Option<[Vec<f64>; 2]> {
        let Some(below) = below else {
            if self.shortcut == Shortcut::Input {
                norm::add(&dy[first..][..dx.len()], dx);
            }
            return None;
        };
        below.mask(first, dx, sums_below)
    }
}

impl Layer {
    fn activated(&self) -> Source<'_> {
        Source::Activated { x: &self.maps, affine: &self.affine, activation: self.activation }
    }

    /// The gradient of the normalisation as a function of each value; `None` if it is only scaled.
    fn linear(&self, sums: Option<&GradientSums>, activation: Activation) -> Option<Linear<'_>> {
        let sums = sums.filter(|_| self.batch_statistics);
        (sums.is_some() || activation != Activation::None).then(|| Linear::new(&self.affine, sums))
    }

    /// The gradient of the convolution's result from `dy`, the gradient after normalisation and `activation`.
    fn result_gradient<'a>(
        &'a self,
        dy: &'a [f32],
        linear: Option<&'a Linear<'a>>,
        activation: Activation,
    ) -> Source<'a> {
        match linear {
            Some(linear) => Source::Gradient { x: &self.maps, dy, linear, activation },
            None => Source::Scaled { dy, affine: &self.affine },
        }
    }

    fn needs_sums(&self, wanted: Wanted) -> bool {
        self.batch_statistics || wanted.affine
    }

    /// Applies the gradient of the activation to a part of `dy`, from element `first` on, in place; with `sums` the sums of the
    /// part are returned.
    fn mask(&self, first: usize, dy: &mut [f32], sums: bool) -> Option<[Vec<f64>; 2]> {
        let x = &self.maps[first..][..dy.len()];
        if sums {
            return Some(norm::mask_and_sum_rows(x, dy, &self.affine, self.activation));
        }
        norm::mask_rows(x, dy, &self.affine, self.activation);
        None
    }

    /// The sums of a part of the gradient, from element `first` on, if they are needed. `dy` is the gradient after
    /// `activation`.
    fn sum(&self, first: usize, dy: &[f32], activation: Activation, wanted: Wanted) -> Option<[Vec<f64>; 2]> {
        let x = &self.maps[first..][..dy.len()];
        self.needs_sums(wanted).then(|| norm::sum_rows(x, dy, &self.affine, activation))
    }

    /// Joins the sums of all parts, if there are any. The parts are collected before this: a parallel collection into an
    /// `Option` stops at the first `None`, and the parts also mask the gradient.
    fn join(&self, parts: Vec<Option<[Vec<f64>; 2]>>) -> LastSums {
        let parts: Option<Vec<_>> = parts.into_iter().collect();
        LastSums(parts.map(|parts| GradientSums::join(parts, &self.affine, self.sizes.output.pixels())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nhwc::contiguous_tensor;

    fn parameter(values: &[f32]) -> Contiguous {
        let mut buffer = Buffer::new(values.len());
        buffer.copy_from_slice(values);
        Contiguous::of(&contiguous_tensor(buffer, [values.len()]))
    }

    #[test]
    #[cfg_attr(miri, ignore = "a million elements; the pointers are those of `conv`")]
    fn without_sums_every_part_of_the_last_gradient_is_masked() {
        // 1 x 1 convolution by the identity, nothing normalised, ReLU; 40 parts.
        let channels = 2;
        let maps = Maps { images: 1, height: 640, width: 1024, channels };
        let x: Vec<f32> = (0..maps.pixels() * channels).map(|i| ((i * 7919) % 201) as f32 - 100.0).collect();
        assert!(x.len() / PART_ELEMENTS >= 40);
        let options = LayerOptions {
            convolution: ConvOptions::new([1, 1], [0, 0], [1, 1], 1),
            epsilon: 0.0,
            activation: Activation::Relu,
            batch_statistics: false,
        };
        let values = LayerValues {
            weight: parameter(&[1.0, 0.0, 0.0, 1.0]),
            weight_shape: [2, 2, 1, 1],
            gamma: parameter(&[1.0; 2]),
            beta: parameter(&[0.0; 2]),
            statistics: Some([parameter(&[0.0; 2]), parameter(&[1.0; 2])]),
        };
        let layers = vec![(options, values)];
        let (y, _, chain) = Chain::forward(&x, maps, layers, Shortcut::None, None, true);
        let dy = vec![1.0; y.len()];
        let nothing = Wanted { weight: false, affine: false };
        let sums = chain.sum(&dy, nothing);
        let dx = chain.backward(&x, &dy, sums, true, None, &[nothing]).x.unwrap();
        for (i, (&x, &dx)) in x.iter().zip(dx.iter()).enumerate() {
            assert_eq!(dx, if x > 0.0 { 1.0 } else { 0.0 }, "element {i}");
        }
    }
}
