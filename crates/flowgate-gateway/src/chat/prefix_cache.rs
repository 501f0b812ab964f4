//! Caches decoded chat prefixes, so that they are not decoded again.
//!
//! An agent sends its whole chat with each request, mostly with the same bytes as before. The decoded form of a
//! message and its digests depend on its bytes alone: a chat that begins with the same bytes begins with the same
//! messages. So only the bytes behind a known prefix are decoded, by the same decoder as everything else. The rest of
//! a request, mainly its tools, is cached by the same rule. Only Chat Completions requests are cached; the others are
//! decoded in whole.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgate_guard::history::{MessageDigests, SentChat};
use flowgate_lm::chat::{Message, Source, Sources};
use flowgate_lm::json::{self, Json};
use flowgate_lm::wire::{Api, ReceivedRequest, chat_completions};
use sha2::{Digest as _, Sha256};

use crate::background_drop::drop_in_background;

/// The cached chat prefixes of one client.
#[derive(Debug, Default)]
pub(crate) struct PrefixCache(Mutex<PrefixCacheState>);

#[derive(Debug, Default)]
struct PrefixCacheState {
    by_digest: HashMap<PrefixDigest, Arc<MessageDigests>>,
    /// The number of messages in all of them.
    messages: usize,
    /// The previous generation of `by_digest`.
    older: HashMap<PrefixDigest, Arc<MessageDigests>>,
    /// The rest of requests, without their messages; `letters` is the size of all of it, in bytes.
    others: HashMap<PrefixDigest, Arc<ReceivedRequest>>,
    letters: usize,
}

/// The digest of some bytes of a request.
type PrefixDigest = [u8; 32];

/// The limit on messages in one generation of a client's prefixes; when there are more, the older generation is
/// dropped.
const MAX_CACHED_MESSAGES: usize = 1 << 15;
/// The maximum number of messages by which a cached prefix may be shorter than its chat.
const MOST_BEHIND: usize = 32;
/// The limit on the bytes of the cached rest of requests; when there are more, that cache is cleared.
const MAX_REST_BYTES: usize = 1 << 20;

/// A decoded request, of which a prefix may come from the cache.
#[derive(Debug)]
pub(crate) struct PartlyCachedRequest {
    /// The request without its messages. Equal requests share it as long as it is cached.
    pub(crate) asked: Arc<ReceivedRequest>,
    /// The messages behind the cached prefix.
    messages: Vec<Message>,
    /// The provenance of their parts, as far as the client declares it.
    sources: Sources,
    beginning: Option<(PrefixDigest, Arc<MessageDigests>)>,
    /// The number of messages, and the digest of them all.
    all: Option<(usize, PrefixDigest)>,
}

impl PartlyCachedRequest {
    /// Returns the whole chat. Unmarked parts come from `unmarked`, if that is given.
    pub(crate) fn chat(&self, unmarked: Option<Source>) -> SentChat<'_> {
        let chat = match &self.beginning {
            Some((_, beginning)) => SentChat::continuing(beginning, &self.messages),
            None => SentChat::of(&self.messages),
        };
        chat.with_sources(with_default_provenance(self.sources.clone(), &self.messages, unmarked))
    }
}

/// Sets the provenance of unmarked parts, if it is given.
pub(crate) fn with_default_provenance(
    mut sources: Sources,
    messages: &[Message],
    unmarked: Option<Source>,
) -> Sources {
    if let Some(unmarked) = unmarked {
        sources.fill_missing(messages, unmarked);
    }
    sources
}

/// Decodes the whole body of a request.
pub(crate) fn decode_whole(api: Api, text: &str) -> Result<ReceivedRequest, String> {
    let body = Json::parse(text).map_err(|error| format!("the body is not strict JSON: {error}"))?;
    let asked = api.decode_request(&body);
    asked.map_err(|error| format!("this gateway does not pass on what it does not understand: {error}"))
}

impl PrefixCache {
    /// Decodes the body of a request, except for a cached prefix.
    pub(crate) fn decode(&self, api: Api, text: &str) -> Result<PartlyCachedRequest, String> {
        if let Some(request) =
            message_ranges(api, text).and_then(|messages| self.decode_after_prefix(api, text, &messages))
        {
            return Ok(request);
        }
        let mut asked = decode_whole(api, text)?;
        let messages = std::mem::take(asked.request.messages.edit());
        let sources = std::mem::take(&mut asked.sources);
        Ok(PartlyCachedRequest { asked: Arc::new(asked), messages, sources, beginning: None, all: None })
    }

