//! Compares a device with the CPU and times it, for `bench/gpu/run.py`.
//!
//! ```text
//! gpu_check DEVICE device                          the device's name
//! gpu_check DEVICE losses                          every loss: value and gradient compared with the CPU
//! gpu_check DEVICE names                           the networks of the next two commands
//! gpu_check DEVICE networks [NAME...]              every network: outputs and gradients compared with the CPU
//! gpu_check DEVICE precision [NAME...]             the same in bf16 and f16
//! gpu_check DEVICE step NETWORK SHAPE PRECISION N  N training steps, then two with the times of their kernels, e.g.
//!                                                  step '{"kind": "resnet", "depth": 50}' 180,3,227,227 bf16 30
//! gpu_check DEVICE loss-step LOSS ROWS DIMENSIONS  three forward and backward passes of a loss
//! ```
//!
//! One JSON object a line on the standard output. `off` is the largest difference over the largest value for losses, the
//! length of the difference over the length for networks.

#[path = "../tests/common/pass.rs"]
mod pass;

use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{DType, Device, Tensor, TensorData};
use gallerist_loss::{Labels, LossConfig, LossShape, Progress};
use gallerist_nn::{InputShape, NetworkConfig};
use gallerist_tensor::device::{DeviceChoice, OpenDevice, uploaded};
use gallerist_tensor::pairwise::l2_normalize;
use gallerist_train::Precision;
use gallerist_train::optim::{Optimizer, OptimizerConfig, Part};
use pass::{Numbers, Off, Pass, host, rounding, uniform, when_moved};
use serde_json::{Value, json};

type CheckResult<T = ()> = Result<T, Box<dyn std::error::Error>>;

