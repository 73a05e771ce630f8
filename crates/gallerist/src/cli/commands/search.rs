//! `gallerist search`.

use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

use crate::data::{ImageSet, OpenOptions};
use crate::model::Model;
use crate::pages;
use crate::retrieval::file::MappedCompact;
use crate::retrieval::index::{Index, Item, ItemFilter, Origin, is_index, open_index};
use crate::retrieval::search::{CompactGallery, Metric, RankedLists, SearchOptions, search};
use crate::retrieval::{EmbeddingSet, Matrix};
use crate::train::{RunDirectory, Which};
use serde::Serialize;

use super::remote::{self, is_remote};
use super::{Failure, Outcome, embed_with_bar, working};
use crate::cli::args::Search;
use crate::cli::printer::{self, Table};

/// What `--json` prints per query.
#[derive(Serialize)]
struct Listed<'a> {
    query: &'a str,
    results: Vec<Result_<'a>>,
}

#[derive(Serialize)]
struct Result_<'a> {
    rank: usize,
    /// The row in a file of embeddings.
    #[serde(skip_serializing_if = "Option::is_none")]
    index: Option<usize>,
    /// The id in an index.
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<u64>,
    distance: f32,
    label: Option<&'a str>,
    path: Option<&'a str>,
}

pub(super) fn run(args: Search) -> Outcome {
    if args.k == 0 {
        return Err(Failure::new("-k must be 1 or more, not 0", None));
    }
    if let Some(page) = &args.html {
        super::check_output(page)?;
    }
    let gallery = working("reading the gallery", || Searched::open(&args.gallery))?;
    let metric = gallery.metric()?;
    let model = model_for(&args.gallery, args.run.as_deref(), args.checkpoint, &gallery.origin())?;
    super::set_threads(model.config().train.threads);
    let model = super::on_device(model, args.device.device)?;
    let images = ImageSet::open_with(&args.query, &OpenOptions::default())?;
    // Queries come once: they are not kept.
    let queries = embed_with_bar(&model.with_cache(None)?, images.clone(), "embedding the queries")?;
    let broken = !queries.broken.is_empty();
    let queries = queries.set;
    let size = gallery.len()?;
    let (mut gallery, names) = gallery.candidates(&queries.embeddings, args.k)?;
    if let Some(images) = &args.images {
        gallery.sources = None;
        gallery.source = Some(std::path::absolute(images).unwrap_or(images.clone()).display().to_string());
    }
    let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(args.k) };
    // The cosine is shown as the distance of rows of length 1. Queries of such rows have length 1 already.
    let scaled = metric == Metric::Cosine;
    let unit = |rows: &Matrix| rows.l2_normalized().0;
    let rows_of_queries =
        if scaled && queries.metric != Some(metric) { Some(unit(&queries.embeddings)) } else { None };
    let rows_of_gallery = if scaled { Some(unit(&gallery.embeddings)) } else { None };
    let lists = search(
        rows_of_queries.as_ref().unwrap_or(&queries.embeddings),
        rows_of_gallery.as_ref().unwrap_or(&gallery.embeddings),
        &options,
    )?;
    if let Some(html) = &args.html {
        let mut page = pages::search_page(&images, &queries, &gallery, metric, &lists);
        // The page may have been given only what was found.
        for (name, value) in &mut page.facts {
            if name == "gallery" {
                *value = printer::count(size, "image");
            }
        }
        page.write(html)?;
        printer::note(&format!("page: {}", html.display()));
    }
    if args.json {
        printer::json(&listed(&queries, (&gallery, &names), &lists))?;
    } else {
        printer::out(&tables(&listed(&queries, (&gallery, &names), &lists)))?;
    }
    Ok(ExitCode::from(u8::from(broken)))
}

/// A gallery as its file has it.
enum Searched {
    Embeddings(EmbeddingSet),
    /// In bf16 or int8, and left so.
    Compact(MappedCompact, Origin),
    Index(Box<dyn Index>, Origin),
}

/// What a row of the candidates is called in the gallery.
enum Names {
    /// The number of each candidate's row in the file.
    Rows(Vec<usize>),
    /// The id of each candidate in the index.
    Ids(Vec<u64>),
}