    /// Decodes a request whose messages are at these positions. Any error leads to `None`: the caller decodes the
    /// whole body and reports it.
    fn decode_after_prefix(
        &self,
        api: Api,
        text: &str,
        messages: &[Range<usize>],
    ) -> Option<PartlyCachedRequest> {
        let (first, last) = (messages.first()?, messages.last()?);
        let asked = self.decode_rest(api, [text.get(..first.start)?, text.get(last.end..)?])?;
        let (all, beginnings) = prefix_digests(text, messages);
        let beginning = self.longest_cached(beginnings);
        let known = beginning.as_ref().map_or(0, |(_, beginning)| beginning.len());
        let behind = text.get(messages.get(known)?.start..last.end)?;
        let behind = [r#"{"messages":["#, behind, "]}"].concat();
        let (behind, sources) = chat_completions::decode_messages(&Json::parse(&behind).ok()?).ok()?;
        let count = messages.len();
        (known + behind.len() == count).then(|| PartlyCachedRequest {
            asked,
            messages: behind,
            sources,
            beginning,
            all: Some((count, all)),
        })
    }

    /// Decodes the rest of a request without its messages, of which these are the two parts.
    fn decode_rest(&self, api: Api, parts: [&str; 2]) -> Option<Arc<ReceivedRequest>> {
        let text = parts.concat();
        let letters = PrefixDigest::from(Sha256::digest(&text));
        if let Some(asked) = self.lock().others.get(&letters) {
            return Some(Arc::clone(asked));
        }
        let asked = Arc::new(decode_whole(api, &text).ok()?);
        let mut known = self.lock();
        if text.len() > MAX_REST_BYTES {
            return Some(asked);
        }
        if known.letters + text.len() > MAX_REST_BYTES {
            (known.others, known.letters) = (HashMap::new(), 0);
        }
        if known.others.insert(letters, Arc::clone(&asked)).is_none() {
            known.letters += text.len();
        }
        Some(asked)
    }

    /// Returns the longest cached prefix. The candidates are sorted, shortest first.
    fn longest_cached(
        &self,
        beginnings: Vec<(usize, PrefixDigest)>,
    ) -> Option<(PrefixDigest, Arc<MessageDigests>)> {
        let known = self.lock();
        beginnings.into_iter().rev().find_map(|(count, letters)| {
            let beginning = known.by_digest.get(&letters).or_else(|| known.older.get(&letters));
            let beginning = beginning.filter(|known| known.len() == count)?;
            Some((letters, Arc::clone(beginning)))
        })
    }

    /// Caches all messages of this request as a prefix of the next one.
    pub(crate) fn insert(&self, request: &PartlyCachedRequest, chat: &SentChat<'_>) {
        let Some((count, letters)) = request.all else { return };
        let beginning = chat.message_digests();
        if beginning.len() != count {
            return;
        }
        let mut known = self.lock();
        if let Some((before, beginning)) = &request.beginning {
            match known.by_digest.remove(before) {
                Some(_) => known.messages -= beginning.len(),
                None => drop(known.older.remove(before)),
            }
        }
        if known.messages + count > MAX_CACHED_MESSAGES {
            let younger = std::mem::take(&mut known.by_digest);
            drop_in_background(std::mem::replace(&mut known.older, younger));
            known.messages = 0;
        }
        known.messages += count;
        if let Some(other) = known.by_digest.insert(letters, beginning) {
            known.messages -= other.len();
        }
    }

    fn lock(&self) -> MutexGuard<'_, PrefixCacheState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the positions of a request's messages, if they are unambiguous and each item of the list is one message.
fn message_ranges(api: Api, text: &str) -> Option<Vec<Range<usize>>> {
    let items = (api == Api::ChatCompletions).then(|| json::items(text, "messages"))??;
    (!items.is_empty()).then_some(items)
}

/// Returns the digest of all messages, and the digests of the prefixes that may be cached with their lengths, shortest
/// first.
fn prefix_digests(text: &str, messages: &[Range<usize>]) -> (PrefixDigest, Vec<(usize, PrefixDigest)>) {
    let (mut hash, mut beginnings) = (Sha256::new(), Vec::new());
    let mut from = messages.first().map_or(0, |first| first.start);
    let shortest = messages.len().saturating_sub(MOST_BEHIND).max(1);
    for (count, message) in (1..).zip(messages).skip(shortest - 1) {
        // The digest covers the bytes between messages.
        hash.update(text.get(from..message.end).unwrap_or_default());
        from = message.end;
        if count < messages.len() {
            beginnings.push((count, hash.clone().finalize().into()));
        }
    }
    (hash.finalize().into(), beginnings)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const API: Api = Api::ChatCompletions;

    /// Decodes and caches a request, and returns the number of cached messages. The result must equal that of decoding
    /// the whole.
    fn read(beginnings: &PrefixCache, text: &str) -> Result<usize, String> {
        let (request, whole) = (beginnings.decode(API, text), decode_whole(API, text));
        let (request, whole) = match (request, whole) {
            (Ok(request), Ok(whole)) => (request, whole),
            (request, whole) => {
                let (request, whole) = (request.map(|_| ()), whole.map(|_| ()));
                assert_eq!(request, whole, "{text}");
                return request.map(|()| 0);
            }
        };
        let chat = request.chat(None);
        beginnings.insert(&request, &chat);
        let known = request.beginning.as_ref().map_or(0, |(_, beginning)| beginning.len());
        let all = SentChat::of(&whole.request.messages);
        assert_eq!(chat.prefixes(), all.prefixes(), "{text}");
        assert_eq!(*chat.message_digests(), *all.message_digests(), "{text}");
        let ReceivedRequest { request: asked, model, stream, usage, sources: _ } = &*request.asked;
        let behind = whole.request.messages.get(known..).unwrap_or_default();
        assert_eq!((&asked.messages[..], &request.messages[..]), (&[][..], behind), "{text}");
        assert_eq!(
            (&asked.tools, &asked.choice, &asked.sampling, model, stream, usage),
            (
                &whole.request.tools,
                &whole.request.choice,
                &whole.request.sampling,
                &whole.model,
                &whole.stream,
                &whole.usage
            ),
            "{text}"
        );
        Ok(known)
    }

    #[test]
    fn what_was_read_before_is_known() {
        let beginnings = PrefixCache::default();
        let check = |text: &str, expected: Result<usize, &str>| {
            assert_eq!(read(&beginnings, text), expected.map_err(str::to_owned), "{text}");
        };
        let (a, b, c) = (
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"assistant","content":"b"}"#,
            r#"{"role":"user","content":"c"}"#,
        );
        check(&format!(r#"{{"model":"m","messages":[{a}]}}"#), Ok(0));
        check(&format!(r#"{{"model":"m","messages":[{a}]}}"#), Ok(0));
        // With other settings.
        check(&format!(r#"{{"stream":true,"messages":[{a},{b},{c}],"model":"m","seed":7}}"#), Ok(1));
        check(&format!(r#"{{"model":"m","messages":[{a},{b},{c},{b},{a}]}}"#), Ok(3));
        // With other bytes, or at another position.
        check(&format!(r#"{{"model":"m","messages":[{a}, {b},{c},{b},{a},{b}]}}"#), Ok(0));
        check(&format!(r#"{{"model":"m","messages":[{b},{a},{b}]}}"#), Ok(0));
        // Errors are reported for the whole body.
        let problem = |place: &str| {
            format!(
                "this gateway does not pass on what it does not understand: `messages[{place}].role` is not supported"
            )
        };
        let x = r#"{"role":"x"}"#;
        check(&format!(r#"{{"model":"m","messages":[{b},{a},{b},{x}]}}"#), Err(&problem("3")));
        for broken in [
            format!(r#"{{"model":"m","messages":[{b},{a},{b},]}}"#),
            format!(r#"{{"model":"m","messages":[{b},{a},{b} {c}]}}"#),
            format!(r#"{{"model":"m","messages":[{b},{a},{b}],"messages":[{c}]}}"#),
            format!(r#"{{"model":"m","messages":[{b},{a},{b},{c}],"messages":[{c}]}}"#),
        ] {
            assert!(read(&beginnings, &broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn a_client_takes_no_more_memory_than_it_may() {
        let beginnings = PrefixCache::default();
        let ask = |name: usize, count: usize| {
            let said = |number: usize| json!({"role": "user", "content": format!("{name} {number}")});
            let messages: Vec<_> = (0..count).map(said).collect();
            read(&beginnings, &json!({"model": "m", "messages": messages}).to_string()).unwrap()
        };
        let most = 4 * MAX_CACHED_MESSAGES / 4096;
        for name in 0..most {
            ask(name, 4096);
            // A continued chat is not dropped.
            let gone_on = ask(most, name + 1);
            assert_eq!(gone_on, name);
            let known = beginnings.lock();
            let count = |known: &HashMap<_, Arc<MessageDigests>>| {
                known.values().map(|known| known.len()).sum::<usize>()
            };
            assert!(known.messages <= MAX_CACHED_MESSAGES && count(&known.older) <= MAX_CACHED_MESSAGES);
            assert_eq!(known.messages, count(&known.by_digest));
        }
        assert_eq!(ask(most - 1, 4097), 4096);
        assert_eq!(ask(0, 4097), 0);
    }

    #[test]
    fn what_else_is_asked_for_is_kept_as_well() {
        let beginnings = PrefixCache::default();
        let ask = |more: &str| {
            let text = format!(r#"{{"messages":[{{"role":"user","content":"a"}}],"model":"m"{more}}}"#);
            let request = beginnings.decode(API, &text).unwrap();
            assert!(beginnings.lock().letters <= MAX_REST_BYTES);
            request.asked
        };
        let is_same = |one: &Arc<ReceivedRequest>, other: &Arc<ReceivedRequest>| Arc::ptr_eq(one, other);
        let (one, two) = (ask(""), ask(r#","seed":1"#));
        assert!(is_same(&one, &ask("")) && is_same(&two, &ask(r#","seed":1"#)) && !is_same(&one, &two));
        assert_eq!((one.request.sampling.seed, two.request.sampling.seed), (None, Some(1)));
        let long = |seed: usize| format!(r#","user":"{}","seed":{seed}"#, "x".repeat(MAX_REST_BYTES / 2));
        let three = ask(&long(3));
        assert!(is_same(&three, &ask(&long(3))) && is_same(&one, &ask("")));
        ask(&long(4));
        assert!(!is_same(&three, &ask(&long(3))));
        let longer = long(5).replace('x', "xxx");
        assert!(!is_same(&ask(&longer), &ask(&longer)));
    }

    fn message() -> impl Strategy<Value = String> {
        let text = prop::sample::select(vec![
            r#""a""#,
            r#""b\"]""#,
            r#""\\""#,
            r#""\u0061""#,
            "null",
            "[]",
            r#"[{"type":"text","text":"]"}]"#,
        ]);
        let role = prop::sample::select(vec!["user", "assistant", "system", "tool"]);
        (role, text, any::<bool>()).prop_map(|(role, text, blank)| {
            let blank = if blank { " " } else { "" };
            let id = if role == "tool" { r#","tool_call_id":"c""# } else { "" };
            format!(r#"{{"role":{blank}"{role}","content":{text}{id}}}"#)
        })
    }

    proptest! {
        /// For chats that continue, fork, differ in their bytes or are malformed, the result equals that of a complete
        /// decode.
        #[test]
        fn however_it_is_read_it_says_the_same(
            all in prop::collection::vec(message(), 1..8),
            asks in prop::collection::vec((0..8_usize, prop::option::of((0..8_usize, message())), prop::option::of((any::<prop::sample::Index>(), "[a\"\\\\,\\]\\}\\{\\[ ]"))), 1..8),
        ) {
            let beginnings = PrefixCache::default();
            for (count, other, broken) in asks {
                let mut messages = all.get(..count.min(all.len())).unwrap().to_vec();
                if let Some((at, other)) = other && at < messages.len() {
                    messages[at] = other;
                }
                let mut text = format!(r#"{{"model":"m","messages":[{}],"seed":1}}"#, messages.join(","));
                let _ = read(&beginnings, &text);
                if let Some((at, letter)) = broken {
                    let at = at.index(text.len());
                    if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                        text.replace_range(at..=at, &letter);
                    }
                    let _ = read(&beginnings, &text);
                }
            }
        }
    }
}
