//! As much of HTTP/1.1 as it takes to fetch a file, or the rest of one.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

const CONNECT: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(30);
const REDIRECTS: usize = 5;
/// Bytes of a status line and all headers together.
const HEAD: u64 = 64 * 1024;

/// An address, taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url {
    secure: bool,
    host: String,
    port: u16,
    /// Path and query, from the slash on.
    path: String,
}

impl Url {
    /// `http://host[:port]/path` or `https://…`; `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (scheme, rest) = text.split_once("://")?;
        let secure = match scheme.to_ascii_lowercase().as_str() {
            "https" => true,
            "http" => false,
            _ => return None,
        };
        let rest = rest.split('#').next()?;
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (authority, path) = rest.split_at(end);
        let path = if path.starts_with('/') { path.to_string() } else { format!("/{path}") };
        let (host, port) = match authority.rsplit_once(':') {
            Some((host, port)) if !port.ends_with(']') => (host, port.parse().ok()?),
            _ => (authority, if secure { 443 } else { 80 }),
        };
        let plain = |c: char| c.is_ascii_alphanumeric() || ".-_[]:".contains(c);
        let fits = !host.is_empty() && host.chars().all(plain) && path.chars().all(|c| c.is_ascii_graphic());
        fits.then(|| Url { secure, host: host.to_string(), port, path })
    }

    /// The last part of the path: what the file is called.
    pub(super) fn file_name(&self) -> Option<&str> {
        let path = self.path.split('?').next()?;
        path.rsplit('/').next().filter(|name| !name.is_empty() && *name != "..")
    }

    /// Where a `Location` leads from here; `None` where it is no address or gives up encryption.
    fn follow(&self, location: &str) -> Option<Self> {
        if location.starts_with('/') && !location.starts_with("//") {
            return Some(Url { path: location.to_string(), ..self.clone() });
        }
        Url::parse(location).filter(|next| next.secure || !self.secure)
    }
}

/// The answer to a request, its body still to be read.
pub(super) struct Response {
    pub(super) status: u16,
    headers: Vec<(String, String)>,
    pub(super) body: Body,
}

impl Response {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
    }
}

trait Stream: Read + Write + Send {}
impl<S: Read + Write + Send> Stream for S {}

/// The bytes of an answer. Reading fails where the transfer breaks off before its promised end.
pub(super) struct Body {
    stream: BufReader<Box<dyn Stream>>,
    left: Left,
}

enum Left {
    /// So many bytes.
    Count(u64),
    /// In chunks, so many bytes of this one left.
    Chunk(u64),
    /// Until the connection is closed.
    Open,
    Nothing,
}

fn broken(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, what.to_string())
}

fn invalid(what: impl Into<String>) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, what.into())
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            let limit = match self.left {
                Left::Nothing | Left::Count(0) => return Ok(0),
                Left::Open => buffer.len() as u64,
                Left::Count(left) => left,
                Left::Chunk(0) => {
                    let size = self.next_chunk()?;
                    self.left = if size == 0 { Left::Nothing } else { Left::Chunk(size) };
                    continue;
                }
                Left::Chunk(left) => left,
            };
            let room = buffer.len().min(usize::try_from(limit).unwrap_or(usize::MAX));
            let count = self.stream.read(&mut buffer[..room])?;
            if count == 0 && room > 0 && !matches!(self.left, Left::Open) {
                return Err(broken("the connection was closed in the middle"));
            }
            match &mut self.left {
                Left::Count(left) | Left::Chunk(left) => *left -= count as u64,
                Left::Open | Left::Nothing => {}
            }
            if matches!(self.left, Left::Chunk(0)) {
                line(&mut self.stream, &mut { HEAD })?;
            }
            return Ok(count);
        }
    }
}

impl Body {
    fn next_chunk(&mut self) -> io::Result<u64> {
        let text = line(&mut self.stream, &mut { HEAD })?;
        let digits = text.split(';').next().unwrap_or("").trim();
        u64::from_str_radix(digits, 16).map_err(|_| invalid(format!("`{digits}` is no length of a chunk")))
    }
}

