//! From an experiment to its jobs.

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};

use gallerist_retrieval::eval::{PROTOCOLS, Protocol};
use gallerist_train::{RunConfig, measures};

use super::base::{Base, fill_in, merge};
use super::file::{Experiment, Part, Row, Scale};
use crate::jobs::Job;
use crate::{Error, Result};

/// The column of a clustering, which is no metric of a ranking.
const NMI: &str = "nmi";

/// What of an experiment is run.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The scale.
    pub scale: Scale,
    /// The seeds of each row; a table of all needs those of all machines that have run a part of them.
    pub seeds: RangeInclusive<u64>,
    /// The names of the rows that are run; empty: all.
    pub only: Vec<String>,
    /// The folders of the images and weights. Files that are in none of them are looked up in `data`.
    pub data: Vec<PathBuf>,
}

impl Default for Selection {
    fn default() -> Self {
        Selection { scale: Scale::Small, seeds: 1..=1, only: Vec::new(), data: Vec::new() }
    }
}

/// The runs of an experiment at a scale.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The selection.
    pub selection: Selection,
    /// The runs, row by row, part by part, seed by seed.
    pub runs: Vec<PlannedRun>,
    /// Of each part that is run: its name, and a sentence about data, network and steps.
    pub conditions: Vec<(String, String)>,
    /// The parts with missing images: name, the missing path, and the requirement.
    pub missing: Vec<(String, String)>,
}

/// A run of a plan.
#[derive(Clone, Debug)]
pub struct PlannedRun {
    /// The row, with the part if the experiment has several.
    pub name: String,
    /// The place of the row in the experiment.
    pub row: usize,
    /// The place of the part.
    pub part: usize,
    /// The seed.
    pub seed: u64,
    /// Whether the selection has its row.
    pub chosen: bool,
    /// The job.
    pub job: Job,
}

impl Plan {
    /// The runs of an experiment: those of all rows, so that a table has the results of all.
    ///
    /// # Errors
    ///
    /// When a row of the selection does not exist, there is no seed, nothing is run at the scale, or a run file is wrong. Missing images
    /// are no error here: see [`check`](Self::check).
    pub fn new(experiment: &Experiment, selection: &Selection) -> Result<Plan> {
        let scale = selection.scale;
        if selection.seeds.is_empty() {
            let message = format!("`{}` is run with at least one seed", experiment.about.name);
            return Err(Error::new(message, Some("give the seeds, such as 1..=5")));
        }
        for name in &selection.only {
            let names: Vec<&str> = experiment.rows.iter().map(|row| row.name.as_str()).collect();
            if !names.contains(&name.as_str()) {
                let message = format!("`{}` has no row `{name}`", experiment.about.name);
                return Err(Error::new(message, Some(&format!("its rows are: {}", names.join(", ")))));
            }
        }
        let mut plan = Plan {
            selection: selection.clone(),
            runs: Vec::new(),
            conditions: Vec::new(),
            missing: Vec::new(),
        };
        for part in &experiment.parts {
            let Some(scaled) = part.at(scale) else { continue };
            let base = Base::find(&scaled.base)?;
            let about = scaled.about.as_ref().unwrap_or(&base.base.about);
            plan.conditions.push((part.name.clone(), about.clone()));
            let missing = base.missing(&selection.data);
            plan.missing.extend(missing.map(|missing| (part.name.clone(), missing)));
        }
        for (r, row) in experiment.rows.iter().enumerate() {
            let chosen = selection.only.is_empty() || selection.only.contains(&row.name);
            if row.reason(scale).is_some() {
                continue;
            }
            for (p, part) in experiment.parts.iter().enumerate() {
                let Some(config) = config(experiment, row, part, selection)? else { continue };
                let of_part =
                    if experiment.parts.len() > 1 { format!(", {}", part.name) } else { String::new() };
                let name = format!("{}{of_part}", row.name);
                for seed in selection.seeds.clone() {
                    let mut config = config.clone();
                    config.train.seed = seed;
                    let job = Job::new(format!("{name}, seed {seed}"), config);
                    plan.runs.push(PlannedRun { name: name.clone(), row: r, part: p, seed, chosen, job });
                }
            }
        }
        // A row that is left out at this scale only may be the one that measures a column.
        let is_left_out = |row: &Row| row.not_run.is_none() && row.reason(scale).is_some();
        if !experiment.rows.iter().any(is_left_out) {
            for (p, part) in experiment.parts.iter().enumerate() {
                let runs = plan.runs.iter().filter(|run| run.part == p);
                check_rankings(part, &runs.map(|run| &run.job.config).collect::<Vec<_>>())?;
            }
        }
        Ok(plan)
    }

    /// The jobs of the chosen runs that have all images.
    pub fn jobs(&self, experiment: &Experiment) -> Vec<Job> {
        let is_there = |run: &&PlannedRun| {
            let part = &experiment.parts[run.part].name;
            self.missing.iter().all(|(missing, _)| missing != part)
        };
        self.runs.iter().filter(|run| run.chosen).filter(is_there).map(|run| run.job.clone()).collect()
    }

