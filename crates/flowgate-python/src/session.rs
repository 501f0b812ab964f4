//! The state that the objects of one session share: a monitor, alone or in a conversation.
//!
//! Python threads may share these objects. A method that uses the state releases the interpreter first and then waits for the state, so that
//! a predicate in Python that the monitor calls can run meanwhile. A predicate that uses the session that calls it gets an
//! error in place of a deadlock.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate_guard::conversation::Conversation;
use flowgate_guard::history::{ClientProfile, History};
use pyo3::prelude::*;

use crate::errors::InUseError;

/// What a session consists of.
pub(crate) enum State {
    Monitor(Box<Monitor>),
    Conversation(Box<Chat>),
}

/// A conversation, and the chat as its caller holds it.
pub(crate) struct Chat {
    pub(crate) conversation: Conversation,
    pub(crate) client: ClientProfile,
    pub(crate) history: History,
}

impl State {
    pub(crate) fn monitor(&self) -> &Monitor {
        match self {
            Self::Monitor(monitor) => monitor,
            Self::Conversation(chat) => chat.conversation.monitor(),
        }
    }

    pub(crate) fn monitor_mut(&mut self) -> &mut Monitor {
        match self {
            Self::Monitor(monitor) => monitor,
            Self::Conversation(chat) => chat.conversation.monitor_mut(),
        }
    }
}

/// A session that several Python objects refer to.
pub(crate) struct Session {
    policy: Arc<Policy>,
    /// The file of the policy, for places in messages.
    path: Option<String>,
    state: Mutex<State>,
    /// The thread that uses the state.
    user: Mutex<Option<ThreadId>>,
}

thread_local! {
    /// An exception in a predicate that must reach the caller of the session, such as `KeyboardInterrupt`.
    static INTERRUPTION: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Has the current use of a session on this thread end with this exception.
pub(crate) fn interrupt(error: PyErr) {
    INTERRUPTION.with(|pending| *pending.borrow_mut() = Some(error));
}

impl Session {
    pub(crate) fn new(state: State, path: Option<String>) -> Arc<Self> {
        let policy = state.monitor().shared_policy();
        Arc::new(Self { policy, path, state: Mutex::new(state), user: Mutex::new(None) })
    }

    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Uses the state, without the interpreter.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut State) -> R + Send,
    ) -> PyResult<R> {
        let this = std::thread::current().id();
        if *self.user.lock().unwrap_or_else(PoisonError::into_inner) == Some(this) {
            return Err(InUseError::new_err(
                "a predicate uses the session that calls it: give it what it needs in its arguments",
            ));
        }
        let result = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(this);
            let ended = EndOfUse(&self.user);
            let result = act(&mut state);
            drop(ended);
            result
        });
        match INTERRUPTION.with(|pending| pending.borrow_mut().take()) {
            Some(interruption) => Err(interruption),
            None => Ok(result),
        }
    }

    /// Uses the monitor, without the interpreter.
    pub(crate) fn monitor<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Monitor) -> R + Send,
    ) -> PyResult<R> {
        self.with(py, |state| act(state.monitor_mut()))
    }
}

/// Forgets the user of a session, also if the use panics.
struct EndOfUse<'s>(&'s Mutex<Option<ThreadId>>);

impl Drop for EndOfUse<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
