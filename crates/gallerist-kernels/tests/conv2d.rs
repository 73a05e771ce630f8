//! The convolution against loops over its definition in `f64`.

use burn::tensor::ops::ConvOptions;
use burn::tensor::{Device, Tensor, TensorData, module};
use gallerist_kernels::{Products, bf16_unit, conv2d, with_products};
use gallerist_util::simd::{Instructions, permitted};
use proptest::prelude::*;

/// Sizes of one convolution.
#[derive(Clone, Debug)]
struct Case {
    images: usize,
    groups: usize,
    /// Input and output channels of a group.
    channels: [usize; 2],
    size: [usize; 2],
    kernel: [usize; 2],
    stride: [usize; 2],
    padding: [(usize, usize); 2],
    dilation: [usize; 2],
}

impl Case {
    fn input(&self) -> [usize; 4] {
        let channels = self.groups * self.channels[0];
        [self.images, channels, self.size[0], self.size[1]]
    }

    fn weight(&self) -> [usize; 4] {
        let channels_out = self.groups * self.channels[1];
        [channels_out, self.channels[0], self.kernel[0], self.kernel[1]]
    }

    fn output(&self) -> [usize; 4] {
        let size = [0, 1].map(|axis| {
            let (before, after) = self.padding[axis];
            let reach = self.dilation[axis] * (self.kernel[axis] - 1) + 1;
            (self.size[axis] + before + after - reach) / self.stride[axis] + 1
        });
        [self.images, self.groups * self.channels[1], size[0], size[1]]
    }

    fn possible(&self) -> bool {
        (0..2).all(|axis| {
            let (before, after) = self.padding[axis];
            self.size[axis] + before + after > self.dilation[axis] * (self.kernel[axis] - 1)
        })
    }

    fn options(&self) -> ConvOptions<2> {
        ConvOptions::new_with_padding(self.stride, self.padding, self.dilation, self.groups)
    }

    /// Calls `term(x, weight, y)` with the indices of every product of the definition.
    fn for_each_term(&self, mut term: impl FnMut(usize, usize, usize)) {
        let (input, weight, output) = (self.input(), self.weight(), self.output());
        for y in 0..output.iter().product() {
            let [n, o, i, j] = indices(y, output);
            for w in 0..weight[1..].iter().product() {
                let [_, c, a, b] = indices(w, [1, weight[1], weight[2], weight[3]]);
                let row = (i * self.stride[0] + a * self.dilation[0])
                    .checked_sub(self.padding[0].0)
                    .filter(|row| *row < input[2]);
                let column = (j * self.stride[1] + b * self.dilation[1])
                    .checked_sub(self.padding[1].0)
                    .filter(|column| *column < input[3]);
                let (Some(row), Some(column)) = (row, column) else {
                    continue;
                };
                let channel = o / self.channels[1] * self.channels[0] + c;
                let x = ((n * input[1] + channel) * input[2] + row) * input[3] + column;
                term(x, o * weight[1..].iter().product::<usize>() + w, y);
            }
        }
    }
}

fn indices(mut index: usize, shape: [usize; 4]) -> [usize; 4] {
    let mut result = [0; 4];
    for axis in (0..4).rev() {
        result[axis] = index % shape[axis];
        index /= shape[axis];
    }
    result
}

/// Values in [-1, 1) that look random.
fn values(shape: &[usize], seed: u64) -> Vec<f32> {
    let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1;
    (0..shape.iter().product())
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        })
        .collect()
}

/// A sum of products in `f64`, the number of terms and the sum of their absolute values.
#[derive(Clone, Copy, Default)]
struct Sum {
    value: f64,
    terms: usize,
    size: f64,
}

impl Sum {
    fn add(&mut self, a: f32, b: f32) {
        let product = f64::from(a) * f64::from(b);
        self.value += product;
        self.terms += 1;
        self.size += product.abs();
    }

    /// What a sum of `terms` roundings can lose at most: `terms * u / (1 - terms * u)` of the sum of
    /// absolute values, with the unit roundoff `u = 2^-24` (Higham 2002, section 3.1). Two more
    /// roundings than terms: products are not exact without fused multiply-add, and partial sums are
    /// joined.
    fn bound(&self) -> f64 {
        let roundings = (2 * self.terms + 2) as f64 * f64::from(f32::EPSILON) / 2.0;
        self.size * roundings / (1.0 - roundings)
    }
}

