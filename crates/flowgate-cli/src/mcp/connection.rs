//! Opens a connection to an MCP server, which is a child process or a URL, lists its tools and calls them.

use std::collections::VecDeque;
use std::process::Stdio;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

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

/// The largest number of tools of one server, and of pages in its list.
const MAX_TOOLS: usize = 1_000;
/// The largest list of tools, in bytes.
const MAX_LISTED: usize = 4 << 20;
/// The number of bytes that are kept of a server's standard error.
const MAX_KEPT_STDERR: usize = 4 << 10;
/// The environment variables that a server inherits in addition to its `env`. The model's key is not among them.
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

/// A connection that is or was open.
pub(super) struct McpConnection {
    service: RunningService<RoleClient, ClientConfig>,
    words: StderrTail,
}

/// The reason why a call has no answer.
pub(super) enum CallError {
    /// The server ended; its last output.
    Ended { words: Option<String> },
    /// It could not be started.
    NotStarted(String),
    /// An error that the model may read.
    ToolError(String),
}

/// A server's standard error. Its end is kept for error messages.
#[derive(Clone, Default)]
struct StderrTail(Arc<Mutex<VecDeque<u8>>>);

impl StderrTail {
    fn push(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let over = kept.len().saturating_sub(MAX_KEPT_STDERR);
        kept.drain(..over);
    }

    /// Returns the last line, escaped for a terminal.
    fn last_line(&self) -> Option<String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(kept.make_contiguous()).into_owned();
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(escaping::excerpt(line, 200))
    }

    async fn follow(self, mut stderr: ChildStderr) {
        let mut buffer = [0_u8; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            self.push(buffer.get(..count).unwrap_or_default());
        }
    }
}

/// Starts a server, or connects to its URL.
///
/// # Errors
/// Returns the reason why it cannot be used: a predicate for the message `the server NAME ...`.
pub(super) async fn open(spec: McpServerSpec, limits: CallLimits) -> Result<McpConnection, String> {
    let words = StderrTail::default();
    let served = match &spec.reach {
        ServerTransport::Command { .. } => {
            let mut command = CommandWrap::from(command(&spec.reach));
            // A server in its own process group does not receive Ctrl-C, and ends together with its children.
            #[cfg(unix)]
            command.wrap(process_wrap::tokio::ProcessGroup::leader());
            let spawned = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn();
            let (transport, stderr) = spawned.map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "cannot be started: its program or its working folder does not exist".to_owned()
                }
                std::io::ErrorKind::PermissionDenied => {
                    "cannot be started: its program is not executable".to_owned()
                }
                _ => format!("cannot be started: {error}"),
            })?;
            if let Some(stderr) = stderr {
                tokio::spawn(words.clone().follow(stderr));
            }
            identity().serve(transport).await
        }
        ServerTransport::Url { url, headers } => {
            let headers: Result<_, String> =
                headers.iter().map(|(name, value)| header(name, value)).collect();
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers?)
                .max_sse_event_size(limits.answer.saturating_mul(2));
            let client = McpHttpClient::new(limits);
            identity().serve(StreamableHttpClientTransport::with_client(client, config)).await
        }
    };
    match served {
        Ok(service) => Ok(McpConnection { service, words }),
        Err(error) => {
            // Its last output may arrive a little after its end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let words = words.last_line().map(|words| format!(" ({words})")).unwrap_or_default();
            Err(format!("cannot be used: {}{words}", describe_initialize_error(&error)))
        }
    }
}

/// Returns the client's information for servers: it offers no capability.
fn identity() -> ClientConfig {
    let name = Implementation::new("flowgate", env!("CARGO_PKG_VERSION"));
    ClientConfig::new(ClientCapabilities::default(), name)
}

