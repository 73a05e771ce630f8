//! The part of a plan that computes in int8: from the images on, as far as all layers have a form for bytes.
//!
//! Each image is computed on one thread through all layers, so that its maps stay in the cache; of images that are left over,
//! the threads compute rows of each layer together.

use std::ops::Range;

use rayon::prelude::*;

use super::equalize::equalize;
use super::ranges::{LayerValues, Ranges};
use super::step::{self, Convolution, Fixed, Layer, Step};
use crate::buffer::{Buffer, bytes_of, with_scratch};
use crate::disjoint::Disjoint;
use crate::maps::Maps;
use crate::norm::Activation;
use crate::pool;
use crate::profile;
use crate::quantized::{
    self, Dense, Depthwise, Layout, MOST_TAPS, Out, Position, Row, Scale, Scales, Steps, Taps, Windows,
};

/// Bytes of a cache line: where the maps of a layer start.
const LINE: usize = 64;

/// The layers that compute in int8.
pub(super) struct Segment {
    layers: Vec<Planned>,
    /// The sizes of the results that later layers read, of one image.
    results: Vec<Maps>,
    /// Bytes of the maps of an image.
    memory: usize,
}

struct Planned {
    work: Work,
    /// Earlier layers.
    inputs: Vec<usize>,
    layout: Layout,
    scale: Scale,
    /// The first byte of its maps in the memory of an image; absent: the result is in f32 only.
    place: Option<usize>,
    /// The result in f32.
    result: Option<usize>,
}

enum Work {
    Images,
    Dense { conv: Box<Dense>, positions: Vec<Position> },
    Depthwise { conv: Box<Depthwise>, stride: usize, padding: [usize; 2] },
    Max(Windows),
    Mean(Windows),
    Add,
    Concat,
}

/// The segment, the steps after it, among which are its results, and the outputs among them. `None` for ranges of another network, and where
/// not more than half of the multiplications can be done in int8.
pub(super) fn split(
    mut steps: Vec<Step>,
    outputs: Vec<usize>,
    images: Maps,
    ranges: &Ranges,
) -> Option<(Segment, Vec<Step>, Vec<usize>)> {
    let sizes = step::sizes(&steps, images);
    if !ranges.fit(sizes.iter().map(|maps| maps.channels)) {
        return None;
    }
    let mut inside: Vec<bool> = Vec::with_capacity(steps.len());
    for step in &steps {
        let of_images = |&input: &usize| matches!(steps[input].layer, Layer::Images);
        let reads_images = step.inputs.iter().any(of_images);
        let able = has_form(step, &sizes)
            && step.inputs.iter().all(|&input| inside[input])
            && (!reads_images || step.inputs.len() == 1 && is_dense(step, &sizes));
        inside.push(able);
    }
    let multiply_adds = |step: &Step| match &step.layer {
        Layer::Conv(conv, _) => {
            let sizes = conv.sizes(sizes[step.inputs[0]]);
            sizes.output.len() * sizes.window()
        }
        _ => 0,
    };
    let all: usize = steps.iter().map(multiply_adds).sum();
    let of_segment: usize =
        steps.iter().zip(&inside).filter(|(_, inside)| **inside).map(|(step, _)| multiply_adds(step)).sum();
    if 2 * of_segment <= all {
        return None;
    }
    // Results that later layers read, but for the images themselves, which these read as they are.
    let mut read = vec![false; steps.len()];
    let later = steps.iter().zip(&inside).filter(|(_, inside)| !**inside).flat_map(|(step, _)| &step.inputs);
    later.chain(&outputs).for_each(|&input| read[input] = true);
    let is_result = |i: usize| inside[i] && read[i] && !matches!(steps[i].layer, Layer::Images);
    let results: Vec<usize> = (0..steps.len()).filter(|&i| is_result(i)).collect();
    let mut values = ranges.0.clone();
    let users = step::users(steps.iter().map(|step| &step.inputs[..]), &outputs);
    for second in (0..steps.len()).filter(|&i| inside[i]) {
        if let Some(&first) = steps[second].inputs.first()
            && users[first] == 1
        {
            equalize(&mut steps, &mut values, first, second);
        }
    }
    let segment = Segment::new(&steps, &inside, &results, &sizes, &values);

    let mut kept = Vec::new();
    let mut of = vec![usize::MAX; steps.len()];
    for (i, step) in steps.into_iter().enumerate() {
        let result = results.iter().position(|&result| result == i);
        let layer = match (result, inside[i]) {
            (Some(index), _) => Layer::Result { index, maps: sizes[i] },
            (None, true) if !read[i] => continue,
            _ => step.layer,
        };
        let inputs = if result.is_some() { vec![] } else { step.inputs.iter().map(|&i| of[i]).collect() };
        of[i] = kept.len();
        kept.push(Step { layer, inputs });
    }
    Some((segment, kept, outputs.iter().map(|&i| of[i]).collect()))
}

