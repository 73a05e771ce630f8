//! `gallerist experiment`.

use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::json;

use crate::cli::args::experiment::{
    ExperimentArgs, ExperimentCommand, ExperimentList, ExperimentRun, ExperimentShow, ExperimentTable,
    SelectionArgs,
};
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::interrupts::{self, INTERRUPTED};
use crate::cli::jobs::JobsView;
use crate::cli::next::Done;
use crate::cli::printer::{self, Table as Printed, count};
use crate::experiments::{Experiment, Plan, Scale, Selection, Table};
use crate::jobs::{self, End, Options};

pub(super) fn run(args: ExperimentArgs) -> CommandResult {
    match args.command {
        ExperimentCommand::List(args) => list(&args),
        ExperimentCommand::Show(args) => show(&args),
        ExperimentCommand::Run(args) => run_rows(&args),
        ExperimentCommand::Table(args) => table(&args),
    }
}

fn scale_names(experiment: &Experiment) -> Vec<&'static str> {
    experiment.scales().into_iter().map(Scale::name).collect()
}

fn list(args: &ExperimentList) -> CommandResult {
    let all = Experiment::all()?;
    if args.json {
        let entry = |experiment: &Experiment| {
            json!({
                "experiment": experiment.about,
                "rows": experiment.rows.iter().map(|row| &row.name).collect::<Vec<_>>(),
                "scales": scale_names(experiment),
            })
        };
        printer::json(&all.iter().map(entry).collect::<Vec<_>>())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut table = Printed::new(&["name", "rows", "scales", "question"], &[false, true, false, false]);
    for experiment in &all {
        let about = &experiment.about;
        let rows = experiment.rows.len().to_string();
        table.row(vec![about.name.clone(), rows, scale_names(experiment).join(" "), about.title.clone()]);
    }
    printer::out(&table.to_string())?;
    Done::ExperimentsListed.show();
    Ok(ExitCode::SUCCESS)
}

fn show(args: &ExperimentShow) -> CommandResult {
    let experiment = Experiment::find(&args.name)?;
    let selection = Selection {
        scale: args.scale,
        only: args.row.iter().cloned().collect(),
        data: args.data.clone(),
        ..Selection::default()
    };
    let plan = Plan::new(&experiment, &selection)?;
    if args.row.is_some() {
        for run in plan.runs.iter().filter(|run| run.chosen) {
            printer::out(&format!("# {}\n{}\n", run.job.name, run.job.config.to_toml()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    let about = &experiment.about;
    let mut text = format!("{}: {}\n", about.name, about.title);
    if !about.paper.is_empty() {
        text += &format!(
            "{}, {} {}\n",
            about.paper,
            if about.is_table() { "Table" } else { "Figure" },
            about.number
        );
    }
    let lines = [("", &about.claims), ("note: ", &about.notes)];
    lines
        .iter()
        .for_each(|(before, lines)| lines.iter().for_each(|line| text += &format!("- {before}{line}\n")));
    text.extend(about.drawing.iter().map(|drawing| format!("{drawing}\n")));
    text += &format!("\nscale {}\n", selection.scale.name());
    plan.conditions.iter().for_each(|(part, condition)| text += &format!("  {part}: {condition}\n"));
    plan.missing.iter().for_each(|(part, missing)| text += &format!("  {part}, missing: {missing}\n"));
    let mut rows = Printed::new(&["row", "variant", "at this scale"], &[false, false, false]);
    for (r, row) in experiment.rows.iter().enumerate() {
        let runs = plan.runs.iter().filter(|run| run.row == r).count();
        let state = match row.reason(selection.scale) {
            Some(reason) => format!("only printed: {reason}"),
            None if runs == 0 => "only printed".into(),
            None => format!("{} per seed", count(runs, "run")),
        };
        rows.row(vec![row.name.clone(), row.variant.clone(), state]);
    }
    printer::out(&format!("{text}\n{rows}"))?;
    if plan.check(&experiment).is_ok() {
        Done::ExperimentShown(args.name.as_ref(), &selection.data, selection.scale).show();
    }
    Ok(ExitCode::SUCCESS)
}

fn run_rows(args: &ExperimentRun) -> CommandResult {
    let experiment = Experiment::find(&args.selection.name)?;
    let selection = Selection { only: args.only.clone(), ..args.selection.selection() };
    let plan = Plan::new(&experiment, &selection)?;
    plan.check(&experiment)?;
    for (part, missing) in &plan.missing {
        printer::warning(&format!("{part} is left out: {missing}; give its folder with --data DIR"));
    }
    let jobs = plan.jobs(&experiment);
    let options = Options { jobs: args.jobs.get(), ..Options::new(&args.selection.store) };
    printer::note(&format!(
        "{}: {}, {} at a time with {} each; stored in {}",
        experiment.about.name,
        count(jobs.len(), "run"),
        args.jobs,
        count(options.threads_each(), "thread"),
        args.selection.store.display()
    ));
    let stop = Arc::new(AtomicBool::new(false));
    interrupts::watch(
        stop.clone(),
        || "\nstopping; each run writes a checkpoint, and the same command continues",
    );
    let mut view = JobsView::new(&jobs, args.jobs.get());
    let outcomes = jobs::run(&jobs, &options, &mut view, &stop)?;
    drop(view);
    write(&experiment, &plan, &args.selection, args.json)?;
    let any = |of: fn(&End) -> bool| outcomes.iter().any(|outcome| of(&outcome.end));
    if any(|end| matches!(end, End::Stopped)) {
        printer::note(&"stopped; the same command continues");
        return Ok(ExitCode::from(INTERRUPTED));
    }
    let broken = any(|end| matches!(end, End::Done(numbers) if numbers.broken_images > 0));
    if broken {
        printer::warning(&"some images could not be read: broken_images.json of each run lists them");
    }
    Ok(ExitCode::from(u8::from(broken || any(|end| matches!(end, End::Failed(_))))))
}

fn table(args: &ExperimentTable) -> CommandResult {
    let experiment = Experiment::find(&args.selection.name)?;
    let plan = Plan::new(&experiment, &args.selection.selection())?;
    for (part, missing) in &plan.missing {
        printer::note(&format!(
            "{part}: {missing}; runs are found by the place of their images, so give the same --data as to `run`"
        ));
    }
    write(&experiment, &plan, &args.selection, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Writes the files of the table, and prints it.
fn write(experiment: &Experiment, plan: &Plan, args: &SelectionArgs, json: bool) -> Result<(), Failure> {
    let table = Table::new(experiment, plan, &args.store)?;
    let written = table.write(&args.out())?;
    printer::out(&if json { table.json() } else { table.markdown() })?;
    let names: Vec<String> = written.iter().map(|path| path.display().to_string()).collect();
    printer::note(&format!("written: {}", names.join(" ")));
    Ok(())
}