impl Searched {
    fn open(path: &Path) -> Result<Self, Failure> {
        let index = if is_remote(path) {
            remote::open(path, None)?.index
        } else if is_index(path) {
            open_index(path, true)?
        } else if let Ok(compact) = MappedCompact::open(path) {
            compact.verify()?;
            let origin = Origin::from(&compact.select(&[])?);
            return Ok(Self::Compact(compact, origin));
        } else {
            return Ok(Self::Embeddings(EmbeddingSet::load(path)?));
        };
        let origin = index.origin()?;
        if index.info()?.metric == Metric::Euclidean && origin.metric.is_none() {
            return Err(Failure::new(
                format!(
                    "`{}` compares rows by Euclidean distance, and does not say whether they have length 1",
                    path.display()
                ),
                Some("build the index again from the embeddings, or search it with `gallerist index search`"),
            ));
        }
        Ok(Self::Index(index, origin))
    }

    /// How the gallery's rows are compared.
    fn metric(&self) -> Result<Metric, Failure> {
        let metric = match self {
            Self::Embeddings(set) => set.metric.unwrap_or_default(),
            Self::Compact(_, origin) => origin.metric.unwrap_or_default(),
            Self::Index(index, _) => index.info()?.metric,
        };
        if metric == Metric::InnerProduct {
            return Err(Failure::new(
                "the gallery compares rows by inner product; images are searched by the cosine or the Euclidean distance",
                Some("build the index with `--metric cosine`, or search it with `gallerist index search`"),
            ));
        }
        Ok(metric)
    }

    fn len(&self) -> Result<usize, Failure> {
        Ok(match self {
            Self::Embeddings(set) => set.embeddings.rows(),
            Self::Compact(compact, _) => compact.view().rows(),
            Self::Index(index, _) => index.info()?.count,
        })
    }

    fn origin(&self) -> Origin {
        match self {
            Self::Embeddings(set) => Origin::from(set),
            Self::Compact(_, origin) | Self::Index(_, origin) => origin.clone(),
        }
    }

    /// The rows among which the best are: all of a file in f32; else what is found for any of the
    /// queries.
    fn candidates(self, queries: &Matrix, k: usize) -> Result<(EmbeddingSet, Names), Failure> {
        let metric = self.metric()?;
        let (index, origin) = match self {
            Self::Embeddings(set) => {
                let rows = (0..set.embeddings.rows()).collect();
                return Ok((set, Names::Rows(rows)));
            }
            Self::Compact(compact, _) => {
                let gallery = CompactGallery::new(compact.view(), metric)?;
                let lists = gallery.search(queries, &SearchOptions { metric, ..SearchOptions::new(k) });
                // The search cannot know that what it read was no longer the file.
                compact.check()?;
                let lists = lists?;
                let rows = distinct(lists.iter().flat_map(|(rows, _)| rows).map(|&row| row as usize));
                return Ok((compact.select(&rows)?, Names::Rows(rows)));
            }
            Self::Index(index, origin) => (index, origin),
        };
        let lists = index.search(queries.view(), k, &ItemFilter::default())?;
        let ids = distinct(lists.iter().flat_map(|(ids, _)| ids).copied());
        let items: Vec<Item> = index.get(&ids)?.into_iter().flatten().collect();
        let rows = items.iter().flat_map(|item| &item.embedding).copied().collect();
        let list = |of: fn(&Item) -> &Option<String>| {
            let known = items.iter().any(|item| of(item).is_some());
            known.then(|| items.iter().map(|item| of(item).clone().unwrap_or_default()).collect())
        };
        let Origin { model, source, run, metric } = origin;
        let set = EmbeddingSet {
            embeddings: Matrix::new(items.len(), queries.cols(), rows)?,
            labels: list(|item| &item.label),
            paths: list(|item| &item.path),
            cameras: list(|item| &item.camera),
            model,
            source,
            sources: None,
            run,
            metric,
            protocol: None,
        };
        Ok((set, Names::Ids(ids)))
    }
}

