//! Runs Flowgate as a service: the policy API, the model routes and the MCP routes over HTTP.
//!
//! * [`http`]: sockets, routes, limits on connections and turns.
//! * [`tls`]: the certificate of the gateway, reloaded when its files change.
//! * [`limits`]: every bound on what a client can make the gateway do, in one place.
//! * [`approvals`]: people who decide questions and order freezes.
//! * [`predicates`]: `extern` predicates that a service or a WebAssembly module answers.
//! * [`recorder`]: the writer of the [audit log](flowgate_audit); [`witness`]: parties outside the gateway that store
//!   heads of that log.
//! * [`log`]: one line for each turn, each rejection and each limit that was reached, for the operator.
//! * [`chat`]: the routes of model providers, by which existing agents are guarded when they change their
//!   base URL; `mcp_proxy`: MCP servers, in the same conversations.
//! * [`config`]: the file that names upstreams, servers, clients and people.
//! * [`openapi`]: the description that is served, and that tests compare with the implementation.
//! * [`watching`]: watch mode, in which the verdicts of a policy are reported and not enforced.
//! * [`visibility`]: the items that are hidden from models, and the policy statement or setting that would show each.
//!
//! The routes of the policy API are those of Invariant's policy service, so that its clients work unchanged. A policy
//! is judged by [`flowgate::analysis`], a step by [`flowgate_guard::conversation`]; this crate decides nothing itself.

pub mod approvals;
mod background_drop;
pub mod chat;
pub mod config;
pub mod database;
pub mod http;
pub mod limits;
pub mod log;
mod mcp_proxy;
mod metrics;
pub mod openapi;
mod policy_api;
pub mod predicates;
mod random;
mod read_error;
pub mod recorder;
mod secret;
pub mod tls;
mod ureq_tls;
pub mod visibility;
pub mod watching;
pub mod witness;
