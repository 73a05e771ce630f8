//! The databases, as far as addresses, credentials and messages name them.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::grpc;

/// A vector database.
pub struct System {
    /// As messages name it.
    pub name: &'static str,
    /// The start of an address.
    pub scheme: &'static str,
    /// The start of the address of a server with TLS.
    pub tls_scheme: &'static str,
    /// Where it listens for gRPC unless its configuration says otherwise.
    pub default_port: u16,
    /// The version that is needed, as `(major, minor)`.
    pub needed: (u32, u32),
    /// What the names of all methods begin with.
    pub(crate) services: &'static str,
    /// Whether a text can be the name of a collection.
    pub(crate) is_name: fn(&str) -> bool,
    /// The rule that `is_name` tests.
    pub(crate) names: &'static str,
    /// What was tested, as a hint.
    pub(crate) tested: &'static str,
    /// The gRPC header with the credentials.
    pub(crate) header: &'static str,
    /// The value of this header for a token.
    pub(crate) credentials: fn(&str) -> String,
    /// What to do if the server wants other credentials.
    pub(crate) credentials_hint: &'static str,
    /// What a gRPC status says, apart from those that are repeated.
    pub(crate) status: fn(u32) -> StatusMeaning,
}

/// What a gRPC status says about a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StatusMeaning {
    /// The server is not the one that was wanted, or not in the wanted state.
    Unreachable,
    /// There is no such collection.
    Missing,
    /// The server does not do what was asked.
    Refused,
}

impl fmt::Debug for System {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name)
    }
}

impl PartialEq for System {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl Eq for System {}

/// Milvus reports errors in its answers, not as gRPC statuses.
pub static MILVUS: System = System {
    name: "Milvus",
    scheme: "milvus://",
    tls_scheme: "milvus+tls://",
    default_port: 19530,
    // 2.3 brought upserts, the cosine, counting and vectors in answers.
    needed: (2, 3),
    services: "/milvus.proto.milvus.MilvusService/",
    is_name: |name| {
        let mut letters = name.chars();
        letters.next().is_some_and(|c| c.is_ascii_alphabetic() || c == '_')
            && name.len() <= 255
            && letters.all(|c| c.is_ascii_alphanumeric() || c == '_')
    },
    names: "a collection's name has letters, digits and `_`, at most 255, and begins with no digit",
    tested: "tested with Milvus 2.3.5",
    header: "authorization",
    credentials: |token| STANDARD.encode(token),
    credentials_hint: "set MILVUS_TOKEN to USER:PASSWORD",
    status: |_| StatusMeaning::Unreachable,
};

/// Qdrant.
pub static QDRANT: System = System {
    name: "Qdrant",
    scheme: "qdrant://",
    tls_scheme: "qdrant+tls://",
    default_port: 6334,
    // 1.16 brought the metadata of collections.
    needed: (1, 16),
    services: "/qdrant.",
    is_name: |name| {
        !name.is_empty()
            && name.len() <= 255
            && name.chars().any(|c| c != '.')
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
    },
    names: "a collection's name has letters, digits, `_`, `-` and `.`, at most 255",
    tested: "tested with the engine of Qdrant 1.19",
    header: "api-key",
    credentials: str::to_owned,
    credentials_hint: "set QDRANT_API_KEY to a key of the server",
    status: |status| match status {
        grpc::NOT_FOUND => StatusMeaning::Missing,
        grpc::UNIMPLEMENTED | grpc::UNAUTHENTICATED | grpc::PERMISSION_DENIED => StatusMeaning::Unreachable,
        _ => StatusMeaning::Refused,
    },
};

/// All databases.
pub(crate) static SYSTEMS: [&System; 2] = [&MILVUS, &QDRANT];

impl System {
    /// Whether a server of this version has what is needed.
    pub(crate) fn is_supported(&self, version: &str) -> bool {
        let mut parts = version.trim_start_matches('v').split(['.', '-']).map(str::parse::<u32>);
        match (parts.next(), parts.next()) {
            (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= self.needed,
            // A build from a branch has a name and no number.
            _ => !version.is_empty(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_the_needed_one_are_too_old() {
        for version in ["2.3.5", "v2.3.0", "v2.4.0-rc.1", "3.0", "2.10.1", "master-2026"] {
            assert!(MILVUS.is_supported(version), "{version}");
        }
        for version in ["2.2.9", "v1.1.1", "0.3", ""] {
            assert!(!MILVUS.is_supported(version), "{version:?}");
        }
        assert!(
            QDRANT.is_supported("1.16.0")
                && QDRANT.is_supported("1.19.0-dev")
                && !QDRANT.is_supported("1.9.7")
        );
    }
}
