//! Connections: from a socket with a slot, through TLS if there is any, to requests.

use std::sync::Arc;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::pin::pin;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};

use crate::http::admission::ConnectionSlot;
use crate::http::handshake;
use crate::http::service::GatewayService;
use crate::http::write_timeout::WriteTimeout;
use crate::limits::ServerLimits;
use crate::tls::reload::ServerTls;

/// The most header fields of a request.
const MAX_FIELDS: usize = 64;
/// The most bytes of a request's head.
const MAX_HEAD: usize = 32 << 10;

/// Serves connections, with what all of them share. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct ConnectionServer {
    service: Arc<GatewayService>,
    router: Router,
    limits: Arc<ServerLimits>,
    tls: Option<Arc<ServerTls>>,
    /// True when the server stops.
    closing: watch::Receiver<bool>,
}

impl ConnectionServer {
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

    /// Waits until the server stops.
    pub(crate) async fn closes(&self) {
        let _ = self.closing.clone().wait_for(|closing| *closing).await;
    }

    /// Serves a connection that has a slot, until it ends or is closed for another one.
    pub(crate) async fn serve(
        &self,
        stream: TcpStream,
        (place, told): (Arc<ConnectionSlot>, oneshot::Receiver<()>),
    ) {
        let counted = self.service.count_connection();
        tokio::select! {
            biased;
            // The sender is dropped when the connection is kept.
            Ok(()) = told => {}
            () = self.serve_socket(stream, &place) => {}
        }
        drop((counted, place));
    }

    async fn serve_socket(&self, stream: TcpStream, place: &Arc<ConnectionSlot>) {
        let _ = stream.set_nodelay(true);
        let Some(tls) = &self.tls else {
            let stream = WriteTimeout::new(stream, self.limits.write_time).reporting_to(Arc::clone(place));
            return self.serve_requests(stream, place).await;
        };
        let accepted = tokio::select! {
            biased;
            () = self.closes() => return,
            accepted = handshake::accept(stream, tls, place, &self.limits) => accepted,
        };
        match accepted {
            Ok(stream) => self.serve_requests(stream, place).await,
            Err(error) => self.service.note_handshake(error),
        }
    }

    /// Serves the requests of a connection until it ends, stalls, or the server stops.
    async fn serve_requests(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        place: &Arc<ConnectionSlot>,
    ) {
        let router = TowerToHyperService::new(self.router.clone());
        let service = SlotService { service: router, place: Arc::clone(place) };
        let connection = http1::Builder::new()
            .timer(TokioTimer::new())
            .header_read_timeout(self.limits.head_time)
            .max_headers(MAX_FIELDS)
            .max_buf_size(MAX_HEAD)
            .serve_connection(TokioIo::new(stream), service);
        let mut connection = pin!(connection);
        tokio::select! {
            // A client may disconnect at any time; that is no error.
            _ = connection.as_mut() => return,
            () = self.closes() => {}
        }
        connection.as_mut().graceful_shutdown();
        let _ = connection.await;
    }
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
