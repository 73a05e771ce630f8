//! The page of a search.

use std::path::Path;

use maud::html;

use crate::ReportError;
use crate::page::{facts, head, page};
use crate::picture::PictureSheet;
use crate::ranked::{Detail, RankedList, has_truth, key, list, marks};
use crate::write::write_whole;

/// The content of the page of a search.
///
/// ```
/// use gallerist_report::{Hit, Item, RankedList, SearchPage};
///
/// let page = SearchPage {
///     title: "Search".into(),
///     measure: "Euclidean distance".into(),
///     lists: vec![RankedList {
///         query: Item { path: Some("query.png".into()), ..Item::default() },
///         results: vec![Hit {
///             item: Item { label: Some("heron".into()), ..Item::default() },
///             distance: 0.25,
///             correct: None,
///         }],
///         ..RankedList::default()
///     }],
///     ..SearchPage::default()
/// };
/// assert!(page.to_html().contains("heron"));
/// ```
#[derive(Clone, Debug, Default)]
pub struct SearchPage {
    /// The heading, also the title of the window.
    pub title: String,
    /// A sentence below the heading.
    pub summary: Option<String>,
    /// Important notices, such as queries that could not be decoded.
    pub notices: Vec<String>,
    /// Name and value pairs: gallery, model, number of results.
    pub facts: Vec<(String, String)>,
    /// The name of the number under a result, such as `Euclidean distance`.
    pub measure: String,
    /// One list per query.
    pub lists: Vec<RankedList>,
}

impl SearchPage {
    /// The page as one HTML document.
    pub fn to_html(&self) -> String {
        let mut sheet = PictureSheet::default();
        let body = html! {
            (head(&self.title, self.summary.as_deref(), &[], &self.notices))
            main.search {
                @if !self.facts.is_empty() { section { (facts(&self.facts)) } }
                section {
                    @if self.lists.is_empty() {
                        p.none { "There was no query." }
                    } @else {
                        (key(&self.measure, Detail::Search, has_truth(&self.lists)))
                    }
                    @for ranked in &self.lists { (list(&mut sheet, ranked, Detail::Search)) }
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
