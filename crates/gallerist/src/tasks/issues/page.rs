//! The page of the issues, with pictures.

use std::collections::HashMap;
use std::path::PathBuf;

use gallerist_data::ImageSet;
use gallerist_report::{Hit, IssuesPage, Item, Metric as Number, RankedList, RankedSection};
use gallerist_retrieval::issues::{Issues, Neighbour};
use gallerist_retrieval::search::Metric;

use super::found::{FoundIssues, Rows};
use super::options::IssuesOptions;
use super::table::across;
use crate::pictures::Pictures;
use crate::plots::{measure, name_of};
use crate::text::{count, grouped};

/// Most images of a group of near-duplicates that are shown.
const GROUP: usize = 20;

/// The images of the rows: one set per source, so that sources with equal paths are not confused.
struct Images {
    sets: Vec<ImageSet>,
    /// For each row its set.
    of_row: Vec<Option<usize>>,
    notices: Vec<String>,
}

pub(super) fn page(
    issues: &Issues,
    found: &FoundIssues,
    rows: &Rows,
    metric: Metric,
    options: &IssuesOptions,
) -> IssuesPage {
    let images = Images::open(rows, &options.images);
    let (labels, paths) = (rows.set.labels.as_deref(), rows.set.paths.as_deref());
    let of_set: Vec<Pictures> =
        images.sets.iter().map(|set| Pictures::new(labels, paths, Some(set))).collect();
    let without = Pictures::new(labels, paths, None);
    let item = |row: usize| images.of_row[row].map_or(&without, |set| &of_set[set]).item(row);
    let is_same = |a: usize, b: usize| labels.map(|labels| labels[a] == labels[b]);
    let hits = |row: usize, near: &[Neighbour]| {
        near.iter()
            .map(|near| Hit {
                item: item(near.row),
                distance: near.distance,
                correct: is_same(row, near.row),
            })
            .collect::<Vec<Hit>>()
    };
    let section = |title: &str, note: String, all: usize, lists: Vec<RankedList>| {
        let note = match all > lists.len() {
            true => format!("{note} The first {} of {} are shown.", lists.len(), grouped(all)),
            false => note,
        };
        RankedSection { title: title.into(), note: Some(note), measure: measure(metric).into(), lists }
    };
    let mut sections = Vec::new();
    if labels.is_some() {
        sections.push(wrong_labels(issues, found, options.shown, (&item, &hits), &section));
    }
    sections.push(duplicates(issues, found, options.shown, (&item, &hits), &section));
    let outliers = issues.outliers.iter().take(options.shown).map(|outlier| RankedList {
        query: item(outlier.row),
        scores: vec![Number::number("z-score", outlier.score)],
        note: None,
        results: hits(outlier.row, &outlier.nearest),
    });
    let note = "Images far from their nearest neighbours, the farthest first.".to_owned();
    sections.push(section("Outliers", note, issues.outliers.len(), outliers.collect()));
    if labels.is_some() {
        sections.push(same_class(issues, found, options.shown, (&item, &hits), &section));
    }
    let names: Vec<String> = rows.files.iter().map(|file| name_of(file)).collect();
    IssuesPage {
        title: format!("Issues of {}", names.join(" and ")),
        summary: Some(
            "To correct the set, fill the columns action and new_label of issues.csv and give the file to --relabel."
                .into(),
        ),
        notices: images.notices,
        facts: facts(found),
        sections,
    }
}

type Parts<'a> = (&'a dyn Fn(usize) -> Item, &'a dyn Fn(usize, &[Neighbour]) -> Vec<Hit>);
type Section<'a> = &'a dyn Fn(&str, String, usize, Vec<RankedList>) -> RankedSection;

fn wrong_labels(
    issues: &Issues,
    found: &FoundIssues,
    shown: usize,
    (item, hits): Parts<'_>,
    section: Section<'_>,
) -> RankedSection {
    let lists = issues.wrong_labels.iter().zip(&found.wrong_labels).take(shown).map(|(wrong, named)| {
        let mut near: Vec<Neighbour> = wrong.against.iter().chain(&wrong.own).copied().collect();
        near.sort_by(|a, b| a.distance.total_cmp(&b.distance));
        RankedList {
            query: item(wrong.row),
            scores: vec![Number::share("wrong with probability", wrong.probability)],
            note: Some(format!("Suggested: {}", named.suggested)),
            results: hits(wrong.row, &near),
        }
    });
    let note = format!(
        "Images that are closer to another class than to their own, with the nearest images of both. An estimated \
         {:.1} % of the labels are random.",
        100.0 * found.noise_rate
    );
    section("Likely wrong labels", note, issues.wrong_labels.len(), lists.collect())
}

