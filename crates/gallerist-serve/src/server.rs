//! The loop that accepts connections.

use std::net::SocketAddr;
use std::sync::{Arc, Weak};
use std::time::Duration;

use axum::Router;
use axum::http::HeaderValue;
use hyper::Request;
use hyper::body::Incoming;
use hyper::service::{Service, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use hyper_util::service::TowerToHyperService;
use socket2::{Domain, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};

use crate::client::Peer;
use crate::http::Galleries;
use crate::limits::Connections;
use crate::reload::Reloader;
use crate::reloaded::Reloaded;
use crate::state::{Contents, Shared, State};
use crate::{Error, Options, Result};

/// The largest request line and headers, in bytes.
const HEADER_BYTES: usize = 64 << 10;

/// Bytes read from a connection at a time: the headers and the start of the body.
const BUFFER_BYTES: usize = 128 << 10;

/// The largest number of headers of a request.
const HEADERS: usize = 100;

/// Connections that wait to be accepted. Beyond them, the system lets clients try again after a second: with the 128 of the
/// standard library, a flood of connections delays all clients.
const BACKLOG: i32 = 4096;

/// How often freed memory is given back to the system. Uploads of large images leave much of it on the threads that decoded them.
const TIDY: Duration = Duration::from_secs(10);

/// A server that is bound to its address and does not answer yet.
pub struct Server {
    listener: std::net::TcpListener,
    states: Vec<Arc<State>>,
    shared: Shared,
    galleries: Arc<Galleries>,
    options: Options,
    reloader: Option<Arc<Reloader>>,
    stop: Stop,
    /// Whether signals end it.
    signals: bool,
}

/// Stops a server, from another thread or from a signal handler.
#[derive(Clone, Default)]
pub struct Stop(Arc<Notify>);

impl Stop {
    /// Ends [`Server::run`]. The server accepts no more connections and finishes the requests in progress, within
    /// [`Options::shutdown_time`].
    pub fn now(&self) {
        self.0.notify_one();
    }
}

impl Server {
    /// Checks `contents` and binds the address, so that every fault of either is known before the server runs.
    ///
    /// # Errors
    /// When the address is not available, and when network, images or token do not fit the gallery.
    pub fn bind(contents: Contents, options: Options) -> Result<Self> {
        let name = contents.gallery.short_name();
        Self::bind_all(vec![(name, contents)], options)
    }

    /// As [`bind`](Self::bind), for several galleries by their names. The parameter `gallery` of a request chooses one;
    /// without it the first answers. Limits are those of all galleries together.
    ///
    /// # Errors
    /// As [`bind`](Self::bind), with the name of the gallery; and for no gallery, an empty name, and a name that is given
    /// twice.
    pub fn bind_all(galleries: Vec<(String, Contents)>, options: Options) -> Result<Self> {
        let address = options.address;
        let listen = || -> std::io::Result<_> {
            let socket = Socket::new(Domain::for_address(address), Type::STREAM, None)?;
            // A restarted server does not wait for the connections of the old one to be forgotten.
            #[cfg(unix)]
            socket.set_reuse_address(true)?;
            socket.bind(&address.into())?;
            socket.listen(BACKLOG)?;
            socket.set_nonblocking(true)?;
            Ok(std::net::TcpListener::from(socket))
        };
        let listener =
            listen().map_err(|source| Error::Io { action: format!("listen on {address}"), source })?;
        let (states, shared) = State::all(galleries, &options)?;
        let galleries = Arc::new(Galleries::new(&states));
        let stop = Stop::default();
        Ok(Self { listener, states, shared, galleries, options, reloader: None, stop, signals: false })
    }

    /// Lets the galleries be opened again while the server runs: by [`Reload::now`], by clients with the token
    /// (`POST /api/v1/reload`), and by SIGHUP in [`run_until_signal`](Self::run_until_signal). `reopen` opens a gallery by
    /// its name on the server.
    #[must_use]
    pub fn with_reopen(self, reopen: impl Fn(&str) -> Result<Contents> + Send + Sync + 'static) -> Self {
        let Self { shared, galleries, options, states, .. } = &self;
        let (galleries, options) = (Arc::clone(galleries), options.clone());
        let reloader = Reloader::new(Box::new(reopen), galleries, shared.clone(), options, states.clone());
        let reloader = Arc::new(reloader);
        let reload = Reload(Arc::downgrade(&reloader));
        // The first way to open galleries remains.
        if shared.reload.set(Arc::new(move |all, only| reload.of(all, only))).is_err() {
            return self;
        }
        // The reloader alone keeps the states: an old one is released when its last request is answered.
        Self { reloader: Some(reloader), states: Vec::new(), ..self }
    }

    /// A handle that opens galleries again; `None` without [`with_reopen`](Self::with_reopen).
    pub fn reload(&self) -> Option<Reload> {
        self.reloader.as_ref().map(|reloader| Reload(Arc::downgrade(reloader)))
    }

    /// The address the server listens on. Where [`Options::address`] has port 0, this is the port that the system
    /// chose.
    ///
    /// # Errors
    /// When the system does not name it.
    pub fn address(&self) -> Result<SocketAddr> {
        let action = || "ask for the address".to_owned();
        self.listener.local_addr().map_err(|source| Error::Io { action: action(), source })
    }

    /// The address as a URL, for example `https://127.0.0.1:8080`.
    ///
    /// # Errors
    /// As [`address`](Self::address).
    pub fn url(&self) -> Result<String> {
        let scheme = if self.options.tls.is_some() { "https" } else { "http" };
        Ok(format!("{scheme}://{}", self.address()?))
    }

    /// A handle that stops the server.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Answers until it is [stopped](Self::stop).
    ///
    /// # Errors
    /// When the system provides no threads or no socket.
    pub fn run(self) -> Result<()> {
        let failed = |action: &str| {
            let action = action.to_owned();
            |source| Error::Io { action, source }
        };
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .map_err(failed("start threads"))?;
        let reload = self.reload();
        runtime.block_on(async {
            let listener = TcpListener::from_std(self.listener).map_err(failed("listen"))?;
            if self.signals {
                let (stop, note) = (self.stop.clone(), self.options.note);
                tokio::spawn(async move {
                    if let Err(error) = follow_signals(stop, reload).await {
                        note(&format!("requests will not be finished on Ctrl-C: {error}"));
                    }
                });
            }
            tokio::spawn(async {
                loop {
                    tokio::time::sleep(TIDY).await;
                    // It may take the time of several requests.
                    drop(tokio::task::spawn_blocking(gallerist_util::memory::release_free).await);
                }
            });
            let router = Arc::clone(&self.galleries).router();
            serve(listener, router, &self.shared, &self.options, &self.stop).await;
            Ok::<_, Error>(())
        })?;
        // A search that still runs is not waited for.
        runtime.shutdown_background();
        Ok(())
    }

    /// Answers until the process receives Ctrl-C or SIGTERM, then stops as [`Stop::now`] does. SIGHUP opens galleries again
    /// whose files have changed, where [`with_reopen`](Self::with_reopen) says how; otherwise it stops the server, too.
    ///
    /// The signals are those of the whole process. Handlers that the program has installed are called as well.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until_signal(self) -> Result<()> {
        Self { signals: true, ..self }.run()
    }
}

