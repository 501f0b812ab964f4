//! Reads which standing consents and approvals people have frozen or withdrawn for a conversation. `turn` compares two
//! readings: if they differ, calls that were permitted in between may depend on what is frozen now, and do not run.

use std::collections::BTreeSet;

use crate::approvals::ApprovalService;
use crate::config::ClientSettings;
use crate::database::{DatabaseError, WithdrawnGrant};

/// Why calls do not run whose consents or approvals have changed.
pub(super) const CHANGED: &str =
    "consents or approvals were frozen, thawed or withdrawn while the turn ran: send the request again";

/// What people have frozen or withdrawn of the approvals for a conversation: the lines of the policy with frozen
/// standing consents, whether the approvals for the rest of the conversation are frozen, and which of them are
/// withdrawn.
pub(super) type FrozenApprovals = (BTreeSet<usize>, bool, Vec<WithdrawnGrant>);

/// Returns what people have frozen or withdrawn of the approvals for the conversation `name`, to be compared before and
/// after a turn. `has_grants` says whether the conversation had grants when the turn began; without any, none can be
/// withdrawn from it.
pub(super) async fn frozen_approvals(
    approvals: &ApprovalService,
    client: &ClientSettings,
    name: &str,
    has_grants: bool,
) -> Result<FrozenApprovals, DatabaseError> {
    let are_frozen = approvals.are_grants_frozen(client, name).await?;
    // If all of them are frozen, the turn itself withdraws them. That is no order of an admin during the turn, so it is
    // not compared.
    let withdrawn = match has_grants && !are_frozen {
        true => approvals.store.withdrawn_grants(&client.name, name).await?,
        false => Vec::new(),
    };
    Ok((approvals.frozen_consents(client).await?, are_frozen, withdrawn))
}

/// Returns whether a lasting grant by which calls were allowed was withdrawn since, although their approvals count as
/// used: a turn that waits for a person is stored with the approvals of its earlier calls, and these calls are sent when
/// it continues. `digests` are the digests of the approved calls of the conversation `name`, which has `turns` persisted
/// turns.
pub(super) async fn is_grant_of_calls_withdrawn(
    approvals: &ApprovalService,
    (client, name): (&ClientSettings, &str),
    digests: impl Iterator<Item = &str>,
    turns: i64,
) -> Result<bool, DatabaseError> {
    let mut questions = Vec::new();
    for digest in digests {
        // The newest question about the call: earlier ones are about calls of earlier messages of the model.
        let through_this_turn = turns.saturating_add(1);
        let question = approvals.store.find_question((&client.name, name), digest, through_this_turn).await?;
        questions.extend(question.map(|question| question.id));
    }
    approvals.store.is_answering_grant_withdrawn(&questions).await
}
