//! Runs a bare proxy, which forwards requests unchanged: the cost of a gateway without the guard.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::http::{HeaderValue, StatusCode, header};
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::TcpListener;

use crate::connections::ConnectionPool;

/// Forwards all requests to a host and a port.
pub(crate) async fn serve(address: &str) {
    let connections = Arc::new(ConnectionPool::<Body>::new(address));
    listen(Router::new().fallback(pass).with_state(connections)).await;
}

/// Forwards a request, with the upstream as its host, and returns the answer; 502 if there is none.
async fn pass(State(connections): State<Arc<ConnectionPool<Body>>>, mut request: Request) -> Response {
    let host = HeaderValue::from_str(connections.address()).unwrap();
    request.headers_mut().insert(header::HOST, host);
    match connections.send(request).await {
        Ok(answer) => answer.map(Body::new),
        Err(error) => (StatusCode::BAD_GATEWAY, error).into_response(),
    }
}

/// Serves a router on a free port, and prints its address.
pub(crate) async fn listen(router: Router) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    println!("listening on http://{};", listener.local_addr().unwrap());
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let _ = stream.set_nodelay(true);
        let service = TowerToHyperService::new(router.clone());
        let connection =
            http1::Builder::new().timer(TokioTimer::new()).serve_connection(TokioIo::new(stream), service);
        tokio::spawn(connection);
    }
}
