//! `gallerist evaluate`.

mod input;
mod lists;
mod shown;

use std::path::Path;
use std::process::ExitCode;

use crate::data::OneShotRuns;
use crate::measured::Measured;
use crate::model::Model;
use crate::pages;
use crate::plots::{self, Source};
use crate::retrieval::cluster::Preset;
use crate::retrieval::eval::{
    self, Bootstrap, EvalOptions, FewShotOptions, OneShot, Plan, Report, Trial, VerificationOptions,
};
use crate::retrieval::index::is_index;
use crate::retrieval::rerank::{KReciprocal, QueryExpansion};
use crate::retrieval::search::Metric as Compare;
use crate::train::{self, EvaluationConfig, ReportConfig};
use serde::Serialize;

use super::remote::is_remote;
use super::{Failure, Outcome, embed_with_bar, working};
use crate::cli::args::{Evaluate, KMeans, Over, Pooling, Rerank};
use crate::cli::printer;
use input::Input;
pub(super) use input::embed_test;
pub(super) use shown::{table, warn_of_notes};

/// What `--json` prints.
#[derive(Serialize)]
struct Printed<'a> {
    #[serde(flatten)]
    report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    one_shot: Option<&'a OneShot>,
}

pub(super) fn run(args: Evaluate) -> Outcome {
    if let Some(page) = &args.html {
        super::check_output(page)?;
    }
    if args.recall_at.contains(&0) {
        return Err(Failure::new("--recall-at must be numbers of 1 or more, not 0", None));
    }
    if args.run.is_none() && args.embeddings.is_none() && args.query.is_none() {
        return Err(Failure::new(
            "nothing to evaluate is named",
            Some(
                "give one of\n  --run DIR                         the test images of a run\n  --embeddings FILE                 \
                 every image against the others\n  --query FILE --gallery FILE       queries against a gallery",
            ),
        ));
    }
    let given = plan(&args, evaluation(&args, None).plan()?)?;
    if args.run.is_some() && args.gallery.is_some() && args.query.is_none() {
        return Err(Failure::new(
            "--gallery needs the images that are compared with it",
            Some("give --query IMAGES, or leave out --gallery to measure the run's own test images"),
        ));
    }
    if let (Some(gallery), None) = (&args.gallery, &args.run) {
        if is_remote(gallery) || is_index(gallery) {
            return lists::run(&args, gallery, given);
        }
        if args.embeddings.is_some() {
            return Err(Failure::new(
                "--embeddings are compared with each other and have no --gallery",
                Some("give the queries as --query FILE"),
            ));
        }
    }
    let Input { mut measured, broken, model } = input::read(&args)?;
    let declared = measured.plan.options.metric;
    measured.plan = plan(&args, measured.plan)?;
    let metric = measured.plan.options.metric;
    if metric != declared {
        let who = if model.is_some() { "the run" } else { "their file" };
        printer::note(&format!("rows are compared by {metric}; {who} declares {declared}"));
    }
    if model.is_none() {
        let what = if measured.gallery.is_some() { "queries" } else { "embeddings" };
        eval::check_rows(measured.queries.embeddings.view(), metric, what)?;
        if let Some(gallery) = &measured.gallery {
            eval::check_rows(gallery.embeddings.view(), metric, "gallery")?;
        }
    }
    let report = working("measuring", || match &args.html {
        None => Ok::<_, Failure>(measured.report()?),
        Some(page) => Ok(write_page(measured, &args, page)?),
    })?;
    let one_shot = match (&args.one_shot, &model) {
        (Some(path), Some(model)) => Some(one_shot(path, model, metric)?),
        _ => None,
    };
    if args.json {
        printer::json(&Printed { report: &report, one_shot: one_shot.as_ref() })?;
    } else {
        printer::out(&table(&report.evaluation, &report.further))?;
        if let Some(one_shot) = &one_shot {
            printer::out(&shown::one_shot(one_shot))?;
        }
    }
    warn_of_notes(&report.evaluation);
    // Unreadable images are something to look at.
    Ok(ExitCode::from(u8::from(broken > 0)))
}

