//! Convolutions that are computed together, as an inverted residual block.

use super::step::{Convolution, Layer, Step, sizes};
use crate::conv::{self, InvertedResidual};
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::Products;

/// Most convolutions of a block.
const MOST: usize = 3;

/// The steps with their blocks joined, and the outputs among them. `images` are the sizes of an image.
pub(super) fn join(steps: Vec<Step>, outputs: Vec<usize>, images: Maps) -> (Vec<Step>, Vec<usize>) {
    let blocks = find(&steps, &outputs, images);
    let mut inside = vec![false; steps.len()];
    for block in blocks.iter().flatten() {
        block[..block.len() - 1].iter().for_each(|&i| inside[i] = true);
    }
    let mut joined: Vec<Step> = Vec::with_capacity(steps.len());
    // The new step of each old one; those inside of a block have no users but their block.
    let mut of = Vec::with_capacity(steps.len());
    let mut convs: Vec<Option<Step>> = Vec::with_capacity(steps.len());
    for ((step, block), inside) in steps.into_iter().zip(&blocks).zip(inside) {
        of.push(joined.len());
        convs.push(None);
        let new = |i: &usize| of[*i];
        match block {
            _ if inside => *convs.last_mut().expect("just added") = Some(step),
            None => joined.push(Step { inputs: step.inputs.iter().map(new).collect(), ..step }),
            Some(block) => {
                let mut parts: Vec<Step> =
                    block[..block.len() - 1].iter().filter_map(|&i| convs[i].take()).collect();
                let inputs = parts[0].inputs.iter().chain(&step.inputs[1..]).map(new).collect();
                parts.push(step);
                let layers = parts.into_iter().map(|part| match part.layer {
                    Layer::Conv(conv, then) => (*conv, then),
                    other => unreachable!("a block of convolutions with {other:?}"),
                });
                joined.push(Step { layer: Layer::InvertedResidual(layers.collect()), inputs });
            }
        }
    }
    let outputs = outputs.iter().map(|&i| of[i]).collect();
    (joined, outputs)
}

/// The steps of the block that ends with each step.
fn find(steps: &[Step], outputs: &[usize], images: Maps) -> Vec<Option<Vec<usize>>> {
    let sizes = sizes(steps, images);
    let mut users = vec![0; steps.len()];
    steps.iter().flat_map(|step| &step.inputs).chain(outputs).for_each(|&i| users[i] += 1);
    let mut blocks: Vec<Option<Vec<usize>>> = vec![None; steps.len()];
    for last in 0..steps.len() {
        let mut chain = Vec::new();
        let mut at = Some(last);
        while let Some(i) = at
            && chain.len() < MOST
            && let Layer::Conv(conv, then) = &steps[i].layer
            && (i == last || users[i] == 1 && steps[i].inputs.len() == 1 && blocks[i].is_none())
        {
            chain.insert(0, (i, &**conv, *then));
            at = steps[i].inputs.first().copied();
        }
        blocks[last] = (0..chain.len()).map(|first| &chain[first..]).find_map(|block| {
            let convs: Vec<(&Convolution, Activation)> =
                block.iter().map(|&(_, conv, then)| (conv, then)).collect();
            let x = sizes[steps[block[0].0].inputs[0]];
            InvertedResidual::fits(&layers(&convs, x)).then(|| block.iter().map(|&(i, ..)| i).collect())
        });
    }
    blocks
}

/// A block for inputs of these sizes.
pub(super) fn prepare(convs: &[(Convolution, Activation)], x: Maps, products: Products) -> InvertedResidual {
    let convs: Vec<(&Convolution, Activation)> = convs.iter().map(|(conv, then)| (conv, *then)).collect();
    InvertedResidual::new(&layers(&convs, x), products)
}

fn layers<'a>(convs: &[(&'a Convolution, Activation)], mut x: Maps) -> Vec<conv::Layer<'a>> {
    let layer = |&(conv, activation): &(&'a Convolution, Activation)| {
        let sizes = conv.sizes(x);
        x = sizes.output;
        conv::Layer { weight: &conv.weight.0, bias: &conv.bias, sizes, activation }
    };
    convs.iter().map(layer).collect()
}
