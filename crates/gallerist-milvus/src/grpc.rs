//! A gRPC call that asks once and is answered once: an HTTP/2 POST whose body is the message with
//! its length in front, and whose outcome stands in the trailers.
//!
//! libcurl speaks HTTP/2. The usual Rust stack (tonic, hyper, tokio) would make a synchronous
//! program asynchronous inside, for 39 crates instead of 14, and change the features of crates that
//! the tensor engine is built with.

use std::time::Duration;

use curl::easy::{Easy2, Handler, HttpVersion, List, ReadError, WriteError};

/// The most a server may answer with, in bytes.
const RESPONSE_LIMIT: usize = 256 << 20;

/// Why a call brought no message.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub(crate) enum Fault {
    /// No address of the host is known.
    #[error("the host `{host}` is not known")]
    UnknownHost { host: String },
    /// Nobody listens, or a firewall says so.
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
    /// Something answered that speaks neither HTTP/2 nor gRPC.
    #[error("what answers there does not speak gRPC ({found})")]
    NotGrpc { found: String },
    /// An answer larger than [`RESPONSE_LIMIT`].
    #[error("the answer is larger than {} MiB", RESPONSE_LIMIT >> 20)]
    TooLarge,
    /// A gRPC server that did not do it; `code` is one of gRPC's.
    #[error("gRPC status {code}: {reason}")]
    Status { code: u32, reason: String },
}

/// gRPC's code for a method that is not there.
pub(crate) const UNIMPLEMENTED: u32 = 12;
/// gRPC's code for wrong or missing credentials.
pub(crate) const UNAUTHENTICATED: u32 = 16;
const DEADLINE_EXCEEDED: u32 = 4;
const RESOURCE_EXHAUSTED: u32 = 8;
const UNAVAILABLE: u32 = 14;

impl Fault {
    /// True when the same call may succeed a little later: the server is starting, stopping, or
    /// busy. To be asked of a server that has answered before: one that is stopped in the middle of
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

/// One connection, used for one call at a time and opened again when it broke.
pub(crate) struct Connection {
    easy: Easy2<Exchange>,
    host: String,
    /// `http://HOST:PORT`
    base: String,
    connect_timeout: Duration,
}

/// What goes out and what comes in.
#[derive(Default)]
struct Exchange {
    request: Vec<u8>,
    sent: usize,
    response: Vec<u8>,
    too_large: bool,
    content_type: String,
    status: Option<u32>,
    message: String,
}

impl Handler for Exchange {
    fn read(&mut self, data: &mut [u8]) -> Result<usize, ReadError> {
        let rest = &self.request[self.sent..];
        let count = rest.len().min(data.len());
        data[..count].copy_from_slice(&rest[..count]);
        self.sent += count;
        Ok(count)
    }

    fn write(&mut self, data: &[u8]) -> Result<usize, WriteError> {
        if self.response.len() + data.len() > RESPONSE_LIMIT {
            self.too_large = true;
            // Fewer bytes than came: libcurl ends the transfer.
            return Ok(0);
        }
        self.response.extend_from_slice(data);
        Ok(data.len())
    }

    fn header(&mut self, line: &[u8]) -> bool {
        let Some(colon) = line.iter().position(|&byte| byte == b':') else { return true };
        let value = String::from_utf8_lossy(&line[colon + 1..]).trim().to_owned();
        match line[..colon].to_ascii_lowercase().as_slice() {
            b"content-type" => self.content_type = value,
            // No number is as good as a code that gRPC does not have.
            b"grpc-status" => self.status = Some(value.parse().unwrap_or(u32::MAX)),
            b"grpc-message" => self.message = percent_decoded(&value),
            _ => {}
        }
        true
    }
}

impl Connection {
    /// A connection to `http://authority`, opened at the first call.
    pub(crate) fn new(
        host: &str,
        authority: &str,
        authorization: Option<&str>,
        connect_timeout: Duration,
    ) -> Self {
        let mut easy = Easy2::new(Exchange::default());
        let mut headers = List::new();
        let lines = ["content-type: application/grpc", "te: trailers", "expect:"];
        for line in
            lines.into_iter().map(str::to_owned).chain(authorization.map(|a| format!("authorization: {a}")))
        {
            headers.append(&line).expect("a header without a NUL");
        }
        // Fails only for a libcurl built without HTTP/2 or for a URL with a NUL; neither can be.
        let set = |easy: &mut Easy2<Exchange>| {
            easy.http_version(HttpVersion::V2PriorKnowledge)?;
            easy.http_headers(headers)?;
            easy.post(true)?;
            // What the environment says about proxies is meant for the web.
            easy.proxy("")?;
            easy.tcp_nodelay(true)?;
            easy.connect_timeout(connect_timeout)
        };
        set(&mut easy).expect("libcurl is built with HTTP/2");
        Self { easy, host: host.to_owned(), base: format!("http://{authority}"), connect_timeout }
    }

