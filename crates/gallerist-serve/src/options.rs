//! The options of a server.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use crate::access::Token;
use crate::client::Network;
use crate::tls::Tls;

/// The address and the limits of a server. The defaults suit use from the same machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// The address to listen on; by default reachable from this machine only.
    pub address: SocketAddr,
    /// Further host names that requests may use, in addition to the address and `localhost`. Without this check a web
    /// page could reach a server on this machine through a name that resolves to it (DNS rebinding).
    pub hosts: Vec<String>,
    /// The tokens of which a change of the gallery must carry one. Empty: the gallery cannot be changed.
    pub tokens: Vec<Token>,
    /// Further tokens: a request that reads must carry one of these or of [`tokens`](Self::tokens). Empty: everybody who
    /// reaches the server may read.
    pub read_tokens: Vec<Token>,
    /// The certificate of the server; `None`: plain HTTP.
    pub tls: Option<Tls>,
    /// A file to which every change by a client is appended before it is made, as a line of JSON: the time, the client, the
    /// name of its token and what changes.
    pub audit: Option<PathBuf>,
    /// The number of images that are decoded and embedded at the same time; 0: one per core.
    pub threads: usize,
    /// The largest request body, in bytes.
    pub upload_bytes: usize,
    /// The largest number of results of a search.
    pub k: usize,
    /// The largest number of queries in one search.
    pub queries: usize,
    /// The time limit of a request, without the upload. Changes of items and reloads have none.
    pub time: Duration,
    /// The time limit for the headers of a request, and for its body.
    pub upload_time: Duration,
    /// The time limit for decoding an uploaded image.
    pub decode_time: Duration,
    /// The number of images that may wait to be decoded or embedded; further ones are refused.
    pub waiting: usize,
    /// Above this memory in bytes, the server says that it is not ready for requests (Linux). `None`: never.
    pub ready_memory: Option<u64>,
    /// The number of open connections; further ones wait to be accepted.
    pub connections: usize,
    /// The number of open connections of one client; further ones are closed. A client is an IPv4 address, or the first 64
    /// bits of an IPv6 address. Connections of [trusted proxies](Self::trusted_proxies) are not limited.
    pub client_connections: usize,
    /// The number of requests that one client may send per second, in bursts of five times as many; 0: no limit.
    pub client_requests: u32,
    /// The same for uploads and other requests that may run the network.
    pub client_uploads: u32,
    /// Reverse proxies whose header `X-Forwarded-For` names the client. Without them, all clients of a proxy are one.
    pub trusted_proxies: Vec<Network>,
    /// How long the server waits for the requests in progress when it stops.
    pub shutdown_time: Duration,
    /// The largest number of items for which failures, confusions and near-duplicates are computed. The time grows with
    /// the square of the number. With queries, and for near-duplicates of training images, the square limits the number of pairs.
    pub analysis_items: usize,
    /// The largest number of items whose map is computed by t-SNE. Larger galleries use principal components.
    pub tsne_items: usize,
    /// The size of the thumbnail cache in memory, in bytes.
    pub thumbnail_bytes: u64,
    /// A folder that keeps thumbnails for the next start.
    pub thumbnails: Option<PathBuf>,
    /// A folder that replaces the built-in files of the web page, for work on the page.
    pub assets: Option<PathBuf>,
    /// Receives messages for the operator of the server.
    pub note: fn(&str),
}

impl Options {
    /// Whether clients with a token may change the gallery.
    pub(crate) fn is_writable(&self) -> bool {
        !self.tokens.is_empty()
    }
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            hosts: Vec::new(),
            tokens: Vec::new(),
            read_tokens: Vec::new(),
            tls: None,
            audit: None,
            threads: 0,
            upload_bytes: 20 << 20,
            k: 1000,
            queries: 3,
            time: Duration::from_secs(30),
            upload_time: Duration::from_secs(60),
            decode_time: Duration::from_secs(5),
            waiting: 256,
            ready_memory: None,
            connections: 1024,
            client_connections: 256,
            client_requests: 0,
            client_uploads: 0,
            trusted_proxies: Vec::new(),
            shutdown_time: Duration::from_secs(10),
            analysis_items: 200_000,
            tsne_items: 60_000,
            thumbnail_bytes: 256 << 20,
            thumbnails: None,
            assets: None,
            note: |_| (),
        }
    }
}
