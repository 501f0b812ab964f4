//! Finds links, images, alternative texts, and text that a reader is not shown, in HTML and Markdown, for functions
//! of policies such as `leaking_links`. An image or a link can leak data to its host, and hidden text can contain an
//! attack.
//!
//! The parser tolerates any input: it makes one pass over the text as HTML and one as Markdown, without a tree and
//! without recursion. Every text is parsed as both, since tools return either embedded in the other. An element counts
//! as hidden only if its own attributes hide it; text that a style sheet hides is not recognised. The submodule `html`
//! reads HTML, `url` finds addresses in plain text, and this module itself reads Markdown.

mod html;
mod url;

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

pub(super) use url::addresses;
pub use url::is_exfiltration_shaped;

use super::MAX_FINDINGS;

/// An address, and its location.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The address, with character references of HTML resolved.
    pub url: String,
    /// The bytes of the address in the text.
    pub span: Range<usize>,
}

/// The references and the hidden text of a text in HTML or Markdown.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Markup {
    /// The alternative texts of images.
    pub alt_texts: Vec<String>,
    /// The addresses of links, and every `http` or `https` address anywhere, each once, in order.
    pub links: Vec<Link>,
    /// Comments, and the texts of elements that declare themselves hidden.
    pub hidden_texts: Vec<String>,
    /// The addresses of images, each once. A client fetches them without user interaction.
    pub images: Vec<Link>,
}

/// Parses a text as HTML and as Markdown. Each list of the result has at most [`MAX_FINDINGS`] items; the rest is
/// omitted.
///
/// ```
/// let found = flowgate_detect::markup::parse("see [this](https://a.example/1), ![cat](https://b.example/c.png)");
/// let links: Vec<_> = found.links.iter().map(|link| link.url.as_str()).collect();
/// assert_eq!(links, ["https://a.example/1", "https://b.example/c.png"]);
/// assert_eq!((found.alt_texts[0].as_str(), found.images.len()), ("cat", 1));
/// ```
pub fn parse(text: &str) -> Markup {
    let mut markup = Markup::default();
    html::read(text, &mut markup);
    markdown(text, &mut markup);
    // An address within another address, as in `/go?to=https://…`, is a further link.
    let link_starts: BTreeSet<usize> =
        markup.links.iter().chain(&markup.images).map(|link| link.span.start).collect();
    for span in url::web_addresses(text) {
        if !link_starts.contains(&span.start)
            && let Some(url) = text.get(span.clone())
        {
            markup.links.push(Link { url: url.to_owned(), span });
        }
    }
    // `links` must have all web addresses, but the loop has left out the addresses of images.
    let is_web = |url: &str| url.get(..4).is_some_and(|scheme| scheme.eq_ignore_ascii_case("http"));
    let web_images = markup.images.iter().filter(|image| is_web(&image.url)).cloned();
    markup.links.extend(web_images);
    deduplicate_links(&mut markup.links);
    deduplicate_links(&mut markup.images);
    markup.alt_texts.truncate(MAX_FINDINGS);
    markup.hidden_texts.truncate(MAX_FINDINGS);
    markup
}

/// Sorts links by their location, removes all but the first occurrence of each address, and then the links beyond
/// [`MAX_FINDINGS`].
fn deduplicate_links(links: &mut Vec<Link>) {
    links.sort_by_key(|link| link.span.start);
    let mut seen = BTreeSet::new();
    links.retain(|link| seen.insert(link.url.clone()));
    links.truncate(MAX_FINDINGS);
}

