//! Serves HTTP: from a socket to a route, and from the answer of the route to the socket.
//!
//! * [`server`]: accepts sockets, and shuts down; `admission`: the bound on open connections, and which one is closed
//!   for another.
//! * `connection`: one connection, of HTTP/1.1 or HTTP/2; `handshake`: TLS; `write_timeout`: clients that do not read.
//! * `peek`: the first bytes of a connection, which show its protocol; `connection_service`: the checks of a request
//!   before the routes; `open_requests`, `stream_progress`: limits on the requests and the answers of an HTTP/2
//!   connection.
//! * `service`: the routes, with every check that may reject a request.
//! * [`access`]: access control of the policy API and the metrics.
//! * `turn_tasks`: turns and messages to MCP servers in flight, as tasks; `workers`: evaluations for the policy API, on
//!   threads.
//! * `value_budget`: the bound on the memory of parsed JSON.
//! * `client_presence`: whether the client still waits; `waiting_status`: the answer of a turn that waits for a person.
//! * `reply`, `request_error`: answers and failures.

pub mod access;
pub(crate) mod admission;
pub(crate) mod client_presence;
pub(crate) mod connection;
pub(crate) mod connection_service;
pub(crate) mod handshake;
pub(crate) mod open_requests;
mod peek;
pub(crate) mod reply;
pub(crate) mod request_error;
pub mod server;
pub(crate) mod service;
pub(crate) mod stream_progress;
pub(crate) mod turn_tasks;
pub(crate) mod value_budget;
pub(crate) mod waiting_status;
pub(crate) mod workers;
mod write_timeout;
