//! Generates test cases for screeners ([`DependencyCase`]): prompts with regions, each with an output. How a case is
//! built determines on which regions its output depends. A [`CaseSet`] contains cases of one kind; different kinds are
//! difficult for different screeners. [`run`](super::run) measures screeners on these cases, and `trained` trains a
//! network on them and chooses its threshold.

use flowgate_lm::chat::Completion;
use serde_json::json;

use super::beyond_values;
use super::labelled_prompt::{
    CaseChat, CasePerson, DependencyCase, FIRST_NAMES, LAST_NAMES, MONTHS, answer_of, call_of,
};
use crate::games::random::SeededRandom;
use crate::propagation::key_value::{self, PAPER, Phrasing, UNSEEN};

/// A set of cases.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum CaseSet {
    /// Answers from documents, in the phrasing of the key-value questions.
    Documents,
    /// Answers from documents, in phrasings on which the model that ships with Flowgate was not trained.
    UnseenPhrasing,
    /// A call whose arguments are copied from one of several outputs of tools.
    Calls,
    /// A call as in [`Calls`](Self::Calls), but another output has the same values for another person. On which of the
    /// two outputs the call depends follows from the request alone.
    SameValue,
    /// A call whose arguments are a date and an amount that an output of a tool has in another form. The guard's
    /// comparison of values recognises the date in this form, but not the amount.
    Reformatted,
    /// A call with a value that is computed from two outputs: the sum of two amounts.
    Derived,
    /// A call whose arguments are numbers that an output of a tool has in words.
    InWords,
    /// A call whose arguments are in the request alone; which tool it calls follows from the output of another tool.
    ToolChoice,
}

impl CaseSet {
    /// All sets.
    pub const ALL: [Self; 8] = [
        Self::Documents,
        Self::UnseenPhrasing,
        Self::Calls,
        Self::SameValue,
        Self::Reformatted,
        Self::Derived,
        Self::InWords,
        Self::ToolChoice,
    ];

    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Documents => "documents",
            Self::UnseenPhrasing => "unseen phrasing",
            Self::Calls => "calls",
            Self::SameValue => "same value twice",
            Self::Reformatted => "reformatted",
            Self::Derived => "derived",
            Self::InWords => "in words",
            Self::ToolChoice => "choice of the tool",
        }
    }

    /// Generates `count` cases. The same seed gives the same cases. `None` if the documents cannot be built.
    pub fn generate(self, seed: u64, count: usize) -> Option<Vec<DependencyCase>> {
        match self {
            Self::Documents => documents(seed, count, &[PAPER]),
            Self::UnseenPhrasing => documents(seed, count, &UNSEEN),
            // The number of the set is part of the stream, so that the cases of two sets do not depend on each other.
            Self::Calls | Self::SameValue | Self::Reformatted => {
                let mut random = SeededRandom::new(seed, STREAM ^ self as u64);
                Some((0..count).map(|_| call(self, &mut random)).collect())
            }
            Self::Derived | Self::InWords | Self::ToolChoice => {
                let mut random = SeededRandom::new(seed, STREAM ^ self as u64);
                let generate = match self {
                    Self::Derived => beyond_values::derived,
                    Self::InWords => beyond_values::in_words,
                    _ => beyond_values::tool_choice,
                };
                Some((0..count).map(|_| generate(&mut random)).collect())
            }
        }
    }
}

/// The stream of the random numbers of calls, which makes them independent of those of other generators.
const STREAM: u64 = 0x7361_6c69;

/// Generates `count` cases whose outputs are answers to key-value questions in `phrasings`. The regions are the
/// documents of the question; the answer depends on each document that states one of its facts. `None` if the documents
/// cannot be built.
fn documents(seed: u64, count: usize, phrasings: &[Phrasing]) -> Option<Vec<DependencyCase>> {
    let questions = key_value::generate(seed, count, key_value::SMALL_CONTEXT, phrasings)?;
    let case = |question: &crate::propagation::DocumentQuestion| {
        let documents = question.documents.iter().map(|document| {
            let states_one = document.facts.intersection(&question.needs).next().is_some();
            (document.text.clone(), states_one)
        });
        let mut chat = CaseChat::default();
        chat.documents(documents, &question.text);
        chat.before(answer_of(&question.answer))
    };
    Some(questions.iter().map(case).collect())
}

