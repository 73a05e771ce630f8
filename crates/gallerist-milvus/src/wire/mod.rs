//! The part of Milvus' protocol that is spoken here.
//!
//! Messages are those of `milvus-proto` (Apache-2.0), packages `milvus.proto.{common,schema,milvus}`,
//! with the fields that are written or read; a decoder passes over the others. Field numbers are
//! the protocol's and never change: what is written here is understood by every Milvus from 2.3 on.

pub(crate) mod messages;
pub(crate) mod schema;
pub(crate) mod status;
