//! `gallerist threshold`.

use std::process::ExitCode;

use crate::cli::args::Threshold;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::metrics_table::threshold_table;
use crate::cli::next::Done;
use crate::cli::printer;
use crate::cli::terminal::Terminal;
use crate::retrieval::eval::ThresholdOptions;
use crate::{EmbeddingsFile, ThresholdInput, ThresholdSettings};

pub(super) fn run(args: Threshold) -> CommandResult {
    let found = crate::threshold(&input(&args)?, &settings(&args), &mut Terminal::default())?;
    match args.json {
        true => printer::json(&found)?,
        false => printer::out(&threshold_table(&found))?,
    }
    // Nothing is written where one of the files is refused.
    args.save.iter().try_for_each(|file| crate::check_save_threshold(&found.rule, file))?;
    for file in &args.save {
        crate::save_threshold(&found.rule, file)?;
        printer::note(&format!("threshold written into {}", file.display()));
    }
    found.notes.iter().for_each(|note| printer::warning(note));
    if let (false, Some(file)) = (args.json, args.save.first()) {
        Done::Gallery(file).show();
    }
    Ok(ExitCode::SUCCESS)
}

fn input(args: &Threshold) -> Result<ThresholdInput, Failure> {
    let file = |path: &_, labels: &_, cameras: &_| EmbeddingsFile {
        path: Clone::clone(path),
        labels: Option::clone(labels),
        cameras: Option::clone(cameras),
    };
    match (&args.embeddings, &args.query, &args.gallery) {
        (Some(path), ..) => {
            Ok(ThresholdInput { embeddings: file(path, &args.labels, &args.cameras), gallery: None })
        }
        (None, Some(queries), Some(gallery)) => {
            let gallery = file(gallery, &args.gallery_labels, &None);
            Ok(ThresholdInput {
                embeddings: file(queries, &args.query_labels, &None),
                gallery: Some(gallery),
            })
        }
        _ => Err(Failure::new("nothing to calibrate on is named", Some("give --embeddings FILE"))),
    }
}

fn settings(args: &Threshold) -> ThresholdSettings {
    ThresholdSettings {
        options: ThresholdOptions {
            rate: args.per,
            target: args.far,
            confidence: args.confidence,
            guarantee: args.guarantee,
            splits: args.splits,
            seed: args.seed,
        },
        metric: args.metric,
        leave_out: args.leave_out.clone(),
        condition: args.condition.clone(),
        force: args.force,
    }
}
