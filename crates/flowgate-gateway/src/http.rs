//! Serves HTTP: accepts connections, reads requests, passes each to its route, and writes the answer of the route.
//! `flowgate serve` starts it by [`server`].
//!
//! * [`server`]: accepts sockets, and shuts down; `admission`: bounds the open connections, and chooses which one is
//!   closed for a new one.
//! * `connection`: serves one connection, of HTTP/1.1 or HTTP/2; `peek`: reads its first bytes, which show its
//!   protocol; `handshake`: performs TLS handshakes; `write_timeout`: ends connections of clients that do not read.
//! * `connection_service`: passes the requests of a connection to the routes, and checks those of HTTP/2;
//!   `open_requests`, `stream_progress`: limit the requests and the answers of an HTTP/2 connection.
//! * `service`: calls the handler of a request, after every check that may reject it.
//! * [`access`]: controls access to the policy API and the metrics.
//! * `turn_tasks`: runs turns and messages to MCP servers as tasks; `workers`: runs evaluations for the policy API and
//!   for people on threads.
//! * `value_budget`: bounds the memory of parsed JSON.
//! * `client_presence`: signals whether the client still waits; `waiting_status`: marks the answer of a turn that waits
//!   for a person.
//! * `reply`: builds answers; `request_error`: describes failures.

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
