//! The search in each storage format.

use std::sync::Arc;

use gallerist_retrieval::Matrix;
use gallerist_retrieval::file::MappedCompact;
use gallerist_retrieval::index::{Index, Item, ItemFilter};
use gallerist_retrieval::search::{self, CompactGallery, Measures, Metric, RankedLists, SearchOptions};

use super::catalog::Catalog;
use super::query::{Found, Query, as_compared};
use crate::{Error, Result};

/// The embeddings of a gallery and their search.
pub(crate) enum Searcher {
    /// All rows in f32 as they are compared, and packed for the kernels.
    Rows { rows: Arc<Matrix>, packed: search::Gallery },
    /// Rows in bf16 or int8, mapped from their file.
    Compact { file: MappedCompact, measures: Measures, metric: Metric },
    /// An index, in this process or in a database.
    Index(Box<dyn Index>, Metric),
}

impl Searcher {
    /// A search over rows as they are compared.
    pub(crate) fn rows(rows: Matrix) -> Result<Self> {
        let packed = search::Gallery::new(&rows, Metric::Euclidean)?;
        Ok(Self::Rows { rows: Arc::new(rows), packed })
    }

    pub(crate) fn compact(file: MappedCompact, metric: Metric) -> Result<Self> {
        let measures = CompactGallery::new(file.view(), metric)?.measures();
        Ok(Self::Compact { file, measures, metric })
    }

    /// The index, to be changed.
    pub(crate) fn index(&mut self) -> Result<&mut dyn Index> {
        match self {
            Self::Index(index, _) => Ok(index.as_mut()),
            _ => Err(Error::Option {
                problem: "a file of embeddings cannot be changed".to_owned(),
                hint: None,
            }),
        }
    }

    /// The row of an item as it is compared. `read` takes the item, if it is read from an index.
    pub(crate) fn embedding(
        &self,
        catalog: &Catalog,
        id: u64,
        read: &mut dyn FnMut(Item),
    ) -> Result<Option<Vec<f32>>> {
        let row = |found: &Matrix, metric| Some(as_compared(metric, found).into_vec());
        match self {
            Self::Rows { rows, .. } => Ok(catalog.row(id).map(|row| rows.row(row).to_vec())),
            Self::Compact { file, metric, .. } => match catalog.row(id) {
                Some(at) => Ok(row(&decoded(file, &[at])?, *metric)),
                None => Ok(None),
            },
            Self::Index(index, metric) => match index.get(&[id])?.pop().flatten() {
                Some(item) => {
                    let found = Matrix::new(1, item.embedding.len(), item.embedding.clone())?;
                    read(item);
                    Ok(row(&found, *metric))
                }
                None => Ok(None),
            },
        }
    }

    /// All rows of a file of embeddings as they are compared; `None` for an index.
    pub(crate) fn all(&self) -> Result<Option<Arc<Matrix>>> {
        match self {
            Self::Rows { rows, .. } => Ok(Some(Arc::clone(rows))),
            Self::Compact { file, metric, .. } => {
                let rows = file.view().decode();
                file.check()?;
                Ok(Some(Arc::new(as_compared(*metric, &rows))))
            }
            Self::Index(..) => Ok(None),
        }
    }

    /// These items of an index, where they are there; none of a file of embeddings.
    pub(crate) fn get(&self, ids: &[u64]) -> Result<Vec<Option<Item>>> {
        match self {
            Self::Index(index, _) => Ok(index.get(ids)?),
            _ => Ok(vec![None; ids.len()]),
        }
    }

