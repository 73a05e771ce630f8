//! What a server allows.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// How a server listens, and what it allows. The defaults are for one machine.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where it listens; on this machine only, unless told otherwise.
    pub address: SocketAddr,
    /// Names under which it may be asked, beside its address and `localhost`: without this check a page
    /// from elsewhere could reach a server on this machine through a name that it points there.
    pub hosts: Vec<String>,
    /// What a change of the gallery must carry; without it nothing is changed.
    pub token: Option<String>,
    /// Images decoded and embedded at a time; 0: one per core.
    pub threads: usize,
    /// Most bytes of a request.
    pub upload_bytes: usize,
    /// Most results of a search.
    pub k: usize,
    /// Most queries of a search.
    pub queries: usize,
    /// Longest time for a request, uploading apart.
    pub time: Duration,
    /// Longest time for the headers of a request, and for its body.
    pub upload_time: Duration,
    /// Longest time for decoding an uploaded image.
    pub decode_time: Duration,
    /// Images that may wait for being decoded or embedded; more are refused.
    pub waiting: usize,
    /// Connections at a time; more wait for being taken.
    pub connections: usize,
    /// Time that requests are given to end when the server stops.
    pub shutdown_time: Duration,
    /// Most items for which the failures, the confusions and the near-duplicates are computed: the time
    /// grows with the square.
    pub analysis_items: usize,
    /// Most items whose map is made by t-SNE; that of more is made by principal components.
    pub tsne_items: usize,
    /// Bytes of thumbnails in memory.
    pub thumbnail_bytes: u64,
    /// A folder for thumbnails, for the next start.
    pub thumbnails: Option<PathBuf>,
    /// A folder from which the page is read instead of from the program: for work on the page.
    pub assets: Option<PathBuf>,
    /// Is told what the one who started the server should know.
    pub note: fn(&str),
}

impl Default for Options {
    fn default() -> Self {
        Self {
            address: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 8080),
            hosts: Vec::new(),
            token: None,
            threads: 0,
            upload_bytes: 20 << 20,
            k: 1000,
            queries: 3,
            time: Duration::from_secs(30),
            upload_time: Duration::from_secs(60),
            decode_time: Duration::from_secs(5),
            waiting: 256,
            connections: 1024,
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
