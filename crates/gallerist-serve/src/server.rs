//! The loop that accepts connections.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;
use tokio::sync::{Notify, Semaphore};

use crate::state::{Contents, State};
use crate::{Error, Options, Result, http};

/// The largest request line and headers, in bytes.
const HEADER_BYTES: usize = 64 << 10;

/// Bytes read from a connection at a time: the headers and the start of the body.
const BUFFER_BYTES: usize = 128 << 10;

/// The largest number of headers of a request.
const HEADERS: usize = 100;

/// A server that is bound to its address and does not answer yet.
pub struct Server {
    listener: std::net::TcpListener,
    states: Vec<Arc<State>>,
    stop: Stop,
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
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener =
            listen().map_err(|source| Error::Io { action: format!("listen on {address}"), source })?;
        let states = State::all(galleries, options)?;
        Ok(Self { listener, states, stop: Stop::default() })
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
        runtime.block_on(async {
            let listener = TcpListener::from_std(self.listener).map_err(failed("listen"))?;
            let router = http::galleries(&self.states);
            serve(listener, router, &self.states[0].options, &self.stop).await;
            Ok::<_, Error>(())
        })?;
        // A search that still runs is not waited for.
        runtime.shutdown_background();
        Ok(())
    }

    /// Answers until the process receives Ctrl-C, SIGTERM or SIGHUP, then stops as [`Stop::now`] does.
    ///
    /// The handler of these signals belongs to the whole process. Where the program has installed one already, that one
    /// stays, and [`Options::note`] is called.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    pub fn run_until_signal(self) -> Result<()> {
        let stop = self.stop();
        if let Err(error) = ctrlc::set_handler(move || stop.now()) {
            (self.states[0].options.note)(&format!("requests will not be finished on Ctrl-C: {error}"));
        }
        self.run()
    }
}

async fn serve(listener: TcpListener, router: Router, options: &Options, stop: &Stop) {
    let connections = Arc::new(Semaphore::new(options.connections));
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
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(_) => {
                // No free sockets: wait until some are closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Small answers are sent at once.
        let _ = stream.set_nodelay(true);
        let connection = hyper::server::conn::http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(options.upload_time)
            .max_buf_size(BUFFER_BYTES)
            .max_header_size(HEADER_BYTES)
            .max_headers(HEADERS)
            .serve_connection(TokioIo::new(stream), TowerToHyperService::new(router.clone()));
        let connection = graceful.watch(connection);
        tokio::spawn(async move {
            // Faults of the client are not reported.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(options.shutdown_time, graceful.shutdown()).await;
}
