//! Asks people whether agents may use a tool that an MCP server has added to its list, or whose description the server
//! has changed. Agents do not see the tool until a person says yes. `mcp_proxy` calls it when a server lists its tools.

use flowgate_audit::AuditEvent;
use serde_json::{Value, json};

use super::{ApprovalService, millis};
use crate::config::ClientSettings;
use crate::database::{
    AskOutcome, DatabaseError, MAX_OFFERED, NewQuestion, QuestionLimit, QuestionOrigin, ServerTool,
};
use crate::log::Limit;
use crate::random;
use crate::recorder::AuditEntry;

/// The maximum size in bytes of a tool's description that people are asked about: a person could not review a longer
/// one.
const MAX_DESCRIPTION: usize = 64 << 10;

impl ApprovalService {
    /// Asks people whether agents may use the tool `offer`, and does not wait for the answer. A yes approves the tool,
    /// as `description` describes it, for all conversations of the tenant. No question is asked in these cases:
    ///
    /// * no person may decide for this client;
    /// * the description is longer than [`MAX_DESCRIPTION`] bytes;
    /// * the same question is open or was allowed already;
    /// * a limit on questions is reached, which is logged.
    ///
    /// # Errors
    /// If the question cannot be stored or recorded.
    pub(crate) async fn ask_about_tool(
        &self,
        client: &ClientSettings,
        offer: &ServerTool,
        description: &Value,
    ) -> Result<(), DatabaseError> {
        if !self.people.can_decide_for(client) || description.to_string().len() > MAX_DESCRIPTION {
            return Ok(());
        }
        let id = random::unguessable_name().map_err(|_| DatabaseError::NoRandomBytes)?;
        let tool = format!("{}/{}", offer.server, offer.tool);
        let reason =
            "the server offers a tool that is new or was changed; a yes approves the version shown here";
        let content = json!({
            "tool": tool, "arguments": description, "label": [], "reasons": [reason], "excerpts": [], "offer": offer,
        });
        // The offers of one server share an invented conversation name, so that the limit on the questions of one
        // conversation applies to them.
        let conversation = format!("tools of {}", offer.server);
        let new = NewQuestion {
            id: &id,
            client: &client.name,
            name: &conversation,
            tenant: &client.tenant,
            config_fingerprint: &client.config_fingerprint,
            digest: &offer.digest,
            content: &content.to_string(),
            expires_after: millis(self.settings.expires_after),
            origin: QuestionOrigin::ToolOffer,
            // An answer about a tool is never used up, so an equal question that was allowed is not asked again.
            used: &[],
            limits: self.question_limits(),
        };
        let event = AuditEvent::Asked {
            conversation: conversation.clone(),
            client: client.name.clone(),
            tenant: client.tenant.clone(),
            tool: tool.clone(),
            digest: offer.digest.clone(),
            reasons: vec![reason.to_owned()],
        };
        // A question about an offer refers to no external state, so it voids no approval.
        let record = |_: &[String]| self.recorder.record(&[AuditEntry::new(event, content)]);
        match self.store.ask(&new, record).await? {
            AskOutcome::Known(_) => {}
            AskOutcome::New(id) => {
                self.metrics.count_question(&client.name, &tool);
                self.notify_question(&id).await;
            }
            AskOutcome::Full(limit) => self.log_full_offers(client, &conversation, limit),
        }
        Ok(())
    }

    /// Logs that nobody is asked about a tool that a server offers, since `limit` is reached: too many offers of this
    /// server are open, or people refused too many in a row. Both limits are [`MAX_OFFERED`]. `conversation` is the
    /// invented name `tools of SERVER`, under which the questions about the tools of one server are stored.
    fn log_full_offers(&self, client: &ClientSettings, conversation: &str, limit: QuestionLimit) {
        let (what, effect, advice) = match limit {
            QuestionLimit::RefusedOffers => (
                "refused tools of one server in a row",
                "the tool stays hidden, and nobody is asked about it for an hour after these refusals",
                "find out why the server offers other tools again and again",
            ),
            // `OpenOfConversation`, the only other limit on offers.
            _ => (
                "tools of one server that wait for approval",
                "the tool stays hidden until other questions are decided",
                "decide the questions that are open",
            ),
        };
        self.log.limit(&Limit {
            what,
            effect,
            setting: None,
            advice: Some(advice),
            most: u64::try_from(MAX_OFFERED).unwrap_or(0),
            client: &client.name,
            conversation: Some(conversation),
        });
    }
}
