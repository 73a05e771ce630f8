//! The loop that takes connections.

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

/// Most bytes of a request's line and headers.
const HEADER_BYTES: usize = 64 << 10;

/// Bytes read from a connection at a time: the headers, and the beginning of what follows them.
const BUFFER_BYTES: usize = 128 << 10;

/// Most headers of a request.
const HEADERS: usize = 100;

/// A server that listens, and has not answered yet.
pub struct Server {
    listener: std::net::TcpListener,
    state: Arc<State>,
    stop: Stop,
}

/// Stops a server, from another thread or from the handler of a signal.
#[derive(Clone, Default)]
pub struct Stop(Arc<Notify>);

impl Stop {
    /// No more requests are taken; those that have begun are finished.
    pub fn now(&self) {
        self.0.notify_one();
    }
}

impl Server {
    /// Takes the address, so that what cannot be served is known before.
    ///
    /// # Errors
    /// When the address cannot be had, and when network, images or token do not fit the gallery.
    pub fn bind(contents: Contents, options: Options) -> Result<Self> {
        let address = options.address;
        let listen = || -> std::io::Result<_> {
            let listener = std::net::TcpListener::bind(address)?;
            listener.set_nonblocking(true)?;
            Ok(listener)
        };
        let listener =
            listen().map_err(|source| Error::Io { action: format!("listen on {address}"), source })?;
        let state = State::new(contents, options)?;
        Ok(Self { listener, state, stop: Stop::default() })
    }

    /// Where it listens: the port is known also where port 0 was asked for.
    ///
    /// # Errors
    /// When the system does not say.
    pub fn address(&self) -> Result<SocketAddr> {
        let action = || "ask for the address".to_owned();
        self.listener.local_addr().map_err(|source| Error::Io { action: action(), source })
    }

    /// What stops it.
    pub fn stop(&self) -> Stop {
        self.stop.clone()
    }

    /// Answers until it is [stopped](Self::stop).
    ///
    /// # Errors
    /// When the system gives no threads or no socket.
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
            let router = http::router(Arc::clone(&self.state));
            serve(listener, router, &self.state.options, &self.stop).await;
            Ok::<_, Error>(())
        })?;
        // A search that runs still is not waited for.
        runtime.shutdown_background();
        Ok(())
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
                // Out of sockets: wait for some to be closed.
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        // Small answers go at once.
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
            // The other side's faults are its own.
            let _ = connection.await;
            drop(permit);
        });
    }
    drop(listener);
    let _ = tokio::time::timeout(options.shutdown_time, graceful.shutdown()).await;
}
