//! The results of `gallerist-cluster` from the library, with all rows in memory:
//! `one_machine search|evaluate|duplicates GALLERY [QUERIES]`. Prints the hash of the result, and the seconds of the work
//! after the files were read.

use std::path::Path;
use std::time::Instant;

use gallerist_cluster::shards;
use gallerist_retrieval::eval::{Labelled, Plan};
use gallerist_retrieval::issues::{IssueOptions, find_issues};
use gallerist_retrieval::search::{SearchOptions, search, self_search};
use gallerist_retrieval::{EmbeddingSet, Result};
use sha2::{Digest, Sha256};

fn load(path: &str) -> Result<EmbeddingSet> {
    let files = shards::list(Path::new(path)).expect("a folder of shards");
    let sets = files.iter().map(|file| EmbeddingSet::load(&file.path)).collect::<Result<Vec<_>>>()?;
    EmbeddingSet::concat(sets, false)
}

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let (command, gallery) = (&arguments[0], load(&arguments[1])?);
    let queries = arguments.get(2).map(|path| load(path)).transpose()?;
    let mut hash = Sha256::new();
    let start = Instant::now();
    match command.as_str() {
        "search" => {
            let options = SearchOptions::new(10);
            let lists = match &queries {
                Some(queries) => search(&queries.embeddings, &gallery.embeddings, &options)?,
                None => self_search(&gallery.embeddings, &options)?,
            };
            for (rows, scores) in lists.iter() {
                hash.update((rows.len() as u64).to_le_bytes());
                for (row, score) in rows.iter().zip(scores) {
                    hash.update(row.to_le_bytes());
                    hash.update(score.to_bits().to_le_bytes());
                }
            }
        }
        "evaluate" => {
            let side = |set| Labelled::from_set(set, Path::new("rows"));
            let (queries, gallery) = match queries {
                Some(queries) => (side(queries)?, Some(side(gallery)?)),
                None => (side(gallery)?, None),
            };
            let plan = Plan { ignore_cameras: gallery.is_none(), ..Plan::default() };
            let report = plan.run(&queries, gallery.as_ref())?;
            let seconds = start.elapsed();
            let values = plan.measure(&queries, gallery.as_ref())?.queries;
            hash.update(serde_json::to_vec(&report).expect("a report is valid JSON"));
            for value in (0..values.len()).flat_map(|query| values.of(query)) {
                hash.update(value.to_bits().to_le_bytes());
            }
            println!("{} {:.1}", gallerist_util::hex::encode(&hash.finalize()), seconds.as_secs_f64());
            return Ok(());
        }
        _ => {
            let issues = find_issues(&gallery.embeddings, None, &IssueOptions::default())?;
            let found = (issues.duplicate_distance, &issues.duplicates);
            hash.update(serde_json::to_vec(&found).expect("groups are valid JSON"));
        }
    }
    println!("{} {:.1}", gallerist_util::hex::encode(&hash.finalize()), start.elapsed().as_secs_f64());
    Ok(())
}
