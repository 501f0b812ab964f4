//! Finds the regions that share a value with a drafted message: [`DraftValues`]. A value is a number, a date, a time,
//! an address or a code, a whole argument of a call, or a sentence of at least three words.
//!
//! The screener *attention* names such a region whatever its classifier says about it. If text that is always visible
//! states a value as well, no region is needed for this value, as for the method
//! [`provenance`](crate::influence::provenance). The measurements of screeners in `flowgate-bench` use the same values.

use flowgate_lm::chat::Completion;
use serde_json::Value;

use crate::influence::facts::{StatedValue, parse_decimal, stated_values, words};

/// The most values of a message.
const MAX_VALUES: usize = 2000;
/// The least number of words of a sentence that counts as a value; shorter ones recur by chance.
const SENTENCE_WORDS: usize = 3;
/// The least number of bytes of an address or a code.
const CODE_BYTES: usize = 6;

/// The values of a message.
#[derive(Debug, Clone, Default)]
pub struct DraftValues {
    /// Numbers, dates and times.
    stated: Vec<StatedValue>,
    /// The words of addresses, codes, arguments and sentences, in lower case.
    phrases: Vec<Vec<String>>,
}

impl DraftValues {
    /// Returns the values of a message: of the arguments of its calls, or of its text if it has no call. Returns `None`
    /// if there are more than 2000, because a region that shares only a value beyond this limit would be missed.
    pub fn of(draft: &Completion) -> Option<Self> {
        let mut values = Self::default();
        if draft.calls.is_empty() {
            values.add_text(&draft.text);
        }
        for call in &draft.calls {
            match serde_json::from_str(&call.arguments) {
                Ok(arguments) => values.add_argument(&arguments),
                Err(_) => values.add_text(&call.arguments),
            }
        }
        (values.stated.len() + values.phrases.len() <= MAX_VALUES).then_some(values)
    }

    /// Removes the values that a text states.
    #[must_use]
    pub fn without(mut self, text: &str) -> Self {
        let text = RegionText::new(text);
        self.stated.retain(|value| !text.states(value));
        self.phrases.retain(|phrase| !text.contains(phrase));
        self
    }

    /// Returns the share of the values that a text states; 0 if there are no values. A region is needed if it states
    /// any.
    pub fn share_in(&self, text: &str) -> f64 {
        let text = RegionText::new(text);
        let stated = self.stated.iter().filter(|value| text.states(value)).count();
        let phrases = self.phrases.iter().filter(|phrase| text.contains(phrase)).count();
        (stated + phrases) as f64 / (self.stated.len() + self.phrases.len()).max(1) as f64
    }

    /// Adds the values of an argument. The names of fields are no values, and neither are `true`, `false` and null.
    fn add_argument(&mut self, argument: &Value) {
        match argument {
            Value::Null | Value::Bool(_) => {}
            Value::Number(number) => match parse_decimal(&number.to_string()) {
                Some(value) => self.stated.push(value),
                None => self.add_phrase(&number.to_string(), 1),
            },
            Value::String(text) => {
                // A whole argument counts as a value even if it is a single word (1).
                self.add_phrase(text, 1);
                self.add_text(text);
            }
            Value::Array(items) => items.iter().for_each(|item| self.add_argument(item)),
            Value::Object(entries) => entries.values().for_each(|item| self.add_argument(item)),
        }
    }

    /// Adds the values that a text states: its numbers, dates and times, its addresses and codes, and its sentences.
    fn add_text(&mut self, text: &str) {
        self.stated.extend(stated_values(&text.to_lowercase()));
        for word in text.split_whitespace() {
            let word = word.trim_matches(|c: char| !c.is_alphanumeric());
            // An address or a code has a digit, a dot or an at sign.
            if word.len() >= CODE_BYTES && word.contains(|c: char| c.is_ascii_digit() || ".@".contains(c)) {
                self.add_phrase(word, 1);
            }
        }
        for sentence in text.split(['\n', '.', ';', ',', '!', '?']) {
            self.add_phrase(sentence, SENTENCE_WORDS);
        }
    }

    /// Adds the words of a phrase, if it has at least `least` words.
    fn add_phrase(&mut self, phrase: &str, least: usize) {
        let words: Vec<String> = words(phrase).into_iter().map(|(word, _)| word).collect();
        if words.len() >= least && !self.phrases.contains(&words) {
            self.phrases.push(words);
        }
    }
}

