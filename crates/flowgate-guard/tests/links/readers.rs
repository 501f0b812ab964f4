//! Implements readers of a text, which find the addresses that a person could follow: a Markdown renderer, an HTML
//! tokenizer, and a greedy recogniser of addresses in plain text.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::sync::LazyLock;

use flowgate_guard::links::LinkDecision;
use html5ever::buffer_queue::BufferQueue;
use html5ever::tokenizer::{Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use pulldown_cmark::{Event, LinkType, Options, Parser, Tag};
use regex::Regex;
use unicode_normalization::UnicodeNormalization as _;

/// Permits one host and one mail address, and records the addresses that it permitted.
#[derive(Debug, Default)]
pub(crate) struct PermittedHosts(pub(crate) BTreeSet<String>);

impl PermittedHosts {
    pub(crate) fn judge(&mut self, url: &str) -> LinkDecision {
        let hosts = ["https://good.example", "http://good.example"];
        let is_end = |rest: &str| rest.is_empty() || rest.starts_with(['/', '?', '#', ':']);
        let is_good = hosts.iter().any(|host| url.strip_prefix(host).is_some_and(is_end));
        if is_good || url == "mailto:ann@good.example" {
            self.0.insert(url.to_owned());
            return LinkDecision::Permitted;
        }
        LinkDecision::Refused
    }
}

/// Returns the addresses that some reader finds in a text and that were not permitted, and other forbidden
/// constructs.
pub(crate) fn found(text: &str, permitted: &BTreeSet<String>) -> Vec<String> {
    let (mut problems, rendered) = markdown(text, permitted);
    let (tags, shown) = html(text);
    problems.extend(tags.into_iter().map(|tag| format!("a browser finds {tag}")));
    let normal: String = text.nfkc().filter(|c| !is_dropped(*c)).collect();
    // Some renderers drop the marks of extensions.
    let unmarked = text.replace("==", "").replace('^', "");
    let texts = [
        ("plain", text),
        ("rendered", &rendered),
        ("shown", &shown),
        ("normal", &normal),
        ("unmarked", &unmarked),
    ];
    for (reader, text) in texts {
        problems.extend(plain(text, permitted).into_iter().map(|address| format!("{reader}: {address}")));
    }
    problems
}

fn is_dropped(c: char) -> bool {
    matches!(c, '\u{ad}' | '\u{200b}'..='\u{200f}' | '\u{2060}'..='\u{2064}' | '\u{feff}' | '\u{300}'..='\u{36f}')
}

/// Returns the destinations that are not permitted in Markdown with all extensions, and the rendered text.
fn markdown(text: &str, permitted: &BTreeSet<String>) -> (Vec<String>, String) {
    let (mut problems, mut rendered) = (Vec::new(), String::new());
    for event in Parser::new_ext(text, Options::all()) {
        match event {
            Event::Start(Tag::Link { link_type, dest_url, .. } | Tag::Image { link_type, dest_url, .. }) => {
                let url = if link_type == LinkType::Email {
                    format!("mailto:{dest_url}")
                } else {
                    dest_url.to_string()
                };
                if !permitted.contains(&url) {
                    problems.push(format!("Markdown leads to {url}"));
                }
            }
            Event::Html(html) | Event::InlineHtml(html) => {
                problems.push(format!("Markdown has the element {html}"))
            }
            Event::Text(text) => rendered.push_str(&text),
            // Spaces at the ends of code are not shown, and no reader matches across the edges of the code.
            Event::Code(text) => rendered.extend(["\n", &text, "\n"]),
            // Superscripts, subscripts, formulas and footnote numbers are separate: no reader matches across
            // their edges.
            Event::Start(Tag::Superscript | Tag::Subscript) => rendered.push('\n'),
            Event::InlineMath(_) | Event::DisplayMath(_) | Event::FootnoteReference(_) => rendered.push('\n'),
            Event::SoftBreak | Event::HardBreak | Event::End(_) => rendered.push('\n'),
            _ => {}
        }
    }
    (problems, rendered)
}

#[derive(Default)]
struct HtmlTokenSink {
    tags: RefCell<Vec<String>>,
    text: RefCell<String>,
}

impl TokenSink for HtmlTokenSink {
    type Handle = ();

    fn process_token(&self, token: Token, _line: u64) -> TokenSinkResult<()> {
        match token {
            Token::TagToken(tag) => self.tags.borrow_mut().push(format!("the element {}", tag.name)),
            Token::CommentToken(_) | Token::DoctypeToken(_) => {
                self.tags.borrow_mut().push("a comment".to_owned())
            }
            Token::CharacterTokens(text) => self.text.borrow_mut().push_str(&text),
            _ => {}
        }
        TokenSinkResult::Continue
    }
}

/// Returns the elements that an HTML tokenizer finds in a text, and the text between them.
fn html(text: &str) -> (Vec<String>, String) {
    let input = BufferQueue::default();
    input.push_back(text.into());
    let tokenizer = Tokenizer::new(HtmlTokenSink::default(), TokenizerOpts::default());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    let HtmlTokenSink { tags, text } = tokenizer.sink;
    (tags.into_inner(), text.into_inner())
}

static SCHEME: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)[a-z][a-z0-9+.-]+:[/\\]{1,2}[^\s]+|[a-z][a-z0-9+.-]+:[^\s:]*[/\\]{2}[^\s]+")
        .expect("a pattern")
});
static KNOWN: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)\b(?:https?|ftp|mailto|xmpp|tel|javascript|data|file|magnet):[^\s:*~`]+")
        .expect("a pattern")
});
static SLASHES: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[/\\]{2}[^\s/\\*~`\u{ad}\u{200b}]+").expect("a pattern"));
static MAIL: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"[^\s@<>()\[\]{*~`]+@[^\s@]+\.[^\s@]+").expect("a pattern"));
static NAME: LazyLock<Regex> = LazyLock::new(|| {
    let top = "com|example|org|net|io|xn--p1ai|\u{4e2d}\u{56fd}|\u{440}\u{444}";
    Regex::new(&format!(r"(?i)[\p{{L}}\p{{N}}-](?:\.|\u{{3002}})(?:{top})\b|\bwww\.[^\s.]"))
        .expect("a pattern")
});

/// Returns what a greedy reader recognises as an address, up to the next white space, other than permitted
/// addresses.
fn plain(text: &str, permitted: &BTreeSet<String>) -> Vec<String> {
    let is_permitted = |word: &str| permitted.contains(word) || permitted.contains(&format!("mailto:{word}"));
    let mut problems = Vec::new();
    // A reader that ends addresses at other white space would end them earlier: permitted addresses contain
    // none.
    for word in text.split([' ', '\n', '\r', '\t']).filter(|word| !is_permitted(word)) {
        for pattern in [&SCHEME, &KNOWN, &SLASHES, &MAIL, &NAME] {
            if let Some(found) = pattern.find(word) {
                problems.push(found.as_str().to_owned());
            }
        }
    }
    problems
}