    /// The nearest items of each query. `read` takes the items that are read from an index.
    pub(crate) fn search(
        &self,
        catalog: &Catalog,
        queries: &[Query],
        read: &mut dyn FnMut(Item),
    ) -> Result<Vec<Found>> {
        if let Self::Index(index, metric) = self {
            let mut lists = Vec::with_capacity(queries.len());
            for alike in queries.chunk_by(|a, b| a.filter == b.filter) {
                lists.extend(search_index(index.as_ref(), *metric, alike, read)?);
            }
            return Ok(lists);
        }
        let matrix = matrix(queries)?;
        let admissions: Vec<_> = queries.iter().map(|query| catalog.admission(&query.filter)).collect();
        let admits = |query: usize, row: usize| {
            admissions[query].admits(row) && queries[query].mask.as_ref().is_none_or(|mask| mask[row])
        };
        let is_filtered = |query: &Query| query.filter != ItemFilter::default() || query.mask.is_some();
        let filtered = queries.iter().any(is_filtered);
        let options = |metric| SearchOptions {
            metric,
            filter: if filtered { Some(&admits) } else { None },
            ..SearchOptions::new(most(queries))
        };
        let named = |list: &[u32]| list.iter().map(|&row| catalog.ids()[row as usize]).collect::<Vec<_>>();
        match self {
            Self::Rows { packed, .. } => {
                let lists = packed.search(&matrix, &options(Metric::Euclidean))?;
                let found = lists.iter().zip(queries).map(|((rows, distances), query)| {
                    let found = named(rows).into_iter().zip(distances.iter().copied());
                    found.take(query.k).collect()
                });
                Ok(found.collect())
            }
            Self::Compact { file, measures, metric } => {
                let gallery = CompactGallery::with_measures(file.view(), measures.clone(), *metric)?;
                let lists = gallery.search(&matrix, &options(*metric));
                // The search itself does not notice a file that was changed in place.
                file.check()?;
                let lists = lists?;
                let mut all = Vec::with_capacity(queries.len());
                for ((rows, _), query) in lists.iter().zip(queries) {
                    let mut rows: Vec<usize> = rows.iter().take(query.k).map(|&row| row as usize).collect();
                    // A filter may exclude every item.
                    if rows.is_empty() {
                        all.push(Vec::new());
                        continue;
                    }
                    rows.sort_unstable();
                    let distances = by_distance(query, *metric, &decoded(file, &rows)?)?;
                    all.push(pairs(&distances, |at| catalog.ids()[rows[at]]));
                }
                Ok(all)
            }
            Self::Index(..) => unreachable!("returned above"),
        }
    }
}

/// Queries of the same filter.
fn search_index(
    index: &dyn Index,
    metric: Metric,
    queries: &[Query],
    read: &mut dyn FnMut(Item),
) -> Result<Vec<Found>> {
    let lists = match index.search(matrix(queries)?.view(), most(queries), &queries[0].filter) {
        // All items were removed.
        Err(gallerist_retrieval::Error::Empty { .. }) => return Ok(vec![Vec::new(); queries.len()]),
        lists => lists?,
    };
    let mut all = Vec::with_capacity(queries.len());
    for ((ids, _), query) in lists.iter().zip(queries) {
        let mut ids = ids[..ids.len().min(query.k)].to_vec();
        ids.sort_unstable();
        // Items that were removed from a database since the search are left out.
        let items: Vec<_> = index.get(&ids)?.into_iter().flatten().collect();
        let values = items.iter().flat_map(|item| &item.embedding).copied().collect();
        let rows = Matrix::new(items.len(), query.vector.len(), values)?;
        all.push(match items.len() {
            0 => Vec::new(),
            _ => pairs(&by_distance(query, metric, &rows)?, |at| items[at].id),
        });
        items.into_iter().for_each(&mut *read);
    }
    Ok(all)
}

fn most(queries: &[Query]) -> usize {
    queries.iter().map(|query| query.k).max().unwrap_or(1)
}

fn matrix(queries: &[Query]) -> Result<Matrix> {
    let cols = queries.first().map_or(0, |query| query.vector.len());
    Ok(Matrix::new(queries.len(), cols, queries.iter().flat_map(|query| &query.vector).copied().collect())?)
}

fn decoded(file: &MappedCompact, rows: &[usize]) -> Result<Matrix> {
    let view = file.view();
    let mut values = vec![0.0; rows.len() * view.cols()];
    for (&row, to) in rows.iter().zip(values.chunks_mut(view.cols().max(1))) {
        view.decode_row(row, to);
    }
    file.check()?;
    Ok(Matrix::new(rows.len(), view.cols(), values)?)
}

/// Ranks the rows that a search found by directly computed distances, which are more accurate near 0 than a cosine or
/// the distances of an index. For the cosine the rows are divided by their lengths.
fn by_distance(query: &Query, metric: Metric, rows: &Matrix) -> Result<RankedLists> {
    let query = Matrix::new(1, query.vector.len(), query.vector.clone())?;
    let options = SearchOptions { metric: Metric::Euclidean, ..SearchOptions::new(rows.rows().max(1)) };
    Ok(search::search(&query, &as_compared(metric, rows), &options)?)
}

fn pairs(lists: &RankedLists, id: impl Fn(usize) -> u64) -> Found {
    let found = lists.indices(0).iter().zip(lists.scores(0));
    found.map(|(&at, &distance)| (id(at as usize), distance)).collect()
}
