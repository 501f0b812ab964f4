//! Generates the differences between the runs: changes an answer where the observer may not see it.

use flowgate::label::Label;
use flowgate::trace::{Document, EventBody, NodeContent, NodeId, Output, PathStep};
use flowgate_guard::conversation::ToolAnswer;
use serde_json::Value;

use crate::form_focus;
use crate::random::Random;
use crate::world::{self, AnswerSpelling, FormedText};

/// An answer of the first run, and the observer.
pub(crate) struct FirstAnswer<'a> {
    pub(crate) output: &'a Output,
    pub(crate) document: &'a Document,
    pub(crate) spelling: AnswerSpelling,
    pub(crate) observer: &'a Label,
    /// For each part, whether it flows to the observer according to the oracle.
    pub(crate) flows: &'a [bool],
    /// The echo of the tool: its arguments and the content of its stores.
    pub(crate) echo: Option<&'a str>,
    /// Whether the policy mentions errors, so that the labels of an answer depend on whether it is an error.
    pub(crate) speaks_of_errors: bool,
    /// Whether answers have more of the values that the model writes.
    pub(crate) has_values: bool,
}

/// Generates an answer, and its format. With `has_values`, it has more of the values that the model writes.
pub(crate) fn fresh(
    random: &mut Random,
    errors: usize,
    echo: Option<&str>,
    has_values: bool,
) -> (ToolAnswer, AnswerSpelling) {
    let (mut value, mut spelling) = (world::answer(random), world::spelling(random));
    if has_values {
        form_focus::add_to_answer(&mut value);
    }
    if let (Some(map), Some(echo)) = (value.as_object_mut(), echo) {
        map.insert("e".to_owned(), Value::from(echo));
    }
    if value.is_array() {
        // Content blocks are not text.
        spelling = AnswerSpelling::Value;
    }
    let content = world::spell(&value, spelling);
    let structured = match random.below(10) {
        0..=5 => None,
        6..=8 => Some(read(&content)),
        _ => Some(world::anything(random, 2)),
    };
    let is_error = random.chance(errors);
    (ToolAnswer { content, structured, is_error, carries: None }, spelling)
}

fn taken_apart(content: &Value, structured: Option<&Value>) -> Document {
    let (call_id, tool, structured) = (String::new(), None, structured.cloned());
    let output = Output { call_id, tool, content: content.clone(), structured, is_error: Some(false) };
    Document::new(&EventBody::Output(output), Label::BOTTOM)
}

/// Parses a text as the monitor does.
fn read(content: &Value) -> Value {
    let document = taken_apart(content, None);
    document.key(0, "content").map_or(Value::Null, |content| document.to_value(content))
}

