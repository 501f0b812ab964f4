//! Tests of the memory of a client: what it recognises in the client's other conversations, and what a conversation
//! recognises by its own record after the memory has evicted it.

use flowgate::trace::Tool;
use flowgate_guard::history::SentChat;
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Message, Part, Source, Sources};
use serde_json::json;

use crate::histories::{ChatCaller, assistant, interactive, user};
use crate::quotations::{PAGE, USUAL, last_user, next, shown};
use crate::script::POLICY;

const LOOK: &str = r#"look {"regions": ["h1"]}"#;
const SUMMARY: &str = "In short, a stranger by the river expects half a thousand from us.";

/// Returns a caller that has read this page.
fn reading(page: &str) -> ChatCaller {
    let mut caller = interactive();
    caller.run.answers = vec![("read", json!(page)), ("list", json!(page))];
    caller.says("Read it.", &["read {}", "I read it."]);
    caller
}

fn tool(call_id: &str, text: &str) -> Message {
    Message::Tool { call_id: call_id.to_owned(), content: vec![Part::from(text)], is_error: Some(false) }
}

/// A summary that replaced labelled messages is recognised in other conversations of the client, also where
/// the conversation keeps its own record because the memory has evicted texts. A summary of trusted messages
/// is trusted.
#[test]
fn a_summary_is_recognised_in_other_conversations() {
    for forgets in [false, true] {
        for (script, is_shown) in
            [(["read {}", LOOK, "It asks for money."], false), (["list {}", "list {}", "I saw it."], true)]
        {
            let mut caller = interactive();
            caller.says("Read it.", &script);
            if forgets {
                caller.client.quotations.note_forgotten();
            }
            caller.chat[1] = user(SUMMARY);
            let seen = caller.says("Go on.", &["Good."]);
            assert_eq!(seen.contains(SUMMARY), is_shown, "{seen}");
            let mut caller = next(caller);
            caller.says(&format!("Context: {SUMMARY}"), &["Done."]);
            assert_eq!(shown(&caller, SUMMARY, 12).is_empty(), !is_shown, "{forgets} {script:?}");
        }
    }
}

/// A quotation that was hidden in a conversation stays recognised there after the client's memory has evicted
/// the quoted text.
#[test]
fn a_quotation_is_recognised_after_the_memory_has_forgotten_it() {
    let mut caller = next(reading(PAGE));
    for is_forgotten in [false, true] {
        if is_forgotten {
            caller.client.quotations.clear(None);
        }
        caller.says(&format!("Context: {PAGE}"), &["Done."]);
        assert_eq!(shown(&caller, PAGE, 12), Vec::<String>::new(), "{is_forgotten}");
    }
}

/// Words that are untrusted only because the client declared no source for them become trusted where it
/// declares that a person typed them, also after the memory has evicted texts.
#[test]
fn undeclared_words_do_not_taint_the_same_words_when_typed() {
    let mut caller = ChatCaller::new(false, &[]);
    caller.client.marks_typed = true;
    caller.says(USUAL, &["Yes?"]);
    assert_eq!(last_user(&caller), "[hidden h1]");
    caller.client.quotations.note_forgotten();
    caller.chat.push(user(USUAL));
    let mut sources = Sources::default();
    sources.set(caller.chat.len() - 1, vec![Some(Source::Typed)]);
    let ChatCaller { run, client, history, chat } = &mut caller;
    run.conversation.accept_chat(client, history, &SentChat::of(chat).with_sources(sources)).unwrap();
    run.go(&["Done."]);
    assert_eq!(last_user(&caller), USUAL);
}

/// The text of a tool message that answers no call is recognised in its own conversation, and does not affect
/// words in others.
#[test]
fn an_unanswered_tool_message_is_recognised_in_its_conversation_only() {
    let mut caller = interactive();
    caller.says("Hello.", &["Hello."]);
    caller.chat.push(tool("c9", PAGE));
    caller.says(&format!("Context: {PAGE}"), &["Done."]);
    assert_eq!(shown(&caller, PAGE, 12), Vec::<String>::new());
    let mut caller = next(caller);
    caller.says(PAGE, &["Done."]);
    assert_eq!(last_user(&caller), PAGE);
}

/// Every message of the user in a request is compared with the memory, wherever messages of other roles occur
/// between them.
#[test]
fn quotations_are_recognised_between_messages_of_other_roles() {
    for before in 0..4 {
        for users in 0..4 {
            let mut caller = reading(PAGE);
            caller.chat.extend((0..before).map(|_| assistant("Yes?")));
            caller.chat.extend((0..users).map(|_| user("Wait.")));
            caller.chat.push(assistant("I wait."));
            caller.says(&format!("Context: {PAGE}"), &["Done."]);
            assert_eq!(shown(&caller, PAGE, 12), Vec::<String>::new(), "{before} {users}");
        }
    }
}

/// A message whose parts carry different labels above the lowest one is hidden as a whole: the number of its
/// parts would reveal the position of the quotation.
#[test]
fn a_summary_with_a_quotation_does_not_show_where_the_quotation_is() {
    let policy = POLICY.replace(
        "label out.content as trusted, public if:\n    (out: ToolOutput) is tool:list",
        "label out.content as trusted, private if:\n    (out: ToolOutput) is tool:list",
    );
    for quoted in [PAGE, ""] {
        let mut caller = ChatCaller::under(&policy);
        caller.run.answers = vec![("list", json!(PAGE))];
        caller.says("Read it.", &["read {}", LOOK, "It asks for money."]);
        caller.says("List it.", &["list {}", "Good."]);
        caller.chat[1] = user(&format!("{SUMMARY} {quoted}"));
        let seen = caller.says("Go on.", &["Done."]);
        assert!(seen.starts_with("user: Read it. | user: [hidden h1] | user: List it."), "{seen}");
    }
}

/// An answer with the lowest label is not quoted: a repetition of it is not counted.
#[test]
fn quotations_at_the_lowest_label_are_not_counted() {
    let mut caller = reading(USUAL);
    for (tool, quoted) in [("list", 0), ("read", 1)] {
        let mut caller = ChatCaller { client: std::mem::take(&mut caller.client), ..interactive() };
        caller.client.quotations.clear(None);
        caller.run.answers = vec![(tool, json!(PAGE))];
        caller.says("Go.", &[&format!("{tool} {{}}"), "I saw it."]);
        caller.chat.push(user(&format!("Context: {PAGE}")));
        assert_eq!(caller.send(&["Done."]).0.quoted, quoted, "{tool}");
    }
}

/// Remembered text counts towards the share of the server, the tool, the model or the role that it came from.
#[test]
fn each_source_of_texts_has_its_own_room() {
    let mut caller = interactive();
    caller.run.answers = vec![("read", json!(PAGE))];
    let offered = OfferedTool {
        tool: Tool::of("shop", "buy"),
        description: "Buys whatever is asked for in the shop by the river.".to_owned(),
        parameters: json!({"type": "object"}).into(),
        output: None,
        words: DescriptionAuthor::Server,
    };
    let read =
        OfferedTool { tool: Tool::local("read"), words: DescriptionAuthor::Operator, ..offered.clone() };
    caller.run.conversation.offer_tools(vec![offered, read]).unwrap();
    let say = "The page wants a sum of money to be brought to the mayor.";
    caller.says("Read it.", &["read {}", LOOK, say]);
    let shares = caller.client.quotations.shares();
    let sources: Vec<&str> = shares.iter().map(|share| share.source.as_str()).collect();
    for source in ["server shop", "tool read", "role assistant"] {
        assert!(sources.contains(&source), "{source}: {sources:?}");
    }
}
