//! Defines the citations of an answer: the passages of documents in the request that support pieces of the answer's
//! text. Only Anthropic's Messages API has citations.
//!
//! A model's server reports which passages an answer cites, as positions in the documents that it was sent. The wire
//! format looks for each reported passage in the client's own copy of the document ([`CitableDocument`]), and drops a
//! passage that it does not find. A [`Citation`] therefore contains only text, titles and positions of the client's
//! copy. It reveals to the client only which passage the model chose, and the label of the answer's text covers this
//! choice.
//!
//! If the text of an answer is changed before the client receives it, [`carried_over`] keeps the citations of its
//! unchanged pieces.

use serde::{Deserialize, Serialize};

/// The separators that a server may put between several cited blocks when it reports them as one passage.
const SEPARATORS: [&str; 4] = ["", "\n", "\n\n", " "];

/// The kind of a document that an answer may cite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DocumentKind {
    /// A text. The positions in it are numbers of characters.
    Text,
    /// A list of blocks. The positions in it are numbers of blocks.
    Blocks,
    /// The result of a search. The positions in it are numbers of blocks.
    SearchResult,
}

/// A document of a client's request that the answer may cite, as the client sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CitableDocument {
    /// The kind of the document.
    pub kind: DocumentKind,
    /// The index among all documents of the request; of a search result, the index among all search results.
    pub index: usize,
    /// The title.
    pub title: Option<String>,
    /// The context of the document; of a search result, its source.
    pub context: Option<String>,
    /// The text, as the only item, or the texts of the blocks.
    pub texts: Vec<String>,
}

/// A passage of a document that an answer cites, by the client's copy of the document.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Citation {
    /// The kind of the document.
    pub kind: DocumentKind,
    /// The index of the document, as [`CitableDocument::index`] counts it.
    pub index: usize,
    /// The title of the document.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The source of a search result; `None` for other documents.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub source: Option<String>,
    /// The passage.
    pub text: String,
    /// The position of the passage in the document, in characters or blocks.
    pub start: usize,
    /// The position after the passage.
    pub end: usize,
}

/// A piece of the text of an answer, with the passages that it cites.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CitedPiece {
    /// The position of the piece in the text of the answer, in bytes.
    pub start: usize,
    /// The position after the piece.
    pub end: usize,
    /// The cited passages, in the order of the server.
    pub citations: Vec<Citation>,
}

/// A passage of a document that was sent to a model's server, as the server reports that it is cited.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReportedCitation {
    /// The kind of the document.
    pub(crate) kind: DocumentKind,
    /// The index of the document among all documents, or among all search results, of the request that was sent.
    pub(crate) index: usize,
    /// The passage.
    pub(crate) text: String,
    /// The position of the passage, in characters or blocks.
    pub(crate) start: usize,
    /// The position after the passage.
    pub(crate) end: usize,
}

impl Citation {
    /// Returns the texts that a client receives with the citation.
    pub fn shown_texts(&self) -> impl Iterator<Item = &str> {
        [Some(&self.text), self.title.as_ref(), self.source.as_ref()]
            .into_iter()
            .flatten()
            .map(String::as_str)
    }
}

impl CitableDocument {
    /// Returns the citation of the passage that a server reports; `None` if this document does not contain it. The
    /// caller has chosen this document by the reported index. If the document contains the passage more than once, the
    /// citation has the reported place or, if the passage is not there, the first place.
    pub(crate) fn find(&self, reported: &ReportedCitation) -> Option<Citation> {
        if reported.kind != self.kind || reported.text.is_empty() {
            return None;
        }
        let (start, end) = match self.kind {
            DocumentKind::Text => self.characters_of(reported),
            DocumentKind::Blocks | DocumentKind::SearchResult => self.blocks_of(reported),
        }?;
        Some(Citation {
            kind: self.kind,
            index: self.index,
            title: self.title.clone(),
            // The context of a search result is its source.
            source: self.context.clone().filter(|_| self.kind == DocumentKind::SearchResult),
            text: reported.text.clone(),
            start,
            end,
        })
    }

    /// Returns the position of the reported passage in the text and the position after it, in characters; `None` if the
    /// text does not contain the passage.
    fn characters_of(&self, reported: &ReportedCitation) -> Option<(usize, usize)> {
        let (text, passage) = (self.texts.first()?, reported.text.as_str());
        // The search is in bytes; the reported and the returned positions are in characters.
        let is_at = |at: &usize| text.get(*at..).is_some_and(|rest| rest.starts_with(passage));
        let reported_at = text.char_indices().nth(reported.start).map(|(at, _)| at).filter(is_at);
        let at = reported_at.or_else(|| text.find(passage))?;
        let start = text.get(..at)?.chars().count();
        Some((start, start + passage.chars().count()))
    }

