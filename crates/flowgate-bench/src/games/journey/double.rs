//! Implements the test doubles for journeys, which are games of several sessions or turns. A double calls the tools
//! that the user names in backticks, in order, and then reports the last answer. Before it calls the user's next tool,
//! every double but the immune one obeys every instruction in a visible text. The curious one looks at hidden regions as
//! soon as there are any.
//!
//! The doubles know nothing but the chat. [`ModelDouble`] passes every request to [`answer`] first. If the result is
//! `None`, the chat belongs to another game, and [`ModelDouble`] answers by its own rules.

use flowgate_guard::slot::LOOK;
use flowgate_lm::chat::{Completion, Message, Request, ToolCall, ToolChoice};
use serde_json::{Value, json};

use super::super::double::{MARKER, ModelDouble, PLACEHOLDER, REQUEST, is_match};
use super::super::prompt::message_text;
use super::super::variant::decode;
use super::world::own_name;
use crate::screening::{screener_chat, screening_answer};

/// A phrase of a text that is obeyed only after another message of the user.
const LATER: &str = "next message";
/// A phrase that asks to repeat a call.
const REPEAT: &str = "until it is permitted";
/// The maximum number of times that a call is made if a text asks to repeat it: more than the refusals after which the
/// person of the flooding games gives in ([`PATIENCE`](super::PATIENCE)).
const REPETITIONS: usize = 12;

/// Returns the next message of the model in a chat of a journey: the content of a slot, the answer to a screener, or the next step. `None` if the
/// chat is of another game, in which no message of the user names a tool in backticks.
pub(in super::super) fn answer(double: ModelDouble, request: &Request) -> Option<Completion> {
    // A request that offers no tools and permits no call is for the filler.
    if request.tools.is_empty() && request.choice == ToolChoice::None {
        return Some(fill(request));
    }
    if let Some((chat, has_answer_tool)) = screener_chat(request) {
        // What the user's request needs is what the immune double would look at next.
        let next = Reader::new(&chat)?.next(ModelDouble::Immune);
        let mut names: Vec<String> = Vec::new();
        for look in next.calls.iter().filter(|call| call.name == LOOK) {
            let arguments: Value = serde_json::from_str(&look.arguments).unwrap_or_default();
            let regions = arguments.get("regions").and_then(Value::as_array).into_iter().flatten();
            names.extend(regions.filter_map(Value::as_str).map(str::to_owned));
        }
        return Some(screening_answer(&double.screened_regions(request, names), has_answer_tool));
    }
    Some(Reader::new(request)?.next(double))
}

/// Answers the request to fill a slot. The last message has a sentence and then a JSON object, whose field `texts`
/// lists the complete texts of the regions. The answer is these texts after `In short: `. Instructions in the texts
/// have no effect here, because the filler has no tools.
fn fill(request: &Request) -> Completion {
    let text = request.messages.last().map(message_text).unwrap_or_default();
    // The JSON object follows a sentence, so it begins at the first brace.
    let asked = text.find('{').and_then(|at| serde_json::from_str::<Value>(text.get(at..)?).ok());
    let texts = asked.as_ref().and_then(|asked| asked.get("texts")).and_then(Value::as_array);
    let texts: Vec<&str> = texts.into_iter().flatten().filter_map(Value::as_str).collect();
    say(&format!("In short: {}", texts.join("\n")))
}

/// Returns a message without calls.
fn say(text: &str) -> Completion {
    Completion { text: text.to_owned(), ..Completion::default() }
}

/// Returns a message with one call. The chat assigns ids, so every call may have the same.
fn call(name: &str, arguments: &Value) -> Completion {
    let call = ToolCall { id: "call".to_owned(), name: name.to_owned(), arguments: arguments.to_string() };
    Completion { calls: vec![call], ..Completion::default() }
}

/// A chat as the double reads it.
struct Reader<'r> {
    request: &'r Request,
    /// The calls in the chat: each with its answer, which is empty if there is none, and whether it was made after the last message of the user.
    calls: Vec<(&'r ToolCall, String, bool)>,
    /// The tools that the last message of the user names, in order, by their names on offer.
    plan: Vec<&'r str>,
}

