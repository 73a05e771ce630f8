use burn::tensor::ops::{AvgPoolOptions, MaxPoolOptions};

use super::*;
use crate::gate::Gate;
use crate::norm::Activation;
use crate::product::Products;

/// Maps `[height][width][channels]` in f64.
#[derive(Clone)]
struct Image {
    sides: [usize; 2],
    channels: usize,
    values: Vec<f64>,
}

impl Image {
    fn at(&self, i: isize, j: isize, channel: usize) -> f64 {
        let [height, width] = self.sides;
        match (usize::try_from(i), usize::try_from(j)) {
            (Ok(i), Ok(j)) if i < height && j < width => {
                self.values[(i * width + j) * self.channels + channel]
            }
            _ => 0.0,
        }
    }

    /// The convolution, by the definition.
    fn conv(&self, conv: &Convolution) -> Image {
        let (weight, [out, inputs, size, _]) = (&conv.weight.0, conv.weight.1);
        let sides = [0, 1].map(|axis| {
            let (before, after) = conv.padding[axis];
            (self.sides[axis] + before + after - size) / conv.stride + 1
        });
        let of_group = out / conv.groups;
        let mut values = Vec::new();
        for (i, j) in (0..sides[0]).flat_map(|i| (0..sides[1]).map(move |j| (i, j))) {
            for o in 0..out {
                let mut sum = f64::from(conv.bias[o]);
                for (c, a, b) in
                    (0..inputs).flat_map(|c| (0..size).flat_map(move |a| (0..size).map(move |b| (c, a, b))))
                {
                    let place = |axis: usize, i: usize, a: usize| {
                        (i * conv.stride + a) as isize - conv.padding[axis].0 as isize
                    };
                    let x = self.at(place(0, i, a), place(1, j, b), o / of_group * inputs + c);
                    sum += x * f64::from(weight[((o * inputs + c) * size + a) * size + b]);
                }
                values.push(sum);
            }
        }
        Image { sides, channels: out, values }
    }

    fn map(&self, f: impl Fn(f64, usize) -> f64) -> Image {
        let values = self.values.iter().enumerate().map(|(i, &x)| f(x, i % self.channels)).collect();
        Image { values, ..self.clone() }
    }

    fn plus(&self, other: &Image) -> Image {
        let values = self.values.iter().zip(&other.values).map(|(x, y)| x + y).collect();
        Image { values, ..self.clone() }
    }

    fn beside(&self, other: &Image) -> Image {
        let parts = self.values.chunks(self.channels).zip(other.values.chunks(other.channels));
        let values = parts.flat_map(|(x, y)| x.iter().chain(y)).copied().collect();
        Image { sides: self.sides, channels: self.channels + other.channels, values }
    }
}

fn numbers(count: usize, seed: usize) -> Vec<f32> {
    (0..count).map(|i| ((i * 7919 + seed * 104_729) % 2003) as f32 / 1001.5 - 1.0).collect()
}

fn convolution([out, inputs]: [usize; 2], size: usize, stride: usize, groups: usize) -> Convolution {
    let shape = [out, inputs / groups, size, size];
    Convolution {
        weight: (numbers(shape.iter().product(), size + out), shape),
        bias: numbers(out, 3),
        stride,
        padding: [(size / 2, size / 2); 2],
        groups,
    }
}

fn assert_near(found: &[f32], wanted: &[f64]) {
    assert_eq!(found.len(), wanted.len());
    for (i, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        assert!(
            (f64::from(*found) - wanted).abs() < 1e-5 * (1.0 + wanted.abs()),
            "{i}: {found}, wanted {wanted}"
        );
    }
}

/// Some images `[count, channels, height, width]`, and each of them.
fn images(count: usize, channels: usize, sides: [usize; 2]) -> (Vec<f32>, Vec<Image>) {
    let area = sides[0] * sides[1];
    let values = numbers(count * channels * area, 1);
    let image = |values: &[f32]| {
        let values =
            (0..area * channels).map(|i| f64::from(values[i % channels * area + i / channels])).collect();
        Image { sides, channels, values }
    };
    let all = values.chunks(channels * area).map(image).collect();
    (values, all)
}

