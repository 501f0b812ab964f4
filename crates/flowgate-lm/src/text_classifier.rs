//! Defines [`TextClassifier`], which decides with learned weights which labels apply to a text: a logistic regression
//! over hashed words and pairs of neighbouring words. The weights of one label take 16 KiB. Flowgate's own detector of
//! prompt injections is such a classifier, which `flowgate bench train-detector` trains; a program can train others.
//! Also defines [`TextLabelModel`], the trait of models that compute the probability that each label applies to a text:
//! this classifier, and local models that are loaded from a folder.
//!
//! A [`TextClassifier`] considers which words occur and not what they mean. It can therefore be deceived, and it misses
//! attacks that its training did not contain. Like every detector, it only helps a reviewer; a rule that must hold uses
//! labels.

use crate::Error;

/// The number of features that hashes distinguish.
const BUCKETS: usize = 1 << 14;
/// The passes over the examples.
const PASSES: u64 = 12;
/// The logit of a text without known words. It is a constant below 0 and not trained, so that no label applies to such
/// a text.
const PRIOR: f64 = -1.0;
/// The size of the first steps of the training.
const RATE: f64 = 0.5;
/// The number of words of a window. A text is classified window by window, and the window with the highest score
/// counts, so that much other text cannot hide a sentence.
const WINDOW: usize = 32;
/// The words between the beginnings of two windows.
const STRIDE: usize = 16;
/// The number of characters of a word that are read. This limit bounds the work for a text without spaces.
const MAX_WORD: usize = 32;
/// The first line of a file of weights, before the labels.
const FORMAT: &str = "flowgate-text-classifier 1";
/// The most labels that a file may have.
const MAX_LABELS: usize = 64;

/// A model that says which labels apply to a text: a [`TextClassifier`], or a model in a folder (feature `local`).
pub trait TextLabelModel: Send + Sync {
    /// Returns the labels, in the order of the probabilities.
    fn labels(&self) -> Vec<&str>;

    /// Returns for each label the probability that it applies to the text.
    ///
    /// # Errors
    /// If the model fails, or cannot read the text.
    fn label_probabilities(&self, text: &str) -> Result<Vec<f64>, Error>;
}

impl TextLabelModel for TextClassifier {
    fn labels(&self) -> Vec<&str> {
        Self::labels(self).collect()
    }

    fn label_probabilities(&self, text: &str) -> Result<Vec<f64>, Error> {
        Ok(self.probabilities(text))
    }
}

/// A text with the labels that apply to it: one entry for each label of the classifier.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ClassifiedText {
    /// The text.
    pub text: String,
    /// Whether each label applies.
    pub labels: Vec<bool>,
}

/// A trained classifier. Several labels can apply to a text.
#[derive(Debug, Clone, PartialEq)]
pub struct TextClassifier {
    classes: Vec<TextClass>,
}

/// The weights of one label.
#[derive(Debug, Clone, PartialEq)]
struct TextClass {
    label: String,
    /// What one unit of `weights` adds to the logit, before [`share`] is applied.
    scale: f32,
    /// The logit of a text without evidence.
    bias: f32,
    /// The weight of each feature, in units of `scale`.
    weights: Vec<i8>,
}

