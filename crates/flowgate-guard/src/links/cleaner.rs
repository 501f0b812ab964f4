//! Cleans a stream of text: takes the text piece by piece, and returns the cleaned text as far as no later piece can
//! change it.
//!
//! The unit of cleaning is the *segment*, a span between white space and other characters that no address reaches
//! across. `segment` cleans each one. In a segment that is too long to wait for, every sign that an address or a link
//! needs is broken apart without further analysis.

use super::rendered::{for_each_normalized, is_boundary};
use super::segment;
use super::writer::{CleanedTextWriter, LinkJudge};

/// The longest segment in which addresses can be permitted, in bytes. Also the most that is held back.
const MAX_SEGMENT: usize = 4_096;

/// The most distinct entries in the list of refusals.
const MAX_REFUSED: usize = 100;

/// Cleans one text.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// Text that was received and not yet returned.
    pending: String,
    /// The number of bytes of `pending` that were searched for the end of the segment.
    searched: usize,
    writer: CleanedTextWriter,
    /// Inside a segment that is too long, the previous visible character in its normal form (NFKC); `None` outside of
    /// such a segment.
    long: Option<char>,
    /// Whether the last segment was two dots, on the same line: they open a construct of reStructuredText.
    is_after_dots: bool,
    /// The addresses that were refused, and the characters of markup that were broken apart.
    refused: Vec<String>,
    /// Whether all further text is held back because an address cannot be judged yet.
    is_held: bool,
}

impl Cleaner {
    /// Takes the next piece of a streamed text, and returns the part of the cleaned text that is now final. Addresses
    /// that `judge` refuses are broken apart in it. At an address on which `judge` cannot decide yet, the cleaner
    /// becomes *held*: it returns nothing more and drops later pieces, since the whole text is cleaned again once the
    /// decision is possible.
    pub fn push(&mut self, piece: &str, judge: LinkJudge<'_>) -> String {
        if !self.is_held {
            self.pending.push_str(piece);
            self.advance(false, judge);
        }
        std::mem::take(&mut self.writer.out)
    }

    /// Ends the text, and returns the part of the cleaned text that was not returned yet. If the cleaner is held (see
    /// [`push`](Self::push)), the address that cannot be judged yet and everything after it are left out.
    pub fn finish(&mut self, judge: LinkJudge<'_>) -> String {
        if !self.is_held {
            self.advance(true, judge);
        }
        std::mem::take(&mut self.writer.out)
    }

    /// Returns what was refused in the text so far: addresses, and the characters of markup that were broken apart.
    pub fn into_refused(self) -> Vec<String> {
        self.refused
    }

    /// Returns whether the text is held back because an address in it cannot be judged yet.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    /// Adds an entry to the list of refusals, once, while the list has room.
    fn add_refused(&mut self, what: String) {
        if self.refused.len() < MAX_REFUSED && !self.refused.contains(&what) {
            self.refused.push(what);
        }
    }

    /// Cleans the pending text, segment by segment, as far as no later piece can change the result. The rest stays
    /// pending, unless `is_last` is set, because then no piece follows. Stops for good at an address that cannot be
    /// judged yet. `judge` decides on each address.
    fn advance(&mut self, is_last: bool, judge: LinkJudge<'_>) {
        let pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while let Some(c) = pending.get(at..).and_then(|rest| rest.chars().next()) {
            if is_boundary(c) {
                self.long = None;
                // Two dots begin a construct of reStructuredText only on their own line.
                self.is_after_dots &= c != '\n';
                // A renderer may drop any other control character and join the segments around it, so a space takes its
                // place.
                let is_plain_space = !c.is_control() || matches!(c, '\n' | '\r' | '\t');
                self.writer.push(if is_plain_space { c } else { ' ' });
                at += c.len_utf8();
                continue;
            }
            // The rest of a segment that is too long is cleaned sign by sign.
            if let Some(before) = self.long {
                self.long = Some(self.writer.push_in_long_segment(c, before));
                at += c.len_utf8();
                continue;
            }
            let rest = pending.get(at..).unwrap_or_default();
            // No segment ends in the part that was searched before.
            let from = self.searched.saturating_sub(at).min(rest.len());
            let end = segment_end(rest, from).or(is_last.then_some(rest.len()));
            let is_too_long = end.unwrap_or(rest.len()) > MAX_SEGMENT;
            if is_too_long {
                self.add_refused(segment::MARKUP.to_owned());
                // No visible character precedes the first one of the segment, so the previous character is a space.
                self.long = Some(' ');
                continue;
            }
            let Some(end) = end else {
                // The end of the segment comes with a later piece.
                self.searched = pending.len();
                break;
            };
            // `None`: whether the segment begins a link of the guard depends on later pieces.
            let Some(end) = link_end(rest, end, is_last) else { break };
            let segment = rest.get(..end).unwrap_or_default();
            let around = (after_segment(rest, end), self.is_after_dots);
            // `None`: the segment has an address that cannot be judged yet.
            let Some(refused) = segment::clean(segment, around, &mut self.writer, judge) else {
                self.is_held = true;
                return;
            };
            for refused in refused {
                self.add_refused(refused);
            }
            self.is_after_dots = segment::is_dots(segment);
            at += end;
        }
        self.pending = pending.get(at..).unwrap_or_default().to_owned();
        self.searched = self.searched.saturating_sub(at);
    }
}

/// Returns the end of the segment at the beginning of `rest`; `None` if the segment continues in the next piece. The
/// first `from` bytes were searched already and are skipped.
fn segment_end(rest: &str, from: usize) -> Option<usize> {
    // `from` is a character boundary, since pieces are whole texts.
    rest.get(from..)?.char_indices().find(|(_, c)| is_boundary(*c)).map(|(at, _)| from + at)
}

/// Returns the visible character after a segment, as a renderer that normalises sees it. `None` at the end of the text,
/// and if the character is white space or a control.
fn after_segment(rest: &str, end: usize) -> Option<char> {
    let mut after = None;
    if let Some(c) = rest.get(end..).and_then(|rest| rest.chars().next()) {
        for_each_normalized(c, |c| after = after.or(Some(c)));
    }
    after.filter(|c| !c.is_whitespace() && !c.is_control())
}

/// Returns where to cut `rest` so that a link which the guard itself wrote (`](`, an address and `)` with single spaces
/// between them) is one segment: at the end of its `)`. Returns `end`, the end of the segment, for anything else, and
/// `None` if that depends on later pieces.
fn link_end(rest: &str, end: usize, is_last: bool) -> Option<usize> {
    if !rest.get(..end).is_some_and(|segment| segment.ends_with("](")) {
        return Some(end);
    }
    let mut at = end;
    // The first word after `](` is the address, the second one begins with `)`.
    for is_address in [true, false] {
        let after = rest.get(at..).unwrap_or_default();
        let Some(word) = after.strip_prefix(' ') else {
            // Not a link of the guard, unless the space comes with the next piece.
            return (is_last || !after.is_empty()).then_some(end);
        };
        let boundary = word.find(is_boundary);
        let length = boundary.unwrap_or(word.len());
        // The link would be too long for a segment, or it has two spaces in a row, which the guard does not write.
        if at + length > MAX_SEGMENT || boundary == Some(0) {
            return Some(end);
        }
        if boundary.is_none() && !is_last {
            return None;
        }
        let word = word.get(..length).unwrap_or_default();
        let is_part_of_link = if is_address { word.starts_with("http") } else { word.starts_with(')') };
        if !is_part_of_link {
            return Some(end);
        }
        at += 1 + length;
    }
    Some(at)
}
