//! A connection with a server: a child process, or an address.

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

use super::config::{Reach, Spec};
use super::http::{Client, header};
use super::{Described, Limits};
use crate::visible;

/// The most tools that one server may have, and the most pages in which it may list them.
const MAX_TOOLS: usize = 1_000;
/// The largest list of tools, in bytes.
const MAX_LISTED: usize = 4 << 20;
/// How much is kept of what a server writes to its standard error.
const KEPT: usize = 4 << 10;
/// What a server learns of the environment, besides what its `env` says. A key for the model is not among it.
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

/// A connection that was open once.
pub(super) struct Connection {
    service: RunningService<RoleClient, ClientConfig>,
    words: Words,
}

/// Why a call has no answer of its tool.
pub(super) enum CallError {
    /// The server has ended; what it said last.
    Ended { words: Option<String> },
    /// It could not be started.
    NotStarted(String),
    /// Something that the model may know of.
    Told(String),
}

/// What a server writes to its standard error: its end is kept, in case it explains something.
#[derive(Clone, Default)]
struct Words(Arc<Mutex<VecDeque<u8>>>);

impl Words {
    fn hear(&self, bytes: &[u8]) {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(bytes);
        let over = kept.len().saturating_sub(KEPT);
        kept.drain(..over);
    }

    /// The last line, as a terminal may show it.
    fn last(&self) -> Option<String> {
        let mut kept = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let text = String::from_utf8_lossy(kept.make_contiguous()).into_owned();
        let line = text.lines().rev().find(|line| !line.trim().is_empty())?;
        Some(visible::short(line, 200))
    }

    async fn follow(self, mut stderr: ChildStderr) {
        let mut buffer = [0_u8; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            self.hear(buffer.get(..count).unwrap_or_default());
        }
    }
}

/// Starts a server, or calls at its address.
///
/// # Errors
/// Why it cannot be used: the end of a sentence about it.
pub(super) async fn open(spec: Spec, limits: Limits) -> Result<Connection, String> {
    let words = Words::default();
    let served = match &spec.reach {
        Reach::Command { .. } => {
            let mut command = CommandWrap::from(command(&spec.reach));
            // A server of its own group does not hear of Ctrl-C, and ends with all that it has started.
            #[cfg(unix)]
            command.wrap(process_wrap::tokio::ProcessGroup::leader());
            let spawned = TokioChildProcess::builder(command).stderr(Stdio::piped()).spawn();
            let (transport, stderr) = spawned.map_err(|error| match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "cannot be run: there is no such program or folder".to_owned()
                }
                std::io::ErrorKind::PermissionDenied => "cannot be run: it may not be executed".to_owned(),
                _ => format!("cannot be run: {error}"),
            })?;
            if let Some(stderr) = stderr {
                tokio::spawn(words.clone().follow(stderr));
            }
            identity().serve(transport).await
        }
        Reach::Url { url, headers } => {
            let headers: Result<_, String> =
                headers.iter().map(|(name, value)| header(name, value)).collect();
            let config = StreamableHttpClientTransportConfig::with_uri(url.as_str())
                .custom_headers(headers?)
                .max_sse_event_size(limits.answer.saturating_mul(2));
            let client = Client::new(limits);
            identity().serve(StreamableHttpClientTransport::with_client(client, config)).await
        }
    };
    match served {
        Ok(service) => Ok(Connection { service, words }),
        Err(error) => {
            // What it wrote before it ended may arrive a little later than its end.
            tokio::time::sleep(Duration::from_millis(100)).await;
            let words = words.last().map(|words| format!(" ({words})")).unwrap_or_default();
            Err(format!("cannot be used: {}{words}", begun(&error)))
        }
    }
}

/// What servers are told of us: nothing that they could ask us to do.
fn identity() -> ClientConfig {
    let name = Implementation::new("flowgate", env!("CARGO_PKG_VERSION"));
    ClientConfig::new(ClientCapabilities::default(), name)
}

fn command(reach: &Reach) -> Command {
    let Reach::Command { command, args, env, cwd } = reach else { return Command::new("") };
    let mut process = Command::new(command);
    process.args(args).env_clear();
    process.envs(INHERITED.iter().filter_map(|name| Some((*name, std::env::var_os(name)?))));
    process.envs(env.iter().map(|(name, value)| (name.as_str(), value.as_str())));
    if let Some(cwd) = cwd {
        process.current_dir(cwd);
    }
    process
}

/// Why nothing could be sent, without what `rmcp` puts before our own words.
fn sent(error: &str) -> String {
    error.strip_prefix("Client error: ").unwrap_or(error).to_owned()
}

