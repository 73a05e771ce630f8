//! Computes on a device what is also computed on the processor, and times it, for `bench/gpu/run.py`.
//!
//! ```text
//! gpu_check DEVICE device                          the device's name
//! gpu_check DEVICE losses                          every loss: value and gradient against the processor's
//! gpu_check DEVICE networks                        every network: outputs and gradients against the processor's
//! gpu_check DEVICE precision                       the same in bf16 and f16 against f32 on the same device
//! gpu_check DEVICE step NETWORK SHAPE PRECISION N  N training steps, e.g.
//!                                                  step '{"kind": "resnet", "depth": 50}' 180,3,227,227 bf16 30
//! gpu_check DEVICE loss-step LOSS ROWS DIMENSIONS  three forward and backward passes of a loss
//! ```
//!
//! One JSON object a line on the standard output. `off` is the largest difference over the largest value.

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_data::Random;
use gallerist_learn::device::DeviceChoice;
use gallerist_learn::loss::{Labels, LossConfig, LossShape, Progress, RankingLoss, on_general_path};
use gallerist_learn::network::{InputShape, Network, NetworkConfig};
use gallerist_learn::optim::{Optimizer, OptimizerConfig, Part};
use gallerist_learn::pairwise::l2_normalize;
use gallerist_learn::train::Precision;
use serde_json::{Value, json};

type Outcome<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> Outcome {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let [device, command, rest @ ..] = arguments.as_slice() else {
        return Err("DEVICE and a command are wanted, see the top of examples/gpu_check.rs".into());
    };
    let opened = device.parse::<DeviceChoice>()?.open()?;
    let device = opened.device().clone();
    match (*command, rest) {
        ("device", []) => say(json!({ "device": opened.to_string() })),
        ("losses", []) => losses(&device),
        ("networks", []) => networks(&device)?,
        ("precision", []) => precision(&device)?,
        ("step", [network, shape, precision, steps]) => {
            let precision: Precision = serde_json::from_value(json!(precision))?;
            precision.check(&opened)?;
            step(&device, serde_json::from_str(network)?, sides(shape)?, precision, steps.parse()?)?;
        }
        ("loss-step", [loss, rows, dimensions]) => {
            loss_step(&device, loss, rows.parse()?, dimensions.parse()?)?
        }
        _ => return Err(format!("`{command}` with {} arguments is no command", rest.len()).into()),
    }
    Ok(())
}

fn say(line: Value) {
    println!("{line}");
}

fn sides(text: &str) -> Outcome<[usize; 4]> {
    let sides: Vec<usize> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    sides.try_into().map_err(|_| "a shape is four numbers".into())
}

fn uniform(name: &str, count: usize) -> Vec<f32> {
    let mut random = Random::new(1, name, 0, 0);
    (0..count).map(|_| random.between(-1.0, 1.0) as f32).collect()
}

fn host<const D: usize>(x: Tensor<D>) -> Vec<f64> {
    x.detach().into_data().convert::<f64>().try_into_vec().expect("converted to f64")
}

/// The largest difference over the largest value; infinite if one is not a number.
fn off(found: &[f64], wanted: &[f64]) -> f64 {
    assert_eq!(found.len(), wanted.len());
    let largest = wanted.iter().fold(1e-12f64, |largest, w| largest.max(w.abs()));
    let differences = found.iter().zip(wanted).map(|(f, w)| (f - w).abs());
    differences.fold(0.0, |worst: f64, d| if d.is_nan() { f64::INFINITY } else { worst.max(d) }) / largest
}

/// `n` rows around one centre a class of four, and the classes.
fn batch(n: usize, d: usize) -> (Vec<f32>, Vec<u32>) {
    let labels: Vec<u32> = (0..n as u32).map(|i| i / 4).collect();
    let (centres, noise) = (uniform("centres", n.div_ceil(4) * d), uniform("rows", n * d));
    let rows = (0..n * d).map(|at| centres[at / d / 4 * d + at % d] + 0.8 * noise[at]).collect();
    (rows, labels)
}

