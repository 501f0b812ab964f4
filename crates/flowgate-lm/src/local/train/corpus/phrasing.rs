//! Defines [`Phrasing`], the wording of the facts, questions and answers of one example. A fact says that the field
//! `{a}` of the person or thing `{e}` has the value `{v}`.
//!
//! A model that reads the same wordings often learns these wordings instead of the task. Half of the phrasings are
//! therefore made up for one example: random words around the blanks `{a}`, `{e}` and `{v}`. `question.rs` draws one
//! phrasing for each example.

use super::draw::Draw;

/// How the texts of an example are phrased. The blanks of the texts are `{e}`, `{a}` and `{v}`.
pub(super) struct Phrasing {
    /// The statements of documents; each document uses one of them.
    pub(super) statements: Vec<String>,
    /// The statement of the answer. The question names the person or thing and the field, so the model can know the
    /// value even if the answer begins with it.
    pub(super) answer: String,
    /// The phrase for what a question asks for, such as `the {a} of {e}`.
    pub(super) subject: String,
    /// The text before and after the subjects of the question.
    pub(super) question: (String, String),
    /// Whether the words of the answer can be predicted from the documents or from other examples.
    pub(super) is_familiar: bool,
}

/// Statements in which the value is the last blank. Documents and answers use them.
const STATEMENTS: &[&str] = &[
    "The {a} of {e} is {v} .",
    "The {a} of {e} is {v}.",
    "{e} has the {a} {v}.",
    "{e}'s {a} is {v}.",
    "{e}: {a} = {v}",
    "{a} ({e}): {v}",
    "For {e}, the {a} is {v}.",
    "As to {e}, we have noted the {a} as {v}.",
    "The {a} for {e} was given as {v}.",
    "{e} / {a} / {v}",
    "name: {e}; {a}: {v}",
    "{\"name\": \"{e}\", \"{a}\": \"{v}\"}",
    "| {e} | {a} | {v} |",
    "- {e}: the {a} reads {v}",
    "Our file on {e} lists {v} under {a}.",
    "In the case of {e}, the field {a} contains {v}.",
    "The {a} that belongs to {e} is {v}.",
    "We asked {e} for the {a}, and the reply was {v}.",
    "{e} gave us {v} as the {a}.",
    "The register shows for {e} this {a}: {v}.",
];

/// Further statements of documents, in which another blank follows the value.
const OTHER_STATEMENTS: &[&str] = &[
    "{v} is the {a} of {e}.",
    "{a} {v} belongs to {e}.",
    "{v} ({a} of {e})",
    "With {v} as the {a}, {e} was entered.",
];

/// Phrases for what a question asks for, the field `{a}` of `{e}`.
const SUBJECTS: &[&str] =
    &["the {a} of {e}", "{e}'s {a}", "the {a} for {e}", "the {a} that {e} has", "{a} of {e}", "{e}: {a}"];

/// The text before and after the subjects.
const QUESTIONS: &[(&str, &str)] = &[
    ("What is ", " ?"),
    ("What is ", "?"),
    ("Tell me ", "."),
    ("I need ", "."),
    ("Please find ", "."),
    ("Look up ", ""),
    ("Which is ", "?"),
    ("", "?"),
];

/// The words of phrasings that are made up.
const WORDS: &[&str] = &[
    "the",
    "a",
    "of",
    "for",
    "to",
    "in",
    "on",
    "at",
    "by",
    "with",
    "from",
    "as",
    "is",
    "was",
    "has",
    "had",
    "are",
    "be",
    "been",
    "it",
    "this",
    "that",
    "we",
    "our",
    "they",
    "their",
    "he",
    "she",
    "his",
    "her",
    "you",
    "your",
    "and",
    "or",
    "but",
    "so",
    "then",
    "here",
    "there",
    "now",
    "also",
    "only",
    "just",
    "still",
    "known",
    "given",
    "noted",
    "found",
    "kept",
    "held",
    "stored",
    "listed",
    "written",
    "entered",
    "filed",
    "reported",
    "stated",
    "according",
    "record",
    "records",
    "file",
    "list",
    "table",
    "system",
    "entry",
    "data",
    "note",
    "value",
    "field",
    "under",
    "below",
    "above",
    "about",
    "regarding",
    "concerning",
    "please",
    "see",
    "check",
    "show",
    "shows",
    "says",
    "reads",
    "contains",
    "lists",
    "gives",
    "belongs",
    "assigned",
    "registered",
    "current",
    "official",
    "correct",
    "full",
    "own",
    "new",
    "last",
    "first",
];