    /// Returns the number of the first block of the reported passage and the number after its last block. These are the
    /// reported blocks if they have the passage: a single block contains it, or several blocks, joined, are equal to
    /// it. Otherwise it is the first block that contains the passage; `None` if no block does.
    fn blocks_of(&self, reported: &ReportedCitation) -> Option<(usize, usize)> {
        let passage = reported.text.as_str();
        let is_cited = |blocks: &[String]| match blocks {
            [block] => block.contains(passage),
            blocks => {
                // The joined text is at least as long as the blocks together, so most wrong places need no join.
                let length: usize = blocks.iter().map(String::len).sum();
                length <= passage.len()
                    && SEPARATORS.iter().any(|separator| blocks.join(separator) == passage)
            }
        };
        // Some servers report the last block instead of the position after it.
        let (start, end) = (reported.start, reported.end.max(reported.start.saturating_add(1)));
        if self.texts.get(start..end).is_some_and(is_cited) {
            return Some((start, end));
        }
        let at = self.texts.iter().position(|block| block.contains(passage))?;
        Some((at, at + 1))
    }

    /// Returns the number of bytes of the texts and one for each text, which bounds the effort of [`find`](Self::find).
    pub(crate) fn size(&self) -> usize {
        self.texts.iter().map(|text| text.len() + 1).sum()
    }
}

/// Returns the cited pieces of an answer at their positions in the text that the client receives. `pieces` are the
/// cited pieces of `written`, which the model wrote; `released` is the same text after the guard has changed it, for
/// example disarmed an address. Only pieces that certainly did not change are kept: those before the first difference
/// of the two texts, which keep their positions, and those after the last difference, which are moved.
#[must_use]
pub fn carried_over(pieces: Vec<CitedPiece>, written: &str, released: &str) -> Vec<CitedPiece> {
    // The lengths of what both texts begin with and end with, in bytes.
    let before = shared_bytes(written.chars().zip(released.chars()));
    let rest_of = |text| str::get(text, before..).unwrap_or_default();
    let rests = rest_of(written).chars().rev().zip(rest_of(released).chars().rev());
    let after = shared_bytes(rests);
    // The positions after the last difference, in both texts.
    let (tail, released_tail) = (written.len() - after, released.len() - after);
    let carried = pieces.into_iter().filter_map(|piece| {
        // A piece that is not in the text is dropped.
        written.get(piece.start..piece.end)?;
        if piece.end <= before {
            return Some(piece);
        }
        // `None`, and so no citation, for a piece that begins before the end of the last difference.
        let moved = |at: usize| at.checked_sub(tail)?.checked_add(released_tail);
        Some(CitedPiece { start: moved(piece.start)?, end: moved(piece.end)?, ..piece })
    });
    carried.collect()
}

