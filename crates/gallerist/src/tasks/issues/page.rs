//! The page of the issues, with pictures.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use gallerist_data::ImageSet;
use gallerist_report::{Hit, IssuesPage, Item, Metric as Number, RankedList, RankedSection};
use gallerist_retrieval::file::{Source, Sources};
use gallerist_retrieval::issues::{Issues, Neighbour};
use gallerist_retrieval::search::Metric;
use gallerist_serve::SourceImages;

use super::found::{FoundIssues, IssueGroup, Rows};
use super::options::IssuesOptions;
use crate::image_places::sources_of;
use crate::pictures::Pictures;
use crate::plots::{measure, names_of};
use crate::text::{count, grouped};

/// Most images of a group of near-duplicates that are shown.
const GROUP: usize = 20;

/// The images of the rows.
struct Images {
    /// The given images, or one set for each source.
    sets: Vec<SourceImages>,
    /// Whether the images were given.
    are_given: bool,
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
    let parts = Parts {
        issues,
        found,
        labels,
        of_row: &images.of_row,
        of_set: pictures_of(&images.sets, images.are_given, rows),
        without: Pictures::of_items(labels, paths, None),
        metric,
        shown: options.shown,
    };
    let mut sections = vec![parts.duplicates(), parts.outliers()];
    if labels.is_some() {
        sections.insert(0, parts.wrong_labels());
        sections.push(parts.same_class());
    }
    // First, because a test on leaked images is no test.
    if rows.files.len() > 1 || !rows.splits.is_empty() {
        sections.insert(0, parts.duplicates_across());
    }
    let names = names_of(&rows.files);
    IssuesPage {
        title: format!("Issues of {}", names.join(" and ")),
        summary: Some(
            "To correct the set, fill the columns action and new_label of issues.csv and give the file to --relabel."
                .into(),
        ),
        facts: facts(found),
        sections,
        notices: images.notices,
    }
}

/// What the sections are made of.
struct Parts<'a> {
    issues: &'a Issues,
    found: &'a FoundIssues,
    labels: Option<&'a [String]>,
    /// For each row the number of its pictures in `of_set`.
    of_row: &'a [Option<usize>],
    of_set: Vec<Pictures<'a>>,
    /// For rows whose images cannot be found.
    without: Pictures<'a>,
    metric: Metric,
    /// Most lists or pairs of classes in a section.
    shown: usize,
}