    /// Calls `path` (`/package.Service/Method`) with an encoded message; the encoded answer.
    pub(crate) fn call(&mut self, path: &str, message: &[u8], timeout: Duration) -> Result<&[u8], Fault> {
        let mut request = Vec::with_capacity(message.len() + 5);
        // Not compressed; the length, most significant byte first.
        request.push(0);
        let length = u32::try_from(message.len()).expect("messages are kept below 64 MiB");
        request.extend_from_slice(&length.to_be_bytes());
        request.extend_from_slice(message);

        let size = request.len() as u64;
        *self.easy.get_mut() = Exchange { request, ..Exchange::default() };
        let url = format!("{}{path}", self.base);
        let performed = self.easy.url(&url).and_then(|()| {
            self.easy.post_field_size(size)?;
            self.easy.timeout(timeout)?;
            self.easy.perform()
        });
        if let Err(error) = performed {
            return Err(self.fault(&error, timeout));
        }
        let code = self.easy.response_code().unwrap_or(0);
        let exchange = self.easy.get_ref();
        match exchange.status {
            _ if code != 200 || !exchange.content_type.starts_with("application/grpc") => {
                Err(Fault::NotGrpc { found: format!("HTTP status {code}") })
            }
            None => Err(Fault::Broken { reason: "the answer has no gRPC status".to_owned() }),
            Some(0) => body(&exchange.response),
            Some(code) => Err(Fault::Status { code, reason: exchange.message.clone() }),
        }
    }

    fn fault(&self, error: &curl::Error, timeout: Duration) -> Fault {
        let reason = || match error.extra_description() {
            Some(more) if !more.is_empty() => more.to_owned(),
            _ => error.description().to_owned(),
        };
        if self.easy.get_ref().too_large {
            Fault::TooLarge
        } else if error.is_couldnt_resolve_host() {
            Fault::UnknownHost { host: self.host.clone() }
        } else if error.is_couldnt_connect() {
            Fault::Refused
        } else if error.is_operation_timedout() {
            let connected = self.easy.connect_time().is_ok_and(|time| !time.is_zero());
            if connected {
                Fault::Timeout { after: timeout }
            } else {
                Fault::ConnectTimeout { after: self.connect_timeout.min(timeout) }
            }
        } else {
            // Bytes that are no HTTP/2 are met while sending or while receiving, whichever comes
            // first; in the first case only libcurl's text tells them from a connection that broke.
            let reason = reason();
            let other_protocol = error.is_http2_error()
                || i64::from(error.code()) == WEIRD_SERVER_REPLY
                || reason.contains("HTTP/2");
            if other_protocol { Fault::NotGrpc { found: reason } } else { Fault::Broken { reason } }
        }
    }
}

/// `CURLE_WEIRD_SERVER_REPLY`
const WEIRD_SERVER_REPLY: i64 = 8;

/// The one message in a response.
fn body(response: &[u8]) -> Result<&[u8], Fault> {
    let broken = |reason: &str| Fault::Broken { reason: reason.to_owned() };
    let (head, message) = response.split_first_chunk::<5>().ok_or_else(|| broken("the answer is empty"))?;
    if head[0] != 0 {
        return Err(broken("the answer is compressed, which was not asked for"));
    }
    let length = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
    if message.len() != length {
        return Err(broken("the answer is cut short"));
    }
    Ok(message)
}

/// `grpc-message` has its bytes beyond ASCII as %XX.
fn percent_decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut decoded = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while at < bytes.len() {
        let code = (bytes[at] == b'%')
            .then(|| text.get(at + 1..at + 3).and_then(|hex| u8::from_str_radix(hex, 16).ok()))
            .flatten();
        decoded.push(code.unwrap_or(bytes[at]));
        at += if code.is_some() { 3 } else { 1 };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_taken_out_of_its_frame_and_a_cut_one_is_refused() {
        assert_eq!(body(&[0, 0, 0, 0, 2, 7, 8]).unwrap(), [7, 8]);
        assert!(body(&[0, 0, 0, 0, 0]).unwrap().is_empty());
        for cut in [&[][..], &[0, 0, 0, 0], &[0, 0, 0, 0, 2, 7], &[0, 0, 0, 0, 1, 7, 8], &[1, 0, 0, 0, 0]] {
            assert!(matches!(body(cut), Err(Fault::Broken { .. })), "{cut:?}");
        }
    }

    #[test]
    fn percent_signs_are_decoded_and_stray_ones_kept() {
        assert_eq!(percent_decoded("caf%C3%A9 100% %zz %4"), "café 100% %zz %4");
    }

    #[test]
    fn header_lines_are_read_whatever_their_case() {
        let mut exchange = Exchange::default();
        for line in ["HTTP/2 200\r\n", "Content-Type: application/grpc\r\n", "grpc-status: 5\r\n", "\r\n"] {
            assert!(exchange.header(line.as_bytes()));
        }
        assert_eq!((exchange.status, exchange.content_type.as_str()), (Some(5), "application/grpc"));
    }
}
