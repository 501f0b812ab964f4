//! Replies are sinks: a rendered image or link tells its host whatever stands in the address, without any tool call.
//!
//! Each address in a reply is judged like a call of the tool `flowgate/link` with the argument `url`, by the label of what the
//! model was shown. What is not permitted is made unusable (`hxxp://`), in a way that people still can read. A
//! policy that says nothing of `flowgate/link` lets only what is trusted and public altogether be put into addresses;
//! one without lattices lets all pass.

use flowgate::detect::markup;
use flowgate::label::Label;
use flowgate::monitor::{Attribution, Monitor, Verdict};
use flowgate::trace::{Body, Call, Entry, Tool};
use serde_json::{Map, Value};

/// How often a reply is gone through, since an address may stand in it several times.
const MAX_ROUNDS: usize = 20;

/// A reply in which only permitted addresses work, and those that do not; `None` if there is no end to them.
pub(crate) fn disarm(
    monitor: &mut Monitor,
    method: &'static str,
    text: &str,
    label: Label,
    next_id: &mut usize,
) -> Option<(String, Vec<String>)> {
    let mut text = text.to_owned();
    let (mut permitted, mut disarmed): (Vec<String>, Vec<String>) = (Vec::new(), Vec::new());
    for _ in 0..MAX_ROUNDS {
        let found = markup::parse(&text);
        let mut links: Vec<markup::Link> = found.links.into_iter().chain(found.images).collect();
        links.retain(|link| leads_out(&link.url) && !permitted.contains(&link.url));
        links.sort_by_key(|link| link.span.start);
        links.dedup_by_key(|link| link.span.start);
        let mut changed = false;
        // From the end, so that places stay what they are.
        for link in links.into_iter().rev() {
            if !disarmed.contains(&link.url) && is_permitted(monitor, method, &link.url, label, next_id) {
                permitted.push(link.url);
                continue;
            }
            if text.get(link.span.clone()).is_some() {
                text.replace_range(link.span.clone(), &unusable(&link.url));
                changed = true;
            }
            if !disarmed.contains(&link.url) {
                disarmed.push(link.url);
            }
        }
        if !changed {
            disarmed.sort();
            return Some((text, disarmed));
        }
    }
    None
}

/// Whether an address names a host.
fn leads_out(url: &str) -> bool {
    let url = url.trim().to_ascii_lowercase();
    url.starts_with("http:") || url.starts_with("https:") || url.starts_with("//") || url.starts_with("\\\\")
}

fn unusable(url: &str) -> String {
    let trimmed = url.trim();
    match trimmed.get(..4) {
        Some(scheme) if scheme.eq_ignore_ascii_case("http") => {
            // An address within the address works no more than the whole.
            let rest = trimmed.get(4..).unwrap_or_default();
            format!("hxxp{}", rest.replace("http", "hxxp").replace("HTTP", "HXXP"))
        }
        _ => format!("hxxp:{}", trimmed.replace("//", "/ /").replace('\\', "/ ")),
    }
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
    let tool = Tool::of("flowgate", "link");
    let call = Call { id: format!("link{next_id}"), tool, arguments: Ok(arguments) };
    let verdict = monitor.judge_entry(Entry::from(Body::Call(call)), Attribution::view(method, label, 0));
    matches!(verdict, Verdict::Permit(_))
}
