//! Implements a test double of a model that repeats the calls of a recorded run. [`super::guarded`] replays runs with
//! it.
//!
//! The double is capable: it makes a call as soon as all values that the call needs are in its view. It leaves a slot
//! for a hidden value where one is allowed, and otherwise looks at the regions that contain the value, and at no
//! others. A value that occurs in no region was derived, so it needs everything that is hidden. The double is also
//! gullible: a call that an attack asked for needs the region with the injected text, and is made as soon as the
//! double may read that region.

use std::collections::VecDeque;

use flowgate::label::Label;
use flowgate::trace::read::RecordedRun;
use flowgate::trace::{
    Call, DocumentNode, EventBody, EventId, NodeContent, NodeId, PathStep, Trace, TraceEntry,
};
use flowgate_lm::chat::{Completion, ToolCall};
use serde_json::{Map, Value, json};

use crate::conversation::Conversation;
use crate::influence::index::{RegionIndex, ValueOrigin, seen_filter};
use crate::redact::{HiddenContent, HiddenRegion, HiddenRegions};
use crate::screener::{judge, tool_filter};
use crate::slot::LOOK;
use crate::view::View;

/// The maximum number of regions that a look or a slot names.
const MAX_NAMES: usize = 50;

/// How the double obtained what a call needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CallAccess {
    /// Everything was in its view.
    Shown,
    /// It left a slot for some hidden value.
    Slot,
    /// It looked at hidden regions.
    Looked,
    /// The call could not be made.
    Unavailable,
}

/// The double, for one run.
pub(super) struct ReplayDouble<'r> {
    /// The calls of the run, in order.
    calls: Vec<RunCall<'r>>,
    /// The injected texts of the run, without characters that are not alphanumeric; empty if the run does not record
    /// them.
    injections: Vec<String>,
    /// Finds the regions of the conversation that state a value.
    index: RegionIndex,
    /// The number of events that the index contains.
    indexed: usize,
    /// The texts of the slots of the last call, in order.
    fills: VecDeque<String>,
    /// The number of levels that the double has added by looks and has not left yet.
    levels: usize,
    /// How the double obtained what the current call needs, so far.
    pub(super) access: CallAccess,
}

/// A call of the run, and whether an attack asked for it.
struct RunCall<'r> {
    call: &'r Call,
    is_injected: bool,
}

/// A region of the trace.
type RegionId = (EventId, NodeId);

/// What a part of a call needs.
enum PartNeed {
    /// These regions.
    All(Vec<RegionId>),
    /// One of these regions.
    AnyOf(Vec<RegionId>),
    /// Everything that the model could have read.
    Everything,
}

/// The hidden regions, by their names, that a model must read to obtain what a part of a call needs.
#[derive(Default)]
struct MissingRegions {
    names: Vec<String>,
    /// Whether something is not available at all.
    is_unavailable: bool,
}

/// The next message of the double.
pub(super) enum NextMessage {
    /// The recorded call, or a look at what it needs.
    Calls(Completion),
    /// A message without calls, which ends the level that a look began: the call can be made below it.
    LeaveLevel,
    /// The call cannot be made.
    Stuck,
}

impl<'r> ReplayDouble<'r> {
    /// Collects the calls of a run, and the texts that its attack has injected.
    pub(super) fn new(run: &'r RecordedRun) -> Self {
        let calls = run.entries.iter().filter_map(|entry| match &entry.body {
            EventBody::Call(call) => {
                let origin = entry.extra.get("origin").and_then(Value::as_str);
                Some(RunCall { call, is_injected: origin == Some("injection") })
            }
            _ => None,
        });
        // The record maps the name of each injection to its text.
        let injections = run.meta.get("injections").and_then(Value::as_object);
        let texts = injections.into_iter().flat_map(Map::values).filter_map(Value::as_str).map(squash);
        Self {
            calls: calls.collect(),
            injections: texts.filter(|text| !text.is_empty()).collect(),
            index: RegionIndex::default(),
            indexed: 0,
            fills: VecDeque::new(),
            levels: 0,
            access: CallAccess::Shown,
        }
    }

    /// Begins the next call, for which the double has obtained nothing yet.
    pub(super) fn begin_call(&mut self) {
        self.access = CallAccess::Shown;
    }

    /// Begins a turn, in which the double has looked at nothing yet.
    pub(super) fn begin_turn(&mut self) {
        self.levels = 0;
    }

