//! One timed search or evaluation for `bench/retrieval/compare.py`: prints seconds and the peak
//! memory of this process.
//!
//! ```text
//! search_bench self QUERIES.npy K
//! search_bench split QUERIES.npy GALLERY.npy K
//! search_bench few QUERIES.npy GALLERY.npy K ROWS    (the fastest of 40, gallery packed before)
//! search_bench evaluate EMBEDDINGS.npy LABELS.npy    (the report goes to stderr, as JSON)
//! search_bench cluster EMBEDDINGS.npy LABELS.npy     (likewise)
//! ```

use std::error::Error;
use std::hint::black_box;
use std::time::{Duration, Instant};

use gallerist_retrieval::search::{Gallery, Metric, SearchOptions, search, self_search};
use gallerist_retrieval::{EmbeddingSet, cluster, eval, labels, load_labels};

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = |k: &str| -> Result<SearchOptions<'static>, Box<dyn Error>> {
        Ok(SearchOptions { metric: Metric::InnerProduct, ..SearchOptions::new(k.parse()?) })
    };
    let read = |path: &str| EmbeddingSet::load(path).map(|set| set.embeddings);
    let seconds = match arguments[..] {
        ["self", gallery, k] => {
            let (gallery, options) = (read(gallery)?, options(k)?);
            let start = Instant::now();
            black_box(self_search(&gallery, &options)?);
            start.elapsed()
        }
        ["split", queries, gallery, k] => {
            let (queries, gallery, options) = (read(queries)?, read(gallery)?, options(k)?);
            let start = Instant::now();
            black_box(search(&queries, &gallery, &options)?);
            start.elapsed()
        }
        ["few", queries, gallery, k, rows] => {
            let (queries, gallery, options) = (read(queries)?, read(gallery)?, options(k)?);
            let rows: usize = rows.parse()?;
            let gallery = Gallery::new(&gallery, options.metric)?;
            let mut fastest = Duration::MAX;
            for repeat in 0..40 {
                let first = repeat * rows % (queries.rows() - rows);
                let batch = queries.select(&(first..first + rows).collect::<Vec<_>>());
                let start = Instant::now();
                black_box(gallery.search(&batch, &options)?);
                fastest = fastest.min(start.elapsed());
            }
            fastest
        }
        ["evaluate", embeddings, labels_path] => {
            let embeddings = read(embeddings)?;
            let labels = labels::encode(&load_labels(labels_path)?);
            let names = ["recall@1", "recall@10", "precision@1", "map@r", "r_precision", "map", "mrr"];
            let measures = names.iter().map(|name| name.parse()).collect::<Result<_, _>>()?;
            let options = eval::EvalOptions { metric: Metric::Cosine, measures };
            let start = Instant::now();
            let report = eval::evaluate(&embeddings, &labels.ids, &options)?;
            let elapsed = start.elapsed();
            eprintln!("{}", serde_json::to_string(&report)?);
            elapsed
        }
        ["cluster", embeddings, labels_path] => {
            let embeddings = read(embeddings)?;
            let labels = labels::encode(&load_labels(labels_path)?);
            let start = Instant::now();
            let preset = |clusters| cluster::KMeans::faiss20(clusters, 0);
            let report = cluster::agreement(&embeddings, &labels.ids, Metric::Cosine, preset)?;
            let elapsed = start.elapsed();
            eprintln!("{}", serde_json::to_string(&report)?);
            elapsed
        }
        _ => return Err("usage: see the head of this file".into()),
    };
    println!("{:.6} {}", seconds.as_secs_f64(), peak_memory().unwrap_or(0));
    Ok(())
}

/// Peak resident memory in KiB, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
