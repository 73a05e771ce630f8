//! `gallerist evaluate`.

use std::path::PathBuf;
use std::process::ExitCode;

use serde::Serialize;

use crate::cli::args::{Evaluate, Rerank};
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::metrics_table::{one_shot_table, table, warn_of_notes};
use crate::cli::next::Done;
use crate::cli::output::check_page;
use crate::cli::printer;
use crate::cli::terminal::Terminal;
use crate::retrieval::eval::{
    Bootstrap, EvaluationReport, FewShotOptions, OneShot, OpenSetOptions, VerificationOptions,
};
use crate::retrieval::rerank::{KReciprocal, QueryExpansion};
use crate::train::BrokenImage;
use crate::{EmbeddingsFile, EvaluateInput, EvaluateOptions, EvaluateRun, ImagePart, Narrowed};

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    report: &'a EvaluationReport,
    #[serde(skip_serializing_if = "Option::is_none")]
    one_shot: Option<&'a OneShot>,
    /// Images that could not be read.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    broken_images: &'a [BrokenImage],
    /// The sets of which only a part took part.
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    narrowed: &'a [Narrowed],
}

pub(super) fn run(args: Evaluate) -> CommandResult {
    let input = input(&args)?;
    if let Some(page) = &args.html {
        check_page(page, files(&args))?;
    }
    let measured = crate::evaluate(&input, &options(&args), &mut Terminal::default())?;
    let (report, one_shot) = (&measured.report, measured.one_shot.as_ref());
    if args.json {
        let (broken_images, narrowed) = (&measured.broken_images, &measured.narrowed);
        printer::json(&Printed { report, one_shot, broken_images, narrowed })?;
    } else {
        printer::out(&table(&report.evaluation, &report.further))?;
        if let Some(one_shot) = one_shot {
            printer::out(&one_shot_table(one_shot))?;
        }
    }
    warn_of_notes(&report.evaluation);
    if !args.json {
        show_next(&input);
    }
    // Images that cannot be read are a finding.
    Ok(ExitCode::from(u8::from(!measured.broken_images.is_empty())))
}

fn show_next(input: &EvaluateInput) {
    match input {
        EvaluateInput::Run(EvaluateRun { run, images: None, .. }) => Done::MeasuredRun(run).show(),
        EvaluateInput::Run(_) => {}
        EvaluateInput::Embeddings(file) => {
            Done::MeasuredEmbeddings(&file.path, file.labels.as_deref()).show();
        }
        EvaluateInput::Pair { queries, gallery } => {
            Done::MeasuredQueries(&queries.path, &gallery.path).show();
        }
        EvaluateInput::Items { index, .. } => Done::Gallery(&index.path).show(),
    }
}

/// The files that are read.
fn files(args: &Evaluate) -> impl Iterator<Item = &PathBuf> {
    let embeddings = [&args.embeddings, &args.query, &args.gallery];
    let labels = [&args.labels, &args.query_labels, &args.gallery_labels];
    let cameras = [&args.cameras, &args.query_cameras, &args.gallery_cameras];
    embeddings.into_iter().chain(labels).chain(cameras).flatten()
}

/// What is measured.
fn input(args: &Evaluate) -> Result<EvaluateInput, Failure> {
    let file = |path, labels, cameras| {
        let given = |list: &Option<_>| Option::clone(list);
        EmbeddingsFile { path, labels: given(labels), cameras: given(cameras) }
    };
    let gallery = |path| file(path, &args.gallery_labels, &args.gallery_cameras);
    match (&args.run, &args.embeddings, &args.query, &args.gallery) {
        (Some(_), _, None, Some(_)) => Err(Failure::new(
            "--gallery needs the images that are compared with it",
            Some("give --query IMAGES, or leave out --gallery to measure the run's own test images"),
        )),
        (Some(run), ..) => {
            let part = |path: &Option<_>, split: &Option<String>| {
                path.clone().map(|path| ImagePart { path, split: split.clone() })
            };
            let queries = part(&args.query, &args.query_split);
            Ok(EvaluateInput::Run(EvaluateRun {
                run: run.clone(),
                checkpoint: args.checkpoint,
                images: queries.zip(part(&args.gallery, &args.gallery_split)),
                device: args.device.unwrap_or_default(),
                products: args.products,
                cache: args.cache.clone(),
                strict: args.strict,
                one_shot: args.one_shot.clone(),
            }))
        }
        (None, Some(path), _, None) => {
            Ok(EvaluateInput::Embeddings(file(path.clone(), &args.labels, &args.cameras)))
        }
        (None, Some(path), _, Some(index)) => Ok(EvaluateInput::Items {
            embeddings: file(path.clone(), &args.labels, &args.cameras),
            index: gallery(index.clone()),
        }),
        (None, None, Some(queries), Some(images)) => Ok(EvaluateInput::Pair {
            queries: file(queries.clone(), &args.query_labels, &args.query_cameras),
            gallery: gallery(images.clone()),
        }),
        (None, None, ..) => Err(Failure::new(
            "nothing to evaluate is named",
            Some(
                "give one of\n  --run DIR                         the test images of a run\n  --embeddings FILE                 \
                 every image against the others\n  --query FILE --gallery FILE       queries against a gallery",
            ),
        )),
    }
}

/// How it is measured.
fn options(args: &Evaluate) -> EvaluateOptions {
    let rerank =
        args.rerank.map(|Rerank::KReciprocal| KReciprocal { k1: args.k1, k2: args.k2, lambda: args.lambda });
    let expansion = args.query_expansion.map(|neighbours| QueryExpansion { neighbours, alpha: args.alpha });
    let few_shot = args.few_shot.map(|of| FewShotOptions {
        ways: of.ways,
        shots: of.shots,
        queries: args.episode_queries,
        episodes: args.episodes,
        ..FewShotOptions::default()
    });
    let bootstrap = args.bootstrap.map(|resamples| Bootstrap {
        resamples,
        over: args.bootstrap_over,
        ..Bootstrap::default()
    });
    EvaluateOptions {
        protocol: args.protocol.clone(),
        metrics: args.metrics.clone(),
        recall_at: args.recall_at.clone(),
        metric: args.metric,
        across_cameras: args.across_cameras,
        force: args.force,
        rerank,
        expansion,
        multi_query: args.multi_query,
        cluster: args.cluster.then_some(args.kmeans),
        verification: args.verification.then(|| VerificationOptions { fars: args.far.clone() }),
        open_set: args
            .open_set
            .then(|| OpenSetOptions { fars: args.open_set_far.clone(), ..OpenSetOptions::default() }),
        few_shot,
        bootstrap,
        query_condition: args.query_where.clone().or_else(|| args.condition.clone()),
        gallery_condition: args.gallery_where.clone().or_else(|| args.condition.clone()),
        seed: args.seed,
        page: args.html.clone(),
    }
}
