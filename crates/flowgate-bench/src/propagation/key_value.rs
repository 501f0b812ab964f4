//! Generates the key-value data set (Permissive Information-Flow Analysis, section 4.5): 128 documents with the social
//! security numbers and dates of birth of persons who do not exist, split and replicated over documents, and 64
//! questions with 14 documents each. No two documents have comparable labels, so a question can have several minimal
//! labels. `suite.rs` calls [`generate`].

use std::collections::BTreeSet;

use super::question::{DocumentQuestion, Fact, SourceDocument, flat_labels};
use crate::games::random::SeededRandom;

/// The number of documents of the data set.
pub const DOCUMENTS: usize = 128;
/// The number of questions of the data set.
pub const QUESTIONS: usize = 64;
/// The number of documents of a context.
pub const CONTEXT: usize = 14;
/// The number of documents of a context that is small enough for Algorithm 1 of *Permissive Information-Flow Analysis*,
/// whose number of tests grows with the size of the lattice.
pub const SMALL_CONTEXT: usize = 8;

/// The stream of random numbers of this data set; an arbitrary number.
const STREAM: u64 = 0x6b65_7976_616c;
/// The ways to split the two facts of a person over documents. A way has a pair of flags for each document: whether the
/// document states the number, and whether it states the date.
const LAYOUTS: [&[(bool, bool)]; 7] = [
    &[(true, true)],
    &[(true, false), (false, true)],
    &[(true, false), (false, true), (true, true)],
    &[(true, true), (true, true)],
    &[(true, false), (true, false), (false, true)],
    &[(true, false), (false, true), (false, true)],
    &[(true, true), (true, false)],
];

/// The documents, with the values of each person.
struct KeyValueDocuments {
    documents: Vec<SourceDocument>,
    /// The number and the date of each person. They are the facts 2 p and 2 p + 1 of the person at position p.
    values: Vec<[String; 2]>,
}

/// How facts and questions are phrased. In the texts, `{topic}` is what a fact is about, such as `date of birth`,
/// `{person}` the number of the person, and `{values}` the value of the fact.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Phrasing {
    /// A sentence of a document or an answer.
    statement: &'static str,
    /// What a question asks for.
    asked: &'static str,
    /// The text of a question before and after [`asked`](Self::asked).
    question: (&'static str, &'static str),
}

/// The phrasing of *Permissive Information-Flow Analysis* (Figure 4).
pub const PAPER: Phrasing = Phrasing {
    statement: "The {topic} of person {person} is {values} .",
    asked: "the {topic} of person {person}",
    question: ("What is ", " ?"),
};

/// Phrasings that the model which ships with Flowgate was not trained on. The questions use them in turn: a question,
/// its documents and its answer have the same one.
pub const UNSEEN: [Phrasing; 6] = [
    Phrasing {
        statement: "It is on record that person {person} goes by {topic} {values} .",
        asked: "person {person} by {topic}",
        question: ("Kindly state ", " ."),
    },
    Phrasing {
        statement: "person {person} -> {topic} -> {values} ;",
        asked: "person {person} -> {topic}",
        question: ("resolve ", " ;"),
    },
    Phrasing {
        statement: "<fact person={person} topic='{topic}'> {values} </fact>",
        asked: "<fact person={person} topic='{topic}'>",
        question: ("complete ", ""),
    },
    Phrasing {
        statement: "Ask after person {person} and you hear that the {topic} equals {values} .",
        asked: "person {person} about the {topic}",
        question: ("Whom do we ask, and what is heard, of ", " ?"),
    },
    Phrasing {
        statement: "{topic} ( holder : person {person} ) => {values} .",
        asked: "{topic} ( holder : person {person} )",
        question: ("Evaluate ", " =>"),
    },
    Phrasing {
        statement: "Clerks wrote {values} next to the {topic} in the folder of person {person} .",
        asked: "the {topic} in the folder of person {person}",
        question: ("What did clerks write next to ", " ?"),
    },
];

/// Generates `count` questions with `context` documents each; the phrasings take turns. The same seed gives the same
/// questions. `None` if the labels cannot be built, or no question fits into the context.
pub fn generate(
    seed: u64,
    count: usize,
    context: usize,
    phrasings: &[Phrasing],
) -> Option<Vec<DocumentQuestion>> {
    let mut random = SeededRandom::new(seed, STREAM);
    let corpus = corpus(&mut random)?;
    let question = |index: usize| {
        // Without phrasings, `PAPER` applies.
        let phrasing = phrasings.get(index % phrasings.len().max(1)).copied().unwrap_or(PAPER);
        question(&corpus, context, phrasing, &mut random)
    };
    (0..count).map(question).collect()
}

