//! What a user is told when there is no Milvus where one was expected. No server is needed.

#[path = "../../gallerist-database/tests/unreachable/mod.rs"]
mod unreachable;

use gallerist_milvus::MilvusIndex as DatabaseIndex;

const NAME: &str = "Milvus";
const SCHEME: &str = "milvus";
const PORT: &str = "19530";
