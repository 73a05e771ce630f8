//! A gallery of any kind as images search it: a file of embeddings, an index, a collection of a database.

use std::collections::BTreeMap;
use std::path::Path;

use gallerist_retrieval::columns::Columns;
use gallerist_retrieval::condition::Condition;
use gallerist_retrieval::eval::{Decision, MatchRule};
use gallerist_retrieval::file::{MappedCompact, Sources, TableColumns};
use gallerist_retrieval::index::{Index, Item, ItemFilter, Origin};
use gallerist_retrieval::search::{CompactGallery, GroupScore, Metric, RankedLists, SearchOptions};
use gallerist_retrieval::{EmbeddingSet, GalleryFile, Matrix};
use serde::{Serialize, Serializer};

use super::database::{self, is_remote};
use crate::text::{count, grouped};
use crate::unread::warn_of_unread;
use crate::{Error, Observer, Result};

/// The ranked list of one query.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundList {
    /// The path of the query image, relative to its source.
    pub query: String,
    /// The part of it that was searched with.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub region: Option<String>,
    /// How many results are matches by the threshold of the gallery; `None` for a gallery without one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub matches: Option<usize>,
    /// The nearest items, the nearest first.
    pub results: Vec<FoundItem>,
}

/// An item of a ranked list.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FoundItem {
    /// The rank, from 1.
    pub rank: usize,
    /// The row in a file of embeddings.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// The id in an index. In JSON it is a text, because JavaScript and other programs read numbers exactly only up to 2^53.
    #[serde(skip_serializing_if = "Option::is_none", serialize_with = "id_as_text")]
    pub id: Option<u64>,
    /// The Euclidean distance to the query; of rows of length 1 where the gallery is compared by the cosine.
    pub distance: f32,
    /// Whether it is a match by the threshold of the gallery; `None` for a gallery without one.
    #[serde(rename = "match", skip_serializing_if = "Option::is_none")]
    pub decision: Option<Decision>,
    /// The label, if there are labels.
    pub label: Option<String>,
    /// The path of the image, if there are paths.
    pub path: Option<String>,
    /// The items of its group that met the condition, where results are grouped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub group_size: Option<usize>,
    /// The values of further columns by their names: numbers, texts, and lists of tags.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub columns: BTreeMap<String, serde_json::Value>,
}

fn id_as_text<S: Serializer>(id: &Option<u64>, serializer: S) -> std::result::Result<S::Ok, S::Error> {
    id.map(|id| id.to_string()).serialize(serializer)
}

/// Groups of the rows of a gallery.
pub(super) struct Groups {
    /// The group of each row.
    pub(super) of_rows: Vec<u32>,
    pub(super) by: GroupScore,
}

/// A gallery as its file stores it.
pub(super) enum Gallery {
    Embeddings(EmbeddingSet),
    /// In bf16 or int8, not decoded.
    Compact(MappedCompact, Origin),
    Index(Box<dyn Index>, Origin),
}

/// The names of candidates in the gallery.
pub(super) enum Names {
    /// The row number of each candidate in the file.
    Rows(Vec<usize>),
    /// The id of each candidate in the index.
    Ids(Vec<u64>),
}

impl Gallery {
    pub(super) fn open(path: &Path, warn: fn(&str)) -> Result<Self> {
        let index = match is_remote(path) {
            true => database::open(path, None, warn)?.index,
            false => match GalleryFile::open(path, false)? {
                GalleryFile::Embeddings(set) => {
                    warn_of_unread(path, &TableColumns::default(), warn)?;
                    return Ok(Self::Embeddings(*set));
                }
                GalleryFile::Compact(compact) => {
                    compact.verify()?;
                    warn_of_unread(path, &TableColumns::default(), warn)?;
                    let origin = Origin::from(&compact.select(&[])?);
                    return Ok(Self::Compact(compact, origin));
                }
                GalleryFile::Index(index) => index,
            },
        };
        let origin = index.origin()?;
        if index.info()?.metric == Metric::Euclidean && origin.metric.is_none() {
            return Err(Error::new(
                format!(
                    "`{}` compares rows by Euclidean distance, and does not say whether they have length 1",
                    path.display()
                ),
                Some("build the index again from the embeddings, or search it with `gallerist index search`"),
            ));
        }
        Ok(Self::Index(index, origin))
    }

    /// The metric of the gallery.
    pub(super) fn metric(&self) -> Result<Metric> {
        let metric = match self {
            Self::Embeddings(set) => set.metric.unwrap_or_default(),
            Self::Compact(_, origin) => origin.metric.unwrap_or_default(),
            Self::Index(index, _) => index.info()?.metric,
        };
        if metric == Metric::InnerProduct {
            return Err(Error::new(
                "the gallery compares rows by inner product; images are searched by the cosine or the Euclidean distance",
                Some("build the index with `--metric cosine`, or search it with `gallerist index search`"),
            ));
        }
        Ok(metric)
    }

