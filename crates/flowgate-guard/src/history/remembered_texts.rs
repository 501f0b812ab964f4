//! Computes the normal forms in which a shown text is remembered, one for each way in which a person who quotes it may
//! have read it: as source, rendered or decoded (see `readings`). `quotation_memory` stores them.

use super::normalization::{NormalizedText, append_normalized, markup_mask};
use super::query::stripped_lines;
use super::readings::{ComparisonSide, READINGS, Readings};

/// Returns the normal forms of a text to be remembered, as the bytes that are compared.
pub(super) fn normalized_texts(text: &str) -> Vec<Vec<u8>> {
    let readings = Readings::of(text, ComparisonSide::Remembered);
    let mut normalized: Vec<Vec<u8>> = Vec::new();
    for (number, all) in (0..READINGS).filter_map(|number| Some((number, readings.get(number)?))) {
        let (mut letters, mut signs, mut unseen) =
            (NormalizedText::default(), NormalizedText::default(), NormalizedText::default());
        all.iter().for_each(|char| append_normalized(char.c, (), &mut letters, &mut signs, &mut unseen));
        let mut new = vec![letters.bytes, signs.bytes, unseen.bytes];
        if let Some(is_markup) = markup_mask(&all) {
            let mut plain = NormalizedText::default();
            let shown = all.iter().zip(is_markup).filter(|(_, is_markup)| !is_markup);
            let (mut others, mut hidden) = (NormalizedText::default(), NormalizedText::default());
            shown.for_each(|(char, _)| append_normalized(char.c, (), &mut plain, &mut others, &mut hidden));
            new.push(plain.bytes);
        }
        if number == 0 {
            new.extend(stripped_lines(&all));
        }
        if !normalized.is_empty() {
            new.retain(|one| !normalized.contains(one));
        }
        normalized.append(&mut new);
    }
    normalized
}