/// Value and gradient of a loss.
fn loss_on(device: &Device, config: &LossConfig, n: usize, d: usize) -> (f64, Vec<f64>) {
    let device = device.clone().autodiff();
    let (rows, labels) = batch(n, d);
    let shape = LossShape { classes: n.div_ceil(4), dimensions: d };
    let loss = config.init(shape, 1, &device);
    let x = Tensor::<2>::from_data(TensorData::new(rows, [n, d]), &device).require_grad();
    let embeddings = if config.normalized() { l2_normalize(x.clone()) } else { x.clone() };
    let output = loss.forward(embeddings, Labels::Classes(&labels), Progress::default());
    let value = host(output.value.clone())[0];
    let gradient = x.grad(&output.value.backward()).map_or(vec![0.0; n * d], host);
    (value, gradient)
}

/// Every loss as a run computes it, and by its tensor code alone.
fn losses(device: &Device) {
    for name in LossConfig::NAMES {
        let config: LossConfig =
            serde_json::from_value(json!({ "name": name })).expect("every key has a default");
        // Losses of two a class take fewer.
        let (n, d) = (48, 32);
        for general in [false, true] {
            let on = |device: &Device| match general {
                true => on_general_path(|| loss_on(device, &config, n, d)),
                false => loss_on(device, &config, n, d),
            };
            let start = Instant::now();
            let (value, gradient) = on(device);
            let seconds = start.elapsed().as_secs_f64();
            let (wanted, of_wanted) = on(&Device::flex());
            say(json!({
                "loss": name,
                "path": if general { "tensor code" } else { "as trained" },
                "value_off": off(&[value], &[wanted]),
                "gradient_off": off(&gradient, &of_wanted),
                "seconds": seconds,
            }));
        }
    }
}

/// Networks small enough for every device, with every kind of layer.
fn small_networks() -> Vec<(&'static str, Value, [usize; 4])> {
    vec![
        ("two_conv", json!({ "kind": "two_conv", "dimensions": 16 }), [4, 1, 28, 28]),
        ("conv_blocks", json!({ "kind": "conv_blocks", "dimensions": 16 }), [4, 1, 28, 28]),
        ("resnet18", json!({ "kind": "resnet", "depth": 18, "dimensions": 16 }), [4, 3, 64, 64]),
        (
            "resnet50, GeM",
            json!({ "kind": "resnet", "depth": 50, "dimensions": 16, "pool": "gem" }),
            [4, 3, 64, 64],
        ),
        ("mobilenet_v2", json!({ "kind": "mobilenet_v2", "dimensions": 16 }), [4, 3, 64, 64]),
        ("googlenet", json!({ "kind": "googlenet", "dimensions": 16 }), [4, 3, 64, 64]),
        (
            "bn_inception",
            json!({ "kind": "bn_inception", "dimensions": 16, "heads": ["L", "M", "H"] }),
            [4, 3, 160, 160],
        ),
    ]
}

/// Outputs in training, and the gradients by name, of a sum of the outputs with fixed signs.
fn network_on(
    device: &Device,
    config: &Value,
    shape: [usize; 4],
    numbers: DType,
) -> Outcome<(Vec<f64>, Vec<Vec<f64>>)> {
    let device = device.clone().autodiff();
    let config: NetworkConfig = serde_json::from_value(config.clone())?;
    let [_, channels, height, width] = shape;
    let network = config.init(InputShape { channels, height, width }, 1, &device)?;
    let images = TensorData::new(uniform("images", shape.iter().product()), shape);
    let images = Tensor::<4>::from_data(images, &device).cast(numbers);
    let outputs = network.forward(images);
    let value = outputs.iter().map(|output| {
        let [n, d] = output.dims();
        let signs = Tensor::<2>::from_data(TensorData::new(uniform("signs", n * d), [n, d]), &device);
        (output.clone() * signs).sum()
    });
    let value = value.reduce(|a, b| a + b).ok_or("a network has a head")?;
    let gradients = GradientsParams::from_grads(value.backward(), &network);
    Ok((outputs.into_iter().flat_map(host).collect(), gradients_of(&network, &gradients)))
}

