//! A set from the batches of a table.

use std::collections::HashMap;

use arrow_array::cast::AsArray;
use arrow_array::{Array, ArrayRef, RecordBatch};
use arrow_schema::{DataType, Fields, Schema};
use serde::{Deserialize, Serialize};

use super::TableColumns;
use super::cells::{CellKind, KIND, append_f32, array_of, claim, is_vector, kind_of, texts, type_name};
use super::embedding::embedding_column;
use super::fault::{Fault, listed};
use super::further::Further;
use super::guard::Claims;
use crate::Matrix;
use crate::columns::{Columns, RESERVED};
use crate::eval::MatchRule;
use crate::file::shape::check_values;
use crate::file::unread_column::Unread;
use crate::file::{EmbeddingSet, Source, Sources, npy};
use crate::search::Metric;

/// The metadata of the schema that describes the set, as JSON.
pub(super) const DESCRIPTION: &str = "gallerist";
/// The column with the name of each row's source.
pub(super) const SOURCE: &str = "gallerist.source";

/// What is known about a set as a whole.
#[derive(Default, Deserialize, Serialize)]
#[serde(default)]
pub(super) struct Description {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) model: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) source: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) sources: Vec<Source>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) run: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) metric: Option<Metric>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) protocol: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) threshold: Option<MatchRule>,
    /// The rows that this describes. A program that joins tables may keep the description of the first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) rows: Option<usize>,
}

impl Description {
    /// The description in the metadata of a schema, or an empty one.
    pub(super) fn of(schema: &Schema) -> Result<Self, Fault> {
        let Some(text) = schema.metadata().get(DESCRIPTION) else { return Ok(Self::default()) };
        serde_json::from_str(text).map_err(|error| (format!("its metadata `{DESCRIPTION}`: {error}"), None))
    }

    /// Whether it says where the rows are from, or how they are compared.
    pub(super) fn has_origin(&self) -> bool {
        let texts = [&self.model, &self.source, &self.run, &self.protocol];
        texts.into_iter().any(Option::is_some)
            || !self.sources.is_empty()
            || self.metric.is_some()
            || self.threshold.is_some()
    }
}

/// The columns of a table that are read, by their numbers.
pub(super) struct Selection {
    embedding: usize,
    label: Option<usize>,
    path: Option<usize>,
    camera: Option<usize>,
    source: Option<usize>,
    further: Vec<(usize, CellKind)>,
    unread: Vec<Unread>,
}

impl Selection {
    pub(super) fn of(schema: &Schema, wanted: &TableColumns) -> Result<Self, Fault> {
        let fields = schema.fields();
        let find = |name: &str| fields.iter().position(|field| field.name() == name);
        let embedding = embedding_column(fields, wanted.embedding.as_deref())?;
        let list = |wanted: &Option<String>, what: &str| list_column(fields, wanted.as_deref(), what);
        let label = list(&wanted.label, "label")?;
        let path = list(&wanted.path, "path")?;
        let camera = list(&wanted.camera, "camera")?;
        let source = find(SOURCE).filter(|&i| kind_of(fields[i].data_type()) == Some(CellKind::Text));
        let taken = [Some(embedding), label, path, camera, source];
        let mut further = Vec::new();
        let mut unread = Vec::new();
        for i in (0..fields.len()).filter(|&i| !taken.contains(&Some(i))) {
            let (name, kind) = (fields[i].name(), fields[i].data_type());
            // Labels, where another column was named as such, have a name that no further column has.
            let is_free = !RESERVED.contains(&name.as_str());
            match kind_of(kind) {
                // The index of a pandas table, and a column without values.
                _ if name.starts_with("__index_level_") || *kind == DataType::Null => {}
                Some(kind) if is_free => further.push((i, kind)),
                // Another embedding than the one that was asked for.
                _ if is_vector(kind) && wanted.embedding.is_some() => {}
                _ => unread.push(Unread { name: name.clone(), kind: type_name(kind), problem: None }),
            }
        }
        Ok(Self { embedding, label, path, camera, source, further, unread })
    }