/// Adds the links and images that Markdown in a text refers to: `[label](address)`, and `[label][name]` with a
/// definition `[name]: address` elsewhere. With `!` before it, such a reference is an image. In `[label]` and
/// `[label][]`, the label is also the name of the definition.
fn markdown(text: &str, markup: &mut Markup) {
    // The positions of open brackets.
    let mut open: Vec<usize> = Vec::new();
    // References to a definition elsewhere: whether it is an image, its label, and the name of the definition.
    let mut references: Vec<(bool, Range<usize>, Range<usize>)> = Vec::new();
    let mut definitions: BTreeMap<String, Link> = BTreeMap::new();
    let (mut escaped, mut has_code_or_tags) = (false, false);
    // The end of the last address. Addresses are not parsed for brackets, so that the time is linear.
    let mut skipped = 0;
    for (at, c) in text.char_indices() {
        // An address in angle brackets is read even within the skipped text: if the parenthesis of the link before it
        // is not closed, the skipped text is not an address.
        if c == '<' {
            markup.links.extend(autolink(text, at + 1));
        }
        // Neither the character after a backslash nor the last address is parsed for brackets.
        if std::mem::take(&mut escaped) || at < skipped {
            continue;
        }
        has_code_or_tags |= matches!(c, '`' | '<');
        match c {
            '\\' => escaped = true,
            '[' => open.push(at),
            ']' => {
                let after = text.get(at + 1..).unwrap_or_default();
                let Some(start) = open.pop() else {
                    // The opening bracket of the label may have been matched with a closing bracket in code or in a
                    // tag, which a renderer does not count. It is unknown whether an `!` precedes the opening bracket,
                    // so the address counts as a link and as an image. The text of the address is then also read as
                    // Markdown.
                    if has_code_or_tags && let Some(link) = unopened_destination(after, at + 2) {
                        add_reference(text, markup, true, &(at..at), link.clone());
                        add_reference(text, markup, false, &(at..at), link);
                    }
                    continue;
                };
                let label = start + 1..at;
                let is_image = text.get(..start).is_some_and(|before| before.ends_with('!'));
                if let Some(rest) = after.strip_prefix('(') {
                    // `[label](address)`
                    if let Some(link) = destination(rest, at + 2) {
                        skipped = link.span.end;
                        add_reference(text, markup, is_image, &label, link);
                    }
                } else if let Some(rest) = after.strip_prefix(':') {
                    // `[name]: address`
                    if let Some(link) = destination(rest, at + 2) {
                        skipped = link.span.end;
                        definitions.entry(reference_key(text, &label)).or_insert(link);
                    }
                } else if let Some(rest) = after.strip_prefix('[') {
                    // `[label][name]` or `[label][]`
                    let end = end_of_label(rest);
                    // Empty or unclosed brackets contain no name; the label is then the name.
                    let name = if end == 0 { label.clone() } else { at + 2..at + 2 + end };
                    references.push((is_image, label, name));
                } else {
                    // `[label]`
                    references.push((is_image, label.clone(), label));
                }
                // Many brackets must not let the list grow without bound.
                if references.len() > 4 * MAX_FINDINGS {
                    break;
                }
            }
            _ => {}
        }
    }
    for (is_image, label, name) in references {
        // Nested brackets yield names that contain one another; without the limit, normalising them takes quadratic
        // time.
        if name.len() <= 1000
            && let Some(link) = definitions.get(&reference_key(text, &name)).cloned()
        {
            add_reference(text, markup, is_image, &label, link);
        }
    }
    // A definition counts as a link even if no reference uses it: text elsewhere can refer to it.
    markup.links.extend(definitions.into_values());
}

/// Returns the address between angle brackets that begins at the offset `start`, after the `<`; `None` if there is none.
fn autolink(text: &str, start: usize) -> Option<Link> {
    let rest = text.get(start..).unwrap_or_default();
    let end = rest.find(|c: char| c.is_whitespace() || matches!(c, '<' | '>')).unwrap_or(0);
    let is_closed = rest.get(end..).is_some_and(|rest| rest.starts_with('>'));
    let url = rest.get(..end).filter(|url| is_closed && is_autolink(url))?;
    Some(Link { url: html::resolve_character_references(url), span: start..start + end })
}

/// Returns the address in the parentheses at the start of `after`, the text after a `]` without an opening bracket. The
/// address begins at the offset `start` of the whole text. The search for its end stops before the next `](`, so that the
/// time is linear.
fn unopened_destination(after: &str, start: usize) -> Option<Link> {
    let rest = after.strip_prefix('(')?;
    let rest = rest.split_once("](").map_or(rest, |(first, _)| first);
    destination(rest, start)
}

/// Adds a link or, with `is_image`, an image to the result. `label` is the span in `text` of the link's text or of the
/// image's alternative text.
fn add_reference(text: &str, markup: &mut Markup, is_image: bool, label: &Range<usize>, link: Link) {
    // This limit is greater than the number of links that are returned, since duplicates are removed later.
    if markup.links.len() + markup.images.len() > 2 * MAX_FINDINGS {
        return;
    }
    if is_image {
        // The label of an image that contains others repeats all of their labels, so its length is bounded: to
        // `MAX_ALT` bytes, or to the last whole character within them.
        let most = label.end.min(label.start + MAX_ALT);
        let end = (label.start..=most).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(label.start);
        let alt_text = text.get(label.start..end).unwrap_or_default();
        markup.alt_texts.extend((!alt_text.is_empty()).then(|| alt_text.to_owned()));
        markup.images.push(link);
    } else {
        markup.links.push(link);
    }
}

/// Maximum length of the recorded alternative text of an image, in bytes.
const MAX_ALT: usize = 1_000;

