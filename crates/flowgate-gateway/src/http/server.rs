//! Sockets: accepts connections, bounds their number and time, and shuts the server down.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use flowgate::policy::Dialect;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::http::access::AccessControl;
use crate::http::admission::{Admission, ConnectionSlot};
use crate::http::service::GatewayService;
use crate::http::write_timeout::WriteTimeout;
use crate::limits::ServerLimits;
use crate::log::{LogEvent, OperatorLog};
use crate::predicates::PredicateSources;

/// The most header fields of a request.
const MAX_FIELDS: usize = 64;
/// The most bytes of a request's head.
const MAX_HEAD: usize = 32 << 10;

/// The files that the process opens beside sockets.
const OTHER_FILES: u64 = 256;

/// The configuration of a server.
#[derive(Debug)]
pub struct ServeConfig {
    /// The address to listen on; port 0 takes any free port.
    pub listen: SocketAddr,
    /// The dialect of policies.
    pub dialect: Dialect,
    /// The callers that may send requests.
    pub access: AccessControl,
    /// The service that answers `extern` predicates of policies.
    pub asker: PredicateSources,
    /// The configuration of the model routes, if they are served.
    pub models: Option<crate::config::GatewayConfig>,
    /// The bounds on what a client can make the server do.
    pub limits: ServerLimits,
    /// The operator's log.
    pub log: OperatorLog,
}

/// The reason why a server cannot run.
#[derive(Debug)]
pub enum ServeError {
    /// It cannot listen on the address.
    Listen(SocketAddr, io::Error),
    /// It cannot open its store.
    Store(String),
    /// It cannot start its threads, or handle signals.
    Runtime(io::Error),
}

impl fmt::Display for ServeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "{address} is taken by another program: choose another port, or 0 for any that is free, with --listen"
                )
            }
            Self::Listen(address, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(f, "{address} may not be listened on: choose a port above 1023 with --listen")
            }
            Self::Listen(address, error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                write!(
                    f,
                    "{address} is not an address of this machine: choose 127.0.0.1 for this machine alone, with --listen"
                )
            }
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Store(error) => f.write_str(error),
            Self::Runtime(error) => write!(f, "the server cannot run: {error}"),
        }
    }
}

impl std::error::Error for ServeError {}

/// The outcome of a shutdown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutdownOutcome {
    /// Every request was answered.
    Drained,
    /// Some connections were still open, or some turns still ran, when the time to drain was over.
    Cut,
}

/// A listening server.
#[derive(Debug)]
pub struct HttpServer {
    listener: TcpListener,
    address: SocketAddr,
    service: Arc<GatewayService>,
    limits: ServerLimits,
}

