//! Embeddings with labels, paths and other information about each row.

use super::sources::Sources;
use crate::columns::Columns;
use crate::eval::MatchRule;
use crate::matrix::Matrix;
use crate::search::Metric;

/// Embeddings with labels, paths and other information about each row.
///
/// # The `.safetensors` file
/// - tensor `embeddings` `[rows, dimension]`: f32, bf16, or i8 with a tensor `scales`, f32
///   `[rows]`, by which the rows are multiplied (f64 is read too and rounded to f32);
/// - tensors `labels`, `paths`, `cameras`, each optional: u8 `[bytes]`, a JSON list with one
///   string per row; or integers of any type, `[rows]`, as other programs write them (u8 of
///   `[rows]` are integers: no JSON list of as many strings is that short);
/// - metadata `sources`, where known: a JSON list of [`Source`](super::Source)s; where there are several, or a row
///   has none, with a tensor `sources`: u32 `[rows]`, the place of each row's source in the list,
///   2^32 - 1 for none;
/// - metadata `columns`, where there are [columns](crate::columns): a JSON list of `{"name", "kind"}`. Column `i` of
///   numbers is a tensor `column.i`, f64 `[rows]`, NaN where missing; every other one is a tensor `column.i`, u32
///   `[rows]`, the place of the row's text in the JSON list `column.i.values`, u8, or 2^32 - 1 where missing;
/// - metadata `format` = `gallerist-embeddings`, `format_version` = `2` (`3` with columns), and, where known, `model`,
///   `source`, `run`, `metric` (`cosine`, `euclidean`, `inner_product`), `protocol` and `threshold` (JSON, a
///   [`MatchRule`]); version `1`, without
///   `sources`, `metric` and `protocol`, is read too;
/// - metadata `sha256`: of the header (these digits as zeros) and the tensor bytes. A file of which
///   a bit changed is refused. Files of other programs carry no such entry and are read without
///   that check.
///
/// # The `.npy` file
/// The embeddings alone: saving as `.npy` leaves everything else out.
#[derive(Clone, Debug, PartialEq)]
pub struct EmbeddingSet {
    /// One embedding per row.
    pub embeddings: Matrix,
    /// The class of each row.
    pub labels: Option<Vec<String>>,
    /// The image of each row, relative to its source.
    pub paths: Option<Vec<String>>,
    /// The camera of each row.
    pub cameras: Option<Vec<String>>,
    /// Further columns: numbers, dates, text, tags.
    pub columns: Columns,
    /// The fingerprint of the model that made the embeddings.
    pub model: Option<String>,
    /// Where the images were read from, where that is one place for all rows.
    pub source: Option<String>,
    /// The source of each row, which with its path makes its id.
    pub sources: Option<Sources>,
    /// The run directory of the model that made the embeddings, where it was at the time.
    pub run: Option<String>,
    /// How these embeddings are to be compared, as the model's run declares it.
    pub metric: Option<Metric>,
    /// The protocol that the images' data set is measured by, such as `market1501`
    /// ([`Protocol::named`](crate::eval::Protocol::named)), where its layout has one.
    pub protocol: Option<String>,
    /// The threshold at which a result is a match, where one was calibrated.
    pub threshold: Option<MatchRule>,
}

impl From<Matrix> for EmbeddingSet {
    fn from(embeddings: Matrix) -> Self {
        Self {
            embeddings,
            labels: None,
            paths: None,
            cameras: None,
            columns: Columns::default(),
            model: None,
            source: None,
            sources: None,
            run: None,
            metric: None,
            protocol: None,
            threshold: None,
        }
    }
}
