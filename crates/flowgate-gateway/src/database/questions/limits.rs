//! Counts the stored questions to people, and determines which limit on questions is reached. [`super::asking`] calls
//! it before it stores a question.
//!
//! Everything is counted in the database: a restart of the gateway, or a request to another gateway of the same
//! database, does not restart a count. A question that a lasting grant answered reached no person, so it counts neither
//! as a question nor as an approval. Questions about offered tools have limits of their own: at most [`MAX_OFFERED`]
//! questions about the tools of one server are open, and after as many refusals in a row nobody is asked about its
//! tools for an hour.
//!
//! The flood rule counts refusals in a row, that is, since the last approval by a person. In one conversation, a
//! question that expires without an answer is a refusal too. For all conversations of a client together, only the
//! answers of people count, since many questions expire where nobody is at work. A void question, left by a
//! conversation that continued without the answer, is neither a refusal nor an approval.

use super::{MAX_OFFERED, QuestionOrigin};
use crate::database::error::DatabaseError;
use crate::database::transaction::{DynTransaction, SqlValue};

/// The limits on questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct QuestionLimits {
    /// The most open questions of one conversation.
    pub(crate) of_conversation: i64,
    /// The most open questions of one client.
    pub(crate) of_client: i64,
    /// The limits on the questions that people have been asked; `None` if a lasting grant answers the new question, so
    /// that no person is asked.
    pub(crate) asked: Option<AskedLimits>,
}

/// The limits on the questions that people have been asked, open or not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct AskedLimits {
    /// The most questions of one conversation.
    pub(crate) in_all: i64,
    /// The most questions of one conversation in an hour.
    pub(crate) an_hour: i64,
    /// The most questions of one client in an hour.
    pub(crate) of_client_an_hour: i64,
    /// The number of refusals in a row in one conversation, within a day, after which no person is asked.
    pub(crate) refusals: i64,
    /// The number of refusals by people in a row among all conversations of one client, within an hour, after which no
    /// person is asked.
    pub(crate) refusals_of_client: i64,
}

/// A limit on questions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QuestionLimit {
    /// Too many questions of the conversation are open.
    OpenOfConversation,
    /// Too many questions of the client are open.
    OpenOfClient,
    /// The conversation has asked too many questions.
    OfConversation,
    /// The conversation has asked too many questions within an hour.
    OfConversationAnHour,
    /// The client has asked too many questions within an hour.
    OfClientAnHour,
    /// Too many questions of the conversation in a row were refused or not answered.
    RefusalsOfConversation,
    /// People refused too many questions of the client in a row.
    RefusalsOfClient,
    /// People refused too many tools of one server in a row.
    RefusedOffers,
}

/// The SQL condition that people were asked a question about a call of the client `?1`. `?2` is
/// [`QuestionOrigin::TOOL_OFFER`].
const ASKED: &str = "client = ?1 AND turn > ?2 AND lasting_grant = ''";
/// The SQL condition that people were asked about an offered tool, with the same parameters.
const OFFERED: &str = "client = ?1 AND turn = ?2";
/// The SQL condition that a person has allowed a question. It also holds after the approval was used or has lapsed. A
/// time of more than a minute in the future was stored before the clock was set back, and is ignored here and below.
const APPROVED: &str = "decided > 0 AND state <> 'denied' AND decided <= {now} + 60000";
/// The SQL expression for the time at which a question was refused or expired without an answer; 0 if neither happened.
const UNANSWERED_AT: &str = "CASE WHEN state = 'denied' THEN decided \
    WHEN decided = 0 AND (state = 'expired' OR (state = 'open' AND {expired})) THEN expires ELSE 0 END";
/// An hour, in milliseconds.
const HOUR: i64 = 60 * 60 * 1000;
/// A day, in milliseconds.
const DAY: i64 = 24 * HOUR;

impl QuestionLimits {
    /// No limits, for tests.
    #[cfg(test)]
    pub(crate) const UNLIMITED: Self = Self { of_conversation: i64::MAX, of_client: i64::MAX, asked: None };

