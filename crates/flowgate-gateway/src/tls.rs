//! Builds the TLS settings for connections of clients: the certificate that the gateway presents, and the client
//! certificates that it accepts. `http::server` uses them.
//!
//! * [`files`]: reads the PEM files, and builds the TLS settings from them.
//! * [`client_certificate`]: reads the names in certificates of clients.
//! * `reload`: reloads the files when they change, while the gateway runs.

pub mod client_certificate;
pub mod files;
pub(crate) mod reload;
