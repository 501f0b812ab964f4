//! TLS towards clients: the certificate that the gateway presents.
//!
//! * [`files`]: the PEM files, and the TLS settings that they result in.
//! * `reload`: follows changes of the files while the gateway runs.

pub mod files;
pub(crate) mod reload;
