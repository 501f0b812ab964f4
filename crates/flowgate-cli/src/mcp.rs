//! Starts and reaches MCP servers: lists their tools for `flowgate init`, `flowgate scan` and `flowgate run`, and calls
//! the tools for `flowgate run`. `rmcp` implements the protocol; only this module and its submodules use it.
//!
//! The asynchronous code runs on a thread of its own, and the synchronous commands wait for its results. The output of
//! servers is untrusted; this module only passes it on.
//!
//! * `config` reads the configuration of servers.
//! * `connection` connects to one server; `http` is the HTTP client for remote servers, `oauth` and
//!   `server_tokens` say where their tokens come from.
//! * `runtime` runs the asynchronous code on its thread.

mod config;
mod connection;
mod http;
mod oauth;
mod runtime;
mod server_tokens;

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use flowgate::draft::{self, ToolHints};
use flowgate::monitor::AuthorizedCall;
use flowgate::trace::Tool;
use flowgate_guard::conversation::ToolAnswer;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use serde_json::{Map, Value};

pub(crate) use config::{McpServerSpec, read, read_entry, read_named};
use connection::{CallError, McpConnection};
pub(crate) use runtime::AsyncRuntime;
use runtime::TaskError;

/// The time limit for a server to start and to list its tools.
const START_TIMEOUT: Duration = Duration::from_secs(60);
/// The time limit for servers to end: `rmcp` closes their input, sends a signal, and kills them, three seconds apart.
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(8);

/// How long [`list_tools`] waits for a server that has not answered `initialize` to be killed.
const KILL_PAUSE: Duration = Duration::from_millis(300);

/// The largest message of a server that only lists its tools, in bytes.
const LISTED_ANSWER: usize = 8 << 20;

/// The limits of a tool call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallLimits {
    /// The time after which the call is abandoned.
    pub(crate) time: Duration,
    /// The largest answer, in bytes.
    pub(crate) answer: usize,
}

/// Returns true once the caller must stop waiting, for example after Ctrl-C.
pub(crate) type CancelCheck<'a> = dyn Fn() -> bool + Send + Sync + 'a;

/// Shows notes about a server to the user.
pub(crate) type NoteHandler<'a> = dyn Fn(&str) + Send + Sync + 'a;

/// A server that was started at least once. It is started again for a call if it has ended.
pub(crate) struct McpServerHandle {
    spec: McpServerSpec,
    limits: CallLimits,
    runtime: Arc<AsyncRuntime>,
    /// `None` after the server has ended, until a call starts it again.
    connection: Mutex<Option<McpConnection>>,
}

/// The started servers, each with the tools that it offers.
pub(crate) type StartedServers = Vec<(Arc<McpServerHandle>, Vec<OfferedTool>)>;

/// Starts all servers at the same time and lists their tools, in at most [`START_TIMEOUT`] for each step, or until
/// `is_cancelled` returns true. `limits` bound later calls of tools. If one server cannot be used, ends the others.
///
/// # Errors
/// Returns one message with advice for each server that cannot be used.
pub(crate) fn start(
    specs: Vec<McpServerSpec>,
    limits: CallLimits,
    runtime: &Arc<AsyncRuntime>,
    is_cancelled: &CancelCheck<'_>,
) -> Result<StartedServers, Vec<String>> {
    let connecting = specs.into_iter().map(|spec| {
        let task = runtime.spawn(connection::open(spec.clone(), limits));
        (spec, task)
    });
    // All servers start now. The loop below waits for one after the other.
    let connecting: Vec<_> = connecting.collect();
    let (mut started, mut errors) = (Vec::new(), Vec::new());
    for (spec, task) in connecting {
        let name = spec.name.clone();
        let opened = match task.wait(START_TIMEOUT, is_cancelled) {
            Ok(Ok(connection)) => {
                let tools = tools_of_started(&connection, &spec, runtime, is_cancelled);
                tools.map(|tools| (connection, tools))
            }
            Ok(Err(why)) => Err(why),
            Err(why) => Err(format!("does not start: {}", describe_task_error(why, START_TIMEOUT, &spec))),
        };
        match opened {
            Ok((connection, tools)) => {
                let offered = tools.into_iter().map(|tool| tool.into_offered_tool(&name)).collect();
                let (runtime, connection) = (Arc::clone(runtime), Mutex::new(Some(connection)));
                started.push((Arc::new(McpServerHandle { spec, limits, runtime, connection }), offered));
            }
            Err(why) => errors.push(format!("the server `{name}` {why}")),
        }
    }
    if errors.is_empty() {
        return Ok(started);
    }
    end(&started.iter().map(|(server, _)| Arc::clone(server)).collect::<Vec<_>>(), runtime);
    Err(errors)
}

