//! Generates the news data set (Permissive Information-Flow Analysis, section 4.5): pairs of a trusted and an untrusted
//! article on the same event, with facts that only one of them states, and facts that both state. The label of an
//! answer can be improved if the trusted article suffices for it. The templates are the project's own; a set can also
//! be made of articles that were read from a folder. `suite.rs` generates a [`NewsSet`].

use std::collections::BTreeSet;

use flowgate_lm::{Error, TextEmbedder};

use super::embeddings::EmbeddingIndex;
use super::question::{DocumentQuestion, Fact, SourceDocument, integrity_labels};
use super::retrieve::TfIdf;
use crate::corpora::NewsPairs;
use crate::games::random::SeededRandom;

/// The number of pairs of the data set.
pub const PAIRS: usize = 240;
/// The number of articles of a context.
pub const CONTEXT: usize = 6;
/// The number of facts of a pair.
const FACTS: usize = 4;

/// The stream of random numbers of this data set; an arbitrary number.
const STREAM: u64 = 0x6e65_7773;

/// For each fact of a pair, whether the trusted article states it, and whether the untrusted one does.
const STATED: [(bool, bool); FACTS] = [(true, true), (true, false), (false, true), (true, true)];
/// The facts that each question of a pair asks for. In order: one that both articles state, one of the trusted article
/// alone, one of the untrusted article alone, two that no article has together, and two that both state.
const ASKED: [&[usize]; 5] = [&[0], &[1], &[2], &[1, 2], &[3, 0]];