/// A line without its end; `budget` bytes are left for all of them.
fn line(stream: &mut impl BufRead, budget: &mut u64) -> io::Result<String> {
    let mut bytes = Vec::new();
    let count = stream.take(*budget).read_until(b'\n', &mut bytes)?;
    *budget -= count as u64;
    if bytes.pop() != Some(b'\n') {
        let reason = if *budget == 0 { "the headers are too long" } else { "the connection was closed" };
        return Err(broken(reason));
    }
    if bytes.last() == Some(&b'\r') {
        bytes.pop();
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Who is trusted: the roots that browsers trust.
pub(super) fn trust() -> RootCertStore {
    RootCertStore { roots: webpki_roots::TLS_SERVER_ROOTS.to_vec() }
}

fn connect(url: &Url, roots: &RootCertStore) -> io::Result<Box<dyn Stream>> {
    let host = url.host.trim_matches(['[', ']']);
    let mut last = io::Error::new(io::ErrorKind::NotFound, "the name leads to no address");
    for address in (host, url.port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, CONNECT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(SILENCE))?;
                stream.set_write_timeout(Some(SILENCE))?;
                return if url.secure { encrypted(stream, host, roots) } else { Ok(Box::new(stream)) };
            }
            Err(e) => last = e,
        }
    }
    Err(last)
}

fn encrypted(stream: TcpStream, host: &str, roots: &RootCertStore) -> io::Result<Box<dyn Stream>> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .map_err(io::Error::other)?
        .with_root_certificates(roots.clone())
        .with_no_client_auth();
    let name = ServerName::try_from(host.to_string()).map_err(io::Error::other)?;
    let connection = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    Ok(Box::new(StreamOwned::new(connection, stream)))
}

/// Asks for a file from byte `from` on, following redirections.
pub(super) fn get(url: &Url, from: u64, roots: &RootCertStore) -> io::Result<Response> {
    let mut url = url.clone();
    for _ in 0..=REDIRECTS {
        let response = request(&url, from, roots)?;
        if !matches!(response.status, 301 | 302 | 303 | 307 | 308) {
            return Ok(response);
        }
        let location = response.header("location").unwrap_or("");
        url = url.follow(location).ok_or_else(|| {
            invalid(format!("it redirects to `{location}`, which is no address that can be followed"))
        })?;
    }
    Err(invalid(format!("it redirects more than {REDIRECTS} times")))
}

fn request(url: &Url, from: u64, roots: &RootCertStore) -> io::Result<Response> {
    let mut stream = connect(url, roots)?;
    let range = if from > 0 { format!("Range: bytes={from}-\r\n") } else { String::new() };
    let Url { host, port, path, .. } = url;
    let version = env!("CARGO_PKG_VERSION");
    let head = format!(
        "GET {path} HTTP/1.1\r\nHost: {host}:{port}\r\nUser-Agent: gallerist/{version}\r\nAccept: */*\r\n\
         Accept-Encoding: identity\r\n{range}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.flush()?;
    let mut stream = BufReader::with_capacity(64 * 1024, stream);
    let mut budget = HEAD;
    let status = line(&mut stream, &mut budget)?;
    let code = status.strip_prefix("HTTP/1.").and_then(|rest| rest.split(' ').nth(1)?.parse().ok());
    let Some(code) = code else { return Err(invalid(format!("`{status}` is no answer in HTTP"))) };
    let mut headers = Vec::new();
    loop {
        let text = line(&mut stream, &mut budget)?;
        if text.is_empty() {
            break;
        }
        if let Some((key, value)) = text.split_once(':') {
            headers.push((key.trim().to_ascii_lowercase(), value.trim().to_string()));
        }
    }
    let mut response = Response { status: code, headers, body: Body { stream, left: Left::Open } };
    let chunked =
        response.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked"));
    response.body.left = match response.header("content-length").map(str::parse) {
        _ if chunked => Left::Chunk(0),
        Some(Ok(count)) => Left::Count(count),
        Some(Err(_)) => return Err(invalid("its Content-Length is no number")),
        None => Left::Open,
    };
    Ok(response)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_taken_apart() {
        let url = Url::parse("https://example.org/models/a.pth?x=1#top").unwrap();
        assert_eq!((url.secure, url.host.as_str(), url.port), (true, "example.org", 443));
        assert_eq!((url.path.as_str(), url.file_name()), ("/models/a.pth?x=1", Some("a.pth")));
        let url = Url::parse("http://[::1]:8080").unwrap();
        assert_eq!(
            (url.host.as_str(), url.port, url.path.as_str(), url.file_name()),
            ("[::1]", 8080, "/", None)
        );
        for bad in [
            "ftp://a/b",
            "http://",
            "example.org",
            "http://a b/",
            "http://u@h/",
            "http://h:x/",
            "http://h/\r\nX:",
        ] {
            assert_eq!(Url::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_redirection_never_gives_up_encryption() {
        let url = Url::parse("https://a/b").unwrap();
        assert_eq!(url.follow("http://a/c"), None);
        assert_eq!(url.follow("https://c/d").unwrap().host, "c");
        assert_eq!(url.follow("/e").unwrap().path, "/e");
        assert_eq!(url.follow("elsewhere"), None);
    }
}