/// Opens the galleries of a running server again. Does nothing once the server has ended.
#[derive(Clone)]
pub struct Reload(Weak<Reloader>);

impl Reload {
    /// Opens the galleries whose files have changed, or with `all` every one. Requests in progress are answered with the old
    /// galleries. A gallery that cannot be opened stays as it was. The results are also [notes](Options::note).
    ///
    /// Returns when the new galleries answer. Their analysis is computed in the background.
    pub fn now(&self, all: bool) -> Vec<Reloaded> {
        self.of(all, None)
    }

    /// [`now`](Self::now) for one gallery.
    fn of(&self, all: bool, only: Option<&str>) -> Vec<Reloaded> {
        self.0.upgrade().map_or_else(Vec::new, |reloader| reloader.reload(all, only))
    }
}

/// Stops the server on Ctrl-C and SIGTERM, and opens galleries again on SIGHUP.
#[cfg(unix)]
async fn follow_signals(stop: Stop, reload: Option<Reload>) -> std::io::Result<()> {
    use tokio::signal::unix::{SignalKind, signal};

    let [mut interrupt, mut terminate, mut hang_up] =
        [signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?];
    loop {
        tokio::select! {
            _ = interrupt.recv() => stop.now(),
            _ = terminate.recv() => stop.now(),
            _ = hang_up.recv() => match reload.clone() {
                // A reload that waits for another one finds nothing left to do.
                Some(reload) => drop(tokio::task::spawn_blocking(move || reload.now(false))),
                None => stop.now(),
            },
        }
    }
}

