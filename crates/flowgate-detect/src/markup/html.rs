//! Parses the tags, attributes, comments and character references of HTML, including malformed HTML, and collects the
//! links, images and hidden texts. `markup` calls [`read`] for each text.

use std::ops::Range;

use super::{Link, Markup};

/// An element that hides its content.
struct HiddenElement {
    name: String,
    /// The number of open elements of this name, including this one. The element ends when the number is zero.
    depth: usize,
    /// The text inside the element, as far as it was read, without tags.
    text: String,
}

/// Adds the links, images, alternative texts and hidden texts of the HTML in a text to `markup`. The function goes from
/// one `<` to the next and builds no tree: it remembers only the outermost open element that hides its content, and
/// collects the text between tags only inside of that element.
pub(super) fn read(text: &str, markup: &mut Markup) {
    let mut at = 0;
    // The outermost open element that hides its content.
    let mut hidden: Option<HiddenElement> = None;
    // Whether the last tag was not closed: a browser then reads the next one as a part of it.
    let mut is_unclosed = false;
    // The end of the last comment.
    let mut comment_end = 0;
    while let Some(open) = text.get(at..).and_then(|rest| rest.find('<')) {
        let (plain, rest) = text.get(at..).unwrap_or_default().split_at(open);
        if let Some(hidden) = &mut hidden {
            hidden.text.push_str(plain);
        }
        let start = at + open;
        if let Some(comment) = rest.strip_prefix("<!--") {
            // A `<!--` in the last comment is a part of that comment, which is recorded already.
            if start >= comment_end {
                let end = comment.find("-->").unwrap_or(comment.len());
                let inside = comment.get(..end).unwrap_or_default();
                markup.hidden_texts.push(resolve_character_references(inside));
                // `<!--` has four bytes, `-->` three; the latter may be missing.
                comment_end = (start + 4 + end + 3).min(text.len());
            }
            // In a tag that is not closed, `<!--` begins no comment for a browser. So the text after it is read as
            // tags, too.
            at = if is_unclosed { start + 4 } else { comment_end };
            continue;
        }
        let is_closing = rest.starts_with("</");
        let name_at = start + 1 + usize::from(is_closing);
        let from_name = text.get(name_at..).unwrap_or_default();
        let name_length = from_name.find(|c: char| !c.is_ascii_alphanumeric()).unwrap_or(from_name.len());
        let name = from_name.get(..name_length).unwrap_or_default();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) {
            // A `<` without a letter after it, as in `a < b`, begins no tag.
            at = start + 1;
            continue;
        }
        let name = name.to_ascii_lowercase();
        let tag = Tag::read(text, name_at + name.len());
        at = tag.end;
        let is_closed = text.get(..at).is_some_and(|read| read.ends_with('>'));
        let was_unclosed = std::mem::replace(&mut is_unclosed, !is_closed);
        if is_closing {
            let ends_hidden = hidden.as_mut().is_some_and(|hidden| {
                hidden.depth -= usize::from(hidden.name == name);
                hidden.depth == 0
            });
            if ends_hidden && let Some(hidden) = hidden.take() {
                markup.hidden_texts.push(resolve_character_references(&hidden.text));
            }
            continue;
        }
        collect_from_attributes(&name, &tag, markup);
        // The content of these elements has no tags. If the tag before was not closed, a browser reads this one as a
        // part of it, and the content as tags.
        if !was_unclosed && matches!(name.as_str(), "script" | "style" | "textarea" | "title" | "xmp") {
            at = end_of_raw_text(text, at, &name);
        } else if let Some(hidden) = &mut hidden {
            hidden.depth += usize::from(hidden.name == name);
        } else if !is_void(&name) && (name == "template" || tag.hides_content()) {
            hidden = Some(HiddenElement { name, depth: 1, text: String::new() });
        }
    }
    if let Some(mut hidden) = hidden {
        hidden.text.push_str(text.get(at..).unwrap_or_default());
        markup.hidden_texts.push(resolve_character_references(&hidden.text));
    }
}

