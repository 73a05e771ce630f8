//! Calls of a database, made again where that may help.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prost::Message;

use crate::backoff::{Backoff, falls_to_none};
use crate::grpc::{Connection, Fault, Target};
use crate::system::{StatusMeaning, System};
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
    /// Milvus: `USER:PASSWORD`; Qdrant: an API key. None by default. Without TLS it is sent unencrypted.
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

/// A message of a server.
pub trait Answer: Message + Default {
    /// The error that it carries, if there is one.
    fn refusal(&self) -> Option<Refusal> {
        None
    }
}

/// An error in an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The server's code.
    pub code: i32,
    /// The server's text.
    pub reason: String,
    /// There is no such collection.
    pub is_missing: bool,
    /// The same call may succeed a little later.
    pub is_transient: bool,
}

/// A server and a collection of it.
pub struct Client {
    connection: Mutex<Connection>,
    address: Address,
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
    /// A client whose connection is opened at the first call.
    pub fn new(address: &Address, options: ConnectOptions) -> Self {
        let system = address.system();
        let credentials = options.token.as_deref().map(|token| (system.header, (system.credentials)(token)));
        let connection = Connection::new(Target {
            host: address.host().to_owned(),
            port: address.port(),
            authority: address.server(),
            tls: address.is_encrypted(),
            credentials,
            thread: system.name,
            connect_timeout: options.connect_timeout,
        });
        Self::of(connection, address, options)
    }

    /// A client of this connection.
    pub(crate) fn of(connection: Connection, address: &Address, options: ConnectOptions) -> Self {
        Self {
            connection: Mutex::new(connection),
            server: address.server(),
            address: address.clone(),
            options,
        }
    }

    fn system(&self) -> &'static System {
        self.address.system()
    }

    /// Where the collection is.
    pub fn address(&self) -> &Address {
        &self.address
    }

    /// `HOST:PORT`.
    pub fn server(&self) -> &str {
        &self.server
    }

    /// The collection's name.
    pub fn collection(&self) -> String {
        self.address.collection().to_owned()
    }

    /// Calls `method`, which says the server's version, once: a server that was never reached is not waited for.
    ///
    /// # Errors
    /// [`Error::Unreachable`] and [`Error::Version`].
    pub fn greet<T: Answer>(
        &self,
        method: &str,
        request: &impl Message,
        version: impl Fn(&T) -> &str,
    ) -> Result<()> {
        let answer: T = match self.call_once(method, &request.encode_to_vec(), "say its version") {
            CallOutcome::Done(answer) => answer,
            CallOutcome::Again(error) | CallOutcome::Failed(error) => return Err(error),
        };
        let version = version(&answer);
        if !self.system().is_supported(version) {
            let (system, server) = (self.system(), self.server.clone());
            return Err(Error::Version { system, server, found: version.to_owned() });
        }
        Ok(())
    }

    /// Calls `method`, again and again while that may help and patience lasts. The request must have the same effect
    /// once or twice. `action` completes "refused to …".
    ///
    /// # Errors
    /// [`Error::Unreachable`], [`Error::Missing`], [`Error::Refused`] and [`Error::Answer`].
    pub fn call<T: Answer>(&self, method: &str, request: &impl Message, action: &'static str) -> Result<T> {
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
    ///
    /// # Errors
    /// Those of `is_done`, and [`Error::Unreachable`].
    pub fn wait_until(&self, mut is_done: impl FnMut() -> Result<bool>, state: &str) -> Result<()> {
        self.wait_for_none(|| Ok(usize::from(!is_done()?)), state)
    }

    /// Calls `left` until it is 0, or has not fallen before patience ends; `state` describes the state before.
    ///
    /// # Errors
    /// Those of `left`, and [`Error::Unreachable`].
    pub fn wait_for_none(&self, left: impl FnMut() -> Result<usize>, state: &str) -> Result<()> {
        let patience = self.options.patience;
        if falls_to_none(left, patience)? {
            return Ok(());
        }
        let problem = format!("{state}, after {} s", patience.as_secs());
        let hint = "wait and try again; see the server's log".to_owned();
        Err(Error::Unreachable { system: self.system(), server: self.server.clone(), problem, hint })
    }

    fn wait(&self, backoff: &mut Backoff, error: Error) -> Result<()> {
        let Some(pause) = backoff.next() else { return Err(error) };
        if let Some(tell) = &self.options.on_wait {
            tell(&format!("{error}; trying again in {:.1} s", pause.as_secs_f32()));
        }
        std::thread::sleep(pause);
        Ok(())
    }

    fn call_once<T: Answer>(&self, method: &str, request: &[u8], action: &'static str) -> CallOutcome<T> {
        let path = format!("{}{method}", self.system().services);
        // A thread that panicked left nothing half done: a call keeps no state here.
        let connection = self.connection.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = match connection.call(&path, request.to_vec(), self.options.timeout) {
            Ok(answer) => T::decode(answer),
            Err(fault) => return self.failed(&fault, action),
        };
        match answer {
            Ok(answer) => match answer.refusal() {
                Some(refusal) if refusal.is_transient => CallOutcome::Again(self.refused(refusal, action)),
                Some(refusal) => CallOutcome::Failed(self.refused(refusal, action)),
                None => CallOutcome::Done(answer),
            },
            Err(error) => {
                CallOutcome::Failed(self.answer(format!("its answer to {method} is no message: {error}")))
            }
        }
    }

    fn failed<T>(&self, fault: &Fault, action: &'static str) -> CallOutcome<T> {
        let unreachable = || Error::unreachable(self.system(), &self.server, fault);
        match fault {
            _ if fault.is_transient() => CallOutcome::Again(unreachable()),
            Fault::Status { code, reason } => {
                let meaning = (self.system().status)(*code);
                let refusal = |is_missing| {
                    // gRPC's codes are small.
                    let code = i32::try_from(*code).unwrap_or(i32::MAX);
                    Refusal { code, reason: reason.clone(), is_missing, is_transient: false }
                };
                CallOutcome::Failed(match meaning {
                    StatusMeaning::Unreachable => unreachable(),
                    StatusMeaning::Missing => self.refused(refusal(true), action),
                    StatusMeaning::Refused => self.refused(refusal(false), action),
                })
            }
            _ => CallOutcome::Failed(unreachable()),
        }
    }

    fn refused(&self, refusal: Refusal, action: &'static str) -> Error {
        let (system, server) = (self.system(), self.server.clone());
        if refusal.is_missing {
            let (collection, address) = (self.collection(), self.address.to_string());
            return Error::Missing { system, server, collection, address };
        }
        Error::Refused { system, server, action, code: refusal.code, reason: refusal.reason }
    }

    /// An answer that does not fit.
    pub fn answer(&self, problem: String) -> Error {
        Error::Answer { system: self.system(), server: self.server.clone(), problem }
    }

    /// A collection that is no gallery.
    pub fn foreign(&self, problem: String) -> Error {
        let (system, server) = (self.system(), self.server.clone());
        Error::Foreign { system, server, collection: self.collection(), problem }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_do_not_show_the_password() {
        let options = ConnectOptions { token: Some("root:secret".to_owned()), ..ConnectOptions::default() };
        assert!(!format!("{options:?}").contains("secret"));
    }
}