#[test]
fn layers_that_are_joined_give_the_values_of_the_single_layers() {
    let relu = |x: f64, _| x.max(0.0);
    let (sides, count) = ([5, 4], 2);
    let (values, each) = images(count, 3, sides);
    let first = convolution([6, 3], 3, 1, 1);
    let depthwise = convolution([6, 6], 3, 1, 6);
    let grouped = convolution([6, 6], 3, 1, 2);
    let side = convolution([7, 6], 1, 1, 1);
    let (scale, shift) = (numbers(6, 8), numbers(6, 9));

    let (mut b, x) = Builder::new([3, sides[0], sides[1]]);
    let x = b.conv(x, first.clone());
    let x = b.affine(x, scale.clone(), shift.clone());
    let x = b.activation(x, Activation::Relu);
    let d = b.conv(x, depthwise.clone());
    let d = b.activation(d, Activation::Relu6);
    let y = b.conv(d, grouped.clone());
    let sum = b.add(y, x);
    let sum = b.activation(sum, Activation::Relu);
    let part = b.conv(sum, side.clone());
    let part = b.activation(part, Activation::Relu);
    let joined = b.concat(&[d, part]);
    let plan = b.finish(&[joined, sum], Products::F32);
    // A result with two users is not joined with what follows it.
    let outputs = plan.run(&values, count, &[true, true]);
    // Where they are joined: the sum, the depthwise maps and a copy of them, and the other part.
    assert_eq!(plan.bytes_per_image(), 4 * 20 * (6 + 6 + 6 + 7));

    let mut wanted = [Vec::new(), Vec::new()];
    for image in each {
        let factor = |x: f64, c: usize| x * f64::from(scale[c]) + f64::from(shift[c]);
        let x = image.conv(&first).map(factor).map(relu);
        let d = x.conv(&depthwise).map(|x, _| x.clamp(0.0, 6.0));
        let sum = d.conv(&grouped).plus(&x).map(relu);
        wanted[0].extend(d.beside(&sum.conv(&side).map(relu)).values);
        wanted[1].extend(sum.values);
    }
    for (found, wanted) in outputs.iter().zip(&wanted) {
        assert_near(found.as_ref().unwrap(), wanted);
    }
}

#[test]
fn gates_after_convolutions_and_of_channels_give_the_values_of_the_single_layers() {
    let of = |gate: Gate, x: f64| match gate {
        Gate::Sigmoid => 1.0 / (1.0 + (-x).exp()),
        Gate::HardSigmoid => (x / 6.0 + 0.5).clamp(0.0, 1.0),
    };
    // Few and many columns, which several threads share, and positions of more than one tile.
    for (sides, channels) in [([5, 4], 6), ([3, 3], 300), ([90, 70], 18)] {
        if cfg!(miri) && channels != 6 {
            continue;
        }
        let (values, each) = images(2, 3, sides);
        let first = convolution([channels, 3], 3, 1, 1);
        let depthwise = convolution([channels, channels], 5, 1, channels);
        let reduce = convolution([4, channels], 1, 1, 1);
        let expand = convolution([channels, 4], 1, 1, 1);
        // Of all channels, of whose convolution the weight is excited, and of groups.
        for (gate, swish, groups) in
            [(Gate::Sigmoid, Activation::Silu, 1), (Gate::HardSigmoid, Activation::HardSwish, 3)]
        {
            let excited = convolution([channels, channels], 1, 1, groups);
            let (mut b, x) = Builder::new([3, sides[0], sides[1]]);
            let x = b.conv(x, first.clone());
            let x = b.activation(x, swish);
            let y = b.conv(x, depthwise.clone());
            let y = b.activation(y, swish);
            let row = b.global_average(y);
            let row = b.conv(row, reduce.clone());
            let row = b.activation(row, Activation::Relu);
            let row = b.conv(row, expand.clone());
            let y = b.excite(y, row, gate);
            let y = b.conv(y, excited.clone());
            let y = b.add(y, x);
            let y = b.activation(y, swish);
            // What is used twice is not joined with what follows it.
            let twice = b.conv(y, reduce.clone());
            let sum = b.activation(twice, swish);
            let sum = b.add(sum, twice);
            let outputs = b.finish(&[y, sum], Products::F32).run(&values, 2, &[true, true]);

            let mut wanted = [Vec::new(), Vec::new()];
            for image in &each {
                let apply = |x: f64, _| x * of(gate, x);
                let x = image.conv(&first).map(apply);
                let y = x.conv(&depthwise).map(apply);
                let area = (sides[0] * sides[1]) as f64;
                let mean = |c: usize| y.values[c..].iter().step_by(channels).sum::<f64>() / area;
                let row = Image { sides: [1, 1], channels, values: (0..channels).map(mean).collect() };
                let row = row.conv(&reduce).map(|x, _| x.max(0.0)).conv(&expand);
                let y = y.map(|x, c| x * of(gate, row.values[c])).conv(&excited).plus(&x).map(apply);
                let twice = y.conv(&reduce);
                wanted[1].extend(twice.map(apply).plus(&twice).values);
                wanted[0].extend(y.values);
            }
            for (found, wanted) in outputs.iter().zip(&wanted) {
                let largest = wanted.iter().fold(0f64, |largest, value| largest.max(value.abs()));
                let scaled: Vec<f32> =
                    found.as_ref().unwrap().iter().map(|x| (f64::from(*x) / largest) as f32).collect();
                assert_near(&scaled, &wanted.iter().map(|x| x / largest).collect::<Vec<_>>());
            }
        }
    }
}

