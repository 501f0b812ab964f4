//! Reports which messages, tools and tool outputs the policy hides from a client's model, and the statement of the
//! policy or the setting that would show them. If a statement would make third-party text trusted, the report names the
//! risk.
//!
//! The report appears at startup, in `flowgate serve --check`, once for each conversation in the [log](crate::log), and
//! in a response header for clients that request it.
//!
//! The operator's log contains the whole report. The header for the client contains only items that follow from the
//! configuration, the policy and the client's own request (the roles of its messages, the names of its tools): it must
//! reveal nothing about other conversations, the labels of external state, or the labels of tool outputs (see
//! `SECURITY.md`).
//!
//! The start of the gateway calls [`client_advice`]; the routes of models call `log` and `header`.

use std::collections::{BTreeSet, HashSet};

use flowgate::monitor::Monitor;
use flowgate::trace::Tool;
use flowgate_guard::approve::DigestKey;
use flowgate_guard::conversation::{
    Conversation, ConversationSettings, HiddenItem, HiddenItemKind, HidingCause,
};
use flowgate_guard::history::{self, History};
use flowgate_guard::{DescriptionAuthor, OfferedTool};
use flowgate_lm::chat::{Message, Part};
use serde_json::{Map, Value, json};

use crate::config::ClientSettings;
use crate::log::{Limit, LogEvent, OperatorLog, to_ascii};

/// The request header by which a client requests the report about its own conversation.
pub(crate) const EXPLAIN_HEADER: &str = "x-flowgate-explain";
/// The value of [`EXPLAIN_HEADER`].
pub(crate) const EXPLAIN_VALUE: &str = "hidden";
/// The response header with the report.
pub(crate) const HIDDEN_HEADER: &str = "x-flowgate-hidden";
/// The maximum number of tool names in one list of a header or an advice.
const MAX_NAMED: usize = 20;
/// The maximum number of bytes of all tool names in one list of a header.
const MAX_TOOL_NAME_BYTES: usize = 1024;

/// The advice about a hidden item.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VisibilityAdvice {
    /// A stable name of the advice.
    pub id: &'static str,
    /// Whether the item is hidden on purpose, so that there is nothing to do.
    pub is_intended: bool,
    /// The hidden item, the reason, and the line that would show it.
    pub text: String,
}

/// The maximum number of items that are logged of one conversation: a client can have any number of new tools.
pub(crate) const MAX_EXPLAINED: usize = 1000;

/// The hidden items of a conversation that the log has reported already.
#[derive(Debug, Default)]
pub(crate) struct ReportedItems {
    /// The number of items of the conversation when it was examined last.
    items: usize,
    /// The kind of each reported item, and the cause for which it is hidden.
    reported: HashSet<(HiddenItemKind, HidingCause)>,
}

