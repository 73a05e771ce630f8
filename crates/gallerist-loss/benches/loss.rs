//! Times forward + backward of the losses: `cargo bench -p gallerist-loss --bench loss`.
//!
//! Without arguments: a table of the losses at (180, 512), (1,024, 512) and (8,192, 128).
//! `--memory LOSS` runs one batch of (32,768, 128) and prints the peak of the process's memory. `--serve` answers
//! requests, one JSON object per line:
//!
//! ```text
//! {"loss": {"name": "rll"}, "embeddings": "x.f32", "labels": "y.u32", "dimensions": 512,
//!  "repeat": 5, "gradient": "g.f32", "classes": 11000}
//! ```
//!
//! with the value, the seconds of each repetition and, if requested, the gradient in a file. Files are
//! raw little-endian values. The scripts that compare with other libraries use it.

use std::hint::black_box;
use std::io::{BufRead, Write};
use std::time::Instant;

use burn::tensor::{Device, Tensor, TensorData};
use gallerist_loss::{AnyLoss, Labels, LossConfig, LossShape, Progress};
use serde_json::{Value, json};

type Failure = Box<dyn std::error::Error>;

const LOSSES: [&str; 12] = [
    "rll",
    "ice",
    "nra",
    "srt",
    "contrastive",
    "triplet_batch_hard",
    "triplet_semihard",
    "triplet_hard_negative",
    "triplet_adaptive",
    "triplet_all",
    "multi_similarity",
    "circle",
];

struct Data {
    rows: Vec<f32>,
    labels: Vec<u32>,
    dimensions: usize,
}

impl Data {
    /// Normalised rows around one centre per class of four, from a fixed linear congruence.
    fn synthetic(n: usize, dimensions: usize) -> Self {
        let mut state = 1u64;
        let mut uniform = move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 40) as f32 / (1u64 << 23) as f32 - 1.0
        };
        let labels: Vec<u32> = (0..n as u32).map(|i| i / 4).collect();
        let centres: Vec<f32> = (0..n.div_ceil(4) * dimensions).map(|_| uniform()).collect();
        let mut rows: Vec<f32> = Vec::with_capacity(n * dimensions);
        for i in 0..n {
            let centre = &centres[i / 4 * dimensions..][..dimensions];
            let row: Vec<f32> = centre.iter().map(|c| 0.7 * c + uniform() + 0.5).collect();
            let norm = row.iter().map(|v| v * v).sum::<f32>().sqrt();
            rows.extend(row.iter().map(|v| v / norm));
        }
        Data { rows, labels, dimensions }
    }

    fn read(embeddings: &str, labels: &str, dimensions: usize) -> Result<Self, Failure> {
        let words = |path: &str| -> Result<Vec<[u8; 4]>, Failure> {
            Ok(std::fs::read(path)?.as_chunks::<4>().0.to_vec())
        };
        let rows = words(embeddings)?.into_iter().map(f32::from_le_bytes).collect();
        let labels = words(labels)?.into_iter().map(u32::from_le_bytes).collect();
        Ok(Data { rows, labels, dimensions })
    }
}

struct Run {
    value: f32,
    gradient: Vec<f32>,
    seconds: Vec<f64>,
}

/// Forward and backward, timed from a leaf tensor to its gradient.
fn run(loss: &AnyLoss, data: &Data, repeat: usize) -> Run {
    let device = Device::flex().autodiff();
    let shape = [data.labels.len(), data.dimensions];
    let rows =
        Tensor::<2>::from_data(TensorData::new(data.rows.clone(), shape), &device.clone().without_autodiff());
    let mut result = Run { value: 0.0, gradient: Vec::new(), seconds: Vec::new() };
    for _ in 0..repeat {
        let x = rows.clone().autodiff().require_grad();
        let start = Instant::now();
        let output = loss.forward(x.clone(), Labels::Classes(&data.labels), Progress::default());
        let mut gradients = output.value.backward();
        let gradient = black_box(x.grad_remove(&mut gradients));
        result.seconds.push(start.elapsed().as_secs_f64());
        result.value = output.value.into_scalar::<f32>();
        result.gradient = gradient.map_or(vec![0.0; data.rows.len()], |gradient| {
            gradient.into_data().try_into_vec().expect("f32 in, f32 out")
        });
    }
    result
}

/// The loss for `classes` training classes; `None`: those of the data.
fn init(config: &LossConfig, data: &Data, classes: Option<usize>) -> AnyLoss {
    let classes = classes.unwrap_or(data.labels.iter().max().map_or(0, |&label| label as usize + 1));
    config.init(LossShape { classes, dimensions: data.dimensions }, 0, &Device::flex().autodiff())
}

fn named(name: &str) -> Option<LossConfig> {
    serde_json::from_value(json!({ "name": name })).ok()
}

fn table() {
    println!("forward + backward, ms, least of the repetitions");
    println!("{:24}{:>14}{:>14}{:>14}", "", "180 x 512", "1024 x 512", "8192 x 128");
    for name in LOSSES {
        let Some(config) = named(name) else { continue };
        print!("{name:24}");
        for (n, d, repeats) in [(180, 512, 50), (1024, 512, 15), (8192, 128, 3)] {
            let data = Data::synthetic(n, d);
            let loss = init(&config, &data, None);
            let least = run(&loss, &data, repeats).seconds.into_iter().fold(f64::INFINITY, f64::min);
            print!("{:>14.2}", 1e3 * least);
            std::io::stdout().flush().expect("standard output takes the table");
        }
        println!();
    }
}

/// Peak of the resident memory, in MiB.
fn peak_memory() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    let kibibytes: f64 = line.split_whitespace().nth(1)?.parse().ok()?;
    Some(kibibytes / 1024.0)
}

fn memory(name: &str) -> Result<(), Failure> {
    let config = named(name).ok_or_else(|| format!("no loss is called `{name}`"))?;
    let data = Data::synthetic(32_768, 128);
    let result = run(&init(&config, &data, None), &data, 1);
    let peak = peak_memory().map_or("?".to_string(), |mib| format!("{mib:.0}"));
    println!("{name}: 32768 x 128 in {:.2} s, value {}, peak {peak} MiB", result.seconds[0], result.value);
    Ok(())
}

fn answer(line: &str) -> Result<Value, Failure> {
    let request: Value = serde_json::from_str(line)?;
    let text = |key: &str| request[key].as_str().ok_or_else(|| format!("`{key}` is missing"));
    let number = |key: &str| request[key].as_u64().map(|v| v as usize);
    let config: LossConfig = serde_json::from_value(request["loss"].clone())?;
    let dimensions = number("dimensions").ok_or("`dimensions` is missing")?;
    let data = Data::read(text("embeddings")?, text("labels")?, dimensions)?;
    let loss = init(&config, &data, number("classes"));
    let result = run(&loss, &data, number("repeat").unwrap_or(1).max(1));
    if let Some(path) = request["gradient"].as_str() {
        std::fs::write(path, result.gradient.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>())?;
    }
    Ok(json!({ "value": result.value, "seconds": result.seconds }))
}

fn serve() -> Result<(), Failure> {
    for line in std::io::stdin().lock().lines() {
        let reply = answer(&line?).unwrap_or_else(|error| json!({ "error": error.to_string() }));
        println!("{reply}");
        std::io::stdout().flush()?;
    }
    Ok(())
}

fn main() -> Result<(), Failure> {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| argument != "--bench").collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        [] => {
            table();
            Ok(())
        }
        ["--serve"] => serve(),
        ["--memory", name] => memory(name),
        _ => Err("arguments: none, --serve, or --memory LOSS".into()),
    }
}
