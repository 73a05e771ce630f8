//! How addresses begin.

/// The start of an address.
pub const SCHEME: &str = "milvus://";
/// The start of the address of a server with TLS.
pub const TLS_SCHEME: &str = "milvus+tls://";
