//! Connects to one MCP server, which is a child process or is at a URL: opens the connection, lists the server's tools
//! and calls them. This module bounds the size of everything that a server sends. The module `mcp` runs this
//! asynchronous code on its runtime, and restarts a server that has ended.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use flowgate::draft::ToolHints;
use flowgate_guard::conversation::ToolAnswer;
use process_wrap::tokio::CommandWrap;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, ClientCapabilities, ClientConfig, Implementation,
    PaginatedRequestParams,
};
use rmcp::service::{ClientInitializeError, RoleClient, RunningService};
use rmcp::transport::TokioChildProcess;
use rmcp::transport::streamable_http_client::{
    StreamableHttpClientTransport, StreamableHttpClientTransportConfig,
};
use rmcp::{Peer, ServiceError, ServiceExt};
use serde_json::{Map, Value};
use tokio::io::AsyncReadExt;
use tokio::process::{ChildStderr, Command};

use super::config::{McpServerSpec, ServerTransport};
use super::http::{McpHttpClient, header};
use super::{CallLimits, DescribedTool};
use crate::escaping;
use crate::output::plural;

/// The maximum number of tools of one server, and of pages of its list of tools.
const MAX_TOOLS: usize = 1_000;
/// The largest list of tools, in bytes of names, descriptions and schemas.
const MAX_LIST_SIZE: usize = 4 << 20;
/// The number of last bytes of a server's standard error that stay in memory.
const MAX_STDERR_TAIL: usize = 4 << 10;
/// The environment variables that a server inherits in addition to its `env`. All others are removed, because they may
/// be secret, such as the key for the model.
const INHERITED: [&str; 20] = [
    "HOME",
    "LANG",
    "LC_ALL",
    "LC_CTYPE",
    "LOGNAME",
    "PATH",
    "SHELL",
    "TERM",
    "TMPDIR",
    "TZ",
    "USER",
    "XDG_CACHE_HOME",
    "XDG_CONFIG_HOME",
    "XDG_DATA_HOME",
    "APPDATA",
    "LOCALAPPDATA",
    "SYSTEMROOT",
    "TEMP",
    "USERPROFILE",
    "PATHEXT",
];

/// A connection to a server. The server may have ended since.
pub(super) struct McpConnection {
    service: RunningService<RoleClient, ClientConfig>,
    stderr_tail: StderrTail,
}

/// The reason why a call has no answer.
pub(super) enum CallError {
    /// The server ended during the call or before it; `last_output` is the last line of its standard error.
    Ended { last_output: Option<String> },
    /// The server had ended and could not be started again; the reason, with advice.
    NotStarted(String),
    /// An error that the model reads instead of an answer.
    ToolError(String),
}

/// Why the tools of a server are not listed.
pub(super) enum ToolListError {
    /// The server did not answer with a list of tools; the reason.
    NoList(String),
    /// The list is larger than Flowgate reads: the rest of a sentence that begins with `the server NAME`, with advice.
    TooLarge(String),
}

impl ToolListError {
    /// Returns the rest of a sentence that begins with `the server NAME`, with advice at its end. `advice` is about
    /// reaching the server; it is used only if the server did not answer with a list.
    pub(super) fn describe(self, advice: &str) -> String {
        match self {
            Self::NoList(why) => {
                format!("does not list its tools: {}; {advice}", escaping::excerpt(&why, 200))
            }
            Self::TooLarge(why) => why,
        }
    }
}

/// The last bytes of a server's standard error, for error messages.
#[derive(Clone, Default)]
struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

impl StderrTail {
    /// Appends bytes, and removes the oldest ones beyond [`MAX_STDERR_TAIL`].
    fn push(&self, bytes: &[u8]) {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        tail.extend(bytes);
        let excess = tail.len().saturating_sub(MAX_STDERR_TAIL);
        tail.drain(..excess);
    }

    /// Returns the last line that is not blank, cut after 200 characters and escaped for a terminal; `None` if there is
    /// none.
    fn last_line(&self) -> Option<String> {
        let mut tail = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(tail.make_contiguous()).into_owned();
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(escaping::excerpt(line, 200))
    }

