//! The list of the shards of a gallery, and the record of a shard.

use gallerist_retrieval::EmbeddingSet;
use gallerist_retrieval::shards::{JoinedShards, Shard, ShardRecord};

use crate::cost::{Limit, within};
use crate::goals::reached;
use crate::scratch;

pub(super) fn run(bytes: &[u8]) {
    let shard = Shard::new(1, 3).expect("one of three");
    if let Ok(record) = within(Limit::TEXT, bytes, || ShardRecord::parse(bytes, shard)) {
        reached("record");
        assert_eq!(ShardRecord::parse(&record.to_bytes(), shard), Ok(record));
    }
    let path = scratch::file("list.json", bytes);
    let Ok(list) = within(Limit::TEXT, bytes, || JoinedShards::read(&path)) else { return };
    // An address would be opened over the network.
    if list.shards.iter().any(|shard| shard.file.contains("://")) {
        return;
    }
    assert!(within(Limit::TEXT, bytes, || EmbeddingSet::load(&path)).is_err(), "its shards are not there");
    reached("list");
    let again = scratch::path("again.json");
    list.write(&again).expect("a list that was read is written");
    assert_eq!(JoinedShards::read(&again).expect("a list that was written is read"), list);
}