    /// The further columns, by their numbers, and what their cells are.
    pub(super) fn further(&self) -> &[(usize, CellKind)] {
        &self.further
    }

    /// The columns that are not read, whatever their cells are.
    pub(super) fn into_unread(self) -> Vec<Unread> {
        self.unread
    }

    /// The numbers of all columns that are read, rising.
    pub(super) fn columns(&self) -> Vec<usize> {
        let lists = [Some(self.embedding), self.label, self.path, self.camera, self.source];
        let mut all: Vec<usize> =
            lists.into_iter().flatten().chain(self.further.iter().map(|&(i, _)| i)).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// The column of labels, paths or cameras: the one that is `wanted`, else the one that is called `what` or the plural of it.
fn list_column(fields: &Fields, wanted: Option<&str>, what: &str) -> Result<Option<usize>, Fault> {
    let find = |name: &str| fields.iter().position(|field| field.name() == name);
    let is_text = |i: usize| kind_of(fields[i].data_type()).is_some();
    let unfit = |i: usize, hint: Option<String>| {
        let (name, kind) = (fields[i].name(), type_name(fields[i].data_type()));
        Err((format!("wanted text or integers, the column `{name}` is of type {kind}"), hint))
    };
    if let Some(name) = wanted {
        return match find(name) {
            Some(column) if is_text(column) => Ok(Some(column)),
            Some(column) => unfit(column, None),
            None => {
                let hint = format!("the columns are {}", listed(fields));
                Err((format!("there is no column `{name}`"), Some(hint)))
            }
        };
    }
    let plural = format!("{what}s");
    let is_usual = |i: usize| match fields[i].name() {
        name if name == what => true,
        // A further column of a set, which may have this name.
        name => *name == plural && !fields[i].metadata().contains_key(KIND),
    };
    let has_values = |i: usize| *fields[i].data_type() != DataType::Null;
    let usual = [what, &plural].into_iter().filter_map(find).filter(|&i| is_usual(i) && has_values(i));
    let usual: Vec<usize> = usual.collect();
    match (usual.iter().find(|&&i| is_text(i)), usual.first()) {
        (None, Some(&first)) => {
            let hint = format!(
                "write it as text, rename it, or name another column: gallerist convert FILE --{what}-column NAME --out FILE.safetensors"
            );
            unfit(first, Some(hint))
        }
        (found, _) => Ok(found.copied()),
    }
}

/// The rows that were read so far.
pub(super) struct Builder {
    schema: Schema,
    selection: Selection,
    dimensions: Option<usize>,
    values: Vec<f32>,
    rows: usize,
    /// Labels, paths, cameras, sources.
    lists: [Vec<Option<String>>; 4],
    further: Further,
    /// The bytes of embeddings and texts.
    claims: Claims,
}

impl Builder {
    /// `limit`: the most bytes of embeddings and texts.
    pub(super) fn new(schema: Schema, selection: Selection, limit: usize) -> Self {
        let further = Further::new(&selection.further);
        Self {
            schema,
            selection,
            dimensions: None,
            values: Vec::new(),
            rows: 0,
            lists: Default::default(),
            further,
            claims: Claims::new(limit),
        }
    }

    /// Takes the rows of a batch, whose column `i` is column `places[i]` of the schema.
    pub(super) fn take(&mut self, batch: &RecordBatch, places: &[usize]) -> Result<(), Fault> {
        self.take_embeddings(array_of(batch, places, self.selection.embedding)?)?;
        let Selection { label, path, camera, source, .. } = self.selection;
        for (list, column) in self.lists.iter_mut().zip([label, path, camera, source]) {
            let Some(column) = column else { continue };
            let array = array_of(batch, places, column)?;
            claim(array, &mut self.claims)?;
            list.extend(texts_of(array, (&self.schema, column), self.rows)?);
        }
        self.further.take(batch, places, &mut self.claims)?;
        self.rows += batch.num_rows();
        Ok(())
    }

    fn take_embeddings(&mut self, array: &ArrayRef) -> Result<(), Fault> {
        if let Some(row) = (0..array.len()).find(|&row| array.is_null(row)) {
            let hint = "leave out the rows without an embedding".to_owned();
            return Err((format!("row {} has no embedding", self.rows + row), Some(hint)));
        }
        for row in 0..array.len() {
            let values = match array.data_type() {
                DataType::FixedSizeList(..) => array.as_fixed_size_list().value(row),
                DataType::LargeList(_) => array.as_list::<i64>().value(row),
                _ => array.as_list::<i32>().value(row),
            };
            self.take_embedding(self.rows + row, &values)?;
        }
        Ok(())
    }

    fn take_embedding(&mut self, row: usize, values: &ArrayRef) -> Result<(), Fault> {
        let dimensions = *self.dimensions.get_or_insert(values.len());
        if dimensions == 0 {
            check_values(1, dimensions).map_err(fault)?;
        }
        if values.len() != dimensions {
            let found = values.len();
            return Err((format!("row {row} has {found} values, the rows before it {dimensions}"), None));
        }
        if values.null_count() > 0 {
            return Err((format!("a value of the embedding of row {row} is missing"), None));
        }
        self.claims.add(dimensions * size_of::<f32>())?;
        let hint = || Some(npy::OUT_OF_RANGE_OF_F32.to_owned());
        append_f32(values, row, &mut self.values).map_err(|problem| (problem, hint()))
    }

    pub(super) fn finish(self) -> Result<EmbeddingSet, Fault> {
        let Self { schema, selection, dimensions, values, rows, lists, further, .. } = self;
        let dimensions = dimensions.unwrap_or(match schema.field(selection.embedding).data_type() {
            DataType::FixedSizeList(_, size) => usize::try_from(*size).unwrap_or(0),
            _ => 0,
        });
        check_values(rows, dimensions).map_err(fault)?;
        let description = Description::of(&schema)?;
        let [labels, paths, cameras, of_sources] = lists;
        let list = |column: Option<usize>, list: Vec<Option<String>>| {
            column.map(|_| list.into_iter().map(Option::unwrap_or_default).collect::<Vec<String>>())
        };
        let sources =
            sources(description.sources, selection.source.map(|_| of_sources), rows).map_err(fault)?;
        let (columns, _) = further.finish(&schema);
        Ok(EmbeddingSet {
            embeddings: Matrix::new(rows, dimensions, values).map_err(fault)?,
            labels: list(selection.label, labels),
            paths: list(selection.path, paths),
            cameras: list(selection.camera, cameras),
            columns: Columns::new(columns).map_err(fault)?,
            model: description.model,
            source: description.source,
            sources,
            run: description.run,
            metric: description.metric,
            protocol: description.protocol,
            threshold: description.threshold,
        })
    }
}

fn fault(error: crate::Error) -> Fault {
    (error.to_string(), error.hint())
}

/// The texts of a column in a batch whose first row is row `first` of the table.
fn texts_of(
    array: &ArrayRef,
    (schema, column): (&Schema, usize),
    first: usize,
) -> Result<Vec<Option<String>>, Fault> {
    texts(array).map_err(|(row, unfit)| {
        let (name, found) = (schema.field(column).name(), unfit.problem());
        let problem = format!("row {} of the column `{name}` has {found}", first + row);
        (problem, Some(unfit.hint().to_owned()))
    })
}

fn sources(
    list: Vec<Source>,
    rows: Option<Vec<Option<String>>>,
    count: usize,
) -> crate::Result<Option<Sources>> {
    let Some(rows) = rows else {
        return Ok(match <[Source; 1]>::try_from(list) {
            Ok([source]) => Some(Sources::one(source, count)),
            Err(_) => None,
        });
    };
    let mut places: HashMap<String, usize> = HashMap::new();
    let mut all = list;
    places.extend(all.iter().enumerate().map(|(i, source)| (source.name.clone(), i)));
    let mut of_rows = Vec::with_capacity(rows.len());
    for name in rows {
        of_rows.push(name.map(|name| {
            *places.entry(name).or_insert_with_key(|name| {
                all.push(Source { name: name.clone(), images: None });
                all.len() - 1
            })
        }));
    }
    Ok(Sources::new(all, of_rows)?.or_none())
}
