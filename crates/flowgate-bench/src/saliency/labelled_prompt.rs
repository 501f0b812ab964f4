//! Defines a test case for screeners ([`DependencyCase`]), and the parts that its generators share: the builder of a
//! chat with regions ([`CaseChat`]), and the people whose records are regions.
//!
//! A case is a chat with tagged regions, and the message of the model that follows the chat. The guard's [`PlainChat`]
//! writes both as text. It does the same in a conversation, so a screener that is trained on cases later reads the same
//! form.

use std::ops::Range;

use flowgate_guard::screener::attention::{DraftText, PlainChat};
use flowgate_guard::screener::{TaggedChat, closing_tag, opening_tag};
use flowgate_lm::chat::{Completion, Message, Part, Request, ToolCall};
use serde_json::{Value, json};

use crate::games::random::SeededRandom;

/// A prompt with regions, an output, and the regions that the output depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DependencyCase {
    /// The text before the output.
    pub prompt: String,
    /// The regions, as ranges of bytes of the prompt, in order.
    pub regions: Vec<Range<usize>>,
    /// The user's request as a range of the prompt.
    pub request: Range<usize>,
    /// The output: the text of `draft`.
    pub output: String,
    /// The message that follows the chat.
    pub draft: Completion,
    /// For each region whether the output depends on it.
    pub depends: Vec<bool>,
}

impl DependencyCase {
    /// Returns the texts that identify the case, for the digest in a manifest: the prompt, the output, the request, and
    /// the position of each region with whether the output depends on it. They contain no name of a field, so that a
    /// renamed field changes no digest.
    pub(super) fn texts(&self) -> Vec<String> {
        let regions = self.regions.iter().zip(&self.depends);
        let regions = regions.map(|(range, depends)| format!("{} to {}: {depends}", range.start, range.end));
        let texts = [self.prompt.clone(), self.output.clone(), self.request().to_owned()];
        texts.into_iter().chain(regions).collect()
    }

    /// Returns the user's request.
    pub fn request(&self) -> &str {
        self.prompt.get(self.request.clone()).unwrap_or_default()
    }
}

/// A piece of a message.
#[derive(Debug, Clone)]
enum Piece {
    Text(String),
    /// A region, with whether the output of the case depends on it.
    Region(String, bool),
    /// The request of the user.
    Request(String),
}

/// A message of a case.
#[derive(Debug, Clone)]
enum CaseMessage {
    System(Vec<Piece>),
    User(Vec<Piece>),
    /// A call of the model.
    Call(ToolCall),
    /// The output of a tool.
    Output(Vec<Piece>),
}

/// Builds the chat of a case.
#[derive(Debug, Clone, Default)]
pub(super) struct CaseChat {
    messages: Vec<CaseMessage>,
}

/// The name of the tagged request. Regions have numbers.
const REQUEST: &str = "request";

impl CaseChat {
    /// Adds instructions of the operator.
    pub(super) fn system(&mut self, text: &str) {
        self.messages.push(CaseMessage::System(vec![Piece::Text(text.to_owned())]));
    }

    /// Adds a message of the user that is the request.
    pub(super) fn user(&mut self, request: &str) {
        self.messages.push(CaseMessage::User(vec![Piece::Request(request.to_owned())]));
    }

    /// Adds a message of the user with documents and a question, which is the request. Each document is a region, and
    /// comes with whether the output of the case depends on it.
    pub(super) fn documents(&mut self, documents: impl Iterator<Item = (String, bool)>, question: &str) {
        let mut pieces = vec![Piece::Text("Documents:\n".to_owned())];
        for (document, depends) in documents {
            pieces.push(Piece::Region(document, depends));
            pieces.push(Piece::Text("\n".to_owned()));
        }
        pieces.push(Piece::Text("Question: ".to_owned()));
        pieces.push(Piece::Request(question.to_owned()));
        self.messages.push(CaseMessage::User(pieces));
    }

