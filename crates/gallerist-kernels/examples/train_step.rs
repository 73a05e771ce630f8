//! Milliseconds of one training step of the small network, with and without the kernels.
//!
//! `cargo run --release -p gallerist-kernels --example train_step -- [BATCH] [STEPS] [--cpu-time]`
//!
//! The network is 4 x [convolution 3x3 of 64 channels, batch norm, ReLU, max pool 2x2] on
//! BATCH x 1 x 28 x 28, then a linear layer to 128 values. Both variants take a step in turn, so that
//! a busy machine slows both; the figures are medians, with minima in brackets. `--cpu-time` (Unix)
//! counts the time of all threads instead of that on the clock. Weights, data and loss are those of
//! `bench/train_step/train_step.py`, which measures PyTorch.

use std::time::{Duration, Instant};

use burn::module::{Module, Param};
use burn::nn::conv::{Conv2d, Conv2dConfig};
use burn::nn::{BatchNorm, BatchNormConfig, Linear, LinearConfig, PaddingConfig2d};
use burn::optim::{GradientsParams, SgdConfig, momentum::MomentumConfig};
use burn::tensor::{Device, Tensor, TensorData, ops::ConvOptions};
use gallerist_kernels::{batch_norm_relu_max_pool2, conv2d, set_enabled};

/// Values in [-1, 1) from a hash of the index: the same in Rust and in Python.
fn values(count: usize, key: u64, scale: f64) -> Vec<f32> {
    const MASK: u64 = 0xFFFF_FFFF;
    (0..count as u64)
        .map(|i| {
            let mut x = (i * 2_654_435_761 + (((key + 1) * 0x9E37_79B9) & MASK)) & MASK;
            for _ in 0..2 {
                x ^= x >> 16;
                x = (x * 0x045D_9F3B) & MASK;
            }
            x ^= x >> 16;
            ((x as f64 / 4_294_967_296.0 * 2.0 - 1.0) * scale) as f32
        })
        .collect()
}

#[derive(Module, Debug)]
struct Small {
    convolutions: Vec<Conv2d>,
    norms: Vec<BatchNorm>,
    linear: Linear,
}

impl Small {
    fn new(device: &Device) -> Self {
        let he = |fan_in: usize| (6.0 / fan_in as f64).sqrt();
        let convolutions = (0..4)
            .map(|block: u64| {
                let channels = if block == 0 { 1 } else { 64 };
                let mut layer = Conv2dConfig::new([channels, 64], [3, 3])
                    .with_padding(PaddingConfig2d::Explicit(1, 1, 1, 1))
                    .with_bias(false)
                    .init(device);
                let weight = values(64 * channels * 9, block, he(channels * 9));
                let shape = [64, channels, 3, 3];
                layer.weight = Param::from_tensor(Tensor::from_data(TensorData::new(weight, shape), device));
                layer
            })
            .collect();
        let mut linear = LinearConfig::new(64, 128).init(device);
        let weight: Tensor<2> =
            Tensor::from_data(TensorData::new(values(128 * 64, 4, he(64)), [128, 64]), device);
        linear.weight = Param::from_tensor(weight.transpose());
        linear.bias = Some(Param::from_tensor(Tensor::zeros([128], device)));
        Self { convolutions, norms: (0..4).map(|_| BatchNormConfig::new(64).init(device)).collect(), linear }
    }

    fn forward(&self, x: Tensor<4>) -> Tensor<2> {
        let mut x = x;
        for (convolution, norm) in self.convolutions.iter().zip(&self.norms) {
            let options = ConvOptions::new([1, 1], [1, 1], [1, 1], 1);
            let maps = conv2d(x, convolution.weight.val(), None, options);
            let (gamma, beta) = (norm.gamma.val(), norm.beta.val());
            x = batch_norm_relu_max_pool2(maps, gamma, beta, 1e-5).output;
        }
        self.linear.forward(x.flatten(1, 3))
    }
}

