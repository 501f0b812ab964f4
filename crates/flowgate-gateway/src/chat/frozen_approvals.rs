//! Reads which standing consents and approvals people have frozen or withdrawn for a conversation. A turn (`turn`,
//! `turn_observer`, `turn_end`) reads them when it begins and before its calls run. If the two readings differ, the
//! calls of the turn do not run: they may have been permitted by a consent or an approval that is frozen now.

use std::collections::BTreeSet;

use super::conversations::ConversationState;
use crate::approvals::ApprovalService;
use crate::config::ClientSettings;
use crate::database::{DatabaseError, WithdrawnGrant};

/// The message about calls that do not run because consents or approvals have changed.
pub(super) const CHANGED: &str =
    "consents or approvals were frozen, thawed or withdrawn while the turn ran: send the request again";

/// The consents and approvals that are in force for a conversation when a turn begins.
pub(super) struct StandingApprovals {
    /// Whether the conversation has grants.
    has_grants: bool,
    /// What is frozen or withdrawn.
    frozen: FrozenApprovals,
    /// Whether [`Self::read`] has removed consents or approvals from the conversation.
    was_withdrawn: bool,
    /// Whether the turn continues after it waited for a person. Earlier requests have then permitted some of its calls.
    pub(super) is_resumed: bool,
}

impl StandingApprovals {
    /// Reads which consents and approvals are frozen or withdrawn for the conversation `name`, and removes them from
    /// `session`, so that they permit no call of the turn.
    ///
    /// # Errors
    /// If the database fails.
    pub(super) async fn read(
        approvals: &ApprovalService,
        client: &ClientSettings,
        name: &str,
        session: &mut ConversationState,
    ) -> Result<Self, DatabaseError> {
        let has_grants = !session.conversation.monitor().session_grants().is_empty();
        let frozen = frozen_approvals(approvals, client, name, has_grants).await?;
        let withdrawn_from = (&mut session.conversation, &mut session.removed_grants);
        let was_withdrawn = approvals.withdraw_frozen(client, name, withdrawn_from).await?;
        Ok(Self { has_grants, frozen, was_withdrawn, is_resumed: false })
    }

    /// Returns whether the calls of the turn may depend on a consent or an approval that is no longer in force: it was
    /// frozen or withdrawn since [`Self::read`], or `read` has withdrawn it and the turn has calls that earlier
    /// requests permitted.
    ///
    /// # Errors
    /// If the database fails.
    pub(super) async fn has_changed(
        &self,
        approvals: &ApprovalService,
        client: &ClientSettings,
        name: &str,
    ) -> Result<bool, DatabaseError> {
        let frozen = frozen_approvals(approvals, client, name, self.has_grants).await?;
        Ok(self.is_resumed && self.was_withdrawn || frozen != self.frozen)
    }
}

/// What people have frozen or withdrawn of the approvals for a conversation: the lines of the policy with frozen
/// standing consents, whether the approvals for the rest of the conversation are frozen, and which of them are
/// withdrawn.
type FrozenApprovals = (BTreeSet<usize>, bool, Vec<WithdrawnGrant>);

/// Returns what people have frozen or withdrawn of the approvals for the conversation `name`, to be compared before and
/// after a turn. `has_grants` says whether the conversation had grants when the turn began; without any, none can be
/// withdrawn from it.
async fn frozen_approvals(
    approvals: &ApprovalService,
    client: &ClientSettings,
    name: &str,
    has_grants: bool,
) -> Result<FrozenApprovals, DatabaseError> {
    let are_frozen = approvals.are_grants_frozen(client, name).await?;
    // If all grants of the conversation are frozen, the turn itself withdraws them. Such a withdrawal is no order of an
    // admin during the turn, so it must not count as a change.
    let withdrawn = match has_grants && !are_frozen {
        true => approvals.store.withdrawn_grants(&client.name, name).await?,
        false => Vec::new(),
    };
    Ok((approvals.frozen_consents(client).await?, are_frozen, withdrawn))
}

/// Returns whether a lasting grant that allowed one of these calls has been withdrawn after it allowed the call. A turn
/// that waited for a person checks this when it continues: the approvals of its earlier calls were stored as used when
/// the wait began, but the calls are sent only now. `digests` are the digests of the approved calls of the conversation
/// `name`, which has `turns` persisted turns.
pub(super) async fn is_grant_of_calls_withdrawn(
    approvals: &ApprovalService,
    (client, name): (&ClientSettings, &str),
    digests: impl Iterator<Item = &str>,
    turns: i64,
) -> Result<bool, DatabaseError> {
    let mut questions = Vec::new();
    for digest in digests {
        // The newest question about the call, up to the present turn, which is not persisted yet. Earlier questions are
        // about equal calls of earlier messages of the model.
        let through_this_turn = turns.saturating_add(1);
        let question = approvals.store.find_question((&client.name, name), digest, through_this_turn).await?;
        questions.extend(question.map(|question| question.id));
    }
    approvals.store.is_answering_grant_withdrawn(&questions).await
}