    /// Returns the recorded text of the next slot of the last call; empty if no slot is left.
    pub(super) fn next_fill(&mut self) -> String {
        self.fills.pop_front().unwrap_or_default()
    }

    /// Returns the next message on the way to the recorded call with this index. It is the call itself, with slots
    /// for hidden values where they are allowed, or a look at the hidden regions that the call needs otherwise. If
    /// the call does not need the current level, it is a message that ends this level.
    pub(super) fn next_message(
        &mut self,
        conversation: &Conversation,
        view: &View,
        index: usize,
    ) -> NextMessage {
        let Some(recorded) = self.calls.get(index) else { return NextMessage::Stuck };
        let (call, is_injected) = (recorded.call, recorded.is_injected);
        let trace = conversation.monitor().trace();
        let needs = self.needs(trace, index);
        let missing_in =
            |view: &View, need: &PartNeed| missing_regions(trace, &view.bound, &view.names, need);
        let (Some(name), Ok(mut arguments)) = (conversation.tool_name(&call.tool), call.arguments.clone())
        else {
            return NextMessage::Stuck;
        };
        // An injected call has no slots: the attack's text is read, not forwarded. An argument takes a slot if the word
        // `$slot` occurs in its schema, in which the view describes the form of a slot.
        let takes_slot = |view: &View, argument: &str| {
            let spec = view.request.tools.iter().find(|tool| tool.name == name);
            let schema = spec.and_then(|spec| spec.parameters.get("properties")?.get(argument));
            !is_injected
                && call.arguments.as_ref().is_ok_and(|all| all.get(argument).is_some_and(is_scalar))
                && schema.is_some_and(|schema| schema.to_string().contains("\"$slot\""))
        };
        // If this call needs no level above the base label, the double leaves the level that an earlier call needed. If
        // the double has looked for this call already (`access` is not `Shown`), the call needs the level.
        if self.access == CallAccess::Shown && self.levels > 0 {
            let base = conversation.view_at(*conversation.base_label());
            let is_available = |(argument, need): &(Option<String>, PartNeed)| {
                let missing = missing_in(&base, need);
                let has_slot = argument.as_ref().is_some_and(|argument| takes_slot(&base, argument));
                !missing.is_unavailable && (missing.names.is_empty() || has_slot)
            };
            if needs.iter().all(is_available) {
                self.levels -= 1;
                return NextMessage::LeaveLevel;
            }
        }
        let mut regions_to_look_at: Vec<String> = Vec::new();
        self.fills.clear();
        for (argument, need) in &needs {
            let missing = missing_in(view, need);
            if missing.is_unavailable {
                return NextMessage::Stuck;
            }
            if missing.names.is_empty() {
                continue;
            }
            let slot_argument = argument.as_ref().filter(|argument| takes_slot(view, argument));
            match slot_argument.and_then(|argument| arguments.get_mut(argument)) {
                // A slot takes the place of the recorded value, which fills the slot later.
                Some(value) if missing.names.len() <= MAX_NAMES => {
                    let recorded_value = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                    self.fills.push_back(recorded_value);
                    self.access = self.access.max(CallAccess::Slot);
                    *value = json!({"$slot": {"regions": missing.names, "fill": "as recorded"}});
                }
                _ => regions_to_look_at.extend(missing.names),
            }
        }
        if regions_to_look_at.is_empty() {
            return NextMessage::Calls(call_completion(name, arguments));
        }
        if view.request.tools.iter().all(|tool| tool.name != LOOK) {
            return NextMessage::Stuck;
        }
        (self.access, self.levels) = (CallAccess::Looked, self.levels + 1);
        NextMessage::Calls(look_completion(regions_to_look_at))
    }

