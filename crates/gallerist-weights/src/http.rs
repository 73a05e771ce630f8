//! HTTP for fetching a file, or the rest of one.

use std::io;
use std::time::Duration;

use ureq::http::Uri;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};
use ureq::{Agent, BodyReader};

const CONNECT: Duration = Duration::from_secs(20);
const SILENCE: Duration = Duration::from_secs(30);
const REDIRECTS: u32 = 5;
/// Bytes of a status line and all headers together.
const HEAD: usize = 64 * 1024;

/// An `http` or `https` address.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Url(Uri);

impl Url {
    /// `http://host[:port]/path` or `https://…`; `None` for anything else.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let uri: Uri = text.parse().ok()?;
        let known = matches!(uri.scheme_str()?, "http" | "https");
        let authority = uri.authority()?;
        // The port of a `Uri` is not checked when it is parsed.
        let port = authority.as_str().rsplit_once(':').is_none_or(|(_, port)| {
            port.ends_with(']') || authority.port_u16().is_some_and(|_| !port.is_empty())
        });
        let fits = known && port && !authority.host().is_empty() && !authority.as_str().contains('@');
        fits.then_some(Url(uri))
    }

    /// The last part of the path: what the file is called.
    pub(super) fn file_name(&self) -> Option<&str> {
        self.0.path().rsplit('/').next().filter(|name| !name.is_empty() && *name != "..")
    }
}

/// The answer to a request, its body still to be read.
pub(super) struct Response {
    pub(super) status: u16,
    headers: ureq::http::HeaderMap,
    pub(super) body: BodyReader<'static>,
}

impl Response {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok()
    }
}

/// Requests a file from byte `from` on and follows redirections; one from `https` to `http` is refused.
///
/// Reading the body fails where the transfer ends before its declared length, or no byte arrives for 30 seconds.
pub(super) fn get(url: &Url, from: u64, roots: &RootCerts) -> io::Result<Response> {
    let tls = TlsConfig::builder().provider(TlsProvider::Rustls).root_certs(roots.clone()).build();
    let config = Agent::config_builder()
        .http_status_as_error(false)
        .https_only(url.0.scheme_str() == Some("https"))
        .max_redirects(REDIRECTS)
        .max_response_header_size(HEAD)
        .timeout_connect(Some(CONNECT))
        .timeout_recv_response(Some(SILENCE))
        .timeout_per_read(Some(SILENCE))
        .timeout_per_write(Some(SILENCE))
        .user_agent(concat!("gallerist/", env!("CARGO_PKG_VERSION")))
        .tls_config(tls)
        .build();
    let mut request = Agent::new_with_config(config).get(&url.0).header("Accept-Encoding", "identity");
    if from > 0 {
        request = request.header("Range", format!("bytes={from}-"));
    }
    let (head, body) = request.call().map_err(ureq::Error::into_io)?.into_parts();
    Ok(Response { status: head.status.as_u16(), headers: head.headers, body: body.into_reader() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_parsed() {
        let url = Url::parse("https://example.org/models/a.pth?x=1#top").unwrap();
        assert_eq!((url.0.scheme_str(), url.0.host()), (Some("https"), Some("example.org")));
        assert_eq!((url.0.path(), url.file_name()), ("/models/a.pth", Some("a.pth")));
        let url = Url::parse("http://[::1]:8080").unwrap();
        assert_eq!((url.0.host(), url.0.port_u16(), url.file_name()), (Some("[::1]"), Some(8080), None));
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
}