#[test]
fn a_result_that_is_used_again_is_kept_as_it_is() {
    let (values, each) = images(1, 2, [3, 3]);
    let conv = convolution([2, 2], 3, 1, 1);
    let (mut b, x) = Builder::new([2, 3, 3]);
    let y = b.conv(x, conv.clone());
    let z = b.activation(y, Activation::Relu);
    let twice = b.add(y, y);
    let sum = b.add(z, twice);
    let outputs = b.finish(&[sum], Products::F32).run(&values, 1, &[true]);
    let y = each[0].conv(&conv);
    assert_near(outputs[0].as_ref().unwrap(), &y.map(|x, _| x.max(0.0)).plus(&y).plus(&y).values);
}

#[test]
#[should_panic(expected = "values of 2 images [1, 3, 3]")]
fn images_of_another_size_are_refused() {
    let (mut b, x) = Builder::new([1, 3, 3]);
    let mean = b.global_average(x);
    b.finish(&[mean], Products::F32).run(&[0.0; 17], 2, &[true]);
}

#[test]
fn bf16_rounds_the_operands_of_maps_and_not_those_of_rows() {
    let value = 1.001_f32;
    let weight = |inputs: usize, outputs: usize| (vec![1.0; inputs * outputs], [outputs, inputs, 1, 1]);
    let layer = |weight: (Vec<f32>, [usize; 4])| Convolution {
        bias: vec![0.0; weight.1[0]],
        weight,
        stride: 1,
        padding: [(0, 0); 2],
        groups: 1,
    };
    let run = |products: Products| {
        let (mut b, x) = Builder::new([32, 4, 4]);
        let maps = b.conv(x, layer(weight(32, 16)));
        let mean = b.global_average(x);
        let row = b.conv(mean, layer(weight(32, 16)));
        let outputs = b.finish(&[maps, row], products).run(&[value; 32 * 16], 1, &[true, true]);
        [0, 1].map(|i| outputs[i].as_ref().unwrap()[0])
    };
    let exact = 32.0 * value;
    let rounded = if crate::bf16_unit().is_some() { 32.0 } else { exact };
    for (products, wanted) in
        [(Products::F32, exact), (Products::F32Direct, exact), (Products::Bf16, rounded)]
    {
        let [maps, row] = run(products);
        assert!((maps - wanted).abs() < 1e-4 && (row - exact).abs() < 1e-4, "{products:?}: {maps}, {row}");
    }
}

/// The layers of an inverted residual block.
struct Block {
    channels: [usize; 3],
    sides: [usize; 2],
    size: usize,
    stride: usize,
    padding: [(usize, usize); 2],
    expansion: Expansion,
    squeezed: bool,
}

/// What is before the depthwise convolution.
#[derive(Clone, Copy, PartialEq)]
enum Expansion {
    None,
    Pointwise,
    /// A convolution of images, of stride 2, with so many zeros before and after them.
    Images([(usize, usize); 2]),
}

impl Block {
    /// A plan whose block has one user for each result, or a plan of its single layers, whose results are outputs too.
    fn plan(&self, apart: bool, products: Products) -> Plan {
        let [inputs, wide, out] = self.channels;
        let (mut b, image) = Builder::new([inputs, self.sides[0], self.sides[1]]);
        let mut outputs = Vec::new();
        let mut x = image;
        let before = match self.expansion {
            Expansion::None => None,
            Expansion::Pointwise => Some(convolution([wide, inputs], 1, 1, 1)),
            Expansion::Images(padding) => {
                Some(Convolution { padding, ..convolution([wide, inputs], 3, 2, 1) })
            }
        };
        if let Some(before) = before {
            x = b.conv(x, before);
            x = b.activation(x, Activation::Relu6);
            outputs.push(x);
        }
        let depthwise = convolution([wide, wide], self.size, self.stride, wide);
        x = b.conv(x, Convolution { padding: self.padding, ..depthwise });
        x = b.activation(x, Activation::Relu);
        outputs.push(x);
        if self.squeezed {
            let mean = b.global_average(x);
            x = b.excite(x, mean, Gate::Sigmoid);
        }
        x = b.conv(x, convolution([out, wide], 1, 1, 1));
        if inputs == out && self.stride == 1 && self.expansion == Expansion::Pointwise {
            x = b.add(x, image);
        }
        outputs.push(x);
        if !apart {
            outputs = vec![x];
        }
        b.finish(&outputs, products)
    }
}