    /// Returns the limit that a further question of this client in this conversation would exceed; `None` if there is
    /// room. For a question about an offered tool (`is_offer`), no conversation asks: `name` is then the invented
    /// conversation name that the questions about the tools of one server share.
    pub(super) async fn find_reached(
        self,
        tx: &mut DynTransaction<'_>,
        (client, name): (&str, &str),
        is_offer: bool,
    ) -> Result<Option<QuestionLimit>, DatabaseError> {
        // Questions about offered tools are counted separately, so that they take no room from questions about calls.
        // The limit on one conversation leaves room for the client's other conversations.
        let (turn_condition, conversation_limit) =
            if is_offer { ("= ?2", MAX_OFFERED) } else { ("> ?2", self.of_conversation) };
        let open = format!("client = ?1 AND turn {turn_condition} AND state = 'open' AND {{unexpired}}");
        // The values of the parameters of a condition: `?1` and `?2` for a client, also `?3` for one conversation.
        let of_client = || vec![client.into(), QuestionOrigin::TOOL_OFFER.into()];
        let here = || vec![client.into(), QuestionOrigin::TOOL_OFFER.into(), name.into()];
        if has_rows(tx, &format!("{open} AND name = ?3"), &here(), conversation_limit).await? {
            return Ok(Some(QuestionLimit::OpenOfConversation));
        }
        let refused_within_hour = format!("state = 'denied' AND {}", is_recent("decided", HOUR));
        if is_offer {
            // A server that changes its tools again and again could otherwise ask about them without end.
            let refused = refusals_in_row(OFFERED, &refused_within_hour, "decided", " AND name = ?3");
            let condition = format!("{OFFERED} AND name = ?3 AND {refused}");
            let is_reached = has_rows(tx, &condition, &here(), MAX_OFFERED).await?;
            return Ok(is_reached.then_some(QuestionLimit::RefusedOffers));
        }
        if has_rows(tx, &open, &of_client(), self.of_client).await? {
            return Ok(Some(QuestionLimit::OpenOfClient));
        }
        let Some(asked) = self.asked else { return Ok(None) };
        let hourly = is_recent("asked", HOUR);
        // Each limit with its number, whether it counts only this conversation, and its condition on the rows of the
        // client, in the order in which they are checked. `asked > 0` holds for every question.
        let checks = [
            (
                QuestionLimit::RefusalsOfConversation,
                asked.refusals,
                true,
                refusals_in_row(ASKED, &is_recent(UNANSWERED_AT, DAY), UNANSWERED_AT, " AND name = ?3"),
            ),
            (
                QuestionLimit::RefusalsOfClient,
                asked.refusals_of_client,
                false,
                refusals_in_row(ASKED, &refused_within_hour, "decided", ""),
            ),
            (QuestionLimit::OfConversationAnHour, asked.an_hour, true, hourly.clone()),
            (QuestionLimit::OfConversation, asked.in_all, true, "asked > 0".to_owned()),
            (QuestionLimit::OfClientAnHour, asked.of_client_an_hour, false, hourly),
        ];
        for (limit, most, is_of_conversation, condition) in checks {
            let (name_condition, values) =
                if is_of_conversation { (" AND name = ?3", here()) } else { ("", of_client()) };
            if has_rows(tx, &format!("{ASKED}{name_condition} AND {condition}"), &values, most).await? {
                return Ok(Some(limit));
            }
        }
        Ok(None)
    }
}

/// Returns the SQL condition that the time `time` (an SQL expression) is at most `age` milliseconds ago, or at most a
/// minute in the future, since the clock may have been set back a little.
fn is_recent(time: &str, age: i64) -> String {
    format!("({time}) BETWEEN {{now}} - {age} AND {{now}} + 60000")
}

/// Returns the SQL condition that a question was refused after a person last approved a question of the same kind.
/// `asked` is the SQL condition that a question is of this kind, `is_refused` the condition that it was refused,
/// `refused_at` the SQL expression for the time of the refusal, and `name_condition` limits the approvals to one
/// conversation.
fn refusals_in_row(asked: &str, is_refused: &str, refused_at: &str, name_condition: &str) -> String {
    // Without an approval, all refusals count: each is later than the time 0.
    format!(
        "{is_refused} AND ({refused_at}) > \
         (SELECT COALESCE(MAX(decided), 0) FROM questions WHERE {asked}{name_condition} AND {APPROVED})"
    )
}

/// Returns whether at least `number` questions meet an SQL condition. Stops counting at this number.
async fn has_rows(
    tx: &mut DynTransaction<'_>,
    condition: &str,
    values: &[SqlValue<'_>],
    number: i64,
) -> Result<bool, DatabaseError> {
    let sql =
        format!("SELECT COUNT(*) FROM (SELECT 1 FROM questions WHERE {condition} LIMIT {number}) AS counted");
    let rows = tx.query(&sql, values).await?;
    let row = rows.first();
    let row = row.ok_or(DatabaseError::Bug("the database returned no row for a count of questions"))?;
    Ok(row.integer(0)? >= number)
}