impl Parts<'_> {
    fn item(&self, row: usize) -> Item {
        self.of_row[row].map_or(&self.without, |set| &self.of_set[set]).item(row)
    }

    /// An image with others, by rising distance.
    fn list(&self, row: usize, near: &[Neighbour], scores: Vec<Number>, note: Option<String>) -> RankedList {
        let hit = |near: &Neighbour| Hit {
            item: self.item(near.row),
            distance: near.distance,
            correct: self.labels.map(|labels| labels[row] == labels[near.row]),
        };
        RankedList { query: self.item(row), scores, note, results: near.iter().map(hit).collect() }
    }

    fn section(&self, title: &str, note: String, all: usize, lists: Vec<RankedList>) -> RankedSection {
        let note = match all > lists.len() {
            true => format!("{note} The first {} of {} are shown.", lists.len(), grouped(all)),
            false => note,
        };
        RankedSection { title: title.into(), note: Some(note), measure: measure(self.metric).into(), lists }
    }

    fn wrong_labels(&self) -> RankedSection {
        let all = &self.issues.wrong_labels;
        let lists = all.iter().zip(&self.found.wrong_labels).take(self.shown).map(|(wrong, named)| {
            let mut near: Vec<Neighbour> = wrong.against.iter().chain(&wrong.own).copied().collect();
            near.sort_by(|a, b| a.distance.total_cmp(&b.distance));
            let scores = vec![Number::share("wrong with probability", wrong.probability)];
            self.list(wrong.row, &near, scores, Some(format!("Suggested: {}", named.suggested)))
        });
        let note = format!(
            "Images that are closer to another class than to their own, with the nearest images of both. An \
             estimated {:.1} % of the labels are random.",
            100.0 * self.found.noise_rate
        );
        self.section("Likely wrong labels", note, all.len(), lists.collect())
    }

    /// The groups of near-duplicates in this order, by their places in the list of all.
    fn groups(&self, order: &[usize]) -> Vec<RankedList> {
        let (all, found) = (&self.issues.duplicates, &self.found.duplicates);
        let lists = order.iter().take(self.shown).map(|&at| {
            let group = &all[at];
            let others = group.rows.iter().zip(&group.to_first).skip(1);
            let mut near: Vec<Neighbour> =
                others.map(|(&row, &distance)| Neighbour { row, distance }).collect();
            near.sort_by(|a, b| a.distance.total_cmp(&b.distance));
            near.truncate(GROUP);
            let images = count(group.rows.len(), "image");
            let text = format!("Group {} of {images}{}{}", at + 1, found[at].across(), places(&found[at]));
            self.list(group.rows[0], &near, Vec::new(), Some(text))
        });
        lists.collect()
    }

    /// Groups in several splits or files, leaks first.
    fn duplicates_across(&self) -> RankedSection {
        let found = &self.found.duplicates;
        let mut order: Vec<usize> = (0..found.len()).filter(|&at| found[at].across_parts()).collect();
        order.sort_by_key(|&at| !found[at].leak);
        let leaks = found.iter().filter(|group| group.leak).count();
        let mut note = "Groups of near-duplicates with images in several splits or files. A test with images that are also \
                        in the training set, or a search for an image that is also in the gallery, is too easy."
            .to_owned();
        if leaks > 0 {
            note += &format!(
                " {} {} training images and images of other splits; they come first.",
                count(leaks, "group"),
                if leaks == 1 { "has" } else { "have" }
            );
        }
        self.section("Near-duplicates across splits and files", note, order.len(), self.groups(&order))
    }

    /// Groups in one split and file, those across classes first: the others do less harm.
    fn duplicates(&self) -> RankedSection {
        let found = &self.found.duplicates;
        let mut order: Vec<usize> = (0..found.len()).filter(|&at| !found[at].across_parts()).collect();
        order.sort_by_key(|&at| !found[at].across_classes);
        let note = format!(
            "Images at a distance of at most {:.4}, joined into groups. Groups across classes come first.",
            self.found.duplicate_distance
        );
        self.section("Near-duplicates", note, order.len(), self.groups(&order))
    }

    fn outliers(&self) -> RankedSection {
        let all = &self.issues.outliers;
        let lists = all.iter().take(self.shown).map(|outlier| {
            let scores = vec![Number::number("z-score", outlier.score)];
            self.list(outlier.row, &outlier.nearest, scores, None)
        });
        let note = "Images far from their nearest neighbours, the farthest first.".to_owned();
        self.section("Outliers", note, all.len(), lists.collect())
    }

    fn same_class(&self) -> RankedSection {
        let all = &self.issues.same_class;
        let lists = all.iter().zip(&self.found.same_class).take(self.shown).flat_map(|(pair, named)| {
            let [first, second] = &named.labels;
            let [of_first, of_second] = named.images.map(|images| count(images, "image"));
            let text = format!(
                "{first} ({of_first}) and {second} ({of_second}): {} of {} neighbours are of the other class.",
                named.of_other_class, named.neighbours
            );
            pair.examples.iter().map(move |(row, near)| {
                let scores = vec![Number::number("mixing", pair.mixing)];
                self.list(*row, near, scores, Some(text.clone()))
            })
        });
        let note = "Pairs of classes whose images are mixed: 1 means that the images cannot be told apart, 0 that the \
                    classes are separate. Each with an image of both classes and its nearest images in the two."
            .to_owned();
        self.section("Classes that should perhaps be one", note, 2 * all.len(), lists.collect())
    }
}

