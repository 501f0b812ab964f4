//! Builds views ([`View`]): the chat as a model is shown it at a label. A [conversation](crate::conversation) builds a
//! view for each step; the submodule `items` holds the items of the chat, and caches the last view.
//!
//! Everything that reaches the model passes through this module: messages, the model's own output, the answers and the
//! descriptions of tools, the output format that the client requests (such as a JSON schema), and ids. Ids and the
//! names of hidden regions are renumbered in every view, so that they do not reveal how much was left out.

mod items;

use std::fmt::Write as _;
use std::sync::Arc;

use flowgate::label::Label;
use flowgate::monitor::Monitor;
use flowgate::trace::{EventBody, EventId, Tool};
use flowgate_lm::chat::{
    Message, Messages, Part, ReasoningPart, Request, Sampling, ToolCall, ToolChoice, ToolSpec,
};
use serde_json::Value;

use crate::catalogue::Catalogue;
use crate::redact::{HiddenContent, HiddenRegions, Redactor};
use crate::requested_format::RequestedFormat;
use crate::slot;

pub(crate) use items::{ConversationItems, ViewPrefix, ViewSummary};

/// What a model is shown for one step.
#[derive(Debug, Clone, PartialEq)]
pub struct View {
    /// The label of everything that the model generates from the view: at least the join of what the view shows.
    pub label: Label,
    /// The upper bound on the labels of what the view shows; `label` flows to it.
    pub bound: Label,
    /// The chat and the tools.
    pub request: Arc<Request>,
    /// The hidden regions.
    pub names: HiddenRegions,
}

/// An item of a conversation.
#[derive(Debug)]
pub(crate) enum ConversationItem {
    /// A message of a principal other than the model.
    Message(EventId),
    /// A message in a chat that the caller sent. Its existence is known to the caller, so only its content can be
    /// hidden.
    ClientMessage(EventId),
    /// The output of the model in one step.
    Step(ModelStep),
}

/// The output of a model in one step, unchanged.
#[derive(Debug)]
pub(crate) struct ModelStep {
    /// The label of the view, and so of everything here except the answers.
    pub(crate) label: Label,
    /// The upper bound on the labels of what the view showed.
    pub(crate) bound: Label,
    /// The hidden regions of the view, until all calls of the step are processed: these may refer to them.
    pub(crate) names: HiddenRegions,
    pub(crate) text: String,
    pub(crate) calls: Vec<StepCall>,
    /// The reasoning of the model, which only the model's server is shown again.
    pub(crate) thoughts: Vec<ReasoningPart>,
}

/// A call that a model wrote, with its answer.
#[derive(Debug)]
pub(crate) struct StepCall {
    pub(crate) call: ToolCall,
    pub(crate) answer: CallOutcome,
}

/// The outcome of a call.
#[derive(Debug, Clone)]
pub(crate) enum CallOutcome {
    /// The call is not processed yet.
    Pending,
    /// The call, which is this event, runs elsewhere, and has no answer yet.
    HandedOver(EventId),
    /// The call ran, and the caller replaced the tool's answer by this text.
    Rewritten { text: String, label: Label },
    /// The call ran, and this event is the tool's answer.
    Output(EventId),
    /// The call did not run, or a rule stopped its answer, which is the event `stopped`. The text reports the reason to
    /// the model. `tool` is the called tool, by which the placeholder of a hidden refusal looks like that of an answer;
    /// `None` if every reader of the step may read the refusal, or no tool has the name of the call.
    Refused { text: String, label: Label, tool: Option<Tool>, stopped: Option<EventId> },
    /// A look, after which the model was shown a view at this label.
    Looked(Label),
}

/// The answer to a call that has none.
const UNANSWERED: &str = "There is no answer.";
/// The answer to a look in views below the look, which hide the regions again.
const LOOKED: &str = "You have looked. What you saw, and what you did then, is hidden here.";
/// The answer to a look in views that show the regions.
const SHOWN: &str = "It is shown now, where the placeholder was.";

