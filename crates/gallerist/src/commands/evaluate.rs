//! `gallerist evaluate`.

use std::path::Path;
use std::process::ExitCode;

use gallerist::pages;
use gallerist::retrieval::eval::{self, EvalOptions, Evaluation};
use gallerist::retrieval::search::Metric as Compare;
use gallerist::retrieval::{EmbeddingSet, labels};
use gallerist::train::RunDirectory;

use super::{Failure, Outcome, embed_with_bar, labels_of, model_of};
use crate::args::{Evaluate, Metric};
use crate::printer::{self, Table};

pub(super) fn run(args: Evaluate) -> Outcome {
    if args.recall_at.contains(&0) {
        return Err(Failure::new("--recall-at must be numbers of 1 or more, not 0", None));
    }
    let mut options = EvalOptions::recall_at(&args.recall_at);
    options.metric = match args.metric {
        Metric::Cosine => Compare::Cosine,
        Metric::Euclidean => Compare::Euclidean,
    };
    let mut broken = 0;
    let (set, from_run) = match (&args.run, &args.embeddings) {
        (Some(run), _) => {
            RunDirectory::open(run)?;
            let model = model_of(run, args.checkpoint.into())?;
            super::set_threads(model.config().train.threads);
            let Some(test) = pages::open_test(model.config())? else {
                let hint = "embed a set with `gallerist embed` and give it as --embeddings FILE";
                return Err(Failure::new(
                    format!("the run `{}` has no test images (data.test)", run.display()),
                    Some(hint),
                ));
            };
            let embedded = embed_with_bar(&model, test, "embedding the test images")?;
            broken = embedded.broken.len();
            (embedded.set, true)
        }
        (None, Some(file)) => (EmbeddingSet::load(file)?, false),
        (None, None) => unreachable!("clap asks for one of them"),
    };
    let file = args.embeddings.as_deref().unwrap_or(Path::new("")).display().to_string();
    let names = labels_of(args.labels.as_deref(), set.labels, "evaluation", &file)?;
    let evaluation = eval::evaluate(&set.embeddings, &labels::encode(&names).ids, &options)?;
    if args.json {
        printer::json(&evaluation)?;
    } else {
        printer::out(&table(&evaluation))?;
    }
    warn_of_ties(&evaluation);
    // A collapsed embedding or unreadable images are something to look at.
    Ok(ExitCode::from(u8::from(from_run && broken > 0)))
}

/// A tie here and there is in the table; many of them are worth a warning.
pub(super) fn warn_of_ties(evaluation: &Evaluation) {
    if pages::ties_matter(evaluation) {
        for note in &evaluation.notes {
            printer::warning(note);
        }
    }
}

/// The metrics as the terminal shows them.
pub(super) fn table(evaluation: &Evaluation) -> String {
    let mut table = Table::new(&["metric", "value"], &[false, true]);
    for (name, value) in evaluation.metrics.iter() {
        table.row(vec![name.to_string(), format!("{value:.4}")]);
    }
    let mut text =
        format!("{table}\n  {}: {}", evaluation.protocol, printer::count(evaluation.queries, "query"));
    if evaluation.gallery != evaluation.queries {
        text += &format!(" against {}", printer::count(evaluation.gallery, "image"));
    }
    text += &format!(
        "; {} without a match, {} with ties\n",
        printer::grouped(evaluation.queries_without_match),
        printer::grouped(evaluation.ties)
    );
    text
}