    /// Reads the standard error until it ends. A server whose output is not read would block.
    async fn follow(self, mut stderr: ChildStderr) {
        let mut buffer = [0_u8; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            self.push(buffer.get(..count).unwrap_or_default());
        }
    }
}

/// Starts a server, or connects to its URL, and initializes the MCP session. `limits` bound the answers of a server at
/// a URL.
///
/// # Errors
/// Returns the reason why the server cannot be used, with advice: the rest of a sentence that begins with `the server NAME`.
pub(super) async fn open(spec: McpServerSpec, limits: CallLimits) -> Result<McpConnection, String> {
    let mut client = McpHttpClient::new(limits);
    let tokens = spec.tokens().map_err(|why| format!("cannot be used: {why}"))?;
    if let Some(tokens) = tokens {
        // The error has advice about the tokens of its own.
        client.authenticate(tokens).await.map_err(|why| format!("cannot be used: {why}"))?;
    }
    open_with(&spec, client, limits).await.map_err(|why| format!("{why}; {}", spec.advice()))
}

/// Starts the program of the server `spec`, or connects to its URL, and initializes the MCP session. `client` sends the
/// requests to a server at a URL, with its tokens, and `limits` bound the answers of such a server.
///
/// # Errors
/// As for [`open`], without advice.
async fn open_with(
    spec: &McpServerSpec,
    client: McpHttpClient,
    limits: CallLimits,
) -> Result<McpConnection, String> {
    let stderr_tail = StderrTail::default();
    let served = match &spec.transport {
        ServerTransport::Command { .. } => {
            let mut command = CommandWrap::from(command(&spec.transport));
            // A server in its own process group does not receive Ctrl-C, and ends together with its children.
            #[cfg(unix)]
            command.wrap(process_wrap::tokio::ProcessGroup::leader());
            let spawned = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn();
            let (transport, stderr) = spawned.map_err(|error| describe_spawn_error(&error))?;
            if let Some(stderr) = stderr {
                tokio::spawn(stderr_tail.clone().follow(stderr));
            }
            // `identity()` is what Flowgate states about itself to the server.
            identity().serve(transport).await
        }
        ServerTransport::Url { url, headers, oauth: _ } => {
            let headers: Result<_, String> =
                headers.iter().map(|(name, value)| header(name, value)).collect();
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers?)
                // The limit is for the text of an answer. An event has the answer as JSON, which is longer.
                .max_sse_event_size(limits.answer.saturating_mul(2));
            identity().serve(StreamableHttpClientTransport::with_client(client, config)).await
        }
    };
    match served {
        Ok(service) => Ok(McpConnection { service, stderr_tail }),
        Err(error) => {
            // The last output of a server may arrive a little after its end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let last_output =
                stderr_tail.last_line().map(|line| format!(" (its last output: {line})")).unwrap_or_default();
            Err(format!("cannot be used: {}{last_output}", describe_initialize_error(&error)))
        }
    }
}

/// Returns why the program of a server cannot be started: the rest of a sentence about the server.
fn describe_spawn_error(error: &std::io::Error) -> String {
    match error.kind() {
        std::io::ErrorKind::NotFound => {
            "cannot be started: its program or its working folder does not exist".to_owned()
        }
        std::io::ErrorKind::PermissionDenied => "cannot be started: its program is not executable".to_owned(),
        _ => format!("cannot be started: {error}"),
    }
}

/// Returns what Flowgate states about itself to a server: its name and version, and no capability. So the server cannot
/// ask for sampling, for example.
fn identity() -> ClientConfig {
    let name = Implementation::new("flowgate", env!("CARGO_PKG_VERSION"));
    ClientConfig::new(ClientCapabilities::default(), name)
}

