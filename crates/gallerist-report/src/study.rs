//! The page of a study of many runs: tables and figures in sections.

use std::path::Path;

use maud::{Markup, html};

use crate::ReportError;
use crate::figure::{Figure, image};
use crate::page::{facts, head, page};
use crate::write::write_whole;

/// A table; the first column has the names of the rows.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StudyTable {
    /// The names of the columns.
    pub header: Vec<String>,
    /// The rows, each with as many cells as the header.
    pub rows: Vec<Vec<String>>,
    /// A sentence below the table.
    pub note: Option<String>,
}

/// A section of the page: figures, then a table.
#[derive(Clone, Debug, Default)]
pub struct StudySection {
    /// The heading.
    pub title: String,
    /// A sentence below the heading.
    pub note: Option<String>,
    /// The figures.
    pub figures: Vec<Figure>,
    /// The table.
    pub table: Option<StudyTable>,
}

/// The content of the page of a study of many runs, such as a search for parameters. Empty parts are left out.
///
/// ```
/// use gallerist_report::{StudyPage, StudySection, StudyTable};
///
/// let table = StudyTable {
///     header: vec!["trial".into(), "map@r".into()],
///     rows: vec![vec!["1".into(), ".5123".into()]],
///     note: None,
/// };
/// let section = StudySection { title: "Trials".into(), table: Some(table), ..StudySection::default() };
/// let page = StudyPage { title: "Tuning".into(), sections: vec![section], ..StudyPage::default() };
/// assert!(page.to_html().contains(".5123"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct StudyPage {
    /// The heading, also the title of the window.
    pub title: String,
    /// A sentence or two below the heading.
    pub summary: Option<String>,
    /// Important notices, such as runs that failed.
    pub notices: Vec<String>,
    /// Name and value pairs.
    pub facts: Vec<(String, String)>,
    /// The sections.
    pub sections: Vec<StudySection>,
    /// Files in full, by their names.
    pub files: Vec<(String, String)>,
}

impl StudyPage {
    /// The page as one HTML document.
    pub fn to_html(&self) -> String {
        let ids: Vec<String> = (1..=self.sections.len()).map(|number| format!("section-{number}")).collect();
        let links: Vec<(&str, &str)> = ids
            .iter()
            .zip(&self.sections)
            .map(|(id, section)| (id.as_str(), section.title.as_str()))
            .collect();
        let body = html! {
            (head(&self.title, self.summary.as_deref(), &links, &self.notices))
            main {
                @if !self.facts.is_empty() { section { (facts(&self.facts)) } }
                @for (id, of) in ids.iter().zip(&self.sections) {
                    section id=(id) {
                        h2 { (of.title) }
                        @if let Some(note) = &of.note { p.note { (note) } }
                        @for figure in &of.figures { (image(figure)) }
                        @if let Some(table) = &of.table { (written(table, &of.title)) }
                    }
                }
                @if !self.files.is_empty() {
                    section {
                        h2 { "Files" }
                        @for (name, text) in &self.files {
                            details {
                                summary { (name) }
                                pre.scroll tabindex="0" role="region" aria-label=(name) { code { (text) } }
                            }
                        }
                    }
                }
            }
        };
        page(&self.title, &body)
    }

    /// Writes the page; a file at `path` is replaced atomically.
    ///
    /// # Errors
    /// [`ReportError::Write`] with the error of the system.
    pub fn write(&self, path: impl AsRef<Path>) -> Result<(), ReportError> {
        write_whole(path.as_ref(), self.to_html().as_bytes())
    }
}

fn written(table: &StudyTable, name: &str) -> Markup {
    html! {
        div.scroll tabindex="0" role="region" aria-label=(name) {
            table.metrics {
                thead { tr { @for cell in &table.header { th scope="col" { (cell) } } } }
                tbody {
                    @for row in &table.rows {
                        tr {
                            @for (i, cell) in row.iter().enumerate() {
                                @if i == 0 { th scope="row" { (cell) } } @else { td { (cell) } }
                            }
                        }
                    }
                }
            }
            @if let Some(note) = &table.note { p.note { (note) } }
        }
    }
}