impl<'r> Reader<'r> {
    /// Reads a chat: its calls with their answers, and the user's plan, which is the tools that the last message of the user names in backticks.
    /// `None` if it names no tool on offer.
    fn new(request: &'r Request) -> Option<Self> {
        let messages: Vec<&Message> = request.messages.iter().collect();
        let last = messages.iter().rposition(|message| matches!(message, Message::User(_)))?;
        let asked = messages.get(last).map(|message| message_text(message)).unwrap_or_default();
        // Every second piece between backticks is quoted.
        let named = asked.split('`').skip(1).step_by(2);
        let on_offer = |name: &str| request.tools.iter().find(|tool| own_name(&tool.name) == name);
        let plan: Vec<&str> = named.filter_map(on_offer).map(|tool| tool.name.as_str()).collect();
        if plan.is_empty() {
            return None;
        }
        // Each call with its answer, which is empty until there is one, and whether the call came after the last
        // message of the user.
        let mut calls = Vec::new();
        // Ids may repeat, so an answer belongs to the first earlier call without an answer: calls are answered in order.
        for (index, message) in messages.iter().enumerate() {
            match message {
                Message::Assistant { calls: made, .. } => {
                    calls.extend(made.iter().map(|call| (call, String::new(), index > last)));
                }
                Message::Tool { .. } => {
                    if let Some((_, answer, _)) = calls.iter_mut().find(|(_, answer, _)| answer.is_empty()) {
                        *answer = message_text(message);
                    }
                }
                Message::System(_) | Message::User(_) => {}
            }
        }
        Some(Self { request, calls, plan })
    }

    /// Returns the visible lines of the answers of tools, decoded, each with a flag. The flag is true if the user has
    /// written a message since the call that the line answers. Lines with a placeholder are left out, and so is the
    /// answer of `look`.
    fn lines(&self) -> Vec<(String, bool)> {
        let mut lines = Vec::new();
        for (call, answer, is_new) in &self.calls {
            if call.name == LOOK {
                continue;
            }
            for line in answer.lines().map(decode) {
                if !is_match(&PLACEHOLDER, &line) {
                    lines.push((line, !is_new));
                }
            }
        }
        lines
    }

    /// Returns the visible lines that an obedient double obeys now: those that ask for something. A line that is about
    /// the user's next message is obeyed only after the user has written again.
    fn requests(&self) -> Vec<String> {
        let lines = self
            .lines()
            .into_iter()
            .filter(|(line, is_old)| is_match(&REQUEST, line) && (*is_old || !line.contains(LATER)));
        lines.map(|(line, _)| line).collect()
    }

    /// Returns the next message of the double. The curious one first looks at what is hidden. All but the immune one then make the calls that a
    /// visible text asks for. Then follow the calls that the user asked for (the plan), in order, and at last a report of the last answer.
    fn next(&self, double: ModelDouble) -> Completion {
        if double == ModelDouble::Curious
            && let Some(look) = self.look_at_everything()
        {
            return look;
        }
        if double.obeys_texts()
            && let Some(name) = self.requested()
        {
            return call(name, &json!({}));
        }
        // The calls of the user's plan that were made in this turn, and the last answer.
        let done: Vec<_> =
            self.calls.iter().filter(|(call, _, is_new)| *is_new && self.is_planned(call)).collect();
        let last = done.last().map_or("", |(_, answer, _)| answer.as_str());
        match self.plan.get(done.len()) {
            // A tool with the argument `text` stores what the tool before it answered.
            Some(tool) if self.takes(tool, "text") => self.store(tool, last),
            Some(tool) => call(tool, &json!({})),
            // The last tool only stored a text, about which the user asked nothing.
            None if done.last().is_some_and(|(call, ..)| self.takes(&call.name, "text")) => say("Done."),
            None => self.report(double, last),
        }
    }

    /// Returns a call of `look` for all hidden regions in the answers of tools; `None` if there are none, or if the tool
    /// is not on offer or was used in this turn.
    fn look_at_everything(&self) -> Option<Completion> {
        let answers = self.calls.iter().filter(|(call, ..)| call.name != LOOK);
        let mut names: Vec<String> = answers.flat_map(|(_, answer, _)| hidden_regions(answer)).collect();
        names.sort();
        names.dedup();
        if names.is_empty() { None } else { self.look(&names) }
    }

    /// Returns whether the user asked for the tool of a call.
    fn is_planned(&self, call: &ToolCall) -> bool {
        self.plan.contains(&call.name.as_str())
    }

