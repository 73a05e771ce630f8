//! `gallerist search`.

use std::path::PathBuf;
use std::process::ExitCode;

use gallerist::data::{ImageSet, OpenOptions};
use gallerist::model::Model;
use gallerist::pages;
use gallerist::retrieval::EmbeddingSet;
use gallerist::retrieval::search::{Metric, RankedLists, SearchOptions, search};
use gallerist::train::{RunDirectory, Which};
use serde::Serialize;

use super::{Failure, Outcome, embed_with_bar};
use crate::args::Search;
use crate::printer::{self, Table};

/// What `--json` prints per query.
#[derive(Serialize)]
struct Listed<'a> {
    query: &'a str,
    results: Vec<Result_<'a>>,
}

#[derive(Serialize)]
struct Result_<'a> {
    rank: usize,
    index: u32,
    distance: f32,
    label: Option<&'a str>,
    path: Option<&'a str>,
}

pub(super) fn run(args: Search) -> Outcome {
    if args.k == 0 {
        return Err(Failure::new("-k must be 1 or more, not 0", None));
    }
    let gallery = EmbeddingSet::load(&args.gallery)?;
    let model = model_for(&args, &gallery)?;
    super::set_threads(model.config().train.threads);
    let images = ImageSet::open_with(&args.query, &OpenOptions::default())?;
    let queries = embed_with_bar(&model, images.clone(), "embedding the queries")?;
    let broken = !queries.broken.is_empty();
    let queries = queries.set;
    let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(args.k) };
    let (normalized, _) = gallery.embeddings.l2_normalized();
    let lists = search(&queries.embeddings, &normalized, &options)?;
    if let Some(html) = &args.html {
        pages::search_page(&images, &queries, &gallery, &lists).write(html)?;
        printer::note(&format!("page: {}", html.display()));
    }
    if args.json {
        printer::json(&listed(&queries, &gallery, &lists))?;
    } else {
        printer::out(&tables(&listed(&queries, &gallery, &lists)))?;
    }
    Ok(ExitCode::from(u8::from(broken)))
}

/// The network that embedded the gallery: from --run, or from where the gallery's file says.
fn model_for(args: &Search, gallery: &EmbeddingSet) -> Result<Model, Failure> {
    let file = args.gallery.display();
    let hint = "give the run directory of the network that embedded it: --run DIR";
    let Some(wanted) = &gallery.model else {
        return Err(Failure::new(
            format!("`{file}` does not say which network embedded it"),
            Some("embed the gallery with `gallerist embed --out FILE.safetensors`"),
        ));
    };
    let beside = args.gallery.parent().map(PathBuf::from).filter(|dir| dir.join("config.toml").exists());
    let run = args.run.clone().or(beside).or(gallery.run.clone().map(PathBuf::from));
    let Some(run) = run.filter(|run| args.run.is_some() || run.exists()) else {
        return Err(Failure::new(format!("cannot find the network that embedded `{file}`"), Some(hint)));
    };
    let directory = RunDirectory::open(&run)?;
    let choices = match args.checkpoint {
        Some(which) => vec![which.into()],
        None => vec![Which::Best, Which::Last],
    };
    for which in &choices {
        let path = directory.checkpoint(*which);
        if path.exists() {
            let model = Model::load(&path)?;
            if model.fingerprint() == wanted {
                return Ok(model);
            }
        }
    }
    let short = |fingerprint: &str| fingerprint.chars().take(16).collect::<String>();
    let found = Model::open(&run, choices[0])?;
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

fn listed<'a>(queries: &'a EmbeddingSet, gallery: &'a EmbeddingSet, lists: &RankedLists) -> Vec<Listed<'a>> {
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
                    index,
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
        text += &format!("{}\n{table}\n", list.query);
    }
    text
}
