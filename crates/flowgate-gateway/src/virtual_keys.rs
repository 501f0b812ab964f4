//! Lets admins make further keys for clients of the configuration, and revoke them, while the gateway runs.
//!
//! A virtual key stands for its client: policy, tenant, upstreams, labels and budget are those of the client's section.
//! The key can only narrow that, by limits of its own. The database has the digests of the keys, and is asked for each
//! request, so that a revoked key is refused at once, by every gateway that shares the database.
//!
//! * `text`: defines the text of a key.
//! * `valid_key`: defines a key that a request has shown, with its limits.
//! * `scope`: separates the conversations of keys.
//! * `routes`: serves the routes by which admins make, list and revoke keys.

pub(crate) mod routes;
pub(crate) mod scope;
pub(crate) mod text;
pub(crate) mod valid_key;