fn assert_close(name: &str, case: &Case, found: &[f32], wanted: &[Sum]) {
    assert_eq!(found.len(), wanted.len(), "{name} of {case:?}");
    for (index, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let error = (f64::from(*found) - wanted.value).abs();
        assert!(error <= wanted.bound(), "{name}[{index}] is {found}, not {}, in {case:?}", wanted.value);
    }
}

fn data(tensor: Tensor<4>) -> Vec<f32> {
    tensor.into_data().try_to_vec().unwrap()
}

/// Result and gradients of x, weight and bias for the output gradient `dy`.
fn run(case: &Case, x: &[f32], weight: &[f32], bias: &[f32], dy: &[f32]) -> [Vec<f32>; 4] {
    let device = Device::flex().autodiff();
    let tensor = |values: &[f32], shape: [usize; 4]| -> Tensor<4> {
        Tensor::from_data(TensorData::new(values.to_vec(), shape), &device)
    };
    let x = tensor(x, case.input()).require_grad();
    let weight = tensor(weight, case.weight()).require_grad();
    let bias = Tensor::<1>::from_floats(bias, &device).require_grad();
    let y = conv2d(x.clone(), weight.clone(), Some(bias.clone()), case.options());
    assert_eq!(y.dims(), case.output());
    let gradients = (y.clone() * tensor(dy, case.output())).sum().backward();
    [
        data(y),
        data(x.grad(&gradients).unwrap()),
        data(weight.grad(&gradients).unwrap()),
        bias.grad(&gradients).unwrap().into_data().try_to_vec().unwrap(),
    ]
}

fn check(case: &Case) {
    check_with(case, |x| x, run);
}

/// With products in bf16, if this processor has them.
fn check_bf16(case: &Case) {
    let depthwise = case.groups > 1 && case.channels == [1, 1];
    if bf16_unit().is_some() && !depthwise {
        check_with(case, to_bf16, |case, x, weight, bias, dy| {
            with_products(Products::Bf16, || run(case, x, weight, bias, dy))
        });
    }
}

/// The nearest value with 8 significant bits, of two equally near the even one.
fn to_bf16(x: f32) -> f32 {
    let bits = x.to_bits();
    f32::from_bits((bits + 0x7fff + (bits >> 16 & 1)) & 0xffff_0000)
}

type Gradients = [Vec<f32>; 4];

/// Compares what `run` finds with the definition, in which factors are `rounded`.
fn check_with(
    case: &Case,
    rounded: impl Fn(f32) -> f32,
    run: impl FnOnce(&Case, &[f32], &[f32], &[f32], &[f32]) -> Gradients,
) {
    let x = values(&case.input(), 1);
    let weight = values(&case.weight(), 2);
    let bias = values(&case.weight()[..1], 3);
    let dy = values(&case.output(), 4);
    let mut y_sums = vec![Sum::default(); dy.len()];
    let mut dx_sums = vec![Sum::default(); x.len()];
    let mut dw_sums = vec![Sum::default(); weight.len()];
    let mut db_sums = vec![Sum::default(); bias.len()];
    case.for_each_term(|ix, iw, iy| {
        let [x, weight, dy] = [x[ix], weight[iw], dy[iy]].map(&rounded);
        y_sums[iy].add(x, weight);
        dx_sums[ix].add(dy, weight);
        dw_sums[iw].add(dy, x);
    });
    for (index, dy) in dy.iter().enumerate() {
        let channel = indices(index, case.output())[1];
        y_sums[index].add(1.0, bias[channel]);
        db_sums[channel].add(1.0, *dy);
    }
    let [y, dx, dw, db] = run(case, &x, &weight, &bias, &dy);
    assert_close("y", case, &y, &y_sums);
    assert_close("dx", case, &dx, &dx_sums);
    assert_close("dw", case, &dw, &dw_sums);
    assert_close("db", case, &db, &db_sums);
}

