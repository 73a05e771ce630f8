//! The part of Qdrant's protocol that is spoken here.
//!
//! Messages are those of Qdrant's `lib/api/src/grpc/proto` (Apache-2.0), package `qdrant`, with the fields that are written
//! or read; a decoder passes over the others. Field numbers are the protocol's and never change.

pub(crate) mod collections;
pub(crate) mod filters;
pub(crate) mod points;
pub(crate) mod value;
