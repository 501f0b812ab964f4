//! MCP servers: the only module that knows of `rmcp` and of asynchronous code.
//!
//! A runtime lives on a thread of its own; everybody else calls and waits. What servers say is text of others: it is handed on,
//! and nothing here believes it.

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

/// How long a server may take to start and to name its tools.
const START: Duration = Duration::from_secs(60);
/// How long servers may take to end: `rmcp` closes their input, asks, and kills, with three seconds between.
const END: Duration = Duration::from_secs(8);

/// What a call of a tool may take.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long until it is given up.
    pub(crate) time: Duration,
    /// The largest answer, in bytes.
    pub(crate) answer: usize,
}

/// Asks whether to stop as soon as possible.
pub(crate) type Cancelled<'a> = dyn Fn() -> bool + Send + Sync + 'a;

/// Hears what a person should know of a server.
pub(crate) type Remark<'a> = dyn Fn(&str) + Send + Sync + 'a;

/// A server that was started at least once.
pub(crate) struct Server {
    spec: Spec,
    limits: Limits,
    runtime: Arc<Runtime>,
    connection: Mutex<Option<Connection>>,
}

/// Servers, and the tools of each.
pub(crate) type Started = Vec<(Arc<Server>, Vec<Offered>)>;

/// Starts servers, all at the same time, and asks them for their tools.
///
/// # Errors
/// For each server that cannot be used, why, and what to do.
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
                    Ok(Err(why)) => {
                        Err(format!("does not say what tools it has: {}", visible::short(&why, 200)))
                    }
                    Err(why) => Err(format!("does not say what tools it has: {}", late(why, START))),
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

/// Ends servers, all at the same time.
pub(crate) fn end(servers: &[Arc<Server>], runtime: &Runtime) {
    let held = servers.iter().filter_map(|server| server.held().take());
    let ending: Vec<_> = held.map(|connection| runtime.begin(connection.close(END))).collect();
    for task in ending {
        // Whoever does not end by then ends when its input does.
        let _ = task.wait(END, &|| false);
    }
}

fn late(why: Unfinished, limit: Duration) -> String {
    match why {
        Unfinished::Late => format!("no answer within {} s", limit.as_secs()),
        Unfinished::Cancelled => "it was stopped".to_owned(),
        Unfinished::Gone => "the connection broke down".to_owned(),
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
    /// What policies call it.
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
            return ToolAnswer::error("the user has stopped the turn; the call did not run");
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
                let words = words.map(|words| format!("; its last words: {words}")).unwrap_or_default();
                remark(&format!(
                    "the server `{name}` has ended, and is started again by its next call{words}"
                ));
                ToolAnswer::error(
                    "the server has ended; the call may have run, and the next one starts it again",
                )
            }
            Err(CallError::NotStarted(why)) => {
                remark(&format!(
                    "the server `{name}` cannot be started again: {why}; {}",
                    self.spec.advice()
                ));
                ToolAnswer::error("the server has ended and cannot be started again; the call did not run")
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
                Unfinished::Late => format!("the tool gave no answer within {seconds} s; it may have run"),
                Unfinished::Cancelled => "the user has stopped the turn; the call may have run".to_owned(),
                Unfinished::Gone => "the tool gave no answer; it may have run".to_owned(),
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