fn case() -> impl Strategy<Value = Case> {
    let axis = || (1usize..4, (0usize..3, 0usize..3), 1usize..3, 1usize..12, 1usize..5);
    let channels = prop_oneof![
        (1usize..3, 1usize..6, 1usize..6),
        (1usize..2, 1usize..20, 1usize..90),
        (2usize..20, 1usize..2, 1usize..3),
    ];
    (1usize..5, channels, axis(), axis())
        .prop_map(|(images, (groups, channels_in, channels_out), rows, columns)| Case {
            images,
            groups,
            channels: [channels_in, channels_out],
            size: [rows.3, columns.3],
            kernel: [rows.4, columns.4],
            stride: [rows.0, columns.0],
            padding: [rows.1, columns.1],
            dilation: [rows.2, columns.2],
        })
        .prop_filter("the kernel fits", Case::possible)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn result_and_gradients_equal_the_definition(case in case()) {
        check(&case);
        check_bf16(&case);
    }
}

fn square(images: usize, channels: [usize; 2], size: usize, kernel: usize) -> Case {
    Case {
        images,
        groups: 1,
        channels,
        size: [size; 2],
        kernel: [kernel; 2],
        stride: [1; 2],
        padding: [(kernel / 2, kernel / 2); 2],
        dilation: [1; 2],
    }
}

#[test]
fn sizes_around_the_blocks_equal_the_definition() {
    // Panels have 64 or 16 columns, vectors 16 or 8 lanes, blocks 6 rows, chunks 96 or 384 terms, weight gradients 16 groups
    // of images.
    for channels_out in [1, 7, 8, 9, 15, 16, 17, 33, 48, 63, 64, 65, 130] {
        check(&square(2, [3, channels_out], 5, 3));
    }
    for channels_in in [1, 10, 11, 32, 33, 42, 43, 96, 97, 384, 385] {
        check(&square(2, [channels_in, 4], 3, 3));
        check(&square(2, [channels_in, 4], 3, 1));
    }
    for images in [1, 15, 16, 17, 33] {
        check(&square(images, [2, 3], 2, 3));
    }
}

#[test]
fn padding_at_the_end_only_equals_the_definition() {
    check(&Case { padding: [(0, 1), (0, 2)], ..square(2, [3, 5], 4, 1) });
    check(&Case { padding: [(0, 2), (0, 1)], ..square(1, [3, 5], 4, 3) });
}

#[test]
fn several_tiles_equal_the_definition() {
    // Rows of one image, and several images, that do not fill their last tile.
    for case in [
        square(3, [16, 4], 49, 3),
        square(50, [64, 4], 7, 3),
        Case { stride: [2, 2], ..square(2, [3, 8], 90, 7) },
    ] {
        check(&case);
        check_bf16(&case);
    }
}

#[test]
fn sizes_around_the_tiles_of_bf16_equal_the_definition() {
    // Tiles of 16 rows, 16 columns and 32 terms, taken two by two; chunks of 512 terms, blocks of 256 rows.
    for channels in [[31, 16], [32, 17], [33, 32], [64, 33], [65, 48], [60, 2], [513, 3], [2, 257]] {
        check_bf16(&square(3, channels, 4, 3));
        check_bf16(&square(3, channels, 4, 1));
    }
}

#[test]
fn bits_do_not_depend_on_the_number_of_threads() {
    // With many images, and with few tiles of Winograd's algorithm and one panel of columns.
    for case in [square(37, [16, 48], 9, 3), square(1, [16, 48], 17, 3)] {
        check_threads(&case);
    }
}

fn check_threads(case: &Case) {
    let x = values(&case.input(), 5);
    let weight = values(&case.weight(), 6);
    let bias = values(&case.weight()[..1], 7);
    let dy = values(&case.output(), 8);
    let run = || run(case, &x, &weight, &bias, &dy);
    let mut first: Vec<[Vec<u32>; 4]> = vec![];
    for &products in Products::ALL {
        let with = |threads: usize| {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            pool.install(|| with_products(products, run))
                .map(|values| values.iter().map(|value| value.to_bits()).collect::<Vec<_>>())
        };
        let one = with(1);
        for threads in [2, 3, 5, 16] {
            assert_eq!(with(threads), one, "{products:?}, {threads} threads");
        }
        // Without bf16's instructions it is f32, and so is int8 here. Without vectors, there is no Winograd's algorithm.
        let may_be_another =
            matches!(products, Products::Bf16 | Products::Int8) || permitted() == Instructions::Portable;
        assert!(!first.contains(&one) || may_be_another, "each computes in its own way");
        first.push(one);
    }
}

