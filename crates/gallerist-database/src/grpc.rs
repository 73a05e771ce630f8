//! A gRPC connection for callers that wait: one request, one answer.
//!
//! tonic is asynchronous, and the interface of an index is not. The connection belongs to a thread of
//! its own, which also keeps it alive between calls; a caller may be in an asynchronous program or not.

use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::mpsc;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::thread::JoinHandle;
use std::time::Duration;

use http::uri::PathAndQuery;
use hyper_util::rt::TokioIo;
use prost::bytes::{Buf, BufMut, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tonic::codec::{Codec, DecodeBuf, Decoder, EncodeBuf, Encoder};
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::{Channel, ClientTlsConfig, Endpoint};
use tonic::{Code, Request, Status};

/// The largest answer that is read, in bytes.
const RESPONSE_LIMIT: usize = 256 << 20;
/// Bytes that a server may send before the client has read them: answers with embeddings are large.
const WINDOW: u32 = 16 << 20;

/// Why a call brought no message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Fault {
    /// No address of the host is known.
    #[error("the host `{host}` is not known")]
    UnknownHost { host: String },
    /// No process listens on the port, or a firewall refuses.
    #[error("the connection was refused")]
    Refused,
    /// No connection in time.
    #[error("no connection within {} s", after.as_secs_f32())]
    ConnectTimeout { after: Duration },
    /// Connected, no answer in time.
    #[error("no answer within {} s", after.as_secs_f32())]
    Timeout { after: Duration },
    /// The connection broke.
    #[error("the connection broke: {reason}")]
    Broken { reason: String },
    /// The server speaks neither HTTP/2 nor gRPC.
    #[error("what answers there does not speak gRPC ({found})")]
    NotGrpc { found: String },
    /// An answer larger than [`RESPONSE_LIMIT`].
    #[error("the answer is larger than {} MiB", RESPONSE_LIMIT >> 20)]
    TooLarge,
    /// A gRPC server that did not do it; `code` is one of gRPC's.
    #[error("gRPC status {code}: {reason}")]
    Status { code: u32, reason: String },
}

/// gRPC's code for an unknown method.
pub(crate) const UNIMPLEMENTED: u32 = Code::Unimplemented as u32;
/// gRPC's code for wrong or missing credentials.
pub(crate) const UNAUTHENTICATED: u32 = Code::Unauthenticated as u32;
/// gRPC's code for credentials that do not allow the call.
pub(crate) const PERMISSION_DENIED: u32 = Code::PermissionDenied as u32;
/// gRPC's code for something that does not exist.
pub(crate) const NOT_FOUND: u32 = Code::NotFound as u32;
const DEADLINE_EXCEEDED: u32 = Code::DeadlineExceeded as u32;
const RESOURCE_EXHAUSTED: u32 = Code::ResourceExhausted as u32;
const UNAVAILABLE: u32 = Code::Unavailable as u32;

impl Fault {
    /// True when the same call may succeed a little later: the server is starting, stopping, or
    /// busy. Only for a server that has answered before: one that is stopped in the middle of
    /// an answer, or that has its port open and is not ready, does not speak gRPC for a moment.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Refused
            | Self::ConnectTimeout { .. }
            | Self::Timeout { .. }
            | Self::Broken { .. }
            | Self::NotGrpc { .. } => true,
            Self::Status { code, .. } => {
                matches!(*code, DEADLINE_EXCEEDED | RESOURCE_EXHAUSTED | UNAVAILABLE)
            }
            Self::UnknownHost { .. } | Self::TooLarge => false,
        }
    }
}

/// Where and how to connect.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) host: String,
    pub(crate) port: u16,
    /// `HOST:PORT`, an IPv6 address in brackets.
    pub(crate) authority: String,
    /// Whether the connection is encrypted. The system's certificates decide whom to trust.
    pub(crate) tls: bool,
    /// The header with the credentials, and its value.
    pub(crate) credentials: Option<(&'static str, String)>,
    /// The name of the thread that has the connection.
    pub(crate) thread: &'static str,
    pub(crate) connect_timeout: Duration,
}

/// One connection, used for one call at a time and opened again after it broke.
pub(crate) struct Connection {
    calls: UnboundedSender<Call>,
    /// Dropped after the sender, without which the thread ends.
    _waited: Waited,
}