    /// The number of items.
    pub(super) fn len(&self) -> Result<usize> {
        Ok(match self {
            Self::Embeddings(set) => set.embeddings.rows(),
            Self::Compact(compact, _) => compact.view().rows(),
            Self::Index(index, _) => index.info()?.count,
        })
    }

    pub(super) fn origin(&self) -> Origin {
        match self {
            Self::Embeddings(set) => Origin::from(set),
            Self::Compact(_, origin) | Self::Index(_, origin) => origin.clone(),
        }
    }

    /// Refuses a condition that does not fit the columns.
    pub(super) fn check(&self, condition: &Condition) -> Result<()> {
        match self {
            Self::Embeddings(set) => drop(condition.mask(set)?),
            Self::Compact(compact, _) => drop(condition.mask(&compact.without_embeddings()?)?),
            Self::Index(index, _) => index.check_filter(&filter_of(Some(condition)))?,
        }
        Ok(())
    }

    /// The items that meet a condition, or all of them. Those of an index are read from it.
    pub(super) fn matching(self, condition: Option<&Condition>) -> Result<(EmbeddingSet, Names)> {
        let rows = |set: &EmbeddingSet| match condition {
            Some(condition) => condition.rows(set),
            None => Ok((0..set.embeddings.rows()).collect()),
        };
        match self {
            Self::Embeddings(set) => {
                let rows = rows(&set)?;
                let set = if rows.len() == set.embeddings.rows() { set } else { set.select(&rows) };
                Ok((set, Names::Rows(rows)))
            }
            Self::Compact(compact, _) => {
                let rows = rows(&compact.without_embeddings()?)?;
                Ok((compact.select(&rows)?, Names::Rows(rows)))
            }
            Self::Index(index, origin) => {
                let ids = index.ids(&filter_of(condition))?;
                let mut items = Vec::with_capacity(ids.len());
                for ids in ids.chunks(ITEMS_AT_A_TIME) {
                    items.extend(index.get(ids)?.into_iter().flatten());
                }
                let set = set_of(index.as_ref(), &items, index.info()?.dimensions, origin)?;
                Ok((set, Names::Ids(items.iter().map(|item| item.id).collect())))
            }
        }
    }

    /// The items among which the nearest are: all of a file in f32 that meet the condition; else what is found for any of
    /// the queries.
    pub(super) fn candidates(
        self,
        queries: &Matrix,
        k: usize,
        condition: Option<&Condition>,
    ) -> Result<(EmbeddingSet, Names)> {
        let metric = self.metric()?;
        let (index, origin) = match self {
            Self::Embeddings(_) | Self::Compact(..) if condition.is_some() => {
                return self.matching(condition);
            }
            Self::Embeddings(set) => {
                let rows = (0..set.embeddings.rows()).collect();
                return Ok((set, Names::Rows(rows)));
            }
            Self::Compact(compact, _) => {
                let gallery = CompactGallery::new(compact.view(), metric)?;
                let lists = gallery.search(queries, &SearchOptions { metric, ..SearchOptions::new(k) });
                // The search does not notice that the mapped file was replaced.
                compact.check()?;
                let lists = lists?;
                let rows = distinct(lists.iter().flat_map(|(rows, _)| rows).map(|&row| row as usize));
                return Ok((compact.select(&rows)?, Names::Rows(rows)));
            }
            Self::Index(index, origin) => (index, origin),
        };
        let lists = index.search(queries.view(), k, &filter_of(condition))?;
        let ids = distinct(lists.iter().flat_map(|(ids, _)| ids).copied());
        let items: Vec<Item> = index.get(&ids)?.into_iter().flatten().collect();
        Ok((set_of(index.as_ref(), &items, queries.cols(), origin)?, Names::Ids(ids)))
    }
}

/// Items that are read from an index at a time.
const ITEMS_AT_A_TIME: usize = 4096;

fn filter_of(condition: Option<&Condition>) -> ItemFilter {
    ItemFilter { condition: condition.cloned(), ..ItemFilter::default() }
}