/// The templates of a kind of event. In them, `{name}` is replaced by the name of the event, and `{v}` by the value of
/// the fact.
struct Topic {
    headline: &'static str,
    /// For each fact the sentence that states it, the question for it, and the answer.
    facts: [[&'static str; 3]; FACTS],
}

/// The kinds of events, one of which each pair of articles is about.
const TOPICS: [Topic; 6] = [
    Topic {
        headline: "{name} opens a new bridge",
        facts: [
            [
                "The bridge of {name} is {v} metres long .",
                "how long is the bridge of {name}",
                "the bridge of {name} is {v} metres long",
            ],
            [
                "It cost {v} million crowns .",
                "what did the bridge of {name} cost",
                "the bridge of {name} cost {v} million crowns",
            ],
            [
                "The first to cross was a cyclist called {v} .",
                "who was the first to cross the bridge of {name}",
                "the first to cross was {v}",
            ],
            [
                "The architect is {v} .",
                "who is the architect of the bridge of {name}",
                "the architect is {v}",
            ],
        ],
    },
    Topic {
        headline: "The company {name} presents its tablet",
        facts: [
            [
                "The tablet of {name} costs {v} dollars .",
                "what does the tablet of {name} cost",
                "the tablet of {name} costs {v} dollars",
            ],
            [
                "Its battery lasts {v} hours .",
                "how long does the battery of the tablet of {name} last",
                "the battery lasts {v} hours",
            ],
            [
                "A new colour is called {v} .",
                "which new colour does {name} offer",
                "the new colour is called {v}",
            ],
            [
                "Sales begin in the shop of {v} .",
                "where do sales of {name} begin",
                "sales begin in the shop of {v}",
            ],
        ],
    },
    Topic {
        headline: "{name} wins the regional cup",
        facts: [
            [
                "The club {name} won by {v} points .",
                "by how many points did {name} win",
                "the club {name} won by {v} points",
            ],
            ["There were {v} spectators .", "how many spectators saw {name}", "there were {v} spectators"],
            [
                "The coach thanked his neighbour {v} .",
                "whom did the coach of {name} thank",
                "the coach thanked {v}",
            ],
            [
                "The decisive player was {v} .",
                "who was the decisive player of {name}",
                "the decisive player was {v}",
            ],
        ],
    },
    Topic {
        headline: "Storm over {name}",
        facts: [
            [
                "The storm over {name} reached {v} kilometres an hour .",
                "how fast was the storm over {name}",
                "the storm over {name} reached {v} kilometres an hour",
            ],
            [
                "Power failed in {v} houses .",
                "in how many houses of {name} did power fail",
                "power failed in {v} houses",
            ],
            [
                "A barn of the family {v} lost its roof .",
                "whose barn lost its roof in the storm over {name}",
                "a barn of the family {v} lost its roof",
            ],
            [
                "The head of the fire service is {v} .",
                "who is the head of the fire service of {name}",
                "the head of the fire service is {v}",
            ],
        ],
    },
    Topic {
        headline: "Study of {name} on sleep",
        facts: [
            [
                "The institute {name} studied {v} adults .",
                "how many adults did {name} study",
                "the institute {name} studied {v} adults",
            ],
            [
                "They slept {v} minutes longer .",
                "how much longer did the adults of {name} sleep",
                "they slept {v} minutes longer",
            ],
            [
                "A participant recommends the tea {v} .",
                "which tea does a participant of {name} recommend",
                "a participant recommends the tea {v}",
            ],
            ["The author is {v} .", "who is the author of the study of {name}", "the author is {v}"],
        ],
    },
    Topic {
        headline: "The museum {name} shows old maps",
        facts: [
            [
                "The museum {name} shows {v} maps .",
                "how many maps does {name} show",
                "the museum {name} shows {v} maps",
            ],
            ["Entry costs {v} euros .", "what does entry to {name} cost", "entry costs {v} euros"],
            [
                "Visitors like the café {v} best .",
                "what do visitors of {name} like best",
                "visitors like the café {v} best",
            ],
            ["The curator is {v} .", "who is the curator of {name}", "the curator is {v}"],
        ],
    },
];

/// The articles of all pairs, and the questions about them.
#[derive(Debug, Clone)]
pub struct NewsSet {
    /// The articles of pair p are at the positions 2 p (trusted) and 2 p + 1 (untrusted).
    articles: Vec<SourceDocument>,
    asked: Vec<AskedPair>,
}

/// A question about a pair, for which no articles were retrieved so far.
#[derive(Debug, Clone)]
struct AskedPair {
    /// The number of the pair.
    pair: usize,
    /// The question.
    text: String,
    answer: String,
    /// The facts that the answer states.
    needs: BTreeSet<Fact>,
}

/// How the articles of a question are found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retriever {
    /// Both articles of the pair, and random others.
    Perfect,
    /// The articles whose words are most similar to those of the question, by TF-IDF. They may miss a fact of the
    /// answer.
    TfIdf,
    /// The articles whose embeddings are most similar to that of the question. They may miss a fact of the answer.
    Embeddings,
}

impl Retriever {
    /// The retrievers that need no model.
    pub const WITHOUT_MODEL: [Self; 2] = [Self::Perfect, Self::TfIdf];

    /// Returns the name for reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Perfect => "perfect",
            Self::TfIdf => "tf-idf",
            Self::Embeddings => "embeddings",
        }
    }
}