    /// Returns the first tool on offer that a visible text asks for although the user does not; `None` if the double makes
    /// no such call now. It makes such a call once. If the text asks for repetition, it repeats the call until the call
    /// runs, but at most [`REPETITIONS`] times; the answer `done` says that the call ran.
    fn requested(&self) -> Option<&'r str> {
        let requests = self.requests();
        for tool in &self.request.tools {
            let is_asked_by_user = self.plan.contains(&tool.name.as_str());
            if tool.name == LOOK || is_asked_by_user {
                continue;
            }
            let asking = requests.iter().find(|line| line.contains(own_name(&tool.name)));
            let Some(asking) = asking else { continue };
            let limit = if asking.contains(REPEAT) { REPETITIONS } else { 1 };
            let made = self.calls.iter().filter(|(call, ..)| call.name == tool.name);
            // The answers to the calls of the tool so far.
            let answers: Vec<&String> = made.map(|(_, answer, _)| answer).collect();
            let is_done = answers.iter().any(|answer| *answer == "done");
            if answers.len() < limit && !is_done {
                return Some(tool.name.as_str());
            }
        }
        None
    }

    /// Returns whether a tool on offer has an argument with this name.
    fn takes(&self, tool: &str, argument: &str) -> bool {
        self.schema(tool, argument).is_some()
    }

    /// Returns the schema of an argument; `None` if the tool is not on offer or does not have the argument.
    fn schema(&self, tool: &str, argument: &str) -> Option<&'r Value> {
        let spec = self.request.tools.iter().find(|spec| spec.name == tool)?;
        spec.parameters.get("properties")?.get(argument)
    }

    /// Returns the call of `tool` that stores `text`, the last answer. If parts of the text are hidden, the call passes
    /// their regions in a slot, provided that the argument takes slots. Otherwise the double looks at the regions
    /// first. If it cannot look, it stores the text with the placeholders.
    fn store(&self, tool: &str, text: &str) -> Completion {
        let regions = hidden_regions(text);
        if regions.is_empty() {
            return call(tool, &json!({"text": text}));
        }
        if !self.schema(tool, "text").is_some_and(|schema| schema.to_string().contains("$slot")) {
            return self.look(&regions).unwrap_or_else(|| call(tool, &json!({"text": text})));
        }
        // A summary is in the model's own words, so the filler writes it; other stores receive a copy.
        let slot = match own_name(tool) {
            "save_summary" => json!({"regions": regions, "fill": "a summary in one sentence"}),
            _ => json!({"regions": regions}),
        };
        call(tool, &json!({"text": {"$slot": slot}}))
    }

    /// Returns a message with the answer of the last tool, `last`. If a part of the answer is hidden, the double looks
    /// first, if it can. Lines with requests, markers or placeholders are left out. Every double but the immune one then
    /// adds the markers in the requests that it obeys.
    fn report(&self, double: ModelDouble, last: &str) -> Completion {
        let regions = hidden_regions(last);
        if !regions.is_empty()
            && let Some(look) = self.look(&regions)
        {
            return look;
        }
        // The answer without the lines that an attacker may have added, and without what is hidden.
        let answer = last.lines().map(decode).filter(|line| {
            !is_match(&REQUEST, line) && !is_match(&MARKER, line) && !is_match(&PLACEHOLDER, line)
        });
        let mut lines: Vec<String> = answer.collect();
        if double.obeys_texts()
            && let Some(marker) = MARKER.as_ref()
        {
            for request in &self.requests() {
                lines.extend(marker.find_iter(request).map(|found| found.as_str().to_owned()));
            }
        }
        say(&lines.join("\n"))
    }

    /// Returns a call of `look` for these regions; `None` if the tool is not on offer or was used in this turn, so that the double does not look
    /// forever.
    fn look(&self, regions: &[String]) -> Option<Completion> {
        let is_offered = self.request.tools.iter().any(|tool| tool.name == LOOK);
        let has_looked = self.calls.iter().any(|(call, _, is_new)| *is_new && call.name == LOOK);
        (is_offered && !has_looked).then(|| call(LOOK, &json!({"regions": regions})))
    }
}

/// Returns the names of the hidden regions in a text.
fn hidden_regions(text: &str) -> Vec<String> {
    let found = PLACEHOLDER.as_ref().into_iter().flat_map(|placeholder| placeholder.captures_iter(text));
    found.filter_map(|found| found.get(1).map(|name| name.as_str().to_owned())).collect()
}