/// Whether a layer has a form for bytes.
fn has_form(step: &Step, sizes: &[Maps]) -> bool {
    match &step.layer {
        Layer::Images | Layer::Add => true,
        Layer::Conv(conv, activation) if activation.gate().is_none() => {
            let [_, channels, height, width] = conv.weight.1;
            let sizes = conv.sizes(sizes[step.inputs[0]]);
            let is_depthwise =
                sizes.is_depthwise() && step.inputs.len() == 1 && height.max(width) <= MOST_TAPS;
            !sizes.is_of_rows() && (conv.groups == 1 && channels * height * width < 1 << 15 || is_depthwise)
        }
        Layer::Concat => {
            // All parts start with a vector.
            step.inputs.iter().all(|&part| sizes[part].channels.is_multiple_of(16))
        }
        Layer::Fixed(Fixed::MaxPool(_) | Fixed::AveragePool(_)) => true,
        _ => false,
    }
}

impl Segment {
    fn new(
        steps: &[Step],
        inside: &[bool],
        results: &[usize],
        sizes: &[Maps],
        values: &[LayerValues],
    ) -> Self {
        // The layers by their new numbers.
        let members: Vec<usize> = (0..steps.len()).filter(|&i| inside[i]).collect();
        let number =
            |i: usize| members.iter().position(|&member| member == i).expect("a layer of the segment");
        let mut layouts: Vec<Layout> =
            members.iter().map(|&i| Layout::new(sizes[i], matches!(steps[i].layer, Layer::Images))).collect();
        let mut users: Vec<Vec<usize>> = vec![vec![]; members.len()];
        for (user, &i) in members.iter().enumerate() {
            steps[i].inputs.iter().for_each(|&input| users[number(input)].push(user));
            if let Layer::Conv(conv, _) = &steps[i].layer {
                widen(&mut layouts[number(steps[i].inputs[0])], conv, sizes[i]);
            }
        }
        let mut scales: Vec<Scale> = Vec::with_capacity(members.len());
        for (index, &i) in members.iter().enumerate() {
            let scale = match &steps[i].layer {
                // The largest of some bytes is one of them.
                Layer::Fixed(Fixed::MaxPool(_)) => scales[number(steps[i].inputs[0])],
                // A part of joined maps has their scale.
                _ => match users[index][..] {
                    [user] if matches!(steps[members[user]].layer, Layer::Concat) => {
                        Scale::of(values[members[user]].range)
                    }
                    _ => Scale::of(values[i].range),
                },
            };
            scales.push(scale);
        }
        let result_of = |i: usize| results.iter().position(|&result| result == i);
        let mut layers: Vec<Planned> = Vec::with_capacity(members.len());
        for (index, &i) in members.iter().enumerate() {
            let inputs: Vec<usize> = steps[i].inputs.iter().map(|&input| number(input)).collect();
            let result = result_of(i);
            let in_f32 = result.is_some() && users[index].is_empty() && is_dense(&steps[i], sizes);
            let y = (!in_f32).then_some(scales[index]);
            let means = steps[i].inputs.first().map_or(&[][..], |&input| &values[input].means);
            let work = Work::new(&steps[i], &inputs, &layouts, &scales, index, y, sizes, means);
            let place = (!in_f32).then_some(0);
            layers.push(Planned {
                work,
                inputs,
                layout: layouts[index],
                scale: scales[index],
                place,
                result,
            });
        }
        let memory = place(&mut layers, &users);
        let results = results.iter().map(|&i| sizes[i]).collect();
        Self { layers, results, memory }
    }

