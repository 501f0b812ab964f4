//! Accepts connections, bounds their number and time, and shuts the gateway down. `flowgate serve` runs it, and
//! `connection` serves each accepted socket.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use flowgate::policy::Dialect;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};

use crate::config::ConfigLoader;
use crate::http::access::AccessControl;
use crate::http::admission::Admission;
use crate::http::connection::ConnectionServer;
use crate::http::service::GatewayService;
use crate::limits::ServerLimits;
use crate::log::{LogEvent, OperatorLog};
use crate::predicates::PredicateSources;
use crate::tls::reload::ServerTls;

/// The files that the process opens in addition to sockets.
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
    /// The services and modules that answer `extern` predicates of policies for the policy API.
    pub predicate_sources: PredicateSources,
    /// The configuration of the model routes, if they are served.
    pub models: Option<crate::config::GatewayConfig>,
    /// Reads that configuration again when it is reloaded, if that is possible.
    pub loader: Option<ConfigLoader>,
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
    /// It cannot open its database, its audit log or its webhook.
    Store(String),
    /// It cannot start its threads, or handle signals.
    Runtime(io::Error),
}

impl fmt::Display for ServeError {
    /// Writes the problem and, for an address, the option with which to choose another one.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) if error.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "{address} is in use by another program: choose another port, or 0 for any that is free, with `--listen`"
                )
            }
            Self::Listen(address, error) if error.kind() == io::ErrorKind::PermissionDenied => {
                write!(
                    f,
                    "there is no permission to listen on {address}: choose a port above 1023 with `--listen`"
                )
            }
            Self::Listen(address, error) if error.kind() == io::ErrorKind::AddrNotAvailable => {
                write!(
                    f,
                    "{address} is not an address of this machine: choose 127.0.0.1 for this machine alone, with `--listen`"
                )
            }
            Self::Listen(address, error) => {
                write!(f, "cannot listen on {address}: {error}; choose another address with `--listen`")
            }
            Self::Store(error) => f.write_str(error),
            Self::Runtime(error) => {
                write!(
                    f,
                    "the server cannot start its threads or handle signals: {error}; raise the limits of processes and open files (`ulimit -u`, `ulimit -n`)"
                )
            }
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
    tls: Option<Arc<ServerTls>>,
}

impl HttpServer {
    /// Listens on the address and opens the service, with its database and audit log. First raises the limit on the
    /// open files of this process, and warns if clients connect over a network without TLS.
    ///
    /// # Errors
    /// If the address is not available, or the service cannot be opened, such as when the database fails.
    pub async fn bind(config: ServeConfig) -> Result<Self, ServeError> {
        let ServeConfig { listen, dialect, access, predicate_sources, mut models, loader, limits, log } =
            config;
        raise_file_limit(&limits, &log);
        let tls = models.as_mut().and_then(|models| models.tls.take());
        let tls = tls.map(|settings| Arc::new(ServerTls::new(settings, log.clone())));
        if tls.is_none() && !listen.ip().is_loopback() {
            // The empty name: the line is about no single client.
            let sentence = "clients connect without TLS, so others in the network can read their keys and texts: write [tls] with certificate and \
                            key, or put a proxy with TLS in front";
            log.write(LogEvent::Remark, "", Vec::new(), sentence);
        }
        let failed = |error| ServeError::Listen(listen, error);
        let listener = TcpListener::bind(listen).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let service =
            GatewayService::open(dialect, access, predicate_sources, (models, loader), limits.clone(), log)
                .await;
        let service = service.map_err(|error| ServeError::Store(error.to_string()))?;
        Ok(Self { listener, address, service: Arc::new(service), limits, tls })
    }