/// Returns whether elements of this name are void: they have no content and no closing tag.
fn is_void(name: &str) -> bool {
    matches!(
        name,
        "area"
            | "base"
            | "br"
            | "col"
            | "embed"
            | "hr"
            | "img"
            | "input"
            | "link"
            | "meta"
            | "source"
            | "track"
            | "wbr"
    )
}

/// Adds the addresses in the attributes of an element to the links or images, the alternative text of an image, and the
/// value of a hidden input. `name` is the name of the element.
fn collect_from_attributes(name: &str, tag: &Tag, markup: &mut Markup) {
    let link = |attribute: &Attribute| {
        let value = attribute.value.trim();
        let leading = attribute.value.len() - attribute.value.trim_start().len();
        // Character references make the value shorter than its source; then the span covers the whole attribute value.
        let span = match attribute.value.len() == attribute.span.len() {
            true => attribute.span.start + leading..attribute.span.start + leading + value.len(),
            false => attribute.span.clone(),
        };
        Link { url: value.to_owned(), span }
    };
    let is_hidden_input = name == "input" && tag.has_value("type", "hidden");
    for attribute in &tag.attributes {
        match attribute.name {
            "alt" if !attribute.value.is_empty() => markup.alt_texts.push(attribute.value.clone()),
            "src" | "background" | "poster"
                if matches!(name, "img" | "body" | "table" | "td" | "video" | "input" | "image") =>
            {
                markup.images.push(link(attribute));
            }
            "srcset" => {
                let urls = srcset_addresses(&attribute.value);
                markup
                    .images
                    .extend(urls.map(|url| Link { url: url.to_owned(), span: attribute.span.clone() }));
            }
            "href" | "src" | "action" | "formaction" | "data" | "cite" => markup.links.push(link(attribute)),
            "value" if is_hidden_input => markup.hidden_texts.push(attribute.value.clone()),
            _ => {}
        }
    }
}

/// Returns the addresses of a `srcset`, any of which a browser may fetch. An address ends at white space, and a comma
/// at its end or after its descriptor (`2x`) separates it from the next one.
fn srcset_addresses(value: &str) -> impl Iterator<Item = &str> {
    let mut rest = value;
    std::iter::from_fn(move || {
        let start = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == ',');
        let (word, after) =
            start.split_at(start.find(|c: char| c.is_ascii_whitespace()).unwrap_or(start.len()));
        let url = word.trim_end_matches(',');
        // If the word ends with a comma, this comma is the separator. Otherwise, the separator is the comma after the
        // descriptor.
        rest =
            if url.len() < word.len() { after } else { after.split_once(',').map_or("", |(_, next)| next) };
        (!url.is_empty()).then_some(url)
    })
}

/// The names of the attributes that are read.
const ATTRIBUTES: &[&str] = &[
    "alt",
    "src",
    "background",
    "poster",
    "srcset",
    "href",
    "action",
    "formaction",
    "data",
    "cite",
    "value",
    "type",
    "hidden",
    "aria-hidden",
    "style",
];

/// Returns the offset at which the content of an element without inner tags, such as `<script>`, ends: at the closing
/// tag `name`, in upper or lower case, or at the end of the text. The content begins at the offset `from`.
fn end_of_raw_text(text: &str, from: usize, name: &str) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let end = rest.match_indices("</").map(|(at, _)| at).find(|at| {
        let tag = rest.get(at + 2..at + 2 + name.len());
        tag.is_some_and(|tag| tag.eq_ignore_ascii_case(name))
    });
    from + end.unwrap_or(rest.len())
}

/// An attribute of a tag.
struct Attribute {
    /// One of [`ATTRIBUTES`].
    name: &'static str,
    /// The value, with character references resolved.
    value: String,
    /// The bytes of the value.
    span: Range<usize>,
}