    /// Bytes of an image: its maps, and the results in f32.
    pub(super) fn bytes_per_image(&self) -> usize {
        self.memory + self.results.iter().map(Maps::len).sum::<usize>() * size_of::<f32>()
    }

    /// The results for `count` images `[count, channels, height, width]`.
    pub(super) fn run(&self, images: &[f32], count: usize) -> Vec<Buffer> {
        let layers = self.layers.len();
        let _measured = profile::scope("layers in int8");
        let mut results: Vec<Buffer> =
            self.results.iter().map(|maps| Buffer::new(count * maps.len())).collect();
        let out: Vec<Disjoint<'_>> = results.iter_mut().map(|values| Disjoint::new(values)).collect();
        let image = images.len() / count;
        // Threads that have an image each, or are more than those without one, need no others.
        let threads = rayon::current_num_threads();
        let alone = if 2 * (count % threads) > threads { count } else { count - count % threads };
        let of = |i: usize| (&images[i * image..][..image], i);
        (0..alone).into_par_iter().with_max_len(1).for_each(|i| {
            with_scratch(0, self.memory / size_of::<f32>(), |memory| {
                let memory = Disjoint::new(bytes_of(memory));
                for index in 0..layers {
                    let rows = 0..self.layers[index].layout.height;
                    // SAFETY: this task alone has the memory, and the part of the results that belongs to the image.
                    unsafe {
                        self.fill_border(index, memory);
                        self.layer(index, of(i), rows, memory, &out);
                    }
                }
            });
        });
        if alone < count {
            let mut memory = Buffer::new(self.memory / size_of::<f32>());
            let memory = Disjoint::new(bytes_of(&mut memory));
            for i in alone..count {
                for index in 0..layers {
                    // SAFETY: no task is running.
                    unsafe { self.fill_border(index, memory) };
                    let height = self.layers[index].layout.height;
                    let rows = height.div_ceil(threads);
                    (0..height.div_ceil(rows)).into_par_iter().with_max_len(1).for_each(|part| {
                        let rows = part * rows..height.min((part + 1) * rows);
                        // SAFETY: the tasks have different rows of the layer's maps and result. They all read those of
                        // earlier layers only, whose tasks have ended.
                        unsafe { self.layer(index, of(i), rows, memory, &out) };
                    });
                }
            }
        }
        results
    }

    /// # Safety
    ///
    /// Nothing else accesses the layer's maps during the call.
    unsafe fn fill_border(&self, index: usize, memory: Disjoint<'_, u8>) {
        let Planned { layout, scale, place: Some(place), .. } = &self.layers[index] else { return };
        for part in layout.border() {
            // SAFETY: the caller's promise.
            unsafe { memory.slice(place + part.start, part.len()) }.fill(scale.zero);
        }
    }

