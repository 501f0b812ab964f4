//! Runs one turn: from the decoded request of a client to the completion that it receives. `answer` calls [`run`] and
//! stores the outcome afterwards. The request's conversation is locked while the turn runs.
//!
//! `turn_models` creates the models, `turn_start` resumes the waiting turn or adds the chat to the conversation, and
//! `turn_end` records the verdicts and builds the completion. In between, this module runs the guard's [`Agent`], which
//! has the model asked and its calls judged.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::http::StatusCode;
use flowgate_guard::agent::{Agent, Toolbox};
use flowgate_lm::Error;
use flowgate_lm::chat::Completion;

use super::conversations::ConversationState;
use super::frozen_approvals::StandingApprovals;
use super::person_approver::PersonApprover;
use super::provider_tools::{ProviderCallLimits, ProviderTools, check_servers};
use super::report::RequestReport;
use super::requested_model::upstream;
use super::stream::OutgoingReply;
use super::tool_choice_model::ToolChoiceModel;
use super::turn_end::{self, AgentOutcome};
use super::turn_models::TurnModels;
use super::turn_observer::TurnObserver;
use super::turn_request::TurnRequest;
use super::turn_start::{self, TurnStart};
use super::upstream_model::UpstreamModel;
use super::used_approvals::UsedApprovals;
use crate::approvals::ApprovalContext;
use crate::database::QuestionOrigin;
use crate::http::request_error::RequestError;
use crate::telemetry::names;

/// Adds a chat to its conversation and runs the agent until the turn ends, hands calls to the client or waits for a
/// person.
///
/// A request that repeats the chat of a turn that waits for a person resumes that turn if the person has decided, and
/// otherwise returns the note that the turn waits. Any other request adds its messages to the conversation, and voids
/// open questions. Then the agent runs, the verdicts become audit events of `session`, and calls that a freeze has
/// stopped in the meantime are withheld. The returned completion is what the client receives; the caller stores
/// `session`. Text that may be released early is sent to `stream`, and the numbers for the log line go to `report`.
///
/// # Errors
/// If the model or the database fails, the conversation is full or does not have the beginning of the chat, an MCP
/// server that the provider calls had another address before, or calls are withheld because something on which they
/// depend was frozen or withdrawn. The caller must store `session` in these cases too, since it has events to record.
pub(crate) async fn run(
    turn: TurnRequest<'_>,
    session: &mut ConversationState,
    stream: &mut Option<OutgoingReply>,
    report: &mut RequestReport,
) -> Result<Completion, RequestError> {
    let TurnRequest { client, name, decoded, key, presence, approvals, .. } = turn;
    check_servers(&client.spec, &decoded.provider_tools, &session.conversation)
        .map_err(|message| RequestError::new(StatusCode::BAD_REQUEST, message))?;
    let on_failure = |model: &str, error: &Error| turn.log_failed_model(model, error);
    let models = TurnModels::new(turn, upstream(client)?, &on_failure)?;
    // The requests to each kind of model are recorded separately. Only `calls` is reported below as the model that has
    // answered, so a small model or the model that runs a tool is never reported.
    let [calls, small_calls, provider_calls] =
        [(); 3].map(|()| report.trace.model_calls(names::CHAT, client));
    let (requested, small) = (models.requested(&calls), models.small(&small_calls));
    let provider_models = models.provider_tools(&provider_calls);
    // The time that all models take, in microseconds.
    let upstream_micros = AtomicU64::new(0);
    let provider_models =
        provider_models.iter().map(|model| UpstreamModel::new(model, presence, &upstream_micros));
    let mut provider_tools = ProviderTools::new(&client.spec, &decoded.provider_tools, provider_models);

    let mut standing = StandingApprovals::read(approvals, &client.spec, name, session).await?;
    let turns = session.turns();
    // `since: turns`: no question was asked about this turn yet. For a turn that is resumed, `turn_start` sets `since`
    // to the number of turns when the question that it waited for was asked.
    let origin = QuestionOrigin::Chat { turns, since: turns };
    let context = ApprovalContext { client: &client.spec, conversation: name, origin, presence, key };
    let used_approvals = UsedApprovals::default();
    let mut person = PersonApprover::new(approvals, context, &used_approvals);
    let voided = match turn_start::begin(&turn, session, &mut person, report).await? {
        TurnStart::Waits(completion) => return Ok(completion),
        TurnStart::Resumes => {
            standing.is_resumed = true;
            Vec::new()
        }
        TurnStart::Begins(voided) => voided,
    };
    turn_start::report_hidden(&turn, session, stream, report).await;
    provider_tools.compare_with_offer(&client.spec, &session.conversation);

    // The agent runs until the turn ends or waits.
    let requested = ToolChoiceModel::new(&requested, &decoded.request.choice);
    let requested = UpstreamModel::new(&requested, presence, &upstream_micros);
    let small = UpstreamModel::new(&small, presence, &upstream_micros);
    let mut observer = TurnObserver {
        client,
        name,
        approvals,
        presence,
        provider_tools: &provider_tools,
        refusal: &|tool| provider_tools.refusal(tool),
        stream,
        before: String::new(),
        recalled: session.recalled.clone(),
        clock: report.trace.judging_clock(&session.conversation),
        standing: &standing,
        recorder: turn.recorder,
        key,
        used: &used_approvals,
        recorded: Vec::new(),
        provider_calls: ProviderCallLimits::new(
            &client.spec,
            &decoded.provider_tools,
            decoded.max_provider_calls,
        ),
    };
    let begun = Instant::now();
    let mut agent = Agent {
        model: &requested,
        screener: &small,
        filler: &small,
        tools: &Toolbox::external(),
        provider_tools: Some(&provider_tools),
        approver: &mut person,
        clock: &|| begun.elapsed(),
        observer: &mut observer,
    };
    let outcome = agent.continue_turn(&mut session.conversation).await;

    let further = person.answers_for_further_calls();
    let PersonApprover { question, upcoming, announced, asked, failure, .. } = person;
    let TurnObserver { clock, recorded, .. } = observer;
    report.trace.set_judging(clock, asked);
    report.trace.set_answered(&calls);
    report.add_upstream_time(Duration::from_micros(upstream_micros.load(Ordering::Relaxed)));
    let outcome = AgentOutcome {
        turn: outcome,
        voided,
        recorded,
        used: used_approvals.into_pending(),
        further,
        question,
        upcoming,
        announced,
        approval_failure: failure,
    };
    turn_end::end(&turn, session, &standing, outcome, report).await
}