/// Returns the command that starts a server. `transport` must be a [`ServerTransport::Command`]. The server gets only
/// the environment variables of [`INHERITED`] and the configured ones: the environment of this process can have keys,
/// such as the key of the model.
fn command(transport: &ServerTransport) -> Command {
    let ServerTransport::Command { command, args, env, cwd } = transport else { return Command::new("") };
    let mut process = Command::new(command);
    process.args(args).env_clear();
    process.envs(INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    process.envs(env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    if let Some(cwd) = cwd {
        process.current_dir(cwd);
    }
    process
}

/// Removes the prefix that `rmcp` adds to the message of an error of [`McpHttpClient`].
fn strip_client_error(error: &str) -> String {
    error.strip_prefix("Client error: ").unwrap_or(error).to_owned()
}

/// Returns why the initialization of a server failed: a clause for an error message to the user.
fn describe_initialize_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "the server ended or closed the connection before it answered `initialize`".to_owned(),
        ClientInitializeError::TransportError { error, .. } => {
            escaping::excerpt(&strip_client_error(&error.error.to_string()), 200)
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("the server answered: {}", escaping::excerpt(&error.message, 200))
        }
        // The other errors are about the first answer: it has another form, or belongs to another request.
        _ => "the first answer of the server is not an MCP message; check that the command or the URL is that of an MCP server, and that a command writes \
              nothing else to its standard output"
            .to_owned(),
    }
}

impl McpConnection {
    /// Returns whether the connection is closed, for example because the server has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    /// Returns the side of the connection that sends requests to the server.
    fn peer(&self) -> Peer<RoleClient> {
        self.service.peer().clone()
    }

    /// Lists all tools of the server, page by page. The list is bounded by [`MAX_TOOLS`] and [`MAX_LIST_SIZE`].
    ///
    /// The future does not borrow the connection, so that the runtime's thread can run it. The same applies to
    /// [`call`](Self::call).
    ///
    /// # Errors
    /// If the server does not answer correctly, or its list exceeds these limits.
    pub(super) fn tools(
        &self,
    ) -> impl Future<Output = Result<Vec<DescribedTool>, ToolListError>> + Send + 'static {
        let peer = self.peer();
        async move {
            let (mut tools, mut cursor, mut size) = (Vec::new(), None, 0_usize);
            // Pages may be empty, so their number is bounded, too.
            for _ in 0..MAX_TOOLS {
                let page = PaginatedRequestParams::default().with_cursor(cursor);
                let page = peer
                    .list_tools(Some(page))
                    .await
                    .map_err(|error| ToolListError::NoList(describe_service_error(&error)))?;
                for tool in page.tools {
                    let (tool, tool_size) = describe_tool(tool);
                    size += tool_size;
                    tools.push(tool);
                }
                if tools.len() > MAX_TOOLS {
                    return Err(ToolListError::TooLarge(format!(
                        "offers more tools than Flowgate reads ({}); configure the server to offer fewer",
                        plural(MAX_TOOLS, "tool")
                    )));
                }
                if size > MAX_LIST_SIZE {
                    return Err(ToolListError::TooLarge(format!(
                        "offers more tools than Flowgate reads ({} MiB of names, descriptions and schemas); configure the server to offer fewer",
                        MAX_LIST_SIZE >> 20
                    )));
                }
                cursor = page.next_cursor;
                if cursor.is_none() {
                    return Ok(tools);
                }
            }
            Err(ToolListError::TooLarge(format!(
                "lists its tools on more pages than Flowgate reads ({}); configure the server to list more tools on each page, or to offer fewer",
                plural(MAX_TOOLS, "page")
            )))
        }
    }

    /// Calls a tool. If the future is dropped before the answer, the call is cancelled.
    ///
    /// # Errors
    /// If the server has ended; or if there is no answer that can be used, for example because the answer is larger than
    /// `max_bytes`.
    pub(super) fn call(
        &self,
        tool: String,
        arguments: Map<String, Value>,
        max_bytes: usize,
    ) -> impl Future<Output = Result<ToolAnswer, CallError>> + Send + 'static {
        let (peer, stderr_tail) = (self.peer(), self.stderr_tail.clone());
        async move {
            let request = CallToolRequestParams::new(tool).with_arguments(arguments);
            // `call_tool` would send further requests if the server asks for input.
            let answered = match peer.call_tool_once(request).await {
                Ok(answered) => answered,
                Err(ServiceError::TransportClosed) => {
                    // The last output of a server may arrive a little after its end.
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    return Err(CallError::Ended { last_output: stderr_tail.last_line() });
                }
                // The call could not be sent, because the server had ended before.
                Err(ServiceError::TransportSend(_)) if peer.is_transport_closed() => {
                    return Err(CallError::Ended { last_output: stderr_tail.last_line() });
                }
                Err(error) => return Err(CallError::ToolError(describe_service_error(&error))),
            };
            let result = match answered {
                CallToolResponse::Complete(result) => result,
                // The server requests input, or will answer later (as a task).
                _ => {
                    let text = "the tool requests further input or wants to answer later, and Flowgate supports neither; call it with all arguments that it needs";
                    return Err(CallError::ToolError(text.to_owned()));
                }
            };
            let content = serde_json::to_value(&result.content).map_err(|error| {
                CallError::ToolError(format!("the tool's answer is not a valid answer of MCP: {error}"))
            })?;
            let structured = result.structured_content;
            let size =
                content.to_string().len() + structured.as_ref().map_or(0, |value| value.to_string().len());
            if size > max_bytes {
                return Err(CallError::ToolError(format!(
                    "the tool's answer is larger than {max_bytes} bytes; ask for less"
                )));
            }
            // `carries: None`: the server states no label of its answer.
            Ok(ToolAnswer { content, structured, is_error: result.is_error.unwrap_or(false), carries: None })
        }
    }

    /// Closes the connection, and ends a server that is a child process. Waits at most `limit`; a server that has not
    /// ended by then is ignored.
    pub(super) async fn close(mut self, limit: Duration) {
        let _ = self.service.close_with_timeout(limit).await;
    }
}

