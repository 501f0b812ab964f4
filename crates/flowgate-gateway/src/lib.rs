//! Flowgate as a service: the policy API and model routes over HTTP.
//!
//! * [`server`]: sockets: admission, timeouts and shutdown.
//! * [`limits`]: every bound on what a client can make the server do, in one place.
//! * [`access`]: access control of the policy API and the metrics.
//! * [`approvals`]: people who decide questions and order freezes.
//! * [`predicates`]: `extern` predicates that a service or a WebAssembly module answers.
//! * [`recorder`]: what is written to the [audit log](flowgate_audit); [`witness`]: parties outside the gateway that keep
//!   heads of that log.
//! * [`log`]: one line for each turn, each rejection and each limit that was reached, for the operator.
//! * [`model_routes`]: the routes of model providers, by which existing agents are guarded when they change their
//!   base URL.
//! * [`config`]: the file that names upstreams, servers, clients and people.
//! * [`openapi`]: the description that is served, and that tests compare with the implementation.
//! * [`visibility`]: what is hidden from models, and which line would show it.
//!
//! The routes of the policy API are those of Invariant's policy service, so that its clients work unchanged. A policy
//! is judged by [`flowgate::analysis`], a step by [`flowgate_guard::conversation`]; nothing here decides anything.

pub mod access;
mod admission;
pub mod approvals;
mod background_drop;
mod client_presence;
pub mod config;
pub mod database;
pub mod limits;
pub mod log;
mod metrics;
pub mod model_routes;
pub mod openapi;
mod policy_api;
pub mod predicates;
mod random;
pub mod recorder;
mod reply;
mod request_error;
mod secret;
pub mod server;
mod service;
mod turn_tasks;
mod ureq_tls;
mod value_budget;
pub mod visibility;
mod waiting_status;
pub mod witness;
mod workers;
mod write_timeout;