    /// Adds a call of the model.
    pub(super) fn call(&mut self, name: &str, arguments: &str) {
        let (name, arguments) = (name.to_owned(), arguments.to_owned());
        self.messages.push(CaseMessage::Call(ToolCall { id: String::new(), name, arguments }));
    }

    /// Adds the output of a tool, which is a region. `depends` says whether the output of the case depends on it.
    pub(super) fn output(&mut self, text: &str, depends: bool) {
        self.messages.push(CaseMessage::Output(vec![Piece::Region(text.to_owned(), depends)]));
    }

    /// Adds a call that reads the next record, and its output. `depends` says whether the output of the case depends on
    /// it. The call has no arguments, as their values could be those of a record.
    pub(super) fn record(&mut self, text: &str, depends: bool) {
        self.call("read_next", "{}");
        self.output(text, depends);
    }

    /// Returns the case in which `draft` follows the chat. Writes the chat with tags around the request and the
    /// regions; [`PlainChat`] removes the tags and finds the positions of what they enclose.
    pub(super) fn before(&self, draft: Completion) -> DependencyCase {
        let nonce = self.nonce();
        let (mut names, mut depends) = (vec![REQUEST.to_owned()], Vec::new());
        // Joins the pieces of a message to one text, with tags around the request and the regions. Names each region by
        // its number, and records in `depends` whether the output depends on the region.
        let mut parts = |pieces: &[Piece]| {
            let mut content = String::new();
            for piece in pieces {
                let (name, text) = match piece {
                    Piece::Text(text) => {
                        content.push_str(text);
                        continue;
                    }
                    Piece::Request(text) => (REQUEST.to_owned(), text),
                    Piece::Region(text, is_needed) => {
                        let name = depends.len().to_string();
                        names.push(name.clone());
                        depends.push(*is_needed);
                        (name, text)
                    }
                };
                content.push_str(&opening_tag(&nonce, &name));
                content.push_str(text);
                content.push_str(&closing_tag(&nonce, &name));
            }
            vec![Part::Text(content)]
        };
        let mut request = Request::default();
        for message in &self.messages {
            request.messages.push(match message {
                CaseMessage::System(pieces) => Message::System(parts(pieces)),
                CaseMessage::User(pieces) => Message::User(parts(pieces)),
                CaseMessage::Call(call) => Message::Assistant {
                    text: String::new(),
                    calls: vec![call.clone()],
                    thoughts: Vec::new(),
                },
                CaseMessage::Output(pieces) => {
                    Message::Tool { call_id: String::new(), content: parts(pieces), is_error: None }
                }
            });
        }
        // From here on, the regions are ranges of the chat as one text. The request is one of them at first. The first
        // value is a request to a writer of drafts, which is not needed here: `draft` is given.
        let (_, chat) = PlainChat::read(TaggedChat { request, nonce, names });
        let mut regions = chat.regions().to_vec();
        // A run can have several messages of the user; the last one is the request.
        let mut request = 0..0;
        regions.retain(|(name, range)| {
            let is_request = name == REQUEST;
            if is_request {
                request = range.clone();
            }
            !is_request
        });
        let DraftText { prompt, continuation } = chat.with_draft(&draft);
        let regions = regions.into_iter().map(|(_, range)| range).collect();
        DependencyCase { prompt, regions, request, output: continuation, draft, depends }
    }

    /// Returns a number for the tags. No text of a message or of an output contains the beginning of a tag with this
    /// number.
    fn nonce(&self) -> String {
        let pieces = self.messages.iter().flat_map(|message| match message {
            CaseMessage::System(pieces) | CaseMessage::User(pieces) | CaseMessage::Output(pieces) => {
                pieces.as_slice()
            }
            // Calls get no tags, and their arguments are not searched.
            CaseMessage::Call(_) => &[],
        });
        let texts: Vec<&str> = pieces
            .map(|piece| match piece {
                Piece::Text(text) | Piece::Region(text, _) | Piece::Request(text) => text.as_str(),
            })
            .collect();
        let is_free = |nonce: &u64| !texts.iter().any(|text| text.contains(&format!("REGION_{nonce}_")));
        // Finitely many texts contain finitely many numbers.
        (0..).find(is_free).unwrap_or_default().to_string()
    }
}

