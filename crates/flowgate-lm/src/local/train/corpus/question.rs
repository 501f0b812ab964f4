//! Generates documents that state facts, and questions about these facts with their answers: [`question_example`]. Some
//! documents state both values of a person or thing, others one. An answer copies values from one or several documents.
//! [`Corpus`](super::Corpus) calls this module.

use super::draw::Draw;
use super::phrasing::Phrasing;
use super::{CONTENT, Example, ExampleKind, SCAFFOLD, VALUE};

/// The names of fields.
const FIELDS: &[&str] = &[
    "social security number",
    "date of birth",
    "phone number",
    "e-mail",
    "city",
    "account number",
    "employer",
    "badge",
    "room",
    "passport number",
    "home address",
    "tax number",
    "birthday",
    "customer id",
    "salary",
    "start date",
    "blood type",
    "gate code",
    "licence",
    "ticket",
    "order number",
    "policy number",
    "locker",
    "manager",
    "department",
    "serial number",
    "balance",
    "department code",
    "PIN",
    "invoice",
];
/// The fields of the register, and the forms of their values.
const REGISTER_FIELDS: [&str; 2] = ["social security number", "date of birth"];
const REGISTER_FORMS: [&str; 2] = ["SSN########", "##-##-####"];
/// The nouns that precede a number in the name of a person or thing: `patient 12`.
const NUMBERED: &[&str] =
    &["person", "customer", "employee", "patient", "user", "member", "case", "client no.", "account"];
/// The number of questions about the documents of one example.
const QUESTIONS: usize = 5;
/// The ways in which the documents about a person or thing state the two values: for each document, whether it states
/// the first value, and whether the second.
const LAYOUTS: [&[(bool, bool)]; 7] = [
    &[(true, true)],
    &[(true, false), (false, true)],
    &[(true, false), (false, true), (true, true)],
    &[(true, true), (true, true)],
    &[(true, false)],
    &[(false, true)],
    &[(true, false), (true, false), (false, true)],
];

/// A person or thing with two values.
struct Subject {
    name: String,
    values: [String; 2],
}

/// Generates documents about persons or things (subjects), and [`QUESTIONS`] questions with their answers. Each
/// question is about one or two subjects. The number of documents is drawn between 3 and `max_documents`; the documents
/// about the last subject can exceed this number by up to two.
pub(super) fn question_example(draw: &mut Draw, max_documents: usize) -> Example {
    // In a third of the examples, the documents are entries of one register, which differ only in names and values.
    let is_register = draw.below(3) == 0;
    let phrasing = if is_register { Phrasing::register() } else { Phrasing::draw(draw) };
    let (fields, forms) = match is_register {
        true => (REGISTER_FIELDS.to_vec(), REGISTER_FORMS),
        false => (draw.pick_several(FIELDS, 2), [draw.form(), draw.form()]),
    };
    let numbered = match is_register {
        true => Some("person"),
        false => (draw.below(3) > 0).then(|| draw.pick(NUMBERED)),
    };
    let size = 3 + draw.below(max_documents.saturating_sub(2));
    let mut subjects: Vec<Subject> = Vec::new();
    // For each document, the facts that it states: the number of the subject, and the number of the value.
    let mut documents: Vec<Vec<(usize, usize)>> = Vec::new();
    while documents.len() < size {
        let name = subject_name(draw, numbered, &subjects);
        subjects.push(Subject { name, values: forms.map(|form| draw.value(form)) });
        let subject = subjects.len() - 1;
        // For each document about the subject: whether it states the first value, and whether the second.
        let layout = LAYOUTS.get(draw.below(LAYOUTS.len())).copied().unwrap_or_default();
        for (states_first, states_second) in layout {
            let mut stated: Vec<(usize, usize)> = Vec::new();
            if *states_first {
                stated.push((subject, 0));
            }
            if *states_second {
                stated.push((subject, 1));
            }
            // One document in eight also states a value of an earlier subject.
            if subject > 0 && draw.below(8) == 0 {
                stated.push((draw.below(subject), draw.below(2)));
            }
            documents.push(stated);
        }
    }
    let text = document_text(draw, &documents, &phrasing, &subjects, &fields);
    let mut parts = vec![(text, CONTENT)];
    // Several questions about the same documents teach more than one question, for little more computation.
    for _ in 0..QUESTIONS {
        let asked = by_subject(&asked_facts(draw, &documents));
        ask(&asked, &phrasing, &subjects, &fields, &mut parts);
    }
    Example { kind: ExampleKind::Question, parts }
}

/// Writes the documents in a random order, with one sentence for each subject of a document. `documents` lists for each
/// document the facts that it states, as pairs of the index of a subject and the index of a value. `fields` are the
/// names of the two values.
fn document_text(
    draw: &mut Draw,
    documents: &[Vec<(usize, usize)>],
    phrasing: &Phrasing,
    subjects: &[Subject],
    fields: &[&str],
) -> String {
    // The documents that are not written yet. Each round writes a random one.
    let mut order: Vec<usize> = (0..documents.len()).collect();
    let mut text = draw.pick(&["Documents:\n", "Documents:\n", "", "Context:\n", "Read this:\n"]).to_owned();
    let is_counted = draw.below(4) == 0;
    while !order.is_empty() {
        let document = order.swap_remove(draw.below(order.len()));
        let stated = documents.get(document).cloned().unwrap_or_default();
        if is_counted {
            // The number of documents that are left, which differs for each document.
            text.push_str(&format!("Document {}: ", order.len()));
        }
        let statement =
            phrasing.statements.get(draw.below(phrasing.statements.len())).cloned().unwrap_or_default();
        let mut sentences: Vec<String> = Vec::new();
        for (subject, values) in by_subject(&stated) {
            let pieces = sentence(&statement, subjects, subject, &values, fields);
            sentences.push(pieces.into_iter().map(|(piece, _)| piece).collect());
        }
        text.push_str(&sentences.join(" "));
        text.push('\n');
    }
    text
}