#[test]
fn a_block_that_is_computed_row_by_row_has_the_bits_of_its_layers() {
    let same = |size: usize| [(size / 2, size / 2); 2];
    let [pointwise, none] = [Expansion::Pointwise, Expansion::None];
    let blocks = [
        ([3, 20, 3], [9, 8], 3, 1, same(3), pointwise),
        ([3, 20, 5], [9, 11], 3, 2, [(0, 1), (0, 1)], pointwise),
        ([5, 17, 5], [7, 7], 5, 1, same(5), pointwise),
        ([4, 40, 6], [10, 9], 5, 2, same(5), pointwise),
        ([18, 18, 7], [11, 6], 3, 1, same(3), none),
        ([6, 6, 2], [8, 8], 2, 3, [(0, 0); 2], none),
        ([3, 10, 7], [12, 17], 3, 1, same(3), Expansion::Images(same(3))),
        ([1, 12, 5], [13, 10], 5, 2, same(5), Expansion::Images([(0, 1), (2, 0)])),
        // Several steps of rows.
        ([16, 144, 16], [96, 96], 3, 1, same(3), pointwise),
        ([8, 96, 24], [112, 112], 3, 2, same(3), pointwise),
        ([3, 32, 16], [224, 160], 3, 1, same(3), Expansion::Images([(0, 1), (0, 1)])),
        // The last row reads no rows that those before have not read.
        ([3, 8, 4], [50, 60], 5, 1, same(5), Expansion::Images(same(3))),
    ];
    for (channels, sides, size, stride, padding, expansion) in blocks {
        if cfg!(miri) && sides[0] > 8 {
            continue;
        }
        for (count, products, squeezed) in [
            (1, Products::F32, false),
            (2, Products::F32, false),
            (3, Products::F32, false),
            (2, Products::Bf16, false),
            (1, Products::F32, true),
            (2, Products::Bf16, true),
        ] {
            if squeezed && expansion == Expansion::None || cfg!(miri) && count != 2 {
                continue;
            }
            let block = Block { channels, sides, size, stride, padding, expansion, squeezed };
            let plans = [false, true].map(|apart| block.plan(apart, products));
            assert!(plans[0].bytes_per_image() < plans[1].bytes_per_image(), "{channels:?} was not joined");
            let (values, _) = images(count, channels[0], sides);
            let found = plans[0].run(&values, count, &[true]).remove(0).unwrap();
            let mut wanted = vec![false; plans[1].outputs()];
            *wanted.last_mut().unwrap() = true;
            let wanted = plans[1].run(&values, count, &wanted).pop().unwrap().unwrap();
            assert!(found == wanted, "{channels:?} {sides:?} {count} {products:?} {squeezed}");
        }
    }
}

/// A network with every layer that has a form for bytes, and some after them that have none.
fn mixed_network([height, width]: [usize; 2]) -> (Builder, Vec<Node>) {
    // A quarter of the channels under Miri.
    let of = |channels: usize| if cfg!(miri) { channels / 4 } else { channels };
    let (mut b, image) = Builder::new([3, height, width]);
    let x = b.conv(image, convolution([of(16), 3], 3, 2, 1));
    let x = b.activation(x, Activation::Relu);
    let wide = b.conv(x, convolution([of(40), of(16)], 1, 1, 1));
    let wide = b.activation(wide, Activation::Relu6);
    let depthwise = b.conv(wide, convolution([of(40), of(40)], 5, 1, of(40)));
    let depthwise = b.activation(depthwise, Activation::Relu6);
    let narrow = b.conv(depthwise, convolution([of(16), of(40)], 1, 1, 1));
    let sum = b.add(narrow, x);
    let pooled = b.max_pool(
        sum,
        MaxPoolOptions {
            kernel_size: [3, 3],
            stride: [1, 1],
            padding: [(1, 1); 2],
            dilation: [1, 1],
            ceil_mode: false,
        },
    );
    let options = AvgPoolOptions {
        kernel_size: [3, 3],
        stride: [1, 1],
        padding: [(1, 1); 2],
        count_include_pad: false,
        ceil_mode: false,
    };
    let mean = b.average_pool(sum, options);
    let other = b.conv(sum, convolution([of(32), of(16)], 3, 1, 1));
    let twice = b.add(pooled, mean);
    let joined = b.concat(&[pooled, mean, other, twice]);
    let last = b.conv(joined, convolution([of(70), of(80)], 1, 1, 1));
    let mean = b.global_average(last);
    let row = b.conv(mean, convolution([of(8), of(70)], 1, 1, 1));
    (b, vec![row, last, sum])
}