/// The attributes of a start or end tag, as far as they are read.
struct Tag {
    attributes: Vec<Attribute>,
    /// The offset after the `>`.
    end: usize,
}

impl Tag {
    /// Parses the attributes of a tag, of which only those in [`ATTRIBUTES`] are kept. `at` is the offset after the
    /// tag's name. A tag that is not closed ends before the next `<`, or at the end of the text. The result also
    /// contains the position after the tag.
    fn read(text: &str, mut at: usize) -> Self {
        let mut attributes = Vec::new();
        // For each of `ATTRIBUTES`, whether the tag has had it before.
        let mut is_read = [false; ATTRIBUTES.len()];
        let rest = |at: usize| text.get(at..).unwrap_or_default();
        // Returns the offset of the first character from `at` on that satisfies `ends`, or the end of the text.
        let find_from =
            |at: usize, ends: &dyn Fn(char) -> bool| at + rest(at).find(ends).unwrap_or(rest(at).len());
        loop {
            at = find_from(at, &|c| !c.is_whitespace() && c != '/');
            match rest(at).chars().next() {
                None => return Self { attributes, end: at },
                Some('>') => return Self { attributes, end: at + 1 },
                // The tag was never closed, and the next one begins.
                Some('<') => return Self { attributes, end: at },
                Some(_) => {}
            }
            // The name of the attribute is from `at` to `end`.
            let mut end = find_from(at, &|c| c.is_whitespace() || matches!(c, '=' | '>' | '/' | '<'));
            if end == at {
                // A stray `=` is treated as a name.
                end = at + rest(at).chars().next().map_or(1, char::len_utf8);
            }
            let name = text.get(at..end).unwrap_or_default().to_ascii_lowercase();
            // The value, with or without quotes, is `span`. Without `=`, it is empty.
            let equals = find_from(end, &|c| !c.is_whitespace());
            let mut span = end..end;
            at = end;
            if rest(equals).starts_with('=') {
                let start = find_from(equals + 1, &|c| !c.is_whitespace());
                let quote = rest(start).chars().next().filter(|c| matches!(c, '"' | '\''));
                span = match quote {
                    Some(quote) => start + 1..find_from(start + 1, &|c| c == quote),
                    None => start..find_from(start, &|c| c.is_whitespace() || c == '>'),
                };
                at = (span.end + usize::from(quote.is_some())).min(text.len());
            }
            let known = ATTRIBUTES.iter().zip(&mut is_read).find(|(known, _)| **known == name);
            let Some((name, is_read)) = known else { continue };
            // Browsers ignore an attribute that repeats an earlier one, so omitting repeated ones beyond the limit
            // omits nothing that a browser uses.
            if attributes.len() < 1000 || !*is_read {
                let value = text.get(span.clone()).unwrap_or_default();
                let value = resolve_references(value, CodesEnd::Anywhere);
                attributes.push(Attribute { name, value, span });
            }
            *is_read = true;
        }
    }

    /// Returns whether the tag has an attribute of this name with this value, in upper or lower case.
    fn has_value(&self, name: &str, value: &str) -> bool {
        self.attributes.iter().any(|a| a.name == name && a.value.eq_ignore_ascii_case(value))
    }

    /// Returns whether an attribute of the element hides its content: `hidden`, `aria-hidden`, or a style such as
    /// `display:none`.
    fn hides_content(&self) -> bool {
        const STYLES: &[&str] = &[
            "display:none",
            "visibility:hidden",
            "font-size:0;",
            "font-size:0px",
            "font-size:1px",
            "opacity:0;",
            "color:transparent",
            "color:white",
            "color:#fff;",
            "color:#ffffff",
            "height:0;",
            "width:0;",
            "left:-999",
            "text-indent:-999",
            "clip:rect(0",
        ];
        self.attributes.iter().any(|attribute| match attribute.name {
            // A browser reveals the content of `hidden="until-found"` to a search.
            "hidden" => !attribute.value.eq_ignore_ascii_case("until-found"),
            "aria-hidden" => attribute.value == "true",
            "style" => {
                let style: String = attribute.value.chars().filter(|c| !c.is_whitespace()).collect();
                // With a final `;`, the entry `opacity:0;` matches the last declaration too, but not `opacity:0.5`.
                let style = style.to_ascii_lowercase() + ";";
                STYLES.iter().any(|hiding| {
                    // `background-color:white` hides nothing.
                    style
                        .match_indices(hiding)
                        .any(|(at, _)| !style.get(..at).is_some_and(|before| before.ends_with('-')))
                })
            }
            _ => false,
        })
    }
}

