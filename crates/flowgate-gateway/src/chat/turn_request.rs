//! Defines [`TurnRequest`]: a client's decoded request, with the client, the name of the conversation, and the services
//! (approvals, audit log, operator's log) that answering it needs. `answer` creates it, and the modules of `chat` that
//! run a turn read it.

use flowgate_guard::history::SentChat;
use flowgate_lm::wire::{self, Api};

use super::budgets::TurnSpending;
use super::clients::ClientState;
use crate::approvals::ApprovalService;
use crate::http::client_presence::ClientPresence;
use crate::log::OperatorLog;
use crate::recorder::Recorder;

/// A request with everything needed to answer it.
#[derive(Clone, Copy)]
pub(crate) struct TurnRequest<'t> {
    /// The API of the client.
    pub(crate) api: Api,
    pub(crate) client: &'t ClientState,
    /// The name of the conversation.
    pub(crate) name: &'t str,
    /// The decoded request.
    pub(crate) decoded: &'t wire::ReceivedRequest,
    /// The messages of the request, with their digests, as the conversation compares them with its history.
    pub(crate) chat: &'t SentChat<'t>,
    /// The client's key for the upstream, if the client sends one.
    pub(crate) key: Option<&'t str>,
    /// The features of the Messages API that the client asks for, as far as they are passed on.
    pub(crate) betas: &'t [&'static str],
    /// Reports whether the client still waits.
    pub(crate) presence: &'t ClientPresence,
    pub(crate) approvals: &'t ApprovalService,
    /// The audit log, for calls that the provider runs during the turn.
    pub(crate) recorder: &'t Recorder,
    pub(crate) log: &'t OperatorLog,
    /// Whether the client asks for an explanation of what is hidden from the model.
    pub(crate) explains: bool,
    /// Receives what the models of the turn use.
    pub(super) spending: &'t TurnSpending,
}
