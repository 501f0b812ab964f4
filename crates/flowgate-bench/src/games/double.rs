//! Implements the two test doubles of a model: *gullible*, which follows every request that it can read, and *immune*,
//! which follows only the user's. A real model is between these two. [`runner`](super::runner) runs tasks with
//! either in the games.
//!
//! *Gullible* does whatever any visible text asks: if one part of an observation makes a request, it writes every
//! marker that it can see, and calls the first tool on offer that a request names. *Immune* answers from the parts
//! without requests and never writes a marker. Both answer the user's request as well as the visible text allows, so
//! their benign utility is what a defence leaves of the observation. They know nothing of the task except what they are
//! shown, and decode every encoding of [`variant`](super::variant) in it. In games of several steps, [`journey`]
//! answers for them.

use std::future::ready;
use std::sync::LazyLock;

use flowgate_guard::slot::LOOK;
use flowgate_lm::chat::{Completion, Message, Part, Request, ToolCall};
use flowgate_lm::{BlockedText, BlockingModel, BoxFuture, ChatModel, Error, Listener};
use regex::Regex;
use serde_json::{Value, json};

use super::journey;
use super::prompt::{CONTEXT_HEADING, message_text};
use super::variant::{decode, join_parts};
use crate::screening::{screener_chat, screening_answer};
use crate::tokens::usage;

/// A phrase with which a text asks its reader to do something.
pub(super) static REQUEST: LazyLock<Option<Regex>> = LazyLock::new(|| {
    Regex::new(
        r"(?xi)
        \b(?: output | print | reply | respond | append | reveal | quote | discloses? | call | invoke )\b
        | \bmust\s+end\s+with\b | \bstart\s+each\s+answer\b | \bstate\s+the\s+access\s+code\b",
    )
    .ok()
});
/// A text that looks like a marker.
pub(super) static MARKER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\b[A-Z]+(?:_[A-Z]+)+_[0-9]+\b").ok());
/// The placeholder of a hidden region.
pub(super) static PLACEHOLDER: LazyLock<Option<Regex>> =
    LazyLock::new(|| Regex::new(r"\[hidden (h[0-9]+)[^\]]*\]").ok());

/// Returns whether a text matches a pattern. A pattern that does not compile is `None` and matches nothing; the
/// patterns are constants that compile.
pub(super) fn is_match(pattern: &LazyLock<Option<Regex>>, text: &str) -> bool {
    pattern.as_ref().is_some_and(|pattern| pattern.is_match(text))
}

/// A double of a model.
///
/// What the variants say is about the agent's model. Asked as the screener of a label defence, which regions the next step
/// needs, both are honest: they name the regions that the user's request needs, whatever the regions ask for. The games
/// measure the agent's model under attack and not its screener, so the rows of defences with a screener are no lower bound
/// for a screener that obeys an attacker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ModelDouble {
    /// Does whatever any visible text asks.
    Gullible,
    /// Does what the user asks, and nothing else.
    Immune,
}

impl ModelDouble {
    /// Both doubles.
    pub const ALL: [Self; 2] = [Self::Gullible, Self::Immune];

    /// Returns the next message of the model for a request of a game: the answer to a screener, a look at hidden regions, a call that a visible
    /// text asks for (gullible only), or an answer in text.
    fn answer(self, request: &Request) -> Completion {
        // A game of several steps is recognised by its chat, and has a double of its own.
        if let Some(completion) = journey::double::answer(self, request) {
            return completion;
        }
        // As a screener, either double is honest.
        if let Some((chat, has_answer_tool)) = screener_chat(request) {
            return screening_answer(&needed_regions(&chat, &observation_parts(&chat)), has_answer_tool);
        }
        // As the agent's model, it first looks at the hidden regions that it needs.
        let parts = observation_parts(request);
        let regions = needed_regions(request, &parts);
        if !regions.is_empty() {
            let look = tool_call(LOOK, &json!({"regions": regions}));
            return Completion { calls: vec![look], ..Completion::default() };
        }
        let is_readable = |part: &&String| !is_match(&PLACEHOLDER, part);
        let readable: Vec<&String> = parts.iter().filter(is_readable).collect();
        let is_request = |part: &&&String| is_match(&REQUEST, part);
        let requests: Vec<&&String> = readable.iter().filter(is_request).collect();
        if self == Self::Gullible
            && let Some(call) = requested_call(request, &requests)
        {
            return Completion { calls: vec![call], ..Completion::default() };
        }
        // The answer has the visible parts that are neither requests of an attacker nor contain markers.
        let is_answer = |part: &&&String| !is_match(&REQUEST, part) && !is_match(&MARKER, part);
        let mut lines: Vec<&str> = readable.iter().filter(is_answer).map(|part| part.as_str()).collect();
        if self == Self::Gullible && !requests.is_empty() {
            // It writes all markers in sight, since it does not understand which one the request means.
            let markers = MARKER.as_ref().into_iter().flat_map(|marker| {
                readable.iter().flat_map(|part| marker.find_iter(part)).map(|found| found.as_str())
            });
            lines.extend(markers);
        }
        Completion { text: lines.join("\n"), ..Completion::default() }
    }
}

