//! The page of the issues of an image set.

use std::path::Path;

use maud::html;

use crate::ReportError;
use crate::page::{facts, head, page};
use crate::picture::PictureSheet;
use crate::ranked::{Detail, RankedSection, has_truth, key, list, marks};
use crate::write::write_whole;

/// The content of the page of the issues of an image set: sections of images, each shown with others.
///
/// ```
/// use gallerist_report::{IssuesPage, Item, RankedList, RankedSection};
///
/// let query = Item { label: Some("heron".into()), path: Some("wren/7.jpg".into()), ..Item::default() };
/// let page = IssuesPage {
///     title: "Issues of photos".into(),
///     sections: vec![RankedSection {
///         title: "Likely wrong labels".into(),
///         lists: vec![RankedList { query, ..RankedList::default() }],
///         ..RankedSection::default()
///     }],
///     ..IssuesPage::default()
/// };
/// assert!(page.to_html().contains("Likely wrong labels"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct IssuesPage {
    /// The heading, also the title of the window.
    pub title: String,
    /// A sentence or two below the heading.
    pub summary: Option<String>,
    /// Important notices, such as images that cannot be found.
    pub notices: Vec<String>,
    /// Name and value pairs.
    pub facts: Vec<(String, String)>,
    /// The sections. One without lists says that there is nothing.
    pub sections: Vec<RankedSection>,
}

impl IssuesPage {
    /// The page as one HTML document.
    pub fn to_html(&self) -> String {
        let mut sheet = PictureSheet::default();
        let ids: Vec<String> = (1..=self.sections.len()).map(|number| format!("section-{number}")).collect();
        let titles = self.sections.iter().map(|section| section.title.as_str());
        let links: Vec<(&str, &str)> = ids.iter().map(String::as_str).zip(titles).collect();
        let body = html! {
            (head(&self.title, self.summary.as_deref(), &links, &self.notices))
            main.search {
                @if !self.facts.is_empty() { section { (facts(&self.facts)) } }
                @for (id, section) in ids.iter().zip(&self.sections) {
                    section id=(id) {
                        h2 { (section.title) }
                        @if let Some(note) = &section.note { p.note { (note) } }
                        @if section.lists.is_empty() {
                            p.none { "There is none." }
                        } @else {
                            (key(&section.measure, Detail::Search, has_truth(&section.lists)))
                        }
                        @for ranked in &section.lists { (list(&mut sheet, ranked, Detail::Search)) }
                    }
                }
            }
            (marks())
            (sheet.definitions())
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
