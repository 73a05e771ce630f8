//! `gallerist index push`: items into a vector database.

#[cfg(not(feature = "database"))]
mod imp {
    use crate::cli::args::index::Push;
    use crate::cli::commands::index::open::open_remote;
    use crate::cli::failure::CommandResult;

    pub(crate) fn run(args: &Push) -> CommandResult {
        let Err(not_built) = open_remote(&args.gallery, None) else {
            unreachable!("built without databases")
        };
        Err(not_built)
    }
}

#[cfg(feature = "database")]
mod imp {
    use std::process::ExitCode;
    use std::time::Duration;

    use crate::cli::args::index::Push;
    use crate::cli::commands::index::build;
    use crate::cli::failure::{CommandResult, Failure};
    use crate::cli::next::Done;
    use crate::cli::output::warn_of_columns;
    use crate::cli::printer::{self, count};
    use crate::cli::progress::{SENDING, bar};
    use crate::database::{
        Address, Collection, CollectionLayout, ConnectOptions, DatabaseIndex, Error, Pushed, Search,
    };
    use crate::retrieval::index::{ExactIndex, HnswIndex, Index};
    use crate::tasks::{WithCollection, with_collection};

    pub(crate) fn run(args: &Push) -> CommandResult {
        with_collection(&args.gallery, |message| printer::warning(&message), args)
    }

    impl WithCollection for &Push {
        type Output = ExitCode;
        type Error = Failure;

        fn run<C: Collection + 'static>(self, address: &Address, options: ConnectOptions) -> CommandResult {
            push::<C>(self, address, options)
        }
    }

    /// The collection at `address`, which is made if it is not there. One that is there is used as it is unless the options ask for a
    /// layout.
    fn opened<C: Collection>(
        args: &Push,
        address: &Address,
        layout: &CollectionLayout,
        options: ConnectOptions,
    ) -> Result<DatabaseIndex<C>, Failure> {
        let asks = args.kind.is_some()
            || args.metric.is_some()
            || args.m.is_some()
            || args.ef_construction.is_some();
        if !asks {
            match DatabaseIndex::open(address, options.clone()) {
                Err(Error::Missing { .. }) => {}
                other => return Ok(other?),
            }
        }
        Ok(DatabaseIndex::create(address, layout, options)?)
    }

    fn push<C: Collection>(args: &Push, address: &Address, connection: ConnectOptions) -> CommandResult {
        let mut sets = build::load(&args.embeddings, &args.items)?;
        let layout = CollectionLayout {
            dimensions: sets[0].embeddings.cols(),
            metric: build::metric_of(args.metric, &sets),
            search: match args.kind.unwrap_or(HnswIndex::KIND) {
                kind if kind == ExactIndex::KIND => Search::Flat,
                kind if kind == HnswIndex::KIND => Search::Hnsw {
                    m: args.m.unwrap_or(16),
                    ef_construction: args.ef_construction.unwrap_or(200),
                },
                kind => {
                    return Err(Failure::new(
                        format!("{} has no index of kind {}", C::SYSTEM.name, kind.name),
                        Some("give --kind exact or --kind hnsw"),
                    ));
                }
            },
        };
        let options = ConnectOptions { patience: Duration::from_secs(args.patience), ..connection };
        let mut index = opened::<C>(args, address, &layout, options)?;
        let before = index.origin()?;
        let thresholds = build::one_threshold(&mut sets, &args.embeddings, before.threshold.as_ref());
        warn_of_columns(sets.iter().map(|set| &set.columns));
        let differ = build::columns_that_differ(&index, &sets)?;
        let mut all = Pushed::default();
        let parts = build::items(sets, &args.items, &args.embeddings, 0)?;
        let rows = parts.iter().map(|(_, items)| items.len()).sum();
        let bar = bar(rows, SENDING);
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
        // Items that are there unchanged do not change a column.
        if all.sent > 0 {
            build::warn_of_kinds(&differ, "collection");
        }
        build::warn_of_origin(&before, &index.origin()?, thresholds, "collection");
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
            Done::Gallery(&args.gallery).show();
        }
        Ok(ExitCode::SUCCESS)
    }
}

pub(super) use imp::run;