impl TextClassifier {
    /// Trains a classifier on `examples`, one label after the other. `seed` determines the order in which each pass
    /// reads the examples: the same examples, labels and seed give the same weights. `step` is called after each pass,
    /// so that the caller can show progress or stop: if `step` returns true, the training fails with
    /// [`Error::Cancelled`].
    ///
    /// # Errors
    /// If there are no labels or too many, if a label is empty or has control characters, if an example does not have
    /// one entry for each label, or if a label applies to all examples or to none.
    pub fn train(
        labels: &[&str],
        examples: &[ClassifiedText],
        seed: u64,
        step: &mut dyn FnMut() -> bool,
    ) -> Result<Self, Error> {
        let fail = |problem: String| Err(Error::Failed(problem));
        if labels.is_empty() || labels.len() > MAX_LABELS {
            return fail(format!("{} labels are given; give 1 to {MAX_LABELS} labels", labels.len()));
        }
        if let Some(label) = labels.iter().find(|label| label.is_empty() || label.contains(char::is_control))
        {
            return fail(format!("the label {label:?} is empty or has control characters; rename it"));
        }
        if let Some(position) = examples.iter().position(|example| example.labels.len() != labels.len()) {
            return fail(format!(
                "example {position} (counted from 0) does not have one entry for each label; add or remove entries \
                of its field `labels`"
            ));
        }
        // Each example is read as a single window, since examples are short.
        let features: Vec<Vec<usize>> =
            examples.iter().map(|example| features(&words(&example.text))).collect();
        let mut classes = Vec::new();
        for (index, label) in labels.iter().enumerate() {
            let applies = |example: &ClassifiedText| example.labels.get(index).copied().unwrap_or(false);
            let positive = examples.iter().filter(|example| applies(example)).count();
            if positive == 0 || positive == examples.len() {
                return fail(format!(
                    "the label `{label}` applies to all examples or to none; give examples of both kinds"
                ));
            }
            let targets: Vec<bool> = examples.iter().map(applies).collect();
            classes.push(train_class(label, &features, &targets, seed, step)?);
        }
        Ok(Self { classes })
    }

    /// Returns the labels, in the order of the training.
    pub fn labels(&self) -> impl Iterator<Item = &str> {
        self.classes.iter().map(|class| class.label.as_str())
    }

    /// Returns for each label, in order, the probability that it applies to the text: the highest probability in any
    /// window of the text; 0 for a text without words.
    #[must_use]
    pub fn probabilities(&self, text: &str) -> Vec<f64> {
        let words = words(text);
        let mut highest = vec![0.0_f64; self.classes.len()];
        // Windows overlap, so that a sentence at the end of one window is whole in the next. The last window may be
        // shorter.
        let mut start = 0;
        while let Some(window) = words.get(start..words.len().min(start + WINDOW)).filter(|w| !w.is_empty()) {
            let features = features(window);
            for (class, highest) in self.classes.iter().zip(&mut highest) {
                *highest = highest.max(probability(class.logit(&features)));
            }
            if start + WINDOW >= words.len() {
                break;
            }
            start += STRIDE;
        }
        highest
    }

    /// Writes the classifier to bytes: lines of text with the labels, and then the weights.
    #[must_use]
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = format!("{FORMAT}\n").into_bytes();
        for class in &self.classes {
            // The numbers are written as their bits, so that exactly the same numbers are read.
            let (scale, bias) = (class.scale.to_bits(), class.bias.to_bits());
            bytes.extend(format!("{scale:08x} {bias:08x} {}\n", class.label).into_bytes());
        }
        bytes.push(b'\n');
        bytes.extend(
            self.classes.iter().flat_map(|class| class.weights.iter().map(|weight| weight.cast_unsigned())),
        );
        bytes
    }

    /// Reads a classifier from bytes that [`to_bytes`](Self::to_bytes) wrote: a line that names the format, a line for
    /// each label, an empty line, and then one byte for each weight of the first label, of the second label, and so on.
    ///
    /// # Errors
    /// If the bytes do not have this form; the error names the line.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let fail = |line: usize, problem: &str| {
            Err(Error::Failed(format!(
                "line {line} of the classifier's weights: {problem}; train the classifier again"
            )))
        };
        let mut rest = bytes;
        // Removes the next line from `rest` and returns it; `None` if it does not end or is not valid UTF-8.
        let mut next_line = || {
            let end = memchr::memchr(b'\n', rest)?;
            let (line, after) = rest.split_at_checked(end)?;
            rest = after.get(1..)?;
            std::str::from_utf8(line).ok()
        };
        if next_line() != Some(FORMAT) {
            return fail(1, &format!("`{FORMAT}` is missing"));
        }
        let mut classes: Vec<TextClass> = Vec::new();
        loop {
            let number = classes.len() + 2;
            let Some(line) = next_line() else {
                return fail(number, "the line is missing or not valid UTF-8");
            };
            if line.is_empty() {
                break;
            }
            let Some(class) = Self::read_class(line) else {
                return fail(number, "the line does not have the form `SCALE BIAS LABEL`");
            };
            classes.push(class);
            if classes.len() > MAX_LABELS {
                return fail(number, &format!("there are more than {MAX_LABELS} labels"));
            }
        }
        // The number of the line after the empty one, where the weights begin.
        let number = classes.len() + 3;
        if classes.is_empty() {
            return fail(number - 1, "there are no labels");
        }
        if rest.len() != classes.len() * BUCKETS {
            let wanted = classes.len() * BUCKETS;
            return fail(
                number,
                &format!("{wanted} bytes of weights are expected, but there are {}", rest.len()),
            );
        }
        for (class, weights) in classes.iter_mut().zip(rest.chunks(BUCKETS)) {
            class.weights = weights.iter().map(|byte| byte.cast_signed()).collect();
        }
        Ok(Self { classes })
    }

    /// Reads a label, without its weights, from its line. `None` if the line does not have the form `SCALE BIAS LABEL`,
    /// or if one of the two numbers is not finite.
    fn read_class(line: &str) -> Option<TextClass> {
        // A label may contain spaces, so only the first two spaces divide the line.
        let mut parts = line.splitn(3, ' ');
        let mut float = || Some(f32::from_bits(u32::from_str_radix(parts.next()?, 16).ok()?));
        let (scale, bias) = (float()?, float()?);
        let label = parts.next().filter(|label| !label.is_empty())?;
        if !scale.is_finite() || !bias.is_finite() {
            return None;
        }
        Some(TextClass { label: label.to_owned(), scale, bias, weights: Vec::new() })
    }
}

