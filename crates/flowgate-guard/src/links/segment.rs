//! Cleans one segment of a text, that is, a span between characters that no address reaches across. Finds the addresses
//! in the segment, asks the [`LinkJudge`] about each, and then breaks up whatever is left that a renderer could make a
//! link of. [`super::cleaner`] calls this module for each segment.
//!
//! No single renderer's grammar is followed. Anything that begins like an address is judged; a permitted one is written
//! in its canonical form; and each remaining character that an address or a link needs, such as `.`, `:`, `@` or `/`,
//! is separated from its neighbours.

use super::address;
use super::host_names;
use super::markup;
use super::rendered::{EMPHASIS, RenderedChar, is_mark, rendered_chars};
use super::segment_text::{SegmentText, is_label};
use super::writer::{CleanedTextWriter, LinkDecision, LinkJudge};

/// The entry in the list of refusals for signs that were broken apart without an address.
pub(super) const MARKUP: &str = "markup";

/// Signs without which a segment has no address and no link.
const SIGNS: &[char] = &['.', ':', '@', '/', '\\', '[', ']', '<', '&', '=', '(', '>'];

/// The longest scheme, including emphasis signs in it, in characters.
const LONGEST_SCHEME: usize = 64;
/// The longest spelling of two dots, including characters without a shape of their own, in bytes.
const MAX_DOTS_LENGTH: usize = 64;

/// Writes a segment so that it contains only permitted addresses. Returns what was refused; `None` if an address
/// cannot be decided yet. `after` is the visible character after the segment, if there is one, and `is_after_dots`
/// tells whether the preceding segment is [`..`](is_dots). `judge` decides on each address.
pub(super) fn clean(
    segment: &str,
    (after, is_after_dots): (Option<char>, bool),
    writer: &mut CleanedTextWriter,
    judge: LinkJudge<'_>,
) -> Option<Vec<String>> {
    let rendered = rendered_chars(segment);
    let has_signs = rendered.iter().any(|char| SIGNS.contains(&char.c));
    // After `..`, further characters can begin a link of reStructuredText. `__` alone is an anonymous link of it.
    if !has_signs && !is_after_dots && !rendered.iter().map(|seen| seen.c).eq("__".chars()) {
        writer.push_str(segment);
        return Some(Vec::new());
    }
    let plain: Vec<RenderedChar> = rendered.iter().copied().filter(|seen| !seen.is_silent).collect();
    let mut reader = SegmentReader {
        // The last edit is that of the end of the segment, where a space can be inserted as well.
        edits: vec![CharEdit::default(); plain.len() + 1],
        text: SegmentText {
            source: segment,
            chars: plain.iter().map(|seen| seen.c).collect(),
            plain,
            is_inside: writer.is_inside(),
        },
        after,
        is_after_dots,
        addresses: Vec::new(),
        refused: Vec::new(),
        refused_until: 0,
        name_until: 0,
        local_until: 0,
        judge,
    };
    reader.read_segment()?;
    reader.separate_slashes(&rendered);
    let SegmentReader { text, edits, addresses, refused, .. } = reader;
    write(segment, &text.plain, &edits, &addresses, writer);
    Some(refused)
}

/// Returns whether some renderer reads a segment as two dots (`..`), which begin a construct of reStructuredText.
pub(super) fn is_dots(segment: &str) -> bool {
    segment.len() < MAX_DOTS_LENGTH && rendered_chars(segment).iter().map(|seen| seen.c).eq("..".chars())
}

/// The edit of one character of [`SegmentText::chars`].
#[derive(Debug, Clone, Copy, Default)]
struct CharEdit {
    has_space_before: bool,
    /// A text that replaces this character and as many of the next ones as the text has characters.
    instead: Option<&'static str>,
}

/// A permitted address, and the characters that it replaces.
struct PermittedAddress {
    start: usize,
    end: usize,
    /// The canonical form of the address.
    written: String,
}

