//! Calls of Milvus' service, made again where that may help.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost::Message;

use crate::backoff::Backoff;
use crate::grpc::{Connection, Fault, Target};
use crate::wire::messages::{self as wire, Response, Status};
use crate::{Address, Error, Result};

/// How to talk to the server.
#[derive(Clone)]
pub struct ConnectOptions {
    /// How long to wait for a connection. 5 s by default.
    pub connect_timeout: Duration,
    /// How long to wait for the answer to one call. 60 s by default.
    pub timeout: Duration,
    /// How long to retry calls to a server that does not answer, is starting or is overloaded. The first call
    /// of all is not repeated. 90 s by default: Milvus 2.3.5 serves a collection again 27 s after
    /// a crash.
    pub patience: Duration,
    /// `USER:PASSWORD` for a server that requires it. None by default. Without TLS they are sent unencrypted.
    pub token: Option<String>,
    /// Called with the reason before a call is repeated.
    pub on_wait: Option<OnWait>,
}

/// Told in one line why a call is made again.
pub type OnWait = Arc<dyn Fn(&str) + Send + Sync>;

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(5),
            timeout: Duration::from_secs(60),
            patience: Duration::from_secs(90),
            token: None,
            on_wait: None,
        }
    }
}

impl fmt::Debug for ConnectOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ConnectOptions")
            .field("connect_timeout", &self.connect_timeout)
            .field("timeout", &self.timeout)
            .field("patience", &self.patience)
            .field("token", &self.token.as_ref().map(|_| "given"))
            .field("on_wait", &self.on_wait.as_ref().map(|_| "a function"))
            .finish()
    }
}

/// A server and a collection of it.
pub(crate) struct Client {
    connection: Mutex<Connection>,
    pub(crate) address: Address,
    server: String,
    options: ConnectOptions,
}

/// What a call came to.
enum CallOutcome<T> {
    Done(T),
    /// It may help to call again.
    Again(Error),
    Failed(Error),
}

impl Client {
    /// Reaches the server and looks at its version.
    pub(crate) fn connect(address: &Address, options: ConnectOptions) -> Result<Self> {
        let authorization = options.token.as_deref().map(|token| STANDARD.encode(token));
        let connection = Connection::new(Target {
            host: address.host().to_owned(),
            port: address.port(),
            authority: address.server(),
            tls: address.is_encrypted(),
            authorization,
            connect_timeout: options.connect_timeout,
        });
        Self::greeted(connection, address, options)
    }

    /// A client of a connection, after a look at the server's version.
    pub(crate) fn greeted(
        connection: Connection,
        address: &Address,
        options: ConnectOptions,
    ) -> Result<Self> {
        let (server, address) = (address.server(), address.clone());
        let client = Self { connection: Mutex::new(connection), address, server, options };
        let answer: wire::GetVersionResponse = match client.call_once(
            "GetVersion",
            &wire::GetVersionRequest {}.encode_to_vec(),
            "say its version",
        ) {
            CallOutcome::Done(answer) => answer,
            CallOutcome::Again(error) | CallOutcome::Failed(error) => return Err(error),
        };
        if !is_supported(&answer.version) {
            return Err(Error::Version { server: client.server, found: answer.version });
        }
        Ok(client)
    }

    /// `HOST:PORT`
    pub(crate) fn server(&self) -> &str {
        &self.server
    }

    /// The collection's name.
    pub(crate) fn collection(&self) -> String {
        self.address.collection().to_owned()
    }

    /// Calls `method`, again and again while that may help and patience lasts. Every request that
    /// is made here has the same effect once or twice. `action` completes "refused to …".
    pub(crate) fn call<T: Response>(
        &self,
        method: &str,
        request: &impl Message,
        action: &'static str,
    ) -> Result<T> {
        let request = request.encode_to_vec();
        let mut backoff = Backoff::new(self.options.patience);
        loop {
            let error = match self.call_once(method, &request, action) {
                CallOutcome::Done(answer) => return Ok(answer),
                CallOutcome::Failed(error) => return Err(error),
                CallOutcome::Again(error) => error,
            };
            self.wait(&mut backoff, error)?;
        }
    }