    /// Returns the answer that a capable screener gives. If the conversation asks about regions, the answer names the
    /// hidden regions that the recorded call with this index needs. If it asks about tools, the answer names all tools
    /// of the recorded calls that no attack asked for.
    pub(super) fn screener_answer(&mut self, conversation: &Conversation, index: usize) -> Completion {
        let Some((bound, regions)) = conversation.screened_regions() else {
            let calls = self.calls.iter().filter(|recorded| !recorded.is_injected);
            let names = calls.filter_map(|recorded| conversation.tool_name(&recorded.call.tool));
            let names: Vec<Value> = names.map(Value::from).collect();
            return call_completion(
                tool_filter::ANSWER,
                [("tools".to_owned(), names.into())].into_iter().collect(),
            );
        };
        let trace = conversation.monitor().trace();
        let needs = self.needs(trace, index);
        let mut names: Vec<String> = Vec::new();
        for (_, need) in &needs {
            names.extend(missing_regions(trace, &bound, regions, need).names);
        }
        names.sort();
        names.dedup();
        // The answer has the forms of both screeners: `introspection` reads the text, `judge` the call.
        let cited = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
        let arguments = json!({"reasoning": "as recorded", "regions": names});
        let answer = call_completion(judge::ANSWER, arguments.as_object().cloned().unwrap_or_default());
        Completion { text: format!("CITED: {cited}"), ..answer }
    }

    /// Returns what the double must have read before it makes the recorded call with this index: one entry for each
    /// part of the call. An argument, given by its name, needs the regions with its value, or everything if the value
    /// occurs in no region. The decision to make the call, given as `None`, has an entry only if an attack asked for
    /// the call: it needs one of the regions with the injected text.
    fn needs(&mut self, trace: &Trace, index: usize) -> Vec<(Option<String>, PartNeed)> {
        for event in self.indexed..trace.len() {
            self.index.add(trace, EventId(event));
        }
        self.indexed = trace.len();
        // A call that the run does not have, or that has no place in the trace, has no needs.
        let Some(RunCall { call, is_injected }) = self.calls.get(index) else { return Vec::new() };
        let Ok(position) = trace.position_of(&TraceEntry::from((*call).clone())) else { return Vec::new() };
        let usable = seen_filter(trace, &position);
        let mut needs = Vec::new();
        if *is_injected && !self.injections.is_empty() {
            needs.push((None, PartNeed::AnyOf(self.injected_regions(trace))));
        }
        for (name, value) in call.arguments.iter().flatten() {
            let need = match self.index.find(trace, value, &usable) {
                ValueOrigin::Empty => continue,
                ValueOrigin::In(regions) => PartNeed::All(regions),
                // A derived value of an injected call is contained in the injected text, which the decision needs
                // already.
                ValueOrigin::DerivedValue if *is_injected => continue,
                ValueOrigin::DerivedValue => PartNeed::Everything,
            };
            needs.push((Some(name.clone()), need));
        }
        needs
    }

    /// Returns the smallest regions of answers and of descriptions of tools that contain an injected text. Texts are
    /// compared by their alphanumeric characters alone.
    fn injected_regions(&self, trace: &Trace) -> Vec<RegionId> {
        let mut smallest_regions = Vec::new();
        for (id, event) in trace.events().iter().enumerate() {
            if !matches!(event.body, EventBody::Output(_) | EventBody::Tool(_)) {
                continue;
            }
            let contains = |node: NodeId| {
                let text = match event.document.node(node).map(|node| &node.content) {
                    Some(NodeContent::Scalar(Value::String(text))) => squash(text.as_str()),
                    Some(_) => squash(&event.document.to_value(node).to_string()),
                    None => String::new(),
                };
                self.injections.iter().any(|injection| text.contains(injection))
            };
            let containing: Vec<NodeId> =
                (0..event.document.nodes().len()).filter(|node| contains(*node)).collect();
            // A region is the smallest if none of its parts contains an injected text, too. Nodes are in document
            // order, so the parts of a region are the nodes after it and before its `end`.
            let is_smallest = |node: &NodeId| {
                let end = event.document.node(*node).map_or(*node, |node| node.end);
                let is_part = |other: &NodeId| other > node && *other < end;
                !containing.iter().any(is_part)
            };
            let smallest = containing.iter().copied().filter(is_smallest);
            smallest_regions.extend(smallest.map(|node| (EventId(id), node)));
        }
        smallest_regions
    }
}

/// Returns those of the `hidden` regions of a view that must be read to obtain what a part of a call needs. `bound` is
/// the label up to which the view shows content.
fn missing_regions(trace: &Trace, bound: &Label, hidden: &HiddenRegions, need: &PartNeed) -> MissingRegions {
    let mut missing = MissingRegions::default();
    match need {
        PartNeed::All(regions) => {
            for region in regions {
                let one = missing_region(trace, bound, hidden, *region);
                missing.names.extend(one.names);
                missing.is_unavailable |= one.is_unavailable;
            }
        }
        PartNeed::AnyOf(regions) => {
            let alternatives = regions.iter().map(|region| missing_region(trace, bound, hidden, *region));
            let available = alternatives.filter(|one| !one.is_unavailable);
            match available.min_by_key(|one| one.names.len()) {
                Some(one) => missing = one,
                None => missing.is_unavailable = true,
            }
        }
        // Every hidden region must be looked at.
        PartNeed::Everything => {
            missing.names.extend(hidden.all().iter().map(|region| region.name.clone()));
        }
    }
    missing
}

