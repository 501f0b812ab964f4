//! MCP servers: the only module that uses `rmcp` and asynchronous code.
//!
//! The runtime has a thread of its own; all other code calls it and waits. The output of servers is untrusted and is
//! only passed on.

mod config;
mod connection;
mod http;
mod runtime;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flowgate::monitor::Authorized;
use flowgate::trace::Tool;
use flowgate_guard::conversation::ToolAnswer;
use flowgate_guard::{Offered, Words};
use serde_json::{Map, Value};

use crate::visible;
pub(crate) use config::{Spec, read};
use connection::{CallError, Connection};
pub(crate) use runtime::Runtime;
use runtime::Unfinished;

/// The time limit for a server to start and to list its tools.
const START: Duration = Duration::from_secs(60);
/// The time limit for servers to end: `rmcp` closes their input, sends a signal, and kills them, three seconds apart.
const END: Duration = Duration::from_secs(8);

/// The limits of a tool call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// The time until it is abandoned.
    pub(crate) time: Duration,
    /// The largest answer, in bytes.
    pub(crate) answer: usize,
}

/// Returns whether to stop as soon as possible.
pub(crate) type Cancelled<'a> = dyn Fn() -> bool + Send + Sync + 'a;

/// Receives notes about a server for the user.
pub(crate) type Remark<'a> = dyn Fn(&str) + Send + Sync + 'a;

/// A server that was started at least once.
pub(crate) struct Server {
    spec: Spec,
    limits: Limits,
    runtime: Arc<Runtime>,
    connection: Mutex<Option<Connection>>,
}

/// Servers with their tools.
pub(crate) type Started = Vec<(Arc<Server>, Vec<Offered>)>;

/// Starts all servers at the same time and lists their tools.
///
/// # Errors
/// One message for each server that cannot be used, with advice.
pub(crate) fn start(
    specs: Vec<Spec>,
    limits: Limits,
    runtime: &Arc<Runtime>,
    cancelled: &Cancelled<'_>,
) -> Result<Started, Vec<String>> {
    let connecting = specs.into_iter().map(|spec| {
        let task = runtime.begin(connection::open(spec.clone(), limits));
        (spec, task)
    });
    let connecting: Vec<_> = connecting.collect();
    let (mut started, mut errors) = (Vec::new(), Vec::new());
    for (spec, task) in connecting {
        let name = spec.name.clone();
        let opened = match task.wait(START, cancelled) {
            Ok(Ok(connection)) => {
                let listing = runtime.begin(connection.tools());
                match listing.wait(START, cancelled) {
                    Ok(Ok(tools)) => Ok((connection, tools)),
                    Ok(Err(why)) => Err(format!("does not list its tools: {}", visible::short(&why, 200))),
                    Err(why) => Err(format!("does not list its tools: {}", late(why, START))),
                }
            }
            Ok(Err(why)) => Err(why),
            Err(why) => Err(format!("does not start: {}", late(why, START))),
        };
        match opened {
            Ok((connection, tools)) => {
                let offered = tools.into_iter().map(|tool| tool.offered(&name)).collect();
                let (runtime, connection) = (Arc::clone(runtime), Mutex::new(Some(connection)));
                started.push((Arc::new(Server { spec, limits, runtime, connection }), offered));
            }
            Err(why) => errors.push(format!("the server `{name}` {why}; {}", spec.advice())),
        }
    }
    if errors.is_empty() {
        return Ok(started);
    }
    end(&started.iter().map(|(server, _)| Arc::clone(server)).collect::<Vec<_>>(), runtime);
    Err(errors)
}

/// Ends all servers at the same time.
pub(crate) fn end(servers: &[Arc<Server>], runtime: &Runtime) {
    let held = servers.iter().filter_map(|server| server.held().take());
    let ending: Vec<_> = held.map(|connection| runtime.begin(connection.close(END))).collect();
    for task in ending {
        // A server that is late ends when its input is closed.
        let _ = task.wait(END, &|| false);
    }
}

fn late(why: Unfinished, limit: Duration) -> String {
    match why {
        Unfinished::Late => format!("no answer within {} s", limit.as_secs()),
        Unfinished::Cancelled => "it was stopped".to_owned(),
        Unfinished::Gone => "the connection was lost".to_owned(),
    }
}

/// A tool, as its server describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Described {
    name: String,
    description: String,
    input: Value,
    output: Option<Value>,
}

impl Described {
    fn offered(self, server: &str) -> Offered {
        Offered {
            tool: Tool::of(server, &self.name),
            description: self.description,
            parameters: self.input,
            output: self.output,
            words: Words::Server,
        }
    }
}

impl Server {
    /// Returns its name in policies.
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Connection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a call, on a new server if the old one has ended.
    pub(crate) fn call(
        &self,
        call: &Authorized,
        cancelled: &Cancelled<'_>,
        remark: &Remark<'_>,
    ) -> ToolAnswer {
        if cancelled() {
            return ToolAnswer::error("the user stopped the turn; the call did not run");
        }
        let name = &self.spec.name;
        let (tool, arguments) = (call.call().tool.name.to_string(), call.call().arguments.clone());
        let Ok(arguments) = arguments else {
            return ToolAnswer::error("the arguments cannot be read; the call did not run");
        };
        match self.run(tool, arguments, cancelled) {
            Ok(answer) => answer,
            Err(CallError::Ended { words }) => {
                *self.held() = None;
                let words = words.map(|words| format!("; its last output: {words}")).unwrap_or_default();
                remark(&format!("the server `{name}` ended; its next call starts it again{words}"));
                ToolAnswer::error(
                    "the server ended; the call may have run; the next call starts the server again",
                )
            }
            Err(CallError::NotStarted(why)) => {
                remark(&format!(
                    "the server `{name}` cannot be started again: {why}; {}",
                    self.spec.advice()
                ));
                ToolAnswer::error("the server ended and cannot be started again; the call did not run")
            }
            Err(CallError::Told(text)) => ToolAnswer::error(text),
        }
    }

    fn run(
        &self,
        tool: String,
        arguments: Map<String, Value>,
        cancelled: &Cancelled<'_>,
    ) -> Result<ToolAnswer, CallError> {
        let seconds = self.limits.time.as_secs();
        let unfinished = |why| {
            CallError::Told(match why {
                Unfinished::Late => format!("the tool did not answer within {seconds} s; it may have run"),
                Unfinished::Cancelled => "the user stopped the turn; the call may have run".to_owned(),
                Unfinished::Gone => "the tool did not answer; it may have run".to_owned(),
            })
        };
        let is_open = self.held().as_ref().is_some_and(|connection| !connection.is_closed());
        if !is_open {
            let opening = self.runtime.begin(connection::open(self.spec.clone(), self.limits));
            let opened = match opening.wait(START, cancelled) {
                Ok(opened) => opened.map_err(CallError::NotStarted)?,
                Err(why) => return Err(CallError::NotStarted(late(why, START))),
            };
            *self.held() = Some(opened);
        }
        let calling = match &*self.held() {
            Some(connection) => self.runtime.begin(connection.call(tool, arguments, self.limits.answer)),
            None => return Err(CallError::Ended { words: None }),
        };
        calling.wait(self.limits.time, cancelled).map_err(unfinished)?
    }
}