fn duplicates(
    issues: &Issues,
    found: &FoundIssues,
    shown: usize,
    (item, hits): Parts<'_>,
    section: Section<'_>,
) -> RankedSection {
    // Groups across classes or files first: the others do less harm.
    let mut order: Vec<usize> = (0..issues.duplicates.len()).collect();
    order.sort_by_key(|&at| !(found.duplicates[at].across_classes || found.duplicates[at].across_files));
    let lists = order.into_iter().take(shown).map(|at| {
        let group = &issues.duplicates[at];
        let others = group.rows.iter().zip(&group.to_first).skip(1);
        let mut near: Vec<Neighbour> = others.map(|(&row, &distance)| Neighbour { row, distance }).collect();
        near.sort_by(|a, b| a.distance.total_cmp(&b.distance));
        let text = format!(
            "Group {} of {}{}",
            at + 1,
            count(group.rows.len(), "image"),
            across(&found.duplicates[at])
        );
        near.truncate(GROUP);
        RankedList {
            query: item(group.rows[0]),
            scores: Vec::new(),
            note: Some(text),
            results: hits(group.rows[0], &near),
        }
    });
    let note = format!(
        "Images at a distance of at most {:.4}, joined into groups. Groups across classes or files come first.",
        found.duplicate_distance
    );
    section("Near-duplicates", note, issues.duplicates.len(), lists.collect())
}

fn same_class(
    issues: &Issues,
    found: &FoundIssues,
    shown: usize,
    (item, hits): Parts<'_>,
    section: Section<'_>,
) -> RankedSection {
    let pairs = issues.same_class.iter().zip(&found.same_class).take(shown);
    let lists = pairs.flat_map(|(pair, named)| {
        let list = |(row, near): &(usize, Vec<Neighbour>)| RankedList {
            query: item(*row),
            scores: vec![Number::number("mixing", pair.mixing)],
            note: Some(format!(
                "{} ({}) and {} ({}): {} of {} neighbours are of the other class.",
                named.labels[0],
                count(named.images[0], "image"),
                named.labels[1],
                count(named.images[1], "image"),
                named.of_other_class,
                named.neighbours
            )),
            results: hits(*row, near),
        };
        pair.examples.iter().map(list).collect::<Vec<_>>()
    });
    let note = "Pairs of classes whose images are mixed: 1 means that the images cannot be told apart, 0 that the classes \
                are separate. Each with an image of both classes and its nearest images in the two."
        .to_owned();
    section("Classes that should perhaps be one", note, 2 * issues.same_class.len(), lists.collect())
}

fn facts(found: &FoundIssues) -> Vec<(String, String)> {
    let mut facts = vec![
        ("images".to_owned(), grouped(found.images)),
        ("classes".to_owned(), grouped(found.classes)),
        ("likely wrong labels".to_owned(), grouped(found.wrong_labels.len())),
        ("groups of near-duplicates".to_owned(), grouped(found.duplicates.len())),
        ("outliers".to_owned(), grouped(found.outliers.len())),
        ("pairs of mixed classes".to_owned(), grouped(found.same_class.len())),
    ];
    if found.not_judged > 0 {
        facts.push(("labels that cannot be judged".to_owned(), grouped(found.not_judged)));
    }
    facts
}

impl Images {
    /// Opens the given images, or else the places that the rows name.
    fn open(rows: &Rows, given: &[PathBuf]) -> Self {
        let count = rows.set.embeddings.rows();
        let mut images = Images { sets: Vec::new(), of_row: vec![None; count], notices: Vec::new() };
        if !given.is_empty() {
            images.add(given, |_| true);
            return images;
        }
        let Some(sources) = &rows.set.sources else {
            match &rows.set.source {
                Some(place) => images.add(&[place], |_| true),
                None => images.notices.push("The embeddings do not name the place of the images.".into()),
            }
            return images;
        };
        let mut places: HashMap<&str, Vec<usize>> = HashMap::new();
        for row in 0..count {
            if let Some(source) = sources.get(row) {
                let place = source.images.as_deref().unwrap_or(&source.name);
                places.entry(place).or_default().push(row);
            }
        }
        let mut places: Vec<_> = places.into_iter().collect();
        places.sort();
        for (place, of_place) in places {
            images.add(&[place], |row| of_place.binary_search(&row).is_ok());
        }
        images
    }

    /// Opens images that belong to these rows.
    fn add(&mut self, paths: &[impl AsRef<std::path::Path>], is_of: impl Fn(usize) -> bool) {
        match ImageSet::open_with(paths, &gallerist_data::OpenOptions::default()) {
            Ok(set) => {
                self.sets.push(set);
                let number = self.sets.len() - 1;
                (0..self.of_row.len())
                    .filter(|&row| is_of(row))
                    .for_each(|row| self.of_row[row] = Some(number));
            }
            Err(error) => {
                self.notices.push(format!("The images cannot be shown: {error}. Give --images PATH."))
            }
        }
    }
}