impl FirstAnswer<'_> {
    /// Returns the answer with everything replaced that the observer may not see, and adds the number of
    /// replaced parts to `count`.
    pub(crate) fn changed(&self, random: &mut Random, count: &mut usize) -> (ToolAnswer, AnswerSpelling) {
        let Self { output, document, .. } = self;
        let content = document.key(0, "content").expect("an answer has content");
        if !self.shows(0) || !self.shows(content) {
            *count += 1;
            return self.replaced(content, random, count);
        }
        let before = *count;
        let value = self.part(content, random, count);
        let is_by_chance = output.content.is_string() && matches!(self.spelling, AnswerSpelling::Value);
        // An unchanged answer keeps its format; a text with a different structured form is kept together with
        // that form.
        let is_said_twice = document.twins_differ && output.content.is_string();
        let text = if *count == before || is_by_chance || is_said_twice {
            output.content.clone()
        } else {
            world::spell(&value, self.spelling)
        };
        let structured = match &output.structured {
            Some(twin) if is_said_twice => Some(twin.clone()),
            Some(_) if document.twins_differ => self.twin(random, count),
            // A text that is unchanged keeps its structured form: `null` is that of two values.
            Some(twin) if text == output.content => Some(twin.clone()),
            Some(_) => Some(read(&text)),
            None => None,
        };
        let answer =
            ToolAnswer { content: text, structured, is_error: output.is_error == Some(true), carries: None };
        (answer, self.spelling)
    }

    /// Returns a replacement for a hidden answer.
    fn replaced(
        &self,
        content: NodeId,
        random: &mut Random,
        count: &mut usize,
    ) -> (ToolAnswer, AnswerSpelling) {
        let Self { output, document, spelling, .. } = self;
        let is_text = matches!(
            document.node(content).map(|node| &node.content),
            Some(NodeContent::Scalar(value)) if !value.is_null()
        );
        if is_text || document.twins_differ {
            // Two random texts can be equal; whether the two forms of the answer differ is preserved.
            loop {
                let structured = self.twin(random, count);
                let content = match &output.content {
                    Value::String(text) => self.text(content, text, random),
                    _ => world::plain(random),
                };
                if taken_apart(&content, structured.as_ref()).twins_differ == document.twins_differ {
                    let answer = ToolAnswer {
                        content,
                        structured,
                        is_error: output.is_error == Some(true),
                        carries: None,
                    };
                    return (answer, *spelling);
                }
            }
        }
        // An error has the top label whatever label the tool's answers have; that it is an error is as
        // visible as the answers.
        let errors = match (output.is_error == Some(true), self.speaks_of_errors) {
            (true, _) => 100,
            (false, true) => 0,
            (false, false) => 20,
        };
        loop {
            let (answer, spelling) = fresh(random, errors, self.echo, self.has_values);
            let has_form = answer.content.as_str().is_some_and(|text| FormedText::of(text).is_some());
            // An answer in two forms states that both have the same content.
            let differs = taken_apart(&answer.content, answer.structured.as_ref()).twins_differ;
            if !has_form && !differs {
                return (answer, spelling);
            }
        }
    }

    fn shows(&self, node: NodeId) -> bool {
        // A part is varied if the monitor hides it, and also if the oracle requires that it be hidden.
        let flows = self.flows.get(node).copied().unwrap_or(false);
        flows && self.document.node(node).is_some_and(|node| node.label.flows_to(self.observer))
    }

    /// Whether a part contains the arguments of the call.
    fn is_echo(&self, id: NodeId) -> bool {
        let step = |id: NodeId| self.document.node(id).map(|node| (&node.step, node.parent));
        let Some((PathStep::Key(key), parent)) = step(id) else { return false };
        **key == *"e" && Some(parent) == self.document.key(0, "content")
    }

    /// Returns a structured form of the answer that differs from its text.
    fn twin(&self, random: &mut Random, count: &mut usize) -> Option<Value> {
        let node = self.document.key(0, "structured")?;
        Some(self.part(node, random, count))
    }

    /// Returns the value of a part, with everything replaced that does not flow to the observer.
    fn part(&self, id: NodeId, random: &mut Random, count: &mut usize) -> Value {
        let document = self.document;
        let Some(node) = document.node(id) else { return Value::Null };
        if !self.shows(id) {
            *count += 1;
            // Where a part inside was declared, a text carries the label of the parts that it could contain;
            // that it is a text, and not the declared structure, is as visible as its place.
            return match &node.content {
                NodeContent::Scalar(Value::String(text)) => self.text(id, text, random),
                NodeContent::Scalar(value) if !value.is_null() => world::plain(random),
                _ => formless(random),
            };
        }
        match (&node.content, self.echo) {
            (NodeContent::Scalar(_), Some(echo)) if self.is_echo(id) => {
                let value = Value::from(echo);
                *count += usize::from(value != document.to_value(id));
                return value;
            }
            _ => {}
        }
        match &node.content {
            NodeContent::Scalar(value) => value.clone(),
            NodeContent::List => document.children(id).map(|child| self.part(child, random, count)).collect(),
            NodeContent::Map => {
                let entries = document.children(id).filter_map(|child| match &document.node(child)?.step {
                    PathStep::Key(key) => Some((key.to_string(), self.part(child, random, count))),
                    _ => None,
                });
                Value::Object(entries.collect())
            }
        }
    }

    /// Returns a replacement for a text. Whether a text has the form from which a policy captures parts is as
    /// visible as the parts: the policy trusts the author of the form.
    fn text(&self, id: NodeId, text: &str, random: &mut Random) -> Value {
        let Some(before) = FormedText::of(text) else {
            // Labels are computed from a few fixed names.
            let is_key = matches!(self.document.node(id).map(|node| &node.step), Some(PathStep::Key(key)) if **key == *"k");
            return if is_key { world::plain(random) } else { Value::String(world::marked(random)) };
        };
        let mut formed = FormedText::new(random);
        for child in self.document.children(id).filter(|child| self.shows(*child)) {
            match self.document.node(child).map(|node| &node.step) {
                Some(PathStep::Capture(name)) if **name == *"n" => formed.n.clone_from(&before.n),
                Some(PathStep::Capture(name)) if **name == *"k" => formed.k.clone_from(&before.k),
                _ => {}
            }
        }
        Value::String(formed.text())
    }
}

/// Generates a value that is not itself a text of the form.
fn formless(random: &mut Random) -> Value {
    loop {
        let value = world::anything(random, 2);
        if value.as_str().and_then(FormedText::of).is_none() {
            return value;
        }
    }
}