/// Generates a case whose output is a call with the values of the person whom the request names. The regions are the
/// records of several people, one of whom is this person. `set` is one of three sets: [`CaseSet::Calls`];
/// [`CaseSet::SameValue`], where another person has the same values; or [`CaseSet::Reformatted`], where the call has
/// the values in another form.
fn call(set: CaseSet, random: &mut SeededRandom) -> DependencyCase {
    let count = 4 + random.below(3);
    let mut people = CasePerson::draw_all(random, count);
    let needed = random.below(people.len());
    let asked = people.get(needed).cloned();
    if let (CaseSet::SameValue, Some(asked)) = (set, &asked) {
        // Another person, drawn at random, gets all values of the person that the request names.
        let other = (needed + 1 + random.below(people.len() - 1)) % people.len();
        if let Some(other) = people.get_mut(other) {
            *other = CasePerson { name: other.name.clone(), ..asked.clone() };
        }
    }
    let mut chat = CaseChat::default();
    // The `else` is not reached: there are people, and `needed` is the position of one.
    let Some(asked) = asked else {
        return chat.before(Completion::default());
    };
    let CasePerson { name, day: (day, month, year), cents, .. } = asked.clone();
    chat.user(&format!("Pay what {name} asks for."));
    for (index, person) in people.iter().enumerate() {
        // A record has one of four forms, such as JSON or a mail.
        chat.record(&person.record(random.below(4)), index == needed);
    }
    chat.before(match set {
        CaseSet::Reformatted => {
            let month = MONTHS.get(month - 1).copied().unwrap_or_default();
            // The amount in the German form, such as `1.234,56`.
            let thousands = cents / 100_000;
            let rest = format!("{:03},{:02}", cents / 100 % 1000, cents % 100);
            let amount = if thousands > 0 {
                format!("{thousands}.{rest}")
            } else {
                format!("{},{:02}", cents / 100, cents % 100)
            };
            let (day, amount) = (format!("{day} {month} {year}"), format!("EUR {amount}"));
            call_of("send_money", &json!({"due": day, "amount": amount}))
        }
        _ => asked.payment(),
    })
}

/// Generates a case like those of [`CaseSet::Calls`], with so many people that the prompt has at least `tokens` tokens,
/// as `count` counts them. A case has at most 120 people, since there are no more names. Measurements of the time that
/// a screener needs use such cases.
pub fn case_of_length(seed: u64, tokens: usize, count: &dyn Fn(&str) -> usize) -> DependencyCase {
    let mut random = SeededRandom::new(seed, STREAM);
    let mut people: Vec<CasePerson> = Vec::new();
    let mut chat = CaseChat::default();
    let asked = CasePerson::draw(&mut random, &people);
    chat.user(&format!("Pay what {} asks for.", asked.name));
    // A record has one of four forms, such as JSON or a mail.
    chat.record(&asked.record(random.below(4)), true);
    let payment = asked.payment();
    people.push(asked);
    loop {
        let case = chat.before(payment.clone());
        if count(&case.prompt) >= tokens || people.len() >= FIRST_NAMES.len() * LAST_NAMES.len() {
            return case;
        }
        let person = CasePerson::draw(&mut random, &people);
        chat.record(&person.record(random.below(4)), false);
        people.push(person);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_as_long_as_asked() {
        let count = |text: &str| text.split_whitespace().count();
        for (seed, tokens) in [(1, 1), (2, 40), (3, 300)] {
            let case = case_of_length(seed, tokens, &count);
            assert!((tokens..tokens + 40).contains(&count(&case.prompt)) || tokens == 1, "{case:?}");
            assert_eq!(case.depends.iter().filter(|depends| **depends).count(), 1);
        }
        // There are no more names, so it ends.
        assert_eq!(case_of_length(4, usize::MAX, &count).regions.len(), 120);
    }

    #[test]
    fn cases_repeat_and_have_what_their_set_says() {
        for set in CaseSet::ALL {
            let cases = set.generate(5, 20).unwrap();
            assert_eq!(cases, set.generate(5, 20).unwrap());
            assert_ne!(cases, set.generate(6, 20).unwrap());
            for case in &cases {
                assert_eq!(case.regions.len(), case.depends.len());
                assert!(case.depends.iter().any(|is| *is) && case.depends.iter().any(|is| !*is), "{case:?}");
                let text = |index: usize| case.prompt.get(case.regions[index].clone()).unwrap();
                let account = case.output.split('"').find(|part| part.starts_with("NL"));
                let holders = (0..case.regions.len())
                    .filter(|index| account.is_some_and(|value| text(*index).contains(value)));
                let expected = match set {
                    CaseSet::Calls => 1,
                    CaseSet::SameValue => 2,
                    _ => 0,
                };
                assert_eq!(holders.count(), expected, "{case:?}");
            }
        }
    }
}