/// Returns the number of bytes of the characters before the first pair whose two characters differ.
fn shared_bytes(pairs: impl Iterator<Item = (char, char)>) -> usize {
    pairs.take_while(|(a, b)| a == b).map(|(char, _)| char.len_utf8()).sum()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::DocumentKind::{Blocks, SearchResult, Text};
    use super::*;

    fn document(kind: DocumentKind, texts: &[&str]) -> CitableDocument {
        let texts = texts.iter().map(|text| (*text).to_owned()).collect();
        let (title, context) = (Some("T".to_owned()), Some("C".to_owned()));
        CitableDocument { kind, index: 2, title, context, texts }
    }

    fn reported(kind: DocumentKind, text: &str, start: usize, end: usize) -> ReportedCitation {
        ReportedCitation { kind, index: 0, text: text.to_owned(), start, end }
    }

    #[test]
    fn passages_are_found_in_the_copy_of_the_client() {
        let check = |kind, texts: &[&str], (text, start, end), expected: Option<(usize, usize)>| {
            let found = document(kind, texts).find(&reported(kind, text, start, end));
            let source = (kind == DocumentKind::SearchResult).then(|| "C".to_owned());
            let expected = expected.map(|(start, end)| Citation {
                kind,
                index: 2,
                title: Some("T".to_owned()),
                source,
                text: text.to_owned(),
                start,
                end,
            });
            assert_eq!(found, expected, "{texts:?} {text:?} {start}");
        };
        let text = &["Grün. Rot. Grün."][..];
        check(Text, text, ("Grün.", 0, 5), Some((0, 5)));
        check(Text, text, ("Grün.", 11, 16), Some((11, 16)));
        // Wrong reported positions: in bytes instead of characters, or beyond the text. Then passages that the text
        // does not contain.
        check(Text, text, ("Grün.", 12, 18), Some((0, 5)));
        check(Text, text, ("Rot.", usize::MAX, 0), Some((6, 10)));
        check(Text, text, ("Rot!", 6, 10), None);
        check(Text, text, ("rot.", 6, 10), None);
        check(Text, text, ("", 6, 6), None);
        check(Text, &[], ("a", 0, 1), None);
        for kind in [Blocks, SearchResult] {
            let blocks = &["one", "two two", "two", "one"][..];
            check(kind, blocks, ("two two", 1, 2), Some((1, 2)));
            check(kind, blocks, ("two", 2, 3), Some((2, 3)));
            check(kind, blocks, ("two", 0, 1), Some((1, 2)));
            check(kind, blocks, ("one", 3, 3), Some((3, 4)));
            for joined in ["two twotwo", "two two\ntwo", "two two\n\ntwo", "two two two"] {
                check(kind, blocks, (joined, 1, 3), Some((1, 3)));
            }
            check(kind, blocks, ("two two, two", 1, 3), None);
            check(kind, blocks, ("one two two two one", 0, usize::MAX), None);
            check(kind, blocks, ("six", usize::MAX, usize::MAX), None);
        }
        let other = reported(Blocks, "Rot.", 0, 1);
        assert_eq!(document(Text, text).find(&other), None);
    }

    /// Returns the positions that [`CitableDocument::find`] must find, by a comparison at every place of the text.
    fn slow_positions(text: &str, passage: &str, at: usize) -> Option<(usize, usize)> {
        let (text, passage): (Vec<char>, Vec<char>) = (text.chars().collect(), passage.chars().collect());
        let is_at = |at: usize| text.iter().skip(at).take(passage.len()).eq(passage.iter());
        let places = || (0..text.len()).filter(|at| !passage.is_empty() && is_at(*at));
        let start = places().find(|place| *place == at).or_else(|| places().next())?;
        Some((start, start + passage.len()))
    }

    proptest! {
        #[test]
        fn positions_equal_those_of_a_slow_search(
            text in "[aü😀]{0,12}", passage in "[aü😀]{0,3}", at in 0_usize..14
        ) {
            let reported = reported(DocumentKind::Text, &passage, at, 0);
            let found = document(DocumentKind::Text, &[&text]).find(&reported);
            let found = found.map(|citation| (citation.start, citation.end));
            prop_assert_eq!(found, slow_positions(&text, &passage, at));
        }

        /// A kept piece has the text that it had, and an unchanged text keeps all of its pieces.
        #[test]
        fn kept_pieces_are_unchanged(
            before in "[aü]{0,4}", old in "[aü]{0,4}", new in "[aü😀]{0,4}", after in "[aü]{0,4}"
        ) {
            let written = format!("{before}{old}{after}");
            let released = format!("{before}{new}{after}");
            let places = (0..=written.len()).flat_map(|start| (start..=written.len()).map(move |end| (start, end)));
            for (start, end) in places.filter(|(start, end)| written.get(*start..*end).is_some()) {
                let piece = CitedPiece { start, end, citations: Vec::new() };
                prop_assert_eq!(carried_over(vec![piece.clone()], &written, &written), vec![piece.clone()]);
                let kept = carried_over(vec![piece], &written, &released);
                for kept in &kept {
                    prop_assert_eq!(released.get(kept.start..kept.end), written.get(start..end));
                }
                prop_assert!(end > before.len() || kept.len() == 1, "{} {}", written, released);
            }
        }
    }

    #[test]
    fn changed_pieces_lose_their_citations() {
        let piece = |start, end| CitedPiece { start, end, citations: Vec::new() };
        let (written, released) = ("See a.example now.", "See a .example now.");
        let pieces = vec![piece(0, 3), piece(4, 13), piece(14, 18)];
        assert_eq!(carried_over(pieces, written, released), [piece(0, 3), piece(15, 19)]);
        assert_eq!(carried_over(vec![piece(0, 3)], "See", ""), []);
        assert_eq!(carried_over(vec![piece(5, 900)], "See", "a"), []);
    }
}
