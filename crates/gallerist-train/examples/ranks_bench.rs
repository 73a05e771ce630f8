//! Times what the ranks of a distributed run exchange, and the loss of large batches, whose lists they divide; see
//! bench/scaling/README.md.
//!
//! ```sh
//! cargo build --release -p gallerist-train --features mpi --example ranks_bench
//! mpirun -n 2 --bind-to none target/release/examples/ranks_bench >measured.jsonl
//! ```

use std::time::Instant;

use burn::tensor::Device;
use gallerist_collective::{Collective, Shared, bytes_of, world};
use gallerist_loss::engine::RowBatch;
use gallerist_loss::{Labels, LossShape, LossSpec, Progress, RllConfig};
use gallerist_util::random::Random;

type Result<T, E = Box<dyn std::error::Error>> = std::result::Result<T, E>;

/// Values of an exchange: 4 KiB to 256 MiB.
const EXCHANGED: [usize; 9] =
    [1 << 10, 1 << 12, 1 << 14, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26];

/// Batches and dimensions of the loss.
const BATCHES: [(usize, usize); 4] = [(1024, 128), (4096, 128), (4096, 512), (16384, 128)];

/// Measured times of each operation.
const TIMES: usize = 9;

fn main() -> Result<()> {
    let ranks = world()?;
    rayon::ThreadPoolBuilder::new().num_threads(ranks.threads()?).build_global()?;
    for values in EXCHANGED {
        let own = vec![ranks.rank() as f32 + 0.5; values];
        let part = &own[..values / ranks.size()];
        let lengths = vec![size_of_val(part); ranks.size()];
        measure(&*ranks, "all_gather", values, 0, &mut || {
            ranks.all_gather(bytes_of(part), &lengths)?;
            Ok(())
        })?;
        let mut sums = own.clone();
        measure(&*ranks, "all_reduce", values, 0, &mut || Ok(ranks.all_reduce(&mut sums)?))?;
    }
    for (n, d) in BATCHES {
        let batch = Batch::new(n, d);
        let mut alone = 0.0;
        measure(&*ranks, "loss, whole", n, d, &mut || {
            alone = batch.loss();
            Ok(())
        })?;
        let shared = Shared::new(ranks.clone());
        measure(&*ranks, "loss, divided", n, d, &mut || {
            let value = shared.within(|| batch.loss());
            shared.check()?;
            if (value - alone).abs() > 1e-6 * alone.abs() {
                return Err(format!("{n} x {d}: {value} instead of {alone}").into());
            }
            Ok(())
        })?;
    }
    ranks.finish();
    Ok(())
}

/// Rows of length 1, four of each label.
struct Batch {
    rows: Vec<f32>,
    dimensions: usize,
    labels: Vec<u32>,
}

impl Batch {
    fn new(n: usize, dimensions: usize) -> Self {
        let mut random = Random::new(1, "ranks_bench", 0, 0);
        let mut rows: Vec<f32> = (0..n * dimensions).map(|_| random.between(-0.5, 0.5) as f32).collect();
        for row in rows.chunks_mut(dimensions) {
            let norm = row.iter().map(|value| value * value).sum::<f32>().sqrt();
            row.iter_mut().for_each(|value| *value /= norm);
        }
        Batch { rows, dimensions, labels: (0..n as u32).map(|i| i / 4).collect() }
    }

    /// The value of RLL-Simpler, whose gradient is computed, too.
    fn loss(&self) -> f64 {
        let Batch { rows, dimensions, labels } = self;
        let labels = Labels::Classes(labels);
        let batch = RowBatch { rows, dimensions: *dimensions, labels, memory: None, normalize: false };
        // Built by its crate: this one is compiled without optimisation.
        let loss =
            RllConfig::simpler().build(LossShape { classes: 0, dimensions: *dimensions }, 1, &Device::flex());
        let mut gradient = vec![0.0; rows.len()];
        let on_rows = loss.on_rows().expect("it is a list loss");
        on_rows.forward_f32(&batch, Progress::default(), Some(&mut gradient)).0
    }
}

/// Prints the times of an operation, of which each is that of the slowest rank.
fn measure(
    ranks: &dyn Collective,
    operation: &str,
    size: usize,
    dimensions: usize,
    work: &mut dyn FnMut() -> Result<()>,
) -> Result<()> {
    let mut times = Vec::new();
    for _ in 0..=TIMES {
        ranks.barrier()?;
        let start = Instant::now();
        work()?;
        let own = start.elapsed().as_secs_f64();
        let all = ranks.all_gather_any(&own.to_ne_bytes())?;
        let seconds = all.iter().map(|bytes| f64::from_ne_bytes(bytes[..].try_into().expect("8 bytes")));
        times.push(seconds.fold(0.0, f64::max));
    }
    // The first one takes memory.
    times.remove(0);
    times.sort_by(f64::total_cmp);
    if ranks.rank() == 0 {
        let row = serde_json::json!({
            "ranks": ranks.size(),
            "threads": rayon::current_num_threads(),
            "operation": operation,
            "size": size,
            "dimensions": dimensions,
            "median": times[TIMES / 2],
            "least": times[0],
        });
        println!("{row}");
    }
    Ok(())
}