/// The inputs from which a view is built.
pub(crate) struct ViewBuilder<'a> {
    pub(crate) monitor: &'a Monitor,
    pub(crate) catalogue: &'a Catalogue,
    pub(crate) items: &'a [ConversationItem],
    pub(crate) sampling: &'a Sampling,
    /// The form that the client demands of the text.
    pub(crate) format: Option<&'a RequestedFormat>,
    /// The tools on offer, if not all.
    pub(crate) selected_tools: Option<&'a [String]>,
    /// Whether the model may request hidden regions with `look`.
    pub(crate) can_look: bool,
    /// Whether the model may leave slots to be filled with hidden regions.
    pub(crate) can_slot: bool,
    /// If set, the view is for a screener with this clearance: content that the view would hide, but that the screener
    /// may read, is put between tags with this nonce.
    pub(crate) tag: Option<(&'a str, Label)>,
    /// If set, the label of the view floats: it is the join of this label and of what the view shows. Otherwise it is
    /// the bound.
    pub(crate) floats_from: Option<Label>,
}

impl ViewBuilder<'_> {
    /// Builds the view at the bound `label`.
    pub(crate) fn build(&self, label: Label) -> View {
        let names = HiddenRegions::with_tagging(self.tag);
        self.build_from(label, ViewPrefix { names, ..ViewPrefix::default() }).0
    }

    /// Builds the view at the bound `label` from a known beginning (`prefix`), which has the messages for the first
    /// items. Returns the view, with the state from which a longer view can be built.
    pub(crate) fn build_from(&self, label: Label, prefix: ViewPrefix) -> (View, ViewSummary) {
        let ViewPrefix { mut messages, mut names, summary, items: known_items, tools: known_tools } = prefix;
        // `shown` is the join of the labels of everything that the messages show.
        let ViewSummary { mut calls, mut shown } = summary;
        let had_hidden = !names.is_empty();
        for item in self.items.iter().skip(known_items) {
            shown = shown.join(&self.item_label(item, &label));
            match item {
                ConversationItem::Message(event) | ConversationItem::ClientMessage(event) => {
                    // The client knows that its own messages exist.
                    let is_known = matches!(item, ConversationItem::ClientMessage(_));
                    messages.extend(self.message(*event, is_known, &label, &mut names))
                }
                ConversationItem::Step(step) if !step.label.flows_to(&label) => {
                    // Without a screener (`names.reader()` is `None`), the step is left out. A screener is shown it as
                    // a region, unless it is above the screener's clearance: then its existence is hidden, too.
                    match names.reader() {
                        None => {}
                        Some(reader) if step.label.flows_to(reader) => {
                            messages.push(self.hidden_step(step, &mut names));
                        }
                        Some(_) => names.omit(&step.label),
                    }
                }
                ConversationItem::Step(step) => {
                    self.push_step(step, &label, &mut names, &mut calls, &mut messages)
                }
            }
        }
        // The tools of the prefix are reused unless `look` and slots are offered now and were not before.
        let has_hidden = !names.is_empty();
        let reusable_tools = known_tools.filter(|_| has_hidden == had_hidden);
        let tools = reusable_tools.unwrap_or_else(|| self.tools(&label, has_hidden));
        let sampling = self.sampling.clone();
        let format = self.format.and_then(|format| format.visible_at(self.monitor, &label)).cloned();
        let request = Request { messages, tools, choice: ToolChoice::Auto, sampling, format };
        // A label that floats is the join of everything that the view shows; otherwise it is the bound.
        let view_label = self.floats_from.map_or(label, |least| {
            let described = self.catalogue.view_label(self.monitor, &label);
            let format = self.format.map_or(Label::BOTTOM, |format| format.view_label(self.monitor, &label));
            least.join(&shown).join(&described).join(&format)
        });
        let view = View { label: view_label, bound: label, request: Arc::new(request), names };
        (view, ViewSummary { calls, shown })
    }

    /// Returns the label that a view at `bound` carries because of an item: the join of the labels of those parts of
    /// the item that the view shows. The existence of a message of the client contributes nothing, since the client
    /// knows it.
    fn item_label(&self, item: &ConversationItem, bound: &Label) -> Label {
        match item {
            ConversationItem::Message(event) => self.event_label(*event, bound),
            ConversationItem::ClientMessage(event) => self.monitor.view_label(*event, bound),
            // The model's view has nothing of a step above the bound. A screener's view can have a placeholder for it,
            // but the label of such a view does not float, so the result is not used there.
            ConversationItem::Step(step) if !step.label.flows_to(bound) => Label::BOTTOM,
            ConversationItem::Step(step) => {
                let answers = step.calls.iter().map(|step_call| self.answer_label(&step_call.answer, bound));
                answers.fold(step.label, |joined, label| joined.join(&label))
            }
        }
    }

    /// Returns the label that a view at `bound` carries because of an event: the labels of those parts that the view
    /// shows, and the label of the event's existence, which the view reveals.
    fn event_label(&self, id: EventId, bound: &Label) -> Label {
        let existence = self.monitor.trace().existence_label(id);
        // A message whose existence is hidden is absent from the view.
        if existence.flows_to(bound) {
            existence.join(&self.monitor.view_label(id, bound))
        } else {
            Label::BOTTOM
        }
    }

    /// Returns the label that a view at `bound` carries because of the answer to a call. This label flows to the bound.
    fn answer_label(&self, answer: &CallOutcome, bound: &Label) -> Label {
        match answer {
            CallOutcome::Pending => Label::BOTTOM,
            CallOutcome::HandedOver(id) => {
                let decided = self.monitor.trace().event(*id).map_or(*bound, |call| call.decided);
                // The view shows that the verdict is hidden. This depends on the label of the verdict, and so possibly
                // on anything up to the bound.
                if decided.flows_to(bound) { decided } else { *bound }
            }
            CallOutcome::Refused { label, .. } | CallOutcome::Rewritten { label, .. } => {
                // The same holds for a hidden refusal and a hidden rewritten answer.
                if label.flows_to(bound) { *label } else { *bound }
            }
            // The step already shows that there is a look. A view at or above the label of the look shows the regions,
            // and a view below shows nothing of them.
            CallOutcome::Looked(label) if label.flows_to(bound) => *label,
            CallOutcome::Looked(_) => Label::BOTTOM,
            // The step already shows that there is an answer, so the existence of the answer does not count.
            CallOutcome::Output(id) => self.monitor.view_label(*id, bound),
        }
    }

    /// Returns the tools on offer in a view at `label`. Only a view that hides regions (`hides`) offers `look` and
    /// slots.
    fn tools(&self, label: &Label, hides: bool) -> Vec<ToolSpec> {
        let specs =
            self.catalogue.visible_at(self.monitor, label).map(|entry| entry.spec(self.can_slot && hides));
        let is_offered =
            |name: &String| self.selected_tools.is_none_or(|selected_tools| selected_tools.contains(name));
        let look = (self.can_look && hides).then(slot::look_spec);
        specs.filter(|spec| is_offered(&spec.name)).chain(look).collect()
    }

    /// Returns a message as a view at `label` shows it; `None` if the existence of the message is hidden. The existence
    /// of a message that the client sent (`is_known`) is never hidden, since the client holds it. Adds its hidden parts
    /// to `names`.
    fn message(
        &self,
        id: EventId,
        is_known: bool,
        label: &Label,
        names: &mut HiddenRegions,
    ) -> Option<Message> {
        let event = self.monitor.trace().event(id)?;
        let EventBody::Message(message) = &event.body else { return None };
        let existence = self.monitor.trace().existence_label(id);
        // A screener is shown hidden messages as well, so a screener's view omits only those above its clearance.
        if !is_known && !existence.flows_to(names.reader().unwrap_or(label)) {
            names.omit(&existence.join(&event.label));
            return None;
        }
        let content = to_parts(Redactor { id, event, label, schema: None }.redacted_content(names));
        Some(match message.role.as_str() {
            "system" | "developer" => Message::System(content),
            // Any other message, such as retrieved memory, is shown as one of the user.
            _ => Message::User(content),
        })
    }

    /// Appends the messages of a step: what the model wrote, and the answers to its calls as a view at `label` shows
    /// them. Adds the hidden parts of the answers to `names`. `count` is the number of calls so far, from which the
    /// calls get new ids: the original ids would show how many calls are hidden.
    fn push_step(
        &self,
        step: &ModelStep,
        label: &Label,
        names: &mut HiddenRegions,
        count: &mut usize,
        messages: &mut Messages,
    ) {
        let first = *count;
        let calls = step.calls.iter().map(|step_call| {
            *count += 1;
            ToolCall { id: format!("call_{count}"), ..step_call.call.clone() }
        });
        let (text, thoughts) = (step.text.clone(), step.thoughts.clone());
        messages.push(Message::Assistant { text, calls: calls.collect(), thoughts });
        for (index, step_call) in step.calls.iter().enumerate() {
            let (content, is_error) = self.outcome_parts(&step_call.answer, label, names);
            let call_id = format!("call_{}", first + index + 1);
            messages.push(Message::Tool { call_id, content, is_error: Some(is_error) });
        }
    }

    /// Returns a message that shows a step above the label of the view as one hidden region, for a screener that
    /// judges whether the next step depends on it. Adds the region to `names`.
    fn hidden_step(&self, step: &ModelStep, names: &mut HiddenRegions) -> Message {
        // The reader must be cleared for the answers of the step, too.
        let answers = step.calls.iter().map(|step_call| self.outcome_label(&step_call.answer));
        let reach = answers.fold(step.label, |reach, label| reach.join(&label));
        let content = || {
            let mut text = step.text.clone();
            for step_call in &step.calls {
                // A view at top hides nothing, so no region is added here.
                let mut inner = HiddenRegions::default();
                let top = self.monitor.policy().space().top();
                let (answer, _) = self.outcome_parts(&step_call.answer, &top, &mut inner);
                // Writing to a text does not fail.
                let _ = write!(text, "\n{} {} -> {answer:?}", step_call.call.name, step_call.call.arguments);
            }
            text
        };
        let text = names.hide(step.label, reach, HiddenContent::Step, None, content);
        Message::Assistant { text, calls: Vec::new(), thoughts: Vec::new() }
    }

    /// Returns the label of the whole text of an outcome, for a reader that is shown the text unredacted. The text of a
    /// pending call and of a look is a constant of the guard, which has the least label. A handed-over call shows its
    /// verdict (it was not refused), so its outcome has the label of the verdict.
    fn outcome_label(&self, answer: &CallOutcome) -> Label {
        match answer {
            CallOutcome::Pending | CallOutcome::Looked(_) => Label::BOTTOM,
            CallOutcome::HandedOver(id) => {
                let top = self.monitor.policy().space().top();
                self.monitor.trace().event(*id).map_or(top, |call| call.decided)
            }
            CallOutcome::Refused { label, .. } | CallOutcome::Rewritten { label, .. } => *label,
            // An answer that is not in the trace is shown as a constant, which has the least label.
            CallOutcome::Output(id) => {
                self.monitor.trace().event(*id).map_or(Label::BOTTOM, |event| event.label)
            }
        }
    }

    /// Returns the schema of the answers of a tool, if a view at `label` may show it.
    fn schema(&self, label: &Label, tool: &Tool) -> Option<&Value> {
        self.catalogue.output_schema(self.monitor, label, tool)
    }

    /// Returns the outcome of a call as a view at `label` shows it, and whether it is marked as an error. A hidden
    /// outcome looks the same whether the call ran, failed or was refused. Adds its hidden parts to `names`.
    fn outcome_parts(
        &self,
        answer: &CallOutcome,
        label: &Label,
        names: &mut HiddenRegions,
    ) -> (Vec<Part>, bool) {
        let text = |text: &str| vec![Part::from(text)];
        match answer {
            CallOutcome::Pending => (text(UNANSWERED), true),
            CallOutcome::HandedOver(id) => {
                let call = self.monitor.trace().event(*id);
                let decided = call.map_or(self.monitor.policy().space().top(), |call| call.decided);
                if decided.flows_to(label) {
                    return (text(UNANSWERED), true);
                }
                // The fact that the call was permitted is hidden, so its outcome looks like a hidden refusal.
                let schema = call.and_then(|call| call.tool()).and_then(|tool| self.schema(label, tool));
                (Self::hidden_text(UNANSWERED, decided, schema, names), false)
            }
            CallOutcome::Rewritten { text: rewritten, label: own } if own.flows_to(label) => {
                (text(rewritten), false)
            }
            CallOutcome::Rewritten { text: rewritten, label: own } => {
                (Self::hidden_text(rewritten, *own, None, names), false)
            }
            CallOutcome::Looked(seen) if seen.flows_to(label) => (text(SHOWN), false),
            CallOutcome::Looked(_) => (text(LOOKED), false),
            CallOutcome::Refused { text: refusal, label: own, .. } if own.flows_to(label) => {
                (text(refusal), true)
            }
            // Whether the call ran is hidden, too; so a refusal looks like a hidden answer.
            CallOutcome::Refused { text: refusal, label: own, tool, .. } => {
                let schema = tool.as_ref().and_then(|tool| self.schema(label, tool));
                (Self::hidden_text(refusal, *own, schema, names), false)
            }
            CallOutcome::Output(id) => {
                let Some(event) = self.monitor.trace().event(*id) else {
                    return (text(UNANSWERED), true);
                };
                let call = event.call.and_then(|call| self.monitor.trace().event(call));
                let tool = call.and_then(|call| call.tool());
                let schema = tool.and_then(|tool| self.schema(label, tool));
                let redactor = Redactor { id: *id, event, label, schema };
                (to_parts(redactor.redacted_content(names)), redactor.is_error())
            }
        }
    }

    /// Hides a text with the label `label`, and returns what the view shows in its place. `schema` is the schema of the
    /// text in the tool's declaration.
    fn hidden_text(text: &str, label: Label, schema: Option<&Value>, names: &mut HiddenRegions) -> Vec<Part> {
        let content = HiddenContent::Text(text.to_owned());
        let placeholder = names.hide(label, label, content, schema, || text.to_owned());
        vec![Part::Text(placeholder)]
    }
}