/// Returns the advice about the items that the policy hides from the model of a client in every chat. For this purpose,
/// creates an example conversation with one system message, one user message and the tools that the policy names.
/// Returns no advice for a policy that has only rules, or a client without a model.
pub fn client_advice(client: &ClientSettings) -> Vec<VisibilityAdvice> {
    let policy = &client.policy;
    if policy.is_rules_only() || client.upstream.is_none() {
        return Vec::new();
    }
    let Some(mut conversation) = example_conversation(client) else { return Vec::new() };
    // The client as the guard knows it: which of its messages count as typed by a person, and which messages are
    // pinned.
    let mut sender = history::ClientProfile {
        is_interactive: client.user_messages.trusts_unmarked(),
        marks_typed: client.user_messages.believes_marks(),
        trusts_system: client.system_messages.trusts_all(),
        pinned: client.pinned.clone(),
        ..history::ClientProfile::default()
    };
    let text = client.pinned.first().map_or_else(|| "A message.".to_owned(), |form| form.fill("something"));
    let messages =
        [Message::System(vec![Part::Text(text)]), Message::User(vec![Part::Text("A message.".to_owned())])];
    if conversation.accept_messages(&mut sender, &mut History::new(), &messages).is_err() {
        return Vec::new();
    }
    // 0: from the first item of the conversation on.
    let mut hidden_items = conversation.hidden_items(&sender, 0);
    // The operator pins templates: messages with a fixed text and holes for varying text. A hole is hidden on purpose,
    // so it needs no advice.
    hidden_items.retain(|item| item.cause != HidingCause::Hole);
    // If one template is pinned, it is the template of the system message, and the client also sends user messages,
    // which have no template. If several are pinned, all messages of the client may have templates, unless a person
    // types at the client; advice about user messages without a template (`NotInteractive`) is then not needed.
    let sends_other_messages = client.pinned.len() < 2 || client.is_interactive_alone;
    hidden_items.retain(|item| item.cause != HidingCause::NotInteractive || sends_other_messages);
    // The tools that the policy names and whose answers no statement labels.
    let without_label = unlabelled(conversation.monitor(), policy.named_tools());
    let tools = hidden_items.iter().filter_map(|item| match (&item.what, item.cause) {
        (HiddenItemKind::Tool(tool), HidingCause::Unlabelled) => Some(tool.to_string()),
        _ => None,
    });
    let tools: Vec<String> = tools.collect();
    let mut advice_list: Vec<VisibilityAdvice> = Vec::new();
    for item in &hidden_items {
        let is_tool = matches!((&item.what, item.cause), (HiddenItemKind::Tool(_), HidingCause::Unlabelled));
        let new = advice(item, client);
        // Advice about unlabelled tools is given once for all of them, after this loop; equal advice is given once.
        if !is_tool && advice_list.iter().all(|other| other.text != new.text) {
            advice_list.push(new);
        }
    }
    if !tools.is_empty() {
        advice_list.push(unlabelled_tools(client, &tools));
    }
    if !without_label.is_empty() {
        advice_list.push(unlabelled_answers(client, &without_label));
    }
    advice_list
}

/// Creates the example conversation for [`client_advice`]; it is never shown to a model. Its tools are an example of
/// each tool that the policy names or, if it names none, an invented one. `None` if these tools exceed the limits of a
/// conversation.
fn example_conversation(client: &ClientSettings) -> Option<Conversation> {
    let offered = |tool: Tool| OfferedTool {
        tool,
        description: "A tool.".to_owned(),
        parameters: json!({"type": "object"}).into(),
        output: None,
        words: DescriptionAuthor::Server,
    };
    let mut tools: Vec<OfferedTool> = client.policy.example_tools().into_iter().map(offered).collect();
    if tools.is_empty() {
        tools.push(offered(Tool::local("example")));
    }
    // A key of zeros is enough, since no digest leaves this conversation.
    let settings = ConversationSettings::new(client.method, DigestKey::new([0; 32]));
    let mut monitor = Monitor::new(client.policy.clone());
    monitor.set_parameters(&client.input);
    Conversation::new(monitor, tools, settings).ok()
}

/// Returns the names of those of `tools` whose answers no statement labels; none if the policy has a `default`
/// statement, which labels all answers.
fn unlabelled(monitor: &Monitor, tools: Vec<Tool>) -> Vec<String> {
    if monitor.policy().has_default_label() {
        return Vec::new();
    }
    let is_unlabelled = |tool: &Tool| !monitor.labels_outputs(tool);
    tools.into_iter().filter(is_unlabelled).map(|tool| tool.to_string()).collect()
}