    /// Reloads the configuration at each SIGHUP, until the server is dropped. Without a configuration file, the signal
    /// ends the process as usual. Fails if the system cannot report the signal to the process.
    #[cfg(unix)]
    fn reload_on_hangup(&self) -> io::Result<()> {
        use flowgate_audit::ConfigurationCause;
        use tokio::signal::unix::{SignalKind, signal};
        if !self.service.can_reload() {
            return Ok(());
        }
        let mut hangups = signal(SignalKind::hangup())?;
        let service = Arc::downgrade(&self.service);
        tokio::spawn(async move {
            while hangups.recv().await.is_some() {
                let Some(service) = service.upgrade() else { return };
                // The service logs the outcome.
                let _ = service.reload(ConfigurationCause::Signal).await;
            }
        });
        Ok(())
    }

    /// Returns the address that it listens on.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Makes a link by which a person of the configuration logs in to the page once, within five minutes. Returns the
    /// part of the link after the address of the gateway. `None` if there is no such person, or the system returned no
    /// random bytes.
    pub fn login_link(&self, person: &str) -> Option<String> {
        self.service.login_link(person)
    }

    /// Serves until `stop` resolves. Then accepts no more connections, ends the streams that would never end by
    /// themselves, and waits for the open connections and the running turns, at most for the time to drain. Finally
    /// signs the audit log and closes the database. Returns whether all connections and turns have ended (`Drained`),
    /// or the time to drain was over first (`Cut`).
    pub async fn run(self, stop: impl Future<Output = ()>) -> ShutdownOutcome {
        let admission = Admission::new(self.limits.connections, self.limits.connections_of_address);
        let (close, closing) = watch::channel(false);
        let connections =
            ConnectionServer::new(&self.service, self.limits.clone(), self.tls.clone(), closing);
        let mut stop = pin!(stop);
        loop {
            // At most one accepted connection waits for a place here; the others wait in the kernel. Connections of an
            // address at its bound wait in tasks of their own.
            let accepted = async {
                let (stream, peer) = loop {
                    let (stream, peer) = self.listener.accept().await?;
                    if !admission.is_crowded(peer.ip()) {
                        break (stream, peer);
                    }
                    self.queue_connection(stream, peer.ip(), &admission, &connections);
                };
                // Called if another connection was closed to make room for this one.
                let closed = || self.service.note_closed(self.limits.connections);
                Ok::<_, io::Error>((stream, admission.acquire_place(peer.ip(), closed).await))
            };
            let accepted = tokio::select! {
                biased;
                () = &mut stop => break,
                accepted = accepted => accepted,
            };
            match accepted {
                Ok((stream, place)) => {
                    let connections = connections.clone();
                    tokio::spawn(async move { connections.serve(stream, place).await });
                }
                // The process is out of file descriptors, or the client has disconnected. Without the pause, the loop
                // would use a whole core until a descriptor is free.
                Err(_) => sleep(Duration::from_millis(20)).await,
            }
        }
        drop(self.listener);
        self.service.close();
        // Cannot fail: `connections` holds a receiver.
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

    /// Serves a connection of an address at its bound, in a task of its own: waits until the address has room, within
    /// the time for the head of a request, and then serves the connection. Closes it if there is no room in time, or
    /// too many connections wait already.
    fn queue_connection(
        &self,
        stream: TcpStream,
        peer: IpAddr,
        admission: &Arc<Admission>,
        connections: &ConnectionServer,
    ) {
        let address_limit = self.limits.connections_of_address;
        let Some(waiting_place) = admission.reserve_waiting_place(peer) else {
            self.service.note_crowded("a new connection was closed at once", address_limit);
            return;
        };
        let (service, head_time) = (Arc::clone(&self.service), self.limits.head_time);
        let (admission, connections) = (Arc::clone(admission), connections.clone());
        tokio::spawn(async move {
            let effect = "the slowest of its connections without a valid key was closed for another one";
            let acquired = admission.acquire_place(peer, || service.note_crowded(effect, address_limit));
            let place = tokio::select! {
                biased;
                () = connections.wait_until_closing() => return,
                place = timeout(head_time, acquired) => place,
            };
            // The connection no longer waits.
            drop(waiting_place);
            match place {
                Ok(place) => connections.serve(stream, place).await,
                Err(_) => service.note_crowded(
                    "a new connection was closed, since no place became free for it in time",
                    address_limit,
                ),
            }
        });
    }
}

/// Raises the limit on open files to what the server may need, and warns the operator if the system allows fewer.
/// Each turn may take a socket for the client and one for the model's server.
fn raise_file_limit(limits: &ServerLimits, log: &OperatorLog) {
    let wanted = u64::try_from(limits.connections.saturating_mul(2)).unwrap_or(u64::MAX);
    match rlimit::increase_nofile_limit(wanted.saturating_add(OTHER_FILES)) {
        Ok(most) if most < wanted => {
            let sentence = format!(
                "the process may open at most {most} files, but --max-connections can require {wanted}: raise the limit (ulimit -n), or lower --max-connections"
            );
            // The empty name: the line is about no single client.
            log.write(LogEvent::Remark, "", Vec::new(), &sentence);
        }
        // The limit suffices, or the system has no such limit.
        Ok(_) | Err(_) => {}
    }
}

/// Runs a server on its own threads until Ctrl-C or SIGTERM; a second signal cuts open requests off. Calls `ready`
/// with the server as soon as it listens.
///
/// # Errors
/// If it cannot start.
pub fn serve(config: ServeConfig, ready: impl FnOnce(&HttpServer)) -> Result<ShutdownOutcome, ServeError> {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    // Half of the cores, unless the operator sets the variable that `tokio` reads: sockets take a small part of the
    // time, and more threads would only wake each other. Turns run on threads of their own.
    if std::env::var_os("TOKIO_WORKER_THREADS").is_none() {
        runtime
            .worker_threads(std::thread::available_parallelism().map_or(1, |cores| cores.get().div_ceil(2)));
    }
    let runtime = runtime.enable_all().build().map_err(ServeError::Runtime)?;
    let ended = runtime.block_on(async {
        // Before the address is published: a program that knows it may also send the signal.
        let mut signals = ShutdownSignals::new().map_err(ServeError::Runtime)?;
        let server = HttpServer::bind(config).await?;
        #[cfg(unix)]
        server.reload_on_hangup().map_err(ServeError::Runtime)?;
        ready(&server);
        let (stop_sender, stop_requested) = oneshot::channel::<()>();
        let mut running = pin!(server.run(async {
            // The sender is not dropped before the server ends, so this is no error.
            let _ = stop_requested.await;
        }));
        tokio::select! {
            ended = running.as_mut() => return Ok(ended),
            () = signals.next() => {}
        }
        // Fails only if the server has ended by itself.
        let _ = stop_sender.send(());
        tokio::select! {
            ended = running => Ok(ended),
            // A second signal means that the operator does not want to wait.
            () = signals.next() => Ok(ShutdownOutcome::Cut),
        }
    });
    // Does not wait for evaluations whose requests were abandoned.
    runtime.shutdown_background();
    ended
}

/// Ctrl-C and SIGTERM.
#[cfg(unix)]
struct ShutdownSignals {
    interrupt: tokio::signal::unix::Signal,
    terminate: tokio::signal::unix::Signal,
}

#[cfg(unix)]
impl ShutdownSignals {
    /// Registers the handlers of the signals.
    fn new() -> io::Result<Self> {
        use tokio::signal::unix::{SignalKind, signal};
        Ok(Self { interrupt: signal(SignalKind::interrupt())?, terminate: signal(SignalKind::terminate())? })
    }

    /// Waits for the next of the two signals: Ctrl-C, which is SIGINT, or SIGTERM.
    async fn next(&mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
        }
    }
}

/// Ctrl-C.
#[cfg(not(unix))]
struct ShutdownSignals;

#[cfg(not(unix))]
impl ShutdownSignals {
    /// Cannot fail: nothing is registered before the wait.
    fn new() -> io::Result<Self> {
        Ok(Self)
    }

    /// Waits for the next Ctrl-C.
    async fn next(&mut self) {
        let _ = tokio::signal::ctrl_c().await;
    }
}