/// Converts the content of an event to the parts of a message. A list with a content block becomes one part for each
/// item, any other content a single text: itself, or its JSON.
pub(crate) fn to_parts(content: Value) -> Vec<Part> {
    match content {
        Value::String(text) => vec![Part::Text(text)],
        Value::Array(blocks) if blocks.iter().any(is_block) => blocks.iter().map(to_part).collect(),
        other => vec![Part::Text(other.to_string())],
    }
}

/// Returns whether a value is a content block: an object that names its type.
fn is_block(value: &Value) -> bool {
    value.get("type").is_some_and(Value::is_string)
}

/// Converts a content block to a part of a message, in the forms of the providers and of MCP; a block of another form
/// becomes its JSON text.
fn to_part(block: &Value) -> Part {
    let text = |value: Option<&Value>| value.and_then(Value::as_str).map(str::to_owned);
    // The address or the data of a hidden image is a placeholder or, for a screener, a text between tags.
    let is_shown = |text: &String| !text.starts_with("[hidden ") && !text.starts_with("<<REGION_");
    let part = match block.get("type").and_then(Value::as_str) {
        Some("text") => text(block.get("text")).map(Part::Text),
        Some("image_url") => {
            let url = block.get("image_url");
            let url = text(url).or_else(|| text(url?.get("url")));
            url.filter(is_shown).map(Part::ImageUrl)
        }
        Some("image") => {
            let source = block.get("source").unwrap_or(block);
            let media_type = text(source.get("media_type")).or_else(|| text(source.get("mimeType")));
            let data = text(source.get("data")).filter(is_shown);
            match (media_type.filter(is_shown), data) {
                (Some(media_type), Some(data)) => Some(Part::ImageData { media_type, data }),
                _ => text(source.get("url")).filter(is_shown).map(Part::ImageUrl),
            }
        }
        _ => None,
    };
    part.unwrap_or_else(|| match block {
        Value::String(text) => Part::Text(text.clone()),
        other => Part::Text(other.to_string()),
    })
}