    /// Calls `is_done` until it is true or patience ends; `state` describes the state before.
    pub(crate) fn wait_until(&self, mut is_done: impl FnMut() -> Result<bool>, state: &str) -> Result<()> {
        let mut backoff = Backoff::new(self.options.patience);
        while !is_done()? {
            let Some(pause) = backoff.next() else {
                let problem = format!("{state}, after {} s", self.options.patience.as_secs());
                let hint = "wait and try again; see the server's log".to_owned();
                return Err(Error::Unreachable { server: self.server.clone(), problem, hint });
            };
            std::thread::sleep(pause.min(LONGEST_POLL));
        }
        Ok(())
    }

    fn wait(&self, backoff: &mut Backoff, error: Error) -> Result<()> {
        let Some(pause) = backoff.next() else { return Err(error) };
        if let Some(tell) = &self.options.on_wait {
            tell(&format!("{error}; trying again in {:.1} s", pause.as_secs_f32()));
        }
        std::thread::sleep(pause);
        Ok(())
    }

    fn call_once<T: Response>(&self, method: &str, request: &[u8], action: &'static str) -> CallOutcome<T> {
        let path = format!("/milvus.proto.milvus.MilvusService/{method}");
        // A thread that panicked left nothing half done: a call keeps no state here.
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match connection.call(&path, request.to_vec(), self.options.timeout) {
            Ok(answer) => T::decode(answer),
            Err(fault) => return self.failed(&fault),
        };
        match answer {
            Ok(answer) => match answer.status().and_then(|status| self.refusal(status, action)) {
                Some((true, error)) => CallOutcome::Again(error),
                Some((false, error)) => CallOutcome::Failed(error),
                None => CallOutcome::Done(answer),
            },
            Err(error) => {
                CallOutcome::Failed(self.answer(format!("its answer to {method} is no message: {error}")))
            }
        }
    }

    fn failed<T>(&self, fault: &Fault) -> CallOutcome<T> {
        let error = Error::unreachable(&self.server, fault);
        if fault.is_transient() { CallOutcome::Again(error) } else { CallOutcome::Failed(error) }
    }

    /// The error in a status, if there is one, and whether it will pass.
    fn refusal(&self, status: &Status, action: &'static str) -> Option<(bool, Error)> {
        if status.code == 0 && status.error_code == 0 {
            return None;
        }
        let server = self.server.clone();
        let error = if status.code == COLLECTION_NOT_FOUND {
            Error::Missing { server, collection: self.collection(), address: self.address.to_string() }
        } else {
            Error::Refused { server, action, code: status.code, reason: essence(&status.reason).to_owned() }
        };
        Some((is_transient(status), error))
    }

    /// An answer that does not fit.
    pub(crate) fn answer(&self, problem: String) -> Error {
        Error::Answer { server: self.server.clone(), problem }
    }
}

/// The longest time between two questions whether something is done.
const LONGEST_POLL: Duration = Duration::from_millis(500);

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

/// 2.3 brought upserts, the cosine, counting and vectors in answers.
fn is_supported(version: &str) -> bool {
    let mut parts = version.trim_start_matches('v').split(['.', '-']).map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) => (major, minor) >= (2, 3),
        // A build from a branch has a name and no number.
        _ => !version.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_before_2_3_are_too_old() {
        for version in ["2.3.5", "v2.3.0", "v2.4.0-rc.1", "3.0", "2.10.1", "master-2026"] {
            assert!(is_supported(version), "{version}");
        }
        for version in ["2.2.9", "v1.1.1", "0.3", ""] {
            assert!(!is_supported(version), "{version:?}");
        }
    }

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

    #[test]
    fn options_do_not_show_the_password() {
        let options = ConnectOptions { token: Some("root:secret".to_owned()), ..ConnectOptions::default() };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
