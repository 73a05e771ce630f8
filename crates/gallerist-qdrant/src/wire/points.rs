//! `points.proto`: items and searches.

use std::collections::BTreeMap;

use gallerist_database::{Answer, Refusal};
use prost::{Message, Oneof};

use super::filters::{Filter, PointId};
use super::value::Object;

/// `FieldType`.
pub(crate) const KEYWORD: i32 = 0;
pub(crate) const FLOAT: i32 = 2;

/// `UpdateStatus`: a search finds the change.
const COMPLETED: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpsertPoints {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(bool, optional, tag = "2")]
    pub(crate) wait: Option<bool>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) points: Vec<PointStruct>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PointStruct {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<PointId>,
    #[prost(btree_map = "string, message", tag = "3")]
    pub(crate) payload: Object,
    #[prost(message, optional, tag = "4")]
    pub(crate) vectors: Option<Vectors>,
}

/// `Vectors` and `VectorsOutput`: vectors by name.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Vectors {
    #[prost(message, optional, tag = "2")]
    pub(crate) named: Option<NamedVectors>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct NamedVectors {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) vectors: BTreeMap<String, Vector>,
}

/// `Vector` and `VectorOutput`. Old servers answer in `data`, newer ones in `dense`; this program sends `dense`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Vector {
    #[prost(float, repeated, tag = "1")]
    pub(crate) data: Vec<f32>,
    #[prost(message, optional, tag = "101")]
    pub(crate) dense: Option<DenseVector>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DenseVector {
    #[prost(float, repeated, tag = "1")]
    pub(crate) data: Vec<f32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeletePoints {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(bool, optional, tag = "2")]
    pub(crate) wait: Option<bool>,
    #[prost(message, optional, tag = "3")]
    pub(crate) points: Option<PointsSelector>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PointsSelector {
    #[prost(message, optional, tag = "1")]
    pub(crate) points: Option<PointsIdsList>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PointsIdsList {
    #[prost(message, repeated, tag = "1")]
    pub(crate) ids: Vec<PointId>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateFieldIndexCollection {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(bool, optional, tag = "2")]
    pub(crate) wait: Option<bool>,
    #[prost(string, tag = "3")]
    pub(crate) field_name: String,
    #[prost(int32, optional, tag = "4")]
    pub(crate) field_type: Option<i32>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PointsOperationResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) result: Option<UpdateResult>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct UpdateResult {
    #[prost(int32, tag = "2")]
    pub(crate) status: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WithPayloadSelector {
    #[prost(oneof = "WithPayload", tags = "1, 2")]
    pub(crate) selector: Option<WithPayload>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WithPayload {
    #[prost(bool, tag = "1")]
    Enable(bool),
    #[prost(message, tag = "2")]
    Include(PayloadIncludeSelector),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PayloadIncludeSelector {
    #[prost(string, repeated, tag = "1")]
    pub(crate) fields: Vec<String>,
}

impl WithPayloadSelector {
    /// These fields; none where there are none.
    pub(crate) fn of(fields: &[&str]) -> Self {
        let fields: Vec<String> = fields.iter().map(|&field| field.to_owned()).collect();
        Self {
            selector: Some(match fields.is_empty() {
                true => WithPayload::Enable(false),
                false => WithPayload::Include(PayloadIncludeSelector { fields }),
            }),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct WithVectorsSelector {
    #[prost(oneof = "WithVectors", tags = "1, 2")]
    pub(crate) selector: Option<WithVectors>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum WithVectors {
    #[prost(bool, tag = "1")]
    Enable(bool),
    #[prost(message, tag = "2")]
    Include(VectorsSelector),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VectorsSelector {
    #[prost(string, repeated, tag = "1")]
    pub(crate) names: Vec<String>,
}

impl WithVectorsSelector {
    /// The vector of this name, or none.
    pub(crate) fn of(name: Option<&str>) -> Self {
        Self {
            selector: Some(match name {
                None => WithVectors::Enable(false),
                Some(name) => WithVectors::Include(VectorsSelector { names: vec![name.to_owned()] }),
            }),
        }
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetPoints {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) ids: Vec<PointId>,
    #[prost(message, optional, tag = "4")]
    pub(crate) with_payload: Option<WithPayloadSelector>,
    #[prost(message, optional, tag = "5")]
    pub(crate) with_vectors: Option<WithVectorsSelector>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) result: Vec<RetrievedPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct RetrievedPoint {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<PointId>,
    #[prost(btree_map = "string, message", tag = "2")]
    pub(crate) payload: Object,
    #[prost(message, optional, tag = "4")]
    pub(crate) vectors: Option<Vectors>,
}

impl RetrievedPoint {
    /// The vector of this name.
    pub(crate) fn vector(&self, name: &str) -> Option<&[f32]> {
        let vector = self.vectors.as_ref()?.named.as_ref()?.vectors.get(name)?;
        Some(vector.dense.as_ref().map_or(&vector.data, |dense| &dense.data))
    }
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScrollPoints {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) filter: Option<Filter>,
    #[prost(message, optional, tag = "3")]
    pub(crate) offset: Option<PointId>,
    #[prost(uint32, optional, tag = "4")]
    pub(crate) limit: Option<u32>,
    #[prost(message, optional, tag = "6")]
    pub(crate) with_payload: Option<WithPayloadSelector>,
    #[prost(message, optional, tag = "7")]
    pub(crate) with_vectors: Option<WithVectorsSelector>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScrollResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) next_page_offset: Option<PointId>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) result: Vec<RetrievedPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CountPoints {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(bool, optional, tag = "3")]
    pub(crate) exact: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CountResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) result: Option<CountResult>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct CountResult {
    #[prost(uint64, tag = "1")]
    pub(crate) count: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QueryBatchPoints {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(message, repeated, tag = "2")]
    pub(crate) query_points: Vec<QueryPoints>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QueryPoints {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(message, optional, tag = "3")]
    pub(crate) query: Option<Query>,
    #[prost(string, optional, tag = "4")]
    pub(crate) using: Option<String>,
    #[prost(message, optional, tag = "5")]
    pub(crate) filter: Option<Filter>,
    #[prost(message, optional, tag = "6")]
    pub(crate) params: Option<SearchParams>,
    #[prost(uint64, optional, tag = "8")]
    pub(crate) limit: Option<u64>,
    #[prost(message, optional, tag = "10")]
    pub(crate) with_vectors: Option<WithVectorsSelector>,
    #[prost(message, optional, tag = "11")]
    pub(crate) with_payload: Option<WithPayloadSelector>,
}

/// The nearest of a vector.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct Query {
    #[prost(message, optional, tag = "1")]
    pub(crate) nearest: Option<VectorInput>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VectorInput {
    #[prost(message, optional, tag = "2")]
    pub(crate) dense: Option<DenseVector>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct SearchParams {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) hnsw_ef: Option<u64>,
    #[prost(bool, optional, tag = "2")]
    pub(crate) exact: Option<bool>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QueryBatchResponse {
    #[prost(message, repeated, tag = "1")]
    pub(crate) result: Vec<BatchResult>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BatchResult {
    #[prost(message, repeated, tag = "1")]
    pub(crate) result: Vec<ScoredPoint>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct ScoredPoint {
    #[prost(message, optional, tag = "1")]
    pub(crate) id: Option<PointId>,
    #[prost(float, tag = "3")]
    pub(crate) score: f32,
}

impl Answer for GetResponse {}
impl Answer for ScrollResponse {}
impl Answer for CountResponse {}
impl Answer for QueryBatchResponse {}

/// A change that is acknowledged and not yet applied is sent again: it has the same effect twice.
impl Answer for PointsOperationResponse {
    fn refusal(&self) -> Option<Refusal> {
        let status = self.result.map_or(0, |result| result.status);
        (status != COMPLETED).then(|| Refusal {
            code: status,
            reason: "the change is not applied yet".to_owned(),
            is_missing: false,
            is_transient: status != 0,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_has_the_bytes_of_the_protocol() {
        // Field 1, a string of 2 bytes; field 3, a varint.
        let request = CountPoints { collection_name: "ab".to_owned(), exact: Some(true) };
        assert_eq!(request.encode_to_vec(), [0x0a, 2, b'a', b'b', 0x18, 1]);
        // Field 101 in a map of vectors: 0xaa 0x06.
        let vector = Vector { dense: Some(DenseVector { data: vec![1.0] }), ..Vector::default() };
        assert_eq!(vector.encode_to_vec(), [0xaa, 6, 6, 0x0a, 4, 0, 0, 0x80, 0x3f]);
    }

    #[test]
    fn vectors_are_read_in_both_forms() {
        let of = |vector: Vector| RetrievedPoint {
            vectors: Some(Vectors {
                named: Some(NamedVectors { vectors: [("embedding".to_owned(), vector)].into() }),
            }),
            ..RetrievedPoint::default()
        };
        let old = of(Vector { data: vec![1.0, -0.0], dense: None });
        let new = of(Vector { data: vec![], dense: Some(DenseVector { data: vec![1.0, -0.0] }) });
        assert_eq!(old.vector("embedding"), new.vector("embedding"));
        assert_eq!(old.vector("other"), None);
    }
}
