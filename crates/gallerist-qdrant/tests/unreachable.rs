//! What a user is told when there is no Qdrant where one was expected. No server is needed.

#[path = "../../gallerist-database/tests/unreachable/mod.rs"]
mod unreachable;

use gallerist_qdrant::QdrantIndex as DatabaseIndex;

const NAME: &str = "Qdrant";
const SCHEME: &str = "qdrant";
const PORT: &str = "6334";
