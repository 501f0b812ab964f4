//! Lets admins make further keys for clients of the configuration, and revoke them, while the gateway runs.
//!
//! A request with a virtual key is a request of the client: the policy, tenant, upstreams, labels and budget of the
//! client's section apply. The key can have further limits of its own. The database stores the digests of the keys, and
//! each request is looked up there: a revoked key is refused at once, by every gateway that shares the database.
//! `chat::authentication` and `http::service` call this module.
//!
//! * `text`: defines the text of a key.
//! * `valid_key`: defines an authenticated key or token of a request, with its limits.
//! * `scope`: separates the conversations of keys.
//! * `routes`: serves the routes by which admins make, list and revoke keys.

pub(crate) mod routes;
pub(crate) mod scope;
pub(crate) mod text;
pub(crate) mod valid_key;