#[cfg(test)]
mod tests {
    use flowgate::monitor::Attribution;
    use flowgate::policy::Policy;
    use flowgate::trace::TraceEntry;
    use serde_json::json;

    use super::*;

    /// A step that handed a call over is hidden from a screener that is not cleared for the verdict, since the step
    /// shows that the call was permitted. The verdict of a call has the label of what a rule can have read.
    #[test]
    fn a_screener_is_shown_a_handed_over_call_if_it_may_know_the_verdict() {
        let policy = "lattice integrity: trusted < untrusted\nlattice secrecy: public < private\n\
                      require top if:\n    (call: ToolCall) is tool:read\n";
        let reads_others = "raise \"listed\" if:\n    (list: ToolOutput) -> (call: ToolCall)\n    \
                            list is tool:list\n    call is tool:read\n";
        for (rule, is_shown) in [("", true), (reads_others, false)] {
            let mut monitor = Monitor::new(Arc::new(Policy::parse(&format!("{policy}{rule}")).unwrap()));
            let catalogue = Catalogue::new(&mut monitor, Vec::new()).unwrap();
            // What the rule has read is hidden from the step.
            monitor.record(TraceEntry::tool_call("l", Tool::local("list"), "{}"), &Attribution::everything());
            monitor.push(TraceEntry::tool_output("l", json!("x"))).unwrap();
            // The label of the step, for which the screener is cleared.
            let label = monitor.from_names(&json!({"integrity": "untrusted", "secrecy": "public"}));
            let call = ToolCall { id: "c".to_owned(), name: "read".to_owned(), arguments: "{}".to_owned() };
            let entry = TraceEntry::tool_call("c", Tool::local("read"), "{}");
            let event = monitor.record(entry, &Attribution::view("test", label, 0)).event.unwrap();
            let step = ModelStep {
                label,
                bound: label,
                names: HiddenRegions::default(),
                text: "I read it.".to_owned(),
                calls: vec![StepCall { call, answer: CallOutcome::HandedOver(event) }],
                thoughts: Vec::new(),
            };
            let builder = ViewBuilder {
                monitor: &monitor,
                catalogue: &catalogue,
                items: &[ConversationItem::Step(step)],
                sampling: &Sampling::default(),
                format: None,
                selected_tools: None,
                can_look: false,
                can_slot: false,
                tag: Some(("nonce", label)),
                floats_from: None,
            };
            let view = builder.build(Label::BOTTOM);
            let shown = format!("{:?}", &view.request.messages[..]);
            assert_eq!(shown.contains("I read it."), is_shown, "{rule}: {shown}");
            assert_eq!(view.names.len(), 1, "{rule}: {shown}");
        }
    }

    #[test]
    fn blocks_become_parts() {
        let check = |content: Value, expected: &str| {
            assert_eq!(format!("{:?}", to_parts(content.clone())), expected, "{content}");
        };
        check(json!("hello"), "[Text(\"hello\")]");
        check(json!({"a": 1}), "[Text(\"{\\\"a\\\":1}\")]");
        check(json!([1, 2]), "[Text(\"[1,2]\")]");
        check(json!([{"type": "text", "text": "a"}, "[hidden h1]"]), "[Text(\"a\"), Text(\"[hidden h1]\")]");
        check(
            json!([{"type": "image_url", "image_url": {"url": "https://x.org/a.png"}}]),
            "[ImageUrl(\"https://x.org/a.png\")]",
        );
        check(
            json!([{"type": "image", "mimeType": "image/png", "data": "AAAA"}]),
            "[ImageData { media_type: \"image/png\", data: \"AAAA\" }]",
        );
        check(
            json!([{"type": "image", "mimeType": "image/png", "data": "[hidden h1]"}]),
            "[Text(\"{\\\"type\\\":\\\"image\\\",\\\"mimeType\\\":\\\"image/png\\\",\\\"data\\\":\\\"[hidden h1]\\\"}\")]",
        );
    }
}