    /// Rows of a layer for an image with its number.
    ///
    /// # Safety
    ///
    /// Nothing else accesses these rows of the layer's maps and of its result during the call, or writes the maps of its inputs.
    unsafe fn layer(
        &self,
        index: usize,
        (image, number): (&[f32], usize),
        rows: Range<usize>,
        memory: Disjoint<'_, u8>,
        results: &[Disjoint<'_>],
    ) {
        let Planned { work, inputs, layout, scale, place, result } = &self.layers[index];
        let maps = |index: usize| {
            let Planned { layout, scale, place, .. } = &self.layers[index];
            let place = place.expect("a result that is read as bytes has a place");
            // SAFETY: nothing writes the inputs' maps, as the caller promises.
            (unsafe { memory.read(place, layout.len()) }, layout, *scale)
        };
        let input = |i: usize| maps(inputs[i]);
        let of_result = |result: usize| results[result].starting_at(number * self.results[result].len());
        // The maps of this layer.
        let out = || memory.starting_at(place.expect("a result in f32 only is one of a convolution"));
        match work {
            // SAFETY: the caller's promise.
            Work::Images => unsafe { quantized::quantize(image, *scale, layout, rows.clone(), out()) },
            Work::Dense { conv, positions } => {
                let positions = &positions[rows.start * layout.width..rows.end * layout.width];
                let add = (inputs.len() > 1).then(|| input(1).0);
                let out = match place {
                    Some(_) => Out::Bytes(out()),
                    None => Out::Floats(of_result(result.expect("a result in f32"))),
                };
                // SAFETY: as above.
                unsafe { conv.compute(input(0).0, positions, add, out) };
            }
            Work::Depthwise { conv, stride, padding } => {
                let (x, of_x, _) = input(0);
                let steps = Steps { row: of_x.row(), pitch: of_x.pitch, stride: *stride };
                for row in rows.clone() {
                    let first = [row * stride + of_x.before[0] - padding[0], of_x.before[1] - padding[1]];
                    let row = Row {
                        from: of_x.at_border(first[0], first[1]),
                        to: layout.at(row, 0),
                        count: layout.width,
                    };
                    // SAFETY: as above.
                    unsafe { conv.compute(x, row, steps, out()) };
                }
            }
            Work::Max(windows) => {
                let (x, of_x, _) = input(0);
                // SAFETY: as above.
                unsafe { windows.max((x, of_x), layout, rows.clone(), out()) };
            }
            // SAFETY: as above.
            Work::Mean(windows) => unsafe { windows.mean(input(0), (layout, *scale), rows.clone(), out()) },
            // SAFETY: as above.
            Work::Add => unsafe {
                quantized::add([input(0), input(1)], (layout, *scale), rows.clone(), out());
            },
            Work::Concat => {
                let mut first = 0;
                for i in 0..inputs.len() {
                    let x = input(i);
                    // SAFETY: as above.
                    unsafe { quantized::concat(x, (layout, *scale), first, rows.clone(), out()) };
                    first += x.1.channels;
                }
            }
        }
        if let (Some(result), Some(place)) = (result, place) {
            let row = layout.width * layout.channels;
            let len = (rows.len() - 1) * layout.row() + layout.width * layout.pitch;
            // SAFETY: the caller's promise; these rows were just written.
            unsafe {
                let x = memory.read(place + layout.at(rows.start, 0), len);
                let y = of_result(*result).slice(rows.start * row, rows.len() * row);
                quantized::dequantize(x, layout, *scale, y);
            }
        }
    }
}

impl Work {
    /// `y` is the scale of a result in bytes, `means` are those of the channels of the first input.
    fn new(
        step: &Step,
        inputs: &[usize],
        layouts: &[Layout],
        scales: &[Scale],
        index: usize,
        y: Option<Scale>,
        sizes: &[Maps],
        means: &[f32],
    ) -> Self {
        match &step.layer {
            Layer::Images => Work::Images,
            Layer::Conv(conv, then) => {
                let x = (&layouts[inputs[0]], scales[inputs[0]]);
                let add = inputs.get(1).map(|&i| (&layouts[i], scales[i]));
                Self::conv(conv, *then, x, add, (&layouts[index], y), (sizes[step.inputs[0]], means))
            }
            Layer::Add => Work::Add,
            Layer::Concat => Work::Concat,
            Layer::Fixed(Fixed::MaxPool(options)) => {
                let windows = pool::Windows::of_max(sizes[step.inputs[0]], options);
                Work::Max(Windows(windows.expect("the sizes were checked").axes()))
            }
            Layer::Fixed(Fixed::AveragePool(options)) => {
                let means = pool::Means::new(sizes[step.inputs[0]], options);
                Work::Mean(Windows(means.expect("the sizes were checked").axes()))
            }
            other => unreachable!("{other:?} has no form for bytes"),
        }
    }

