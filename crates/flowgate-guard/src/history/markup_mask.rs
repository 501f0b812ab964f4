//! Finds the markup of a text that a reader does not see, so that a text and its rendered form have a common
//! [normal form](super::normalization). `remembered_texts` and `query` call [`markup_mask`].

use super::escapes::SourceChar;

/// The longest tag, comment or link address that is recognised as markup, in characters.
const LONGEST_MARKUP: usize = 1 << 18;
/// The longest markup once the searches for ends of markup have read [`MAX_SEARCHED`] times the length of the text:
/// many beginnings without an end must not cost the square of the length.
const LONGEST_MARKUP_OF_MANY: usize = 2_000;
/// How many times the length of the text the searches for ends of markup may read before [`LONGEST_MARKUP_OF_MANY`]
/// applies.
const MAX_SEARCHED: usize = 8;

/// Returns which characters are markup that a reader does not see: HTML tags and comments, addresses of Markdown links,
/// tags of BBCode, and colour codes of terminals. `None` if there is none.
pub(super) fn markup_mask(chars: &[SourceChar]) -> Option<Vec<bool>> {
    let mut is_markup = vec![false; chars.len()];
    let (mut at, mut has_markup) = (0, false);
    // The end of each piece of markup is searched up to a maximal length. Once these searches have read too much in
    // total, the maximal length is smaller.
    let mut may_still_read = MAX_SEARCHED.saturating_mul(chars.len());
    while let Some(char) = chars.get(at) {
        let rest = chars.get(at..).unwrap_or_default();
        let max_length = if may_still_read > 0 { LONGEST_MARKUP } else { LONGEST_MARKUP_OF_MANY };
        let found = match char.c {
            '<' => find_tag_end(rest, max_length),
            ']' => find_address_end(rest, max_length),
            '[' => MarkupEnd::of(bbcode_tag_length(rest)),
            '\u{1b}' => MarkupEnd::of(control_sequence_length(rest)),
            _ => MarkupEnd::of(None),
        };
        may_still_read = may_still_read.saturating_sub(found.read);
        let Some(length) = found.length else {
            at += 1;
            continue;
        };
        is_markup.iter_mut().skip(at).take(length).for_each(|is_markup| *is_markup = true);
        (at, has_markup) = (at + length, true);
    }
    has_markup.then_some(is_markup)
}

/// The end of a piece of markup, as far as a search found it.
struct MarkupEnd {
    /// The length of the markup in characters; `None` if it has no end.
    length: Option<usize>,
    /// The number of characters that were read.
    read: usize,
}

impl MarkupEnd {
    /// Returns the result of a search that counts as having read nothing, because its length is limited anyway.
    fn of(length: Option<usize>) -> Self {
        Self { length, read: 0 }
    }
}

/// Searches for the end of the HTML tag or comment that begins `rest`, within `max_length` characters. A quoted value
/// of an attribute may contain `<` and `>`, unless its quotation mark is never closed. `read` of the result is the
/// number of characters that the search has read, by which the caller bounds its work.
fn find_tag_end(rest: &[SourceChar], max_length: usize) -> MarkupEnd {
    let begins = |with: &str| with.chars().zip(rest).all(|(c, char)| c == char.c) && rest.len() >= with.len();
    if begins("<!--") {
        return find_comment_end(rest, max_length);
    }
    let is_tag =
        rest.get(1).is_some_and(|next| next.c.is_ascii_alphabetic() || matches!(next.c, '/' | '!' | '?'));
    if !is_tag {
        return MarkupEnd::of(None);
    }
    // The quotation mark of the value that is open.
    let mut open_quote = None;
    // The last character that is no white space.
    let mut before = ' ';
    for (at, char) in rest.iter().enumerate().skip(1).take(max_length) {
        match (open_quote, char.c) {
            (Some(mark), c) if c == mark => open_quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if before == '=' => open_quote = Some(char.c),
            (None, '>') => return MarkupEnd { length: Some(at + 1), read: at },
            (None, '<') => return MarkupEnd { length: None, read: at },
            (None, _) => {}
        }
        if !char.c.is_whitespace() {
            before = char.c;
        }
    }
    // The quotation mark of a value is never closed: the tag ends at the first `>`.
    let read = max_length.min(rest.len());
    let inside = rest.iter().skip(1).take(max_length).take_while(|char| !matches!(char.c, '<' | '>')).count();
    let is_closed = rest.get(1 + inside).is_some_and(|char| char.c == '>');
    MarkupEnd { length: is_closed.then_some(inside + 2), read }
}

/// Searches for the end of the HTML comment that begins `rest`, within `max_length` characters.
fn find_comment_end(rest: &[SourceChar], max_length: usize) -> MarkupEnd {
    // `-->` may not overlap the four characters of `<!--`.
    let mut ends = rest.windows(3).take(max_length).enumerate().skip(4);
    let length = ends.find_map(|(at, end)| {
        let is_end = end.iter().map(|char| char.c).eq("-->".chars());
        is_end.then_some(at + 3)
    });
    MarkupEnd { length, read: length.unwrap_or(max_length.min(rest.len())) }
}

