//! Generates texts for training: [`Corpus`]. The trainer draws the examples of each step from it.
//!
//! An example is determined by the seed of the corpus and by its number, so that a training can be resumed at any step,
//! and examples can be reserved for evaluation. The model is to learn to copy values from a region. In the loss, tokens
//! of copied values therefore have the weight 1. The words and signs around the values have a lower weight, and the
//! regions, whose content is random, have almost none.

use super::super::sampler::SplitMix;

/// Generated examples.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Corpus {
    seed: u64,
}

/// A text in parts. Each part is paired with the weight of its tokens in the loss.
#[derive(Debug, Clone, PartialEq)]
pub struct Example {
    kind: ExampleKind,
    parts: Vec<(String, f32)>,
}

/// The kind of an example.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExampleKind {
    /// Documents about people, a question about two of them, and the answer.
    Question,
    /// Answers of tools, and a call with values from them.
    ToolCall,
}

/// The weight of the tokens of regions and questions.
const CONTENT: f32 = 0.01;
/// The weight of the tokens around values.
const SCAFFOLD: f32 = 0.25;
/// The weight of the tokens of values that are copied.
const VALUE: f32 = 1.0;

/// The names of the facts about a person.
const FIELDS: &[&str] = &["phone", "email", "city", "account", "birthday", "employer", "badge", "room"];
/// The names of the tools that are called.
const TOOLS: &[&str] =
    &["send_money", "create_event", "update_contact", "reserve_room", "send_email", "open_ticket"];
/// The syllables of random words.
const SYLLABLES: &[&str] = &[
    "an", "bel", "cor", "da", "el", "fi", "gra", "hol", "is", "ja", "ka", "lo", "mi", "nor", "ol", "pe",
    "qui", "ra", "sol", "ta", "ul", "va", "wen", "xi", "yo", "zan",
];

impl Corpus {
    /// Creates the corpus with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns an example by its number: a question about a text, or a tool call, with equal probability. The same seed
    /// and number always give the same example.
    #[must_use]
    pub fn example(&self, index: usize) -> Example {
        let number = u64::try_from(index).unwrap_or(u64::MAX);
        // The large factor keeps the generators of different seeds and numbers apart.
        let mut draw =
            Draw(SplitMix::new(self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(number)));
        match draw.below(2) {
            0 => question(&mut draw),
            _ => tool_call(&mut draw),
        }
    }
}

impl Example {
    /// Returns the kind of the example.
    #[must_use]
    pub fn kind(&self) -> ExampleKind {
        self.kind
    }

    /// Returns the parts of the text, each with the weight of its tokens in the loss.
    #[must_use]
    pub fn parts(&self) -> &[(String, f32)] {
        &self.parts
    }

    /// Returns the whole text.
    #[must_use]
    pub fn text(&self) -> String {
        self.parts.iter().map(|(text, _)| text.as_str()).collect()
    }
}

/// Draws random numbers, words and values.
struct Draw(SplitMix);

impl Draw {
    /// Returns a random number from 0 up to, but not including, `end`.
    #[expect(clippy::cast_possible_truncation, reason = "the remainder fits")]
    fn below(&mut self, end: usize) -> usize {
        (self.0.next() % end.max(1) as u64) as usize
    }

    /// Returns a random item of a list.
    fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        let index = self.below(list.len());
        list.get(index).copied().unwrap_or_default()
    }

    /// Returns a random word of two or three syllables.
    fn word(&mut self) -> String {
        let count = 2 + self.below(2);
        (0..count).map(|_| self.pick(SYLLABLES)).collect()
    }

    /// Returns the random name of a person: two capitalised words.
    fn name(&mut self) -> String {
        let word = |draw: &mut Self| {
            let word = draw.word();
            let (first, rest) = word.split_at_checked(1).unwrap_or(("", &word));
            first.to_uppercase() + rest
        };
        let first = word(self);
        format!("{first} {}", word(self))
    }

    /// Returns this many random digits.
    fn digits(&mut self, count: usize) -> String {
        (0..count)
            .map(|_| char::from(b'0'.saturating_add(u8::try_from(self.below(10)).unwrap_or(0))))
            .collect()
    }

    /// Returns a random value of a field, in the form of this field.
    fn value(&mut self, field: &str) -> String {
        match field {
            "phone" => format!("+{} {} {}", self.digits(2), self.digits(3), self.digits(4)),
            "email" => format!("{}@{}.example", self.word(), self.word()),
            "account" => format!("{}{}", self.pick(&["DE", "FR", "NL", "US"]), self.digits(8)),
            "birthday" => format!("19{}-0{}-1{}", self.digits(2), 1 + self.below(9), self.digits(1)),
            "badge" | "room" => format!("{}-{}", self.pick(&["A", "B", "K", "R"]), self.digits(3)),
            _ => self.name(),
        }
    }

    /// Returns `count` different fields, in random order.
    fn fields(&mut self, count: usize) -> Vec<&'static str> {
        let mut left = FIELDS.to_vec();
        (0..count.min(left.len())).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }
}

