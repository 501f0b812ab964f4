//! Reads the data set of agent conversations (Permissive Information-Flow Analysis, section 4.5). In each of the 40
//! conversations, an agent calls one of three retrieval tools, which returns a trusted and an untrusted text, and then
//! answers. The conversations are fictional and the project's own, since those of the publication are not public. The
//! [suite](super::PropagationSuite) measures which labels the methods find for the answers.

use std::collections::BTreeSet;

use serde::Deserialize;

use super::question::{DocumentQuestion, SourceDocument, integrity_labels};

/// The text of the data set: one conversation on each line, as JSON.
pub(super) const TEXT: &str = include_str!("../../data/propagation-agents.jsonl");

/// The retrieval tools.
pub const TOOLS: [&str; 3] = ["web_search", "email_search", "calendar_search"];

/// A conversation up to the output of its tool.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
struct ToolDialogue {
    tool: String,
    /// The query to the tool.
    query: String,
    /// The trusted text that the tool returns.
    trusted: String,
    /// The untrusted text that the tool returns.
    untrusted: String,
    answer: String,
    /// The phrases of the answer that come from the texts. Each is in `trusted`, in `untrusted`, or in both.
    needs: Vec<String>,
}

/// Reads conversations, one on each line, as questions.
///
/// # Errors
/// If a line is malformed, or [`question`] rejects its conversation. The error names the line.
fn read(text: &str) -> Result<Vec<DocumentQuestion>, String> {
    let labels = integrity_labels().ok_or(
        "the labels trusted and untrusted cannot be built; this is a defect of Flowgate; please report it",
    )?;
    let parse = |(index, line): (usize, &str)| {
        let place = format!("propagation-agents.jsonl:{}", index + 1);
        let conversation: ToolDialogue = serde_json::from_str(line)
            .map_err(|error| format!("{place}: the line is not a conversation: {error}; correct the line"))?;
        question(&conversation, labels).map_err(|problem| format!("{place}: {problem}"))
    };
    text.lines().enumerate().map(parse).collect()
}

/// Returns the conversations of the data set as questions, in the order of the file.
///
/// # Errors
/// If a line of the data set is malformed, its tool is unknown, or one of its phrases `needs` is not in the answer, or
/// is neither in the trusted nor in the untrusted text. The error names the line.
pub fn agent_questions() -> Result<Vec<DocumentQuestion>, String> {
    read(TEXT)
}

/// Reads one conversation as a question with a trusted and an untrusted document. Fact i is the phrase `needs[i]`. A
/// document states the fact if it contains the phrase; case is ignored. `trusted` and `untrusted` are the labels of the
/// two documents.
///
/// # Errors
/// If the tool is unknown, or a phrase is not in the answer, or is neither in the trusted nor in the untrusted text.
fn question(
    conversation: &ToolDialogue,
    [trusted, untrusted]: [flowgate::label::Label; 2],
) -> Result<DocumentQuestion, String> {
    if !TOOLS.contains(&conversation.tool.as_str()) {
        let tool = conversation.tool.escape_debug();
        return Err(format!("there is no tool `{tool}`; use one of {}", TOOLS.join(", ")));
    }
    let holds = |text: &str, phrase: &str| text.to_lowercase().contains(&phrase.to_lowercase());
    let facts_of = |text: &str| -> BTreeSet<usize> {
        let needs = conversation.needs.iter().enumerate();
        needs.filter(|(_, phrase)| holds(text, phrase)).map(|(fact, _)| fact).collect()
    };
    let documents: Vec<SourceDocument> =
        [(&conversation.trusted, trusted), (&conversation.untrusted, untrusted)]
            .map(|(text, label)| SourceDocument { text: text.clone(), label, facts: facts_of(text) })
            .to_vec();
    // A phrase that is missing in the answer or in both texts would make the ground truth wrong.
    for (fact, phrase) in conversation.needs.iter().enumerate() {
        let phrase_is_held = documents.iter().any(|document| document.facts.contains(&fact));
        if !phrase_is_held || !holds(&conversation.answer, phrase) {
            let phrase = phrase.escape_debug();
            return Err(format!(
                "the phrase `{phrase}` of `needs` must occur in the answer and in `trusted` or `untrusted`; correct `needs`"
            ));
        }
    }
    Ok(DocumentQuestion {
        text: format!("[{}] {}", conversation.tool, conversation.query),
        answer: conversation.answer.clone(),
        needs: (0..conversation.needs.len()).collect(),
        documents,
        // In a conversation, the request precedes the output of the tool.
        asks_first: true,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn half_of_the_conversations_can_be_improved() {
        let questions = agent_questions().unwrap();
        let improvable = questions.iter().filter(|question| {
            let span = question.span().unwrap();
            question.truth(&span) != [span.top()]
        });
        assert_eq!((questions.len(), improvable.count()), (40, 20));
        for tool in TOOLS {
            assert!(questions.iter().any(|question| question.text.starts_with(&format!("[{tool}]"))));
        }
    }

    #[test]
    fn mistakes_name_their_line() {
        let check = |line: &str, expected: &str| {
            let error = read(line).unwrap_err();
            assert!(error.starts_with("propagation-agents.jsonl:1: ") && error.contains(expected), "{error}");
        };
        let line = |tool: &str, need: &str| {
            format!(
                r#"{{"tool": "{tool}", "query": "q", "trusted": "one", "untrusted": "two", "answer": "One two", "needs": ["{need}"]}}"#
            )
        };
        check(&line("fax", "one"), "there is no tool `fax`; use one of web_search");
        check(&line("web_search", "three"), "the phrase `three`");
        check("{}", "correct the line");
        assert_eq!(read(&line("web_search", "one")).unwrap()[0].documents[0].facts, BTreeSet::from([0]));
    }
}