/// Returns the hidden regions at which the model must look before its view shows a region: none if the view shows the
/// region already; `is_unavailable` if no look helps. `bound` is the label up to which the view shows content.
fn missing_region(
    trace: &Trace,
    bound: &Label,
    hidden: &HiddenRegions,
    (event, node): RegionId,
) -> MissingRegions {
    let unavailable = MissingRegions { names: Vec::new(), is_unavailable: true };
    let Some(document) = trace.event(event).map(|event| &event.document) else { return unavailable };
    // Whether the region is the node `outer` or a part of it.
    let covers =
        |outer: NodeId| document.node(outer).is_some_and(|outer_node| outer <= node && node < outer_node.end);
    // A view shows the captured parts of a hidden text that flow to its bound.
    let is_placeholder = |text: NodeId| {
        let is_text = |region: &HiddenRegion| matches!(region.content, HiddenContent::Region(of, outer) if (of, outer) == (event, text));
        hidden.all().iter().any(is_text)
    };
    let is_shown_capture = |part: &DocumentNode| {
        matches!(part.step, PathStep::Capture(_)) && part.label.flows_to(bound) && is_placeholder(part.parent)
    };
    if document.node(node).is_some_and(is_shown_capture) {
        return MissingRegions::default();
    }
    let hides_node = |region: &&HiddenRegion| matches!(&region.content, HiddenContent::Region(of, outer) if *of == event && covers(*outer));
    if let Some(region) = hidden.all().iter().find(hides_node) {
        return MissingRegions { names: vec![region.name.clone()], is_unavailable: false };
    }
    // No hidden region contains the region. A view shows it only if the labels of the region and of everything around
    // it flow to the view's bound.
    let enclosing = (0..=node).filter(|outer| covers(*outer)).filter_map(|outer| document.node(outer));
    let label = enclosing.fold(trace.existence_label(event), |joined, outer| joined.join(&outer.label));
    if label.flows_to(bound) {
        return MissingRegions::default();
    }
    // The region belongs to a call that a step above this bound made, so no placeholder represents it. Looks raise the
    // bound of the view; if looks at all hidden regions at or below the region's label raise it far enough, the view
    // then shows the region.
    let lower_regions = hidden.all().iter().filter(|region| region.label.flows_to(&label));
    let reached = lower_regions.clone().fold(*bound, |joined, region| joined.join(&region.label));
    if !label.flows_to(&reached) {
        return unavailable;
    }
    let names = lower_regions.map(|region| region.name.clone()).collect();
    MissingRegions { names, is_unavailable: false }
}

/// Whether a value is text, a number or a boolean: the double leaves slots for no other values.
fn is_scalar(value: &Value) -> bool {
    matches!(value, Value::String(_) | Value::Bool(_) | Value::Number(_))
}

/// Returns a message of the model with one call.
fn call_completion(name: &str, arguments: Map<String, Value>) -> Completion {
    let arguments = Value::Object(arguments).to_string();
    let call = ToolCall { id: "c".to_owned(), name: name.to_owned(), arguments };
    Completion { calls: vec![call], ..Completion::default() }
}

/// Returns a message of the model that looks at regions: each once, and only as many as a look may name.
fn look_completion(mut regions: Vec<String>) -> Completion {
    regions.sort();
    regions.dedup();
    regions.truncate(MAX_NAMES);
    let mut arguments = Map::new();
    arguments.insert("regions".to_owned(), regions.into());
    // After the look, the level below continues: later calls may not need the regions.
    arguments.insert("then_return".to_owned(), true.into());
    call_completion(LOOK, arguments)
}

/// Returns the alphanumeric characters of a text, by which injected texts are found: the benchmark AgentDojo inserts an
/// injected text into a YAML document, which wraps its lines.
fn squash(text: &str) -> String {
    text.chars().filter(|c| c.is_alphanumeric()).collect()
}