/// Generates the documents, person by person, until there are [`DOCUMENTS`]. One of the [`LAYOUTS`] is drawn for each
/// person and says which documents state which of the person's two facts. So some questions need one document, and
/// others need two with different labels. `None` if the labels cannot be built.
fn corpus(random: &mut SeededRandom) -> Option<KeyValueDocuments> {
    let labels = flat_labels(DOCUMENTS)?;
    let mut values: Vec<[String; 2]> = Vec::new();
    let mut facts: Vec<BTreeSet<Fact>> = Vec::new();
    while facts.len() < DOCUMENTS {
        let layout = LAYOUTS.get(random.below(LAYOUTS.len())).copied().unwrap_or_default();
        // If the layout would exceed the number of documents, another one is drawn. One of the layouts has a single
        // document, so the loop ends.
        if facts.len() + layout.len() > DOCUMENTS {
            continue;
        }
        // Two facts belong to the person `p`: 2 p is the number, and 2 p + 1 the date.
        let person = values.len();
        values.push(fresh_values(&values, random));
        // For each document of the layout: whether it states the number, and whether it states the date.
        for (number, date) in layout {
            let own = [(*number, 2 * person), (*date, 2 * person + 1)];
            let mut stated: BTreeSet<Fact> =
                own.into_iter().filter(|(is_stated, _)| *is_stated).map(|(_, fact)| fact).collect();
            // One document in eight also states a fact of an earlier person.
            if person > 0 && random.below(8) == 0 {
                stated.insert(random.below(2 * person));
            }
            facts.push(stated);
        }
    }
    let document = |(facts, label): (BTreeSet<Fact>, _)| SourceDocument {
        // The text is written when a question is built, in its phrasing.
        text: String::new(),
        label,
        facts,
    };
    let documents = facts.into_iter().zip(labels).map(document).collect();
    Some(KeyValueDocuments { documents, values })
}

/// Draws a number and a date that none of the `known` persons has, so that a value identifies its person.
fn fresh_values(known: &[[String; 2]], random: &mut SeededRandom) -> [String; 2] {
    loop {
        let number = format!("SSN{:08}", random.below(100_000_000));
        // Every month has at least 28 days.
        let (day, month, year) = (1 + random.below(28), 1 + random.below(12), 1940 + random.below(65));
        let date = format!("{day:02}-{month:02}-{year}");
        if known.iter().all(|[known_number, known_date]| *known_number != number && *known_date != date) {
            return [number, date];
        }
    }
}

/// Groups facts by person: the facts 2p and 2p + 1 are the number and the date of the person at position p. Each item
/// is the position of a person, whether the person's number is among the facts, and whether the date is.
fn by_person(facts: &BTreeSet<Fact>) -> Vec<(usize, bool, bool)> {
    let persons: BTreeSet<usize> = facts.iter().map(|fact| fact / 2).collect();
    persons
        .into_iter()
        .map(|person| (person, facts.contains(&(2 * person)), facts.contains(&(2 * person + 1))))
        .collect()
}

/// Returns the words for what a sentence or a question is about: the number, the date, or both. At least one of the
/// flags must be true.
fn topic(number: bool, date: bool) -> &'static str {
    match (number, date) {
        (true, true) => "social security number and date of birth",
        (true, false) => "social security number",
        _ => "date of birth",
    }
}

/// Returns facts as a text, with one sentence for each person. `values` has the number and the date of each person.
fn statement(phrasing: Phrasing, facts: &BTreeSet<Fact>, values: &[[String; 2]]) -> String {
    // `number` and `date` are flags: whether the sentence states the number, and whether it states the date.
    let sentence = |(person, number, date): (usize, bool, bool)| {
        let [own_number, own_date] = values.get(person).cloned().unwrap_or_default();
        let stated: Vec<String> = [(number, own_number), (date, own_date)]
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, value)| value)
            .collect();
        // The phrasing has blanks for what is stated, for the person and for the values.
        fill_template(phrasing.statement, topic(number, date), person)
            .replace("{values}", &stated.join(" and "))
    };
    by_person(facts).into_iter().map(sentence).collect::<Vec<_>>().join(" ")
}

/// Replaces `{topic}` and `{person}` in a text of a phrasing; `{values}` stays. `person` is the position of the person
/// from 0; the text has the number from 1.
fn fill_template(text: &str, topic: &str, person: usize) -> String {
    text.replace("{topic}", topic).replace("{person}", &(person + 1).to_string())
}