#[cfg(not(unix))]
async fn follow_signals(stop: Stop, _: Option<Reload>) -> std::io::Result<()> {
    loop {
        tokio::signal::ctrl_c().await?;
        stop.now();
    }
}

async fn serve(listener: TcpListener, router: Router, shared: &Shared, options: &Options, stop: &Stop) {
    let connections = Arc::new(Semaphore::new(options.connections));
    let of_clients = Connections::default();
    let graceful = GracefulShutdown::new();
    loop {
        let taken = async {
            let permit = Arc::clone(&connections).acquire_owned().await;
            (listener.accept().await, permit)
        };
        let (accepted, permit) = tokio::select! {
            taken = taken => taken,
            () = stop.0.notified() => break,
        };
        let (stream, address) = match accepted {
            Ok(accepted) => accepted,
            Err(_) => {
                // No free sockets: wait until some are closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let peer = Peer::of(address);
        let is_proxy = options.trusted_proxies.iter().any(|network| network.contains(peer.0));
        let most = if is_proxy { usize::MAX } else { options.client_connections };
        let Some(counted) = of_clients.open(peer, most) else {
            shared.metrics.connections_refused.inc();
            continue;
        };
        let open = shared.metrics.connections.clone();
        open.inc();
        // Small answers are sent at once.
        let _ = stream.set_nodelay(true);
        let answering = Answering {
            router: router.clone(),
            peer,
            watcher: graceful.watcher(),
            limit: options.upload_time,
        };
        let acceptor = shared.certificate.as_ref().map(|certificate| certificate.acceptor());
        tokio::spawn(async move {
            match acceptor {
                None => answering.answer(stream, false).await,
                Some(acceptor) => {
                    let stream = tokio::time::timeout(answering.limit, acceptor.accept(stream)).await;
                    if let Ok(Ok(stream)) = stream {
                        answering.answer(stream, true).await;
                    }
                }
            }
            open.dec();
            drop((permit, counted));
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(options.shutdown_time, graceful.shutdown()).await;
}

/// What a connection is answered with.
struct Answering {
    router: Router,
    peer: Peer,
    watcher: Watcher,
    /// The time limit for headers.
    limit: Duration,
}

impl Answering {
    async fn answer(self, stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static, is_secure: bool) {
        let Self { router, peer, watcher, limit } = self;
        let router = TowerToHyperService::new(router);
        let service = service_fn(move |mut request: Request<Incoming>| {
            request.extensions_mut().insert(peer);
            if is_secure {
                // As a proxy that terminates TLS.
                request.headers_mut().insert("x-forwarded-proto", HeaderValue::from_static("https"));
            }
            router.call(request)
        });
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(limit)
            .max_buf_size(BUFFER_BYTES)
            .max_header_size(HEADER_BYTES)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(stream), service);
        // Faults of the client are not reported.
        let _ = watcher.watch(connection).await;
    }
}
