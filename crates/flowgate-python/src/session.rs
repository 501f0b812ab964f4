//! Holds the state that the Python objects of one session share: a monitor, alone or in a conversation. `Monitor`,
//! `Conversation`, events, needs and verdicts all refer to one [`Session`].
//!
//! Python threads may share these objects. A method that uses the state releases the interpreter first and then waits
//! for the state, so that a predicate in Python that the monitor calls can run meanwhile. A predicate that uses the
//! session that calls it gets an error in place of a deadlock.

use std::cell::RefCell;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::ThreadId;

use flowgate::monitor::Monitor;
use flowgate::policy::Policy;
use flowgate_guard::conversation::Conversation;
use flowgate_guard::history::{ClientProfile, History};
use pyo3::prelude::*;

use crate::errors::InUseError;

/// The state of a session: a monitor alone, or a conversation, which contains one.
pub(crate) enum State {
    Monitor(Box<Monitor>),
    Conversation(Box<Chat>),
}

/// A conversation, and what `Conversation.accept_request` needs: the profile of the client that sends the requests, and
/// the messages of the chat as this client holds them.
pub(crate) struct Chat {
    pub(crate) conversation: Conversation,
    pub(crate) client: ClientProfile,
    pub(crate) history: History,
}

impl State {
    /// Returns the monitor of the session.
    pub(crate) fn monitor(&self) -> &Monitor {
        match self {
            Self::Monitor(monitor) => monitor,
            Self::Conversation(chat) => chat.conversation.monitor(),
        }
    }

    /// Returns the monitor of the session, so that it can be changed.
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
    /// The file of the policy, for messages that name a line of it.
    path: Option<String>,
    state: Mutex<State>,
    /// The thread that uses the state at the moment.
    user: Mutex<Option<ThreadId>>,
}

thread_local! {
    /// An exception in a predicate that must reach the caller of the session, such as `KeyboardInterrupt`.
    static INTERRUPTION: RefCell<Option<PyErr>> = const { RefCell::new(None) };
}

/// Stores an exception of a predicate that runs on this thread. [`Session::with`], which is running the predicate,
/// raises the exception when it ends.
pub(crate) fn interrupt(error: PyErr) {
    INTERRUPTION.with(|pending| *pending.borrow_mut() = Some(error));
}

impl Session {
    /// Creates a session in which no thread uses the state. `path` is the file of the policy.
    pub(crate) fn new(state: State, path: Option<String>) -> Arc<Self> {
        let policy = state.monitor().shared_policy();
        Arc::new(Self { policy, path, state: Mutex::new(state), user: Mutex::new(None) })
    }

    /// Returns the policy, which never changes, so that no lock is needed.
    pub(crate) fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    /// Returns the file of the policy, if it has one.
    pub(crate) fn path(&self) -> Option<&str> {
        self.path.as_deref()
    }

    /// Runs `act` on the state, without the interpreter's lock, when no other thread uses the state.
    /// Other threads of Python run meanwhile, and a predicate in Python takes the lock again.
    ///
    /// Raises `InUseError` if this thread uses the state already, that is, a predicate uses the session that calls it;
    /// and the exception of [`interrupt`], if there is one.
    pub(crate) fn with<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut State) -> R + Send,
    ) -> PyResult<R> {
        let this = std::thread::current().id();
        if *self.user.lock().unwrap_or_else(PoisonError::into_inner) == Some(this) {
            return Err(InUseError::new_err(
                "a predicate uses the session that is evaluating it, which is locked: pass the values that the predicate needs as its arguments",
            ));
        }
        let result = py.detach(|| {
            let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
            *self.user.lock().unwrap_or_else(PoisonError::into_inner) = Some(this);
            // The guard clears the user also if `act` panics, and before the state is unlocked.
            let end_of_use = EndOfUse(&self.user);
            let result = act(&mut state);
            drop(end_of_use);
            result
        });
        match INTERRUPTION.with(|pending| pending.borrow_mut().take()) {
            Some(interruption) => Err(interruption),
            None => Ok(result),
        }
    }

    /// Runs `act` on the monitor of the state, as [`with`](Self::with) does: without the interpreter's lock, when no
    /// other thread uses the state. It is an error if this thread uses the state already.
    pub(crate) fn monitor<R: Send>(
        &self,
        py: Python<'_>,
        act: impl FnOnce(&mut Monitor) -> R + Send,
    ) -> PyResult<R> {
        self.with(py, |state| act(state.monitor_mut()))
    }
}

/// Clears [`Session::user`], the thread that uses the session, when it is dropped, which also happens if the use
/// panics.
struct EndOfUse<'s>(&'s Mutex<Option<ThreadId>>);

impl Drop for EndOfUse<'_> {
    fn drop(&mut self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
