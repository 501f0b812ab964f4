//! Generates the key-value data set (Permissive Information-Flow Analysis, section 4.5): 128 documents with the social security numbers and
//! dates of birth of persons who do not exist, split and replicated over documents, and 64 questions with 14 documents each. No two documents have
//! comparable labels, so a question can have several minimal labels.

use std::collections::BTreeSet;

use super::question::{Fact, Question, SourceDocument, flat_labels};
use crate::games::random::SeededRandom;

/// The number of documents of the data set.
pub const DOCUMENTS: usize = 128;
/// The number of questions of the data set.
pub const QUESTIONS: usize = 64;
/// The number of documents of a context.
pub const CONTEXT: usize = 14;
/// The number of documents of a context on which Algorithm 1 runs as the paper states it.
pub const SMALL_CONTEXT: usize = 8;

/// The stream of random numbers of this data set; an arbitrary number.
const STREAM: u64 = 0x6b65_7976_616c;
/// The ways to split the two facts of a person over documents. A way has a pair for each document: whether it states the number, and whether the
/// date.
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
struct Corpus {
    documents: Vec<SourceDocument>,
    /// The number and the date of each person. They are the facts 2 p and 2 p + 1 of the person at position p.
    values: Vec<[String; 2]>,
}

/// Generates `count` questions with `context` documents each. The same seed gives the same questions. `None` if the labels cannot be built, or no
/// question was found whose relevant documents fit into the context.
pub fn generate(seed: u64, count: usize, context: usize) -> Option<Vec<Question>> {
    let mut random = SeededRandom::new(seed, STREAM);
    let corpus = corpus(&mut random)?;
    (0..count).map(|_| question(&corpus, context, &mut random)).collect()
}

/// Generates the documents, person by person, until there are [`DOCUMENTS`]. One of the [`LAYOUTS`] is drawn for each person and says which documents
/// state which of the person's two facts. So some questions need one document, and others need two with different labels. `None` if the labels cannot
/// be built.
fn corpus(random: &mut SeededRandom) -> Option<Corpus> {
    let labels = flat_labels(DOCUMENTS)?;
    let mut values: Vec<[String; 2]> = Vec::new();
    let mut facts: Vec<BTreeSet<Fact>> = Vec::new();
    while facts.len() < DOCUMENTS {
        let layout = LAYOUTS.get(random.below(LAYOUTS.len())).copied().unwrap_or_default();
        // The layout would exceed the number of documents. A layout with one document exists, so another one is drawn at some time.
        if facts.len() + layout.len() > DOCUMENTS {
            continue;
        }
        let person = values.len();
        values.push(fresh_values(&values, random));
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
        text: statement(&facts, &values),
        label,
        facts,
    };
    let documents = facts.into_iter().zip(labels).map(document).collect();
    Some(Corpus { documents, values })
}

/// Draws a number and a date that no known person has, so that a value identifies its person.
fn fresh_values(known: &[[String; 2]], random: &mut SeededRandom) -> [String; 2] {
    loop {
        let number = format!("SSN{:08}", random.below(100_000_000));
        let (day, month, year) = (1 + random.below(28), 1 + random.below(12), 1940 + random.below(65));
        let date = format!("{day:02}-{month:02}-{year}");
        if known.iter().all(|[known_number, known_date]| *known_number != number && *known_date != date) {
            return [number, date];
        }
    }
}

/// Groups facts by person. Returns each person with two flags: whether the number is among the facts, and whether the date is.
fn by_person(facts: &BTreeSet<Fact>) -> Vec<(usize, bool, bool)> {
    let persons: BTreeSet<usize> = facts.iter().map(|fact| fact / 2).collect();
    persons
        .into_iter()
        .map(|person| (person, facts.contains(&(2 * person)), facts.contains(&(2 * person + 1))))
        .collect()
}

/// Names what a sentence or a question is about: the number, the date, or both.
fn topic(number: bool, date: bool) -> &'static str {
    match (number, date) {
        (true, true) => "social security number and date of birth",
        (true, false) => "social security number",
        _ => "date of birth",
    }
}

