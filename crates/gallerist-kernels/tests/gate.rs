//! Gates of feature maps against the engine's operations in f64, which share no code with the kernels.

use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_kernels::{Gate, excite};

fn tensor(shape: [usize; 4], seed: f64, dtype: DType) -> Tensor<4> {
    let count = shape.iter().product::<usize>();
    // Values that f32 has, also beyond the flat ends.
    let values = (0..count).map(|i| f64::from((5.0 * (i as f64 * 0.37 + seed).sin()) as f32));
    let data = TensorData::new(values.collect::<Vec<f64>>(), shape);
    Tensor::from_data(data, (&Device::flex().autodiff(), dtype)).require_grad()
}

fn host(x: Tensor<4>) -> Vec<f64> {
    x.into_data().convert::<f64>().try_into_vec().unwrap()
}

fn assert_near(found: &[Vec<f64>], wanted: &[Vec<f64>], what: &str) {
    for (place, (found, wanted)) in found.iter().zip(wanted).enumerate() {
        let largest = wanted.iter().fold(0f64, |a, w| a.max(w.abs()));
        let off = found.iter().zip(wanted).map(|(f, w)| (f - w).abs()).fold(0.0, f64::max);
        // The last are sums of hundreds of products that are larger than the sums.
        let tolerance = if place == 2 { 2e-5 } else { 2e-6 };
        assert!(off <= tolerance * largest, "{what}, result {place}: off by {off:e} of {largest:e}");
    }
}

/// The result, and the gradients of its product with fixed numbers; `x` has its channels outermost or innermost in memory.
fn results(shape: [usize; 4], gate: Gate, innermost: bool, dtype: DType) -> Vec<Vec<f64>> {
    let [n, channels, height, width] = shape;
    let x = match innermost {
        true => tensor([n, height, width, channels], 0.1, dtype),
        false => tensor(shape, 0.1, dtype),
    };
    let by = tensor([n, channels, 1, 1], 0.7, dtype);
    let maps = if innermost { x.clone().permute([0, 3, 1, 2]) } else { x.clone() };
    // `x` is used twice: its gradients are added.
    let y = excite(maps.clone(), by.clone(), gate) + maps;
    let gradients = (y.clone() * tensor(shape, 0.3, dtype).detach()).sum().backward();
    vec![host(y), host(x.grad(&gradients).unwrap()), host(by.grad(&gradients).unwrap())]
}

#[test]
fn gates_and_their_gradients_are_those_of_f64() {
    for gate in [Gate::Sigmoid, Gate::HardSigmoid] {
        for shape in [[1, 1, 1, 1], [2, 5, 3, 7], [3, 16, 9, 8], [1, 72, 28, 28], [2, 40_000, 1, 1]] {
            for innermost in [false, true] {
                let [found, wanted] =
                    [DType::F32, DType::F64].map(|dtype| results(shape, gate, innermost, dtype));
                assert_near(&found, &wanted, &format!("{gate:?} {shape:?}"));
            }
        }
    }
}

#[test]
#[should_panic(expected = "values of the gates")]
fn gates_of_other_channels_are_refused() {
    let [x, by] = [[1, 4, 2, 2], [1, 3, 1, 1]].map(|shape| tensor(shape, 0.0, DType::F32));
    excite(x, by, Gate::Sigmoid);
}
