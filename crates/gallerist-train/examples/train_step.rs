//! Takes training steps of a network on request, for `bench/train_step/run.py`.
//!
//! The argument is one JSON object: the network as in a run file, the shape of the images, and a file to
//! write the first weights to, with PyTorch's names; `kernels` is whether those of `gallerist-kernels` are used, `products`
//! how these multiply (`f32`, the default, `f32-direct` or `bf16`).
//! With `profile`, the last steps are measured by kernel, and the longest are printed to the standard error:
//!
//! ```text
//! {"network": {"kind": "resnet", "depth": 18}, "shape": [8, 3, 224, 224], "weights": "w.safetensors",
//!  "kernels": true}
//! ```
//!
//! With `onnx`, a path, the network is also written there, to be run by others. With `inference` steps are
//! forward passes alone of the network prepared for embedding.
//!
//! Then every line of the standard input is a number of steps to take; the reply is a line with the
//! seconds and the loss of each; those of a forward pass are without its loss. The loss is the mean square of all embeddings,
//! the optimiser SGD with momentum 0.9 and the rate 0.01, the images are the numbers `sin(index)`.

use std::io::{BufRead, Write};
use std::path::PathBuf;
use std::time::Instant;

use burn::module::Module;
use burn::optim::GradientsParams;
use burn::tensor::{Device, Tensor, TensorData};
use gallerist_kernels::{on_worker, with_products};
use gallerist_nn::{HeadChoice, InputShape, NetworkConfig, Products};
use gallerist_train::optim::{Optimizer, OptimizerConfig, Part};
use gallerist_train::profile::{Operation, Profile};
use gallerist_weights::{self as weights, OnnxOptions};
use serde::Deserialize;

#[derive(Deserialize)]
struct Request {
    network: NetworkConfig,
    shape: [usize; 4],
    weights: PathBuf,
    kernels: bool,
    #[serde(default)]
    products: Products,
    #[serde(default)]
    profile: bool,
    #[serde(default)]
    inference: bool,
    onnx: Option<PathBuf>,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let argument = std::env::args().nth(1).ok_or("the argument is a JSON object")?;
    let request: Request = serde_json::from_str(&argument)?;
    gallerist_kernels::set_enabled(request.kernels);
    let products = request.products;
    let serve = || on_worker(|| serve(request).map_err(|error| error.to_string()));
    Ok(with_products(products, serve)?)
}

fn serve(request: Request) -> Result<(), Box<dyn std::error::Error>> {
    let Request { network: config, shape, weights: file, profile, inference, onnx, products, .. } = request;
    let device = Device::flex().autodiff();
    let [_, channels, height, width] = shape;
    let input = InputShape { channels, height, width };
    let mut network = config.init(input, 1, &device)?;
    if let Some(file) = &config.weights {
        (network, _) = weights::load(network, weights::read(file)?)?;
    }
    weights::save_safetensors(&network, &file, Default::default())?;
    if let Some(path) = onnx {
        let heads = HeadChoice::default();
        let places = heads.places(&config.heads())?;
        let options = OnnxOptions { input, heads, places, normalize: false, metadata: Default::default() };
        weights::save_onnx(&network, &path, &options)?;
    }
    let values: Vec<f32> = (0..shape.iter().product()).map(|i: usize| (i as f64).sin() as f32).collect();
    let images = |device: &Device| Tensor::<4>::from_data(TensorData::new(values.clone(), shape), device);
    let (images, plain) = (images(&device), images(&Device::flex()));
    let fixed = network.valid();
    let prepared = match (inference, products) {
        (false, _) => None,
        (true, Products::Int8) => {
            let mut measurement = fixed.measure(input).expect("a network with a form in int8");
            measurement.add(&values, shape[0]);
            fixed.prepare_int8(input, &measurement.finish().expect("finite values"))
        }
        (true, products) => fixed.prepare(input, products),
    };
    let mean_square = |outputs: Vec<Tensor<2>>| {
        let squares = outputs.into_iter().map(|output| output.powi_scalar(2).mean());
        squares.reduce(|sum, loss| sum + loss).expect("a network has a head")
    };
    let mut optimizer = Optimizer::new(&OptimizerConfig { momentum: 0.9, ..Default::default() });

    println!("ready");
    for line in std::io::stdin().lock().lines() {
        let mut steps = Vec::new();
        if profile {
            gallerist_kernels::profile::start();
        }
        for _ in 0..line?.trim().parse::<usize>()? {
            let start = Instant::now();
            if inference {
                let outputs = match &prepared {
                    Some(prepared) => prepared.forward(&values, shape[0]),
                    None => fixed.forward(plain.clone()),
                };
                let seconds = start.elapsed().as_secs_f64();
                steps.push((seconds, mean_square(outputs).into_scalar::<f32>()));
                continue;
            }
            let loss = mean_square(network.forward(images.clone()));
            let mut gradients = loss.backward();
            let gradients = GradientsParams::from_module(&mut gradients, &network);
            network = optimizer.step(0.01, Part::Network, network, gradients);
            steps.push((start.elapsed().as_secs_f64(), loss.into_scalar::<f32>()));
        }
        if profile {
            let seconds = steps.iter().map(|(seconds, _)| seconds).sum();
            print_profile(&Profile::new(gallerist_kernels::profile::stop(), steps.len(), seconds, 0.0));
        }
        println!("{}", serde_json::to_string(&steps)?);
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn print_profile(profile: &Profile) {
    let share = |seconds: f64| 100.0 * seconds / profile.seconds;
    eprintln!("{:.3} s, {:.1} % of them in the kernels", profile.seconds, share(profile.in_kernels));
    for (operation, seconds) in profile.by_operation() {
        eprintln!("{:5.1} % {operation}", share(seconds));
    }
    for Operation { operation, sizes, calls, seconds, gigaflops } in profile.operations.iter().take(35) {
        let rate = gigaflops.map_or(String::new(), |rate| format!("{rate:.1} GF/s"));
        eprintln!("{:5.1} % {rate:>11} {calls:5} x {operation}: {sizes}", share(*seconds));
    }
}