/// The embeddings of items with their labels, paths and further columns.
fn set_of(index: &dyn Index, items: &[Item], dimensions: usize, origin: Origin) -> Result<EmbeddingSet> {
    let rows = items.iter().flat_map(|item| &item.embedding).copied().collect();
    let list = |of: fn(&Item) -> &Option<String>| {
        let known = items.iter().any(|item| of(item).is_some());
        known.then(|| items.iter().map(|item| of(item).clone().unwrap_or_default()).collect())
    };
    let known = index.sources()?;
    let place = |item: &Item| {
        let name = item.source.as_ref()?;
        known.iter().position(|source| source.name == *name)
    };
    let sources = match known.is_empty() {
        true => None,
        false => Some(Sources::new(known.clone(), items.iter().map(place))?),
    };
    let Origin { model, source, run, metric, threshold } = origin;
    Ok(EmbeddingSet {
        embeddings: Matrix::new(items.len(), dimensions, rows)?,
        labels: list(|item| &item.label),
        paths: list(|item| &item.path),
        cameras: list(|item| &item.camera),
        columns: Columns::of_rows(&index.columns()?, items.iter().map(|item| &item.columns)),
        model,
        source,
        sources,
        run,
        metric,
        protocol: None,
        threshold,
    })
}

fn distinct<T: Ord>(found: impl Iterator<Item = T>) -> Vec<T> {
    let mut found: Vec<T> = found.collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// The warning of a threshold of another metric than the one of the gallery.
pub(crate) fn not_applied(rule: &MatchRule, metric: Metric) -> String {
    format!(
        "results are not marked: the threshold of the gallery is one of {}, and its rows are compared by {metric} \
         (calibrate one with `gallerist threshold --metric {}`)",
        rule.metric,
        metric.name()
    )
}

/// The warning of a rate per search that was measured on a much smaller gallery than the one of `size` items.
pub(crate) fn of_smaller_gallery(rule: &MatchRule, size: usize) -> Option<String> {
    let measured = rule.gallery.filter(|&measured| measured > 0 && size as f64 > 1.1 * measured as f64)?;
    Some(format!(
        "the threshold is one per search of a gallery of {}, and this one has {}: searches for what is not in it return a match more \
         often than the rate of the threshold says",
        count(measured, "image"),
        grouped(size)
    ))
}

/// The threshold by which results are marked: one of the gallery's metric, for lists of pairs. Warns of one that is not applied, and of
/// one for smaller galleries than this one of `size` items.
pub(super) fn rule_of(
    gallery: &EmbeddingSet,
    (metric, size): (Metric, usize),
    groups: Option<&Groups>,
    observer: &mut dyn Observer,
) -> Option<MatchRule> {
    let rule = gallery.threshold.as_ref()?;
    if rule.metric != metric {
        observer.warning(&not_applied(rule, metric));
        return None;
    }
    if groups.is_some_and(|groups| groups.by != GroupScore::Best) {
        observer.warning(
            "results are not marked: the threshold of the gallery is one of pairs, and groups are ranked by their means",
        );
        return None;
    }
    if let Some(warning) = of_smaller_gallery(rule, size) {
        observer.warning(&warning);
    }
    Some(rule.clone())
}

/// The ranked lists with the names, labels and paths of their items, marked by `rule`.
pub(super) fn named(
    queries: &EmbeddingSet,
    (gallery, names): (&EmbeddingSet, &Names),
    groups: Option<&Groups>,
    lists: &RankedLists,
    rule: Option<&MatchRule>,
) -> Vec<FoundList> {
    let text = |list: &Option<Vec<String>>, i: usize| list.as_ref().map(|list| list[i].clone());
    let mut sizes = vec![0; groups.map_or(0, |groups| groups.of_rows.len())];
    groups.iter().flat_map(|groups| &groups.of_rows).for_each(|&group| sizes[group as usize] += 1);
    let item = |rank: usize, index: usize, distance: f32| FoundItem {
        rank,
        index: if let Names::Rows(rows) = names { Some(rows[index]) } else { None },
        id: if let Names::Ids(ids) = names { Some(ids[index]) } else { None },
        distance,
        decision: rule.map(|rule| rule.decide_distance(distance)),
        label: text(&gallery.labels, index),
        path: text(&gallery.paths, index),
        group_size: groups.map(|groups| sizes[groups.of_rows[index] as usize]),
        columns: gallery.columns.row_as_json(index).into_iter().collect(),
    };
    (0..lists.len())
        .map(|query| {
            let results: Vec<FoundItem> = (lists.indices(query).iter().zip(lists.scores(query)).enumerate())
                .map(|(i, (&index, &distance))| item(i + 1, index as usize, distance))
                .collect();
            let is_match = |item: &&FoundItem| item.decision == Some(Decision::Match);
            FoundList {
                query: text(&queries.paths, query).unwrap_or_default(),
                region: None,
                matches: rule.map(|_| results.iter().filter(is_match).count()),
                results,
            }
        })
        .collect()
}