/// A text in which values are looked up.
struct RegionText {
    stated: Vec<StatedValue>,
    words: Vec<String>,
}

impl RegionText {
    /// Reads the numbers, dates and times that a text states, and its words in lower case.
    fn new(text: &str) -> Self {
        let words = words(text).into_iter().map(|(word, _)| word).collect();
        Self { stated: stated_values(&text.to_lowercase()), words }
    }

    /// Returns whether the text states a number, date or time. Two dates of the same day and month are equal unless
    /// both have a year and the years differ.
    fn states(&self, value: &StatedValue) -> bool {
        self.stated.iter().any(|other| match (value, other) {
            (
                StatedValue::Date { year: Some(year), month, day },
                StatedValue::Date { year: Some(other_year), month: other_month, day: other_day },
            ) => (year, month, day) == (other_year, other_month, other_day),
            (
                StatedValue::Date { month, day, .. },
                StatedValue::Date { month: other_month, day: other_day, .. },
            ) => (month, day) == (other_month, other_day),
            _ => value == other,
        })
    }

    /// Returns whether the text has the words of a phrase one after another.
    fn contains(&self, phrase: &[String]) -> bool {
        !phrase.is_empty() && self.words.windows(phrase.len()).any(|window| window == phrase)
    }
}

#[cfg(test)]
mod tests {
    use flowgate_lm::chat::ToolCall;

    use super::*;

    fn call(arguments: &str) -> Completion {
        let calls =
            vec![ToolCall { id: "1".to_owned(), name: "act".to_owned(), arguments: arguments.to_owned() }];
        Completion { calls, ..Completion::default() }
    }

    #[test]
    fn values_are_found_in_other_spellings() {
        for (arguments, region, expected) in [
            (r#"{"amount": 1200}"#, "It costs $1,200.00 today.", true),
            (r#"{"amount": 1200}"#, "It costs $1,300 today.", false),
            (r#"{"when": "2024-05-19"}"#, "on May 19th", true),
            (r#"{"when": "2024-05-19"}"#, "on May 19th, 2023", false),
            (r#"{"at": "2 pm"}"#, "come at 14:00", true),
            (r#"{"to": "eve@x.org"}"#, "mail Eve@X.org now", true),
            (r#"{"to": "eve@x.org"}"#, "mail eve@x.net now", false),
            (r#"{"name": "Ann Lee"}"#, "From: ann lee", true),
            (r#"{"name": "Ann Lee"}"#, "From: Ann and Lee", false),
            (r#"{"body": "Hi Bob. The key is under the mat, bye."}"#, "note: the key is under the mat", true),
            (r#"{"body": "Hi Bob. The key is under the mat, bye."}"#, "Bob says bye", false),
            (r#"{"items": [{"code": "AB-1234"}]}"#, "code AB-1234", true),
            (r#"{"flag": true, "other": null, "empty": ""}"#, "true null", false),
            ("not JSON but 99", "99 bottles", true),
        ] {
            let values = DraftValues::of(&call(arguments)).unwrap();
            assert_eq!(values.share_in(region) > 0.0, expected, "{arguments} {region}");
        }
        let text = Completion { text: "The code is 4412.".to_owned(), ..Completion::default() };
        assert!(DraftValues::of(&text).unwrap().share_in("code 4412") > 0.0);
    }

    #[test]
    fn visible_text_needs_no_region() {
        let values = DraftValues::of(&call(r#"{"to": "eve@x.org", "amount": 20}"#)).unwrap();
        let values = values.without("User: pay 20 to Eve.");
        assert_eq!(values.share_in("it costs 20"), 0.0);
        assert_eq!(values.share_in("20 to eve@x.org"), 1.0);
        let values = DraftValues::of(&call(r#"{"items": [7, 8, 9, 10]}"#)).unwrap();
        assert_eq!(values.share_in("7 and 10"), 0.5);
        assert_eq!(DraftValues::of(&call("{}")).unwrap().share_in("7"), 0.0);
    }

    #[test]
    fn a_message_with_too_many_values_is_not_read_in_part() {
        let numbers = |count: usize| {
            let numbers: Vec<String> = (0..count).map(|number| number.to_string()).collect();
            call(&format!("[{}]", numbers.join(",")))
        };
        assert!(DraftValues::of(&numbers(MAX_VALUES)).is_some());
        assert!(DraftValues::of(&numbers(MAX_VALUES + 1)).is_none());
    }
}
