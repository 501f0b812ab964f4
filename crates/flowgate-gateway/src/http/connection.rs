//! Serves one connection that `server` has accepted: performs the TLS handshake if the gateway has a certificate,
//! recognises HTTP/1.1 or HTTP/2, and hands the requests to `connection_service`.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::{http1, http2};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::timeout;

use crate::http::admission::ConnectionPlace;
use crate::http::connection_service::{ConnectionService, MAX_FIELDS};
use crate::http::handshake;
use crate::http::peek::first_bytes;
use crate::http::service::GatewayService;
use crate::http::stream_progress::StreamExecutor;
use crate::http::write_timeout::WriteTimeout;
use crate::limits::ServerLimits;
use crate::tls::client_certificate::ClientCertificate;
use crate::tls::files::HTTP2_PROTOCOL;
use crate::tls::reload::ServerTls;

/// The most bytes of a request's head.
const MAX_HEAD: u32 = 32 << 10;
/// The first bytes of every connection of HTTP/2, with which no request of HTTP/1.1 begins.
const HTTP2_BEGIN: [u8; 4] = *b"PRI ";
/// The most streams of a connection of HTTP/2 that are open at the same time.
const MAX_STREAMS: u32 = 128;
/// The bytes that a client may send on one stream before they are read.
const STREAM_WINDOW: u32 = 256 << 10;
/// The bytes that a client may send on all streams of a connection before they are read.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// The bytes of an answer that wait for the client on one stream.
const SEND_BUFFER: usize = 64 << 10;
/// The most streams that a client may reset before the gateway has seen them.
const MAX_PENDING_RESETS: usize = 20;
/// The most streams of a connection that the gateway resets because of errors of the client.
const MAX_STREAM_ERRORS: usize = 100;
/// The interval of the pings by which the gateway notices that a client of HTTP/2 is gone.
const PING_INTERVAL: Duration = Duration::from_secs(30);

/// Serves connections, with what all of them share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionServer {
    service: Arc<GatewayService>,
    router: Router,
    limits: Arc<ServerLimits>,
    tls: Option<Arc<ServerTls>>,
    /// Becomes true when the server stops.
    closing: watch::Receiver<bool>,
}

impl ConnectionServer {
    /// Builds the routes once, for all connections. Without `tls`, clients connect without TLS. `closing` becomes true
    /// when the server stops.
    pub(crate) fn new(
        service: &Arc<GatewayService>,
        limits: ServerLimits,
        tls: Option<Arc<ServerTls>>,
        closing: watch::Receiver<bool>,
    ) -> Self {
        Self {
            service: Arc::clone(service),
            router: service.router(),
            limits: Arc::new(limits),
            tls,
            closing,
        }
    }

    /// Waits until the server begins to stop.
    pub(crate) async fn wait_until_closing(&self) {
        // Fails if the server was dropped without a stop, which ends the wait as well.
        let _ = self.closing.clone().wait_for(|closing| *closing).await;
    }

    /// Serves the connection on `stream` until it ends, or is closed to make room for another one: then `must_close`
    /// receives a message. `place` is its place among the open connections.
    pub(crate) async fn serve(
        &self,
        stream: TcpStream,
        (place, must_close): (Arc<ConnectionPlace>, oneshot::Receiver<()>),
    ) {
        // Counts the connection in the metrics. This and the place are held until the connection ends.
        let counted = self.service.count_connection();
        tokio::select! {
            biased;
            // Once the client has shown a valid key, the connection is not closed for another one: the sender is
            // dropped, the receiver returns an error, and this branch is disabled.
            Ok(()) = must_close => {}
            () = self.serve_socket(stream, &place) => {}
        }
        drop((counted, place));
    }