fn distinct<T: Ord>(found: impl Iterator<Item = T>) -> Vec<T> {
    let mut found: Vec<T> = found.collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The network that embedded the gallery: from `run`, or from where the gallery's file says.
pub(super) fn model_for(
    gallery: &Path,
    run: Option<&Path>,
    checkpoint: Option<crate::cli::args::Which>,
    origin: &Origin,
) -> Result<Model, Failure> {
    let file = gallery.display();
    let hint = "give the run directory of the network that embedded it: --run DIR";
    let Some(wanted) = &origin.model else {
        return Err(Failure::new(
            format!("`{file}` does not say which network embedded it"),
            Some("embed the gallery with `gallerist embed --out FILE.safetensors`"),
        ));
    };
    let choices = match checkpoint {
        Some(which) => vec![which.into()],
        None => vec![Which::Best, Which::Last],
    };
    let places = match run {
        Some(run) => vec![run.to_path_buf()],
        None => places_of_run(gallery, origin.run.as_deref().map(Path::new)),
    };
    let is_run = |path: &&PathBuf| path.join("config.toml").exists() && path.join("checkpoints").is_dir();
    let runs: Vec<&PathBuf> = places.iter().filter(is_run).collect();
    let Some(&first) = runs.first() else {
        if let Some(run) = run {
            RunDirectory::open(run)?;
        }
        let looked_for = match &origin.run {
            Some(run) => format!("its run was at `{run}`, and is neither there nor beside the gallery"),
            None => "it does not name its run, and there is none beside it".into(),
        };
        return Err(Failure::new(
            format!("cannot find the network that embedded `{file}`\n  {looked_for}"),
            Some(hint),
        ));
    };
    // A copy of a gallery may be beside another run; the fingerprint tells.
    for run in &runs {
        let directory = RunDirectory::open(run)?;
        for which in &choices {
            let path = directory.checkpoint(*which);
            if path.exists()
                && let Some(model) = Model::load(&path)?.that_gave(wanted, origin.metric)
            {
                return Ok(model);
            }
        }
    }
    let run = first;
    let short = |fingerprint: &str| fingerprint.chars().take(16).collect::<String>();
    let found = Model::open(run, choices[0])?;
    Err(Failure::new(
        format!(
            "`{file}` was embedded with the network {}\n  the run `{}` has {}: their distances mean nothing to each other",
            short(wanted),
            run.display(),
            short(found.fingerprint())
        ),
        Some("embed the gallery again with this run, or give the run it was embedded with: --run DIR"),
    ))
}

/// Where the run of a gallery may be, the likeliest first: the gallery's own folder, the place its file names, and that
/// place under each folder above the gallery, where both were moved together.
fn places_of_run(gallery: &Path, named: Option<&Path>) -> Vec<PathBuf> {
    let gallery = std::path::absolute(gallery).unwrap_or_else(|_| gallery.into());
    let mut places: Vec<PathBuf> = gallery.parent().map(Path::to_path_buf).into_iter().collect();
    if let Some(named) = named {
        places.push(named.into());
        let parts: Vec<_> = named.components().filter(|part| matches!(part, Component::Normal(_))).collect();
        for above in gallery.ancestors().skip(1) {
            // The longest tail of the named place that is there.
            places
                .extend((0..parts.len()).map(|first| above.join(parts[first..].iter().collect::<PathBuf>())));
        }
    }
    places
}

fn listed<'a>(
    queries: &'a EmbeddingSet,
    (gallery, names): (&'a EmbeddingSet, &Names),
    lists: &RankedLists,
) -> Vec<Listed<'a>> {
    let text = |list: &'a Option<Vec<String>>, i: usize| list.as_ref().map(|list| list[i].as_str());
    (0..lists.len())
        .map(|query| Listed {
            query: text(&queries.paths, query).unwrap_or(""),
            results: lists
                .indices(query)
                .iter()
                .zip(lists.scores(query))
                .enumerate()
                .map(|(i, (&index, &distance))| Result_ {
                    rank: i + 1,
                    index: if let Names::Rows(rows) = names { Some(rows[index as usize]) } else { None },
                    id: if let Names::Ids(ids) = names { Some(ids[index as usize]) } else { None },
                    distance,
                    label: text(&gallery.labels, index as usize),
                    path: text(&gallery.paths, index as usize),
                })
                .collect(),
        })
        .collect()
}

fn tables(lists: &[Listed<'_>]) -> String {
    let mut text = String::new();
    for list in lists {
        let mut table = Table::new(&["rank", "distance", "label", "path"], &[true, true, false, false]);
        for result in &list.results {
            table.row(vec![
                result.rank.to_string(),
                format!("{:.4}", result.distance),
                result.label.unwrap_or("").to_string(),
                result.path.unwrap_or("").to_string(),
            ]);
        }
        text += &format!("{}\n{table}\n", printer::shown(list.query));
    }
    text
}