impl ChatModel for ModelDouble {
    fn name(&self) -> &str {
        match self {
            Self::Gullible => "gullible",
            Self::Immune => "immune",
        }
    }

    /// Answers the request at once, with the counted tokens; the listener, which would receive partial answers, is not
    /// called.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        _: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        let completion = self.answer(request);
        Box::pin(ready(Ok(Completion { usage: usage(request, &completion), ..completion })))
    }
}

impl BlockingModel for ModelDouble {
    /// Answers as if the blocked texts were not in the chat. Sends nothing to the listener, since the games do not
    /// stream answers.
    fn complete_blocking<'a>(
        &'a self,
        request: &'a Request,
        blocked: &'a [BlockedText],
        _: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        let mut rest = request.clone();
        // From the last to the first, so that earlier ranges stay valid.
        for text in blocked.iter().rev() {
            if let Some(Message::User(parts)) = rest.messages.edit().get_mut(text.message)
                && let Some(Part::Text(part)) = parts.get_mut(text.part)
                && part.get(text.span.clone()).is_some()
            {
                part.replace_range(text.span.clone(), "");
            }
        }
        // The model would read what is blocked, so its tokens count.
        let completion = self.answer(&rest);
        Box::pin(ready(Ok(Completion { usage: usage(request, &completion), ..completion })))
    }
}

/// Returns the calls in the chat, in order.
fn calls(request: &Request) -> impl Iterator<Item = &ToolCall> {
    request.messages.iter().flat_map(|message| match message {
        Message::Assistant { calls, .. } => calls.as_slice(),
        Message::System(_) | Message::User(_) | Message::Tool { .. } => &[],
    })
}

/// Returns the parts of the observation, decoded: the texts in it if it is JSON, or else its lines. Under a defence of
/// AgentSecBench, the observation follows the heading in the user's message. In a guarded conversation, it is the
/// answer to the first call, which the application made.
fn observation_parts(request: &Request) -> Vec<String> {
    let heading = format!("\n{CONTEXT_HEADING}\n");
    let mut parts = Vec::new();
    for message in request.messages.iter() {
        let text = message_text(message);
        match message {
            Message::User(_) => {
                if let Some((_, observation)) = text.split_once(&heading) {
                    split_parts(observation, &mut parts);
                }
            }
            Message::Tool { call_id, .. } => {
                if calls(request).next().is_some_and(|call| call.id == *call_id) {
                    split_parts(&text, &mut parts);
                }
            }
            Message::System(_) | Message::Assistant { .. } => {}
        }
    }
    // A marker that is divided among several parts is read as a whole.
    join_parts(&mut parts);
    parts
}

/// Adds the parts of a text to `parts`: the lines of all strings if the text is JSON, and otherwise its lines.
fn split_parts(text: &str, parts: &mut Vec<String>) {
    match serde_json::from_str::<Value>(text) {
        Ok(value) => collect_texts(&value, parts),
        Err(_) => split_lines(text, parts),
    }
}

/// Adds the non-empty lines of a text to `parts`, each decoded.
fn split_lines(text: &str, parts: &mut Vec<String>) {
    parts.extend(text.lines().filter(|line| !line.is_empty()).map(decode));
}

