//! Takes training steps of a network on request, for `bench/train_step/run.py`.
//!
//! The argument is one JSON object: the network as in a run file, the shape of the images, and a file to
//! write the first weights to, with PyTorch's names; `kernels` is whether those of `gallerist-kernels` are used.
//! With `profile` the last steps asked for are measured by kernel, and the longest are printed to the standard error:
//!
//! ```text
//! {"network": {"kind": "resnet", "depth": 18}, "shape": [8, 3, 224, 224], "weights": "w.safetensors",
//!  "kernels": true}
//! ```
//!
//! Then every line of the standard input is a number of steps to take; the reply is a line with the
//! seconds and the loss of each. The loss is the mean square of all embeddings, the optimiser SGD with
//! momentum 0.9 and the rate 0.01, the images are the numbers `sin(index)`.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_kernels::profile::Timing;
use gallerist_learn::network::{InputShape, NetworkConfig};
use gallerist_learn::optim::{Optimizer, OptimizerConfig, Part};
use gallerist_learn::weights;
use serde::Deserialize;

#[derive(Deserialize)]
struct Request {
    network: NetworkConfig,
    shape: [usize; 4],
    weights: PathBuf,
    kernels: bool,
    #[serde(default)]
    profile: bool,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).ok_or("the argument is a JSON object")?;
    let Request { network: config, shape, weights: file, kernels, profile } =
        serde_json::from_str(&argument)?;
    gallerist_kernels::set_enabled(kernels);
    let device = Device::flex().autodiff();
    let [_, channels, height, width] = shape;
    let mut network = config.init(InputShape { channels, height, width }, 1, &device)?;
    if let Some(file) = &config.weights {
        (network, _) = weights::load(network, weights::read(file)?)?;
    }
    weights::save_safetensors(&network, &file, Default::default())?;
    let values: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i as f64).sin() as f32).collect();
    let images = Tensor::<4>::from_data(TensorData::new(values, shape), &device);
    let mut optimizer = Optimizer::new(&OptimizerConfig { momentum: 0.9, ..Default::default() });

    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let mut steps = Vec::new();
        if profile {
            gallerist_kernels::profile::start();
        }
        for _ in 0..line?.trim().parse::<usize>()? {
            let start = Instant::now();
            let outputs = network.forward(images.clone());
            let squares = outputs.into_iter().map(|output| output.powi_scalar(2).mean());
            let loss = squares.reduce(|sum, loss| sum + loss).expect("a network has a head");
            let mut gradients = loss.backward();
            let gradients = GradientsParams::from_module(&mut gradients, &network);
            network = optimizer.step(0.01, Part::Network, network, gradients);
            steps.push((start.elapsed().as_secs_f64(), loss.into_scalar::<f32>()));
        }
        if profile {
            print_profile(steps.iter().map(|(seconds, _)| seconds).sum());
        }
        println!("{}", serde_json::to_string(&steps)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn print_profile(total: f64) {
    let timings = gallerist_kernels::profile::stop();
    let inside: f64 = timings.iter().map(|timing| timing.seconds).sum();
    eprintln!("{total:.3} s, {:.1} % of them in the kernels", 100.0 * inside / total);
    let mut operations = Vec::<Timing>::new();
    for timing in &timings {
        match operations.iter_mut().find(|sum| sum.operation == timing.operation) {
            Some(sum) => {
                sum.calls += timing.calls;
                sum.seconds += timing.seconds;
                sum.multiply_adds += timing.multiply_adds;
            }
            None => operations.push(Timing { sizes: "all".into(), ..timing.clone() }),
        }
    }
    operations.sort_by(|a, b| b.seconds.total_cmp(&a.seconds));
    for Timing { operation, sizes, calls, seconds, multiply_adds, .. } in
        operations.iter().chain(&timings).take(50)
    {
        let share = 100.0 * seconds / total;
        let rate = 2e-9 * *multiply_adds as f64 / seconds;
        eprintln!("{share:5.1} % {rate:6.1} GF/s {calls:5} x {operation}: {sizes}");
    }
}