/// Returns whether a text between angle brackets is an address: it contains `://`, or begins with one of three schemes
/// that need no `//`. A colon alone does not suffice, because names of XML, such as `xs:element`, have one.
fn is_autolink(text: &str) -> bool {
    text.contains("://")
        || ["mailto:", "javascript:", "data:"]
            .iter()
            .any(|scheme| text.get(..scheme.len()).is_some_and(|start| start.eq_ignore_ascii_case(scheme)))
}

/// Returns the name of a reference in lower case and with single spaces, so that equal names in different spellings
/// match; empty if the name has more than 1000 bytes. `name` is the span of the name in `text`.
fn reference_key(text: &str, name: &Range<usize>) -> String {
    let name = text.get(name.clone()).filter(|name| name.len() <= 1000).unwrap_or_default();
    let name = name.split_whitespace().collect::<Vec<_>>().join(" ");
    // Unicode case folding maps `ẞ` and `ß` to `ss`. Converting to upper case and back has this effect.
    name.to_lowercase().to_uppercase().to_lowercase()
}

/// Returns the length of the name of a definition at the start of a text: up to the closing bracket. 0 if there is none
/// within 1000 bytes.
fn end_of_label(text: &str) -> usize {
    let mut escaped = false;
    let end = text.char_indices().take_while(|(at, _)| *at <= 1000).find(|(_, c)| {
        let is_end = *c == ']' && !escaped;
        escaped = *c == '\\' && !escaped;
        is_end
    });
    end.map_or(0, |(at, _)| at)
}

/// Returns the address at the start of a text, after white space and `<`; `None` if there is none. The address ends
/// before a space or a closing parenthesis that is not opened in it; between angle brackets, it may contain both.
/// `text` begins at byte `offset` of the searched text, and the returned span is a span in the searched text.
fn destination(text: &str, offset: usize) -> Option<Link> {
    let trimmed = text.trim_start_matches([' ', '\t', '\n', '<']);
    let start = text.len() - trimmed.len();
    // Whether the address is between angle brackets that close on its line.
    let is_bracketed = text.get(..start).is_some_and(|before| before.ends_with('<'))
        && trimmed
            .find(['>', '\n', '<'])
            .is_some_and(|at| trimmed.get(at..).is_some_and(|rest| rest.starts_with('>')));
    let (mut depth, mut escaped) = (0_usize, false);
    let end = trimmed.find(|c: char| match c {
        // An escaped character is a part of the address, unless it is white space.
        c if std::mem::take(&mut escaped) && !c.is_whitespace() => false,
        '\\' => {
            escaped = true;
            false
        }
        c if is_bracketed => c == '>',
        '(' => {
            depth += 1;
            false
        }
        ')' if depth > 0 => {
            depth -= 1;
            false
        }
        c => c.is_whitespace() || c == ')',
    });
    let url = trimmed.get(..end.unwrap_or(trimmed.len())).filter(|url| !url.is_empty())?;
    Some(Link { url: without_escapes(url), span: offset + start..offset + start + url.len() })
}

