//! `milvus.proto.common` and `milvus.proto.milvus`: requests and responses.

use gallerist_database::{Answer, Refusal};
use prost::Message;

use super::schema::{CollectionSchema, FieldData, KeyValuePair, LongArray, SearchResultData};
use super::status::{Status, refusal};

/// `ConsistencyLevel`: what was written up to a time that the request names is seen.
pub(crate) const SESSION: i32 = 1;
/// `DslType`: an expression, not JSON.
pub(crate) const EXPRESSION: i32 = 1;
/// `PlaceholderType`: vectors of f32.
pub(crate) const FLOAT_VECTORS: i32 = 101;
/// `LoadState`.
pub(crate) const LOADED: i32 = 3;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PlaceholderGroup {
    #[prost(message, repeated, tag = "1")]
    pub(crate) placeholders: Vec<PlaceholderValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct PlaceholderValue {
    #[prost(string, tag = "1")]
    pub(crate) tag: String,
    #[prost(int32, tag = "2")]
    pub(crate) kind: i32,
    #[prost(bytes = "vec", repeated, tag = "3")]
    pub(crate) values: Vec<Vec<u8>>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetVersionRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetVersionResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(string, tag = "2")]
    pub(crate) version: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AllocTimestampRequest {}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AllocTimestampResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(uint64, tag = "2")]
    pub(crate) timestamp: u64,
}

