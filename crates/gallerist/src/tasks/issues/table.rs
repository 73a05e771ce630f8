//! The issues as CSV or TSV, with two columns for the user to fill.

use super::found::{FoundIssues, IssueImage};
use crate::text::table_line;

const HEADER: [&str; 8] =
    ["kind", "image", "label", "suggested_label", "score", "detail", "action", "new_label"];

/// One line per wrong label, near-duplicate, outlier and pair of classes. Near-duplicates across splits or files have a
/// kind of their own.
pub(super) fn table(found: &FoundIssues, delimiter: char) -> String {
    let mut text = table_line(HEADER.map(String::from), delimiter);
    let mut line =
        |kind: &str, image: &str, label: Option<&str>, suggested: &str, score: f64, detail: String| {
            let label = label.unwrap_or_default();
            let cells = [kind, image, label, suggested, &format!("{score:.4}"), &detail, "", ""];
            text += &table_line(cells.map(String::from), delimiter);
        };
    for suspect in &found.wrong_labels {
        let IssueImage { name, label, .. } = &suspect.image;
        let detail = format!(
            "distance {:.4} to its label and {:.4} to the suggested one",
            suspect.own_distance, suspect.suggested_distance
        );
        line("wrong_label", name, label.as_deref(), &suspect.suggested, suspect.probability, detail);
    }
    let numbered = || found.duplicates.iter().enumerate();
    let of_kinds = [
        ("duplicate_across", numbered().filter(|(_, group)| group.across_parts()).collect::<Vec<_>>()),
        ("duplicate", numbered().filter(|(_, group)| !group.across_parts()).collect()),
    ];
    for (kind, groups) in of_kinds {
        for (number, group) in groups {
            for image in &group.images {
                let of = |part: &Option<String>, what: &str| {
                    part.as_ref().map_or(String::new(), |name| format!(", {what} {name}"))
                };
                let place = of(&image.file, "of") + &of(&image.split, "split");
                let detail = format!("group {}{}{place}", number + 1, group.across());
                line(kind, &image.name, image.label.as_deref(), "", group.distance, detail);
            }
        }
    }
    for outlier in &found.outliers {
        let IssueImage { name, label, .. } = &outlier.image;
        let detail = format!("mean distance {:.4} to its neighbours", outlier.distance);
        line("outlier", name, label.as_deref(), "", outlier.score, detail);
    }
    for pair in &found.same_class {
        let [label, other] = &pair.labels;
        let detail = format!("{} of {} neighbours of the other class", pair.of_other_class, pair.neighbours);
        line("same_class", "", Some(label), other, pair.mixing, detail);
    }
    text
}
