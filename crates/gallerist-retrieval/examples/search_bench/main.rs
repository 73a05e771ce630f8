//! One timed search or evaluation for `bench/retrieval/compare.py`: prints seconds and the peak
//! memory of this process.
//!
//! ```text
//! search_bench self QUERIES.npy K
//! search_bench split QUERIES.npy GALLERY.npy K
//! search_bench few QUERIES.npy GALLERY.npy K ROWS f32|bf16|int8    (the median of 40; the gallery
//!     is packed before; bf16 and int8 are scored again in f32 from the mapped file)
//! search_bench compact QUERIES.npy GALLERY.npy K bf16|int8
//! search_bench storage EMBEDDINGS.safetensors    (what bf16 and int8 galleries lose; needs labels)
//! search_bench peak    (operations a second in f32 and in bf16, bytes read a second; one line)
//! search_bench evaluate EMBEDDINGS.npy LABELS.npy    (the report goes to stderr, as JSON)
//! search_bench cluster EMBEDDINGS.npy LABELS.npy     (likewise)
//! ```

mod peak;

use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

use gallerist_retrieval::file::MappedMatrix;
use gallerist_retrieval::search::{
    CompactGallery, Gallery, Metric, RankedLists, SearchOptions, search, self_search,
};
use gallerist_retrieval::{Code, CompactMatrix, EmbeddingSet, Matrix, cluster, eval, labels, load_labels};

type Search<'a> = dyn Fn(&Matrix) -> gallerist_retrieval::Result<RankedLists> + 'a;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let options = |k: &str| -> Result<SearchOptions<'static>, Box<dyn Error>> {
        Ok(SearchOptions { metric: Metric::InnerProduct, ..SearchOptions::new(k.parse()?) })
    };
    let code = |name: &str| match name {
        "f32" => Ok(None),
        "bf16" => Ok(Some(Code::Bf16)),
        "int8" => Ok(Some(Code::Int8)),
        _ => Err(format!("no precision `{name}`")),
    };
    let read = |path: &str| EmbeddingSet::load(path).map(|set| set.embeddings);
    let seconds = match arguments[..] {
        ["peak"] => {
            let [f32, bf16] = [peak::f32_operations_per_second(), peak::bf16_operations_per_second()];
            println!(
                "{:e} {:e} {:e}",
                f32.unwrap_or(0.0),
                bf16.unwrap_or(0.0),
                peak::read_bytes_per_second()
            );
            return Ok(());
        }
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
        ["few", queries, gallery, k, rows, precision] => {
            let (queries, gallery, options) = (read(queries)?, MappedMatrix::open(gallery)?, options(k)?);
            let gallery: Box<Search<'_>> = match code(precision)? {
                None => {
                    let packed = Gallery::new(&gallery, options.metric)?;
                    Box::new(move |batch| packed.search(batch, &options))
                }
                Some(code) => {
                    let compact = CompactGallery::rescored(&gallery, code, options.metric)?;
                    Box::new(move |batch| compact.search(batch, &options))
                }
            };
            let rows: usize = rows.parse()?;
            let mut times = Vec::new();
            for repeat in 0..40 {
                let first = repeat * rows % (queries.rows() - rows);
                let batch = queries.select(&(first..first + rows).collect::<Vec<_>>());
                let start = Instant::now();
                black_box(gallery(&batch)?);
                times.push(start.elapsed());
            }
            times.sort();
            times[times.len() / 2]
        }
        ["compact", queries, gallery, k, precision] => {
            let (queries, gallery, options) = (read(queries)?, read(gallery)?, options(k)?);
            let code = code(precision)?.ok_or("f32 is not compact")?;
            let gallery = CompactGallery::rescored(&gallery, code, options.metric)?;
            let start = Instant::now();
            black_box(gallery.search(&queries, &options)?);
            start.elapsed()
        }
        ["storage", file] => {
            print_storage_loss(&EmbeddingSet::load(file)?)?;
            return Ok(());
        }
        ["evaluate", embeddings, labels_path] => {
            let embeddings = read(embeddings)?;
            let labels = labels::encode(&load_labels(labels_path)?);
            // All of them, each that takes a K with two.
            let numbered = |name: &str| [name.replace('K', "1"), name.replace('K', "10")];
            let mut names: Vec<String> =
                eval::Measure::names().iter().flat_map(|name| numbered(name)).collect();
            names.dedup();
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

/// Every row a query in f32 against all the others, stored in each precision and kept alone: the
/// share of the f32 lists' first ten that are found among its first ten, and Recall@K.
fn print_storage_loss(set: &EmbeddingSet) -> Result<(), Box<dyn Error>> {
    const K: usize = 10;
    let labels = set.labels.as_ref().ok_or("the file has no labels")?;
    let options = SearchOptions { exclude_self: true, ..SearchOptions::new(K) };
    let exact = search(&set.embeddings, &set.embeddings, &options)?;
    let line = |name: &str, lists: &RankedLists| {
        let same = lists.iter().zip(exact.iter()).map(|((found, _), (wanted, _))| {
            wanted.iter().filter(|item| found.contains(item)).count() as f64 / wanted.len() as f64
        });
        print!("{name} {:.5}", same.sum::<f64>() / lists.len() as f64);
        for k in [1, 2, 4, 8] {
            let hit = |(query, (found, _)): &(usize, (&[u32], &[f32]))| {
                found.iter().take(k).any(|&item| labels[item as usize] == labels[*query])
            };
            let hits = lists.iter().enumerate().filter(hit).count();
            print!(" {:.5}", hits as f64 / lists.len() as f64);
        }
        println!();
    };
    line("f32", &exact);
    for code in [Code::Bf16, Code::Int8] {
        let compact = CompactMatrix::encode(&set.embeddings, code)?;
        let gallery = CompactGallery::new(compact, options.metric)?;
        line(&code.to_string(), &gallery.search(&set.embeddings, &options)?);
        let rescored = CompactGallery::rescored(&set.embeddings, code, options.metric)?;
        if rescored.search(&set.embeddings, &options)? != exact {
            return Err(format!("{code} with f32 re-scoring differs from f32").into());
        }
    }
    Ok(())
}

/// Peak resident memory in KiB, where the system tells.
fn peak_memory() -> Option<u64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.trim().strip_suffix("kB")?.trim().parse().ok()
}