/// Reads a segment from its beginning to its end, and collects edits, addresses and refusals.
struct SegmentReader<'s, 'j> {
    text: SegmentText<'s>,
    /// One for each character of the text, and one for its end.
    edits: Vec<CharEdit>,
    /// The character that directly follows the segment.
    after: Option<char>,
    /// Whether the preceding segment is [`..`](is_dots).
    is_after_dots: bool,
    /// The permitted addresses, in the order of the text.
    addresses: Vec<PermittedAddress>,
    /// The refused addresses and signs, each once.
    refused: Vec<String>,
    /// The end of the last refused address: nothing inside it is judged again.
    refused_until: usize,
    /// The end of the last name with dots.
    name_until: usize,
    /// The end of the last word that could precede an `@`.
    local_until: usize,
    judge: LinkJudge<'j>,
}

/// The segment cannot be cleaned yet, because the judge has not decided on an address in it.
struct UndecidedAddressError;

impl SegmentReader<'_, '_> {
    /// Inserts a space before the character at this index, or at the end of the segment.
    fn insert_space(&mut self, index: usize) {
        if let Some(edit) = self.edits.get_mut(index) {
            edit.has_space_before = true;
        }
    }

    /// Records that `text` replaces as many characters as it has itself, from `index` on.
    fn replace_chars(&mut self, index: usize, text: &'static str) {
        if let Some(edit) = self.edits.get_mut(index) {
            edit.instead = Some(text);
        }
    }

    /// Adds an address or a sign to those that were refused, unless it is among them.
    fn add_refused(&mut self, what: impl Into<String>) {
        let what = what.into();
        if !self.refused.contains(&what) {
            self.refused.push(what);
        }
    }

    /// Reads all tokens of the segment, and collects the edits and the permitted addresses. Returns `None` if an
    /// address cannot be decided yet.
    fn read_segment(&mut self) -> Option<()> {
        let mut index = 0;
        while index < self.text.chars.len() {
            index = self.read_token(index).ok()?;
        }
        Some(())
    }

    /// Processes the token at a character, and returns the index of the next one. A token is an address that is
    /// permitted, or a single character; the latter is separated from its neighbours if a renderer could make a link
    /// with it.
    ///
    /// # Errors
    /// If an address cannot be decided yet.
    fn read_token(&mut self, index: usize) -> Result<usize, UndecidedAddressError> {
        let (Some(c), before) = (self.text.char_at(index), self.text.char_before(index)) else {
            return Ok(index + 1);
        };
        let is_after_address = self.addresses.last().is_some_and(|address| address.end == index);
        // An address can begin at the first character of a word, or directly after a permitted address.
        if is_label(c) && (is_after_address || !before.is_some_and(is_label)) {
            if let Some(end) = self.judge_address(index)? {
                return Ok(end);
            }
            // The address is refused. `hxxp` is no scheme, so no renderer makes a link of it.
            if self.text.starts_with_at(index, "http://") || self.text.starts_with_at(index, "https://") {
                self.replace_chars(index, if c == 'H' { "HXXP" } else { "hxxp" });
            }
            self.break_host_name(index);
        }
        let next = self.text.char_at(index + 1).or(self.after);
        if let Some(break_at) = markup::break_position(&self.text.chars, index, self.is_after_dots) {
            self.insert_space(break_at);
            self.add_refused(MARKUP);
        }
        match c {
            ':' => self.read_colon(index, next),
            '@' => {
                // A mention, such as `@name` at the beginning or after a bracket, is no address and stays. Some
                // renderers take invisible characters and marks for letters, so none may precede the sign.
                let is_first = before.is_none() && !self.text.has_before(index);
                let is_mention = is_first || before.is_some_and(|c| matches!(c, '(' | '[' | '{'));
                if !is_mention && next.is_some() {
                    self.insert_space(index);
                    self.insert_space(index + 1);
                    self.add_refused(MARKUP);
                }
            }
            '.' if next.is_some() && self.text.is_after_www(index) => {
                self.insert_space(index);
                self.add_refused("www.");
            }
            // Some renderers take every sign before the dot for a letter of a host name.
            '.' if (!before.is_some_and(is_label) || next.is_some_and(markup::is_mark))
                && self.text.is_preceded(index)
                && self.text.ends_name(index) =>
            {
                self.insert_space(index);
                self.add_refused(MARKUP);
            }
            '<' => return self.read_angle_bracket(index, next),
            ']' => return self.read_bracket(index, next),
            // Some renderers take `[[` for the beginning of a link.
            '[' if next == Some('[') => self.insert_space(index + 1),
            // A renderer decodes an entity such as `&#46;`, so any sign of an address can be spelled as one.
            '&' if self.text.begins_entity(index) => self.insert_space(index + 1),
            _ => {}
        }
        Ok(index + 1)
    }