/// Logs the items of a conversation that are hidden from steps at the base label (the label at which each turn starts),
/// unless they were logged before. `sender` is the client as the guard knows it, and `name` the name of the
/// conversation. `explained` contains the items that were logged before, and receives the new ones.
pub(crate) fn log(
    log: &OperatorLog,
    client: &ClientSettings,
    sender: &history::ClientProfile,
    name: &str,
    conversation: &Conversation,
    explained: &mut ReportedItems,
) {
    // Usually, only the last examined item (answers may have been added to it) and later ones are examined. A chat that
    // has become shorter was rewritten, and is examined from its beginning.
    let first_item =
        if conversation.item_count() < explained.items { 0 } else { explained.items.saturating_sub(1) };
    explained.items = conversation.item_count();
    for item in conversation.hidden_items(sender, first_item) {
        let key = (item.what.clone(), item.cause);
        if explained.reported.contains(&key) {
            continue;
        }
        if explained.reported.len() >= MAX_EXPLAINED {
            return log.limit(&Limit {
                what: "hidden items that are reported for one conversation",
                effect: "further hidden items of the conversation are not logged",
                setting: None,
                advice: Some("let the agent use the same tools in each turn"),
                most: u64::try_from(MAX_EXPLAINED).unwrap_or(u64::MAX),
                client: &client.name,
                conversation: Some(name),
            });
        }
        explained.reported.insert(key);
        let VisibilityAdvice { id, is_intended, text } = advice(&item, client);
        let mut fields = vec![("conversation", name.into()), ("what", kind_name(&item.what).into())];
        fields.extend(tool_of(&item.what).map(|tool| ("tool", client.name_of(tool).into())));
        // Whether all of the item is hidden; what of its label is too high; and the tool on offer whose requirement
        // hides it, if one does.
        fields.push(("all", item.is_whole.into()));
        fields.push(("carries", item.carries.join(", ").into()));
        fields.extend(item.because_of.as_ref().map(|tool| ("because_of", client.name_of(tool).into())));
        fields.push(("advice", id.into()));
        log.write(
            if is_intended { LogEvent::HiddenOnPurpose } else { LogEvent::Hidden },
            &client.name,
            fields,
            &text,
        );
    }
}

/// Returns the value of [`HIDDEN_HEADER`]: the items that are hidden from steps at the base label (the label at which
/// each turn starts), as JSON in ASCII. It contains only items that the configuration, the policy and the client's own
/// request determine. `sender` is the client as the guard knows it.
pub(crate) fn header(
    client: &ClientSettings,
    sender: &history::ClientProfile,
    conversation: &Conversation,
) -> String {
    let mut explanation: Map<String, Value> = Map::new();
    let (mut tools, mut answers) = (BTreeSet::new(), BTreeSet::new());
    // All tools share one advice: the advice about an unlabelled tool, if there is such a tool.
    let mut tool_advice = "label-lower";
    // 0: from the first item of the conversation on.
    for item in conversation.hidden_items(sender, 0) {
        if !is_derivable(&item) {
            continue;
        }
        let VisibilityAdvice { id, .. } = advice(&item, client);
        match &item.what {
            HiddenItemKind::Tool(tool) => {
                if item.cause == HidingCause::Unlabelled {
                    tool_advice = id;
                }
                tools.insert(client.name_of(tool));
            }
            HiddenItemKind::Answer(tool) => drop(answers.insert(client.name_of(tool))),
            what => {
                let list = explanation.entry(kind_name(what)).or_insert_with(|| json!([]));
                if let Some(list) = list.as_array_mut() {
                    list.push(json!({"count": item.count, "advice": id}));
                }
            }
        }
    }
    for (what, names, advice) in [("tools", tools, tool_advice), ("answers", answers, "label-answer")] {
        if !names.is_empty() {
            let (count, mut bytes) = (names.len(), 0);
            // The names that a client chose must not make the header too long.
            let is_short = |name: &String| {
                bytes += name.len();
                bytes <= MAX_TOOL_NAME_BYTES
            };
            let listed_names: Vec<String> = names.into_iter().take(MAX_NAMED).take_while(is_short).collect();
            explanation
                .insert(what.to_owned(), json!({"count": count, "names": listed_names, "advice": advice}));
        }
    }
    to_ascii(&Value::Object(explanation).to_string())
}

/// Returns whether the configuration, the policy and the client's own request determine that an item is hidden. The
/// header for the client may then name the item: it reveals nothing that the client is not to learn.
fn is_derivable(item: &HiddenItem) -> bool {
    match (&item.what, item.cause) {
        // The client itself has sent its tools and the schema of the reply.
        (HiddenItemKind::Tool(_), _) | (HiddenItemKind::Format, HidingCause::Labelled) => true,
        // The configuration, the policy and the client's request determine these causes.
        (
            _,
            HidingCause::NotPinned
            | HidingCause::NotInteractive
            | HidingCause::Hole
            | HidingCause::Unlabelled,
        ) => true,
        // These causes depend on the content of the conversation and its labels, which the header must not reveal.
        (_, HidingCause::Labelled | HidingCause::Repeated | HidingCause::Unknown) => false,
    }
}

