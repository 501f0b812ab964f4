//! Compares the finder of links and images with a renderer of Markdown (`pulldown-cmark`) and a tokenizer of HTML
//! (`html5ever`) on generated texts: what one of them finds, `markup::parse` finds as well.

#![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]

use std::cell::RefCell;
use std::collections::BTreeSet;

use flowgate_detect::markup::{self, Markup};
use html5ever::buffer_queue::BufferQueue;
use html5ever::tokenizer::{Tag, TagKind, Token, TokenSink, TokenSinkResult, Tokenizer, TokenizerOpts};
use pulldown_cmark::{Event, LinkType, Options, Parser};

/// The pieces of the texts.
#[rustfmt::skip]
const PIECES: [&str; 68] = [
    "[", "]", "(", ")", "![", "](", "][", "]: ", "<", ">", "\n", "\n\n", " ", "!", "\\", "`", "``", "*", "_", "~~", "> ", "- ", "# ",
    "https://a.example/x", "http://b.example", "/local", "c.png", "x", "X", "ss", "\u{df}", "'t'", "\"t\"", "&amp;", "&#58;", "&lt;",
    "\\]", "\\[", "\\)", "\\(", "\\`", "<a href=", "<img src=", "<img alt='y' src='", "<a title=\"", "'>", "\">", "</a>", "<!-- ",
    " -->", "<script>", "</script>", "<p hidden>", "</p>", "<https://c.example/p>", "<x y>", "a b", "\t", "=", "'", "\"", ".", "\u{e9}", "|",
    "&colon;", "&sol;", "&period;", "&#x3a",
];

/// A sequence of numbers that is the same in every run.
struct Random(u64);

impl Random {
    fn below(&mut self, count: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % count
    }
}

/// Returns the addresses of links and those of images in Markdown.
fn in_markdown(text: &str) -> [BTreeSet<String>; 2] {
    let mut found = [BTreeSet::new(), BTreeSet::new()];
    for event in Parser::new_ext(text, Options::empty()) {
        let (at, kind, url) = match event {
            Event::Start(pulldown_cmark::Tag::Link { link_type, dest_url, .. }) => (0, link_type, dest_url),
            Event::Start(pulldown_cmark::Tag::Image { link_type, dest_url, .. }) => (1, link_type, dest_url),
            _ => continue,
        };
        if kind != LinkType::Email && !url.is_empty() {
            found[at].insert(url.to_string());
        }
    }
    found
}

/// The addresses of links and those of images in the tags of HTML.
#[derive(Default)]
struct Addresses(RefCell<[BTreeSet<String>; 2]>);

impl TokenSink for Addresses {
    type Handle = ();

    fn process_token(&self, token: Token, _: u64) -> TokenSinkResult<()> {
        let Token::TagToken(Tag { kind: TagKind::StartTag, name, attrs, .. }) = token else {
            return TokenSinkResult::Continue;
        };
        for attribute in attrs {
            let at = match (&*name, &*attribute.name.local) {
                ("img", "src") => 1,
                ("a", "href") => 0,
                _ => continue,
            };
            let url = attribute.value.trim().to_owned();
            if !url.is_empty() {
                self.0.borrow_mut()[at].insert(url);
            }
        }
        match &*name {
            "script" => TokenSinkResult::RawData(html5ever::tokenizer::states::RawKind::ScriptData),
            _ => TokenSinkResult::Continue,
        }
    }
}

fn in_html(text: &str) -> [BTreeSet<String>; 2] {
    let input = BufferQueue::default();
    input.push_back(text.into());
    let tokenizer = Tokenizer::new(Addresses::default(), TokenizerOpts::default());
    let _ = tokenizer.feed(&input);
    tokenizer.end();
    tokenizer.sink.0.into_inner()
}

/// Returns what a reader finds and the finder does not.
fn missed(text: &str) -> Vec<String> {
    let Markup { links, images, .. } = markup::parse(text);
    let ours = [links, images].map(|found| found.into_iter().map(|link| link.url).collect::<BTreeSet<_>>());
    let readers = [("Markdown", in_markdown(text)), ("HTML", in_html(text))];
    let kinds = ["link", "image"];
    let mut missed = Vec::new();
    for (reader, found) in readers {
        for ((kind, found), ours) in kinds.iter().zip(found).zip(&ours) {
            missed.extend(found.difference(ours).map(|url| format!("{reader}, {kind}: {url:?}")));
        }
    }
    missed
}

/// Returns the text without the pieces that do not matter for the failure.
fn shrunk(pieces: &[&str]) -> String {
    let mut pieces = pieces.to_vec();
    while let Some(at) = (0..pieces.len()).find(|at| {
        let mut fewer = pieces.clone();
        fewer.remove(*at);
        !missed(&fewer.concat()).is_empty()
    }) {
        pieces.remove(at);
    }
    pieces.concat()
}

#[test]
fn what_renderers_find_is_found() {
    let cases = std::env::var("FLOWGATE_MARKUP_CASES").map_or(20_000, |cases| cases.parse().unwrap());
    let mut failures = BTreeSet::new();
    let mut compared = 0;
    for case in 0..cases {
        let mut random = Random(case);
        random.below(2);
        let count = 2 + random.below(14);
        let pieces: Vec<&str> = (0..count).map(|_| PIECES[random.below(PIECES.len())]).collect();
        let text = pieces.concat();
        compared += in_markdown(&text).iter().chain(&in_html(&text)).map(BTreeSet::len).sum::<usize>();
        if !missed(&text).is_empty() {
            let text = shrunk(&pieces);
            failures.insert(format!("{text:?}: {:?}", missed(&text)));
        }
        if failures.len() >= 20 {
            break;
        }
    }
    assert!(
        failures.is_empty(),
        "{} texts:\n{}",
        failures.len(),
        failures.into_iter().collect::<Vec<_>>().join("\n")
    );
    // The texts have addresses that the readers find.
    assert!(compared > cases_with_addresses(cases), "{compared}");
}

/// Returns how many addresses the readers find at least.
fn cases_with_addresses(cases: u64) -> usize {
    usize::try_from(cases / 20).unwrap()
}
