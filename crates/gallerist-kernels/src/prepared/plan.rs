//! A plan and how it is run.

use burn::tensor::ops::ConvOptions;
use rayon::prelude::*;

use super::bytes::Segment;
use super::step::{self, Convolution, Fixed, Layer, Step};
use super::{blocks, layer};
use crate::buffer::Buffer;
use crate::conv::{InvertedResidual, Place, Prepared, Source};
use crate::gate::{self, Gate};
use crate::geometry::Geometry;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::product::Products;
use crate::profile;
use crate::transpose::transpose;
use crate::worker::awake;

/// A network whose layers are prepared for images of one size.
pub struct Plan {
    /// The layers that compute in int8, before all others.
    segment: Option<Segment>,
    steps: Vec<Planned>,
    outputs: Vec<usize>,
    input: Maps,
    /// The most bytes that an image takes at one time.
    bytes_per_image: usize,
}

struct Planned {
    work: Work,
    inputs: Vec<usize>,
    /// The sizes of the result for one image.
    maps: Maps,
    /// The step that joins this result with others, and the first of its channels there.
    place: Option<(usize, usize)>,
    /// Results that no later step reads.
    done: Vec<usize>,
}

enum Work {
    /// The images with the channels innermost, or nothing, where the steps that use them read the images themselves.
    Images {
        innermost: bool,
    },
    /// A result of the segment.
    Result(usize),
    Conv {
        prepared: Box<Prepared>,
        shape: [usize; 4],
        options: ConvOptions<2>,
    },
    InvertedResidual(Box<InvertedResidual>),
    Affine {
        scale: Vec<f32>,
        shift: Vec<f32>,
    },
    Activation(Activation),
    Add,
    Excite(Gate),
    ExcitedConv {
        prepared: Box<Prepared>,
        shape: [usize; 4],
        options: ConvOptions<2>,
        gate: Gate,
    },
    Concat,
    Fixed(Fixed),
}

/// Most values of images, those of 4 of 224 x 224 pixels, for which steps are so short that threads should not sleep between them.
const FEW: usize = 4 * 3 * 224 * 224;

impl Plan {
    pub(super) fn new(
        steps: Vec<Step>,
        outputs: Vec<usize>,
        input: Maps,
        products: Products,
        segment: Option<Segment>,
    ) -> Self {
        let (steps, outputs) = blocks::join(steps, outputs, input, products);
        let sizes = step::sizes(&steps, input);
        let planned = steps.into_iter().zip(&sizes).map(|(step, &maps)| {
            let work = Work::new(step.layer, step.inputs.first().map(|&i| sizes[i]), products);
            Planned { work, inputs: step.inputs, maps, place: None, done: Vec::new() }
        });
        let planned = planned.collect();
        let mut plan = Plan { segment, steps: planned, outputs, input, bytes_per_image: 0 };
        plan.place_parts();
        plan.read_images();
        plan.plan_memory();
        plan
    }

    /// Convolutions that write their result into the joined maps of their only user.
    fn place_parts(&mut self) {
        let users = step::users(self.steps.iter().map(|step| &step.inputs[..]), &self.outputs);
        for i in 0..self.steps.len() {
            if !matches!(self.steps[i].work, Work::Concat) {
                continue;
            }
            let mut channel = 0;
            for part in self.steps[i].inputs.clone() {
                let step = &mut self.steps[part];
                if matches!(step.work, Work::Conv { .. }) && users[part] == 1 {
                    step.place = Some((i, channel));
                }
                channel += step.maps.channels;
            }
        }
    }

    /// Does not write the images with the channels innermost if all steps that use them read copies of parts of them anyway.
    fn read_images(&mut self) {
        let is_images = |i: &usize| matches!(self.steps[*i].work, Work::Images { .. });
        let reads_copy = |step: &Planned| match &step.work {
            Work::Conv { shape, options, .. } => {
                let sizes = Geometry::new(self.input, *shape, options).expect("the sizes were checked");
                Prepared::reads_copy(&sizes)
            }
            Work::InvertedResidual(block) => block.reads_copy(),
            _ => false,
        };
        let needed = self.outputs.iter().any(is_images)
            || self.steps.iter().any(|step| match step.inputs.split_first() {
                Some((first, others)) => {
                    is_images(first) && !reads_copy(step) || others.iter().any(is_images)
                }
                None => false,
            });
        for step in &mut self.steps {
            if let Work::Images { innermost } = &mut step.work {
                *innermost = needed;
            }
        }
    }