/// Searches for the end of the Markdown link address that begins `rest`, `](...)`, within `max_length` characters.
/// The address may be enclosed in `<...>`, and may contain balanced round brackets and a title in quotation marks;
/// brackets inside `<...>` or a title do not count. If a blank line comes while a round bracket is open, the address
/// ends at the first closing bracket before the line. If `<...>`, a title or a bracket is never closed, the address
/// ends at the first closing bracket on its first line; without one, there is no end. `read` of the result is the
/// number of characters that the search has read, by which the caller bounds its work.
fn find_address_end(rest: &[SourceChar], max_length: usize) -> MarkupEnd {
    if rest.get(1).is_none_or(|char| char.c != '(') {
        return MarkupEnd::of(None);
    }
    // The number of open round brackets within the address.
    let mut depth = 0_usize;
    // The mark that ends the open title or the address in `<...>`.
    let mut open_quote = None;
    // The previous character.
    let mut before = ' ';
    // The index of the first closing bracket.
    let mut first_bracket = None;
    for (at, char) in rest.iter().enumerate().skip(2).take(max_length) {
        match (open_quote, char.c) {
            (Some(mark), c) if c == mark => open_quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') if before.is_whitespace() => open_quote = Some(char.c),
            (None, '<') if at == 2 => open_quote = Some('>'),
            (None, '(') => depth += 1,
            (None, ')') if depth == 0 => return MarkupEnd { length: Some(at + 1), read: at },
            (None, ')') => {
                depth -= 1;
                first_bracket = first_bracket.or(Some(at));
            }
            // A blank line ends the paragraph.
            (None, '\n') if before == '\n' => {
                return MarkupEnd { length: first_bracket.map(|at| at + 1), read: at };
            }
            (None, _) => {}
        }
        before = char.c;
    }
    let read = max_length.min(rest.len());
    // The brackets are not balanced, or the title does not end: the address ends at the first closing bracket.
    let inside =
        rest.iter().skip(2).take(max_length).take_while(|char| !matches!(char.c, ')' | '\n')).count();
    let is_closed = rest.get(2 + inside).is_some_and(|char| char.c == ')');
    MarkupEnd { length: is_closed.then_some(inside + 3), read }
}

/// Returns the length of the tag of BBCode that begins `rest`, in characters; `None` if none does. A tag whose
/// value has 200 or more characters is not recognised.
fn bbcode_tag_length(rest: &[SourceChar]) -> Option<usize> {
    const NAMES: [&str; 14] = [
        "b", "i", "u", "s", "url", "img", "quote", "code", "color", "size", "list", "center", "font",
        "spoiler",
    ];
    let from = 1 + usize::from(rest.get(1)?.c == '/');
    // The longest name has seven characters; with one more, a longer word is no name.
    let name: String =
        rest.iter().skip(from).take(8).map(|char| char.c).take_while(char::is_ascii_alphabetic).collect();
    NAMES.contains(&name.to_ascii_lowercase().as_str()).then_some(())?;
    let after_name = from + name.len();
    let value = match rest.get(after_name)?.c {
        '=' => rest
            .iter()
            .skip(after_name)
            .take(200)
            .take_while(|char| !matches!(char.c, ']' | '[' | '\n'))
            .count(),
        _ => 0,
    };
    (rest.get(after_name + value)?.c == ']').then_some(after_name + value + 1)
}

/// Returns the length of the terminal's control sequence that begins `rest`, in characters; `None` if none does. It
/// consists of the escape character, `[`, at most 64 characters of parameters, and one final character.
fn control_sequence_length(rest: &[SourceChar]) -> Option<usize> {
    (rest.get(1)?.c == '[').then_some(())?;
    let parameters = rest.iter().skip(2).take(64).take_while(|char| matches!(char.c, ' '..='?')).count();
    matches!(rest.get(2 + parameters)?.c, '@'..='~').then_some(parameters + 3)
}

#[cfg(test)]
mod tests {
    use super::super::escapes::source_chars;
    use super::*;

    /// `check` takes a text, and the text without its markup.
    #[test]
    fn markup_is_masked() {
        let check = |text: &str, expected: &str| {
            let all = source_chars(text);
            let shown: String = match markup_mask(&all) {
                None => text.to_owned(),
                Some(is) => all.iter().zip(is).filter(|(_, is)| !is).map(|(char, _)| char.c).collect(),
            };
            assert_eq!(shown, expected, "{text}");
        };
        check("a<b>c</b>d", "acd");
        check("a < b > c <3 >", "a < b > c <3 >");
        check("a<!-- b > c -->d<br/>e", "ade");
        check("[a](https://x)b ](c", "[ab ](c");
        check("[a](https://x/(y)?z)b", "[ab");
        check("[a](<https://x y> 'a ) b')c", "[ac");
        check("[a](<https://x)y>)c", "[ac");
        check("[a](<https://x(y>)c", "[ac");
        check("[a](https://x\n \"title)\")c", "[ac");
        check("[a](https://x(y)c d", "[ac d");
        check("a<b title=\"x > y <c>\">d", "ad");
        check("a<b title=\"x>d", "ad");
        check("[b]a[/b] [url=https://x]c[/url] [1] [bc]", "a c [1] [bc]");
        check("\u{1b}[1;31ma\u{1b}[0m b \u{1b}c", "a b \u{1b}c");
        check("a<b<c>", "a<b");
        check("<a", "<a");
    }
}
