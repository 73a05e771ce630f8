//! The table as Markdown, CSV, JSON and a page.

use std::path::{Path, PathBuf};

use gallerist_report::{Comparison, ComparisonPlot, ComparisonRow, PlotPoint, PlotSeries};

use super::file::Kind;
use super::interval::Estimate;
use super::table::{Cell, Table, TableRow};
use crate::Result;
use crate::file::{io, write_text};
use crate::text::csv_line;

impl Table {
    /// The table as Markdown.
    pub fn markdown(&self) -> String {
        let mut text = format!("# {}\n\n{}\n\n", self.about.name, self.about.title);
        for line in self.source().into_iter().chain(self.head.iter().cloned()) {
            text += &format!("- {line}\n");
        }
        text += "\n| row |";
        let shown = self.shown();
        for (column, kinds) in &shown {
            kinds.iter().for_each(|kind| text += &format!(" {} {kind} |", escaped(&self.title(*column))));
        }
        text += " s/step | MiB | runs | |\n| --- |";
        text += &" ---: |".repeat(shown.iter().map(|(_, kinds)| kinds.len()).sum());
        text += " ---: | ---: | ---: | --- |\n";
        for row in &self.rows {
            text += &format!("| {} |", escaped(&row_name(row)));
            cells(row, &shown).iter().for_each(|cell| text += &format!(" {cell} |"));
            text += &format!(
                " {} | {} | {} | {} |\n",
                row.seconds_per_step.map_or("–".into(), |seconds| format!("{seconds:.4}")),
                row.peak_memory_mib.map_or("–".into(), |mib| format!("{mib:.0}")),
                runs(row),
                escaped(&Table::status(row))
            );
        }
        let failures: Vec<&String> = self.rows.iter().flat_map(|row| &row.failures).collect();
        if !failures.is_empty() {
            text += "\nFailed runs:\n\n";
            failures.iter().for_each(|failure| text += &format!("- {}\n", in_one_line(failure)));
        }
        for map in &self.maps {
            text += &format!("\n![Map of {}]({})\n", map.title, map.file);
        }
        for (title, lines) in [("The paper says", &self.about.claims), ("Notes", &self.about.notes)] {
            if !lines.is_empty() {
                text += &format!("\n{title}:\n\n");
                lines.iter().for_each(|line| text += &format!("- {line}\n"));
            }
        }
        if let Some(drawing) = &self.about.drawing {
            text += &format!("\n{drawing}\n");
        }
        text
    }

    /// The table as CSV: one line for each cell, so that other programs need not know the columns.
    pub fn csv(&self) -> String {
        let mut text =
            "experiment,scale,row,variant,curve,x,part,metric,printed,mean,half_width,runs\n".to_owned();
        for row in &self.rows {
            for (cell, column) in row.cells.iter().zip(&self.columns) {
                let number = |value: Option<f64>| value.map_or(String::new(), |value| value.to_string());
                let fields = [
                    self.about.name.clone(),
                    self.scale.name().into(),
                    row.name.clone(),
                    row.variant.clone(),
                    row.curve.clone(),
                    number(row.x),
                    column.part.clone(),
                    column.metric.clone(),
                    number(cell.printed),
                    number(cell.measured.map(|estimate| estimate.mean)),
                    number(cell.measured.and_then(|estimate| estimate.half_width)),
                    cell.measured.map_or(0, |estimate| estimate.runs).to_string(),
                ];
                text += &csv_line(fields);
            }
        }
        text
    }

    /// The table as JSON.
    pub fn json(&self) -> String {
        serde_json::to_string_pretty(self).expect("plain data") + "\n"
    }

    /// The table as a page with plots: curves over the parameter of an ablation, else bars.
    pub fn page(&self) -> Comparison {
        let shown = self.shown();
        let rows = self.rows.iter().map(|row| ComparisonRow {
            name: row_name(row),
            cells: cells(row, &shown),
            note: [runs(row), cost(row), Table::status(row)]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect::<Vec<_>>()
                .join("; "),
        });
        let lines = |title: &str, lines: &[String]| (title.to_owned(), lines.join(" "));
        let mut facts = Vec::new();
        if !self.about.claims.is_empty() {
            facts.push(lines("the paper says", &self.about.claims));
        }
        if !self.about.notes.is_empty() {
            facts.push(lines("notes", &self.about.notes));
        }
        let incomplete =
            self.is_incomplete().then(|| "Some runs are not done; their numbers are missing.".to_owned());
        let failures = self.rows.iter().flat_map(|row| &row.failures).cloned();
        Comparison {
            title: format!("{}: {}", self.about.name, self.about.title),
            summary: self.source(),
            notices: incomplete.into_iter().chain(failures).chain(self.about.drawing.clone()).collect(),
            conditions: self.head.clone(),
            facts,
            columns: shown.iter().map(|(column, kinds)| (self.title(*column), kinds.clone())).collect(),
            rows: rows.collect(),
            plots: (0..self.columns.len()).map(|i| self.plot(i, self.title(i))).collect(),
            maps: self.maps.iter().map(|map| map.atlas.clone()).collect(),
        }
    }

