//! Layers that are computed together: the convolutions of an inverted residual block, or excitation and the convolution after it.

use super::step::{Convolution, Layer, Step, sizes, users};
use crate::conv::{self, InvertedResidual, Prepared};
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::Products;

/// Most convolutions of a block.
const MOST: usize = 3;

/// The steps with their blocks joined, and the outputs among them. `images` are the sizes of an image.
pub(super) fn join(
    steps: Vec<Step>,
    outputs: Vec<usize>,
    images: Maps,
    products: Products,
) -> (Vec<Step>, Vec<usize>) {
    let blocks = find(&steps, &outputs, images, products);
    let mut inside = vec![false; steps.len()];
    for block in blocks.iter().flatten() {
        block[..block.len() - 1].iter().for_each(|&i| inside[i] = true);
    }
    let mut steps: Vec<Option<Step>> = steps.into_iter().map(Some).collect();
    let mut joined: Vec<Step> = Vec::with_capacity(steps.len());
    // The new step of each old one; those inside of a block have no users but their block.
    let mut of = Vec::with_capacity(steps.len());
    for (i, block) in blocks.into_iter().enumerate() {
        of.push(joined.len());
        if inside[i] {
            continue;
        }
        let parts = block.unwrap_or_else(|| vec![i]).into_iter().filter_map(|i| steps[i].take());
        let mut step = joined_step(parts.collect());
        step.inputs.iter_mut().for_each(|input| *input = of[*input]);
        joined.push(step);
    }
    let outputs = outputs.iter().map(|&i| of[i]).collect();
    (joined, outputs)
}

/// The step of a block; a step alone stays as it is.
fn joined_step(mut parts: Vec<Step>) -> Step {
    if parts.len() == 1 {
        return parts.remove(0);
    }
    let added = parts[parts.len() - 1].inputs[1..].to_vec();
    let inputs = [parts[0].inputs.clone(), added].concat();
    if let Layer::Excite(gate) = parts[0].layer
        && let Some(Step { layer: Layer::Conv(conv, then), .. }) = parts.pop()
    {
        return Step { layer: Layer::ExcitedConv(conv, then, gate), inputs };
    }
    let layers = parts.into_iter().map(|part| match part.layer {
        Layer::Conv(conv, then) => (*conv, then),
        other => unreachable!("a block of convolutions with {other:?}"),
    });
    Step { layer: Layer::InvertedResidual(layers.collect()), inputs }
}

/// The steps of the block that ends with each step. A step belongs to the last block that it can be part of, and that has as many
/// steps as possible.
fn find(steps: &[Step], outputs: &[usize], images: Maps, products: Products) -> Vec<Option<Vec<usize>>> {
    let sizes = sizes(steps, images);
    let users = users(steps.iter().map(|step| &step.inputs[..]), outputs);
    let mut blocks: Vec<Option<Vec<usize>>> = vec![None; steps.len()];
    let mut taken = vec![false; steps.len()];
    for last in (0..steps.len()).rev() {
        let mut chain = Vec::new();
        let mut at = Some(last);
        while let Some(i) = at
            && chain.len() < MOST
            && let Layer::Conv(conv, then) = &steps[i].layer
            && !taken[i]
            && (i == last || users[i] == 1 && steps[i].inputs.len() == 1)
        {
            chain.insert(0, (i, &**conv, *then));
            at = steps[i].inputs.first().copied();
        }
        blocks[last] = (0..chain.len()).map(|first| &chain[first..]).find_map(|block| {
            let x = sizes[steps[block[0].0].inputs[0]];
            let layers = layers(block.iter().map(|&(_, conv, then)| (conv, then)), x);
            InvertedResidual::fits(&layers).then(|| block.iter().map(|&(i, ..)| i).collect())
        });
        if blocks[last].is_none()
            && let Layer::Conv(conv, _) = &steps[last].layer
            && let excitation = steps[last].inputs[0]
            && let Layer::Excite(_) = steps[excitation].layer
            && users[excitation] == 1
            && Prepared::scales_weight(&conv.sizes(sizes[excitation]), products)
        {
            blocks[last] = Some(vec![excitation, last]);
        }
        blocks[last].iter().flatten().for_each(|&i| taken[i] = true);
    }
    blocks
}

/// A block for inputs of these sizes.
pub(super) fn prepare(convs: &[(Convolution, Activation)], x: Maps, products: Products) -> InvertedResidual {
    InvertedResidual::new(&layers(convs.iter().map(|(conv, then)| (conv, *then)), x), products)
}

fn layers<'a>(
    convs: impl Iterator<Item = (&'a Convolution, Activation)>,
    mut x: Maps,
) -> Vec<conv::Layer<'a>> {
    let layer = |(conv, activation): (&'a Convolution, Activation)| {
        let sizes = conv.sizes(x);
        x = sizes.output;
        conv::Layer { weight: &conv.weight.0, bias: &conv.bias, sizes, activation }
    };
    convs.map(layer).collect()
}