fn command(reach: &ServerTransport) -> Command {
    let ServerTransport::Command { command, args, env, cwd } = reach else { return Command::new("") };
    let mut process = Command::new(command);
    process.args(args).env_clear();
    process.envs(INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    process.envs(env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    if let Some(cwd) = cwd {
        process.current_dir(cwd);
    }
    process
}

/// Returns why nothing could be sent, without the prefix that `rmcp` adds.
fn strip_client_error(error: &str) -> String {
    error.strip_prefix("Client error: ").unwrap_or(error).to_owned()
}

/// Returns why the initialization of a server failed.
fn describe_initialize_error(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it ended before it answered `initialize`".to_owned(),
        ClientInitializeError::TransportError { error, .. } => {
            escaping::excerpt(&strip_client_error(&error.error.to_string()), 200)
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it answered: {}", escaping::excerpt(&error.message, 200))
        }
        _ => "its first answer is not an MCP message; check that the command or the URL is that of an MCP server, and that a command writes \
              nothing else to its standard output"
            .to_owned(),
    }
}

impl McpConnection {
    /// Returns whether the server ended.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    fn peer(&self) -> Peer<RoleClient> {
        self.service.peer().clone()
    }

    /// Lists all tools.
    pub(super) fn tools(&self) -> impl Future<Output = Result<Vec<DescribedTool>, String>> + Send + 'static {
        let peer = self.peer();
        async move {
            let (mut tools, mut cursor, mut size) = (Vec::new(), None, 0_usize);
            for _ in 0..MAX_TOOLS {
                let page = PaginatedRequestParams::default().with_cursor(cursor);
                let page =
                    peer.list_tools(Some(page)).await.map_err(|error| describe_service_error(&error))?;
                for tool in page.tools {
                    let input = Value::Object((*tool.input_schema).clone());
                    let output = tool.output_schema.map(|schema| Value::Object((*schema).clone()));
                    let (name, description) =
                        (tool.name.to_string(), tool.description.unwrap_or_default().to_string());
                    let lengths = [&input].into_iter().chain(&output).map(|value| value.to_string().len());
                    size += name.len() + description.len() + lengths.sum::<usize>();
                    tools.push(DescribedTool { name, description, input, output });
                }
                if tools.len() > MAX_TOOLS || size > MAX_LISTED {
                    return Err(format!(
                        "the list exceeds the limit of {MAX_TOOLS}, or of {} MiB",
                        MAX_LISTED >> 20
                    ));
                }
                cursor = page.next_cursor;
                if cursor.is_none() {
                    return Ok(tools);
                }
            }
            Err("its list of tools has too many pages".to_owned())
        }
    }

    /// Calls a tool. A call that is dropped before its answer is cancelled.
    pub(super) fn call(
        &self,
        tool: String,
        arguments: Map<String, Value>,
        max_bytes: usize,
    ) -> impl Future<Output = Result<ToolAnswer, CallError>> + Send + 'static {
        let (peer, words) = (self.peer(), self.words.clone());
        async move {
            let asked = CallToolRequestParams::new(tool).with_arguments(arguments);
            let answered = match peer.call_tool_once(asked).await {
                Ok(answered) => answered,
                Err(ServiceError::TransportClosed) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    return Err(CallError::Ended { words: words.last_line() });
                }
                Err(ServiceError::TransportSend(_)) if peer.is_transport_closed() => {
                    return Err(CallError::Ended { words: words.last_line() });
                }
                Err(error) => return Err(CallError::ToolError(describe_service_error(&error))),
            };
            let result = match answered {
                CallToolResponse::Complete(result) => result,
                // It requests input, or will answer later.
                _ => {
                    let text = "the tool requests further input, which this client does not support";
                    return Err(CallError::ToolError(text.to_owned()));
                }
            };
            let content = serde_json::to_value(&result.content).map_err(|_| {
                CallError::ToolError("the tool's answer is not a valid answer of MCP".to_owned())
            })?;
            let structured = result.structured_content;
            let size =
                content.to_string().len() + structured.as_ref().map_or(0, |value| value.to_string().len());
            if size > max_bytes {
                return Err(CallError::ToolError(format!(
                    "the tool's answer is larger than {max_bytes} bytes; ask for less"
                )));
            }
            Ok(ToolAnswer { content, structured, is_error: result.is_error.unwrap_or(false), carries: None })
        }
    }

    /// Ends the server.
    pub(super) async fn close(mut self, limit: Duration) {
        let _ = self.service.close_with_timeout(limit).await;
    }
}

/// Returns an error message for the model, with the label of the answer that it replaces.
fn describe_service_error(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("the server answered: {}", error.message),
        ServiceError::TransportSend(error) => {
            format!("the server cannot be reached: {}", strip_client_error(&error.error.to_string()))
        }
        ServiceError::TransportClosed => "the server ended".to_owned(),
        ServiceError::UnexpectedResponse => {
            "the server's answer is not the answer that MCP requires for this request".to_owned()
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
        words.push(&vec![b'x'; 3 * MAX_KEPT_STDERR]);
        words.push(b"\nno such\x1b[2J file\n\n");
        assert_eq!(words.last_line().unwrap(), "no such\\u{1b}[2J file");
        assert!(words.0.lock().unwrap().len() <= MAX_KEPT_STDERR);
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
