//! Maps of embeddings, one for each row of an experiment.

use std::path::Path;

use gallerist_report::Atlas;
use gallerist_report::figure::Figure;
use serde::Serialize;

use super::file::{Experiment, Maps};
use super::plan::{Plan, PlannedRun};
use crate::Result;
use crate::jobs::JobFolder;
use crate::plots::{PageMap, Source};

/// The map of the embeddings of a row on a part.
#[derive(Clone, Debug, Serialize)]
pub struct RowMap {
    /// The row, with the part if there are several.
    pub title: String,
    /// The name of its file, which is in the folder of the table.
    pub file: String,
    /// As it is in the file.
    #[serde(skip)]
    pub figure: Figure,
    /// As it is on the page.
    #[serde(skip)]
    pub atlas: Atlas,
}

impl RowMap {
    /// The maps of the runs of the plan's first seed. `done` are the runs whose results the table has. None unless the
    /// experiment asks for maps.
    pub(super) fn of_runs<'a>(
        experiment: &Experiment,
        plan: &Plan,
        done: impl Iterator<Item = &'a PlannedRun>,
        store: &Path,
    ) -> Result<Vec<RowMap>> {
        let Some(maps) = experiment.about.maps else { return Ok(Vec::new()) };
        let first = *plan.selection.seeds.start();
        let of_run = |run: &PlannedRun| Self::of_run(experiment, plan, run, maps, store);
        done.filter(|run| run.seed == first).map(of_run).collect()
    }

    fn of_run(
        experiment: &Experiment,
        plan: &Plan,
        run: &PlannedRun,
        maps: Maps,
        store: &Path,
    ) -> Result<RowMap> {
        let mut source = Source::of_run(&JobFolder::of(store, &run.job).run())?;
        source.name = run.name.clone();
        let part = if experiment.parts.len() > 1 { format!("-{}", run.part + 1) } else { String::new() };
        let map = PageMap::new(&source, run.seed, maps.classes)?;
        let (name, scale) = (&experiment.about.name, plan.selection.scale.name());
        Ok(RowMap {
            title: run.name.clone(),
            file: format!("{name}-{scale}-map-{}{part}.svg", run.row + 1),
            figure: map.figure(),
            atlas: map.atlas(),
        })
    }
}