/// A thread that is waited for when this is dropped: what belongs to a thread that is about to end looks like a leak to a
/// fuzzer.
struct Waited(Option<JoinHandle<()>>);

impl Drop for Waited {
    fn drop(&mut self) {
        // A panic of the thread has been reported there.
        let _ = self.0.take().map(JoinHandle::join);
    }
}

struct Call {
    path: PathAndQuery,
    message: Vec<u8>,
    timeout: Duration,
    answer: mpsc::Sender<Result<Bytes, Fault>>,
}

impl Connection {
    /// A connection that is opened at the first call.
    pub(crate) fn new(target: Target) -> Self {
        let (calls, received) = unbounded_channel();
        // It ends when the connection is dropped, and with it the sender.
        let thread = std::thread::Builder::new().name(target.thread.to_owned());
        thread.spawn(move || serve(&target, received)).expect("a thread can be started");
        // It may still look up the name of a host, which can take long.
        Self { calls, _waited: Waited(None) }
    }

    /// A connection to no server: the first call is answered with the first of `answers`, and so on; the last is the answer
    /// to all further calls up to `most`, which then fail.
    pub(crate) fn scripted(answers: Vec<Vec<u8>>, most: usize) -> Self {
        let (calls, mut received) = unbounded_channel::<Call>();
        let thread = std::thread::Builder::new().name("scripted".to_owned());
        let answer = move || {
            for number in 0.. {
                let Some(call) = received.blocking_recv() else { return };
                let answer = answers.get(number).or(answers.last()).filter(|_| number < most);
                let _ =
                    call.answer.send(answer.map_or(Err(Fault::TooLarge), |answer| Ok(answer.clone().into())));
            }
        };
        let thread = thread.spawn(answer).expect("a thread can be started");
        Self { calls, _waited: Waited(Some(thread)) }
    }

    /// Calls `path` (`/package.Service/Method`) with an encoded message; the encoded answer.
    pub(crate) fn call(&self, path: &str, message: Vec<u8>, timeout: Duration) -> Result<Bytes, Fault> {
        let path = PathAndQuery::try_from(path).expect("the name of a method is a path");
        let (answer, answered) = mpsc::channel();
        let gone = || Fault::Broken { reason: "its thread has ended".to_owned() };
        self.calls.send(Call { path, message, timeout, answer }).map_err(|_| gone())?;
        answered.recv().map_err(|_| gone())?
    }
}

/// Makes the calls, one after the other.
fn serve(target: &Target, mut calls: UnboundedReceiver<Call>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let seen = Arc::new(Mutex::new(Seen::default()));
    match runtime {
        Err(error) => {
            let fault = Fault::Broken { reason: error.to_string() };
            while let Some(call) = calls.blocking_recv() {
                let _ = call.answer.send(Err(fault.clone()));
            }
        }
        Ok(runtime) => runtime.block_on(async move {
            let channel = channel(target, &seen);
            while let Some(call) = calls.recv().await {
                let answer = match &channel {
                    Ok(channel) => made(target, channel.clone(), &seen, &call).await,
                    Err(fault) => Err(fault.clone()),
                };
                // A caller that is gone needs no answer.
                let _ = call.answer.send(answer);
            }
        }),
    }
}

fn channel(target: &Target, seen: &Arc<Mutex<Seen>>) -> Result<Channel, Fault> {
    let broken = |error: tonic::transport::Error| Fault::Broken { reason: innermost(&error) };
    let scheme = if target.tls { "https" } else { "http" };
    let mut endpoint = Endpoint::from_shared(format!("{scheme}://{}", target.authority))
        .map_err(broken)?
        .initial_stream_window_size(WINDOW)
        .initial_connection_window_size(WINDOW);
    if target.tls {
        endpoint = endpoint.tls_config(ClientTlsConfig::new().with_native_roots()).map_err(broken)?;
    }
    let (target, seen) = (target.clone(), Arc::clone(seen));
    Ok(endpoint.connect_with_connector_lazy(tower::service_fn(move |_| {
        let (target, seen) = (target.clone(), Arc::clone(&seen));
        async move { connect(&target, seen).await.map(TokioIo::new) }
    })))
}

