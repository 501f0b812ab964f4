//! Reads the configuration of a running gateway again. The program that starts the gateway knows where it is.

use std::fmt;
use std::sync::Arc;

use super::GatewayConfig;

/// Reads the configuration again. The error is a message for the operator, which contains no keys.
#[derive(Clone)]
pub struct ConfigLoader(Arc<dyn Fn() -> Result<GatewayConfig, String> + Send + Sync>);

impl ConfigLoader {
    /// Creates a loader that calls a function, on a thread that may block.
    pub fn new(load: impl Fn() -> Result<GatewayConfig, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(load))
    }

    /// Reads the configuration. This may block the thread.
    pub(crate) fn load(&self) -> Result<GatewayConfig, String> {
        (self.0)()
    }
}

impl fmt::Debug for ConfigLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigLoader")
    }
}