/// Mean squared difference between the cosine similarities and "same class".
fn loss(embeddings: Tensor<2>, same: Tensor<2>) -> Tensor<1> {
    let norm = (embeddings.clone().powi_scalar(2).sum_dim(1) + 1e-12).sqrt();
    let unit = embeddings / norm;
    (unit.clone().matmul(unit.transpose()) - same).powi_scalar(2).mean()
}

/// Time on the clock, or that all threads of this process have run.
enum Clock {
    Wall(Instant),
    Cpu,
}

impl Clock {
    fn now(&self) -> Duration {
        match self {
            Clock::Wall(start) => start.elapsed(),
            Clock::Cpu => {
                let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
                // SAFETY: `time` is a timespec the call may write.
                let result = unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
                assert_eq!(result, 0, "this system has no clock of the processor time");
                Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
            }
        }
    }
}

fn median(times: &mut [f64]) -> String {
    times.sort_by(f64::total_cmp);
    format!("{:7.1} ({:6.1})", times[times.len() / 2] * 1e3, times[0] * 1e3)
}

fn main() {
    let (flags, numbers): (Vec<_>, Vec<_>) =
        std::env::args().skip(1).partition(|argument| argument.starts_with("--"));
    let clock = match flags.as_slice() {
        [] => Clock::Wall(Instant::now()),
        [flag] if flag == "--cpu-time" => Clock::Cpu,
        _ => panic!("the only flag is --cpu-time"),
    };
    let mut arguments = numbers.iter().map(|text| text.parse::<usize>());
    let batch = arguments.next().map_or(180, |n| n.expect("BATCH is a number"));
    let steps = arguments.next().map_or(11, |n| n.expect("STEPS is a number"));
    let device = Device::flex().autodiff();
    let data = TensorData::new(values(batch * 784, 1000, 1.0), [batch, 1, 28, 28]);
    let x: Tensor<4> = Tensor::from_data(data, &device);
    let same = (0..batch * batch).map(|i| f32::from(u8::from((i / batch) / 4 == (i % batch) / 4))).collect();
    let same: Tensor<2> = Tensor::from_data(TensorData::new::<f32, _>(same, [batch, batch]), &device);

    let optimiser = || {
        SgdConfig::new()
            .with_momentum(Some(MomentumConfig::new().with_momentum(0.9).with_dampening(0.0)))
            .init()
    };
    let mut variants = [true, false].map(|kernels| (kernels, Some(Small::new(&device)), optimiser()));
    // Phases: forward, backward, optimiser, all.
    let mut times = [const { [const { vec![] }; 4] }; 2];
    let mut losses = [vec![], vec![]];
    const WARM: usize = 2;
    for step in 0..WARM + steps {
        for (variant, (kernels, model, optimiser)) in variants.iter_mut().enumerate() {
            set_enabled(*kernels);
            let current = model.take().expect("every step puts the model back");
            let start = clock.now();
            let value = loss(current.forward(x.clone()), same.clone());
            let forward = clock.now() - start;
            let gradients = value.backward();
            let backward = clock.now() - start;
            let gradients = GradientsParams::from_grads(gradients, &current);
            *model = Some(optimiser.step(0.05, current, gradients));
            losses[variant].push(value.into_scalar::<f32>());
            let all = clock.now() - start;
            if step >= WARM {
                let phases = [forward, backward - forward, all - backward, all];
                for (times, phase) in times[variant].iter_mut().zip(phases) {
                    times.push(phase.as_secs_f64());
                }
            }
        }
    }
    println!(
        "batch {batch}, {steps} steps, {} threads; {}: median (minimum)",
        rayon::current_num_threads(),
        if matches!(clock, Clock::Cpu) { "CPU ms" } else { "ms" }
    );
    println!("           forward            backward           optimiser          step");
    for (name, times) in ["kernels", "engine "].iter().zip(&mut times) {
        let phases: Vec<String> = times.iter_mut().map(|times| median(times)).collect();
        println!("{name}  {}", phases.join("   "));
    }
    for (name, losses) in ["kernels", "engine "].iter().zip(&losses) {
        let first: Vec<String> = losses.iter().take(5).map(|loss| format!("{loss:.6}")).collect();
        println!("{name}  losses {}", first.join(" "));
    }
}