/// The punctuation after a blank of a phrasing that is made up. The repeated empty text makes no punctuation likely.
const PUNCTUATION: &[&str] = &["", "", "", "", ",", ":", " -", " =", " (", ";", "\n"];

impl Phrasing {
    /// Returns the phrasing of a register, a list of entries that differ only in names and values: documents, questions
    /// and answers always have the same simple form, which is taken from the paper *Permissive Information-Flow
    /// Analysis* (Figure 4). The words of an answer can therefore be predicted (`is_familiar`).
    pub(super) fn register() -> Self {
        let statement = "The {a} of {e} is {v} .";
        Self {
            statements: vec![statement.to_owned()],
            answer: statement.to_owned(),
            subject: "the {a} of {e}".to_owned(),
            question: ("What is ".to_owned(), " ?".to_owned()),
            is_familiar: true,
        }
    }

    /// Draws the phrasing of an example. Half of the phrasings are *familiar*: their statements come from a list. The
    /// other half have statements of random words; in a quarter of these phrasings, the value can be in any position.
    /// A statement has blanks: `{e}` for the person or thing, `{a}` for the field, `{v}` for the value.
    ///
    /// The question, and the phrase `subject` for what it asks for, are drawn independently of this: a third are random
    /// words, the others come from lists. One phrasing in eight, familiar or not, also has a statement of
    /// [`OTHER_STATEMENTS`], in which another blank follows the value; no answer has one of these.
    pub(super) fn draw(draw: &mut Draw) -> Self {
        let is_familiar = draw.below(2) == 0;
        let is_value_last = draw.below(4) > 0;
        let statement = |draw: &mut Draw| match is_familiar {
            true => draw.pick(STATEMENTS).to_owned(),
            false if is_value_last => made_up(draw, &["{e}", "{a}"], true),
            false => made_up(draw, &["{e}", "{a}", "{v}"], false),
        };
        let answer = statement(draw);
        // Documents often have the form of the answer, and sometimes several forms.
        let mut statements = vec![if draw.below(2) == 0 { answer.clone() } else { statement(draw) }];
        if draw.below(3) == 0 {
            statements.push(statement(draw));
        }
        if draw.below(8) == 0 {
            statements.push(draw.pick(OTHER_STATEMENTS).to_owned());
        }
        let (before, after) = QUESTIONS.get(draw.below(QUESTIONS.len())).copied().unwrap_or_default();
        let (subject, question) = match draw.below(3) {
            0 => (made_up(draw, &["{e}", "{a}"], false), (words(draw), "?".to_owned())),
            _ => (draw.pick(SUBJECTS).to_owned(), (before.to_owned(), after.to_owned())),
        };
        Self { statements, answer, subject, question, is_familiar }
    }
}

/// Draws up to three words, and returns them with a space after each.
fn words(draw: &mut Draw) -> String {
    (0..draw.below(4)).map(|_| format!("{} ", draw.pick(WORDS))).collect()
}

/// Makes up a text with the blanks in random order, with random words before each blank and random punctuation after
/// it. If `ends_with_value` is true, the blank of the value (`{v}`) is added as the last one.
fn made_up(draw: &mut Draw, blanks: &[&str], ends_with_value: bool) -> String {
    // Drawing all blanks puts them into random order.
    let mut blanks = draw.pick_several(blanks, blanks.len());
    if ends_with_value {
        blanks.push("{v}");
    }
    let mut text = String::new();
    for blank in blanks {
        text.push_str(&words(draw));
        text.push_str(blank);
        text.push_str(draw.pick(PUNCTUATION));
        text.push(' ');
    }
    let mut text = text.trim_end().to_owned();
    text.push_str(draw.pick(&["", ".", " ."]));
    text
}