    /// Writes `NAME-SCALE.md`, `.csv`, `.json`, `.html` and the maps into a folder, and returns their paths.
    ///
    /// # Errors
    ///
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path) -> Result<Vec<PathBuf>> {
        gallerist_util::files::create_dir_all(folder).map_err(|e| io("write", folder, e))?;
        let contents = [
            ("md", self.markdown()),
            ("csv", self.csv()),
            ("json", self.json()),
            ("html", self.page().to_html()),
        ];
        let mut written = Vec::new();
        for (ending, content) in contents {
            let path = folder.join(format!("{}-{}.{ending}", self.about.name, self.scale.name()));
            write_text(&path, &content)?;
            written.push(path);
        }
        for map in &self.maps {
            let path = folder.join(&map.file);
            map.figure.write(&path, None)?;
            written.push(path);
        }
        Ok(written)
    }

    /// The columns that have numbers, and which: `printed`, `measured`.
    fn shown(&self) -> Shown {
        let kinds = |column| {
            let (printed, measured) = self.content(column);
            printed.then_some(PRINTED).into_iter().chain(measured.then_some(MEASURED)).collect::<Vec<_>>()
        };
        let all = (0..self.columns.len()).map(|column| (column, kinds(column)));
        all.filter(|(_, kinds)| !kinds.is_empty()).collect()
    }

    /// The name of a column.
    fn title(&self, column: usize) -> String {
        self.columns[column].title(&self.columns)
    }

    /// The paper, and which table of it.
    fn source(&self) -> Option<String> {
        let kind = match self.about.kind {
            Kind::Table => "Table",
            Kind::Figure => "Figure",
        };
        (!self.about.paper.is_empty()).then(|| format!("{}, {kind} {}", self.about.paper, self.about.number))
    }

    fn plot(&self, column: usize, title: String) -> ComparisonPlot {
        let mut series: Vec<PlotSeries> = Vec::new();
        for row in &self.rows {
            let cell = &row.cells[column];
            // A row without a place on the axis is a level, such as a variant that has no parameter.
            let point = PlotPoint {
                name: row_name(row),
                x: row.x,
                printed: cell.printed,
                measured: cell.measured.map(|estimate| (estimate.mean, estimate.half_width)),
            };
            match series.iter_mut().find(|series| series.name == row.curve) {
                Some(series) => series.points.push(point),
                None => series.push(PlotSeries { name: row.curve.clone(), points: vec![point] }),
            }
        }
        ComparisonPlot { title, axis: self.about.axis.clone(), series }
    }
}

/// Columns by their places, with the kinds of their numbers.
type Shown = Vec<(usize, Vec<&'static str>)>;
const PRINTED: &str = "printed";
const MEASURED: &str = "measured";

/// A text as the content of a cell of a Markdown table.
fn escaped(text: &str) -> String {
    text.replace('|', "\\|").replace('\n', " ")
}

/// The numbers of a row as they are written.
fn cells(row: &TableRow, shown: &Shown) -> Vec<String> {
    let of_column = |(column, kinds): &(usize, Vec<&'static str>)| {
        let cell = &row.cells[*column];
        let write = |kind: &&str| if *kind == PRINTED { printed(cell) } else { measured(cell) };
        kinds.iter().map(write).collect::<Vec<_>>()
    };
    shown.iter().flat_map(of_column).collect()
}

/// The failure of a run without what its process printed before the error.
fn in_one_line(failure: &str) -> String {
    let (name, reason) = failure.split_once(": ").unwrap_or(("", failure));
    let lines: Vec<&str> = reason.lines().map(str::trim).collect();
    let error = lines.iter().rposition(|line| line.starts_with("error:")).unwrap_or(0);
    format!("{name}: {}", lines[error..].join(" "))
}

/// The name with the variant, where it does not say it.
fn row_name(row: &TableRow) -> String {
    match row.variant.as_str() {
        variant if row.name.contains(variant) => row.name.clone(),
        variant => format!("{} ({variant})", row.name),
    }
}

fn printed(cell: &Cell) -> String {
    cell.printed.map_or("–".into(), |value| format!("{value:.1}"))
}

fn measured(cell: &Cell) -> String {
    match cell.measured {
        None => "–".into(),
        Some(Estimate { mean, half_width: Some(half), .. }) => format!("{mean:.2} ± {half:.2}"),
        Some(Estimate { mean, half_width: None, .. }) => format!("{mean:.2}"),
    }
}

fn runs(row: &TableRow) -> String {
    if row.runs == 0 { "–".into() } else { format!("{}/{}", row.done, row.runs) }
}

/// Seconds of a step and memory, where they are known.
fn cost(row: &TableRow) -> String {
    let seconds = row.seconds_per_step.map(|seconds| format!("{seconds:.4} s/step"));
    let memory = row.peak_memory_mib.map(|mib| format!("{mib:.0} MiB"));
    seconds.into_iter().chain(memory).collect::<Vec<_>>().join("; ")
}