    /// The last use of every result, and the memory that is in use at one time.
    fn plan_memory(&mut self) {
        let mut last: Vec<usize> = (0..self.steps.len()).collect();
        for (i, step) in self.steps.iter().enumerate() {
            step.inputs.iter().for_each(|&input| last[input] = i);
        }
        self.outputs.iter().for_each(|&output| last[output] = usize::MAX);
        let (mut live, mut most) = (0, 0);
        for i in 0..self.steps.len() {
            // Of a joined result the memory is there from its first part on; here it is counted part by part.
            let placed = |part: &usize| self.steps[*part].place.is_some_and(|(of, _)| of == i);
            let own = match self.steps[i].work {
                Work::Concat => self.steps[i]
                    .inputs
                    .iter()
                    .filter(|part| !placed(part))
                    .map(|&p| self.steps[p].maps.len())
                    .sum(),
                _ => self.values_of(i),
            };
            live += own;
            most = most.max(live);
            let done: Vec<usize> = (0..=i).filter(|&j| last[j] == i).collect();
            for &j in done.iter().filter(|j| !placed(j)) {
                live -= self.values_of(j);
            }
            self.steps[i].done = done;
        }
        let of_segment = self.segment.as_ref().map_or(0, Segment::bytes_per_image);
        self.bytes_per_image = of_segment + most * size_of::<f32>();
    }

    /// The values of a step's result for one image that are in memory of their own.
    fn values_of(&self, step: usize) -> usize {
        let Planned { work, maps, .. } = &self.steps[step];
        if matches!(work, Work::Images { innermost: false }) { 0 } else { maps.len() }
    }

    /// The most bytes that the results of an image take at one time.
    pub fn bytes_per_image(&self) -> usize {
        self.bytes_per_image
    }

    /// Channels, height and width of the images.
    pub fn input(&self) -> [usize; 3] {
        [self.input.channels, self.input.height, self.input.width]
    }

    /// The number of outputs.
    pub fn outputs(&self) -> usize {
        self.outputs.len()
    }

    /// Height, width and channels of an output for each image.
    pub fn output(&self, index: usize) -> [usize; 3] {
        let Maps { height, width, channels, .. } = self.steps[self.outputs[index]].maps;
        [height, width, channels]
    }

    /// The wanted outputs of `count` images `[count, channels, height, width]`, each `[count, height, width, channels]`.
    ///
    /// # Panics
    ///
    /// If there are not as many values as `count` images have.
    pub fn run(&self, images: &[f32], count: usize, wanted: &[bool]) -> Vec<Option<Vec<f32>>> {
        assert_eq!(images.len(), count * self.input.len(), "values of {count} images {:?}", self.input());
        match images.len() {
            0 => wanted.iter().map(|wanted| wanted.then(Vec::new)).collect(),
            1..=FEW => awake(|| self.run_steps(images, count, wanted)),
            _ => self.run_steps(images, count, wanted),
        }
    }

    fn run_steps(&self, images: &[f32], count: usize, wanted: &[bool]) -> Vec<Option<Vec<f32>>> {
        let mut values: Vec<Option<Buffer>> = self.steps.iter().map(|_| None).collect();
        let mut results: Vec<Option<Buffer>> = match &self.segment {
            Some(segment) => segment.run(images, count).into_iter().map(Some).collect(),
            None => Vec::new(),
        };
        for (i, step) in self.steps.iter().enumerate() {
            if let Work::Result(index) = step.work {
                values[i] = results[index].take();
                continue;
            }
            self.run_step(i, images, count, &mut values);
            for &done in &step.done {
                values[done] = None;
            }
        }
        let output = |(&step, wanted): (&usize, &bool)| {
            wanted.then(|| values[step].as_ref().expect("outputs are kept").to_vec())
        };
        self.outputs.iter().zip(wanted).map(output).collect()
    }