/// `HasCollectionRequest`, `DescribeCollectionRequest` and `DropCollectionRequest`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct CollectionRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct LoadCollectionRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    #[prost(int32, tag = "4")]
    pub(crate) replica_number: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct BoolResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(bool, tag = "2")]
    pub(crate) value: bool,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescribeCollectionResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(message, optional, tag = "2")]
    pub(crate) schema: Option<CollectionSchema>,
    #[prost(message, repeated, tag = "13")]
    pub(crate) properties: Vec<KeyValuePair>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateCollectionRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    /// A [`CollectionSchema`], encoded.
    #[prost(bytes = "vec", tag = "4")]
    pub(crate) schema: Vec<u8>,
    #[prost(int32, tag = "5")]
    pub(crate) shards_num: i32,
    #[prost(int32, tag = "6")]
    pub(crate) consistency_level: i32,
    #[prost(message, repeated, tag = "7")]
    pub(crate) properties: Vec<KeyValuePair>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct AlterCollectionRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) properties: Vec<KeyValuePair>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct CreateIndexRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    #[prost(string, tag = "4")]
    pub(crate) field_name: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) extra_params: Vec<KeyValuePair>,
    #[prost(string, tag = "6")]
    pub(crate) index_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescribeIndexRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    #[prost(string, tag = "4")]
    pub(crate) field_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DescribeIndexResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) index_descriptions: Vec<IndexDescription>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct IndexDescription {
    #[prost(message, repeated, tag = "3")]
    pub(crate) params: Vec<KeyValuePair>,
    #[prost(string, tag = "4")]
    pub(crate) field_name: String,
    #[prost(int64, tag = "9")]
    pub(crate) pending_rows: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetLoadStateRequest {
    #[prost(string, tag = "2")]
    pub(crate) collection_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetLoadStateResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(int32, tag = "2")]
    pub(crate) state: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct UpsertRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    #[prost(message, repeated, tag = "5")]
    pub(crate) fields_data: Vec<FieldData>,
    #[prost(uint32, tag = "7")]
    pub(crate) num_rows: u32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct DeleteRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    #[prost(string, tag = "5")]
    pub(crate) expr: String,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct MutationResult {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(uint32, repeated, tag = "4")]
    pub(crate) failed: Vec<u32>,
    #[prost(int64, tag = "8")]
    pub(crate) upserted: i64,
    #[prost(uint64, tag = "9")]
    pub(crate) timestamp: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QueryRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    #[prost(string, tag = "4")]
    pub(crate) expr: String,
    #[prost(string, repeated, tag = "5")]
    pub(crate) output_fields: Vec<String>,
    #[prost(uint64, tag = "8")]
    pub(crate) guarantee_timestamp: u64,
    #[prost(message, repeated, tag = "9")]
    pub(crate) query_params: Vec<KeyValuePair>,
    #[prost(int32, tag = "11")]
    pub(crate) consistency_level: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct QueryResults {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(message, repeated, tag = "2")]
    pub(crate) fields_data: Vec<FieldData>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SearchRequest {
    #[prost(string, tag = "3")]
    pub(crate) collection_name: String,
    #[prost(string, tag = "5")]
    pub(crate) dsl: String,
    /// A [`PlaceholderGroup`], encoded.
    #[prost(bytes = "vec", tag = "6")]
    pub(crate) placeholder_group: Vec<u8>,
    #[prost(int32, tag = "7")]
    pub(crate) dsl_type: i32,
    #[prost(string, repeated, tag = "8")]
    pub(crate) output_fields: Vec<String>,
    #[prost(message, repeated, tag = "9")]
    pub(crate) search_params: Vec<KeyValuePair>,
    #[prost(uint64, tag = "11")]
    pub(crate) guarantee_timestamp: u64,
    #[prost(int64, tag = "12")]
    pub(crate) nq: i64,
    #[prost(int32, tag = "14")]
    pub(crate) consistency_level: i32,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct SearchResults {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(message, optional, tag = "2")]
    pub(crate) results: Option<SearchResultData>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlushRequest {
    #[prost(string, repeated, tag = "3")]
    pub(crate) collection_names: Vec<String>,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct FlushResponse {
    #[prost(message, optional, tag = "1")]
    pub(crate) status: Option<Status>,
    #[prost(message, repeated, tag = "3")]
    pub(crate) segments: Vec<SegmentsEntry>,
    #[prost(message, repeated, tag = "6")]
    pub(crate) times: Vec<TimesEntry>,
}

/// An entry of `map<string, LongArray>`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct SegmentsEntry {
    #[prost(string, tag = "1")]
    pub(crate) collection: String,
    #[prost(message, optional, tag = "2")]
    pub(crate) segments: Option<LongArray>,
}

/// An entry of `map<string, uint64>`.
#[derive(Clone, PartialEq, Message)]
pub(crate) struct TimesEntry {
    #[prost(string, tag = "1")]
    pub(crate) collection: String,
    #[prost(uint64, tag = "2")]
    pub(crate) time: u64,
}

#[derive(Clone, PartialEq, Message)]
pub(crate) struct GetFlushStateRequest {
    #[prost(int64, repeated, tag = "1")]
    pub(crate) segments: Vec<i64>,
    #[prost(uint64, tag = "2")]
    pub(crate) time: u64,
    #[prost(string, tag = "4")]
    pub(crate) collection_name: String,
}

macro_rules! responses {
    ($($name:ident),*) => {
        $(impl Answer for $name {
            fn refusal(&self) -> Option<Refusal> {
                self.status.as_ref().and_then(refusal)
            }
        })*
    };
}

responses!(
    GetVersionResponse,
    AllocTimestampResponse,
    BoolResponse,
    DescribeCollectionResponse,
    DescribeIndexResponse,
    GetLoadStateResponse,
    MutationResult,
    QueryResults,
    SearchResults,
    FlushResponse
);

#[cfg(test)]
mod tests {
    use super::super::schema::Ids;
    use super::*;

    #[test]
    fn a_message_has_the_bytes_of_the_protocol() {
        // Field 3, a string of 2 bytes; field 2 of an entry, a varint.
        let request = CollectionRequest { collection_name: "ab".to_owned() };
        assert_eq!(request.encode_to_vec(), [0x1a, 2, b'a', b'b']);
        let ids = Ids { longs: Some(LongArray { data: vec![1, 300] }) };
        assert_eq!(ids.encode_to_vec(), [0x0a, 5, 0x0a, 3, 1, 0xac, 2]);
    }

    #[test]
    fn fields_that_are_not_known_here_are_passed_over() {
        let status = Status::decode([0x18, 7, 0x2a, 1, b'x', 0x20, 1].as_slice()).unwrap();
        assert_eq!((status.code, status.retriable), (7, true));
    }
}