/// Converts a tool from the list of a server. Returns also its size in bytes: of its name, its description and its
/// schemas.
fn describe_tool(tool: rmcp::model::Tool) -> (DescribedTool, usize) {
    let input = Value::Object((*tool.input_schema).clone());
    let output = tool.output_schema.map(|schema| Value::Object((*schema).clone()));
    let (name, description) = (tool.name.to_string(), tool.description.unwrap_or_default().to_string());
    let schema_lengths = [&input].into_iter().chain(&output).map(|value| value.to_string().len());
    let size = name.len() + description.len() + schema_lengths.sum::<usize>();
    let hints = tool.annotations.map_or_else(ToolHints::default, |hints| ToolHints {
        read_only: hints.read_only_hint,
        destructive: hints.destructive_hint,
        open_world: hints.open_world_hint,
    });
    (DescribedTool { name, description, input, output, hints }, size)
}

/// Returns why a request failed. The message about a call is for the model, which reads it in place of the answer.
/// Since it can contain text of the server, it gets the label of the answer that it replaces. The message about a list
/// of tools is for the user.
fn describe_service_error(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("the server answered: {}", error.message),
        ServiceError::TransportSend(error) => {
            format!("the server cannot be reached: {}", strip_client_error(&error.error.to_string()))
        }
        ServiceError::TransportClosed => "the server ended".to_owned(),
        ServiceError::UnexpectedResponse => {
            "the server's answer does not have the form that MCP requires for this request".to_owned()
        }
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_bounded_and_visible() {
        let words = StderrTail::default();
        assert_eq!(words.last_line(), None);
        words.push(&vec![b'x'; 3 * MAX_STDERR_TAIL]);
        words.push(b"\nno such\x1b[2J file\n\n");
        assert_eq!(words.last_line().unwrap(), "no such\\u{1b}[2J file");
        assert!(words.0.lock().unwrap().len() <= MAX_STDERR_TAIL);
    }

    #[test]
    fn a_server_does_not_see_the_environment() {
        let reach = ServerTransport::Command {
            command: "x".to_owned(),
            args: Vec::new(),
            env: vec![("KEY".to_owned(), "value".to_owned())],
            cwd: None,
        };
        let command = command(&reach);
        let names: Vec<&str> = command
            .as_std()
            .get_envs()
            .filter(|(_, value)| value.is_some())
            .filter_map(|(name, _)| name.to_str())
            .collect();
        assert!(names.contains(&"KEY") && names.contains(&"PATH"), "{names:?}");
        assert!(names.iter().all(|name| *name == "KEY" || INHERITED.contains(name)), "{names:?}");
    }
}