    fn conv(
        conv: &Convolution,
        then: Activation,
        (of_x, x): (&Layout, Scale),
        add: Option<(&Layout, Scale)>,
        (of_y, y): (&Layout, Option<Scale>),
        (input, means): (Maps, &[f32]),
    ) -> Self {
        let (weight, [_, _, height, width]) = &conv.weight;
        let (kernel, padding) = ([*height, *width], conv.padding.map(|(before, _)| before));
        let scales = Scales { x, add: add.map(|(_, scale)| scale), y, bounds: then.bounds().ends() };
        let expected = expected(conv, input, means);
        if conv.sizes(input).is_depthwise() {
            let packed = Depthwise::new(weight, &expected, &conv.bias, kernel, scales);
            return Work::Depthwise { conv: Box::new(packed), stride: conv.stride, padding };
        }
        let dense = Dense::new(weight, &expected, &conv.bias, Taps::new(of_x, kernel), scales);
        let position = |row: usize, column: usize| Position {
            from: of_x.at_border(
                row * conv.stride + of_x.before[0] - padding[0],
                column * conv.stride + of_x.before[1] - padding[1],
            ) as u32,
            to: match y {
                Some(_) => of_y.at(row, column),
                None => (row * of_y.width + column) * of_y.channels,
            } as u32,
            add: add.map_or(0, |(layout, _)| layout.at(row, column)) as u32,
        };
        let positions = (0..of_y.height)
            .flat_map(|row| (0..of_y.width).map(move |column| position(row, column)))
            .collect();
        Work::Dense { conv: Box::new(dense), positions }
    }
}

/// The mean of the values at each weight of a channel, `[channels, height, width]`, over all positions of the result: those
/// outside of the maps are 0.
fn expected(conv: &Convolution, x: Maps, means: &[f32]) -> Vec<f32> {
    let y = conv.sizes(x).output;
    let [_, _, height, width] = conv.weight.1;
    // The part of the positions of the result whose tap is inside.
    let inside = |axis: usize, tap: usize| {
        let (size, count) = ([x.height, x.width][axis], [y.height, y.width][axis]);
        let before = conv.padding[axis].0;
        let is_inside = |i: &usize| (before..before + size).contains(&(i * conv.stride + tap));
        (0..count).filter(is_inside).count() as f32 / count as f32
    };
    let rows: Vec<f32> = (0..height).map(|tap| inside(0, tap)).collect();
    let columns: Vec<f32> = (0..width).map(|tap| inside(1, tap)).collect();
    let of_taps = rows.iter().flat_map(|row| columns.iter().map(move |column| row * column));
    means.iter().flat_map(|mean| of_taps.clone().map(move |inside| mean * inside)).collect()
}

/// Whether a layer is a convolution of all channels with each other.
fn is_dense(step: &Step, sizes: &[Maps]) -> bool {
    matches!(&step.layer, Layer::Conv(conv, _) if !conv.sizes(sizes[step.inputs[0]]).is_depthwise())
}

/// A border for the windows of a convolution with a result of these sizes.
fn widen(x: &mut Layout, conv: &Convolution, y: Maps) {
    let kernel = [conv.weight.1[2], conv.weight.1[3]];
    for axis in 0..2 {
        let before = conv.padding[axis].0;
        let (size, count) = ([x.height, x.width][axis], [y.height, y.width][axis]);
        let after = ((count - 1) * conv.stride + kernel[axis]).saturating_sub(before + size);
        x.before[axis] = x.before[axis].max(before);
        x.after[axis] = x.after[axis].max(after);
    }
}

/// Gives every layer's maps a place in the memory of an image. Maps that no layer reads any more make room for others. Returns
/// the bytes of all.
fn place(layers: &mut [Planned], users: &[Vec<usize>]) -> usize {
    // What is taken, by its first byte: its length and the last layer that reads it.
    let mut taken: Vec<(usize, usize, usize)> = Vec::new();
    let mut memory = 0;
    for i in 0..layers.len() {
        if layers[i].place.is_none() {
            continue;
        }
        taken.retain(|&(.., last)| last >= i);
        let len = layers[i].layout.len().next_multiple_of(LINE);
        // The first gap that is large enough.
        let mut first = 0;
        for &(start, len_of_other, _) in &taken {
            if start >= first + len {
                break;
            }
            first = first.max(start + len_of_other);
        }
        let last = users[i].iter().copied().max().unwrap_or(i);
        taken.push((first, len, last));
        taken.sort_unstable();
        layers[i].place = Some(first);
        memory = memory.max(first + len);
    }
    memory
}
