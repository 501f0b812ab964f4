//! Flowgate as a service: the policy API and model routes over HTTP.
//!
//! * [`server`]: sockets: what may connect, for how long, and how the server stops.
//! * [`limits`]: every bound on what a client can make the server do, in one place.
//! * [`access`]: who may ask.
//! * [`approvals`]: people who decide, and stop things.
//! * [`ask`]: predicates of policies that a service or a WebAssembly module answers.
//! * [`audit`]: a log of what was judged and decided, in which nothing can be changed unseen.
//! * [`log`]: one line for each turn, each refusal and each limit that was reached, for the operator.
//! * [`mcp`]: what an MCP client and a server say to each other, guarded; without sockets.
//! * [`model_routes`]: agents of others, guarded by changing their base address.
//! * [`audit`]: a log that cannot be changed unseen; [`recorder`]: what is written to it.
//! * [`openapi`]: the description that is served, and that the tests hold against what is served.
//!
//! * [`visibility`]: what is hidden from models, and which line would show it.
//!
//! The routes of the policy API are those of Invariant's policy service, so that its clients work unchanged. A policy is judged by
//! [`flowgate::analysis`], a step by [`flowgate_guard::conversation`]; nothing here decides anything.

pub mod access;
mod admission;
pub mod approvals;
pub mod ask;
pub mod audit;
mod freeing;
pub mod limits;
pub mod log;
pub mod mcp;
mod metrics;
pub mod model_routes;
pub mod openapi;
mod policy_api;
mod random;
pub mod recorder;
mod reply;
pub mod server;
mod service;
mod stalled;
mod status;
pub mod store;
pub mod visibility;
mod workers;
