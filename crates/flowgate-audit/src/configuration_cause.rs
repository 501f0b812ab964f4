//! Defines [`ConfigurationCause`]: what made the gateway load a configuration. The gateway states it in an
//! [`AuditEvent`](super::AuditEvent) for each configuration that it loads.

/// What made the gateway load a configuration.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigurationCause {
    /// The gateway was started.
    Start,
    /// The process received the signal to reload (SIGHUP). The log does not know who sent it.
    Signal,
    /// The person with this name ordered a reload through the API or on the page.
    Order(String),
}

impl ConfigurationCause {
    /// Returns the name of the cause in a record: `start`, `signal` or `api`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Start => "start",
            Self::Signal => "signal",
            Self::Order(_) => "api",
        }
    }

    /// Returns the person who ordered the reload; `None` if the cause names no person.
    pub fn person(&self) -> Option<&str> {
        match self {
            Self::Order(person) => Some(person),
            Self::Start | Self::Signal => None,
        }
    }
}