    /// Serves a socket until its connection ends. With TLS, performs the handshake first, which also decides between
    /// HTTP/1.1 and HTTP/2; a failed handshake is logged and ends the connection. `place` is the connection's place
    /// among the open ones.
    async fn serve_socket(&self, stream: TcpStream, place: &Arc<ConnectionPlace>) {
        // Small parts of streams are sent at once. A socket without this option only delays them.
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            return self.serve_plain(stream, place).await;
        };
        // Fails if the client has disconnected already.
        let peer = stream.peer_addr().ok().map(|address| address.ip().to_canonical());
        let accepted = tokio::select! {
            biased;
            () = self.wait_until_closing() => return,
            accepted = handshake::accept(stream, tls, place, &self.limits) => accepted,
        };
        match accepted {
            Ok(stream) => {
                let session = stream.get_ref().1;
                // The certificate of the client itself precedes those of the authorities that signed it.
                let presented = session.peer_certificates().and_then(|chain| chain.first());
                let certificate = presented.map(|first| Arc::new(ClientCertificate::of(first)));
                let is_http2 = session.alpn_protocol() == Some(HTTP2_PROTOCOL);
                self.serve_requests(stream, is_http2, place, certificate).await;
            }
            Err(error) => self.service.note_handshake(error, peer),
        }
    }

    /// Serves a connection without TLS, as HTTP/2 if its first bytes are those of HTTP/2, otherwise as HTTP/1.1. Closes
    /// a connection that sends nothing within the time for the head of a request. From the first byte on, a client that
    /// accepts nothing of an answer for the write time also loses the connection.
    async fn serve_plain(&self, stream: TcpStream, place: &Arc<ConnectionPlace>) {
        let begin = first_bytes(&stream, place);
        let is_http2 = tokio::select! {
            biased;
            () = self.wait_until_closing() => return,
            begin = timeout(self.limits.head_time, begin) => match begin {
                // The second part is the number of bytes that have arrived. They stay in the socket for the library.
                Ok(Ok((begin, 1..))) => begin == HTTP2_BEGIN,
                // The time is over, the socket failed, or the client has sent nothing and closed its side.
                _ => return,
            },
        };
        let stream = WriteTimeout::new(stream, self.limits.write_time).reporting_to(Arc::clone(place));
        // `None`: without TLS, the client shows no certificate.
        self.serve_requests(stream, is_http2, place, None).await;
    }

    /// Serves the requests of a connection until it ends, by HTTP/2 or, without `is_http2`, by HTTP/1.1. `place` is its
    /// place among the open connections, and `certificate` is the client's certificate, if the client has shown one.
    async fn serve_requests(
        &self,
        stream: impl Socket,
        is_http2: bool,
        place: &Arc<ConnectionPlace>,
        certificate: Option<Arc<ClientCertificate>>,
    ) {
        let service = ConnectionService {
            router: TowerToHyperService::new(self.router.clone()),
            service: Arc::clone(&self.service),
            place: Arc::clone(place),
            requests: Arc::default(),
            certificate,
        };
        if is_http2 {
            self.serve_http2(stream, service).await;
        } else {
            self.serve_http1(stream, service).await;
        }
    }

    /// Serves the requests of a connection of HTTP/1.1 until it ends, its client takes too long for the head of a
    /// request, or the server stops. In the last case, the open request is answered first.
    async fn serve_http1(&self, stream: impl Socket, service: ConnectionService) {
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_time)
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_HEAD as usize)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            // A client may disconnect at any time; that is no error.
            _ = connection.as_mut() => return,
            () = self.wait_until_closing() => {}
        }
        connection.as_mut().graceful_shutdown();
        // An error means that the client has disconnected, or broken the protocol.
        let _ = connection.await;
    }

    /// Serves the requests of a connection of HTTP/2 until it ends. The gateway ends it in three cases:
    ///
    /// - It has no open request for the time that the head of a request may take. The client is notified.
    /// - The server stops. The client is notified as well, and open requests are answered first.
    /// - The client cancels too many requests. The connection is closed at once, and this is logged.
    async fn serve_http2(&self, stream: impl Socket, service: ConnectionService) {
        let requests = Arc::clone(&service.requests);
        let connection = http2::Builder::new(StreamExecutor { limit: self.limits.write_time })
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .max_header_list_size(MAX_HEAD)
            .initial_stream_window_size(STREAM_WINDOW)
            .initial_connection_window_size(CONNECTION_WINDOW)
            .max_send_buf_size(SEND_BUFFER)
            .max_pending_accept_reset_streams(MAX_PENDING_RESETS)
            .max_local_error_reset_streams(MAX_STREAM_ERRORS)
            .keep_alive_interval(PING_INTERVAL)
            .keep_alive_timeout(self.limits.write_time)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        let mut is_ending = false;
        loop {
            tokio::select! {
                // A client may disconnect at any time; that is no error.
                _ = connection.as_mut() => return,
                () = requests.flooded() => return self.service.note_flood(),
                () = self.wait_until_closing(), if !is_ending => {}
                () = requests.idle(self.limits.head_time) => {
                    if is_ending {
                        // The client was notified before, and has not closed the connection.
                        return;
                    }
                }
            }
            // Requests that are open, or that arrive before the client has read the notice, are answered.
            connection.as_mut().graceful_shutdown();
            is_ending = true;
        }
    }
}

/// A connection, with or without TLS.
trait Socket: AsyncRead + AsyncWrite + Unpin + Send + 'static {}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> Socket for S {}