/// Appends a question and its answer to `parts`; a part is a text with the weight of its tokens in the loss. `asked`
/// has the facts that the question asks for: the index of each subject, with the indices of its values. `fields` are
/// the names of the two values.
fn ask(
    asked: &[(usize, Vec<usize>)],
    phrasing: &Phrasing,
    subjects: &[Subject],
    fields: &[&str],
    parts: &mut Vec<(String, f32)>,
) {
    let subject_of_question = |(subject, values): &(usize, Vec<usize>)| {
        let pieces = sentence(&phrasing.subject, subjects, *subject, values, fields);
        pieces.into_iter().map(|(text, _)| text).collect::<String>()
    };
    let all: Vec<String> = asked.iter().map(subject_of_question).collect();
    let (before, after) = &phrasing.question;
    parts.push((format!("Question: {before}{}{after}\nAnswer:", all.join(" and ")), CONTENT));
    for (subject, values) in asked {
        parts.push((" ".to_owned(), CONTENT));
        // Random words cannot be predicted, so learning them teaches nothing.
        let scaffold = if phrasing.is_familiar { SCAFFOLD } else { CONTENT };
        let answer = sentence(&phrasing.answer, subjects, *subject, values, fields);
        parts.extend(
            answer.into_iter().map(|(text, is_value)| (text, if is_value { VALUE } else { scaffold })),
        );
    }
    parts.push(("\n".to_owned(), CONTENT));
}

/// Draws a name that none of `others` has: the noun `numbered` with a number, such as `patient 12`, or the two names of
/// a person if `numbered` is `None`. The loop ends soon, since an example has far fewer persons or things than there
/// are names.
fn subject_name(draw: &mut Draw, numbered: Option<&str>, others: &[Subject]) -> String {
    loop {
        let name = match numbered {
            Some(noun) => format!("{noun} {}", 1 + draw.below(100)),
            None => draw.name(),
        };
        if others.iter().all(|other| other.name != name) {
            return name;
        }
    }
}

/// Draws the facts that a question asks for: one or both values of one or two subjects. `documents` lists for each
/// document the facts that it states, as pairs of the index of a subject and the index of a value. Only stated facts
/// are drawn. A fact that several documents state occurs several times in the result.
fn asked_facts(draw: &mut Draw, documents: &[Vec<(usize, usize)>]) -> Vec<(usize, usize)> {
    let stated: Vec<(usize, usize)> = documents.iter().flatten().copied().collect();
    let mut asked = Vec::new();
    for _ in 0..=draw.below(2) {
        let Some(&(subject, value)) = stated.get(draw.below(stated.len())) else { continue };
        let wants_both = draw.below(2) == 0;
        asked.extend(stated.iter().filter(|fact| fact.0 == subject && (wants_both || fact.1 == value)));
    }
    asked
}

/// Groups facts by their subject. A fact is a pair of the index of a subject and the index of a value (0 or 1). Returns
/// each subject with its values, in the order of the indices; a fact that occurs several times is returned once.
fn by_subject(facts: &[(usize, usize)]) -> Vec<(usize, Vec<usize>)> {
    let mut facts = facts.to_vec();
    facts.sort_unstable();
    facts.dedup();
    let mut groups: Vec<(usize, Vec<usize>)> = Vec::new();
    for (subject, value) in facts {
        match groups.last_mut().filter(|(last, _)| *last == subject) {
            Some((_, values)) => values.push(value),
            None => groups.push((subject, vec![value])),
        }
    }
    groups
}

/// Fills the blanks of a phrasing for the subject with the index `subject`. `{e}` becomes the name of the subject,
/// `{v}` its values with the indices `values`, and `{a}` the names of these values in `fields`. Returns the pieces of
/// the text, each with whether it is a value.
fn sentence(
    phrasing: &str,
    subjects: &[Subject],
    subject: usize,
    values: &[usize],
    fields: &[&str],
) -> Vec<(String, bool)> {
    let Some(own) = subjects.get(subject) else { return Vec::new() };
    let mut pieces: Vec<(String, bool)> = Vec::new();
    let mut rest = phrasing;
    // Each round fills the blank that comes first in the rest of the phrasing.
    let blanks = ["{e}", "{a}", "{v}"];
    while let Some((at, blank)) =
        blanks.iter().filter_map(|blank| rest.find(blank).map(|at| (at, *blank))).min()
    {
        pieces.push((rest.get(..at).unwrap_or_default().to_owned(), false));
        rest = rest.get(at + blank.len()..).unwrap_or_default();
        for (index, value) in values.iter().enumerate() {
            // The name is written once, however many values there are.
            if blank == "{e}" {
                pieces.push((own.name.clone(), false));
                break;
            }
            if index > 0 {
                pieces.push((" and ".to_owned(), false));
            }
            let text = if blank == "{a}" {
                fields.get(*value).map(|field| (*field).to_owned())
            } else {
                own.values.get(*value).cloned()
            };
            pieces.push((text.unwrap_or_default(), blank == "{v}"));
        }
    }
    pieces.push((rest.to_owned(), false));
    pieces.retain(|(text, _)| !text.is_empty());
    pieces
}