fn gradients_of(network: &Network, gradients: &GradientsParams) -> Vec<Vec<f64>> {
    use burn::module::{Module, ModuleVisitor, Param};
    struct Collect<'a>(&'a GradientsParams, Vec<Vec<f64>>);
    impl ModuleVisitor for Collect<'_> {
        fn visit_float<const D: usize>(&mut self, param: &Param<Tensor<D>>) {
            self.1.extend(self.0.get::<D>(param.id).map(host));
        }
    }
    let mut visitor = Collect(gradients, Vec::new());
    network.visit(&mut visitor);
    visitor.1
}

/// Compares outputs, and the gradient of every parameter against its own largest value.
fn compare(
    name: &str,
    found: (Vec<f64>, Vec<Vec<f64>>),
    wanted: (Vec<f64>, Vec<Vec<f64>>),
    seconds: f64,
) -> Value {
    assert_eq!(found.1.len(), wanted.1.len(), "parameters with a gradient");
    let mut each: Vec<f64> =
        found.1.iter().zip(&wanted.1).map(|(found, wanted)| off(found, wanted)).collect();
    each.sort_by(f64::total_cmp);
    json!({
        "network": name,
        "output_off": off(&found.0, &wanted.0),
        "gradient_off": each.last(),
        "median_gradient_off": each.get(each.len() / 2),
        "seconds": seconds,
    })
}

fn networks(device: &Device) -> Outcome {
    for (name, config, shape) in small_networks() {
        let start = Instant::now();
        let found = network_on(device, &config, shape, DType::F32)?;
        let seconds = start.elapsed().as_secs_f64();
        let wanted = network_on(&Device::flex(), &config, shape, DType::F32)?;
        say(compare(name, found, wanted, seconds));
    }
    Ok(())
}

fn precision(device: &Device) -> Outcome {
    for numbers in [Precision::Bf16, Precision::F16] {
        if !device.supports_dtype(numbers.dtype()) {
            say(json!({ "network": format!("{} is not there", numbers.name()) }));
            continue;
        }
        for (name, config, shape) in small_networks() {
            let start = Instant::now();
            let found = network_on(device, &config, shape, numbers.dtype())?;
            let seconds = start.elapsed().as_secs_f64();
            let wanted = network_on(device, &config, shape, DType::F32)?;
            say(compare(&format!("{name}, {}", numbers.name()), found, wanted, seconds));
        }
    }
    Ok(())
}

/// Steps of SGD on the mean square of all embeddings, as in `bench/train_step`; each is waited for.
fn step(device: &Device, config: Value, shape: [usize; 4], precision: Precision, steps: usize) -> Outcome {
    let device = device.clone().autodiff();
    let [_, channels, height, width] = shape;
    let config: NetworkConfig = serde_json::from_value(config)?;
    let mut network = config.init(InputShape { channels, height, width }, 1, &device)?;
    let mut optimizer = Optimizer::new(&OptimizerConfig { momentum: 0.9, ..Default::default() });
    let values = TensorData::new(uniform("images", shape.iter().product()), shape);
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    for _ in 0..steps {
        let start = Instant::now();
        let images = Tensor::<4>::from_data(values.clone(), &device);
        let images = if precision == Precision::F32 { images } else { images.cast(precision.dtype()) };
        let squares = network.forward(images).into_iter().map(|output| output.square().mean());
        let loss = squares.reduce(|sum, loss| sum + loss).ok_or("a network has a head")?;
        let mut gradients = loss.backward();
        let gradients = GradientsParams::from_module(&mut gradients, &network);
        network = optimizer.step(0.01, Part::Network, network, gradients);
        losses.push(loss.into_scalar::<f32>());
        device.sync()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    say(json!({ "seconds": seconds, "losses": losses }));
    Ok(())
}

fn loss_step(device: &Device, name: &str, n: usize, d: usize) -> Outcome {
    let config: LossConfig = serde_json::from_value(json!({ "name": name }))?;
    let mut seconds = Vec::new();
    for _ in 0..3 {
        let start = Instant::now();
        loss_on(device, &config, n, d);
        seconds.push(start.elapsed().as_secs_f64());
    }
    say(json!({ "loss": name, "seconds": seconds }));
    Ok(())
}