/// The splits and files of a group in several of them: `: 2 in train, 1 in test`.
fn places(group: &IssueGroup) -> String {
    if !group.across_parts() {
        return String::new();
    }
    let mut places: Vec<(String, usize)> = Vec::new();
    for image in &group.images {
        let split = image.split.as_deref().unwrap_or("no split");
        let place = match (&image.file, group.across_splits) {
            (Some(file), true) => format!("{split} of {file}"),
            (Some(file), false) => file.clone(),
            (None, _) => split.to_owned(),
        };
        match places.iter_mut().find(|(known, _)| *known == place) {
            Some((_, images)) => *images += 1,
            None => places.push((place, 1)),
        }
    }
    let places: Vec<String> = places.iter().map(|(place, images)| format!("{images} in {place}")).collect();
    format!(": {}", places.join(", "))
}

fn facts(found: &FoundIssues) -> Vec<(String, String)> {
    let across = found.duplicates.iter().filter(|group| group.across_parts()).count();
    let mut facts = vec![
        ("images".to_owned(), grouped(found.images)),
        ("classes".to_owned(), grouped(found.classes)),
        ("likely wrong labels".to_owned(), grouped(found.wrong_labels.len())),
        ("groups of near-duplicates".to_owned(), grouped(found.duplicates.len())),
        ("groups across splits or files".to_owned(), grouped(across)),
        ("outliers".to_owned(), grouped(found.outliers.len())),
        ("pairs of mixed classes".to_owned(), grouped(found.same_class.len())),
    ];
    if let Some(part) = &found.narrowed {
        facts.insert(
            1,
            ("condition".to_owned(), format!("{} (of {} images)", part.condition, grouped(part.of))),
        );
    }
    if found.not_judged > 0 {
        facts.push(("labels that cannot be judged".to_owned(), grouped(found.not_judged)));
    }
    facts
}

/// The pictures of the rows in each set.
fn pictures_of<'a>(sets: &'a [SourceImages], are_given: bool, rows: &'a Rows) -> Vec<Pictures<'a>> {
    let (labels, paths) = (rows.set.labels.as_deref(), rows.set.paths.as_deref());
    // A set that was not given has the images of one source, where the path is enough.
    let sources = rows.set.sources.as_ref().filter(|_| are_given);
    let repeated = match (paths, sources) {
        (Some(paths), Some(sources)) => paths_of_several(paths, sources),
        _ => HashSet::new(),
    };
    let pictures = |images| {
        let repeated = repeated.clone();
        Pictures::of_rows(labels, paths, sources, Some(images), move |path| !repeated.contains(path))
    };
    sets.iter().map(pictures).collect()
}

/// The paths that images of several sources have.
fn paths_of_several<'a>(paths: &'a [String], sources: &Sources) -> HashSet<&'a str> {
    let (mut first, mut repeated) = (HashMap::new(), HashSet::new());
    for (row, path) in paths.iter().enumerate() {
        let source = sources.place(row);
        if *first.entry(path.as_str()).or_insert(source) != source {
            repeated.insert(path.as_str());
        }
    }
    repeated
}

impl Images {
    /// Opens the given images, or else the places that the rows name.
    fn open(rows: &Rows, given: &[PathBuf]) -> Self {
        let count = rows.set.embeddings.rows();
        let (are_given, of_row) = (!given.is_empty(), vec![None; count]);
        let mut images = Images { sets: Vec::new(), are_given, of_row, notices: Vec::new() };
        if are_given {
            images.add(given, sources_of(&rows.set), |_| true);
            return images;
        }
        let Some(sources) = &rows.set.sources else {
            match &rows.set.source {
                Some(place) => images.add(&[place], &[], |_| true),
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
            images.add(&[place], &[], |row| of_place.binary_search(&row).is_ok());
        }
        images
    }

    /// Opens images of these sources that belong to these rows.
    fn add(&mut self, paths: &[impl AsRef<Path>], sources: &[Source], is_of: impl Fn(usize) -> bool) {
        match ImageSet::open_with(paths, &gallerist_data::OpenOptions::default()) {
            Ok(set) => {
                self.sets.push(SourceImages::new(set).of_sources(sources));
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