    /// Refuses a plan that has nothing to run, or whose images are all missing.
    ///
    /// # Errors
    ///
    /// With what to put where.
    pub fn check(&self, experiment: &Experiment) -> Result<()> {
        let (name, scale) = (&experiment.about.name, self.selection.scale.name());
        if !self.runs.iter().any(|run| run.chosen) {
            let scales: Vec<&str> = experiment.scales().into_iter().map(Scale::name).collect();
            let chosen = experiment.rows.iter().filter(|row| self.selection.only.contains(&row.name));
            let reasons: Vec<String> = chosen
                .filter_map(|row| {
                    let reason = row.reason(self.selection.scale)?;
                    Some(format!("`{}` is only printed: {reason}", row.name))
                })
                .collect();
            let hint = match (&experiment.about.drawing, scales.as_slice()) {
                (Some(drawing), _) => drawing.clone(),
                _ if !reasons.is_empty() => reasons.join("; "),
                (None, []) if experiment.rows.is_empty() => "add a [[row]] to its file".into(),
                (None, []) => {
                    "it has only printed numbers: `gallerist experiment table NAME` shows them".into()
                }
                (None, scales) => format!("rows are run at the scales {}", scales.join(", ")),
            };
            let message = format!("`{name}` has nothing to run at the scale {scale}");
            return Err(Error::new(message, Some(&hint)));
        }
        match self.missing.first() {
            Some((part, missing)) if self.jobs(experiment).is_empty() => Err(Error::new(
                format!("cannot run `{name}` on {part} at the scale {scale}\n  {missing}"),
                Some("give the folder that contains it: --data DIR"),
            )),
            _ => Ok(()),
        }
    }
}

/// The run file of a row on a part; `None` if the part is not run at the scale.
fn config(
    experiment: &Experiment,
    row: &Row,
    part: &Part,
    selection: &Selection,
) -> Result<Option<RunConfig>> {
    let Some(scaled) = part.at(selection.scale) else { return Ok(None) };
    let base = Base::find(&scaled.base)?;
    let mut table = base.run.clone();
    let overs = [Some(&scaled.run), Some(&row.run), row.on(&part.name), Some(row.at(selection.scale))];
    for over in overs.into_iter().flatten() {
        if over.get("train").and_then(|train| train.get("seed")).is_some() {
            let message = format!(
                "the row `{}` of `{}` on {} sets train.seed",
                row.name, experiment.about.name, part.name
            );
            return Err(Error::new(message, Some("the seeds are the same for all rows: --seeds N")));
        }
        merge(&mut table, over);
    }
    fill_in(&mut table, &base.places(&selection.data)).map_err(|text| {
        let known: Vec<&str> = base.base.files.keys().map(String::as_str).collect();
        let hint = match known.is_empty() {
            true => "it has no [base.files]".to_owned(),
            false => format!("its [base.files] are {}", known.join(", ")),
        };
        Error::new(format!("`{text}` names no file of the base `{}`", scaled.base), Some(&hint))
    })?;
    let scale = selection.scale.name();
    let origin = format!("the row `{}` of `{}` on {} ({scale})", row.name, experiment.about.name, part.name);
    // Relative paths are relative to the current folder.
    let mut config = RunConfig::complete(&table.to_string(), &origin, Path::new(""), &[])?;
    measure_all(&mut config, part, base.is_built_in)?;
    config.validate()?;
    Ok(Some(config))
}

/// Refuses a column of another ranking that no run of the part makes. Rows without that ranking have no number there.
fn check_rankings(part: &Part, runs: &[&RunConfig]) -> Result<()> {
    let rankings = part.metrics.iter().filter_map(|name| Some((name, name.rsplit_once(' ')?.0)));
    for (name, ranking) in rankings.filter(|_| !runs.is_empty()) {
        let (key, is_made) = match ranking {
            "reranked" => ("rerank", runs.iter().any(|config| config.evaluation.rerank.is_some())),
            _ => ("query_expansion", runs.iter().any(|config| config.evaluation.query_expansion.is_some())),
        };
        if !is_made {
            let message = format!("no row of the part `{}` measures its column `{name}`", part.name);
            let hint =
                format!("give evaluation.{key} in the base, the part or a row, or leave the column out");
            return Err(Error::new(message, Some(&hint)));
        }
    }
    Ok(())
}

/// Adds the metrics of a part's columns, and the clustering for its NMI, to what a run measures.
fn measure_all(config: &mut RunConfig, part: &Part, is_built_in: bool) -> Result<()> {
    let evaluation = &mut config.evaluation;
    let mut wanted = Vec::new();
    for name in &part.metrics {
        if name == NMI {
            evaluation.cluster.get_or_insert_default();
            continue;
        }
        // A metric after re-ranking or with expanded queries has that before its own name.
        let (ranking, own) = name.rsplit_once(' ').unwrap_or(("", name));
        if !["", "reranked", "expanded"].contains(&ranking) {
            let message = format!("the part `{}` has the metric `{name}`, which does not exist", part.name);
            let hint = "a metric of another ranking is `reranked METRIC` or `expanded METRIC`";
            return Err(Error::new(message, Some(hint)));
        }
        for measure in measures(&[own.to_owned()])? {
            if !wanted.contains(&measure) {
                wanted.push(measure);
            }
        }
    }
    let measured = evaluation.plan()?.options.measures;
    if is_built_in && evaluation.metrics.is_empty() && evaluation.protocol.is_none() {
        // The images of these bases may name a protocol with metrics of its own.
        let of_protocols: Vec<_> = PROTOCOLS.iter().flat_map(Protocol::measures).collect();
        if wanted.iter().all(|measure| measured.contains(measure) || of_protocols.contains(measure)) {
            return Ok(());
        }
    }
    wanted.retain(|measure| !measured.contains(measure));
    if !wanted.is_empty() {
        evaluation.metrics = measured.iter().chain(&wanted).map(ToString::to_string).collect();
    }
    Ok(())
}