/// Lists the tools of a server that has just started. The error is the rest of a sentence about the server.
fn tools_of_started(
    connection: &McpConnection,
    spec: &McpServerSpec,
    runtime: &AsyncRuntime,
    is_cancelled: &CancelCheck<'_>,
) -> Result<Vec<DescribedTool>, String> {
    let listing = runtime.spawn(connection.tools());
    match listing.wait(START_TIMEOUT, is_cancelled) {
        Ok(Ok(tools)) => Ok(tools),
        Ok(Err(why)) => Err(why.describe(&spec.advice())),
        Err(why) => {
            Err(format!("does not list its tools: {}", describe_task_error(why, START_TIMEOUT, spec)))
        }
    }
}

/// Ends all servers at the same time. Waits at most [`SHUTDOWN_TIMEOUT`] for each.
fn end(servers: &[Arc<McpServerHandle>], runtime: &AsyncRuntime) {
    let connections = servers.iter().filter_map(|server| server.lock_connection().take());
    let ending: Vec<_> =
        connections.map(|connection| runtime.spawn(connection.close(SHUTDOWN_TIMEOUT))).collect();
    for task in ending {
        // There is nothing to do about a server that is late: its input is closed, at which it should end. The wait is
        // never cancelled, since it is short.
        let _ = task.wait(SHUTDOWN_TIMEOUT, &|| false);
    }
}

/// Ends the servers when it is dropped: a chat that fails leaves no server running.
pub(crate) struct ServersGuard {
    /// The servers, in the order of their specifications.
    pub(crate) servers: Vec<Arc<McpServerHandle>>,
    /// The runtime on which the servers' connections run.
    pub(crate) runtime: Arc<AsyncRuntime>,
}

impl Drop for ServersGuard {
    fn drop(&mut self) {
        end(&self.servers, &self.runtime);
    }
}

/// The name of a server, with its tools or the reason why it does not list them; the reason contains advice.
pub(crate) type ListedServer = (String, Result<Vec<draft::DescribedTool>, String>);

/// Starts all servers at the same time, lists their tools, and ends all servers. Waits until all servers have started
/// and listed their tools, but at most for `limit` in all, and only until `is_cancelled` returns true. Returns one item
/// for each server, in the order of `specs`.
pub(crate) fn list_tools(
    specs: Vec<McpServerSpec>,
    limit: Duration,
    runtime: &Arc<AsyncRuntime>,
    is_cancelled: &CancelCheck<'_>,
) -> Vec<ListedServer> {
    let limits = CallLimits { time: limit, answer: LISTED_ANSWER };
    let listing = specs.into_iter().map(|spec| {
        let (opening, advice) = (spec.clone(), spec.advice());
        // The connection is kept outside the task, so that it is closed below even if the server gives no list.
        let kept = Arc::new(Mutex::new(None));
        let kept_by_task = Arc::clone(&kept);
        let task = runtime.spawn(async move {
            let connection = connection::open(opening, limits).await?;
            let tools = connection.tools();
            *kept_by_task.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection);
            tools.await.map_err(|why| why.describe(&advice))
        });
        (task, kept, spec)
    });
    // All servers start now. The loop below waits for one after the other.
    let listing: Vec<_> = listing.collect();
    let deadline = Instant::now() + limit;
    let (mut listed, mut ending) = (Vec::new(), Vec::new());
    for (task, kept, spec) in listing {
        let left = deadline.saturating_duration_since(Instant::now());
        let waited: Result<Result<Vec<DescribedTool>, String>, TaskError> = task.wait(left, is_cancelled);
        let tools = match waited {
            // The task ran to its end. If the server did not start, or gave no list, this is an error.
            Ok(tools) => tools,
            Err(why) => Err(format!("does not list its tools: {}", describe_task_error(why, limit, &spec))),
        };
        match kept.lock().unwrap_or_else(PoisonError::into_inner).take() {
            Some(connection) => ending.push(runtime.spawn(connection.close(SHUTDOWN_TIMEOUT))),
            // A server that has not answered `initialize` is killed when its task is dropped, which happens on the
            // thread of the tasks. Without this pause, the program could end before.
            None => ending.push(runtime.spawn(async { tokio::time::sleep(KILL_PAUSE).await })),
        }
        let describe = |tool: DescribedTool| {
            let (name, input) = (Tool::of(&spec.name, &tool.name), tool.input);
            draft::DescribedTool::new(name, tool.description, Some(&input), tool.hints)
        };
        let tools = tools.map(|tools| tools.into_iter().map(describe).collect());
        listed.push((spec.name.clone(), tools));
    }
    for task in ending {
        // A server that does not end now ends with this program, which closes its input.
        let _ = task.wait(SHUTDOWN_TIMEOUT, &|| false);
    }
    listed
}

/// Returns why a task that starts a server or lists its tools has no result, for an error message. `limit` is the time
/// limit of the task. If the reason may lie with the server (`spec`), the text ends with advice about the server.
fn describe_task_error(why: TaskError, limit: Duration, spec: &McpServerSpec) -> String {
    match why {
        TaskError::TimedOut => {
            format!("there was no answer within {} s; {}", limit.as_secs(), spec.advice())
        }
        TaskError::Cancelled => "the user stopped the wait for an answer".to_owned(),
        TaskError::Panicked => {
            "the task of the connection panicked; this is a defect of Flowgate; please report it".to_owned()
        }
    }
}

