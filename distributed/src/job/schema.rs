//! The columns of each kind of work.

use std::sync::Arc;

use datafusion::arrow::datatypes::{DataType, Field, Schema, SchemaRef};

use super::Work;

impl Work {
    /// The columns.
    pub fn schema(&self) -> SchemaRef {
        let field = |name: &str, kind: DataType| Field::new(name, kind, false);
        let optional = |name: &str| Field::new(name, DataType::Utf8, true);
        let fields = match self {
            Self::Inspect { .. } => vec![
                field("shard", DataType::UInt32),
                field("rows", DataType::UInt64),
                field("dimensions", DataType::UInt64),
                field("junk", DataType::UInt64),
                field("zero_rows", DataType::UInt64),
                field("without_label", DataType::UInt64),
                field("labels", DataType::Boolean),
                field("label_sets", DataType::Boolean),
                field("cameras", DataType::Boolean),
                optional("only_label"),
                optional("model"),
                optional("metric"),
                optional("protocol"),
            ],
            Self::Search { .. } | Self::Relevant { .. } => {
                vec![field("query", DataType::UInt32), field("key", DataType::UInt64)]
            }
            Self::Count { .. } => vec![
                field("query", DataType::UInt32),
                field("place", DataType::UInt32),
                field("between", DataType::UInt64),
                field("tied", DataType::UInt64),
                field("tied_ahead", DataType::UInt64),
            ],
            Self::Nearest { .. } => vec![field("distance", DataType::Float32)],
            Self::Pairs { .. } => vec![
                field("a", DataType::UInt32),
                field("b", DataType::UInt32),
                field("distance", DataType::Float32),
            ],
            Self::Rows { .. } => vec![
                field("row", DataType::UInt32),
                optional("label"),
                optional("path"),
                Field::new(
                    "values",
                    DataType::List(Arc::new(Field::new_list_field(DataType::Float32, false))),
                    true,
                ),
            ],
        };
        Arc::new(Schema::new(fields))
    }
}
