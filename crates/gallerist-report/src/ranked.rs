//! Ranked lists: a query and its results, nearest first.

use maud::{Markup, html};

use crate::metric::Metric;
use crate::number::significant;
use crate::picture::{Picture, PictureSheet};

/// An image of the queries or of the gallery, with its label and path. A result without a picture shows its path.
#[derive(Clone, Debug, Default)]
pub struct Item {
    /// The picture; `None` shows an empty tile.
    pub picture: Option<Picture>,
    /// The class, if it is known.
    pub label: Option<String>,
    /// The path of the image.
    pub path: Option<String>,
    /// Names and values of further columns. The page of a search shows them.
    pub details: Vec<(String, String)>,
}

/// One place of a ranked list.
#[derive(Clone, Debug)]
pub struct Hit {
    /// The image.
    pub item: Item,
    /// Its distance to the query, or the similarity if the page shows similarities.
    pub distance: f64,
    /// Whether it is relevant to the query; `None` where that is not known.
    pub correct: Option<bool>,
}

/// A query and its results.
#[derive(Clone, Debug, Default)]
pub struct RankedList {
    /// The query.
    pub query: Item,
    /// Numbers of this one query, such as its average precision.
    pub scores: Vec<Metric>,
    /// A remark, such as the rank of the first relevant item when none is shown.
    pub note: Option<String>,
    /// The results in their order, nearest first.
    pub results: Vec<Hit>,
}

/// A group of ranked lists under one heading, such as the worst queries.
#[derive(Clone, Debug, Default)]
pub struct RankedSection {
    /// The heading.
    pub title: String,
    /// How the queries were chosen, in a sentence.
    pub note: Option<String>,
    /// The name of the number under a result, such as `squared Euclidean distance`.
    pub measure: String,
    /// The lists.
    pub lists: Vec<RankedList>,
}

/// How much of an item is written under its picture.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Detail {
    /// Labels only where they differ from the query's, file names of queries.
    Report,
    /// Labels and paths.
    Search,
}

/// The tick and the cross, drawn as paths so that they do not depend on the font.
pub(crate) fn marks() -> Markup {
    html! {
        svg.hidden aria-hidden="true" {
            defs {
                symbol id="tick" viewBox="0 0 16 16" { path d="M3.5 8.5l3 3 6-7" {} }
                symbol id="cross" viewBox="0 0 16 16" { path d="M4.5 4.5l7 7m0-7l-7 7" {} }
            }
        }
    }
}

/// Whether some result says if it is right.
pub(crate) fn has_truth(lists: &[RankedList]) -> bool {
    lists.iter().any(|list| list.results.iter().any(|hit| hit.correct.is_some()))
}

/// The legend of the frames, once above the lists.
pub(crate) fn key(measure: &str, detail: Detail, with_truth: bool) -> Markup {
    html! {
        p.key {
            @if with_truth {
                span.sample.right { (mark(true)) } " same class as the query, "
                span.sample.wrong { (mark(false)) } " another class"
                @if detail == Detail::Report { ", named below" }
                ". "
            }
            "Nearest first"
            @if measure.is_empty() { "." } @else { "; the number is the " (measure) "." }
        }
    }
}

fn mark(correct: bool) -> Markup {
    html! {
        svg.mark aria-hidden="true" {
            use href=(if correct { "#tick" } else { "#cross" }) {}
        }
    }
}

/// One ranked list.
pub(crate) fn list(sheet: &mut PictureSheet, list: &RankedList, detail: Detail) -> Markup {
    let query = &list.query;
    html! {
        article.list {
            div.query {
                (sheet.show(query.picture.as_ref(), &format!("query, {}", describe(query))))
                div.about {
                    @if detail == Detail::Search {
                        (label_and_path(query))
                    } @else {
                        @if let Some(label) = &query.label { p.label { (breakable(label)) } }
                        @if let Some(path) = &query.path {
                            p.path title=(path) { (breakable(file_name(path))) }
                        }
                    }
                    @for score in &list.scores {
                        p.score { (score.name) " " b { (score.text_with_unit()) } }
                    }
                    @if let Some(note) = &list.note { p.remark { (note) } }
                }
            }
            @if list.results.is_empty() {
                p.none { "Nothing was found." }
            } @else {
                ol.results {
                    @for (place, hit) in list.results.iter().enumerate() {
                        (result(sheet, query, hit, place + 1, detail))
                    }
                }
            }
        }
    }
}