impl NewsSet {
    /// Generates pairs of articles with five questions each. The four facts of the pair p are numbered from 4 p. The
    /// same seed gives the same set. `None` if the labels cannot be built.
    pub fn generate(seed: u64, pairs: usize) -> Option<Self> {
        let [trusted, untrusted] = integrity_labels()?;
        let mut random = SeededRandom::new(seed, STREAM);
        let (mut articles, mut asked) = (Vec::new(), Vec::new());
        for pair in 0..pairs {
            let topic = TOPICS.get(random.below(TOPICS.len()))?;
            let name = name(pair, &mut random);
            let values = values(topic, &mut random);
            // Fills a template with the name of the pair and the value of one of its facts.
            let fill = |template: &str, fact: usize| {
                let value = values.get(fact).map_or("", String::as_str);
                template.replace("{name}", &name).replace("{v}", value)
            };
            for (label, is_trusted) in [(trusted, true), (untrusted, false)] {
                // Whether this article states the fact.
                let is_stated = |fact: &usize| {
                    STATED.get(*fact).is_some_and(
                        |(in_trusted, in_untrusted)| if is_trusted { *in_trusted } else { *in_untrusted },
                    )
                };
                let stated: Vec<usize> = (0..FACTS).filter(is_stated).collect();
                let sentence =
                    |fact: &usize| topic.facts.get(*fact).map(|[sentence, ..]| fill(sentence, *fact));
                let sentences: Vec<String> = stated.iter().filter_map(sentence).collect();
                // A headline has no value of a fact, so the number of the fact has no effect.
                let text = format!("{} . {}", fill(topic.headline, 0), sentences.join(" "));
                let facts = stated.iter().map(|fact| FACTS * pair + fact).collect();
                articles.push(SourceDocument { text, label, facts });
            }
            for facts in ASKED {
                // The question (`index` 1) or the answer (`index` 2): the filled templates of all facts that the
                // question asks for, joined.
                let part = |index: usize| {
                    let filled = |fact: &usize| Some(fill(topic.facts.get(*fact)?.get(index)?, *fact));
                    facts.iter().filter_map(filled).collect::<Vec<_>>().join(" , and ")
                };
                let needs = facts.iter().map(|fact| FACTS * pair + fact).collect();
                asked.push(AskedPair { pair, text: format!("{} ?", part(1)), answer: part(2), needs });
            }
        }
        Some(Self { articles, asked })
    }

    /// Makes a data set of the first `pairs` pairs in `found` that have questions. `found` has the articles and
    /// questions that were read from a folder. The legitimate article of a pair is trusted, the fake one is not. Every
    /// fourth pair is for tuning, and all other pairs are reported. Returns the set that is reported, and then the set
    /// for tuning. `None` if the labels cannot be built, or there are fewer than two pairs with questions.
    pub fn of_pairs(found: &NewsPairs, pairs: usize) -> Option<[Self; 2]> {
        let [trusted, untrusted] = integrity_labels()?;
        let asked: BTreeSet<usize> = found.questions.iter().map(|question| question.pair).collect();
        let asked: Vec<usize> = asked.into_iter().take(pairs).collect();
        // Facts are numbered across all questions of a set, and also across the two sets.
        let mut next_fact = 0;
        // Builds the set for tuning, or the one that is reported.
        let mut build = |tunes: bool| {
            let (mut articles, mut questions) = (Vec::new(), Vec::new());
            for (place, pair) in asked.iter().enumerate() {
                // The first of every four pairs is for tuning, so two pairs suffice for both sets.
                let is_for_tuning = place % 4 == 0;
                if is_for_tuning != tunes {
                    continue;
                }
                let source = found.pairs.get(*pair)?;
                // The facts that the legitimate article states, and those that the fake one states.
                let (mut of_legit, mut of_fake) = (BTreeSet::new(), BTreeSet::new());
                // The number of the pair in this set, in which each earlier pair has two articles.
                let number = articles.len() / 2;
                for question in found.questions.iter().filter(|question| question.pair == *pair) {
                    let facts = next_fact..next_fact + question.facts.len();
                    next_fact = facts.end;
                    for (fact, (in_legit, in_fake)) in facts.clone().zip(&question.facts) {
                        if *in_legit {
                            of_legit.insert(fact);
                        }
                        if *in_fake {
                            of_fake.insert(fact);
                        }
                    }
                    questions.push(AskedPair {
                        pair: number,
                        text: question.text.clone(),
                        answer: question.answer.clone(),
                        needs: facts.collect(),
                    });
                }
                articles.push(SourceDocument { text: source.legit.clone(), label: trusted, facts: of_legit });
                articles.push(SourceDocument { text: source.fake.clone(), label: untrusted, facts: of_fake });
            }
            (!questions.is_empty()).then_some(Self { articles, asked: questions })
        };
        let tuning = build(true)?;
        Some([build(false)?, tuning])
    }

