//! Puts MCP servers behind the gateway: an agent's tools run in the same conversation as its chat.
//!
//! The messages between a client and a server pass a [proxy](flowgate_mcp), one for each server and conversation. All
//! of them, and the chat, share the monitor of the conversation: what one server has shown counts when another server
//! or the model is called. No decision depends on the session id of MCP.
//!
//! The inputs of a proxy are stored with those of the chat, in order, so that any gateway can replay the
//! conversation.
//!
//! * `exchange`: one message of a client, until it is answered.
//! * `request`: a request whose body has not been read.
//! * `proxies`: the proxies of a conversation; `conversation_inputs`: their inputs, and what follows from them.
//! * `person_questions`: questions to people; `audit_records`: audit records of those to people at clients.
//! * `tool_approvals`: the tools on offer; `freezes`: what an operator has stopped.
//! * `server_requests`: a message to a server, until its answer is labelled.
//! * `listening`: server messages that answer no request; `stream_watch`: checks while a client listens.
//! * `upstream`: requests to a server; `answer_bytes`, `event_stream`: its answers; `resumption`: streams that it ended too
//!   early; `stop_signal`: what ends the wait for it.
//! * `pending_reply`: replies to a client; `pending_requests`: requests in progress; `stream_place`: the bound on listening
//!   streams of a client.
//! * `headers`: the HTTP headers of a message.

mod answer_bytes;
mod audit_records;
mod conversation_inputs;
mod event_stream;
mod exchange;
mod freezes;
mod headers;
pub(crate) mod listening;
pub(crate) mod pending_reply;
pub(crate) mod pending_requests;
mod person_questions;
pub(crate) mod proxies;
mod request;
mod resumption;
mod server_requests;
mod stop_signal;
pub(crate) mod stream_place;
mod stream_watch;
mod tool_approvals;
pub(crate) mod upstream;