/// Generates several documents, each with one fact about one person, and a question about two of the facts with its
/// answer. Each part is paired with the weight of its tokens in the loss: the model is to learn to copy the values.
fn question(draw: &mut Draw) -> Example {
    let count = 3 + draw.below(4);
    let facts: Vec<(String, &str, String)> = (0..count)
        .map(|_| {
            let (name, field) = (draw.name(), draw.pick(FIELDS));
            let value = draw.value(field);
            (name, field, value)
        })
        .collect();
    let mut parts: Vec<(String, f32)> = Vec::new();
    for (number, (name, field, value)) in facts.iter().enumerate() {
        let document = match draw.below(3) {
            0 => format!("Document {number}: The {field} of {name} is {value}.\n"),
            1 => format!("Document {number}: {name} has the {field} {value}.\n"),
            _ => format!("Document {number}:\nname: {name}\n{field}: {value}\n"),
        };
        parts.push((document, CONTENT));
    }
    let first = draw.below(count);
    // Any fact but the first one.
    let second = (first + 1 + draw.below(count - 1)) % count;
    let asked_facts: Vec<_> = [first, second].into_iter().filter_map(|at| facts.get(at)).collect();
    let subjects: Vec<String> =
        asked_facts.iter().map(|(name, field, _)| format!("the {field} of {name}")).collect();
    parts.push((format!("Question: What is {}?\nAnswer:", subjects.join(" and ")), CONTENT));
    for (name, field, value) in asked_facts {
        parts.push((format!(" The {field} of {name} is"), SCAFFOLD));
        parts.push((format!(" {value}"), VALUE));
        parts.push((".".to_owned(), SCAFFOLD));
    }
    Example { kind: ExampleKind::Question, parts }
}

/// Generates the outputs of several tools in different formats, each with facts about one person, and a call with the
/// facts about one of them (`needed`), whom the user names at the beginning. Each part is paired with the weight of its
/// tokens in the loss.
fn tool_call(draw: &mut Draw) -> Example {
    let count = 2 + draw.below(3);
    let needed = draw.below(count);
    let mut parts: Vec<(String, f32)> = Vec::new();
    // The arguments of the call: fields and values.
    let mut call = Vec::new();
    for number in 0..count {
        let how_many = 2 + draw.below(2);
        let record: Vec<(&str, String)> =
            draw.fields(how_many).into_iter().map(|field| (field, draw.value(field))).collect();
        // All fields of the record, each written by `form`.
        let line = |form: &dyn Fn(&str, &str) -> String, separator: &str| {
            record.iter().map(|(field, value)| form(field, value)).collect::<Vec<_>>().join(separator)
        };
        let name = draw.name();
        let body = match draw.below(4) {
            0 => format!("{{\"name\": \"{name}\", {}}}", line(&|f, v| format!("\"{f}\": \"{v}\""), ", ")),
            1 => format!("- name: {name}\n{}", line(&|f, v| format!("  {f}: {v}"), "\n")),
            2 => format!(
                "| name | {} |\n| {name} | {} |",
                line(&|f, _| f.to_owned(), " | "),
                line(&|_, v| v.to_owned(), " | ")
            ),
            _ => {
                format!("From: {name}\nSubject: contact\n\n{}", line(&|f, v| format!("My {f} is {v}."), " "))
            }
        };
        parts.push((format!("[tool {number}]\n{body}\n"), CONTENT));
        if number == needed {
            parts.insert(0, (format!("User: use the contact of {name}.\n"), CONTENT));
            call = record.clone();
        }
    }
    parts.push((format!("Call: {}(", draw.pick(TOOLS)), SCAFFOLD));
    for (at, (field, value)) in call.iter().enumerate() {
        let separator = if at == 0 { "" } else { ", " };
        parts.push((format!("{separator}\"{field}\": \""), SCAFFOLD));
        parts.push((value.clone(), VALUE));
        parts.push(("\"".to_owned(), SCAFFOLD));
    }
    parts.push((")".to_owned(), SCAFFOLD));
    Example { kind: ExampleKind::ToolCall, parts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_a_region_and_examples_repeat() {
        let corpus = Corpus::new(3);
        let mut kinds = [0, 0];
        for index in 0..200 {
            let example = corpus.example(index);
            assert_eq!(example, Corpus::new(3).example(index));
            assert_ne!(example, Corpus::new(4).example(index));
            kinds[usize::from(example.kind() == ExampleKind::ToolCall)] += 1;
            let regions: String = example
                .parts()
                .iter()
                .filter(|(_, weight)| *weight == CONTENT)
                .map(|(text, _)| text.as_str())
                .collect();
            let values: Vec<_> = example.parts().iter().filter(|(_, weight)| *weight == VALUE).collect();
            assert!(values.len() >= 2);
            assert!(
                values.iter().all(|(value, _)| regions.contains(value.trim_start())),
                "{}",
                example.text()
            );
        }
        assert!(kinds.iter().all(|count| *count > 70), "{kinds:?}");
    }
}