/// Returns the name of a kind of hidden items in the header for clients and in the operator's log.
fn kind_name(what: &HiddenItemKind) -> &'static str {
    match what {
        HiddenItemKind::System => "system",
        HiddenItemKind::User => "user",
        HiddenItemKind::Past => "past",
        HiddenItemKind::Format => "format",
        HiddenItemKind::Tool(_) => "tool",
        HiddenItemKind::Answer(_) => "answer",
    }
}

/// Returns the tool that a hidden item is about; `None` for messages.
fn tool_of(what: &HiddenItemKind) -> Option<&Tool> {
    match what {
        HiddenItemKind::Tool(tool) | HiddenItemKind::Answer(tool) => Some(tool),
        _ => None,
    }
}

/// Returns the advice about a hidden item: why it is hidden and, unless that is intended, the statement or setting that
/// would show it.
fn advice(item: &HiddenItem, client: &ClientSettings) -> VisibilityAdvice {
    let (name, file) = (&client.name, &client.policy_file);
    let carries = item.carries.join(", ");
    let receiver = match &item.because_of {
        Some(tool) => format!("the tool `{tool}`"),
        None => "the server of the model".to_owned(),
    };
    // `id` is the stable name of the advice; `is_intended` says that the policy hides the item on purpose.
    let new_advice = |id, is_intended, text| VisibilityAdvice { id, is_intended, text };
    // A labelled message or tool that is hidden because a tool on offer has no requirement.
    if !item.is_required
        && let (Some(tool), HidingCause::Labelled) = (&item.because_of, item.cause)
        && !matches!(item.what, HiddenItemKind::Answer(_))
    {
        let text = format!(
            "{} is hidden: it carries {carries}, but no `require` of {file} names the tool `{tool}`, so \
            while that tool is on offer, each turn starts with steps that are shown only trusted and public text (the \
            label bottom); add `require ... if: (call: ToolCall) is tool:{tool}`",
            subject(&item.what)
        );
        return new_advice("require-tool", false, text);
    }
    match (&item.what, item.cause) {
        (HiddenItemKind::Tool(tool), HidingCause::Unlabelled) => {
            unlabelled_tools(client, &[tool.to_string()])
        }
        (HiddenItemKind::Format, HidingCause::Unlabelled) => {
            let text = format!(
                "the schema of the reply is hidden, so the reply has any form: no statement of {file} labels it; if you trust the texts in the \
                 schemas of this client, add a statement `label message as LABEL if:` with the lines `(message: Message)` and \
                 `message.role == \"response_format\"`"
            );
            new_advice("label-format", false, text)
        }
        (HiddenItemKind::Answer(tool), HidingCause::Unlabelled) => {
            unlabelled_answers(client, &[tool.to_string()])
        }
        (HiddenItemKind::Answer(tool), _) => {
            let text = format!(
                "answers of `{tool}` are hidden from steps at the base label (where each turn starts), as {file} labels \
                them: they carry {carries}, which exceeds what {receiver} may receive; the model can look at them, and \
                a person is then asked about calls that depend on them"
            );
            new_advice("as-labelled", true, text)
        }
        (_, HidingCause::NotPinned) => {
            let text = format!(
                "system messages that are not pinned are hidden: add the text that you gave the agent to `pinned` in [clients.{name}], with {{}} \
                 where a program fills something in; what fills it stays hidden"
            );
            new_advice("pin", false, text)
        }
        (_, HidingCause::NotInteractive) => {
            let mistaken = match client.is_interactive_alone {
                true => {
                    "; `interactive = true` says that a person can be asked, not what that person has typed"
                }
                false => "",
            };
            let text = format!(
                "user messages are hidden if nothing declares that a person typed them{mistaken}: set \
                `user-messages = \"marked\"` in [clients.{name}] and have the client mark what was typed \
                (`\"flowgate\": {{\"source\": \"typed\"}}`, or the header `x-flowgate-source: typed`); or \
                `user-messages = \"trust-unmarked-even-if-pasted\"`, if a person types all that this client \
                sends as the user's, and not if it puts pages, files or mails there: strangers who write \
                these would command the agent; or pin the form that it fills in"
            );
            new_advice("user-messages", false, text)
        }
        (_, HidingCause::Hole) => {
            let text = "a part of a pinned message is hidden: it is the text at a `{}` of `pinned`, which can vary and is not trusted; if it never varies, write it into `pinned`";
            new_advice("hole", true, text.to_owned())
        }
        (_, HidingCause::Repeated) => {
            let text = format!(
                "words of a message are hidden, since they repeat text that this client was shown before \
                with the label {carries}"
            );
            new_advice("repeated", true, text)
        }
        (_, HidingCause::Unknown) => {
            let text = "messages are hidden, since the gateway has no conversation with the beginning of \
                this chat: let the agent name its conversations in the header `x-flowgate-conversation`, or \
                begin a new chat";
            new_advice("name-conversation", false, text.to_owned())
        }
        (_, HidingCause::Unlabelled) => {
            let text = format!(
                "messages of all roles are hidden: no statement of {file} labels them; add a statement `label message as LABEL if:` with the lines \
                 `(message: Message)` and `message.role in [\"system\", \"user\"]`; LABEL names for every dimension how far texts of the operator and the user are \
                 trusted, and who may read them"
            );
            new_advice("label-message", false, text)
        }
        (what, HidingCause::Labelled) => {
            let text = format!(
                "{} is hidden: {file} labels it {carries}, which exceeds what {receiver} may receive; write a \
                `label` for it that names every dimension",
                subject(what)
            );
            new_advice("label-lower", false, text)
        }
    }
}