impl HttpServer {
    /// Opens the service and listens.
    ///
    /// # Errors
    /// If the address or the store is not available.
    pub async fn bind(config: ServeConfig) -> Result<Self, ServeError> {
        let ServeConfig { listen, dialect, access, asker, models, limits, log } = config;
        raise_file_limit(&limits, &log);
        let failed = |error| ServeError::Listen(listen, error);
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let service = GatewayService::open(dialect, access, asker, models, limits.clone(), log).await;
        let service = service.map_err(|error| ServeError::Store(error.to_string()))?;
        Ok(Self { listener, address, service: Arc::new(service), limits })
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until `stop`; then accepts no more connections, and drains those that are open.
    pub async fn run(self, stop: impl Future<Output = ()>) -> ShutdownOutcome {
        let admission = Admission::new(self.limits.connections, self.limits.connections_of_address);
        let router = self.service.router();
        let (close, closing) = watch::channel(false);
        let mut stop = pin!(stop);
        loop {
            // One connection is accepted before it has a slot; the others wait in the kernel.
            let accepted = async {
                let (stream, peer) = loop {
                    let (stream, peer) = self.listener.accept().await?;
                    if !admission.is_crowded(peer.ip()) {
                        break (stream, peer);
                    }
                    self.queue_connection(stream, peer.ip(), &admission, &router, &closing);
                };
                let closed = || self.service.note_closed(self.limits.connections);
                Ok::<_, io::Error>((stream, admission.acquire_slot(peer.ip(), closed).await))
            };
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accepted => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    let (service, limits) = (Arc::clone(&self.service), self.limits.clone());
                    tokio::spawn(serve_slot(stream, place, service, router.clone(), limits, closing.clone()));
                }
                // The process is out of file descriptors, or the client has disconnected.
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
        drop(self.listener);
        self.service.close();
        let _ = close.send(true);
        let drained = async {
            admission.wait_until_empty().await;
            // A turn may still write after the client has read the end of its stream.
            self.service.wait_for_turns().await;
        };
        let ended = match timeout(self.limits.drain_time, drained).await {
            Ok(()) => ShutdownOutcome::Drained,
            Err(_) => ShutdownOutcome::Cut,
        };
        self.service.finish().await;
        ended
    }

    /// Serves a connection when others of its address have made room, if they do in time. It delays no other
    /// connection.
    fn queue_connection(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        admission: &Arc<Admission>,
        router: &Router,
        closing: &watch::Receiver<bool>,
    ) {
        let most = self.limits.connections_of_address;
        let Some(aside) = admission.wait_for_address(peer) else {
            self.service.note_crowded("a new connection was closed at once", most);
            return;
        };
        let (service, limits, admission) =
            (Arc::clone(&self.service), self.limits.clone(), Arc::clone(admission));
        let (router, closing) = (router.clone(), closing.clone());
        tokio::spawn(async move {
            let effect = "the slowest of its connections without a valid key was closed for another one";
            let entered = admission.acquire_slot(peer, || service.note_crowded(effect, most));
            let mut ends = closing.clone();
            let place = tokio::select! {
                biased;
                _ = ends.wait_for(|ends| *ends) => return,
                place = timeout(limits.head_time, entered) => place,
            };
            drop(aside);
            match place {
                Ok(place) => serve_slot(stream, place, service, router, limits, closing).await,
                Err(_) => service.note_crowded("a new connection was closed, since none made room", most),
            }
        });
    }
}

/// Lets the process open as many files as the system allows it, and tells the operator if those are too few: each turn
/// may take a socket for the client and one for the model's server.
fn raise_file_limit(limits: &ServerLimits, log: &OperatorLog) {
    let wanted = u64::try_from(limits.connections.saturating_mul(2)).unwrap_or(u64::MAX);
    match rlimit::increase_nofile_limit(wanted.saturating_add(OTHER_FILES)) {
        Ok(most) if most < wanted => {
            let sentence = format!(
                "the process may open {most} files, and --max-connections may take {wanted}: raise the limit (ulimit -n), or lower --max-connections"
            );
            log.write(LogEvent::Remark, "", Vec::new(), &sentence);
        }
        // A system without such a limit has none to raise.
        Ok(_) | Err(_) => {}
    }
}

/// Serves a connection that has a slot, until it ends or is closed for another one.
async fn serve_slot(
    stream: TcpStream,
    (place, told): (Arc<ConnectionSlot>, oneshot::Receiver<()>),
    service: Arc<GatewayService>,
    router: Router,
    limits: ServerLimits,
    closing: watch::Receiver<bool>,
) {
    let counted = service.count_connection();
    tokio::select! {
        biased;
        // The sender is dropped when the connection is kept.
        Ok(()) = told => {}
        () = serve_connection(stream, router, limits, closing, Arc::clone(&place)) => {}
    }
    drop((counted, place));
}

/// Passes the slot of the connection to its requests.
#[derive(Debug)]
struct SlotService {
    service: TowerToHyperService<Router>,
    place: Arc<ConnectionSlot>,
}

impl hyper::service::Service<hyper::Request<hyper::body::Incoming>> for SlotService {
    type Response = <TowerToHyperService<Router> as hyper::service::Service<
        hyper::Request<hyper::body::Incoming>,
    >>::Response;
    type Error = <TowerToHyperService<Router> as hyper::service::Service<
        hyper::Request<hyper::body::Incoming>,
    >>::Error;
    type Future = <TowerToHyperService<Router> as hyper::service::Service<
        hyper::Request<hyper::body::Incoming>,
    >>::Future;

    fn call(&self, mut request: hyper::Request<hyper::body::Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.place));
        self.service.call(request)
    }
}

/// Serves one connection until it ends, stalls, or the server stops.
async fn serve_connection(
    stream: TcpStream,
    router: Router,
    limits: ServerLimits,
    mut closing: watch::Receiver<bool>,
    place: Arc<ConnectionSlot>,
) {
    let _ = stream.set_nodelay(true);
    let stream = TokioIo::new(WriteTimeout::new(stream, limits.write_time).reporting_to(Arc::clone(&place)));
    let service = SlotService { service: TowerToHyperService::new(router), place };
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head_time)
        .max_headers(MAX_FIELDS)
        .max_buf_size(MAX_HEAD)
        .serve_connection(stream, service);
    let mut connection = pin!(connection);
    tokio::select! {
        // A client may disconnect at any time; that is no error.
        _ = connection.as_mut() => return,
        _ = closing.wait_for(|closing| *closing) => {}
    }
    connection.as_mut().graceful_shutdown();
    let _ = connection.await;
}

/// Runs a server on its own threads until Ctrl-C or SIGTERM; a second signal cuts open requests off. Calls `ready`
/// with the address as soon as it listens.
///
/// # Errors
/// If it cannot start.
pub fn serve(config: ServeConfig, ready: impl FnOnce(SocketAddr)) -> Result<ShutdownOutcome, ServeError> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Sockets take a small part of the time, and the threads that serve them wake each other. Turns have threads of
    // their own.
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        runtime
            .worker_threads(std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)));
    }
    let runtime = runtime.enable_all().build().map_err(ServeError::Runtime)?;
    let ended = runtime.block_on(async {
        // Before the address is published: a program that knows it may also send the signal.
        let mut signals = Signals::new().map_err(ServeError::Runtime)?;
        let server = HttpServer::bind(config).await?;
        ready(server.address());
        let (stop, stopped) = oneshot::channel::<()>();
        let mut running = pin!(server.run(async {
            let _ = stopped.await;
        }));
        tokio::select! {
            ended = running.as_mut() => return Ok(ended),
            () = signals.next() => {}
        }
        let _ = stop.send(());
        tokio::select! {
            ended = running => Ok(ended),
            // A second signal means that the operator does not want to wait.
            () = signals.next() => Ok(ShutdownOutcome::Cut),
        }
    });
    // Evaluations of abandoned requests are not awaited.
    runtime.shutdown_background();
    ended
}

/// Ctrl-C and SIGTERM.
#[cfg(unix)]
struct Signals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl Signals {
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct Signals;

#[cfg(not(unix))]
impl Signals {
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
