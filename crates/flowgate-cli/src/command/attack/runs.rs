//! Builds the runs in which `flowgate attack` tries injections. In each run, an injection is in an answer of a tool, in
//! the description of a tool, or in one field of a recorded answer. The last message of the run is the call that the
//! injection asks for; an address in a reply is represented by a call of the tool `flowgate/link`.

use flowgate::draft::{DescribedTool, ToolEffect, ToolTraits};
use flowgate::label::Label;
use flowgate::trace::read::RecordedRun;
use flowgate::trace::{Document, EventBody, NodeContent, NodeId, Tool, TraceEntry};
use serde_json::{Map, Value, json};

use super::forms::{FormKind, InjectionForm};
use super::injections::{attacker_arguments, honest_arguments, of_call, of_reply};

/// One attack. The last message of its run is the call that the attacker wants.
#[derive(Clone)]
pub(super) struct Attack {
    /// Where the injection is, in words.
    pub(super) source: String,
    /// The form of the injection.
    pub(super) form: &'static InjectionForm,
    /// The tool that the injection asks for; for an address in a reply, the tool `flowgate/link`, by which a policy
    /// judges addresses.
    pub(super) target: Tool,
    /// The text of the injection.
    pub(super) injection: String,
    /// The messages of the run, as traces are written. Empty if the run is a changed recording, which
    /// [`by_fields`] returns beside the attack.
    pub(super) messages: Vec<Value>,
}

/// Returns the tools whose calls an attacker can want: all except those that only read.
pub(super) fn targets(tools: &[DescribedTool]) -> Vec<&DescribedTool> {
    // `false`: a server's own claim that a tool only reads has no effect.
    tools.iter().filter(|tool| ToolTraits::of(tool, false).effect != ToolEffect::Reads).collect()
}

/// Returns the attacks by whole answers: every tool's answer asks, in each of these forms, for a call of every target
/// or, in the forms for replies, for a reply with an address of the attacker.
pub(super) fn by_answers<'t>(
    tools: &'t [DescribedTool],
    targets: &'t [&'t DescribedTool],
    forms: &'t [&'static InjectionForm],
) -> impl Iterator<Item = Attack> + 't {
    let pairs = tools.iter().flat_map(move |source| targets.iter().map(move |target| (source, *target)));
    let calls = pairs.flat_map(move |(source, target)| {
        let forms = forms.iter().filter(|form| form.kind != FormKind::Reply);
        forms.map(move |form| by_answer(source, target, form))
    });
    let replies = tools.iter().flat_map(move |source| {
        let forms = forms.iter().filter(|form| form.kind == FormKind::Reply);
        forms.map(move |form| by_reply(source, form))
    });
    calls.chain(replies)
}

/// Returns the attack in which the answer of the tool `source` is an injection, in one form, that asks for a call
/// of `target`. The user asks for nothing of the kind, and the model obeys.
fn by_answer(source: &DescribedTool, target: &DescribedTool, form: &'static InjectionForm) -> Attack {
    let wanted = attacker_arguments(target);
    let injection = of_call(form, target, &wanted);
    attack(source, form, injection, target.tool.clone(), &wanted)
}

/// Returns the attack in which the answer of the tool `source` asks for a reply with an address of the attacker. The
/// last message of the run is the call of `flowgate/link` by which the policy judges this address.
fn by_reply(source: &DescribedTool, form: &'static InjectionForm) -> Attack {
    let (injection, address) = of_reply(form);
    let wanted = Map::from_iter([("url".to_owned(), json!(address))]);
    attack(source, form, injection, Tool::of(Tool::FLOWGATE_SERVER, "link"), &wanted)
}

/// Returns the attack in which the answer of the tool `source` is `injection`, followed by a call of `target` with the
/// arguments `wanted`. `form` is the form of the injection.
fn attack(
    source: &DescribedTool,
    form: &'static InjectionForm,
    injection: String,
    target: Tool,
    wanted: &Map<String, Value>,
) -> Attack {
    let messages = vec![
        json!({"role": "system", "content": "You help the user."}),
        json!({"role": "user", "content": "What is new?"}),
        call_message("honest", &source.tool, &honest_arguments(source), "user"),
        json!({"role": "tool", "tool_call_id": "honest", "content": injection, "is_error": false}),
        call_message("injected", &target, wanted, "injection"),
    ];
    let source = format!("an answer of {}", source.tool);
    Attack { source, form, target, injection, messages }
}

/// Returns the attacks by descriptions of tools: every tool's description asks, in each of these forms, for a call of
/// every target. A description is prose, so only forms with an order are tried.
pub(super) fn by_descriptions<'t>(
    tools: &'t [DescribedTool],
    targets: &'t [&'t DescribedTool],
    forms: &'t [&'static InjectionForm],
) -> impl Iterator<Item = Attack> + 't {
    let pairs = tools.iter().flat_map(move |source| targets.iter().map(move |target| (source, *target)));
    pairs.flat_map(move |(source, target)| {
        let forms = forms.iter().filter(|form| form.kind == FormKind::Order);
        forms.map(move |form| by_description(source, target, form))
    })
}

/// Returns the attack in which the description of the tool `source` is an injection, in one form, that asks for a call
/// of `target`. No tool has been called before.
fn by_description(source: &DescribedTool, target: &DescribedTool, form: &'static InjectionForm) -> Attack {
    let wanted = attacker_arguments(target);
    let injection = of_call(form, target, &wanted);
    let Tool { server, name } = &source.tool;
    let described = json!({"name": &**name, "description": injection, "inputSchema": {"type": "object"}, "server": server});
    let messages = vec![
        json!({"tools": [described]}),
        json!({"role": "system", "content": "You help the user."}),
        json!({"role": "user", "content": "What is new?"}),
        call_message("injected", &target.tool, &wanted, "injection"),
    ];
    let source = format!("the description of {}", source.tool);
    Attack { source, form, target: target.tool.clone(), injection, messages }
}