/// What became of the connection, for the words of an error.
#[derive(Default)]
struct Seen {
    connecting: bool,
    fault: Option<Fault>,
    /// The first bytes that came on this connection.
    first: Vec<u8>,
    /// Something other than HTTP/2 came on a connection of this call: tonic may have opened another since.
    other: bool,
    /// The bytes are those of TLS, which say nothing of what is in it.
    encrypted: bool,
}

/// The bytes that show whether a server speaks HTTP/2: the head of its first frame.
const FRAME_HEAD: usize = 9;
/// The type of the frame that a server sends first.
const SETTINGS: u8 = 4;

impl Seen {
    fn of(seen: &Mutex<Self>) -> MutexGuard<'_, Self> {
        seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&mut self, bytes: &[u8]) {
        let missing = FRAME_HEAD.saturating_sub(self.first.len()).min(bytes.len());
        self.first.extend_from_slice(&bytes[..missing]);
        self.other |= self.first.get(3).is_some_and(|&kind| kind != SETTINGS);
    }

    /// Whether something other than HTTP/2 came.
    fn is_other_protocol(&self) -> bool {
        !self.encrypted && (self.other || self.first.len() < FRAME_HEAD && !self.first.is_empty())
    }
}

async fn connect(target: &Target, seen: Arc<Mutex<Seen>>) -> io::Result<Watched> {
    {
        let mut seen = Seen::of(&seen);
        *seen = Seen {
            connecting: true,
            other: seen.is_other_protocol(),
            encrypted: target.tls,
            ..Seen::default()
        };
    }
    let connected = async {
        let addresses = tokio::net::lookup_host((target.host.as_str(), target.port)).await;
        let addresses = addresses.map_err(|_| Fault::UnknownHost { host: target.host.clone() })?;
        let mut fault = Fault::UnknownHost { host: target.host.clone() };
        for address in addresses {
            match TcpStream::connect(address).await {
                Ok(stream) => return Ok(stream),
                Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => fault = Fault::Refused,
                Err(error) if error.kind() == io::ErrorKind::TimedOut => {
                    fault = Fault::ConnectTimeout { after: target.connect_timeout };
                }
                Err(error) => fault = Fault::Broken { reason: error.to_string() },
            }
        }
        Err(fault)
    };
    let after = target.connect_timeout;
    let connected = tokio::time::timeout(after, connected).await;
    let connected = connected.unwrap_or(Err(Fault::ConnectTimeout { after }));
    let mut now = Seen::of(&seen);
    now.connecting = false;
    match connected {
        Ok(stream) => {
            // Requests are written whole, and each is waited for.
            stream.set_nodelay(true)?;
            drop(now);
            Ok(Watched { stream, seen })
        }
        Err(fault) => {
            now.fault = Some(fault.clone());
            Err(io::Error::other(fault))
        }
    }
}

/// Makes one call.
async fn made(target: &Target, channel: Channel, seen: &Mutex<Seen>, call: &Call) -> Result<Bytes, Fault> {
    {
        let mut seen = Seen::of(seen);
        (seen.fault, seen.other) = (None, false);
    }
    let mut request = Request::new(call.message.clone());
    if let Some((header, value)) = &target.credentials {
        let value = MetadataValue::<Ascii>::try_from(value.as_str());
        let refused = |_| Fault::Status {
            code: UNAUTHENTICATED,
            reason: "the credentials have characters that a header cannot have".to_owned(),
        };
        request.metadata_mut().insert(*header, value.map_err(refused)?);
    }
    let mut client = tonic::client::Grpc::new(channel).max_decoding_message_size(RESPONSE_LIMIT);
    let answer = async {
        client.ready().await.map_err(|error| Status::from_error(error.into()))?;
        client.unary(request, call.path.clone(), Raw).await
    };
    match tokio::time::timeout(call.timeout, answer).await {
        Ok(Ok(answer)) => Ok(answer.into_inner()),
        Ok(Err(status)) => Err(fault(&status, &Seen::of(seen))),
        Err(_) if Seen::of(seen).connecting => {
            Err(Fault::ConnectTimeout { after: target.connect_timeout.min(call.timeout) })
        }
        Err(_) => Err(Fault::Timeout { after: call.timeout }),
    }
}

