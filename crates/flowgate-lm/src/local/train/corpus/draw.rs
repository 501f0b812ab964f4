//! Defines [`Draw`], a source of random words, names and values. The other modules of the corpus build their texts from
//! them.

use super::super::super::sampler::SplitMix;

/// A source of random words and values. The same seed gives the same sequence.
pub(super) struct Draw(SplitMix);

/// The syllables of invented words, so that no word of a text is known beforehand.
const SYLLABLES: &[&str] = &[
    "an", "bel", "cor", "da", "el", "fi", "gra", "hol", "is", "ja", "ka", "lo", "mi", "nor", "ol", "pe",
    "qui", "ra", "sol", "ta", "ul", "va", "wen", "xi", "yo", "zan",
];

/// The forms of values, which [`Draw::value`] fills.
const FORMS: &[&str] = &[
    "SSN########",
    "ID######",
    "###-##-####",
    "##-##-####",
    "####-##-##",
    "##/##/####",
    "+## ### ####",
    "DE##########",
    "?-###",
    "??#### ###",
    "~@~.example",
    "^ ^",
    "^",
    "~",
    "%%%%%%%%",
    "EUR ###.##",
    "###",
    "####",
    "^ Street ##",
    "?!?#!#?",
];

impl Draw {
    /// Creates a source whose sequence this seed determines.
    pub(super) fn new(seed: u64) -> Self {
        Self(SplitMix::new(seed))
    }

    /// Draws a number from 0 up to `end`, which is excluded; 0 if `end` is 0.
    #[expect(clippy::cast_possible_truncation, reason = "the remainder fits")]
    pub(super) fn below(&mut self, end: usize) -> usize {
        (self.0.next() % end.max(1) as u64) as usize
    }

    /// Draws an element of a list; the empty text if the list is empty.
    pub(super) fn pick<'a>(&mut self, list: &[&'a str]) -> &'a str {
        let index = self.below(list.len());
        list.get(index).copied().unwrap_or_default()
    }

    /// Draws `count` different elements of a list, in random order; all elements if the list is shorter.
    pub(super) fn pick_several<'a>(&mut self, list: &[&'a str], count: usize) -> Vec<&'a str> {
        let mut left = list.to_vec();
        (0..count.min(left.len())).map(|_| left.swap_remove(self.below(left.len()))).collect()
    }

    /// Draws an invented word of two or three syllables.
    pub(super) fn word(&mut self) -> String {
        let count = 2 + self.below(2);
        (0..count).map(|_| self.pick(SYLLABLES)).collect()
    }

    /// Draws an invented word with a capital.
    pub(super) fn capitalised_word(&mut self) -> String {
        let word = self.word();
        let (first, rest) = word.split_at_checked(1).unwrap_or(("", &word));
        first.to_uppercase() + rest
    }

    /// Draws the name of a person: two capitalised words.
    pub(super) fn name(&mut self) -> String {
        format!("{} {}", self.capitalised_word(), self.capitalised_word())
    }

    /// Draws one of the forms of values, which [`Self::value`] fills.
    pub(super) fn form(&mut self) -> &'static str {
        self.pick(FORMS)
    }

    /// Returns a random value of a form: `#` becomes a digit, `%` a hexadecimal digit, `?` a capital, `!` a small
    /// letter, `~` an invented word and `^` a capitalised one; all other characters stay.
    pub(super) fn value(&mut self, form: &str) -> String {
        let mut value = String::new();
        for symbol in form.chars() {
            match symbol {
                '#' => value.extend(self.digit(10)),
                '%' => value.extend(self.digit(16)),
                '?' => value.push(self.letter(b'A')),
                '!' => value.push(self.letter(b'a')),
                '~' => value.push_str(&self.word()),
                '^' => value.push_str(&self.capitalised_word()),
                other => value.push(other),
            }
        }
        value
    }

    /// Draws a digit of the base `base`, which must be at most 36. Always `Some`, since the number is below the base.
    fn digit(&mut self, base: u32) -> Option<char> {
        let digit = u32::try_from(self.below(usize::try_from(base).unwrap_or(10)));
        char::from_digit(digit.unwrap_or(0), base)
    }

    /// Draws one of 26 consecutive letters, of which `first` is the first one (`A` or `a`).
    fn letter(&mut self, first: u8) -> char {
        char::from(first.saturating_add(u8::try_from(self.below(26)).unwrap_or(0)))
    }
}
