//! Galleries in a vector database: `milvus://HOST:PORT/COLLECTION` in place of a file.
//!
//! Without the feature `milvus`, an address is an error with a hint.

use std::path::Path;

use crate::retrieval::index::Index;

use super::Failure;

/// A gallery in a database, opened.
pub(super) struct Remote {
    pub(super) index: Box<dyn Index>,
    /// Items that the graph does not contain yet.
    #[cfg_attr(not(feature = "milvus"), allow(dead_code))]
    pub(super) pending: usize,
}

/// Whether the path is the address of a database.
pub(super) fn is_remote(path: &Path) -> bool {
    path.to_str().is_some_and(|text| text.starts_with("milvus://"))
}

#[cfg(not(feature = "milvus"))]
mod imp {
    use super::{Failure, Path, Remote};
    use crate::cli::args::index::Push;
    use crate::cli::commands::Outcome;

    fn not_built(address: &Path) -> Failure {
        Failure::new(
            format!("cannot open `{}`: this program was built without Milvus", address.display()),
            Some("build it with `cargo build --release --features milvus`"),
        )
    }

    pub(crate) fn open(address: &Path, _ef: Option<usize>) -> Result<Remote, Failure> {
        Err(not_built(address))
    }

    pub(crate) fn push(args: &Push) -> Outcome {
        Err(not_built(&args.gallery))
    }
}

#[cfg(feature = "milvus")]
mod imp {
    use std::process::ExitCode;
    use std::sync::Arc;
    use std::time::Duration;

    use crate::milvus::{Address, ConnectOptions, Error, Layout, MilvusIndex, Pushed, Search};
    use crate::retrieval::index::{ExactIndex, HnswIndex, Index};

    use super::{Failure, Path, Remote};
    use crate::cli::args::index::Push;
    use crate::cli::commands::index::build;
    use crate::cli::commands::{Outcome, bar};
    use crate::cli::printer::{self, count};

    impl From<Error> for Failure {
        fn from(e: Error) -> Self {
            Failure { hint: e.hint(), message: e.to_string() }
        }
    }

    fn address(path: &Path) -> Result<Address, Failure> {
        Ok(path.to_string_lossy().parse::<Address>()?)
    }

    fn options() -> ConnectOptions {
        ConnectOptions {
            token: std::env::var("MILVUS_TOKEN").ok().filter(|token| !token.is_empty()),
            on_wait: Some(Arc::new(|why: &str| printer::warning(&why))),
            ..ConnectOptions::default()
        }
    }

    pub(crate) fn open(path: &Path, ef: Option<usize>) -> Result<Remote, Failure> {
        let mut index = MilvusIndex::open(&address(path)?, options())?;
        if let Some(ef) = ef {
            if index.layout().search == Search::Flat {
                return Err(Failure::new(
                    "--ef is for a collection of kind hnsw, and this one is exact",
                    Some("leave --ef out"),
                ));
            }
            index.set_ef(ef)?;
        }
        let pending = index.rows_to_index()?;
        Ok(Remote { index: Box::new(index), pending })
    }

    pub(crate) fn push(args: &Push) -> Outcome {
        let address = address(&args.gallery)?;
        let sets = build::load(&args.embeddings, &args.items)?;
        let layout = Layout {
            dimensions: sets[0].embeddings.cols(),
            metric: build::metric_of(args.metric, &sets),
            search: match args.kind {
                kind if kind == ExactIndex::KIND => Search::Flat,
                kind if kind == HnswIndex::KIND => {
                    Search::Hnsw { m: args.m, ef_construction: args.ef_construction }
                }
                kind => {
                    return Err(Failure::new(
                        format!("Milvus has no index of kind {}", kind.name),
                        Some("give --kind exact or --kind hnsw"),
                    ));
                }
            },
        };
        let options = ConnectOptions { patience: Duration::from_secs(args.patience), ..options() };
        let mut index = MilvusIndex::create(&address, &layout, options)?;
        let mut all = Pushed::default();
        let parts = build::items(sets, &args.items, &args.embeddings, 0)?;
        let rows = parts.iter().map(|(_, items)| items.len()).sum();
        let bar = bar(rows, "sending {wide_bar} {pos}/{len} items, {eta} left");
        for (name, items) in &parts {
            let done = index.push(items, args.items.replace, &mut |done| {
                bar.set_position((all.items + done.items) as u64)
            });
            let pushed = done.map_err(|error| build::of_file(name, error.into()))?;
            all.items += pushed.items;
            all.sent += pushed.sent;
            all.unchanged += pushed.unchanged;
        }
        bar.finish_and_clear();
        let held = index.info()?.count;
        if args.json {
            printer::json(&serde_json::json!({
                "gallery": address.to_string(), "items": held,
                "sent": all.sent, "unchanged": all.unchanged,
            }))?;
        } else {
            printer::note(&format!(
                "{} sent, {} there unchanged; `{address}` holds {}",
                count(all.sent, "item"),
                printer::grouped(all.unchanged),
                count(held, "item")
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) use imp::{open, push};