/// What a status means. Those that tonic makes of a fault of the transport have a source.
fn fault(status: &Status, seen: &Seen) -> Fault {
    let reason = status.message().to_owned();
    match (status.source(), status.code()) {
        (Some(source), _) => match &seen.fault {
            Some(fault) => fault.clone(),
            None if seen.is_other_protocol() => Fault::NotGrpc { found: "no HTTP/2".to_owned() },
            None => Fault::Broken { reason: innermost(source) },
        },
        _ if reason.starts_with("grpc-status header missing") => Fault::NotGrpc { found: reason },
        (_, Code::OutOfRange) if reason.starts_with("Error, decoded message length too large") => {
            Fault::TooLarge
        }
        (_, Code::Internal) if reason.starts_with("Unexpected EOF") => {
            Fault::Broken { reason: "the answer is cut short".to_owned() }
        }
        (_, Code::Internal) if reason.starts_with("Missing response message") => {
            Fault::Broken { reason: "the answer is empty".to_owned() }
        }
        (_, code) => Fault::Status { code: code as u32, reason },
    }
}

/// The text of the last error in a chain: those before it only say that there was one.
fn innermost(error: &(dyn std::error::Error + 'static)) -> String {
    let mut last = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last.to_string()
}

/// A TCP connection whose first bytes are noted.
struct Watched {
    stream: TcpStream,
    seen: Arc<Mutex<Seen>>,
}

impl Watched {
    /// After a write that failed: what the server said before it closed the connection. The runtime may not know yet
    /// that there is something to read, so the socket is asked, which never blocks.
    fn read_what_came(&self) {
        let mut bytes = [0; FRAME_HEAD];
        if let Ok(count) = io::Read::read(&mut &*socket2::SockRef::from(&self.stream), &mut bytes) {
            Seen::of(&self.seen).read(&bytes[..count]);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, buffer);
        Seen::of(&self.seen).read(&buffer.filled()[before..]);
        polled
    }
}

impl AsyncWrite for Watched {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Err(_)) = polled {
            self.read_what_came();
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Messages that are encoded and decoded elsewhere.
struct Raw;

impl Codec for Raw {
    type Encode = Vec<u8>;
    type Decode = Bytes;
    type Encoder = Self;
    type Decoder = Self;

    fn encoder(&mut self) -> Self {
        Self
    }

    fn decoder(&mut self) -> Self {
        Self
    }
}

impl Encoder for Raw {
    type Item = Vec<u8>;
    type Error = Status;

    fn encode(&mut self, message: Vec<u8>, to: &mut EncodeBuf<'_>) -> Result<(), Status> {
        to.put_slice(&message);
        Ok(())
    }
}

impl Decoder for Raw {
    type Item = Bytes;
    type Error = Status;

    fn decode(&mut self, from: &mut DecodeBuf<'_>) -> Result<Option<Bytes>, Status> {
        Ok(Some(from.copy_to_bytes(from.remaining())))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_speaks_http_2_when_its_first_frame_has_settings() {
        let seen = |bytes: &[u8]| {
            let mut seen = Seen::default();
            bytes.chunks(4).for_each(|chunk| seen.read(chunk));
            seen.is_other_protocol()
        };
        assert!(!seen(b"") && !seen(&[0, 0, 6, 4, 0, 0, 0, 0, 0, 0, 3]));
        assert!(seen(b"HTTP/1.1 400 Bad Request") && seen(&[0; 64]) && seen(&[21, 3, 1, 0, 2, 2, 70]));
    }

    #[test]
    fn a_status_of_the_server_is_told_from_a_fault_on_the_way() {
        let plain = |code, message: &str| fault(&Status::new(code, message), &Seen::default());
        let refused = Fault::Status { code: UNAUTHENTICATED, reason: "who is it?".to_owned() };
        assert_eq!(plain(Code::Unauthenticated, "who is it?"), refused);
        assert!(matches!(plain(Code::Internal, "Unexpected EOF decoding stream."), Fault::Broken { .. }));
        let broken = Status::from_error(Box::new(io::Error::other("reset")));
        assert_eq!(fault(&broken, &Seen::default()), Fault::Broken { reason: "reset".to_owned() });
        let noted = Seen { fault: Some(Fault::Refused), ..Seen::default() };
        assert_eq!(fault(&broken, &noted), Fault::Refused);
        let other = Seen { other: true, ..Seen::default() };
        assert!(matches!(fault(&broken, &other), Fault::NotGrpc { .. }));
    }
}