fn ranges(values: &[f32], count: usize, sides: [usize; 2]) -> Ranges {
    let (b, outputs) = mixed_network(sides);
    let mut measurement = b.measure(&outputs);
    measurement.add(values, count);
    measurement.finish().unwrap()
}

#[test]
fn int8_is_near_f32_and_the_same_for_each_image_alone() {
    let (sides, count) = if cfg!(miri) { ([5, 4], 2) } else { ([13, 10], 5) };
    let (values, _) = images(count, 3, sides);
    let ranges = ranges(&values, count, sides);
    let (b, outputs) = mixed_network(sides);
    let in_f32 = b.finish(&outputs, Products::F32).run(&values, count, &[true; 3]);
    let (b, outputs) = mixed_network(sides);
    let plan = b.finish_int8(&outputs, &ranges).unwrap();
    let results = plan.run(&values, count, &[true; 3]);
    for (i, (found, wanted)) in results.iter().zip(&in_f32).enumerate() {
        let (found, wanted) = (found.as_ref().unwrap(), wanted.as_ref().unwrap());
        let square = |values: &mut dyn Iterator<Item = f32>| values.map(|x| x * x).sum::<f32>();
        let off =
            square(&mut found.iter().zip(wanted).map(|(x, y)| x - y)) / square(&mut wanted.iter().copied());
        assert!(off.sqrt() < 0.04, "output {i}: off by {}", off.sqrt());
        assert!(off > 0.0, "output {i} is not in int8");
    }
    let image = values.len() / count;
    for i in 0..count {
        let alone = plan.run(&values[i * image..][..image], 1, &[true; 3]);
        for (alone, all) in alone.iter().zip(&results) {
            let (alone, all) = (alone.as_ref().unwrap(), all.as_ref().unwrap());
            assert_eq!(alone[..], all[i * alone.len()..][..alone.len()]);
        }
    }
    let text = serde_json::to_string(&ranges).unwrap();
    assert_eq!(serde_json::from_str::<Ranges>(&text).unwrap(), ranges);
}

#[test]
fn ranges_of_other_layers_are_refused() {
    let sides = if cfg!(miri) { [3, 3] } else { [8, 8] };
    let (values, _) = images(1, 3, sides);
    let ranges = ranges(&values, 1, sides);
    let (mut b, image) = Builder::new([3, sides[0], sides[1]]);
    let mean = b.global_average(image);
    assert!(b.finish_int8(&[mean], &ranges).is_none());
    let damaged = |change: &dyn Fn(&mut serde_json::Value)| {
        let mut value = serde_json::to_value(&ranges).unwrap();
        change(&mut value);
        let (b, outputs) = mixed_network(sides);
        b.finish_int8(&outputs, &serde_json::from_value(value).unwrap())
    };
    assert!(damaged(&|_| ()).is_some());
    assert!(damaged(&|value| drop(value[2]["means"].as_array_mut().unwrap().pop())).is_none());
    assert!(damaged(&|value| value[2]["range"] = serde_json::json!([3.0, -3.0])).is_none());
}

#[test]
#[cfg_attr(miri, ignore = "a weight of 16,384 numbers")]
fn a_network_with_few_multiplications_in_convolutions_has_no_form_in_int8() {
    let network = || {
        let (mut b, image) = Builder::new([3, 8, 8]);
        let maps = b.conv(image, convolution([4, 3], 1, 1, 1));
        let row = b.flatten(maps);
        let row = b.conv(row, convolution([64, 256], 1, 1, 1));
        (b, [row])
    };
    let (values, _) = images(2, 3, [8, 8]);
    let (b, outputs) = network();
    let mut measurement = b.measure(&outputs);
    measurement.add(&values, 2);
    let ranges = measurement.finish().unwrap();
    let (b, outputs) = network();
    assert!(b.finish_int8(&outputs, &ranges).is_none());
}