impl TextClass {
    /// Returns the logit of a window with these features: the logarithm of the odds that the label applies.
    fn logit(&self, features: &[usize]) -> f64 {
        let sum: i64 = features
            .iter()
            .filter_map(|feature| self.weights.get(*feature))
            .map(|weight| i64::from(*weight))
            .sum();
        #[expect(clippy::cast_precision_loss, reason = "the sum of the weights of a window is small")]
        let sum = sum as f64;
        f64::from(self.bias) + sum * f64::from(self.scale) * share(features.len())
    }
}

/// Trains the weights of one label by logistic regression, with gradient descent by AdaGrad: the steps of a weight
/// become smaller the more its gradients add up. `features` and `targets` have one entry for each example: the numbers
/// of the features that the example has, and whether the label applies. `seed` determines the order of the examples.
///
/// # Errors
/// If `step`, which is called after each pass over the examples, returns true: the caller stops the training.
fn train_class(
    label: &str,
    features: &[Vec<usize>],
    targets: &[bool],
    seed: u64,
    step: &mut dyn FnMut() -> bool,
) -> Result<TextClass, Error> {
    let mut weights = vec![0.0_f64; BUCKETS];
    // The sums of the squared gradients. They begin above 0, since their roots are divisors.
    let mut squares = vec![1e-6_f64; BUCKETS];
    for pass in 0..PASSES {
        // Each pass has another order of the examples: that of hashes of their indices.
        let mut order: Vec<(u64, usize)> =
            (0..features.len()).map(|index| (hash(&[seed, pass, index as u64]), index)).collect();
        order.sort_unstable();
        for (_, index) in order {
            let (Some(active), Some(target)) = (features.get(index), targets.get(index)) else { continue };
            // The loss is the negative log-probability of the target. Its gradient with respect to the logit is `error`,
            // and each active weight adds to the logit with the factor `share`.
            let share = share(active.len());
            let logit =
                PRIOR + active.iter().filter_map(|feature| weights.get(*feature)).sum::<f64>() * share;
            let error = probability(logit) - f64::from(u8::from(*target));
            let gradient = error * share;
            for feature in active {
                let (Some(weight), Some(square)) = (weights.get_mut(*feature), squares.get_mut(*feature))
                else {
                    continue;
                };
                *square += gradient * gradient;
                *weight -= RATE * gradient / square.sqrt();
            }
        }
        if step() {
            return Err(Error::Cancelled);
        }
    }
    // The weights are stored in 8 bits: the greatest one becomes 127 units.
    let greatest = weights.iter().fold(0.0_f64, |greatest, weight| greatest.max(weight.abs()));
    let scale = (greatest / 127.0).max(f64::MIN_POSITIVE);
    #[expect(
        clippy::cast_possible_truncation,
        reason = "at most 127 units; the numbers are in single precision"
    )]
    let class = TextClass {
        label: label.to_owned(),
        scale: scale as f32,
        bias: PRIOR as f32,
        weights: weights.iter().map(|weight| (weight / scale).round() as i8).collect(),
    };
    Ok(class)
}