    /// Returns the questions, each with both articles of its pair and random others, [`CONTEXT`] in all. The seed
    /// determines the random articles.
    pub fn perfect_questions(&self, seed: u64) -> Vec<DocumentQuestion> {
        // The stream of random numbers differs from that of the articles, since both can have the same seed.
        let mut random = SeededRandom::new(seed, STREAM + 1);
        let found = self.asked.iter().map(|asked| self.pair_and_others(asked.pair, &mut random)).collect();
        self.questions_with(found)
    }

    /// Returns the questions, each with the [`CONTEXT`] articles whose words are most similar to those of the question.
    pub fn tf_idf_questions(&self) -> Vec<DocumentQuestion> {
        let index = TfIdf::new(&self.texts());
        self.questions_with(self.asked.iter().map(|asked| index.nearest(&asked.text, CONTEXT)).collect())
    }

    /// Returns the questions, each with the [`CONTEXT`] articles whose embeddings are most similar to that of the
    /// question.
    ///
    /// # Errors
    /// If the model fails, or its embeddings cannot be compared.
    pub fn embedded_questions(&self, embedder: &dyn TextEmbedder) -> Result<Vec<DocumentQuestion>, Error> {
        let index = EmbeddingIndex::new(embedder, &self.texts())?;
        let asked: Vec<&str> = self.asked.iter().map(|asked| asked.text.as_str()).collect();
        Ok(self.questions_with(index.nearest(embedder, &asked, CONTEXT)?))
    }

    /// Returns the number of articles and of questions.
    pub(super) fn counts(&self) -> [usize; 2] {
        [self.articles.len(), self.asked.len()]
    }

    /// Returns the texts of all articles.
    fn texts(&self) -> Vec<&str> {
        self.articles.iter().map(|article| article.text.as_str()).collect()
    }

    /// Returns the questions, each with the articles at the positions that `found` has for it.
    fn questions_with(&self, found: Vec<Vec<usize>>) -> Vec<DocumentQuestion> {
        let question = |(asked, found): (&AskedPair, Vec<usize>)| {
            let documents = found.iter().filter_map(|article| self.articles.get(*article).cloned()).collect();
            DocumentQuestion {
                text: asked.text.clone(),
                answer: asked.answer.clone(),
                needs: asked.needs.clone(),
                documents,
                asks_first: false,
            }
        };
        self.asked.iter().zip(found).map(question).collect()
    }

    /// Returns the indices of both articles of a pair, followed by random others. Together they are [`CONTEXT`]
    /// articles, or all if there are fewer.
    fn pair_and_others(&self, pair: usize, random: &mut SeededRandom) -> Vec<usize> {
        let mut found = vec![2 * pair, 2 * pair + 1];
        while found.len() < CONTEXT.min(self.articles.len()) {
            let other = random.below(self.articles.len());
            if !found.contains(&other) {
                found.push(other);
            }
        }
        found
    }
}

/// Draws a name for the event of a pair. It ends with the number of the pair, so no other pair has it.
fn name(pair: usize, random: &mut SeededRandom) -> String {
    let syllables = ["Ba", "Ker", "Lo", "Mi", "Nar", "Ost", "Pel", "Ru", "Sten", "Tal", "Ur", "Vex"];
    let ends = ["dorf", "holm", "mere", "quay", "stead", "vale"];
    let (first, second) = (random.choose(&syllables), random.choose(&syllables).to_lowercase());
    format!("{first}{second}{}{pair}", random.choose(&ends))
}

/// Draws a value for each fact of a topic. The value is a name if it ends the sentence, and a number if other words
/// follow it. Names end with a number, so that the values of two pairs are rarely equal.
fn values(topic: &Topic, random: &mut SeededRandom) -> Vec<String> {
    let given = ["Anouk", "Bela", "Carmen", "Dario", "Edith", "Farid", "Greta", "Hugo", "Ilka", "Joris"];
    let family = ["Abend", "Brook", "Castell", "Dunmore", "Eklund", "Fontane", "Grieg", "Hallam"];
    let value = |[sentence, ..]: &[&str; 3]| {
        // The value ends the sentence if `{v} .` is in it.
        if sentence.contains("{v} .") {
            format!("{}-{}-{}", random.choose(&given), random.choose(&family), random.below(900))
        } else {
            format!("{}.{}", 10 + random.below(900), random.below(90))
        }
    };
    topic.facts.iter().map(value).collect()
}

