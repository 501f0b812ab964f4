//! Reads the configuration of a running gateway again, for a reload. The program that starts the gateway knows where
//! the file is, and passes a function that reads it; `http::service` calls that function.

use std::fmt;
use std::sync::Arc;

use super::GatewayConfig;

/// A function that reads the configuration again. Its error is a message for the operator without keys.
#[derive(Clone)]
pub struct ConfigLoader(Arc<dyn Fn() -> Result<GatewayConfig, String> + Send + Sync>);

impl ConfigLoader {
    /// Creates a loader from a function that reads the configuration. It is called on a thread that it may block.
    pub fn new(load: impl Fn() -> Result<GatewayConfig, String> + Send + Sync + 'static) -> Self {
        Self(Arc::new(load))
    }

    /// Reads the configuration again. This may block the thread.
    ///
    /// # Errors
    /// Why the configuration cannot be used, as a message for the operator.
    pub(crate) fn load(&self) -> Result<GatewayConfig, String> {
        (self.0)()
    }
}

impl fmt::Debug for ConfigLoader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ConfigLoader")
    }
}
