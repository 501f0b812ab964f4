//! Defines [`PushError`], the reason why an event cannot be appended to a session.
//! [`Monitor::push`](super::Monitor::push) and the other methods of the monitor that append events return it.

use std::fmt;

use crate::trace::EventPositionError;

/// The reason why an event cannot be pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum PushError {
    /// The event cannot have a position in the trace.
    Position(EventPositionError),
    /// The event is a call; calls are judged, not pushed.
    IsCall,
    /// The session has reached [`Limits::events`](super::Limits::events).
    Full,
}

impl fmt::Display for PushError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Position(error) => error.fmt(f),
            Self::IsCall => f.write_str("the event is a call; judge it instead of pushing it"),
            Self::Full => f.write_str("the session has reached its limit of events; begin a new session"),
        }
    }
}

impl std::error::Error for PushError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Position(error) => Some(error),
            Self::IsCall | Self::Full => None,
        }
    }
}
