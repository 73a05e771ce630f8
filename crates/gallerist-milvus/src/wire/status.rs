//! The status in an answer of Milvus.

use gallerist_database::{Answer, Refusal};
use prost::Message;

#[derive(Clone, PartialEq, Message)]
pub(crate) struct Status {
    /// The code of Milvus up to 2.2; later ones send both.
    #[prost(int32, tag = "1")]
    pub(crate) error_code: i32,
    #[prost(string, tag = "2")]
    pub(crate) reason: String,
    #[prost(int32, tag = "3")]
    pub(crate) code: i32,
    #[prost(bool, tag = "4")]
    pub(crate) retriable: bool,
}

impl Answer for Status {
    fn refusal(&self) -> Option<Refusal> {
        refusal(self)
    }
}

/// The error in a status, if there is one.
pub(crate) fn refusal(status: &Status) -> Option<Refusal> {
    (status.code != 0 || status.error_code != 0).then(|| Refusal {
        code: status.code,
        reason: essence(&status.reason).to_owned(),
        is_missing: status.code == COLLECTION_NOT_FOUND,
        is_transient: is_transient(status),
    })
}

/// Codes of Milvus (`pkg/util/merr`, 2.3).
const COLLECTION_NOT_FOUND: i32 = 100;
const UNEXPECTED: i32 = 65_535;

/// Whether what was refused may be done a little later. Milvus 2.3 does not mark all of it: while
/// it starts, parts of it are not there for the others.
fn is_transient(status: &Status) -> bool {
    let named = match status.code {
        // Not ready, unavailable, overloaded.
        1..=4 | 8 => true,
        // Not loaded, or not yet whole.
        101 | 103 => true,
        // Replicas, channels, segments and nodes that are not there (yet).
        400..=699 | 901..=999 => true,
        // A part has asked another part as often as it would.
        UNEXPECTED => status.reason.contains("attempt #"),
        _ => false,
    };
    status.retriable || named
}

/// An error's text without the stack traces that some have in the middle.
fn essence(reason: &str) -> &str {
    let Some((before, trace)) = reason.split_once("stack trace: ") else { return reason };
    let last = trace.rsplit_once('\n').map_or(trace, |(_, last)| last);
    last.split_once(": ").map_or(before, |(_, after)| after)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stack_traces_are_left_out_of_messages() {
        let trace =
            "attempt #0: stack trace: /a/b.go:51 x.y\n/a/c.go:7 x.(*Z).W: attempt #0: node not found[node=2]";
        assert_eq!(essence(trace), "attempt #0: node not found[node=2]");
        assert_eq!(essence("stack trace: /a.go:1 f: why"), "why");
        assert_eq!(essence("collection not loaded: c"), "collection not loaded: c");
    }

    #[test]
    fn only_what_passes_by_itself_is_asked_again() {
        let status = |code, retriable, reason: &str| Status {
            error_code: 1,
            reason: reason.to_owned(),
            code,
            retriable,
        };
        for passing in [
            status(1, false, "service not ready"),
            status(503, false, "channel not available"),
            status(7777, true, "busy"),
            status(UNEXPECTED, false, "attempt #0: node not found"),
        ] {
            assert!(is_transient(&passing), "{passing:?}");
        }
        for lasting in [
            status(COLLECTION_NOT_FOUND, false, "collection not found"),
            status(1100, false, "cannot parse expression"),
            status(UNEXPECTED, false, "cannot create index"),
        ] {
            assert!(!is_transient(&lasting), "{lasting:?}");
        }
    }
}