fn main() -> CheckResult {
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
        ("names", []) => small_networks().into_iter().for_each(|(name, ..)| say(json!({ "network": name }))),
        ("networks", names) => networks(&opened, names)?,
        ("precision", names) => precision(&device, names)?,
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

fn sides(text: &str) -> CheckResult<[usize; 4]> {
    let sides: Vec<usize> = text.split(',').map(str::parse).collect::<Result<_, _>>()?;
    sides.try_into().map_err(|_| "a shape is four numbers".into())
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

/// Every loss.
fn losses(device: &Device) {
    for name in LossConfig::names() {
        let config: LossConfig =
            serde_json::from_value(json!({ "name": name })).expect("every key has a default");
        // Losses of two a class take fewer.
        let (n, d) = (48, 32);
        let start = Instant::now();
        let (value, gradient) = loss_on(device, &config, n, d);
        let seconds = start.elapsed().as_secs_f64();
        let (wanted, of_wanted) = loss_on(&Device::flex(), &config, n, d);
        say(json!({
            "loss": name,
            "value_off": off(&[value], &[wanted]),
            "gradient_off": off(&gradient, &of_wanted),
            "seconds": seconds,
        }));
    }
}

/// Networks small enough for every device, with every kind of layer.
fn small_networks() -> Vec<(&'static str, Value, [usize; 4])> {
    vec![
        ("two_conv", json!({ "kind": "two_conv", "dimensions": 16 }), [4, 1, 28, 28]),
        ("conv_blocks", json!({ "kind": "conv_blocks", "dimensions": 16 }), [4, 1, 28, 28]),
        ("resnet18", json!({ "kind": "resnet", "depth": 18, "dimensions": 16 }), [4, 3, 64, 64]),
        (
            "resnet50_gem",
            json!({ "kind": "resnet", "depth": 50, "dimensions": 16, "pool": "gem" }),
            [4, 3, 64, 64],
        ),
        ("mobilenet_v2", json!({ "kind": "mobilenet_v2", "dimensions": 16 }), [4, 3, 64, 64]),
        ("mobilenet_v3", json!({ "kind": "mobilenet_v3", "dimensions": 16 }), [4, 3, 64, 64]),
        ("efficientnet", json!({ "kind": "efficientnet", "dimensions": 16 }), [4, 3, 64, 64]),
        ("googlenet", json!({ "kind": "googlenet", "dimensions": 16 }), [4, 3, 64, 64]),
        (
            "bn_inception",
            json!({ "kind": "bn_inception", "dimensions": 16, "heads": ["L", "M", "H"] }),
            [4, 3, 160, 160],
        ),
        (
            "vit",
            json!({ "kind": "vit", "width": 64, "depth": 2, "patch": 14, "dimensions": 16 }),
            [4, 3, 56, 56],
        ),
        (
            "vit_registers",
            json!({
                "kind": "vit", "width": 64, "depth": 2, "patch": 14, "dimensions": 16, "output": "class_and_mean",
                "registers": 4, "layer_scale": true,
            }),
            [4, 3, 56, 56],
        ),
        (
            "vit_attention",
            json!({
                "kind": "vit", "width": 64, "depth": 2, "patch": 14, "dimensions": 16, "output": "attention",
                "class_token": false, "activation": "gelu_tanh",
            }),
            [4, 3, 56, 56],
        ),
    ]
}

/// Compares a pass in `numbers` with one in f32 on the processor. It may be as far off as that goes when images and
/// weights are moved by `bound`.
fn compare(device: &Device, names: &[&str], numbers: DType, bound: f64) -> CheckResult {
    let wanted = |name: &str| names.is_empty() || names.contains(&name);
    for (name, config, shape) in small_networks().into_iter().filter(|(name, ..)| wanted(name)) {
        // Transformers have no batch norm.
        let freezes: &[&str] = if name.starts_with("vit") { &["none"] } else { &["none", "statistics"] };
        for &freeze in freezes {
            let mut config = config.clone();
            config["freeze_batch_norm"] = json!(freeze);
            let config: NetworkConfig = serde_json::from_value(config)?;
            let pass = |device: &Device, numbers| Pass::new(device, &config, shape, numbers, 1.0);
            let start = Instant::now();
            let found = pass(device, Numbers::In(numbers))?;
            let seconds = start.elapsed().as_secs_f64();
            let wanted = pass(&Device::flex(), Numbers::In(DType::F32))?;
            let bound = when_moved(&wanted, &config, shape, bound)?;
            let found = found.off(&wanted);
            let pair = |found: f64, bound: f64| json!({ "off": found, "bound": (bound <= Off::TELLING).then_some(bound) });
            say(json!({
                "network": name,
                "batch_norm": match (name.starts_with("vit"), freeze) {
                    (true, _) => "–",
                    (_, "none") => "of the batch",
                    _ => "frozen",
                },
                "numbers": format!("{numbers:?}").to_lowercase(),
                "outputs": pair(found.outputs, bound.outputs),
                "gradient": pair(found.gradient, bound.gradient),
                "worst": pair(found.worst, bound.worst),
                "within": found.within(bound),
                "seconds": seconds,
            }));
        }
    }
    Ok(())
}

fn networks(device: &OpenDevice, names: &[&str]) -> CheckResult {
    // Sums of many terms round many times, and single values that cross 0 are rare and weigh much.
    let f32_rounding = 64.0 * rounding(DType::F32);
    // Products may be rounded to TF32, which is as fine as f16.
    let bound = if device.kind() == "cuda" { 6.0 * rounding(DType::F16) } else { f32_rounding };
    compare(device.device(), names, DType::F32, bound)
}

fn precision(device: &Device, names: &[&str]) -> CheckResult {
    for numbers in [DType::BF16, DType::F16] {
        match device.supports_dtype(numbers) {
            true => compare(device, names, numbers, 6.0 * rounding(numbers))?,
            false => say(json!({ "numbers": format!("{numbers:?}").to_lowercase(), "there": false })),
        }
    }
    Ok(())
}

/// Steps of SGD on the mean square of all embeddings, as in `bench/train_step`; each is waited for.
fn step(
    device: &Device,
    config: Value,
    shape: [usize; 4],
    precision: Precision,
    steps: usize,
) -> CheckResult {
    let device = device.clone().autodiff();
    let [_, channels, height, width] = shape;
    let config: NetworkConfig = serde_json::from_value(config)?;
    let mut network = Some(config.init(InputShape { channels, height, width }, 1, &device)?);
    let mut optimizer = Optimizer::new(&OptimizerConfig { momentum: 0.9, ..Default::default() });
    let values = uniform("images", shape.iter().product());
    let (mut seconds, mut losses) = (Vec::new(), Vec::new());
    let mut next = || -> CheckResult {
        // A loader gives its images away; the copy is not part of a step.
        let values = values.clone();
        let start = Instant::now();
        let images = uploaded(values, shape, &device);
        let images = if precision == Precision::F32 { images } else { images.cast(precision.dtype()) };
        let trained = network.take().expect("put back after every step");
        let squares = trained.forward(images).into_iter().map(|output| output.square().mean());
        let loss = squares.reduce(|sum, loss| sum + loss).ok_or("a network has a head")?;
        let mut gradients = loss.backward();
        let gradients = GradientsParams::from_module(&mut gradients, &trained);
        network = Some(optimizer.step(0.01, Part::Network, trained, gradients));
        losses.push(loss.into_scalar::<f32>());
        device.sync()?;
        seconds.push(start.elapsed().as_secs_f64());
        eprintln!("step {}: {:.3} s", seconds.len(), start.elapsed().as_secs_f64());
        Ok(())
    };
    for _ in 0..steps {
        next()?;
    }
    let kernels = kernels_of(PROFILED, &mut next)?;
    seconds.truncate(steps);
    losses.truncate(steps);
    say(json!({ "seconds": seconds, "losses": losses, "kernels": kernels }));
    Ok(())
}

/// Steps of which the kernels are measured.
const PROFILED: usize = 2;

/// The kernels of `steps` steps: name, runs a step and milliseconds a step; and the milliseconds from the first kernel to
/// the last.
#[cfg(any(feature = "cuda", feature = "wgpu"))]
fn kernels_of(steps: usize, next: &mut impl FnMut() -> CheckResult) -> CheckResult<Value> {
    let times = gallerist_tensor::kernel_times::KernelTimes::start();
    for _ in 0..steps {
        next()?;
    }
    let found = times.stop();
    let a_step = |sum: f64| sum / steps as f64;
    let kernels: Vec<Value> = found
        .kernels
        .iter()
        .map(|k| json!({ "kernel": k.kernel, "runs": a_step(k.runs as f64), "ms": 1000.0 * a_step(k.seconds) }))
        .collect();
    Ok(json!({ "span_ms": 1000.0 * a_step(found.span), "kernels": kernels }))
}

#[cfg(not(any(feature = "cuda", feature = "wgpu")))]
fn kernels_of(_: usize, _: &mut impl FnMut() -> CheckResult) -> CheckResult<Value> {
    Ok(Value::Null)
}

fn loss_step(device: &Device, name: &str, n: usize, d: usize) -> CheckResult {
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