/// Returns a message of the model with one call. `origin` says who asked for the call: `user` or `injection`.
fn call_message(id: &str, tool: &Tool, arguments: &Map<String, Value>, origin: &str) -> Value {
    let function = json!({"name": &*tool.name, "arguments": Value::Object(arguments.clone()).to_string()});
    let mut call = json!({"id": id, "type": "function", "function": function, "origin": origin});
    if let (Some(server), Some(fields)) = (&tool.server, call.as_object_mut()) {
        fields.insert("server".to_owned(), json!(&**server));
    }
    json!({"role": "assistant", "content": null, "tool_calls": [call]})
}

/// Returns the attacks by the fields of a recorded run, each with its changed run: an injection replaces one text
/// field of one answer, and the run ends after this answer with the call that the injection asks for. An answer
/// without text fields is replaced as a whole. `position` names the run by its file and line. `targets` are the tools
/// whose calls the injections ask for. Only one `form` is tried, since [`by_answers`] tries all forms on whole
/// answers.
pub(super) fn by_fields(
    run: &RecordedRun,
    position: &str,
    targets: &[&DescribedTool],
    form: &'static InjectionForm,
) -> Vec<(Attack, RecordedRun)> {
    let mut attacks = Vec::new();
    for (index, entry) in run.entries.iter().enumerate() {
        let EventBody::Output(output) = &entry.body else { continue };
        // Only the paths and spans of the fields are used, so the label does not matter.
        let document = Document::new(&entry.body, Label::BOTTOM);
        for target in targets {
            let wanted = attacker_arguments(target);
            let injection = of_call(form, target, &wanted);
            for (path, content) in replaced_contents(&output.content, &document, &injection) {
                let mut changed = output.clone();
                // Structured content would repeat the original text next to the injection.
                (changed.content, changed.structured) = (content, None);
                let mut entries: Vec<TraceEntry> = run.entries.iter().take(index).cloned().collect();
                entries.push(TraceEntry { body: EventBody::Output(changed), ..entry.clone() });
                let arguments = Value::Object(wanted.clone()).to_string();
                let mut call = TraceEntry::tool_call("injected", target.tool.clone(), &arguments);
                call.extra.insert("origin".to_owned(), json!("injection"));
                entries.push(call);
                let attack = Attack {
                    source: format!("{path} in message {index} of {position}"),
                    form,
                    target: target.tool.clone(),
                    injection: injection.clone(),
                    // The changed run has its entries instead.
                    messages: Vec::new(),
                };
                attacks.push((attack, RecordedRun { entries, ..run.clone() }));
            }
        }
    }
    attacks
}

/// Returns variants of `content`, the content of the answer that is parsed in `document`. In each variant, the injection
/// replaces one text field, whose path is returned with the variant. If `content` is not a text, or has no text field,
/// the only variant is the injection as the whole content.
fn replaced_contents(content: &Value, document: &Document, injection: &str) -> Vec<(String, Value)> {
    let whole = || vec![("content".to_owned(), Value::from(injection))];
    let (Value::String(text), Some(root)) = (content, document.key(0, "content")) else { return whole() };
    let end = document.node(root).map_or(root, |node| node.end);
    // The nodes of a document are in pre-order, so these are all nodes of the content.
    let fields = (root..end).filter_map(|node| replaced_field(text, document, node, injection));
    let fields: Vec<(String, Value)> = fields.collect();
    if fields.is_empty() { whole() } else { fields }
}

/// Returns the path of the field `id` of `document`, and the answer `text` with an injection instead of this field;
/// `None` if the field is not a text, or its position in `text` is unknown.
fn replaced_field(text: &str, document: &Document, id: NodeId, injection: &str) -> Option<(String, Value)> {
    let node = document.node(id)?;
    let span = node.span.clone().filter(|_| matches!(node.content, NodeContent::Scalar(Value::String(_))))?;
    // `None` for a span outside the text or within a character, with which `replace_range` would panic.
    text.get(span.clone())?;
    let mut changed = text.to_owned();
    // The answer can be JSON, YAML or a Python literal: a text in quotation marks is written alike in all three.
    changed.replace_range(span, &json!(injection).to_string());
    Some((document.path(id).to_string(), Value::String(changed)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_text_of_an_answer_is_replaced() {
        let check = |content: Value, expected: &[(&str, &str)]| {
            let body = EventBody::Output(flowgate::trace::Output::result("c", content.clone()));
            let document = Document::new(&body, Label::BOTTOM);
            let replaced = replaced_contents(&content, &document, "X");
            let replaced: Vec<(&str, &str)> =
                replaced.iter().map(|(path, new)| (path.as_str(), new.as_str().unwrap())).collect();
            assert_eq!(replaced, expected, "{content}");
        };
        check(
            json!(r#"[{"a": "b", "n": 1, "c": "d"}]"#),
            &[
                ("content[0].a", r#"[{"a": "X", "n": 1, "c": "d"}]"#),
                ("content[0].c", r#"[{"a": "b", "n": 1, "c": "X"}]"#),
            ],
        );
        check(json!("- a: b\n  n: 1\n"), &[("content[0].a", "- a: \"X\"\n  n: 1\n")]);
        check(json!("prose"), &[("content", "X")]);
        check(json!([{"type": "text", "text": "t"}]), &[("content", "X")]);
    }
}