#[test]
fn any_order_in_memory_gives_the_same_bits() {
    let case = square(3, [5, 6], 8, 3);
    let device = Device::flex();
    let shape = case.input();
    let data: Tensor<4> = Tensor::from_data(TensorData::new(values(&shape, 9), shape), &device);
    let weight: Tensor<4> =
        Tensor::from_data(TensorData::new(values(&case.weight(), 10), case.weight()), &device);
    let with = |x: Tensor<4>, weight: Tensor<4>| {
        conv2d(x, weight, None, case.options()).into_data().try_to_vec::<f32>().unwrap()
    };
    let wanted = with(data.clone(), weight.clone());

    let channels_last = data.clone().permute([0, 2, 3, 1]).mul_scalar(1.0).permute([0, 3, 1, 2]);
    assert_eq!(with(channels_last, weight.clone()), wanted);
    let flipped_twice = data.clone().flip([2]).mul_scalar(1.0).flip([2]);
    assert_eq!(with(flipped_twice, weight.clone()), wanted);
    let part_of_a_larger = Tensor::cat(vec![data.clone(), data.clone()], 0).narrow(0, 3, 3);
    assert_eq!(with(part_of_a_larger, weight.clone()), wanted);
    let transposed_weight = weight.permute([1, 0, 2, 3]).mul_scalar(1.0).permute([1, 0, 2, 3]);
    assert_eq!(with(data, transposed_weight), wanted);
}

#[test]
fn agrees_with_the_engine() {
    let case = Case {
        stride: [2, 1],
        padding: [(1, 2), (0, 1)],
        dilation: [1, 2],
        groups: 2,
        ..square(4, [6, 9], 11, 3)
    };
    let device = Device::flex();
    let x: Tensor<4> = Tensor::from_data(TensorData::new(values(&case.input(), 11), case.input()), &device);
    let weight: Tensor<4> =
        Tensor::from_data(TensorData::new(values(&case.weight(), 12), case.weight()), &device);
    let ours = conv2d(x.clone(), weight.clone(), None, case.options());
    let theirs = module::conv2d(x, weight, None, case.options());
    // 54 terms of size 1 at most.
    let difference = (ours - theirs).abs().max().into_scalar::<f32>();
    assert!(difference <= 54.0 * 54.0 * f32::EPSILON, "{difference}");
}

#[test]
fn other_types_than_f32_go_to_the_engine() {
    let device = Device::flex();
    let x = Tensor::<4>::ones([1, 1, 3, 3], &device).cast(burn::tensor::FloatDType::F64);
    let weight = Tensor::<4>::ones([2, 1, 3, 3], &device).cast(burn::tensor::FloatDType::F64);
    let y = conv2d(x, weight, None, ConvOptions::new([1, 1], [1, 1], [1, 1], 1));
    assert_eq!(y.dtype(), burn::tensor::DType::F64);
    assert_eq!(y.slice([0..1, 1..2, 1..2, 1..2]).into_scalar::<f64>(), 9.0);
}

#[test]
fn gradient_checkpointing_gives_the_same_bits() {
    let gradient = |device: Device| {
        let shape = [2, 3, 6, 6];
        let x: Tensor<4> = Tensor::from_data(TensorData::new(values(&shape, 13), shape), &device);
        let shape = [4, 3, 3, 3];
        let weight: Tensor<4> = Tensor::from_data(TensorData::new(values(&shape, 14), shape), &device);
        let x = x.require_grad();
        // The exponential is recomputed in the backward pass under this strategy.
        let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
        let y = conv2d(x.clone().exp(), weight, None, options);
        let gradients = y.powi_scalar(2).sum().backward();
        data(x.grad(&gradients).unwrap())
    };
    assert_eq!(
        gradient(Device::flex().autodiff().gradient_checkpointing()),
        gradient(Device::flex().autodiff())
    );
}
