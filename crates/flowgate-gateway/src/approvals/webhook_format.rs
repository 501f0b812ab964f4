//! Writes the notification of a question in the form that its recipient expects ([`WebhookFormat`]), such as a message
//! for Slack. [`super::webhook`] sends it.
//!
//! No form contains arguments, reasons or text of the call. To see them, a recipient opens the page for people, which
//! shows what the recipient's clearance covers.

use serde_json::{Value, json};

use crate::database::StoredQuestion;

/// The form of notifications.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum WebhookFormat {
    /// The fields of the question, for a program of the operator.
    #[default]
    Flowgate,
    /// A message for an incoming webhook of Slack.
    Slack,
    /// A card for a workflow of Microsoft Teams that posts what it receives.
    Teams,
}

impl WebhookFormat {
    /// Returns the notification that a question was asked or decided, in this form; `what` is its type,
    /// `question.asked` or `question.decided`. `page` is the address of the page for people, to which a message for a
    /// chat program links; `None` if the operator has not set it.
    pub(super) fn write(self, what: &str, question: &StoredQuestion, page: Option<&str>) -> Value {
        let content: Value = serde_json::from_str(&question.content).unwrap_or_default();
        if self == Self::Flowgate {
            return json!({
                "type": what,
                "id": question.id,
                "state": question.state.name(),
                "client": question.client,
                "conversation": question.name,
                "tenant": question.tenant,
                "tool": content.get("tool"),
                "label": content.get("label"),
                "digest": question.digest,
                "asked": question.asked,
                "expires": question.expires,
                "decided_by": (!question.decided_by.is_empty()).then_some(&question.decided_by),
            });
        }
        // The other formats are messages of chat programs: one sentence, and a link to the page.
        let tool = plain(content.get("tool").and_then(Value::as_str).unwrap_or("a tool"));
        let (client, conversation) = (plain(&question.client), plain(&question.name));
        // Without a person in `decided_by`, a question is open or was closed in another way.
        let state = match question.decided_by.as_str() {
            "" if question.state.name() == "open" => "waits for a decision".to_owned(),
            "" => format!("was closed: {}", question.state.name()),
            person => format!("was decided by {}: {}", plain(person), question.state.name()),
        };
        let sentence =
            format!("Flowgate: the call of {tool} by {client} {state} (conversation {conversation}).");
        let link = page.map(|page| format!("{}#questions", page.trim_end_matches('#')));
        match (self, link) {
            (Self::Slack, None) => json!({"text": sentence}),
            (Self::Slack, Some(link)) => json!({"text": format!("{sentence} <{link}|Open the page>")}),
            // Teams: the notification for `Flowgate` was returned above.
            (_, link) => teams_card(&sentence, link.as_deref()),
        }
    }
}

/// Returns a message for Microsoft Teams: a card with a sentence and, if there is a link, a button that opens it.
fn teams_card(sentence: &str, link: Option<&str>) -> Value {
    let text = json!({"type": "TextBlock", "text": sentence, "wrap": true});
    let action = |url: &str| json!({"type": "Action.OpenUrl", "title": "Open the page", "url": url});
    let actions: Vec<Value> = link.into_iter().map(action).collect();
    let card = json!({
        "type": "AdaptiveCard",
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "version": "1.4",
        "body": [text],
        "actions": actions,
    });
    let kind = "application/vnd.microsoft.card.adaptive";
    json!({"type": "message", "attachments": [{"contentType": kind, "content": card}]})
}

/// Returns the first 100 characters of a name, with `?` in place of each character that a chat program may read as
/// markup: a malicious server could put a link into the name of a tool.
fn plain(name: &str) -> String {
    let is_plain = |c: char| c.is_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | ' ');
    name.chars().take(100).map(|c| if is_plain(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_no_markup() {
        for (name, expected) in [
            ("send_mail", "send_mail"),
            ("mail/send", "mail/send"),
            ("<!channel> *x* [y](http://evil)", "??channel? ?x? ?y??http://evil?"),
        ] {
            assert_eq!(plain(name), expected);
        }
        assert_eq!(plain(&"a".repeat(1000)).len(), 100);
    }
}