    fn run_step(&self, i: usize, images: &[f32], count: usize, values: &mut [Option<Buffer>]) {
        let step = &self.steps[i];
        let maps = Maps { images: count, ..step.maps };
        // The memory of the result, taken out so that the inputs can be read meanwhile.
        let (target, channel) = step.place.unwrap_or((i, 0));
        let pitch = self.steps[target].maps.channels;
        let in_place = matches!(step.work, Work::Conv { .. } | Work::Concat);
        let mut own = in_place.then(|| {
            let len = maps.pixels() * pitch;
            values[target].take().unwrap_or_else(|| Buffer::new(len))
        });
        let of_input = |index: usize| Maps { images: count, ..self.steps[step.inputs[index]].maps };
        let input = |index: usize| -> (&[f32], Maps) {
            let values = values[step.inputs[index]].as_deref();
            (values.expect("a step reads the results of earlier steps"), of_input(index))
        };
        // Of a step that may read the images where they are.
        let source = || match self.steps[step.inputs[0]].work {
            Work::Images { innermost: false } => {
                let Maps { height, width, channels, .. } = of_input(0);
                Source::Images { x: images, channels, area: height * width }
            }
            _ => Source::Values(input(0).0),
        };
        let result = match &step.work {
            Work::Images { innermost: false } => return,
            Work::Images { innermost: true } => innermost(images, maps),
            Work::Result(_) => unreachable!("the results of the segment are there before"),
            Work::Conv { prepared, shape, options } => {
                let mut y = own.take().expect("a convolution writes in place");
                let sizes = Geometry::new(of_input(0), *shape, options).expect("the sizes were checked");
                let add = (step.inputs.len() > 1).then(|| input(1).0);
                prepared.run(&source(), &sizes, add, Place { values: &mut y, pitch, channel });
                y
            }
            Work::InvertedResidual(block) => {
                let add = (step.inputs.len() > 1).then(|| input(1).0);
                let mut y = Buffer::new(maps.len());
                block.run(source(), count, add, &mut y);
                y
            }
            Work::Affine { scale, shift } => {
                let (x, of_x) = input(0);
                layer::by_channel(x, of_x.channels, |x, channel| x * scale[channel] + shift[channel])
            }
            Work::Activation(activation) => {
                let (x, of_x) = input(0);
                layer::activated(x, of_x.channels, *activation)
            }
            Work::Add => layer::add(input(0).0, input(1).0),
            Work::Excite(gate) => {
                let (x, of_x) = input(0);
                gate::excite(x, input(1).0, of_x, *gate)
            }
            Work::ExcitedConv { prepared, shape, options, gate } => {
                let ((x, of_x), (by, _)) = (input(0), input(1));
                let of_image = Maps { images: 1, ..of_x };
                let sizes = Geometry::new(of_image, *shape, options).expect("the sizes were checked");
                let add = (step.inputs.len() > 2).then(|| input(2).0);
                let mut y = Buffer::new(maps.len());
                let images = y.par_chunks_mut(step.maps.len()).enumerate();
                images.zip(x.par_chunks(of_image.len())).zip(by.par_chunks(of_x.channels)).for_each(
                    |(((image, y), x), by)| {
                        let add = add.map(|values| &values[image * y.len()..][..y.len()]);
                        prepared.run_scaled(x, &gate::factors(by, *gate), &sizes, add, y);
                    },
                );
                y
            }
            Work::Concat => {
                let mut y = own.take().expect("joined maps are in place");
                let mut channel = 0;
                for (index, &part) in step.inputs.iter().enumerate() {
                    let width = self.steps[part].maps.channels;
                    if self.steps[part].place != Some((i, channel)) {
                        copy_channels(input(index).0, width, &mut y, pitch, channel);
                    }
                    channel += width;
                }
                y
            }
            Work::Fixed(fixed) => {
                let (x, of_x) = input(0);
                fixed.run(x, of_x)
            }
        };
        values[target] = Some(result);
    }
}

impl Work {
    /// `x` are the sizes of the first input for one image.
    fn new(layer: Layer, x: Option<Maps>, products: Products) -> Self {
        let x = || x.expect("every layer but the images has an input");
        match layer {
            Layer::Images => Work::Images { innermost: true },
            Layer::Result { index, .. } => Work::Result(index),
            Layer::Conv(conv, then) => {
                let prepared = Box::new(prepare(&conv, x(), then, products));
                Work::Conv { prepared, shape: conv.weight.1, options: conv.options() }
            }
            Layer::ExcitedConv(conv, then, gate) => {
                let prepared = Box::new(prepare(&conv, x(), then, products));
                Work::ExcitedConv { prepared, shape: conv.weight.1, options: conv.options(), gate }
            }
            Layer::InvertedResidual(convs) => {
                Work::InvertedResidual(Box::new(blocks::prepare(&convs, x(), products)))
            }
            Layer::Affine { scale, shift } => Work::Affine { scale, shift },
            Layer::Activation(activation) => Work::Activation(activation),
            Layer::Add => Work::Add,
            Layer::Excite(gate) => Work::Excite(gate),
            Layer::Concat => Work::Concat,
            Layer::Fixed(fixed) => Work::Fixed(fixed),
        }
    }
}

fn prepare(conv: &Convolution, x: Maps, then: Activation, products: Products) -> Prepared {
    Prepared::new(&conv.weight.0, &conv.bias, &conv.sizes(x), then, products)
}

/// Images with the channels innermost.
fn innermost(images: &[f32], maps: Maps) -> Buffer {
    let _measured = profile::scope("images with the channels innermost");
    let area = maps.height * maps.width;
    let mut y = Buffer::new(maps.len());
    y.par_chunks_mut(area * maps.channels)
        .zip(images.par_chunks(area * maps.channels))
        .for_each(|(to, from)| transpose(from, maps.channels, area, to));
    y
}

/// Writes maps of `width` channels to the channels from `channel` on of maps of `pitch`.
fn copy_channels(x: &[f32], width: usize, y: &mut [f32], pitch: usize, channel: usize) {
    y.par_chunks_mut(pitch).zip(x.par_chunks(width)).with_min_len(64).for_each(|(y, x)| {
        y[channel..channel + width].copy_from_slice(x);
    });
}
