//! Defines the names of the spans, attributes and events that the gateway exports. A name that the semantic conventions
//! of OpenTelemetry define, for generative AI or for MCP, is taken from there; all others begin with `flowgate.`. The
//! code that records spans (`chat::turn_trace`, `mcp_proxy::exchange_trace` and others) uses these names.
//!
//! `docs/operations.md` has a table of these names, which a test compares with this file.

/// The name under which all spans are recorded.
pub(crate) const SCOPE: &str = "flowgate";

/// The operation of a span: `chat`, `embeddings`, `guardrail` or `execute_tool`.
pub(crate) const OPERATION: &str = "gen_ai.operation.name";
/// The form of the provider's API.
pub(crate) const PROVIDER: &str = "gen_ai.provider.name";
/// The requested model.
pub(crate) const REQUEST_MODEL: &str = "gen_ai.request.model";
/// The model that has answered.
pub(crate) const RESPONSE_MODEL: &str = "gen_ai.response.model";
/// Why the model stopped.
pub(crate) const FINISH_REASONS: &str = "gen_ai.response.finish_reasons";
/// The tokens of the request.
pub(crate) const INPUT_TOKENS: &str = "gen_ai.usage.input_tokens";
/// The tokens of the answer.
pub(crate) const OUTPUT_TOKENS: &str = "gen_ai.usage.output_tokens";
/// The conversation, if the gateway has named it.
pub(crate) const CONVERSATION: &str = "gen_ai.conversation.id";
/// The tool of a call.
pub(crate) const TOOL: &str = "gen_ai.tool.name";
/// The method of a message to an MCP server.
pub(crate) const MCP_METHOD: &str = "mcp.method.name";
/// The host of the server that is asked.
pub(crate) const SERVER_ADDRESS: &str = "server.address";
/// The port of the server that is asked.
pub(crate) const SERVER_PORT: &str = "server.port";
/// The status of the reply to the client, if it is an error.
pub(crate) const STATUS: &str = "http.response.status_code";
/// Why an operation failed.
pub(crate) const ERROR: &str = "error.type";

/// The client of the configuration.
pub(crate) const CLIENT: &str = "flowgate.client";
/// The upstream of the configuration that is asked.
pub(crate) const UPSTREAM: &str = "flowgate.upstream";
/// The MCP server of the configuration.
pub(crate) const MCP_SERVER: &str = "flowgate.mcp.server";
/// Whether verdicts are enforced: `enforce` or `watch`.
pub(crate) const MODE: &str = "flowgate.mode";
/// The method that chooses the view of each step.
pub(crate) const METHOD: &str = "flowgate.method";
/// The verdict on a call: `permit`, `confirm` or `deny`.
pub(crate) const VERDICT: &str = "flowgate.verdict";
/// The kinds of the reasons of a verdict.
pub(crate) const REASON_KINDS: &str = "flowgate.reason.kinds";
/// Whether people were asked about a call.
pub(crate) const ASKED: &str = "flowgate.question.asked";
/// The number of hidden regions.
pub(crate) const HIDDEN: &str = "flowgate.hidden_regions";
/// The number of questions to people.
pub(crate) const QUESTIONS: &str = "flowgate.questions";
/// The number of withheld replies.
pub(crate) const WITHHELD: &str = "flowgate.withheld_replies";
/// Why a turn ended early.
pub(crate) const ENDED: &str = "flowgate.turn.ended";
/// The place of an upstream in the order in which they are asked, from 0.
pub(crate) const FALLBACK: &str = "flowgate.fallback.index";

/// The event of a verdict.
pub(crate) const VERDICT_EVENT: &str = "flowgate.verdict";
/// The event of a request to a model's server that failed and is sent again.
pub(crate) const RETRY_EVENT: &str = "flowgate.retry";

/// The operation of a request to a model.
pub(crate) const CHAT: &str = "chat";
/// The operation of a request for embeddings.
pub(crate) const EMBEDDINGS: &str = "embeddings";
/// The operation of a judgement for another gateway.
pub(crate) const GUARDRAIL: &str = "guardrail";
/// The operation of a call of a tool.
pub(crate) const EXECUTE_TOOL: &str = "execute_tool";
/// The constant that replaces a name that an agent, a model or a server has chosen.
pub(crate) const OTHER: &str = "other";
