//! Ranked lists.

use gallerist_report::figure::{self, Figure};
use gallerist_train::Result;

use super::source::Source;
use super::text::fault;
use crate::ranking::{Confusion, Ranking};

/// Side of a picture in pixels: two per unit of the drawing.
const PICTURE: usize = 168;

/// Number of lists per pair of confused classes.
const LISTS_PER_PAIR: usize = 2;

/// Selection of queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Queries {
    /// The queries with the highest average precision.
    Best(usize),
    /// The queries with the lowest average precision.
    Worst(usize),
    /// Random queries, by seed.
    Random(usize, u64),
    /// Queries of the most confused pairs of classes.
    Confused(usize),
    /// Queries whose path ends in one of these names, or whose label is one of them.
    Named(Vec<String>),
}

/// Ranked lists of some queries, with `results` results each, by the rules of the metrics.
///
/// # Errors
///
/// When there are no labels, for no queries to draw, too few rows, no query matches a name, or no query is confused.
pub fn ranked(source: &Source, queries: &Queries, results: usize) -> Result<Figure> {
    let ranking = Ranking::new(source, results)?;
    if let Queries::Best(0) | Queries::Worst(0) | Queries::Random(0, _) | Queries::Confused(0) = queries {
        return Err(fault("a figure of ranked lists", "needs 1 query or more", None));
    }
    let (of_queries, of_items) = (source.queries.pictures(), source.items().pictures());
    let (query, item) = (|row| of_queries.drawn(row, PICTURE), |row| of_items.drawn(row, PICTURE));
    let section =
        |title: &str, note: &str, queries: &[usize]| ranking.section(title, note, queries, (&query, &item));
    let sections = match queries {
        Queries::Best(count) => {
            let note = format!("The queries with the highest average precision. {}", ranking.precision_is());
            vec![section("Best queries", &note, &ranking.best(*count))?]
        }
        Queries::Worst(count) => {
            let note = format!("The queries with the lowest average precision. {}", ranking.precision_is());
            vec![section("Worst queries", &note, &ranking.worst(*count))?]
        }
        Queries::Random(count, seed) => {
            let drawn = ranking.drawn(*seed, *count);
            let note = format!("Seed {seed}. {}", ranking.precision_is());
            vec![section("Queries drawn at random", &note, &drawn)?]
        }
        Queries::Confused(count) => {
            let pairs = ranking.confused(*count)?;
            if pairs.is_empty() {
                return Err(fault(
                    "a figure of confused classes",
                    format!(
                        "needs a query whose nearest item is of another class, and `{}` has none",
                        source.name
                    ),
                    Some(
                        "draw other queries, such as those with the lowest average precision: --queries worst",
                    ),
                ));
            }
            let shown = |pair: &Confusion<'_>| {
                let title = format!("{} taken for {}", pair.class, pair.with);
                let note = format!("Nearest for {} of {} queries.", pair.queries.len(), pair.of);
                section(&title, &note, &pair.queries[..pair.queries.len().min(LISTS_PER_PAIR)])
            };
            pairs.iter().map(shown).collect::<Result<_>>()?
        }
        Queries::Named(names) => {
            let mut rows = Vec::new();
            for name in names {
                rows.extend(find(source, name)?);
            }
            let note = format!("In the order in which they were named. {}", ranking.precision_is());
            vec![section("Named queries", &note, &rows)?]
        }
    };
    let title = format!("Ranked lists: {}", source.name);
    Ok(figure::ranked(&title, Some(&ranking.described()), &sections))
}

/// The queries that match a name: all whose path ends in it, or else the first one with that label.
fn find(source: &Source, name: &str) -> Result<Vec<usize>> {
    let is_path = |path: &String| {
        path.strip_suffix(name).is_some_and(|before| before.is_empty() || before.ends_with(['/', '\\']))
    };
    let paths = source.queries.paths.as_deref().unwrap_or(&[]);
    let mut rows: Vec<usize> = (0..paths.len()).filter(|&row| is_path(&paths[row])).collect();
    if rows.is_empty() {
        rows.extend(source.queries.rows.labels.iter().position(|label| label == name));
    }
    if rows.is_empty() {
        return Err(fault(
            "a ranked list",
            format!("needs a query, and no path in `{}` ends in `{name}` and no label is it", source.name),
            Some("give the end of an image's path, from a folder's name on, or a label"),
        ));
    }
    Ok(rows)
}