/// Returns a message that calls a tool.
pub(super) fn call_of(name: &str, arguments: &Value) -> Completion {
    let calls = vec![ToolCall { id: String::new(), name: name.to_owned(), arguments: arguments.to_string() }];
    Completion { calls, ..Completion::default() }
}

/// Returns a message that answers with a text.
pub(super) fn answer_of(text: &str) -> Completion {
    Completion { text: text.to_owned(), ..Completion::default() }
}

/// The first names of people in the cases; with the [`LAST_NAMES`] they give 120 names.
pub(super) const FIRST_NAMES: [&str; 12] =
    ["Anna", "Bram", "Chidi", "Dara", "Elif", "Farid", "Greta", "Hugo", "Irma", "Jonas", "Keiko", "Lena"];
pub(super) const LAST_NAMES: [&str; 10] =
    ["Adler", "Brandt", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Hansen", "Ito", "Jansen"];
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A person who asks for a payment.
#[derive(Clone)]
pub(super) struct CasePerson {
    pub(super) name: String,
    pub(super) account: String,
    /// When the payment is due: the day, the month from 1, and the year.
    pub(super) day: (usize, usize, usize),
    /// The amount of the payment, in cents.
    pub(super) cents: usize,
}

impl CasePerson {
    /// Draws a person whose name none of `others` has. There are 120 names, so `others` must be fewer.
    pub(super) fn draw(random: &mut SeededRandom, others: &[Self]) -> Self {
        loop {
            let pick = |list: &[&'static str], random: &mut SeededRandom| {
                list.get(random.below(list.len())).copied().unwrap_or_default()
            };
            let name = format!("{} {}", pick(&FIRST_NAMES, random), pick(&LAST_NAMES, random));
            if others.iter().any(|other| other.name == name) {
                continue;
            }
            return Self {
                name,
                account: format!("NL{:08}", random.below(100_000_000)),
                // Every month has at least 28 days.
                day: (1 + random.below(28), 1 + random.below(12), 2020 + random.below(10)),
                cents: 1000 + random.below(900_000),
            };
        }
    }

    /// Draws `count` people with different names.
    pub(super) fn draw_all(random: &mut SeededRandom, count: usize) -> Vec<Self> {
        let mut people = Vec::with_capacity(count);
        for _ in 0..count {
            let person = Self::draw(random, &people);
            people.push(person);
        }
        people
    }

    /// Returns the person's values as a tool would return them. `form` is 0 for JSON, 1 for YAML, 2 for a row of a
    /// table, and any other number for a mail.
    pub(super) fn record(&self, form: usize) -> String {
        let Self { name, account, day: (day, month, year), cents } = self;
        let date = format!("{year}-{month:02}-{day:02}");
        let amount = format!("{}.{:02}", cents / 100, cents % 100);
        match form {
            0 => format!(
                "{{\"name\": \"{name}\", \"account\": \"{account}\", \"due\": \"{date}\", \"amount\": \"{amount}\"}}"
            ),
            1 => format!("- name: {name}\n  account: {account}\n  due: {date}\n  amount: {amount}"),
            2 => format!("| {name} | {account} | {date} | {amount} |"),
            _ => format!("From: {name}\n\nMy account is {account}. The amount is {amount}, due on {date}."),
        }
    }

    /// Returns the message that calls a tool to pay what the person asks for: the draft of a case.
    pub(super) fn payment(&self) -> Completion {
        let Self { account, day: (day, month, year), cents, .. } = self;
        let arguments = json!({
            "account": account,
            "amount": format!("{}.{:02}", cents / 100, cents % 100),
            "due": format!("{year}-{month:02}-{day:02}"),
        });
        call_of("send_money", &arguments)
    }
}