/// A tool, as its server describes it.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct DescribedTool {
    name: String,
    description: String,
    /// The JSON schema of the arguments.
    input: Value,
    /// The JSON schema of structured answers, if the server gives one.
    output: Option<Value>,
    /// What the annotations of the server say about the tool.
    hints: ToolHints,
}

impl DescribedTool {
    /// Converts the tool of the server `server` to the form in which the guard offers it to the model. The description
    /// counts as written by the server.
    fn into_offered_tool(self, server: &str) -> OfferedTool {
        OfferedTool {
            tool: Tool::of(server, &self.name),
            description: self.description,
            parameters: self.input.into(),
            output: self.output,
            words: DescriptionAuthor::Server,
        }
    }
}

impl McpServerHandle {
    /// Returns the name of the server in policies.
    pub(crate) fn name(&self) -> &str {
        &self.spec.name
    }

    /// Returns the connection, locked; a poisoned lock is used as it is.
    fn lock_connection(&self) -> std::sync::MutexGuard<'_, Option<McpConnection>> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs a permitted call and returns the answer for the model. Restarts the server first if it has ended. If the
    /// call fails, the answer says why. If the server ended during the call, or cannot be restarted, `remark` is
    /// called with a note about this for the user.
    pub(crate) fn call(
        &self,
        call: &AuthorizedCall,
        is_cancelled: &CancelCheck<'_>,
        remark: &NoteHandler<'_>,
    ) -> ToolAnswer {
        if is_cancelled() {
            return ToolAnswer::error("the user stopped the turn; the call did not run");
        }
        let name = &self.spec.name;
        let (tool, arguments) = (call.call().tool.name.to_string(), call.call().arguments.clone());
        let Ok(arguments) = arguments else {
            return ToolAnswer::error("the arguments are not a JSON object; the call did not run");
        };
        match self.run(tool, arguments, is_cancelled) {
            Ok(answer) => answer,
            Err(CallError::Ended { last_output }) => {
                *self.lock_connection() = None;
                let last_output =
                    last_output.map(|line| format!("; its last output: {line}")).unwrap_or_default();
                remark(&format!(
                    "the server `{name}` ended; the next call of one of its tools restarts it{last_output}"
                ));
                ToolAnswer::error(
                    "the server ended during the call, which may have run; the next call restarts the server",
                )
            }
            Err(CallError::NotStarted(why)) => {
                remark(&format!("the server `{name}` cannot be restarted: {why}"));
                ToolAnswer::error(
                    "the server ended and could not be restarted, so the call did not run; do without its tools, or \
                     call one later: each call tries to restart the server",
                )
            }
            Err(CallError::ToolError(text)) => ToolAnswer::error(text),
        }
    }

    /// Calls the tool `tool`, on a new connection if none is open. Waits at most [`CallLimits::time`] for the answer, and stops
    /// waiting when `is_cancelled` returns true. If the wait ends without an answer, the error says that the tool may
    /// have run.
    fn run(
        &self,
        tool: String,
        arguments: Map<String, Value>,
        is_cancelled: &CancelCheck<'_>,
    ) -> Result<ToolAnswer, CallError> {
        let seconds = self.limits.time.as_secs();
        let describe_unfinished = |why| {
            CallError::ToolError(match why {
                TaskError::TimedOut => format!("the tool did not answer within {seconds} s; it may have run"),
                TaskError::Cancelled => "the user stopped the turn; the call may have run".to_owned(),
                TaskError::Panicked => {
                    "the task of the call panicked, which is a defect of Flowgate; the tool may have run"
                        .to_owned()
                }
            })
        };
        let is_open = self.lock_connection().as_ref().is_some_and(|connection| !connection.is_closed());
        if !is_open {
            let opening = self.runtime.spawn(connection::open(self.spec.clone(), self.limits));
            let opened = match opening.wait(START_TIMEOUT, is_cancelled) {
                // The reason is the rest of a sentence about the server.
                Ok(opened) => opened.map_err(|why| CallError::NotStarted(format!("it {why}")))?,
                Err(why) => {
                    let why = describe_task_error(why, START_TIMEOUT, &self.spec);
                    return Err(CallError::NotStarted(why));
                }
            };
            *self.lock_connection() = Some(opened);
        }
        let calling = match &*self.lock_connection() {
            Some(connection) => self.runtime.spawn(connection.call(tool, arguments, self.limits.answer)),
            // Another thread has ended the server in the meantime.
            None => return Err(CallError::Ended { last_output: None }),
        };
        // The outer error is that of the wait; the inner result is that of the call.
        calling.wait(self.limits.time, is_cancelled).map_err(describe_unfinished)?
    }
}