/// Returns an address of Markdown without its escapes: a backslash before a punctuation character, and character
/// references.
fn without_escapes(url: &str) -> String {
    let mut plain = String::with_capacity(url.len());
    let mut rest = url;
    while let Some(at) = rest.find('\\') {
        let (before, after) = rest.split_at(at);
        plain.push_str(&html::resolve_character_references(before));
        let mut following = after.chars();
        following.next();
        // A backslash before punctuation is dropped; any other backslash stays.
        match following.clone().next() {
            Some(c) if c.is_ascii_punctuation() => {
                plain.push(c);
                following.next();
            }
            _ => plain.push('\\'),
        }
        rest = following.as_str();
    }
    plain.push_str(&html::resolve_character_references(rest));
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn urls(links: &[Link]) -> Vec<&str> {
        links.iter().map(|link| link.url.as_str()).collect()
    }

    #[test]
    fn links_are_found_in_every_notation() {
        let check = |text: &str, links: &[&str], images: &[&str]| {
            let markup = parse(text);
            assert_eq!(urls(&markup.links), links, "{text}");
            assert_eq!(urls(&markup.images), images, "{text}");
        };
        check(
            "first, visit [this link](https://trusted.com/1), then [this one](https://untrusted.com/2)",
            &["https://trusted.com/1", "https://untrusted.com/2"],
            &[],
        );
        let capture = "https://capture.x.com/trace?site=personal-website&url=test.html&user=John";
        check(&format!("<a href=\"{capture}\">Click</a>"), &[capture], &[]);
        check("<a href='https://a.example/?x=1&amp;y=2'>x</a>", &["https://a.example/?x=1&y=2"], &[]);
        check("<A HREF=/local>x</A> <img SRC=\"cid:1\">", &["/local"], &["cid:1"]);
        check(
            "(https://a.example/b_(c)). <https://d.example>",
            &["https://a.example/b_(c)", "https://d.example"],
            &[],
        );
        check(
            "[a][x] ![b][X]\n\n[x]: https://a.example 'title'",
            &["https://a.example"],
            &["https://a.example"],
        );
        check(
            "[![b](https://i.example)](https://l.example)",
            &["https://i.example", "https://l.example"],
            &["https://i.example"],
        );
        check(
            "[a](<https://a.example> \"t\") [b](#here) \\[c](d) a[0](1)",
            &["https://a.example", "#here", "1"],
            &[],
        );
        check(
            "<img src=https://a.example/i.png><link href=\"s.css\">",
            &["https://a.example/i.png", "s.css"],
            &["https://a.example/i.png"],
        );
        check("text https://a.example/x, https://a.example/x", &["https://a.example/x"], &[]);
        check("<a href='/go?to=https://b.example'>", &["/go?to=https://b.example", "https://b.example"], &[]);
        check("<a href=' https://b.example '>", &["https://b.example"], &[]);
        check("no [links] here: [x] (y)", &[], &[]);
        check("![`]`](https://a.example)", &["https://a.example"], &["https://a.example"]);
        check("[a](<b c> 't') [a](b\\.c&amp;\\&amp;)", &["b c", "b.c&&amp;"], &[]);
        check("![a][b\nc] ![d][SS]\n\n[b c]: e\n[ß]: f", &["e", "f"], &["e", "f"]);
        check("![a](HTTPS://a.example)", &["HTTPS://a.example"], &["HTTPS://a.example"]);
        check("<img src=Http://a.example>", &["Http://a.example"], &["Http://a.example"]);
        check(
            "<img srcset='a.png, b.png 2x,c.png 3w ,, d,e.png'>",
            &[],
            &["a.png", "b.png", "c.png", "d,e.png"],
        );
        check("<img srcset='a.png 1x\n,\n\tb.png'>", &[], &["a.png", "b.png"]);
        let junk = "x=1 ".repeat(2000) + &"alt ".repeat(2000);
        check(&format!("<img {junk} src=a.png srcset=b.png>"), &[], &["a.png", "b.png"]);
        check("<a href='https&#0000000058;//a.example'>", &["https://a.example"], &[]);
        check("<a href='https&#x000000003A//a.example'>", &["https://a.example"], &[]);
        check("<a href='a&#00000000000000000000;b'>", &["a\0b"], &[]);
    }

    #[test]
    fn alternative_and_hidden_texts() {
        let check = |text: &str, alt_texts: &[&str], hidden: &[&str]| {
            let markup = parse(text);
            assert_eq!(markup.alt_texts, alt_texts, "{text}");
            assert_eq!(markup.hidden_texts, hidden, "{text}");
        };
        check(
            "<h1>A <lid>b</ddli> <img src=\"i\" alt=\"ping https://x.example\" /></ht>",
            &["ping https://x.example"],
            &[],
        );
        check("![a *cat*](c.png)", &["a *cat*"], &[]);
        check("a <!-- do this --> b <!-- and that", &[], &[" do this ", " and that"]);
        check("<div style=\"display: none\">one <b>two</b></div> three", &[], &["one two"]);
        check("<p hidden>one</p><span style='font-size:0px'>two<span>x</span></span>", &[], &["one", "twox"]);
        check("<input type=hidden value='v'><template>t</template>", &[], &["v", "t"]);
        check("<script>if (a<b) { alt='x' }</script>a < b <3 <img alt='y", &["y"], &[]);
        check("<img alt=\"&lt;b&gt; &#x41;&#66;\">", &["<b> AB"], &[]);
        check("<p hidden>&#x000000041;&#99999999999;</p>", &[], &["A&#99999999999;"]);
        check(&format!("<p {} hidden>one</p>", "x=1 ".repeat(2000)), &[], &["one"]);
    }

    #[test]
    fn addresses_are_where_the_spans_say() {
        let text = "é [a]( <https://a.example/é> ) <img src='b.png'> http://c.example!";
        let markup = parse(text);
        let spans: Vec<_> = markup
            .links
            .iter()
            .chain(&markup.images)
            .map(|link| text.get(link.span.clone()).unwrap())
            .collect();
        assert_eq!(spans, ["https://a.example/é", "http://c.example", "b.png"]);
    }
}