    /// Judges the address that begins at the index `start`, if there is one. Returns the end of the address if it is
    /// permitted. Returns `None` if no address begins there, or if it is refused.
    ///
    /// # Errors
    /// If the address cannot be decided yet.
    fn judge_address(&mut self, start: usize) -> Result<Option<usize>, UndecidedAddressError> {
        // Nothing inside a refused address is judged again.
        if start < self.refused_until {
            return Ok(None);
        }
        if self.text.starts_with_at(start, "http://") || self.text.starts_with_at(start, "https://") {
            let end = self.text.end_of_address(start);
            return self.judge_web_address(start, end, start, end);
        }
        if self.text.starts_with_at(start, "mailto:") {
            let end = self.text.end_of_address(start);
            let written = address::canonical_mail_address(&self.text.slice(start + "mailto:".len(), end));
            return self.decide(written, "mailto:", start, end);
        }
        // No address begins inside a name or a word that was read already. Reading each of these once bounds the work.
        if start < self.name_until.max(self.local_until) {
            return Ok(None);
        }
        let local_end =
            self.text.run_end(start, |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '+'));
        self.local_until = local_end;
        if self.text.char_at(local_end) == Some('@')
            && self.text.char_at(local_end + 1).is_some_and(char::is_alphanumeric)
        {
            let domain_end = self.text.run_end(local_end + 1, |c| is_label(c) || c == '.');
            let end = self.text.trimmed_end(start, domain_end);
            let written = address::canonical_mail_address(&self.text.slice(start, end));
            return self.decide(written, "mailto:", start, end);
        }
        // After one of these characters, the name is a part of a path or of another address.
        let is_inside = self.text.char_before(start).is_some_and(|c| "/\\@.-_~%+#&:".contains(c));
        let (end, is_host) = self.text.name_end(start);
        if is_host && !is_inside {
            let end = match self.text.char_at(end) {
                Some('/' | ':' | '?' | '#') => self.text.end_of_address(start),
                _ => end,
            };
            let written = address::canonical_web_address(&format!("https://{}", self.text.slice(start, end)));
            return self.decide(written, "", start, end);
        }
        Ok(None)
    }

    /// Judges the web address in the characters from `from` to `to`. If it is permitted, its canonical form replaces
    /// the characters from `start` to `end`, which include brackets around the address, and `end` is returned. Returns
    /// `None` if the address is refused.
    ///
    /// # Errors
    /// If the address cannot be decided yet.
    fn judge_web_address(
        &mut self,
        from: usize,
        to: usize,
        start: usize,
        end: usize,
    ) -> Result<Option<usize>, UndecidedAddressError> {
        let text = self.text.slice(from, to);
        let written = address::canonical_web_address(&text);
        // `decide` would report the brackets around the address as well, so an address without a canonical form is
        // refused here.
        if written.is_none() {
            self.add_refused(text);
            self.refused_until = self.refused_until.max(to);
            return Ok(None);
        }
        // The canonical form is a whole URL, so it needs no prefix (`""`).
        self.decide(written, "", start, end)
    }

    /// Asks the judge about the address in the characters from `start` to `end`. `written` is its canonical form, which
    /// `prefix` (`mailto:` or nothing) completes to a URL. An address is refused without asking if it has no canonical
    /// form (`None`), or if its source has combining marks or emphasis signs, since renderers differ in whether they
    /// drop these. Returns the end of the address if it is permitted, and `None` if it is refused.
    ///
    /// # Errors
    /// If the address cannot be decided yet.
    fn decide(
        &mut self,
        written: Option<String>,
        prefix: &str,
        start: usize,
        end: usize,
    ) -> Result<Option<usize>, UndecidedAddressError> {
        // The address as it is spelled in the source, with what renderers may drop.
        let source = match (self.text.plain.get(start), self.text.plain.get(end.saturating_sub(1))) {
            (Some(first), Some(last)) => self.text.source.get(first.start..last.end.max(last.start)),
            _ => None,
        };
        // A renderer that does not drop marks or emphasis would see a different address.
        let is_dropped_by_some = |c: char| is_mark(c) || EMPHASIS.contains(&c);
        let is_ambiguous = source.is_none_or(|source| source.chars().any(is_dropped_by_some));
        let Some(written) = written.filter(|_| !is_ambiguous) else {
            let text = self.text.slice(start, end);
            self.add_refused(text);
            self.refused_until = self.refused_until.max(end);
            return Ok(None);
        };
        let url = format!("{prefix}{written}");
        match (self.judge)(&url) {
            LinkDecision::Permitted => {
                self.addresses.push(PermittedAddress { start, end, written });
                Ok(Some(end))
            }
            LinkDecision::Refused => {
                self.add_refused(url);
                self.refused_until = self.refused_until.max(end);
                Ok(None)
            }
            LinkDecision::Unknown => Err(UndecidedAddressError),
        }
    }

    /// Breaks the name that begins at the index `start` apart at its dots, where some renderer takes the name, or its
    /// part up to the label after the dot, for a host name. Each name is processed once.
    fn break_host_name(&mut self, start: usize) {
        if start < self.name_until {
            return;
        }
        let (end, is_host) = self.text.name_end(start);
        self.name_until = end;
        for dot in start..end {
            if self.text.char_at(dot) != Some('.') {
                continue;
            }
            if is_host || self.text.ends_name(dot) {
                self.insert_space(dot);
                // `judge_address` reports the host names that it judges, and `read_token` the dot after `www`.
                if !is_host && !self.text.is_after_www(dot) {
                    let name = self.text.slice(start, end);
                    self.add_refused(name);
                }
            }
        }
    }

    /// Handles the `:` at `index`, which is followed by the character `next` (`None` at the end of the text). After a
    /// word that is, or could be, a scheme, the colon is separated from the next character; after a known scheme, it is
    /// separated from the word as well.
    fn read_colon(&mut self, index: usize, next: Option<char>) {
        let is_part = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-');
        let before = self.text.chars.get(..index).unwrap_or_default();
        let length = before.iter().rev().take_while(|c| is_part(**c)).count();
        let word = self.text.slice(index - length, index);
        let word = word.trim_start_matches(|c: char| !c.is_ascii_alphabetic());
        // The same word without the marks of Markdown extensions (`^`, `=`, `+`, `|`), which some renderers drop.
        let backward = before.iter().rev().take(LONGEST_SCHEME);
        let reversed_word: String = backward
            .take_while(|c| is_part(**c) || markup::is_mark(**c))
            .filter(|c| !markup::is_mark(**c))
            .collect();
        let joined: String = reversed_word.chars().rev().skip_while(|c| !c.is_ascii_alphabetic()).collect();
        // A known scheme may also follow other text after a dot, a plus sign or a hyphen.
        let ends_in_scheme =
            |word: &str| word.rsplit(['.', '+', '-']).next().is_some_and(host_names::is_scheme);
        let is_known = host_names::is_scheme(word) || ends_in_scheme(word) || ends_in_scheme(&joined);
        // What follows a known scheme may itself begin with a colon (`xmpp::eve`). The code below separates two colons
        // only if a slash is between them.
        if is_known && next == Some(':') {
            self.insert_space(index);
            self.add_refused(MARKUP);
        }
        let has_slash_after = self.text.is_slash_after(index);
        let Some(next) = next.or(has_slash_after.then_some('/')) else { return };
        // A word of one character that is no known scheme begins no address.
        let may_be_scheme = is_known || word.len().max(joined.len()) >= 2;
        // A second colon continues no address either, unless a slash or a backslash, which a renderer may drop, is
        // between the two colons.
        let may_continue = next != ':' || has_slash_after;
        if !may_be_scheme || !may_continue {
            return;
        }
        // After an unknown word, punctuation and closing signs continue the sentence, and begin no address.
        let continues_sentence = "\"'*)]},;.!|`".contains(next);
        if is_known || !continues_sentence || has_slash_after {
            self.insert_space(index + 1);
            // Some renderers skip white space after a scheme, and none does before the colon. `http://` needs no such
            // space: `read_token` has replaced it by `hxxp`, which is no scheme.
            let is_replaced =
                word.to_ascii_lowercase().starts_with("http") && self.text.starts_with_at(index + 1, "//");
            if is_known && !is_replaced {
                self.insert_space(index);
            }
            if is_known || matches!(next, '/' | '\\') {
                let scheme = format!("{word}:");
                // A refused address with this scheme is reported as a whole.
                let is_reported = self.refused.iter().any(|refused| refused.starts_with(&scheme));
                if !is_reported {
                    self.add_refused(scheme);
                }
            }
        }
    }

    /// Handles the `<` at `index`, which is followed by the character `next`. If it begins a permitted address in angle
    /// brackets (`<https://…>`), the address is written without the brackets. Any other `<` that could begin an element
    /// is replaced by a character that no renderer takes for the start of one. Returns the index of the next token.
    ///
    /// # Errors
    /// If the address cannot be decided yet.
    fn read_angle_bracket(
        &mut self,
        index: usize,
        next: Option<char>,
    ) -> Result<usize, UndecidedAddressError> {
        // Some renderer begins an element or a link with each of these.
        if !next.is_some_and(|c| c.is_ascii_alphabetic() || "/!?@#|".contains(c)) {
            return Ok(index + 1);
        }
        if self.text.starts_with_at(index + 1, "http") && index + 1 >= self.refused_until {
            let end = self.text.end_of_address(index + 1);
            if self.text.char_at(end) == Some('>')
                && let Some(end) = self.judge_web_address(index + 1, end, index, end + 1)?
            {
                return Ok(end);
            }
        }
        self.replace_chars(index, "‹");
        self.add_refused(MARKUP);
        Ok(index + 1)
    }

    /// Handles the `]` at `index`, which is followed by the character `next` and can end the text of a Markdown link. A
    /// permitted address after the bracket stays, in canonical form. Before any other address or reference, a space
    /// breaks the link. Returns the index of the next token.
    ///
    /// # Errors
    /// If the address cannot be decided yet.
    fn read_bracket(&mut self, index: usize, next: Option<char>) -> Result<usize, UndecidedAddressError> {
        if next == Some('(') && self.text.is_adjacent(index) {
            // A space and an angle bracket may precede the address.
            let mut from = index + 2;
            let has_space = self.text.char_at(from) == Some(' ');
            from += usize::from(has_space);
            let has_angle = self.text.char_at(from) == Some('<');
            from += usize::from(has_angle);
            let to = self.text.end_of_address(from);
            let mut end = to + usize::from(has_angle);
            let is_closed = !has_angle || self.text.char_at(to) == Some('>');
            end += usize::from(self.text.char_at(end) == Some(' '));
            // Nothing that a renderer may drop is between the last character of the address and the `)`: some renderers
            // end an address only at the `)`, and would take it for a part of the address.
            let has_plain_end = (to.max(1) - 1..end).all(|index| self.text.is_adjacent(index));
            let is_link = is_closed
                && has_plain_end
                && self.text.char_at(end) == Some(')')
                && self.text.starts_with_at(from, "http");
            if is_link
                && from >= self.refused_until
                && let Some(after) = self.judge_web_address(from, to, index + 2, end)?
            {
                // The following character must not be read as part of the link.
                let next =
                    self.text.char_at(end + 1).or(self.after.filter(|_| end + 1 == self.text.chars.len()));
                if next.is_some_and(|c| !".,;:!?)]*_\"'".contains(c)) {
                    self.insert_space(end + 1);
                }
                return Ok(after);
            }
        }
        if matches!(next, Some('(' | '[' | ':')) {
            self.insert_space(index + 1);
            self.add_refused(MARKUP);
        }
        Ok(index + 1)
    }

    /// Inserts spaces between the slashes of every run that something follows, so that no renderer reads `//` or `\\`
    /// before a name as the beginning of an address. Underscores, emphasis signs and the marks of Markdown extensions
    /// do not end a run, since a renderer may drop them.
    fn separate_slashes(&mut self, rendered: &[RenderedChar]) {
        // The current run of slashes, as indices into `SegmentText::plain`, which leaves out silent characters.
        let mut run: Vec<usize> = Vec::new();
        let mut plain_index = 0;
        for rendered_char in rendered {
            match rendered_char.c {
                '/' | '\\' => run.push(plain_index),
                c if c == '_' || EMPHASIS.contains(&c) || markup::is_mark(c) => {}
                _ => self.separate_run(&mut run),
            }
            plain_index += usize::from(!rendered_char.is_silent);
        }
        // Whether something in the segment follows the last run, if only a character that renderers may drop.
        let is_followed = rendered
            .last()
            .is_some_and(|last| !matches!(last.c, '/' | '\\') || last.end < self.text.source.len());
        // A run of at least three slashes at the end of the segment is separated if other characters precede it,
        // because a greedy renderer reads its last slash as a path. Alone, such a run is the beginning of a comment.
        let is_path = run.len() > 2 && run.first().is_some_and(|first| *first > 0);
        if is_followed || self.after.is_some() || is_path {
            self.separate_run(&mut run);
        }
    }

    /// Separates the slashes of a run from each other, and empties the run.
    fn separate_run(&mut self, run: &mut Vec<usize>) {
        run.drain(..).skip(1).for_each(|slash| self.insert_space(slash));
    }
}