/// Draws a question about one or two persons, and fills its context with documents. The relevant documents, which state
/// a fact of the answer, must fit into the context with room for at least one other. The result is `None` if 1000
/// attempts find no such question.
fn question(
    corpus: &KeyValueDocuments,
    context: usize,
    phrasing: Phrasing,
    random: &mut SeededRandom,
) -> Option<DocumentQuestion> {
    // A few attempts suffice. The limit ends the search for a context that is too small for any question.
    for _ in 0..1000 {
        let mut needs = BTreeSet::new();
        for _ in 0..=random.below(2) {
            let person = random.below(corpus.values.len());
            // Fact 0 of a person is the number, fact 1 the date. The question asks for the number, the date, or with
            // twice the probability for both.
            let asked = [&[0][..], &[1], &[0, 1], &[0, 1]].get(random.below(4)).copied().unwrap_or_default();
            needs.extend(asked.iter().map(|fact| 2 * person + fact));
        }
        let is_relevant = |document: &SourceDocument| document.facts.intersection(&needs).next().is_some();
        let (relevant, others): (Vec<_>, Vec<_>) = corpus.documents.iter().partition(|d| is_relevant(d));
        if relevant.len() < context && others.len() + relevant.len() >= context {
            return Some(fill(corpus, needs, (relevant, others), (context, phrasing), random));
        }
    }
    None
}

/// Builds a question about the facts `needs` with `context` documents. `documents` are the relevant ones, which state
/// one of these facts; `others` do not. Random others are added until the context is full. Then all are shuffled, so
/// that the position of a document says nothing. `phrasing` has the sentences of the documents, the question and the
/// answer.
fn fill(
    corpus: &KeyValueDocuments,
    needs: BTreeSet<Fact>,
    (mut documents, mut others): (Vec<&SourceDocument>, Vec<&SourceDocument>),
    (context, phrasing): (usize, Phrasing),
    random: &mut SeededRandom,
) -> DocumentQuestion {
    while documents.len() < context && !others.is_empty() {
        documents.push(others.swap_remove(random.below(others.len())));
    }
    let mut shuffled = Vec::with_capacity(documents.len());
    while !documents.is_empty() {
        let document = documents.swap_remove(random.below(documents.len()));
        let text = statement(phrasing, &document.facts, &corpus.values);
        shuffled.push(SourceDocument { text, ..document.clone() });
    }
    // The question names each person, with the number, the date or both.
    let asked = |(person, number, date)| fill_template(phrasing.asked, topic(number, date), person);
    let asked: Vec<String> = by_person(&needs).into_iter().map(asked).collect();
    let (before, after) = phrasing.question;
    let text = format!("{before}{}{after}", asked.join(" and "));
    let answer = statement(phrasing, &needs, &corpus.values);
    DocumentQuestion { text, answer, needs, documents: shuffled, asks_first: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_set_has_its_size_and_repeats() {
        let questions = generate(1, QUESTIONS, CONTEXT, &[PAPER]).unwrap();
        assert_eq!(questions, generate(1, QUESTIONS, CONTEXT, &[PAPER]).unwrap());
        assert_ne!(questions, generate(2, QUESTIONS, CONTEXT, &[PAPER]).unwrap());
        assert_eq!(questions.len(), QUESTIONS);
        let mut several = 0;
        for question in &questions {
            assert_eq!(question.documents.len(), CONTEXT);
            let span = question.span().unwrap();
            assert_eq!(span.labels().len(), CONTEXT, "each document has its own label");
            // All facts are there, and without the documents of a truth one is missing.
            let truth = question.truth(&span);
            several += usize::from(truth.len() > 1);
            for element in &truth {
                assert!(question.is_covered(&span, *element) && *element != span.top());
                assert!(span.children(*element).iter().all(|child| !question.is_covered(&span, *child)));
            }
            let words: Vec<&str> = question.answer.split_whitespace().collect();
            let context = question.context().prompt(&span.documents(span.top()));
            assert!(words.iter().all(|word| context.split_whitespace().any(|known| known == *word)));
        }
        assert!(several > QUESTIONS / 4, "{several} questions with several minimal labels");
        assert!(generate(1, QUESTIONS, SMALL_CONTEXT, &UNSEEN).is_some());
        assert_eq!(generate(1, 1, 1, &[PAPER]), None, "no document fits");
    }

    #[test]
    fn facts_are_stated_in_full() {
        let mut random = SeededRandom::new(3, STREAM);
        let corpus = corpus(&mut random).unwrap();
        assert_eq!(corpus.documents.len(), DOCUMENTS);
        for document in &corpus.documents {
            for (person, values) in corpus.values.iter().enumerate() {
                for (kind, value) in values.iter().enumerate() {
                    for phrasing in UNSEEN.into_iter().chain([PAPER]) {
                        let text = statement(phrasing, &document.facts, &corpus.values);
                        let is_stated = text.split_whitespace().any(|word| word == value);
                        assert_eq!(document.facts.contains(&(2 * person + kind)), is_stated, "{text}");
                    }
                }
            }
        }
    }
}
