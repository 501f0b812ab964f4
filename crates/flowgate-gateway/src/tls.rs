//! TLS towards clients: the certificate that the gateway presents, and those that it accepts.
//!
//! * [`files`]: the PEM files, and the TLS settings that they result in.
//! * [`client_certificate`]: the names in certificates of clients.
//! * `reload`: follows changes of the files while the gateway runs.

pub mod client_certificate;
pub mod files;
pub(crate) mod reload;
