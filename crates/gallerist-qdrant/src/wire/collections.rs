//! `collections.proto` and the service `Qdrant`.

use std::collections::BTreeMap;

use gallerist_database::{Answer, Refusal};
use prost::{Message, Oneof};

use super::value::Object;

/// `Distance`.
pub(crate) const COSINE: i32 = 1;
pub(crate) const EUCLID: i32 = 2;
pub(crate) const DOT: i32 = 3;

/// `CollectionStatus`: the server is putting items into the graph.
pub(crate) const YELLOW: i32 = 2;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheckRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct HealthCheckReply {
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

/// `CollectionExistsRequest`, `GetCollectionInfoRequest` and `DeleteCollection`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionRequest {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionExistsResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) result: Option<CollectionExists>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionExists {
    #[prost(bool, tag = "1")]
    pub(crate) exists: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetCollectionInfoResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) result: Option<CollectionInfo>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionInfo {
    #[prost(int32, tag = "1")]
    pub(crate) status: i32,
    #[prost(message, optional, tag = "7")]
    pub(crate) config: Option<CollectionConfig>,
    #[prost(btree_map = "string, message", tag = "8")]
    pub(crate) payload_schema: BTreeMap<String, PayloadSchemaInfo>,
    #[prost(uint64, optional, tag = "9")]
    pub(crate) points_count: Option<u64>,
    #[prost(uint64, optional, tag = "10")]
    pub(crate) indexed_vectors_count: Option<u64>,
}

/// Only that there is one.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct PayloadSchemaInfo {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionConfig {
    #[prost(message, optional, tag = "1")]
    pub(crate) params: Option<CollectionParams>,
    #[prost(btree_map = "string, message", tag = "7")]
    pub(crate) metadata: Object,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionParams {
    #[prost(message, optional, tag = "5")]
    pub(crate) vectors_config: Option<VectorsConfig>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VectorsConfig {
    #[prost(oneof = "Vectors", tags = "2")]
    pub(crate) config: Option<Vectors>,
}

#[derive(Clone, PartialEq, Oneof)]
pub(crate) enum Vectors {
    #[prost(message, tag = "2")]
    Named(VectorParamsMap),
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VectorParamsMap {
    #[prost(btree_map = "string, message", tag = "1")]
    pub(crate) map: BTreeMap<String, VectorParams>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct VectorParams {
    #[prost(uint64, tag = "1")]
    pub(crate) size: u64,
    #[prost(int32, tag = "2")]
    pub(crate) distance: i32,
    #[prost(message, optional, tag = "3")]
    pub(crate) hnsw_config: Option<HnswConfigDiff>,
    #[prost(bool, optional, tag = "5")]
    pub(crate) on_disk: Option<bool>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(crate) struct HnswConfigDiff {
    #[prost(uint64, optional, tag = "1")]
    pub(crate) m: Option<u64>,
    #[prost(uint64, optional, tag = "2")]
    pub(crate) ef_construct: Option<u64>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateCollection {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(message, optional, tag = "10")]
    pub(crate) vectors_config: Option<VectorsConfig>,
    #[prost(btree_map = "string, message", tag = "18")]
    pub(crate) metadata: Object,
}

/// The keys of `metadata` are added to those that there are.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpdateCollection {
    #[prost(string, tag = "1")]
    pub(crate) collection_name: String,
    #[prost(btree_map = "string, message", tag = "10")]
    pub(crate) metadata: Object,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionOperationResponse {
    #[prost(bool, tag = "1")]
    pub(crate) result: bool,
}

impl Answer for HealthCheckReply {}
impl Answer for CollectionExistsResponse {}
impl Answer for GetCollectionInfoResponse {}

impl Answer for CollectionOperationResponse {
    fn refusal(&self) -> Option<Refusal> {
        let reason = "it did not, and gave no reason".to_owned();
        (!self.result).then_some(Refusal { code: 0, reason, is_missing: false, is_transient: false })
    }
}
