//! `gallerist init`.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde::Serialize;

use crate::cli::args::Init;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::interrupts::{self, INTERRUPTED};
use crate::cli::next::Done;
use crate::cli::output::check_output;
use crate::cli::printer;
use crate::cli::terminal::Terminal;
use crate::{Error, InitOptions, Initialized, name_of_images};

/// What `--json` prints.
#[derive(Serialize)]
struct Summary<'a> {
    file: &'a Path,
    #[serde(flatten)]
    made: &'a Initialized,
}

pub(super) fn run(args: Init) -> CommandResult {
    let out = args.out.unwrap_or_else(|| PathBuf::from(format!("{}.toml", name_of_images(&args.images))));
    check_output(&out)?;
    check_free(&out, args.force)?;
    let stop = Arc::new(AtomicBool::new(false));
    interrupts::watch(stop.clone(), || "\nstopping; Ctrl-C again stops at once");
    let options = InitOptions {
        test: located(args.given.test, &out),
        weights: args.given.weights.map(|path| located(vec![path], &out).remove(0)),
        preset: args.given.preset,
        minutes: args.given.minutes,
        steps: args.steps,
        device: args.device.device,
    };
    let images = located(args.images, &out);
    let made = match crate::init(&images, &options, &mut Terminal::default(), &stop) {
        Ok(made) => made,
        Err(Error::Train(stopped @ crate::train::Error::Interrupted { .. })) => {
            printer::note(&format!("{stopped}; nothing was written"));
            return Ok(ExitCode::from(INTERRUPTED));
        }
        Err(error) => return Err(error.into()),
    };
    // Another process may have written it in the meantime.
    check_free(&out, args.force)?;
    crate::file::write_text(&out, &made.toml)?;
    show(&made);
    match args.json {
        true => printer::json(&Summary { file: &out, made: &made })?,
        false => {
            printer::note(&format!("written to {}", out.display()));
            Done::RunFile(&out).show();
        }
    }
    Ok(ExitCode::from(u8::from(!made.findings.survey.broken.is_empty())))
}

/// Prints what was found, what was chosen, and why.
pub(super) fn show(made: &Initialized) {
    made.findings.to_string().lines().for_each(|line| printer::note(&line));
    made.reasons.iter().for_each(|(section, reason)| printer::note(&format!("  [{section}] {reason}")));
    made.warnings.iter().for_each(|warning| printer::warning(warning));
}

fn check_free(out: &Path, force: bool) -> Result<(), Failure> {
    match out.exists() && !force {
        false => Ok(()),
        true => Err(Failure::new(
            format!("`{}` exists", out.display()),
            Some("give another --out FILE, or --force to overwrite it"),
        )),
    }
}

/// Paths as a run file at `out` names them: as given if it is in the current folder, else absolute, so that it works
/// from every folder.
fn located(paths: Vec<PathBuf>, out: &Path) -> Vec<PathBuf> {
    let is_here = out.parent().is_none_or(|folder| folder.as_os_str().is_empty());
    match is_here {
        true => paths,
        false => paths.iter().map(|path| gallerist_util::text::absolute_or_address(path)).collect(),
    }
}
