//! The cleaner: takes a text piece by piece and gives out what no later piece can change.
//!
//! It works on *segments*, what stands between white space and other characters that no address reaches across. Of a segment
//! too long to wait for, every sign that an address or a link needs is broken apart without looking further.

use super::segment;
use super::view::{folded, is_boundary, is_transparent};

/// The longest segment in which addresses can be permitted, in bytes. It is also what is held back at most.
const MAX_SEGMENT: usize = 4_096;

/// How many different things a list of what was refused names.
const MAX_REFUSED: usize = 100;

/// Whether an address may stand in the text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Answer {
    /// It may.
    Permitted,
    /// It may not.
    Refused,
    /// Nobody can say yet: the text is held back from here on.
    Unknown,
}

/// Judges an address in its canonical form.
pub type Judge<'j> = &'j mut dyn FnMut(&str) -> Answer;

/// Cleans one text.
#[derive(Debug, Default)]
pub struct Cleaner {
    /// What has come and is not given out.
    pending: String,
    /// How much of it was searched for the end of the segment.
    searched: usize,
    writer: Writer,
    /// Inside a long segment: the visible character before, in its folded form.
    long: Option<char>,
    /// What the text does not lead to any more.
    refused: Vec<String>,
    is_held: bool,
}

impl Cleaner {
    /// Takes the next piece, and returns how the cleaned text goes on.
    pub fn push(&mut self, piece: &str, judge: Judge<'_>) -> String {
        if !self.is_held {
            self.pending.push_str(piece);
            self.advance(false, judge);
        }
        std::mem::take(&mut self.writer.out)
    }

    /// The text has ended. Returns the rest of the cleaned text.
    pub fn finish(&mut self, judge: Judge<'_>) -> String {
        if !self.is_held {
            self.advance(true, judge);
        }
        std::mem::take(&mut self.writer.out)
    }

    /// What the text given out so far does not lead to any more: addresses, or the signs that were broken apart.
    pub fn refused(self) -> Vec<String> {
        self.refused
    }

    /// Whether the text is held back because an address in it cannot be judged yet.
    pub fn is_held(&self) -> bool {
        self.is_held
    }

    fn refuse(&mut self, what: String) {
        if self.refused.len() < MAX_REFUSED && !self.refused.contains(&what) {
            self.refused.push(what);
        }
    }

    fn advance(&mut self, is_last: bool, judge: Judge<'_>) {
        let pending = std::mem::take(&mut self.pending);
        let mut at = 0;
        while let Some(c) = pending.get(at..).and_then(|rest| rest.chars().next()) {
            if is_boundary(c) {
                self.long = None;
                let is_kept = !c.is_control() || matches!(c, '\n' | '\r' | '\t');
                self.writer.push(if is_kept { c } else { ' ' });
                at += c.len_utf8();
                continue;
            }
            if let Some(before) = self.long {
                self.long = Some(self.writer.harsh(c, before));
                at += c.len_utf8();
                continue;
            }
            let rest = pending.get(at..).unwrap_or_default();
            let from = self.searched.saturating_sub(at).min(rest.len());
            let end = segment_end(rest, from).or(is_last.then_some(rest.len()));
            if end.unwrap_or(rest.len()) > MAX_SEGMENT {
                self.refuse(segment::MARKUP.to_owned());
                self.long = Some(' ');
                continue;
            }
            let Some(end) = end else {
                self.searched = pending.len();
                break;
            };
            let end = match link_end(rest, end, is_last) {
                Some(end) => end,
                None => break,
            };
            let segment = rest.get(..end).unwrap_or_default();
            let Some(refused) = segment::clean(segment, after_segment(rest, end), &mut self.writer, judge)
            else {
                self.is_held = true;
                return;
            };
            for refused in refused {
                self.refuse(refused);
            }
            at += end;
        }
        self.pending = pending.get(at..).unwrap_or_default().to_owned();
        self.searched = self.searched.saturating_sub(at);
    }
}

