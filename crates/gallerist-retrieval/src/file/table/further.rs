//! Further columns of a table: those that no list of a set takes.

use std::collections::HashSet;

use arrow_array::{ArrayRef, RecordBatch};
use arrow_schema::{Field, Schema};

use super::cells::{CellKind, KIND, array_of, claim, numbers, texts, type_name};
use super::fault::Fault;
use super::guard::Claims;
use crate::columns::{Column, ColumnKind};
use crate::file::unread_column::Unread;

/// The cells of a further column.
enum Cells {
    Numbers(Vec<Option<f64>>),
    Texts(Vec<Option<String>>),
    /// A cell that no column can have; the column is left out.
    Unfit(String),
}

/// The rows of further columns that were read so far.
pub(super) struct Further {
    /// The number of each column, what its cells are, and the cells.
    columns: Vec<(usize, CellKind, Cells)>,
    rows: usize,
}

impl Further {
    pub(super) fn new(columns: &[(usize, CellKind)]) -> Self {
        let cells = |kind| match kind {
            CellKind::Floats => Cells::Numbers(Vec::new()),
            _ => Cells::Texts(Vec::new()),
        };
        Self { columns: columns.iter().map(|&(i, kind)| (i, kind, cells(kind))).collect(), rows: 0 }
    }

    /// Takes the rows of a batch, whose column `i` is column `places[i]` of the schema.
    pub(super) fn take(
        &mut self,
        batch: &RecordBatch,
        places: &[usize],
        claims: &mut Claims,
    ) -> Result<(), Fault> {
        for (column, _, cells) in &mut self.columns {
            let array = array_of(batch, places, *column)?;
            claim(array, claims)?;
            cells.take(array, self.rows);
        }
        self.rows += batch.num_rows();
        Ok(())
    }

    /// The columns, and those that are left out.
    pub(super) fn finish(self, schema: &Schema) -> (Vec<Column>, Vec<Unread>) {
        let (mut columns, mut unread) = (Vec::new(), Vec::new());
        let mut names = HashSet::new();
        for (i, kind, cells) in self.columns {
            let field = schema.field(i);
            let column = match names.insert(field.name()) {
                true => column(field, kind, cells),
                false => Err("another column has this name".to_owned()),
            };
            match column {
                Ok(column) => columns.push(column),
                Err(problem) => unread.push(Unread {
                    name: field.name().clone(),
                    kind: type_name(field.data_type()),
                    problem: Some(problem),
                }),
            }
        }
        (columns, unread)
    }
}

impl Cells {
    /// Takes the cells of a batch whose first row is row `first` of the table.
    fn take(&mut self, array: &ArrayRef, first: usize) {
        match self {
            Self::Numbers(all) => all.extend(numbers(array)),
            Self::Texts(all) => match texts(array) {
                Ok(texts) => all.extend(texts),
                Err((row, unfit)) => {
                    *self = Self::Unfit(format!("row {} has {}", first + row, unfit.problem()));
                }
            },
            Self::Unfit(_) => {}
        }
    }
}

/// The column of a field; what is wrong with it.
fn column(field: &Field, kind: CellKind, cells: Cells) -> Result<Column, String> {
    let fault = |error: crate::Error| match error {
        crate::Error::Column { problem, .. } => problem,
        error => error.to_string(),
    };
    let name = field.name();
    let texts = match cells {
        Cells::Numbers(numbers) => return Column::numbers(name, numbers).map_err(fault),
        Cells::Texts(texts) => texts,
        Cells::Unfit(problem) => return Err(problem),
    };
    let declared = field.metadata().get(KIND);
    let declared = declared
        .and_then(|kind| serde_json::from_value::<ColumnKind>(serde_json::Value::from(kind.as_str())).ok());
    of_texts(name, kind, declared, texts).map_err(fault)
}

fn of_texts(
    name: &str,
    kind: CellKind,
    declared: Option<ColumnKind>,
    texts: Vec<Option<String>>,
) -> crate::Result<Column> {
    let filled = |texts: &[Option<String>]| -> Vec<String> {
        texts.iter().map(|text| text.clone().unwrap_or_default()).collect()
    };
    match (declared, kind) {
        (Some(declared), _) => Column::parse(name, declared, texts),
        // A code, such as 2^53 and more, makes the column text.
        (None, CellKind::Exact) => Column::infer(name, filled(&texts)),
        (None, CellKind::Dates) => Column::parse(name, ColumnKind::Date, texts),
        (None, CellKind::Tags) => Column::parse(name, ColumnKind::Tags, texts),
        (None, CellKind::Text | CellKind::Floats) => {
            let inferred = Column::infer(name, filled(&texts))?;
            match inferred.kind() {
                // Text that looks like numbers is text: its type says so.
                ColumnKind::Number => Column::parse(name, ColumnKind::Text, texts),
                _ => Ok(inferred),
            }
        }
    }
}
