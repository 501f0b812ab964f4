//! Defines [`Corpus`], which generates the texts for the training of small models. The trainer takes the examples of
//! each step from a corpus.
//!
//! An example is determined by the seed of the corpus and by the number of the example, so that a training can be
//! resumed at any step, and examples can be reserved for evaluation. The task of the model is to copy values from the
//! regions of a text. In the loss, the tokens of copied values therefore have the weight 1. The words and signs around
//! the values have a lower weight, and the regions, whose content is random, have almost none.
//!
//! | file | purpose |
//! |---|---|
//! | `question.rs` | documents, and a question about facts that they state |
//! | `tool_call.rs` | outputs of tools, and a call with values from one of them |
//! | `ignoring.rs` | outputs of tools that the call does not need, and a call with values from the request |
//! | `copying.rs` | texts whose passages are repeated |
//! | `phrasing.rs` | the phrasings of facts and questions |
//! | `draw.rs` | random words, names and values |

mod copying;
mod draw;
mod ignoring;
mod phrasing;
mod question;
mod tool_call;

use self::draw::Draw;

/// A source of generated examples, numbered from 0.
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum ExampleKind {
    /// Documents about persons or things, and questions about them with their answers.
    Question,
    /// A text, and passages of it that are repeated.
    Copying,
    /// Outputs of tools, and calls with values from them.
    ToolCall,
    /// Outputs of tools, and calls with values from the request, which ignore the outputs.
    Ignoring,
}

/// The weight of the tokens of regions and questions.
const CONTENT: f32 = 0.01;
/// The weight of the tokens around values.
const SCAFFOLD: f32 = 0.25;
/// The weight of the tokens of values that are copied.
pub(super) const VALUE: f32 = 1.0;
/// The number of examples at the beginning of the corpus of which three quarters are texts with repeated passages
/// (`copying.rs`). Of the later examples, one eighth are such texts.
const FIRST_EXAMPLES: usize = 3000;
/// The number of examples at the beginning of the corpus for which three or four documents are drawn: a model learns to
/// copy from short texts first.
const SHORT_EXAMPLES: usize = 5000;
/// The number of examples after which the greatest number of documents that can be drawn rises by one, counted from the
/// example [`SHORT_EXAMPLES`] on.
const LONGER_EXAMPLES: usize = 250;

impl Corpus {
    /// Creates the corpus with this seed.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns the example with the number `index`. The same seed and number always give the same example.
    ///
    /// The kind of an example is random. One example in eight copies passages; of the first 3000 examples, six in eight
    /// do. One in eight has calls of tools: the calls of half of these examples have values of the outputs, and those
    /// of the other half ignore the outputs. All others are questions about documents. Examples with higher numbers can
    /// have more documents.
    #[must_use]
    pub fn example(&self, index: usize) -> Example {
        let number = u64::try_from(index).unwrap_or(u64::MAX);
        // The large factor keeps the generators of different seeds and numbers apart.
        let mut draw = Draw::new(self.seed.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(number));
        match draw.below(8) {
            0 => copying::copying_example(&mut draw),
            1..=5 if index < FIRST_EXAMPLES => copying::copying_example(&mut draw),
            6 if draw.below(2) == 0 => ignoring::ignoring_example(&mut draw),
            6 => tool_call::tool_call_example(&mut draw),
            _ => {
                // How many documents beyond four can be drawn: 0 in the first examples, and in the end 10.
                let further = index.saturating_sub(SHORT_EXAMPLES) / LONGER_EXAMPLES;
                question::question_example(&mut draw, 4 + further.min(10))
            }
        }
    }
}

impl ExampleKind {
    /// Returns the name for reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Question => "question",
            Self::ToolCall => "tool call",
            Self::Copying => "copying",
            Self::Ignoring => "ignoring",
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_in_a_region_and_examples_repeat() {
        let corpus = Corpus::new(3);
        let mut kinds = std::collections::BTreeMap::new();
        for index in 0..400 {
            let example = corpus.example(index);
            assert_eq!(example, Corpus::new(3).example(index));
            assert_ne!(example, Corpus::new(4).example(index));
            *kinds.entry(example.kind()).or_insert(0) += 1;
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
            // What precedes the first request are the regions.
            let (outputs, _) = example.parts().first().unwrap();
            if example.kind() == ExampleKind::Ignoring {
                assert!(values.iter().all(|(value, _)| !outputs.contains(value)), "{}", example.text());
            }
        }
        // Of the first examples, an eighth asks a question, and a sixteenth each calls a tool with a value of an output
        // or with one of the request: 25 of 400 are expected.
        assert!(kinds.len() == 4 && kinds.values().all(|count| *count > 12), "{kinds:?}");
    }
}