/// Returns the factor for the weights of a window with `count` features. It is smaller for more features, so that long
/// windows do not get higher logits.
fn share(count: usize) -> f64 {
    #[expect(clippy::cast_precision_loss, reason = "the features of a window are few")]
    let count = count.max(1) as f64;
    1.0 / count.sqrt()
}

/// Returns the probability with this logit.
fn probability(logit: f64) -> f64 {
    1.0 / (1.0 + (-logit).exp())
}

/// Returns the words of a text in lower case, cut off after [`MAX_WORD`] characters. In a word that has a letter,
/// digits and signs are replaced by the letters that they resemble, so that a spelling such as `1gn0re` does not hide
/// the word.
fn words(text: &str) -> Vec<String> {
    // `@` and `$` can be spelled in place of letters, so they do not separate words.
    let words = text.split(|c: char| !c.is_alphanumeric() && c != '@' && c != '$');
    let words = words.filter(|word| !word.is_empty());
    words
        .map(|word| {
            let has_letter = word.contains(char::is_alphabetic);
            let lower = word.chars().take(MAX_WORD).flat_map(char::to_lowercase);
            lower.map(|c| if has_letter { letter(c) } else { c }).collect()
        })
        .collect()
}

/// Returns the letter that a digit or sign resembles; other characters are returned unchanged.
fn letter(c: char) -> char {
    match c {
        '0' => 'o',
        '1' => 'i',
        '3' => 'e',
        '4' | '@' => 'a',
        '5' | '$' => 's',
        '7' => 't',
        other => other,
    }
}

/// Returns the features of a window (its words and pairs of neighbouring words, as numbers of buckets), each once.
fn features(window: &[String]) -> Vec<usize> {
    // `kind` is 1 for a word and 2 for a pair, so that their hashes differ.
    let bucket = |kind: u64, text: &[&str]| {
        let parts: Vec<u64> = std::iter::once(kind).chain(text.iter().map(|part| hash_text(part))).collect();
        usize::try_from(hash(&parts) % BUCKETS as u64).unwrap_or_default()
    };
    let mut found: Vec<usize> = window.iter().map(|word| bucket(1, &[word])).collect();
    found.extend(window.array_windows().map(|[first, second]| bucket(2, &[first, second])));
    found.sort_unstable();
    found.dedup();
    found
}