/// Measures, and writes the report as a page.
fn write_page(measured: Measured, args: &Evaluate, page: &Path) -> Result<Report, Failure> {
    let files = [&args.run, &args.embeddings, &args.query, &args.gallery].into_iter().flatten();
    let name = files.map(|file| plots::name_of(file)).collect::<Vec<_>>().join(" against ");
    let source = Source::new(name, measured, None)?;
    let report = source.report()?;
    pages::evaluation_report(&source, &report, &ReportConfig::default())?.write(page)?;
    printer::note(&format!("report: {}", page.display()));
    Ok(report)
}

/// What the run's `[evaluation]`, where there is a run, and --protocol ask for.
fn evaluation(args: &Evaluate, model: Option<&Model>) -> EvaluationConfig {
    let of_run = model.map_or_else(EvaluationConfig::default, |model| model.config().evaluation.clone());
    match &args.protocol {
        Some(name) => EvaluationConfig { protocol: Some(name.clone()), metrics: Vec::new(), ..of_run },
        None => of_run,
    }
}

/// What is asked for by the options over `plan`.
fn plan(args: &Evaluate, mut plan: Plan) -> Result<Plan, Failure> {
    if !args.recall_at.is_empty() {
        plan.options = EvalOptions { metric: plan.options.metric, ..EvalOptions::recall_at(&args.recall_at) };
    }
    if !args.metrics.is_empty() {
        plan.options.measures = train::measures(&args.metrics)?;
    }
    if let Some(metric) = args.metric {
        plan.options.metric = metric.into();
    }
    let rerank =
        args.rerank.map(|Rerank::KReciprocal| KReciprocal { k1: args.k1, k2: args.k2, lambda: args.lambda });
    let expansion = args.query_expansion.map(|neighbours| QueryExpansion { neighbours, alpha: args.alpha });
    let multi_query = args.multi_query.map(|pooling| match pooling {
        Pooling::Average => eval::Pooling::Average,
        Pooling::Max => eval::Pooling::Max,
    });
    let cluster = args.cluster.then_some(match args.kmeans {
        KMeans::Faiss20 => Preset::Faiss20,
        KMeans::Sklearn10 => Preset::Sklearn10,
    });
    let verification = args.verification.then(|| VerificationOptions { fars: args.far.clone() });
    let few_shot = args.few_shot.map(|of| FewShotOptions {
        ways: of.ways,
        shots: of.shots,
        queries: args.episode_queries,
        episodes: args.episodes,
        seed: args.seed,
    });
    let over = match args.bootstrap_over {
        Over::Queries => eval::Over::Queries,
        Over::Classes => eval::Over::Classes,
    };
    let bootstrap = args.bootstrap.map(|resamples| Bootstrap { resamples, over, seed: args.seed });
    Ok(Plan {
        rerank: rerank.or(plan.rerank),
        expansion: expansion.or(plan.expansion),
        multi_query,
        cluster: cluster.or(plan.cluster),
        verification: verification.or(plan.verification),
        few_shot: few_shot.or(plan.few_shot),
        bootstrap: bootstrap.or(plan.bootstrap),
        seed: args.seed,
        ..plan
    })
}

/// Names the test images of each run by the nearest training image.
fn one_shot(path: &Path, model: &Model, metric: Compare) -> Result<OneShot, Failure> {
    let OneShotRuns { images, runs } = OneShotRuns::open(path)?;
    let embedded = embed_with_bar(model, images, "embedding the one-shot runs")?;
    if let Some(first) = embedded.broken.first() {
        return Err(Failure::new(
            format!("the one-shot runs `{}` are not whole\n  {first}", path.display()),
            Some("a run without one of its images is another test; copy or download the file again"),
        ));
    }
    let rows =
        |of: &[u32]| embedded.set.embeddings.select(&of.iter().map(|&i| i as usize).collect::<Vec<_>>());
    let trials: Vec<Trial> = runs
        .into_iter()
        .map(|run| Trial {
            classes: rows(&run.training),
            tests: rows(&run.tests),
            name: run.name,
            answers: run.answers,
        })
        .collect();
    Ok(eval::one_shot(&trials, metric)?)
}