fn result(sheet: &mut PictureSheet, query: &Item, hit: &Hit, rank: usize, detail: Detail) -> Markup {
    let item = &hit.item;
    let (class, verdict) = match hit.correct {
        Some(true) => ("right", ", right"),
        Some(false) => ("wrong", ", wrong"),
        None => ("unknown", ""),
    };
    let named_below = hit.correct != Some(true) || item.label != query.label;
    html! {
        li class=(class) {
            div.frame {
                (sheet.show(item.picture.as_ref(), &format!("rank {rank}{verdict}, {}", describe(item))))
                @if let Some(correct) = hit.correct { (mark(correct)) }
            }
            p.distance { (significant(hit.distance, 4)) }
            @if detail == Detail::Search {
                (label_and_path(item))
            } @else {
                @if let Some(label) = item.label.as_ref().filter(|_| named_below) {
                    p.label title=(label) { (breakable(label)) }
                }
                @if let Some(path) = item.path.as_ref().filter(|_| item.picture.is_none()) {
                    p.path title=(path) { (breakable(file_name(path))) }
                }
            }
        }
    }
}

/// Label and path in full. If the label is the name of a folder of the path, it is emphasised there and not repeated.
fn label_and_path(item: &Item) -> Markup {
    html! {
        @match (item.label.as_deref(), item.path.as_deref()) {
            (Some(label), Some(path)) => {
                @if let Some((before, after)) = around_folder(path, label) {
                    p.path title=(path) { (breakable(before)) b { (breakable(label)) } (breakable(after)) }
                } @else {
                    p.label { (breakable(label)) }
                    p.path title=(path) { (breakable(path)) }
                }
            }
            (Some(label), None) => p.label { (breakable(label)) },
            (None, Some(path)) => p.path title=(path) { (breakable(path)) },
            (None, None) => {}
        }
        @for (name, value) in &item.details {
            p.remark { (name) ": " (breakable(value)) }
        }
    }
}

/// The parts of `path` before and after the folder or folders `label`, if these directly contain the file.
fn around_folder<'a>(path: &'a str, label: &str) -> Option<(&'a str, &'a str)> {
    let slash = path.rfind('/')?;
    let before = path[..slash].strip_suffix(label)?;
    (!label.is_empty() && (before.is_empty() || before.ends_with('/'))).then_some((before, &path[slash..]))
}

fn describe(item: &Item) -> &str {
    (item.label.as_deref()).or(item.path.as_deref()).unwrap_or("without a label")
}

/// The last part of a path.
fn file_name(path: &str) -> &str {
    path.rsplit(['/', '\\']).next().unwrap_or(path)
}

/// `text` with line breaks allowed after a slash or an underscore. Its writing direction is isolated, so that a label
/// does not reverse the text around it.
fn breakable(text: &str) -> Markup {
    html! {
        bdi {
            @for (number, piece) in text.split_inclusive(['/', '\\', '_']).enumerate() {
                @if number > 0 { wbr; }
                (piece)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_label_is_found_only_as_whole_folders() {
        let cases = [
            ("set/Angelic/character01/a.png", "Angelic/character01", Some(("set/", "/a.png"))),
            ("heron/a.png", "heron", Some(("", "/a.png"))),
            ("grey-heron/a.png", "heron", None),
            ("heron/nest/a.png", "heron", None),
            ("heron", "heron", None),
            ("a/b.png", "", None),
        ];
        for (path, label, wanted) in cases {
            assert_eq!(around_folder(path, label), wanted, "{path}");
        }
    }

    #[test]
    fn file_names_end_paths_of_both_kinds() {
        for path in ["a/b/c.png", "a\\b\\c.png", "c.png"] {
            assert_eq!(file_name(path), "c.png");
        }
        assert_eq!(file_name(""), "");
    }
}
