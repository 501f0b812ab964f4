//! Passes the requests of a connection to the routes of `service`, with the connection's place among the open ones and
//! the client's certificate. `connection` creates one [`ConnectionService`] for each connection.
//!
//! Before a request of HTTP/2 is passed on, its head is checked (the method `CONNECT`, the number of header fields, the
//! host), and it receives the header `Host`, which the routes know from HTTP/1.1.
//!
//! A connection counts against the limit that `admission` enforces, and this covers its first open request. Each
//! further request that is open at the same time, which only HTTP/2 allows, counts like a separate connection.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use axum::response::IntoResponse as _;
use hyper::body::Incoming;
use hyper_util::service::TowerToHyperService;

use crate::http::admission::ConnectionPlace;
use crate::http::open_requests::OpenRequests;
use crate::http::reply::HttpReply;
use crate::http::service::GatewayService;
use crate::http::stream_progress::PacedBody;
use crate::tls::client_certificate::ClientCertificate;

/// The most header fields of a request.
pub(crate) const MAX_FIELDS: usize = 64;

/// The future of a response.
type ServiceFuture = Pin<Box<dyn Future<Output = Result<Response<Body>, Infallible>> + Send>>;

/// Answers the requests of one connection.
#[derive(Debug)]
pub(crate) struct ConnectionService {
    pub(crate) router: TowerToHyperService<Router>,
    pub(crate) service: Arc<GatewayService>,
    /// The place of the connection among the open connections.
    pub(crate) place: Arc<ConnectionPlace>,
    /// The open requests of the connection; counted for HTTP/2 only.
    pub(crate) requests: Arc<OpenRequests>,
    /// The certificate that the client has presented.
    pub(crate) certificate: Option<Arc<ClientCertificate>>,
}

impl hyper::service::Service<Request<Incoming>> for ConnectionService {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = ServiceFuture;

    /// Passes a request to the routes, with the place of its connection (its share of the limit on open connections)
    /// and the certificate of its client.
    ///
    /// A connection of HTTP/1.1 has one request at a time, which the place of the connection covers. A connection of
    /// HTTP/2 can have several open requests: each one beyond the first takes a further place, and is refused if none
    /// is free. The answer to a request of HTTP/2 is sent in parts, whose progress shows whether the client accepts
    /// it.
    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        request.extensions_mut().insert(Arc::clone(&self.place));
        if let Some(certificate) = &self.certificate {
            request.extensions_mut().insert(Arc::clone(certificate));
        }
        if request.version() != Version::HTTP_2 {
            return Box::pin(self.router.call(request));
        }
        // Counted here and not in the future, so that the request counts before the next one of the connection is read.
        let (place, refused) = match self.place.begin_request() {
            Ok(place) => (Some(place), None),
            Err(error) => (None, Some(error)),
        };
        // `open` ends the request when its answer has been sent or dropped.
        let open = self.requests.begin(place);
        let (router, service) = (self.router.clone(), Arc::clone(&self.service));
        Box::pin(async move {
            let checked = match refused {
                Some(error) => Err(service.refuse_request(error)),
                None => check_head(&mut request),
            };
            let response = match checked {
                Ok(()) => router.call(request).await?,
                Err(refusal) => refusal.into_response(),
            };
            Ok(response.map(|body| Body::new(PacedBody::new(body, open))))
        })
    }
}

/// Gives a request of HTTP/2 the header `Host` that a request of HTTP/1.1 has, from `:authority`. Refuses `CONNECT`,
/// too many header fields, and a request whose host is missing, ambiguous or malformed.
fn check_head(request: &mut Request<Incoming>) -> Result<(), HttpReply> {
    let refused = |status, detail| Err(HttpReply::detail(status, detail));
    if request.method() == Method::CONNECT {
        return refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "this gateway is not a proxy and does not support CONNECT: send the request to the gateway itself",
        );
    }
    if request.headers().len() > MAX_FIELDS {
        let detail = format!("the request has more than {MAX_FIELDS} header fields: send fewer");
        return refused(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, &detail);
    }
    let mut hosts = request.headers().get_all(header::HOST).iter();
    let host = hosts.next().map(HeaderValue::as_bytes);
    let authority = request.uri().authority().map(|authority| authority.as_str().as_bytes());
    match (host, authority) {
        // Refused, because another program that reads the request might use the other name.
        (Some(host), Some(authority)) if !host.eq_ignore_ascii_case(authority) => refused(
            StatusCode::BAD_REQUEST,
            "`Host` differs from the host in `:authority`: send only one of them",
        ),
        // Refused for the same reason.
        (Some(_), _) if hosts.next().is_some() => {
            refused(StatusCode::BAD_REQUEST, "the request has the header `Host` twice: send it once")
        }
        (None, None) => refused(StatusCode::BAD_REQUEST, "the request names no host: send `:authority`"),
        (Some(_), _) => Ok(()),
        (None, Some(authority)) => {
            let Ok(host) = HeaderValue::from_bytes(authority) else {
                return refused(
                    StatusCode::BAD_REQUEST,
                    "`:authority` has characters that a host name cannot have: send the host of the gateway",
                );
            };
            request.headers_mut().insert(header::HOST, host);
            Ok(())
        }
    }
}
