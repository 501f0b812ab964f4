//! Computes the normal forms in which a shown text is remembered. `quotation_memory` stores them.
//!
//! Each reading of the text (as written, decoded, with confusable characters replaced, transliterated: see `readings`)
//! has one form for its letters and digits, one for its other symbols, one for its invisible characters and, if it has
//! markup, one for the letters and digits outside the markup. The text as written also has forms without the numbers or
//! prefixes of its lines. A form that an earlier reading has as well is left out.

use super::markup_mask::markup_mask;
use super::normalization::{NormalizedText, append_normalized};
use super::query::stripped_lines;
use super::readings::{ComparisonSide, READINGS, Readings};

/// Returns the normal forms of a text to be remembered, as the bytes that are compared. The text has several
/// readings ([`super::readings`]): as written, decoded, with confusable characters replaced, and transliterated. Each
/// reading has these forms: its alphanumeric characters, its other symbols, its invisible characters and, if it has
/// markup, its alphanumeric characters outside the markup. The text as written also has its alphanumeric characters
/// without the prefixes or numbers of its lines.
pub(super) fn normalized_texts(text: &str) -> Vec<Vec<u8>> {
    let readings = Readings::of(text, ComparisonSide::Remembered);
    let mut normalized: Vec<Vec<u8>> = Vec::new();
    for (number, chars) in (0..READINGS).filter_map(|number| Some((number, readings.get(number)?))) {
        let mut alphanumeric = NormalizedText::default();
        let mut symbols = NormalizedText::default();
        let mut invisible = NormalizedText::default();
        for char in chars.iter() {
            append_normalized(char.c, (), &mut alphanumeric, &mut symbols, &mut invisible);
        }
        let mut forms = vec![alphanumeric.bytes, symbols.bytes, invisible.bytes];
        if let Some(is_markup) = markup_mask(&chars) {
            let mut plain = NormalizedText::default();
            let shown = chars.iter().zip(is_markup).filter(|(_, is_markup)| !is_markup);
            // Only the letters and digits outside the markup are a form; the others are discarded.
            let (mut others, mut hidden) = (NormalizedText::default(), NormalizedText::default());
            for (char, _) in shown {
                append_normalized(char.c, (), &mut plain, &mut others, &mut hidden);
            }
            forms.push(plain.bytes);
        }
        // Reading 0 is the text as written.
        if number == 0 {
            forms.extend(stripped_lines(&chars));
        }
        // A form that another reading has as well is remembered once.
        if !normalized.is_empty() {
            forms.retain(|form| !normalized.contains(form));
        }
        normalized.append(&mut forms);
    }
    normalized
}