/// Writes `source` to `writer`. `plain` are its visible characters with their positions in `source`. `edits` has one
/// edit for each of them, and a last one for the end of the source. Each of the permitted `addresses` is written in its
/// canonical form instead.
fn write(
    source: &str,
    plain: &[RenderedChar],
    edits: &[CharEdit],
    addresses: &[PermittedAddress],
    writer: &mut CleanedTextWriter,
) {
    let mut at = 0;
    let mut addresses = addresses.iter().peekable();
    let mut address_end = 0;
    let mut replaced_count = 0;
    for (index, (seen, edit)) in plain.iter().zip(edits).enumerate() {
        if index < address_end {
            at = at.max(seen.end);
            continue;
        }
        // Source text without normalized characters: marks, escapes, characters without a shape of their own.
        let between = source.get(at..seen.start).unwrap_or_default();
        // A space is due before this character. If only emphasis signs lie between, the one after them is enough, so
        // that a closing sign stays attached to what it closes. A renderer may take anything else for a letter, so a
        // space goes before it too.
        if edit.has_space_before && between.chars().any(|c| !EMPHASIS.contains(&c)) {
            writer.push_space();
        }
        writer.push_str(between);
        if edit.has_space_before {
            writer.push_space();
        }
        at = at.max(seen.start);
        if let Some(permitted) = addresses.next_if(|permitted| permitted.start == index) {
            writer.push_address(&permitted.written);
            address_end = permitted.end;
            at = at.max(seen.end);
            continue;
        }
        match edit.instead {
            // A replacement such as `hxxp` replaces as many characters as it has; the loop skips the others.
            Some(text) => {
                writer.push_str(text);
                replaced_count = text.chars().count();
            }
            None if replaced_count == 0 => writer.push_str(source.get(at..seen.end).unwrap_or_default()),
            None => {}
        }
        replaced_count = replaced_count.saturating_sub(1);
        at = at.max(seen.end);
    }
    let rest = source.get(at..).unwrap_or_default();
    let has_space_at_end = edits.last().is_some_and(|edit| edit.has_space_before);
    if has_space_at_end && rest.chars().any(|c| !EMPHASIS.contains(&c)) {
        writer.push_space();
    }
    writer.push_str(rest);
    if has_space_at_end {
        writer.push_space();
    }
}
