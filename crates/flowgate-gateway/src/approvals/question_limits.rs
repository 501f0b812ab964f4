//! Applies the configured limits on questions. The method `question_limits` returns them in the form in which the
//! database checks them; the database counts the questions. If a limit is reached, no person is asked and the call does
//! not run. The method `report_full` then informs the operator, by a line in the log, a counter for which there is an
//! alert, and a record in the audit log. `ApprovalService` calls both methods when it asks a question.

use flowgate_audit::AuditEvent;
use flowgate_guard::approve::ApprovalRequest;

use super::ApprovalService;
use crate::config::{ApprovalSettings, ClientSettings};
use crate::database::{AskedLimits, DatabaseError, QuestionLimit, QuestionLimits};
use crate::log::Limit;

/// The advice to the operator if a limit on the number of questions is reached.
const FIND_THE_CAUSE: &str = "find out which text provokes the questions before you raise the limit";
/// The advice to the operator if the flood rule applies: too many refusals in a row.
const FIND_THE_FLOOD: &str = "find out whether a text provokes these questions; people are asked again after a pause, or after an approval";

impl ApprovalService {
    /// Converts the configured limits on questions to the type that the database checks: the limits on open questions
    /// and, in `asked`, those on how often people are asked at all. A question that a lasting grant answers is exempt
    /// from the limits in `asked`: the caller then sets `asked` to `None`.
    pub(super) fn question_limits(&self) -> QuestionLimits {
        let ApprovalSettings {
            open_of_client,
            open_of_conversation,
            hourly_of_conversation,
            hourly_of_client,
            total_of_conversation,
            refusals_of_conversation,
            refusals_of_client,
            ..
        } = self.settings;
        QuestionLimits {
            of_conversation: i64::from(open_of_conversation),
            of_client: i64::from(open_of_client),
            asked: Some(AskedLimits {
                in_all: i64::from(total_of_conversation),
                an_hour: i64::from(hourly_of_conversation),
                of_client_an_hour: i64::from(hourly_of_client),
                refusals: i64::from(refusals_of_conversation),
                refusals_of_client: i64::from(refusals_of_client),
            }),
        }
    }

    /// Records in the operator's log and the audit log that the question `ask` is not asked, since `limit` is reached.
    /// The line in the log names the setting to change and, for limits that an attacker may have provoked, the advice
    /// to look for the cause first.
    ///
    /// # Errors
    /// If the audit log cannot be written.
    pub(super) fn report_full(
        &self,
        client: &ClientSettings,
        conversation: &str,
        ask: &ApprovalRequest,
        limit: QuestionLimit,
    ) -> Result<(), DatabaseError> {
        let settings = &self.settings;
        let (what, setting, most, advice) = match limit {
            QuestionLimit::OpenOfConversation => (
                "open questions of one conversation",
                "[approvals] open-questions-of-conversation",
                settings.open_of_conversation,
                None,
            ),
            QuestionLimit::OpenOfClient => {
                ("open questions of one client", "[approvals] open-questions", settings.open_of_client, None)
            }
            QuestionLimit::OfConversation => (
                "questions of one conversation",
                "[approvals] questions-of-conversation",
                settings.total_of_conversation,
                Some(FIND_THE_CAUSE),
            ),
            QuestionLimit::OfConversationAnHour => (
                "questions of one conversation in an hour",
                "[approvals] questions-an-hour-of-conversation",
                settings.hourly_of_conversation,
                Some(FIND_THE_CAUSE),
            ),
            QuestionLimit::OfClientAnHour => (
                "questions of one client in an hour",
                "[approvals] questions-an-hour",
                settings.hourly_of_client,
                Some(FIND_THE_CAUSE),
            ),
            QuestionLimit::RefusalsOfConversation => (
                "refused questions of one conversation in a row",
                "[approvals] refusals-in-a-row-of-conversation",
                settings.refusals_of_conversation,
                Some(FIND_THE_FLOOD),
            ),
            QuestionLimit::RefusalsOfClient => (
                "refused questions of one client in a row",
                "[approvals] refusals-in-a-row",
                settings.refusals_of_client,
                Some(FIND_THE_FLOOD),
            ),
            // Not about a call: `tool_offers` reports it.
            QuestionLimit::RefusedOffers => return Ok(()),
        };
        self.log.limit(&Limit {
            what,
            effect: "no person is asked, and the call does not run",
            setting: Some(setting),
            advice,
            most: u64::from(most),
            client: &client.name,
            conversation: Some(conversation),
        });
        let event = AuditEvent::Unasked {
            conversation: conversation.to_owned(),
            client: client.name.clone(),
            tenant: client.tenant.clone(),
            tool: ask.tool.to_string(),
            digest: ask.digest.clone(),
            cause: format!("too many {what}: {most}"),
        };
        self.recorder.record(&[event.into()])
    }
}
