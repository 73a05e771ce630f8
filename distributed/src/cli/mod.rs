//! The command line.

mod args;
mod lists;
mod log;
mod processes;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Parser;
use gallerist_cluster::{
    DuplicatesOptions, Engine, Error, EvaluateOptions, Progress, Result, SearchRequest, duplicates, evaluate,
    search, shards,
};
use gallerist_retrieval::prepare_to_write;
use gallerist_util::files::is_same_file;
use serde::Serialize;

use args::{Arguments, Command, Duplicates, Evaluate, Search, Where};

/// Runs the program.
pub fn run() -> ExitCode {
    let arguments = Arguments::parse();
    log::start();
    match run_command(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            if let Some(hint) = error.hint() {
                eprintln!("\nhint: {hint}");
            }
            ExitCode::from(2)
        }
    }
}

fn run_command(command: Command) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        // Plans are walked by recursion.
        .thread_stack_size(16 << 20)
        .build()
        .map_err(|error| Error::input(format!("cannot start the threads of the program: {error}"), None))?;
    runtime.block_on(async {
        match command {
            Command::Search(arguments) => run_search(arguments).await,
            Command::Evaluate(arguments) => run_evaluate(arguments).await,
            Command::Duplicates(arguments) => run_duplicates(arguments).await,
            Command::Scheduler(arguments) => processes::scheduler(arguments).await,
            Command::Executor(arguments) => processes::executor(arguments).await,
        }
    })
}

/// Where the jobs run.
async fn engine(place: &Where) -> Result<Engine> {
    match &place.cluster {
        None => Ok(Engine::embedded()),
        Some(address) => Engine::cluster(address).await,
    }
}

/// What `search` prints.
#[derive(Serialize)]
struct SearchSummary {
    queries: usize,
    gallery: usize,
    k: usize,
    metric: gallerist_retrieval::search::Metric,
    sha256: String,
}

/// Refuses an output that is one of the files that are read: the result would replace it.
fn check_not_input<'a>(out: &Path, inputs: impl IntoIterator<Item = &'a PathBuf>) -> Result<()> {
    for input in inputs {
        // The path itself may be a list of shards.
        let files = shards::list(input)?;
        if is_same_file(out, input) || files.iter().any(|file| is_same_file(out, &file.path)) {
            let problem =
                format!("`{}` is an input of this command: the result would replace it", out.display());
            return Err(Error::input(problem, Some("write the result to another file")));
        }
    }
    Ok(())
}

async fn run_search(arguments: Search) -> Result<()> {
    if let Some(out) = &arguments.out {
        lists::check(out)?;
        check_not_input(out, [&arguments.gallery].into_iter().chain(&arguments.query))?;
    }
    let request = SearchRequest {
        gallery: arguments.gallery,
        queries: arguments.query,
        k: arguments.k,
        metric: arguments.metric,
        force: arguments.force,
    };
    let found = search(&engine(&arguments.place).await?, &request, &mut Terminal("queries")).await?;
    if let Some(out) = &arguments.out {
        lists::write(out, &found)?;
    }
    print(&SearchSummary {
        queries: found.blocks.iter().map(gallerist_retrieval::search::RankedLists::len).sum(),
        gallery: found.gallery.rows,
        k: arguments.k,
        metric: found.metric,
        sha256: found.sha256,
    })
}

/// What `evaluate` prints.
#[derive(Serialize)]
struct EvaluationSummary {
    #[serde(flatten)]
    report: gallerist_retrieval::eval::EvaluationReport,
    sha256: String,
}

async fn run_evaluate(arguments: Evaluate) -> Result<()> {
    let options = EvaluateOptions {
        gallery: arguments.gallery,
        queries: arguments.query,
        protocol: arguments.protocol,
        metrics: arguments.metrics,
        metric: arguments.metric,
        across_cameras: arguments.across_cameras,
        force: arguments.force,
    };
    let measured = evaluate(&engine(&arguments.place).await?, &options, &mut Terminal("queries")).await?;
    for note in &measured.report.evaluation.notes {
        eprintln!("note: {note}");
    }
    print(&EvaluationSummary { report: measured.report, sha256: measured.sha256 })
}

async fn run_duplicates(arguments: Duplicates) -> Result<()> {
    if let Some(out) = &arguments.out {
        prepare_to_write(out)?;
        check_not_input(out, [&arguments.gallery])?;
    }
    let options = DuplicatesOptions {
        gallery: arguments.gallery,
        share: arguments.share,
        metric: arguments.metric,
        force: arguments.force,
    };
    let found = duplicates(&engine(&arguments.place).await?, &options, &mut Terminal("steps")).await?;
    match &arguments.out {
        None => print(&found),
        Some(out) => {
            let text = json(&found);
            Ok(gallerist_retrieval::write_atomically(out, |file| file.write_all(text.as_bytes()))?)
        }
    }
}

fn json(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string_pretty(value).expect("results are valid JSON");
    text.push('\n');
    text
}

/// Prints JSON. A reader that closes the pipe has what it wanted.
fn print(value: &impl Serialize) -> Result<()> {
    match std::io::stdout().write_all(json(value).as_bytes()) {
        Err(error) if error.kind() != std::io::ErrorKind::BrokenPipe => {
            Err(Error::input(format!("cannot write to standard output: {error}"), None))
        }
        _ => Ok(()),
    }
}

/// Progress on the standard error stream, of what is counted.
struct Terminal(&'static str);

impl Progress for Terminal {
    fn done(&mut self, done: usize, all: usize) {
        eprintln!("{done} of {all} {}", self.0);
    }

    fn warning(&mut self, message: &str) {
        eprintln!("warning: {message}");
    }
}
