//! Writes the text that the cleaner of links releases: inserts the spaces at which every renderer ends an address.
//! Defines [`LinkJudge`], through which the cleaner asks for the decision on an address. `cleaner` and `segment` write
//! through this module.

use super::rendered::{for_each_normalized, is_transparent};

/// The decision on one address.
///
/// The list is exhaustive on purpose: a program has to act on each decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkDecision {
    /// The address may stay in the text.
    Permitted,
    /// The address must not stay in the text as it is: it is broken apart.
    Refused,
    /// Not decided yet: the text is held back from here on.
    Unknown,
}

/// Judges an address in its canonical form.
pub type LinkJudge<'j> = &'j mut dyn FnMut(&str) -> LinkDecision;

/// Writes the cleaned text.
#[derive(Debug, Default)]
pub(super) struct CleanedTextWriter {
    /// What was written and not yet taken out.
    pub(super) out: String,
    /// The last character written.
    last: Option<char>,
    address: AddressState,
}

/// Whether an address was written last.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum AddressState {
    /// Other text was written last.
    #[default]
    Nothing,
    /// An address was written last.
    Address,
    /// An address and one space were written last.
    Space,
}

/// Returns whether every renderer ends an address at this white space.
fn ends_address(c: char) -> bool {
    matches!(c, ' ' | '\n' | '\r' | '\t')
}

impl CleanedTextWriter {
    /// Writes a character. After an address, a space is inserted before any character but a space or tab, and further
    /// spaces are left out.
    pub(super) fn push(&mut self, c: char) {
        match (std::mem::take(&mut self.address), c) {
            (AddressState::Nothing, _) | (AddressState::Address, '\t') => {}
            // Some renderers put a marker in place of two spaces and a line break, and read the marker as part of the
            // address.
            (AddressState::Space, ' ') => {
                self.address = AddressState::Space;
                return;
            }
            (AddressState::Address, ' ') => self.address = AddressState::Space,
            (AddressState::Address, _) => self.out.push(' '),
            (AddressState::Space, _) => {}
        }
        self.out.push(c);
        self.last = Some(c);
    }

    /// Writes the characters of a text, each by [`push`](Self::push).
    pub(super) fn push_str(&mut self, text: &str) {
        text.chars().for_each(|c| self.push(c));
    }

    /// Writes a space, unless white space precedes or nothing was written yet.
    pub(super) fn push_space(&mut self) {
        if !self.last.is_none_or(ends_address) || self.address == AddressState::Address {
            self.push(' ');
        }
    }

    /// Returns whether a visible character directly precedes the next one.
    pub(super) fn is_inside(&self) -> bool {
        !self.last.is_none_or(char::is_whitespace)
    }

    /// Writes a permitted address in its canonical form, with white space before it. The next [`push`](Self::push)
    /// separates it from what follows.
    pub(super) fn push_address(&mut self, address: &str) {
        self.push_space();
        self.push_str(address);
        self.address = AddressState::Address;
    }

    /// Writes a character of a segment that is too long to be analysed, and separates it from its neighbours if it is a
    /// sign that an address or a link needs. `before` is the previous visible character. Returns the character to pass
    /// as `before` with the next character.
    pub(super) fn push_in_long_segment(&mut self, c: char, before: char) -> char {
        if is_transparent(c) {
            self.push(c);
            return before;
        }
        // The normal form of `c` has `count` characters; the last one is `seen`. `c` itself is written, but the signs
        // are recognised in its normal form. `has_sign` leaves out `=`: where a normal form of several characters
        // contains it, such as `==`, it is also the last one, before which the match below writes a space.
        let (mut count, mut seen) = (0, c);
        let mut has_sign = false;
        for_each_normalized(c, |folded| {
            count += 1;
            seen = folded;
            has_sign |= matches!(folded, '.' | ':' | '@' | '/' | '\\' | '[' | ']' | '(' | '<' | '&');
        });
        // A character whose normal form has several characters, one of them such a sign, cannot be split. Spaces are
        // written around it.
        if count > 1 && has_sign {
            self.push_space();
            self.push(c);
            self.push_space();
            return seen;
        }
        // A space goes before these signs; before some of them, only after a sign with which they begin an address, a
        // link or a reference. `=` and `(` are signs of markup that loads a resource, such as `style=` and `url(`.
        let needs_space_before = match seen {
            '.' | '@' | '=' | '(' => true,
            '/' | '\\' => matches!(before, '/' | '\\'),
            '[' | ':' => matches!(before, '[' | ']'),
            _ => false,
        };
        if needs_space_before {
            self.push_space();
        }
        match seen {
            // No space makes a tag of HTML harmless, so a similar character takes the place of its bracket.
            '<' => self.push('‹'),
            ':' | '@' | '&' | '\\' => {
                self.push(c);
                self.push_space();
            }
            _ => self.push(c),
        }
        seen
    }
}