/// Returns the FNV-1a hash of a text.
fn hash_text(text: &str) -> u64 {
    text.bytes()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Returns a hash of numbers. The numbers are mixed as in SplitMix64, so that each bit of the result depends on all of
/// them.
fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(0x9e37_79b9_7f4a_7c15, |state, part| {
        let mut mixed = (state ^ part).wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sentences about weather or about food, or about both.
    fn examples() -> Vec<ClassifiedText> {
        let weather =
            ["rain falls on the hills", "the sun shines", "a storm comes tonight", "clouds and rain"];
        let food = ["soup with bread", "we eat fresh bread", "the soup is hot", "bake the bread slowly"];
        let mut examples = Vec::new();
        for (first, second) in weather.iter().zip(food) {
            for (text, labels) in [
                ((*first).to_owned(), [true, false]),
                (second.to_owned(), [false, true]),
                (format!("{first}, {second}"), [true, true]),
            ] {
                examples.push(ClassifiedText { text, labels: labels.to_vec() });
            }
        }
        examples
    }

    fn train() -> TextClassifier {
        TextClassifier::train(&["weather", "food"], &examples(), 7, &mut || false).unwrap()
    }

    #[test]
    fn it_learns_repeats_and_is_saved() {
        let classifier = train();
        let filler = "and then nothing else happened at all in this long report ".repeat(30);
        for (text, expected) in [
            ("rain again tonight", [true, false]),
            ("hot bread", [false, true]),
            ("R4in ag4in ton1ght", [true, false]),
            (&format!("{filler} a storm comes tonight, soup with bread {filler}"), [true, true]),
            ("", [false, false]),
            ("... !", [false, false]),
        ] {
            let found = classifier.probabilities(text);
            let decided: Vec<bool> = found.iter().map(|probability| *probability > 0.5).collect();
            assert_eq!(decided, expected, "{text}: {found:?}");
            assert!(found.iter().all(|probability| (0.0..=1.0).contains(probability)), "{text}");
        }
        assert_eq!(train(), classifier);
        assert_eq!(classifier.labels().collect::<Vec<_>>(), ["weather", "food"]);
        let bytes = classifier.to_bytes();
        assert_eq!(TextClassifier::from_bytes(&bytes).unwrap(), classifier);
        assert!(bytes.len() < 2 * BUCKETS + 200, "{}", bytes.len());
    }

    #[test]
    fn what_cannot_be_learned_is_an_error() {
        let one = |labels: &[bool]| vec![ClassifiedText { text: "a".to_owned(), labels: labels.to_vec() }; 2];
        for (labels, examples, part) in [
            (&[][..], one(&[]), "1 to 64 labels"),
            (&["a\nb"], one(&[true]), "control characters"),
            (&["a", "b"], one(&[true]), "example 0 (counted from 0) does not have one entry for each label"),
            (&["a"], one(&[true]), "`a` applies to all examples or to none"),
            (&["a"], one(&[false]), "`a` applies to all examples or to none"),
            (&["a"], Vec::new(), "`a` applies to all examples or to none"),
        ] {
            let error = TextClassifier::train(labels, &examples, 1, &mut || false).unwrap_err().to_string();
            assert!(error.contains(part), "{error}");
        }
        let stopped = TextClassifier::train(&["weather", "food"], &examples(), 1, &mut || true);
        assert_eq!(stopped.unwrap_err(), Error::Cancelled);
    }

    #[test]
    fn damaged_weights_name_their_line() {
        let bytes = train().to_bytes();
        let text = |text: &str| text.as_bytes().to_vec();
        for (damaged, part) in [
            (Vec::new(), "line 1 of the classifier's weights: `flowgate-text-classifier 1` is missing"),
            (text("flowgate-text-classifier 2\n"), "`flowgate-text-classifier 1` is missing"),
            (
                text("flowgate-text-classifier 1\n"),
                "line 2 of the classifier's weights: the line is missing or not valid UTF-8",
            ),
            (
                text("flowgate-text-classifier 1\n\n"),
                "line 2 of the classifier's weights: there are no labels",
            ),
            (text("flowgate-text-classifier 1\n3f800000 x a\n\n"), "line does not have the form"),
            (text("flowgate-text-classifier 1\n3f800000 7f800000 a\n\n"), "line does not have the form"),
            (text("flowgate-text-classifier 1\n3f800000 3f800000 \n\n"), "line does not have the form"),
            (
                text("flowgate-text-classifier 1\n3f800000 3f800000 a\n\nxyz"),
                "line 4 of the classifier's weights: 16384 bytes of weights are expected, but there are 3",
            ),
            (
                bytes.iter().copied().take(bytes.len() - 1).collect(),
                "32768 bytes of weights are expected, but there are 32767",
            ),
            ([bytes.as_slice(), b"x"].concat(), "but there are 32769"),
            (text("flowgate-text-classifier 1\n"), "train the classifier again"),
            (
                format!("{FORMAT}\n{}", "3f800000 3f800000 a\n".repeat(65)).into_bytes(),
                "line 66 of the classifier's weights: there are more than 64 labels",
            ),
        ] {
            let error = TextClassifier::from_bytes(&damaged).unwrap_err().to_string();
            assert!(error.contains(part), "{error}, expected {part}");
        }
    }
}
