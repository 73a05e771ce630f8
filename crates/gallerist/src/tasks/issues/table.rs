//! The issues as CSV or TSV, with two columns for the user to fill.

use super::found::{FoundIssues, IssueImage};
use crate::text::table_line;

const HEADER: [&str; 9] =
    ["kind", "source", "image", "label", "suggested_label", "score", "detail", "action", "new_label"];
/// The place of `source` in [`HEADER`].
const SOURCE: usize = 1;

/// One line per wrong label, near-duplicate, outlier and pair of classes. Near-duplicates across splits or files have a
/// kind of their own. The column `source` is there where the images are of several sources, whose paths may be equal.
pub(super) fn table(found: &FoundIssues, delimiter: char) -> String {
    let has_sources = found.images_of_issues().any(|image| image.source.is_some());
    let mut text = String::new();
    let mut write = |cells: [&str; 9]| {
        let cells = cells.into_iter().enumerate().filter(|(at, _)| has_sources || *at != SOURCE);
        text += &table_line(cells.map(|(_, cell)| cell.to_owned()), delimiter);
    };
    write(HEADER);
    let mut line = |kind: &str,
                    image: Option<&IssueImage>,
                    label: Option<&str>,
                    suggested: &str,
                    score: f64,
                    detail: String| {
        let source = image.and_then(|image| image.source.as_deref()).unwrap_or_default();
        let name = image.map_or("", |image| &image.name);
        let (label, score) = (label.unwrap_or_default(), format!("{score:.4}"));
        write([kind, source, name, label, suggested, &score, &detail, "", ""]);
    };
    let of = |part: &Option<String>, what: &str| {
        part.as_ref().map_or(String::new(), |name| format!(", {what} {name}"))
    };
    for suspect in &found.wrong_labels {
        let image = &suspect.image;
        let detail = format!(
            "distance {:.4} to its label and {:.4} to the suggested one{}",
            suspect.own_distance,
            suspect.suggested_distance,
            of(&image.file, "of")
        );
        line(
            "wrong_label",
            Some(image),
            image.label.as_deref(),
            &suspect.suggested,
            suspect.probability,
            detail,
        );
    }
    let numbered = || found.duplicates.iter().enumerate();
    let of_kinds = [
        ("duplicate_across", numbered().filter(|(_, group)| group.across_parts()).collect::<Vec<_>>()),
        ("duplicate", numbered().filter(|(_, group)| !group.across_parts()).collect()),
    ];
    for (kind, groups) in of_kinds {
        for (number, group) in groups {
            for image in &group.images {
                let place = of(&image.file, "of") + &of(&image.split, "split");
                let detail = format!("group {}{}{place}", number + 1, group.across());
                line(kind, Some(image), image.label.as_deref(), "", group.distance, detail);
            }
        }
    }
    for outlier in &found.outliers {
        let image = &outlier.image;
        let detail =
            format!("mean distance {:.4} to its neighbours{}", outlier.distance, of(&image.file, "of"));
        line("outlier", Some(image), image.label.as_deref(), "", outlier.score, detail);
    }
    for pair in &found.same_class {
        let [label, other] = &pair.labels;
        let detail = format!("{} of {} neighbours of the other class", pair.of_other_class, pair.neighbours);
        line("same_class", None, Some(label), other, pair.mixing, detail);
    }
    text
}