/// Writes facts as text, in one sentence for each person.
fn statement(facts: &BTreeSet<Fact>, values: &[[String; 2]]) -> String {
    let sentence = |(person, number, date): (usize, bool, bool)| {
        let [own_number, own_date] = values.get(person).cloned().unwrap_or_default();
        let stated: Vec<String> = [(number, own_number), (date, own_date)]
            .into_iter()
            .filter(|(is, _)| *is)
            .map(|(_, value)| value)
            .collect();
        format!("The {} of person {} is {} .", topic(number, date), person + 1, stated.join(" and "))
    };
    by_person(facts).into_iter().map(sentence).collect::<Vec<_>>().join(" ")
}

/// Draws a question about one or two persons, and fills its context with documents. Its relevant documents, those that state a fact of the answer,
/// must fit into the context with room for at least one other. `None` if no attempt finds such a question.
fn question(corpus: &Corpus, context: usize, random: &mut SeededRandom) -> Option<Question> {
    // A few attempts suffice. The limit ends the search for a context that is too small for any question.
    for _ in 0..1000 {
        let mut needs = BTreeSet::new();
        for _ in 0..=random.below(2) {
            let person = random.below(corpus.values.len());
            // The question asks for the number, the date, or with twice the probability for both.
            let asked = [&[0][..], &[1], &[0, 1], &[0, 1]].get(random.below(4)).copied().unwrap_or_default();
            needs.extend(asked.iter().map(|fact| 2 * person + fact));
        }
        let is_relevant = |document: &SourceDocument| document.facts.intersection(&needs).next().is_some();
        let (relevant, others): (Vec<_>, Vec<_>) = corpus.documents.iter().partition(|d| is_relevant(d));
        if relevant.len() < context && others.len() + relevant.len() >= context {
            return Some(fill(corpus, needs, (relevant, others), context, random));
        }
    }
    None
}

/// Builds a question about the facts `needs`. The pair has the relevant documents, which state one of these facts, and the others. Adds random others
/// to the relevant ones until the context is full, and shuffles all, so that the position of a document says nothing.
fn fill(
    corpus: &Corpus,
    needs: BTreeSet<Fact>,
    (mut documents, mut others): (Vec<&SourceDocument>, Vec<&SourceDocument>),
    context: usize,
    random: &mut SeededRandom,
) -> Question {
    while documents.len() < context && !others.is_empty() {
        documents.push(others.swap_remove(random.below(others.len())));
    }
    let mut shuffled = Vec::with_capacity(documents.len());
    while !documents.is_empty() {
        shuffled.push(documents.swap_remove(random.below(documents.len())).clone());
    }
    let asked = |(person, number, date)| format!("the {} of person {}", topic(number, date), person + 1);
    let asked: Vec<String> = by_person(&needs).into_iter().map(asked).collect();
    let text = format!("What is {} ?", asked.join(" and "));
    let answer = statement(&needs, &corpus.values);
    Question { text, answer, needs, documents: shuffled }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_data_set_has_its_size_and_repeats() {
        let questions = generate(1, QUESTIONS, CONTEXT).unwrap();
        assert_eq!(questions, generate(1, QUESTIONS, CONTEXT).unwrap());
        assert_ne!(questions, generate(2, QUESTIONS, CONTEXT).unwrap());
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
        assert!(generate(1, QUESTIONS, SMALL_CONTEXT).is_some());
        assert_eq!(generate(1, 1, 1), None, "no document fits");
    }

    #[test]
    fn facts_are_stated_in_full() {
        let mut random = SeededRandom::new(3, STREAM);
        let corpus = corpus(&mut random).unwrap();
        assert_eq!(corpus.documents.len(), DOCUMENTS);
        for document in &corpus.documents {
            for (person, values) in corpus.values.iter().enumerate() {
                for (kind, value) in values.iter().enumerate() {
                    let is_stated = document.text.split_whitespace().any(|word| word == value);
                    assert_eq!(document.facts.contains(&(2 * person + kind)), is_stated, "{}", document.text);
                }
            }
        }
    }
}
