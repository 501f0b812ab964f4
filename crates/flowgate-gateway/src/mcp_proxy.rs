//! Puts MCP servers behind the gateway: an agent's tools run in the same conversation as its chat.
//!
//! The messages between a client and a server go through a [proxy](flowgate_mcp), one for each server and conversation.
//! All proxies and the chat of a conversation share one monitor: the text that one server has shown influences the
//! labels of later calls to other servers, and of later requests to the model. No decision depends on the session id of
//! MCP. `http::service` calls these routes.
//!
//! The inputs of the proxies are stored together with the inputs of the chat, in order: any gateway can replay the
//! conversation.
//!
//! * `exchange`: processes one message of a client, until it is answered; `exchange_trace`: records its spans.
//! * `request`: authenticates a client by the headers of its request, checks limits and finds the conversation.
//! * `proxies`: owns the proxies of a conversation; `conversation_inputs`: hands an input to a proxy, and stores the
//!   effects before anything is sent.
//! * `person_questions`: asks people whether a call may run; `audit_records`: records the questions that an MCP client
//!   asks its own user.
//! * `tool_approvals`: offers only the tools that the tenant has approved, as they were described then; `freezes`:
//!   stops what an admin has frozen.
//! * `server_requests`: sends a message to a server, and labels its answer.
//! * `listening`: forwards server messages that answer no request; `stream_check`: checks for freezes while a client
//!   listens.
//! * `upstream`: sends requests to a server, with its `server_credential`; `answer_bytes`, `event_stream`: read its
//!   answers; `resumption`: resumes a stream that ended before the answer; `stop_signal`: ends the wait for a server
//!   (disconnect, cancellation, shutdown, freeze, time limit).
//! * `pending_reply`: writes replies to a client; `pending_requests`: holds requests in progress; `stream_place`:
//!   limits the listening streams of a client.
//! * `headers`: generates and checks the HTTP headers of a message.

mod answer_bytes;
mod audit_records;
mod conversation_inputs;
mod event_stream;
mod exchange;
mod exchange_trace;
mod freezes;
mod headers;
pub(crate) mod listening;
pub(crate) mod pending_reply;
pub(crate) mod pending_requests;
mod person_questions;
pub(crate) mod proxies;
mod request;
mod resumption;
pub(crate) mod server_credential;
mod server_requests;
mod stop_signal;
mod stream_check;
pub(crate) mod stream_place;
mod tool_approvals;
pub(crate) mod upstream;
