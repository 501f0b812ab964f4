//! Runs Flowgate as a service: the policy API, the model routes and the MCP routes over HTTP.
//!
//! * [`http`]: accepts connections, calls the routes, and limits connections and turns.
//! * `policy_api`: checks the policies that clients send, and judges traces by them.
//! * [`tls`]: encrypts connections with the certificate of the gateway, which it reloads when its files change.
//! * [`limits`]: defines the bounds on what a client can make the gateway do.
//! * [`approvals`]: asks people about calls, and enforces the freezes that they order.
//! * [`predicates`]: asks a service or a WebAssembly module for the answers of extern predicates.
//! * [`recorder`]: writes the [audit log](flowgate_audit); [`witness`]: sends heads of that log to parties outside the
//!   gateway that store them.
//! * [`log`]: writes one line for each turn, each rejection and each limit that was reached, for the operator.
//! * [`chat`]: serves the routes of model providers, so that existing agents are guarded when they change their base
//!   URL; `mcp_proxy`: guards MCP servers, in the same conversations.
//! * [`database`]: persists conversations, labels and questions.
//! * [`config`]: reads the file that names upstreams, servers, clients and people.
//! * `page`: serves the web application on which people decide questions.
//! * `policy_review`: shows people how often the statements of a policy applied, and tries an edited policy.
//! * `identity`: verifies tokens of identity providers, and logs people in by OpenID Connect.
//! * `virtual_keys`: lets admins make further keys for clients, and revoke them.
//! * [`openapi`]: serves the description of the API, which tests compare with the implementation.
//! * [`watching`]: implements watch mode, in which the verdicts of a policy are recorded and not enforced.
//! * `telemetry`: records turns and calls as spans of OpenTelemetry, and exports them; `metrics`: counts requests, and
//!   writes the metrics for Prometheus.
//! * [`visibility`]: reports what is hidden from models, and the policy statement or setting that would show it.
//! * `secret`, `random`, `read_error`, `ureq_tls`: hide keys in texts, make random names, explain why a file cannot be
//!   read, and configure TLS for HTTP clients. Several of the other modules use them.
//!
//! The routes of the policy API are those of Invariant's policy service, so that its clients work unchanged.
//! [`flowgate::analysis`] judges a finished trace, and [`flowgate_guard::conversation`] a step; this crate decides
//! nothing itself.

pub mod approvals;
pub mod chat;
pub mod config;
pub mod database;
pub mod http;
mod identity;
pub mod limits;
pub mod log;
mod mcp_proxy;
mod metrics;
pub mod openapi;
mod page;
mod policy_api;
mod policy_review;
pub mod predicates;
mod random;
mod read_error;
pub mod recorder;
mod secret;
mod telemetry;
pub mod tls;
mod ureq_tls;
mod virtual_keys;
pub mod visibility;
pub mod watching;
pub mod witness;