/// Why a server could not be greeted.
fn begun(error: &ClientInitializeError) -> String {
    match error {
        ClientInitializeError::ConnectionClosed(_) => "it ended before it had answered".to_owned(),
        ClientInitializeError::TransportError { error, .. } => {
            visible::short(&sent(&error.error.to_string()), 200)
        }
        ClientInitializeError::JsonRpcError(error) => {
            format!("it says: {}", visible::short(&error.message, 200))
        }
        _ => "its first answer is not one of MCP".to_owned(),
    }
}

impl Connection {
    /// Whether the server has ended.
    pub(super) fn is_closed(&self) -> bool {
        self.service.is_closed() || self.service.peer().is_transport_closed()
    }

    fn peer(&self) -> Peer<RoleClient> {
        self.service.peer().clone()
    }

    /// Asks for all tools.
    pub(super) fn tools(&self) -> impl Future<Output = Result<Vec<Described>, String>> + Send + 'static {
        let peer = self.peer();
        async move {
            let (mut tools, mut cursor, mut size) = (Vec::new(), None, 0_usize);
            for _ in 0..MAX_TOOLS {
                let page = PaginatedRequestParams::default().with_cursor(cursor);
                let page = peer.list_tools(Some(page)).await.map_err(|error| told(&error))?;
                for tool in page.tools {
                    let input = Value::Object((*tool.input_schema).clone());
                    let output = tool.output_schema.map(|schema| Value::Object((*schema).clone()));
                    let (name, description) =
                        (tool.name.to_string(), tool.description.unwrap_or_default().to_string());
                    let lengths = [&input].into_iter().chain(&output).map(|value| value.to_string().len());
                    size += name.len() + description.len() + lengths.sum::<usize>();
                    tools.push(Described { name, description, input, output });
                }
                if tools.len() > MAX_TOOLS || size > MAX_LISTED {
                    return Err(format!("there are more than {MAX_TOOLS}, or {} MiB", MAX_LISTED >> 20));
                }
                cursor = page.next_cursor;
                if cursor.is_none() {
                    return Ok(tools);
                }
            }
            Err("its list has no end".to_owned())
        }
    }

    /// Calls a tool. What is dropped before it has answered is told to stop.
    pub(super) fn call(
        &self,
        tool: String,
        arguments: Map<String, Value>,
        largest: usize,
    ) -> impl Future<Output = Result<ToolAnswer, CallError>> + Send + 'static {
        let (peer, words) = (self.peer(), self.words.clone());
        async move {
            let asked = CallToolRequestParams::new(tool).with_arguments(arguments);
            let answered = match peer.call_tool_once(asked).await {
                Ok(answered) => answered,
                Err(ServiceError::TransportClosed) => {
                    tokio::time::sleep(Duration::from_millis(100)).await;
                    return Err(CallError::Ended { words: words.last() });
                }
                Err(ServiceError::TransportSend(_)) if peer.is_transport_closed() => {
                    return Err(CallError::Ended { words: words.last() });
                }
                Err(error) => return Err(CallError::Told(told(&error))),
            };
            let result = match answered {
                CallToolResponse::Complete(result) => result,
                // It wants to ask somebody, or to answer later.
                _ => {
                    let text =
                        "the tool wants more than its arguments and some time, which nobody here gives";
                    return Err(CallError::Told(text.to_owned()));
                }
            };
            let content = serde_json::to_value(&result.content)
                .map_err(|_| CallError::Told("the tool's answer cannot be read".to_owned()))?;
            let structured = result.structured_content;
            let size =
                content.to_string().len() + structured.as_ref().map_or(0, |value| value.to_string().len());
            if size > largest {
                return Err(CallError::Told(format!(
                    "the tool's answer is larger than {largest} bytes; ask for less"
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

/// An error in words that the model may be told, at the label of the answer that it stands for.
fn told(error: &ServiceError) -> String {
    match error {
        ServiceError::McpError(error) => format!("the server says: {}", error.message),
        ServiceError::TransportSend(error) => {
            format!("the server cannot be reached: {}", sent(&error.error.to_string()))
        }
        ServiceError::TransportClosed => "the server has ended".to_owned(),
        ServiceError::UnexpectedResponse => "the server's answer is not one of MCP".to_owned(),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_words_are_bounded_and_visible() {
        let words = Words::default();
        assert_eq!(words.last(), None);
        words.hear(&vec![b'x'; 3 * KEPT]);
        words.hear(b"\nno such\x1b[2J file\n\n");
        assert_eq!(words.last().unwrap(), "no such\\u{1b}[2J file");
        assert!(words.0.lock().unwrap().len() <= KEPT);
    }

    #[test]
    fn a_server_does_not_see_the_environment() {
        let reach = Reach::Command {
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