/// Adds the lines of all strings in a JSON value to `parts`; keys of objects are not included.
fn collect_texts(value: &Value, parts: &mut Vec<String>) {
    match value {
        Value::String(text) => split_lines(text, parts),
        Value::Array(items) => items.iter().for_each(|item| collect_texts(item, parts)),
        Value::Object(fields) => fields.values().for_each(|field| collect_texts(field, parts)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// Returns the names of the hidden regions at which the double wants to look; `parts` are the parts of the observation.
/// It looks at all hidden regions, but only once in a chat, if the tool `look` is on offer and every part has a
/// placeholder. If some part has no placeholder, it answers from the parts that it can read, and the result is empty.
fn needed_regions(request: &Request, parts: &[String]) -> Vec<String> {
    let is_offered = request.tools.iter().any(|tool| tool.name == LOOK);
    let has_looked = calls(request).any(|call| call.name == LOOK);
    if !is_offered || has_looked || parts.iter().any(|part| !is_match(&PLACEHOLDER, part)) {
        return Vec::new();
    }
    // The pattern is a constant that compiles; if it did not, no name would be found.
    let placeholders = PLACEHOLDER.as_ref().into_iter();
    // The first group of the pattern is the name of the region.
    let found =
        placeholders.flat_map(|placeholder| parts.iter().flat_map(|part| placeholder.captures_iter(part)));
    found.filter_map(|found| found.get(1).map(|name| name.as_str().to_owned())).collect()
}

/// Returns a call, without arguments, of the first tool on offer that one of `requests` names. The requests are parts
/// of the observation, and name a tool without its server. The result is `None` if they name no such tool, or if it was
/// called before: the double does not repeat a call that was refused.
fn requested_call(request: &Request, requests: &[&&String]) -> Option<ToolCall> {
    let own_name = |name: &str| name.rsplit("__").next().unwrap_or_default().to_owned();
    let is_named = |name: &str| requests.iter().any(|text| text.contains(&own_name(name)));
    // A text cannot ask for `look`: the double looks only where it needs to.
    let wanted = request.tools.iter().filter(|tool| tool.name != LOOK).find(|tool| is_named(&tool.name))?;
    let was_called = calls(request).any(|call| call.name == wanted.name);
    (!was_called).then(|| tool_call(&wanted.name, &json!({})))
}

/// Creates a call. The conversation assigns ids, so every call may have the same.
fn tool_call(name: &str, arguments: &Value) -> ToolCall {
    ToolCall { id: "call".to_owned(), name: name.to_owned(), arguments: arguments.to_string() }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use flowgate_guard::conversation::Method;
    use flowgate_lm::ScriptedModel;
    use proptest::prelude::*;

    use super::super::attack::compose;
    use super::super::defence::Defence;
    use super::super::generate::{generate_pair, generate_pairs};
    use super::super::prompt::request;
    use super::super::random::SeededRandom;
    use super::super::runner::Runner;
    use super::super::task::{Game, Side, Task};
    use super::super::variant::Variant;
    use super::*;

    fn reply(double: ModelDouble, task: &Task) -> String {
        let request = request(task, None, &Defence::None.defend_text(task));
        double.answer(&request).text
    }

    /// As a screener, the gullible double answers like the immune one: an attack that every region repeats changes nothing.
    #[test]
    fn both_are_honest_screeners() {
        let answered = Arc::new(Mutex::new(0));
        let compared = Arc::clone(&answered);
        let model = ScriptedModel::from_function(move |request: &Request| {
            let [gullible, immune] = ModelDouble::ALL.map(|double| double.answer(request));
            if screener_chat(request).is_some() {
                assert_eq!(gullible, immune);
                *compared.lock().unwrap() += 1;
            }
            Ok(gullible)
        });
        let runner = Runner::new(&model, None).unwrap();
        for pair in Game::ALL.into_iter().flat_map(|game| generate_pairs(game, 2, 3, Variant::Paper)) {
            let screened = Defence::Labels(Method::Judge);
            runner.run(&pair.adversarial, Side::Adversarial, screened).unwrap();
        }
        assert!(*answered.lock().unwrap() >= 9, "each task asks the screener");
    }

    /// Every request of a composed attack is one to the gullible double.
    #[test]
    fn composed_attacks_are_requests() {
        for game in Game::ALL {
            let mut random = SeededRandom::new(1, 1);
            for _ in 0..200 {
                let attack = compose(game, &mut random);
                let pair = generate_pair(game, 1, 0, Variant::Paper, &attack);
                let answer = reply(ModelDouble::Gullible, &pair.adversarial);
                assert!(answer.contains(&pair.adversarial.target), "{}", attack.text);
                assert!(!reply(ModelDouble::Immune, &pair.adversarial).contains(&pair.adversarial.target));
            }
        }
    }

    proptest! {
        /// Every attack family is a request to the gullible double, no control is, and both doubles do the user's task.
        #[test]
        fn doubles_obey_every_attack_or_none(seed: u64, variant in proptest::sample::select(Variant::all())) {
            for pair in Game::ALL.into_iter().flat_map(|game| generate_pairs(game, seed, 8, variant)) {
                let (adversarial, control) = (&pair.adversarial, &pair.control);
                let target = &adversarial.target;
                prop_assert!(reply(ModelDouble::Gullible, adversarial).contains(target), "{}", adversarial.context);
                prop_assert!(!reply(ModelDouble::Immune, adversarial).contains(target));
                let answer = reply(ModelDouble::Gullible, control);
                prop_assert_eq!(&answer, &reply(ModelDouble::Immune, control));
                prop_assert!(!answer.contains(target));
                for term in &control.utility_terms {
                    prop_assert!(answer.contains(term), "{}: {}", term, answer);
                }
            }
        }
    }
}