/// Returns a phrase for a hidden item, as the subject of a sentence.
fn subject(what: &HiddenItemKind) -> String {
    match what {
        HiddenItemKind::System => "a system message".to_owned(),
        HiddenItemKind::User => "a user message".to_owned(),
        HiddenItemKind::Past => "a message of another role".to_owned(),
        HiddenItemKind::Format => "the schema of the reply".to_owned(),
        HiddenItemKind::Tool(tool) => format!("the tool `{tool}`"),
        HiddenItemKind::Answer(tool) => format!("an answer of `{tool}`"),
    }
}

/// Returns a list of names for a sentence: at most [`MAX_NAMED`] of them, and the number of the others.
fn list(names: &[String]) -> String {
    let shown: Vec<String> = names.iter().take(MAX_NAMED).map(|name| format!("`{name}`")).collect();
    let rest = names.len().saturating_sub(MAX_NAMED);
    format!("{}{}", shown.join(", "), if rest > 0 { format!(" and {rest} more") } else { String::new() })
}

/// Returns the advice about tools that are not offered to the model, because no statement labels their descriptions.
/// The text lists the tools, and shows the missing statement for the first one.
fn unlabelled_tools(client: &ClientSettings, tools: &[String]) -> VisibilityAdvice {
    let (listed, file) = (list(tools), &client.policy_file);
    let first = tools.first().map(String::as_str).unwrap_or_default();
    let text = format!(
        "tools are not on offer, since no statement of {file} labels their descriptions: {listed}; read the description of each tool, and if you trust \
         it, add a statement for the tool, such as `label tool as LABEL if: (tool: Tool) is tool:{first}`"
    );
    VisibilityAdvice { id: "label-tool", is_intended: false, text }
}

/// Returns the advice about tools whose answers are hidden, because no statement labels them. The text lists the tools,
/// and shows the missing statement for the first one.
fn unlabelled_answers(client: &ClientSettings, tools: &[String]) -> VisibilityAdvice {
    let (listed, file) = (list(tools), &client.policy_file);
    let first = tools.first().map(String::as_str).unwrap_or_default();
    let text = format!(
        "answers are hidden, since no statement of {file} labels them: {listed}; add `label out.content as LABEL if: (out: ToolOutput) is \
         tool:{first}`, where LABEL says who can write such an answer and who may read it"
    );
    VisibilityAdvice { id: "label-answer", is_intended: false, text }
}