fn segment_end(rest: &str, from: usize) -> Option<usize> {
    // What was searched ends between characters: pieces are texts.
    rest.get(from..)?.char_indices().find(|(_, c)| is_boundary(*c)).map(|(at, _)| from + at)
}

/// What follows a segment, as a reader sees it that normalises.
fn after_segment(rest: &str, end: usize) -> Option<char> {
    let mut after = None;
    if let Some(c) = rest.get(end..).and_then(|rest| rest.chars().next()) {
        folded(c, |c| after = after.or(Some(c)));
    }
    after.filter(|c| !c.is_whitespace() && !c.is_control())
}

/// The end of `](`, an address and `)` with single spaces between them, which is how links leave; the end of the segment for
/// everything else, and `None` if more must come to know.
fn link_end(rest: &str, end: usize, is_last: bool) -> Option<usize> {
    if !rest.get(..end).is_some_and(|segment| segment.ends_with("](")) {
        return Some(end);
    }
    let mut at = end;
    for is_address in [true, false] {
        let after = rest.get(at..).unwrap_or_default();
        let Some(word) = after.strip_prefix(' ') else {
            return (is_last || !after.is_empty()).then_some(end);
        };
        let found = word.find(is_boundary);
        let length = found.unwrap_or(word.len());
        if at + length > MAX_SEGMENT || found == Some(0) {
            return Some(end);
        }
        if found.is_none() && !is_last {
            return None;
        }
        let word = word.get(..length).unwrap_or_default();
        let begins = if is_address { word.starts_with("http") } else { word.starts_with(')') };
        if !begins {
            return Some(end);
        }
        at += 1 + length;
    }
    Some(at)
}

/// Writes the cleaned text.
#[derive(Debug, Default)]
pub(super) struct Writer {
    out: String,
    last: Option<char>,
    /// Whether an address was written last, which only white space may follow.
    is_after_address: bool,
}

/// The white space that ends an address for every renderer.
fn ends_address(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t')
}

impl Writer {
    pub(super) fn push(&mut self, c: char) {
        if std::mem::take(&mut self.is_after_address) && !ends_address(c) {
            self.out.push(' ');
        }
        self.out.push(c);
        self.last = Some(c);
    }

    pub(super) fn push_str(&mut self, text: &str) {
        text.chars().for_each(|c| self.push(c));
    }

    /// A space, unless one stands there.
    pub(super) fn space(&mut self) {
        if !self.last.is_none_or(ends_address) || self.is_after_address {
            self.push(' ');
        }
    }

    /// Whether something stands right before what comes next.
    pub(super) fn is_inside(&self) -> bool {
        !self.last.is_none_or(char::is_whitespace)
    }

    pub(super) fn address(&mut self, address: &str) {
        self.space();
        self.push_str(address);
        self.is_after_address = true;
    }

    /// Writes a character of a long segment. Returns what it is to the next one.
    fn harsh(&mut self, c: char, before: char) -> char {
        if is_transparent(c) {
            self.push(c);
            return before;
        }
        let (mut count, mut seen) = (0, c);
        let mut is_sign = false;
        folded(c, |folded| {
            count += 1;
            seen = folded;
            is_sign |= matches!(folded, '.' | ':' | '@' | '/' | '\\' | '[' | ']' | '(' | '<' | '&');
        });
        if count > 1 && is_sign {
            self.space();
            self.push(c);
            self.space();
            return seen;
        }
        match (before, seen) {
            (_, '.' | '@') | ('/' | '\\', '/' | '\\') | ('[' | ']', '[' | ':') | (']', '(') => self.space(),
            _ => {}
        }
        match seen {
            '<' => self.push('‹'),
            ':' | '@' | '&' | '\\' => {
                self.push(c);
                self.space();
            }
            _ => self.push(c),
        }
        seen
    }
}