/// Returns a text with its character references, such as `&#58;` or `&amp;`, replaced by the characters: all numeric
/// ones, and the few named ones that matter in addresses. A reference without a semicolon stays.
pub(super) fn resolve_character_references(text: &str) -> String {
    resolve_references(text, CodesEnd::AtSemicolon)
}

/// Where numeric character references end.
#[derive(Clone, Copy, PartialEq, Eq)]
enum CodesEnd {
    /// At their semicolon, as in Markdown.
    AtSemicolon,
    /// Before any character that is not a digit, as in the attributes of HTML.
    Anywhere,
}

/// Returns a text with its character references replaced by the characters. `codes_end` says where a numeric reference
/// ends. A reference with an unknown name or without its end stays.
fn resolve_references(text: &str, codes_end: CodesEnd) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('&') {
        plain.push_str(before);
        let end = after.find(|c: char| !c.is_ascii_alphanumeric() && c != '#').unwrap_or(after.len());
        // A numeric reference that may have no semicolon ends after its digits. `x_length` is the length of the `x`
        // before hexadecimal digits: 1, or 0 before decimal ones.
        let end = match after.strip_prefix('#') {
            Some(digits) if codes_end == CodesEnd::Anywhere => {
                let x_length = usize::from(digits.starts_with(['x', 'X']));
                let is_digit =
                    |c: char| if x_length == 1 { c.is_ascii_hexdigit() } else { c.is_ascii_digit() };
                let digits = digits.get(x_length..).unwrap_or_default();
                // 1 for the `#`.
                1 + x_length + digits.find(|c| !is_digit(c)).unwrap_or(digits.len())
            }
            _ => end,
        };
        let name = after.get(..end).unwrap_or_default();
        // The number may have any number of zeros before it, which the conversion skips.
        let number = match name.strip_prefix("#x").or_else(|| name.strip_prefix("#X")) {
            Some(hexadecimal) => u32::from_str_radix(hexadecimal, 16).ok(),
            None => name.strip_prefix('#').and_then(|decimal| decimal.parse().ok()),
        };
        let c = number.and_then(char::from_u32).or_else(|| named_character(name));
        let after_semicolon = after.get(name.len()..).and_then(|tail| tail.strip_prefix(';'));
        // Without the semicolon `&copy=1` is part of an address.
        match (c, after_semicolon) {
            (Some(c), Some(after_semicolon)) => {
                plain.push(c);
                rest = after_semicolon;
            }
            (Some(c), None) if number.is_some() && codes_end == CodesEnd::Anywhere => {
                plain.push(c);
                rest = after.get(name.len()..).unwrap_or_default();
            }
            _ => {
                plain.push('&');
                rest = after;
            }
        }
    }
    plain + rest
}

/// Returns the character of a named reference, such as `&` for `amp`; `None` for a name that is not replaced.
fn named_character(name: &str) -> Option<char> {
    match name {
        "amp" => Some('&'),
        "lt" => Some('<'),
        "gt" => Some('>'),
        "quot" => Some('"'),
        "apos" => Some('\''),
        "nbsp" => Some('\u{a0}'),
        "colon" => Some(':'),
        "sol" => Some('/'),
        "period" => Some('.'),
        "Tab" => Some('\t'),
        "NewLine" => Some('\n'),
        _ => None,
    }
}