#[cfg(test)]
mod tests {
    use super::super::embeddings::tests::CharacterCounts;
    use super::*;
    use crate::corpora::fake_news::tests::folder;
    use crate::corpora::load_news_pairs;

    #[test]
    fn the_questions_have_computed_labels() {
        let set = NewsSet::generate(1, PAIRS).unwrap();
        let questions = set.perfect_questions(1);
        assert_eq!((set.articles.len(), questions.len()), (2 * PAIRS, ASKED.len() * PAIRS));
        assert_eq!(questions, NewsSet::generate(1, PAIRS).unwrap().perfect_questions(1));
        let [trusted, untrusted] = integrity_labels().unwrap();
        for (question, facts) in questions.iter().zip(ASKED.iter().cycle()) {
            let span = question.span().unwrap();
            let truth = question.truth(&span);
            // Both, trusted alone; with the third fact, untrusted.
            let expected = if facts.contains(&2) { untrusted } else { trusted };
            assert_eq!(truth.iter().map(|e| span.label(*e)).collect::<Vec<_>>(), [expected], "{facts:?}");
            for document in &question.documents {
                let is_stated = question.needs.iter().all(|fact| document.facts.contains(fact));
                let value = question.answer.split_whitespace().find(|w| w.contains(['-', '.']));
                let is_there = value.is_some_and(|value| document.text.contains(value));
                assert!(!is_stated || is_there, "{} {}", question.answer, document.text);
            }
        }
    }

    /// The names in a question find most of its articles, but a retriever by words is not perfect by construction.
    #[test]
    fn the_retriever_finds_articles_by_words() {
        let set = NewsSet::generate(2, 40).unwrap();
        let questions = set.tf_idf_questions();
        let found = |question: &&DocumentQuestion| {
            question.needs.iter().all(|fact| question.documents.iter().any(|d| d.facts.contains(fact)))
        };
        let all = questions.iter().filter(found).count();
        assert!(2 * all > questions.len(), "{all} of {}", questions.len());
        assert!(questions.iter().all(|question| question.documents.len() == CONTEXT));
        // Counts of characters find fewer articles than words do, and the number of articles is the same.
        let embedded = set.embedded_questions(&CharacterCounts).unwrap();
        assert_eq!(embedded.len(), questions.len());
        assert!(embedded.iter().all(|question| question.documents.len() == CONTEXT));
        assert!(embedded.iter().filter(found).count() > 0);
    }

    /// Facts that one article states decide the label; no pair is both for tuning and reported.
    #[test]
    fn pairs_of_a_folder_become_questions() {
        let found = load_news_pairs(&folder("")).unwrap();
        let [reported, tuning] = NewsSet::of_pairs(&found, 240).unwrap();
        assert_eq!((reported.asked.len(), tuning.asked.len()), (2, 1));
        let [trusted, untrusted] = integrity_labels().unwrap();
        for (question, expected) in reported
            .perfect_questions(1)
            .iter()
            .chain(&tuning.perfect_questions(1))
            .zip([trusted, untrusted, trusted])
        {
            let span = question.span().unwrap();
            let truth = question.truth(&span);
            assert_eq!(
                truth.iter().map(|e| span.label(*e)).collect::<Vec<_>>(),
                [expected],
                "{}",
                question.text
            );
        }
        for question in &reported.asked {
            assert!(tuning.asked.iter().all(|other| other.text != question.text), "{}", question.text);
        }
        assert!(NewsSet::of_pairs(&found, 1).is_none(), "a single pair cannot be divided");
    }
}
