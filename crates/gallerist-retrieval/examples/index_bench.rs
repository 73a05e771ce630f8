//! One timed build or search of an index for `bench/index/compare.py`: prints a line of JSON.
//!
//! ```text
//! index_bench build ROWS.npy OUT.index M EF_CONSTRUCTION
//! index_bench search GALLERY.index QUERIES.npy K REPEATS OUT EF...   (lists go to OUT.EF.npy)
//! index_bench map GALLERY.index QUERIES.npy K REPEATS OUT EF...      (the same, mapped)
//! ```

use std::error::Error;
use std::time::Instant;

use gallerist_retrieval::file::npy;
use gallerist_retrieval::index::{HnswIndex, HnswOptions, Index, ItemFilter, Items};
use gallerist_retrieval::search::Metric;
use gallerist_retrieval::{EmbeddingSet, MatrixView};
use serde_json::json;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        ["build", rows, out, m, ef_construction] => {
            let set = EmbeddingSet::load(rows)?;
            let options = HnswOptions {
                m: m.parse()?,
                ef_construction: ef_construction.parse()?,
                ..HnswOptions::default()
            };
            let mut index = HnswIndex::new(set.embeddings.cols(), Metric::Cosine, options)?;
            let items = Items::numbered(set, 0)?;
            let start = Instant::now();
            index.upsert(&items)?;
            let seconds = start.elapsed().as_secs_f64();
            drop(items);
            let start = Instant::now();
            index.save(out.as_ref())?;
            let saved = start.elapsed().as_secs_f64();
            println!("{}", json!({"seconds": seconds, "save_seconds": saved, "peak_mib": peak_mib()}));
        }
        [how @ ("search" | "map"), gallery, queries, k, repeats, out, ref efs @ ..] => {
            let queries = EmbeddingSet::load(queries)?.embeddings;
            let start = Instant::now();
            let mut index = if how == "map" { HnswIndex::map(gallery)? } else { HnswIndex::open(gallery)? };
            let opened = start.elapsed().as_secs_f64();
            let (k, repeats): (usize, usize) = (k.parse()?, repeats.parse()?);
            for ef in efs {
                index.set_ef(ef.parse()?)?;
                let search = |view: MatrixView| index.search(view, k, &ItemFilter::default());
                let mut seconds = Vec::new();
                for _ in 0..repeats {
                    let start = Instant::now();
                    let lists = search(queries.view())?;
                    seconds.push(start.elapsed().as_secs_f64());
                    let ids: Vec<i64> = lists.iter().flat_map(|(ids, _)| ids).map(|&id| id as i64).collect();
                    npy::write_i64(format!("{out}.{ef}.npy"), &[queries.rows(), k], &ids)?;
                }
                seconds.sort_by(f64::total_cmp);
                let mut alone = Vec::new();
                for row in 0..queries.rows().min(1000) {
                    let one = MatrixView::new(1, queries.cols(), queries.row(row))?;
                    let start = Instant::now();
                    search(one)?;
                    alone.push(start.elapsed().as_secs_f64());
                }
                alone.sort_by(f64::total_cmp);
                let line = json!({
                    "ef": ef.parse::<usize>()?,
                    "queries_per_second": queries.rows() as f64 / seconds[repeats / 2],
                    "one_query_microseconds": alone[alone.len() / 2] * 1e6,
                    "open_seconds": opened,
                    "peak_mib": peak_mib(),
                });
                println!("{line}");
            }
        }
        _ => return Err("see the first lines of this file for what to say".into()),
    }
    Ok(())
}

/// The most memory this process has held so far.
fn peak_mib() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    Some(line.split_whitespace().nth(1)?.parse::<f64>().ok()? / 1024.0)
}
