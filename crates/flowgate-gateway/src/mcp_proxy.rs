//! MCP servers behind the gateway: an agent's tools, in the same conversation as its chat.
//!
//! The messages between a client and a server pass a [state machine](flowgate_mcp), one for each server and
//! conversation. All of them, and the chat, share one monitor: what one server has shown counts when another server or
//! the model is called. No decision depends on the session id of MCP.
//!
//! The inputs of a machine are stored with those of the chat, in order, so that any gateway can replay the
//! conversation.
//!
//! * `exchange`: one message of a client, until it is answered.
//! * `request`: a request whose body has not been read.
//! * `proxies`: the state machines of a conversation.
//! * `tool_approvals`: the tools on offer.
//! * `audit_records`: audit records of questions to people at clients.
//! * `listening`: server messages that answer no request; `stream_watch`: checks while a client listens.
//! * `upstream`: requests to a server; `answer_parts`, `event_stream`: its answers; `resumption`: streams that it ended too
//!   early.
//! * `pending_reply`: replies to a client; `pending_requests`: requests in progress; `stream_slot`: the bound on listening
//!   streams of a client.
//! * `headers`: the HTTP headers of a message.

mod answer_parts;
mod audit_records;
mod event_stream;
pub(crate) mod exchange;
mod headers;
pub(crate) mod listening;
mod pending_reply;
pub(crate) mod pending_requests;
pub(crate) mod proxies;
mod request;
mod resumption;
pub(crate) mod stream_slot;
mod stream_watch;
mod tool_approvals;
pub(crate) mod upstream;
