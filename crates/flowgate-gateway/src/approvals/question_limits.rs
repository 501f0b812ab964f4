//! Passes the configured limits on questions to the database, and reports that one is reached: nobody is asked then, the
//! call does not run, and the operator learns of it by a line in the log, a counter that raises an alarm and a record in
//! the audit log.

use flowgate_audit::AuditEvent;
use flowgate_guard::approve::ApprovalRequest;

use super::ApprovalService;
use crate::config::{ApprovalSettings, ClientSettings};
use crate::database::{AskedLimits, DatabaseError, QuestionLimit, QuestionLimits};
use crate::log::Limit;

/// What the operator should do about text that provokes questions.
const FIND_THE_CAUSE: &str = "find out which text provokes them before raising the limit";
/// What the operator should do about refusals in a row.
const FIND_THE_FLOOD: &str = "find out whether a text provokes these questions; people are asked again after a pause, or after an approval";

impl ApprovalService {
    /// Returns the limits on questions, in the form of the database.
    pub(super) fn question_limits(&self) -> QuestionLimits {
        let ApprovalSettings {
            of_client,
            of_conversation,
            an_hour,
            an_hour_of_client,
            in_all,
            refusals,
            refusals_of_client,
            ..
        } = self.asking;
        QuestionLimits {
            of_conversation: i64::from(of_conversation),
            of_client: i64::from(of_client),
            asked: Some(AskedLimits {
                in_all: i64::from(in_all),
                an_hour: i64::from(an_hour),
                of_client_an_hour: i64::from(an_hour_of_client),
                refusals: i64::from(refusals),
                refusals_of_client: i64::from(refusals_of_client),
            }),
        }
    }

    /// Records in the operator's log and the audit log that no question is asked, since `limit` is reached.
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
        let asking = &self.asking;
        let (what, setting, most, advice) = match limit {
            QuestionLimit::OpenOfConversation => (
                "open questions of one conversation",
                "[approvals] open-questions-of-conversation",
                asking.of_conversation,
                None,
            ),
            QuestionLimit::OpenOfClient => {
                ("open questions of one client", "[approvals] open-questions", asking.of_client, None)
            }
            QuestionLimit::OfConversation => (
                "questions of one conversation",
                "[approvals] questions-of-conversation",
                asking.in_all,
                Some(FIND_THE_CAUSE),
            ),
            QuestionLimit::OfConversationAnHour => (
                "questions of one conversation in an hour",
                "[approvals] questions-an-hour-of-conversation",
                asking.an_hour,
                Some(FIND_THE_CAUSE),
            ),
            QuestionLimit::OfClientAnHour => (
                "questions of one client in an hour",
                "[approvals] questions-an-hour",
                asking.an_hour_of_client,
                Some(FIND_THE_CAUSE),
            ),
            QuestionLimit::RefusalsOfConversation => (
                "refused questions of one conversation in a row",
                "[approvals] refusals-in-a-row-of-conversation",
                asking.refusals,
                Some(FIND_THE_FLOOD),
            ),
            QuestionLimit::RefusalsOfClient => (
                "refused questions of one client in a row",
                "[approvals] refusals-in-a-row",
                asking.refusals_of_client,
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
