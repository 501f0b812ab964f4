//! Caches decoded chat prefixes, so that a request that continues a chat decodes only its new messages.
//!
//! An agent sends its whole chat with each request, mostly with the same bytes as before. The decoded form of a message
//! and its digests depend on its bytes alone: so a chat that begins with the same bytes begins with the same messages.
//! Only the bytes after a cached prefix are decoded, by the same decoder as a whole body. The settings of a request
//! (everything except the messages, mainly the tools) are cached in the same way. Only Chat Completions requests are
//! cached; requests of other APIs are decoded completely.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use flowgate_guard::history::{MessageDigests, SentChat};
use flowgate_lm::chat::{Message, Request, Source, Sources};
use flowgate_lm::json::{self, Json};
use flowgate_lm::wire::embeddings::EmbeddingsRequest;
use flowgate_lm::wire::generate_content::Target;
use flowgate_lm::wire::{Api, DroppedParts, ReceivedRequest, WireError, chat_completions};
use sha2::{Digest as _, Sha256};

use crate::background_drop::drop_in_background;

/// The cached chat prefixes of one client.
#[derive(Debug, Default)]
pub(crate) struct PrefixCache {
    state: Mutex<PrefixCacheState>,
    /// What the client may send although the gateway does not understand it.
    dropped: DroppedParts,
}

/// The cached prefixes, in two generations, and the cached settings.
#[derive(Debug, Default)]
struct PrefixCacheState {
    /// The younger generation: the digests of the messages of a prefix, by the digest of its bytes.
    by_digest: HashMap<PrefixDigest, Arc<MessageDigests>>,
    /// The total number of messages in the prefixes of `by_digest`.
    messages: usize,
    /// The previous generation of `by_digest`, dropped when `by_digest` is full.
    older: HashMap<PrefixDigest, Arc<MessageDigests>>,
    /// Requests without their messages, by the digest of their bytes without the messages.
    settings: HashMap<PrefixDigest, Arc<ReceivedRequest>>,
    /// The bytes that the requests in `settings` were decoded from.
    settings_bytes: usize,
}

/// The digest of some bytes of a request.
type PrefixDigest = [u8; 32];

/// The limit on messages in one generation of a client's prefixes; when there are more, the older generation is
/// dropped.
const MAX_CACHED_MESSAGES: usize = 1 << 15;
/// The lookup tries prefixes that are at most this number of messages shorter than the chat.
const MAX_UNCACHED_MESSAGES: usize = 32;
/// The limit on `settings_bytes`; `settings` is cleared when the limit is exceeded.
const MAX_SETTINGS_BYTES: usize = 1 << 20;

/// A decoded request, of which a prefix may come from the cache.
#[derive(Debug)]
pub(crate) struct PartlyCachedRequest {
    /// The request without its messages. Requests with equal settings share one allocation while the settings are
    /// cached.
    pub(crate) settings: Arc<ReceivedRequest>,
    /// The messages after the cached prefix.
    messages: Vec<Message>,
    /// The provenance of the parts of `messages`, where the client declares a provenance.
    sources: Sources,
    /// The cached prefix with the digest of its bytes; `None` if all messages were decoded.
    prefix: Option<(PrefixDigest, Arc<MessageDigests>)>,
    /// The number of messages of the whole request, and the digest of their bytes; `None` if they cannot be cached.
    whole: Option<(usize, PrefixDigest)>,
}

impl PartlyCachedRequest {
    /// Returns the request with the model that its address names, and as a stream if its address says so: Gemini's
    /// API has both in the address. `None` for the other APIs leaves the request unchanged.
    pub(crate) fn addressed_to(self, target: Option<&Target>) -> Self {
        let Some(target) = target else { return self };
        let settings = Arc::unwrap_or_clone(self.settings).addressed_to(target);
        Self { settings: Arc::new(settings), ..self }
    }

    /// Returns the whole chat. Unmarked parts have the provenance `unmarked`, if that is given.
    pub(crate) fn chat(&self, unmarked: Option<Source>) -> SentChat<'_> {
        let chat = match &self.prefix {
            Some((_, prefix)) => SentChat::continuing(prefix, &self.messages),
            None => SentChat::of(&self.messages),
        };
        chat.with_sources(with_default_provenance(self.sources.clone(), &self.messages, unmarked))
    }
}

/// Sets the provenance of message parts that their client did not mark to `unmarked`, if that is given.
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

/// Parses the body of a request. The error is a message for the client.
fn parse(text: &str) -> Result<Json<'_>, String> {
    Json::parse(text).map_err(|error| format!("the body of the request is not valid JSON: {error}"))
}

/// Returns the message to the client about a part of a request that the decoder of its API does not support.
fn unsupported(api: Api, error: &WireError) -> String {
    format!(
        "the gateway does not support a part of the request, so it does not forward it: {error} (it understands \
        {}, and docs/wire-forms.md lists the fields)",
        api.version()
    )
}

impl PrefixCache {
    /// Creates the empty cache of a client. `dropped` are the fields and tools that the client may send although the
    /// gateway does not understand them; the decoder drops them.
    pub(crate) fn new(dropped: DroppedParts) -> Self {
        Self { state: Mutex::default(), dropped }
    }

    /// Decodes the whole body of a request. The error is a message for the client.
    pub(crate) fn decode_whole(&self, api: Api, text: &str) -> Result<ReceivedRequest, String> {
        let body = parse(text)?;
        api.decode_request_dropping(&body, &self.dropped).map_err(|error| unsupported(api, &error))
    }

    /// Decodes the body of a request that asks for the number of its tokens, in an API with such requests. The error is a
    /// message for the client.
    pub(crate) fn decode_count_request(&self, api: Api, text: &str) -> Result<Request, String> {
        let body = parse(text)?;
        let count =
            api.form().token_count.as_ref().ok_or("this API has no request for the number of tokens")?;
        count.decode(&body, &self.dropped).map_err(|error| unsupported(api, &error))
    }

    /// Decodes the body of a request for embeddings. The error is a message for the client.
    pub(crate) fn decode_embeddings_request(&self, text: &str) -> Result<EmbeddingsRequest, String> {
        let body = parse(text)?;
        EmbeddingsRequest::decode(&body, &self.dropped)
            .map_err(|error| unsupported(Api::ChatCompletions, &error))
    }

    /// Decodes the body of a request, except for a prefix of its messages whose digests are cached. Without a cached
    /// prefix, or if the body cannot be split into messages, decodes all of it. In the second case, the request cannot
    /// be cached either.
    ///
    /// # Errors
    /// If the body is no valid request of the API. The message tells the client where.
    pub(crate) fn decode(&self, api: Api, text: &str) -> Result<PartlyCachedRequest, String> {
        if let Some(request) =
            message_ranges(api, text).and_then(|messages| self.decode_after_prefix(api, text, &messages))
        {
            return Ok(request);
        }
        let mut request = self.decode_whole(api, text)?;
        let messages = std::mem::take(request.request.messages.edit());
        let sources = std::mem::take(&mut request.sources);
        Ok(PartlyCachedRequest { settings: Arc::new(request), messages, sources, prefix: None, whole: None })
    }

    /// Decodes a request whose messages are at these positions: its settings and the messages after the longest cached
    /// prefix. Returns `None` on any error, because the caller then decodes the whole body and reports the error.
    fn decode_after_prefix(
        &self,
        api: Api,
        text: &str,
        messages: &[Range<usize>],
    ) -> Option<PartlyCachedRequest> {
        let (first, last) = (messages.first()?, messages.last()?);
        // Without the messages, the body is a request whose list `messages` is empty.
        let settings = self.decode_settings(api, [text.get(..first.start)?, text.get(last.end..)?])?;
        let (whole_digest, prefixes) = prefix_digests(text, messages);
        let prefix = self.longest_cached(prefixes);
        let cached_messages = prefix.as_ref().map_or(0, |(_, prefix)| prefix.len());
        let new_messages = text.get(messages.get(cached_messages)?.start..last.end)?;
        // The decoder expects an object with the list `messages`.
        let new_messages = [r#"{"messages":["#, new_messages, "]}"].concat();
        // Only requests of this API have message positions: see `message_ranges`.
        let (new_messages, sources) =
            chat_completions::decode_messages(&Json::parse(&new_messages).ok()?, &self.dropped).ok()?;
        let message_count = messages.len();
        // The decoder must find as many messages as the scan for their positions did.
        (cached_messages + new_messages.len() == message_count).then(|| PartlyCachedRequest {
            settings,
            messages: new_messages,
            sources,
            prefix,
            whole: Some((message_count, whole_digest)),
        })
    }

    /// Decodes a request without its messages, given the text before the messages and the text after them; or returns
    /// the cached result for the same text. Returns `None` if the text is no valid request. Settings that are larger
    /// than the whole cache are not cached; a full cache is emptied.
    fn decode_settings(&self, api: Api, parts: [&str; 2]) -> Option<Arc<ReceivedRequest>> {
        let text = parts.concat();
        let digest = PrefixDigest::from(Sha256::digest(&text));
        if let Some(settings) = self.lock().settings.get(&digest) {
            return Some(Arc::clone(settings));
        }
        let settings = Arc::new(self.decode_whole(api, &text).ok()?);
        let mut cache = self.lock();
        if text.len() > MAX_SETTINGS_BYTES {
            return Some(settings);
        }
        if cache.settings_bytes + text.len() > MAX_SETTINGS_BYTES {
            (cache.settings, cache.settings_bytes) = (HashMap::new(), 0);
        }
        // The lock is free while the settings are decoded, so another request may have inserted the same settings. They
        // count once.
        if cache.settings.insert(digest, Arc::clone(&settings)).is_none() {
            cache.settings_bytes += text.len();
        }
        Some(settings)
    }

    /// Returns the longest candidate that is cached, in the younger or the older generation of prefixes, with its
    /// digest; `None` if none is. The candidates are the number of messages and the digest of each prefix, shortest
    /// first.
    fn longest_cached(
        &self,
        prefixes: Vec<(usize, PrefixDigest)>,
    ) -> Option<(PrefixDigest, Arc<MessageDigests>)> {
        let cache = self.lock();
        prefixes.into_iter().rev().find_map(|(count, digest)| {
            let prefix = cache.by_digest.get(&digest).or_else(|| cache.older.get(&digest));
            // Equal bytes have equally many messages; an entry with another number is not used.
            let prefix = prefix.filter(|digests| digests.len() == count)?;
            Some((digest, Arc::clone(prefix)))
        })
    }

    /// Caches the digests of all messages of this request as a prefix of the next one; has no effect for a request that
    /// cannot be cached.
    pub(crate) fn insert(&self, request: &PartlyCachedRequest, chat: &SentChat<'_>) {
        let Some((count, digest)) = request.whole else { return };
        let prefix = chat.message_digests();
        // The digest covers each message of the body, so the chat must consist of exactly these.
        if prefix.len() != count {
            return;
        }
        let mut cache = self.lock();
        // The next request of this chat begins with the new prefix, which therefore replaces the one of this request.
        if let Some((prefix_digest, prefix)) = &request.prefix {
            match cache.by_digest.remove(prefix_digest) {
                Some(_) => cache.messages -= prefix.len(),
                // The messages of the older generation are not counted.
                None => drop(cache.older.remove(prefix_digest)),
            }
        }
        // When the younger generation is full, it becomes the older one, and the older one is dropped. A chat that
        // continues is inserted again into the younger one, so only chats that have not continued are lost.
        if cache.messages + count > MAX_CACHED_MESSAGES {
            let younger = std::mem::take(&mut cache.by_digest);
            drop_in_background(std::mem::replace(&mut cache.older, younger));
            cache.messages = 0;
        }
        cache.messages += count;
        if let Some(replaced) = cache.by_digest.insert(digest, prefix) {
            cache.messages -= replaced.len();
        }
    }

    /// Locks the cached prefixes and settings.
    fn lock(&self) -> MutexGuard<'_, PrefixCacheState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns the byte ranges of a request's messages; `None` if the API is not Chat Completions, the ranges are
/// ambiguous, or the list is empty.
fn message_ranges(api: Api, text: &str) -> Option<Vec<Range<usize>>> {
    let items = (api == Api::ChatCompletions).then(|| json::items(text, "messages"))??;
    (!items.is_empty()).then_some(items)
}

/// Returns the digest of all messages, and the candidates for the cache lookup: the number of messages and the digest
/// of each shorter prefix that lacks at most [`MAX_UNCACHED_MESSAGES`] messages, shortest first. Shorter prefixes are
/// not tried, since an agent rarely adds more messages at once. `messages` are the byte ranges of the messages in
/// `text`.
fn prefix_digests(text: &str, messages: &[Range<usize>]) -> (PrefixDigest, Vec<(usize, PrefixDigest)>) {
    let (mut hash, mut prefixes) = (Sha256::new(), Vec::new());
    // The first part that is hashed begins here, so it has all messages of the shortest candidate.
    let mut covered_until = messages.first().map_or(0, |first| first.start);
    let shortest = messages.len().saturating_sub(MAX_UNCACHED_MESSAGES).max(1);
    for (count, message) in (1..).zip(messages).skip(shortest - 1) {
        // The digest also covers the bytes between messages.
        hash.update(text.get(covered_until..message.end).unwrap_or_default());
        covered_until = message.end;
        if count < messages.len() {
            prefixes.push((count, hash.clone().finalize().into()));
        }
    }
    (hash.finalize().into(), prefixes)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const API: Api = Api::ChatCompletions;

    /// Decodes and caches a request, and returns the number of cached messages. The result must equal that of decoding
    /// the whole body.
    fn read(cache: &PrefixCache, text: &str) -> Result<usize, String> {
        let (request, whole) = (cache.decode(API, text), cache.decode_whole(API, text));
        let (request, whole) = match (request, whole) {
            (Ok(request), Ok(whole)) => (request, whole),
            (request, whole) => {
                let (request, whole) = (request.map(|_| ()), whole.map(|_| ()));
                assert_eq!(request, whole, "{text}");
                return request.map(|()| 0);
            }
        };
        let chat = request.chat(None);
        cache.insert(&request, &chat);
        let cached_messages = request.prefix.as_ref().map_or(0, |(_, prefix)| prefix.len());
        let all = SentChat::of(&whole.request.messages);
        assert_eq!(chat.prefixes(), all.prefixes(), "{text}");
        assert_eq!(*chat.message_digests(), *all.message_digests(), "{text}");
        let ReceivedRequest { request: settings, model, stream, usage, sources: _, tool_forms: _ } =
            &*request.settings;
        let new_messages = whole.request.messages.get(cached_messages..).unwrap_or_default();
        assert_eq!((&settings.messages[..], &request.messages[..]), (&[][..], new_messages), "{text}");
        assert_eq!(
            (&settings.tools, &settings.choice, &settings.sampling, &settings.format, model, stream, usage),
            (
                &whole.request.tools,
                &whole.request.choice,
                &whole.request.sampling,
                &whole.request.format,
                &whole.model,
                &whole.stream,
                &whole.usage
            ),
            "{text}"
        );
        Ok(cached_messages)
    }

    #[test]
    fn a_prefix_with_the_same_bytes_is_cached() {
        let cache = PrefixCache::default();
        let check = |text: &str, expected: Result<usize, &str>| {
            assert_eq!(read(&cache, text), expected.map_err(str::to_owned), "{text}");
        };
        let (a, b, c) = (
            r#"{"role":"user","content":"a"}"#,
            r#"{"role":"assistant","content":"b"}"#,
            r#"{"role":"user","content":"c"}"#,
        );
        check(&format!(r#"{{"model":"m","messages":[{a}]}}"#), Ok(0));
        check(&format!(r#"{{"model":"m","messages":[{a}]}}"#), Ok(0));
        // The same messages with other settings.
        check(&format!(r#"{{"stream":true,"messages":[{a},{b},{c}],"model":"m","seed":7}}"#), Ok(1));
        check(&format!(r#"{{"model":"m","messages":[{a},{b},{c},{b},{a}]}}"#), Ok(3));
        // The same messages with other bytes between them, or at another position.
        check(&format!(r#"{{"model":"m","messages":[{a}, {b},{c},{b},{a},{b}]}}"#), Ok(0));
        check(&format!(r#"{{"model":"m","messages":[{b},{a},{b}]}}"#), Ok(0));
        // An error names its position in the whole body, not in the part after the prefix.
        let problem = |place: &str| {
            format!(
                "the gateway does not support a part of the request, so it does not forward it: \
                `messages[{place}].role` is not supported (it understands OpenAI's Chat Completions as of \
                November 2026, and docs/wire-forms.md lists the fields)"
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
            assert!(read(&cache, &broken).is_err(), "{broken}");
        }
    }

    #[test]
    fn the_number_of_cached_messages_is_bounded() {
        let cache = PrefixCache::default();
        let ask = |name: usize, count: usize| {
            let message = |number: usize| json!({"role": "user", "content": format!("{name} {number}")});
            let messages: Vec<_> = (0..count).map(message).collect();
            read(&cache, &json!({"model": "m", "messages": messages}).to_string()).unwrap()
        };
        let continued = 4 * MAX_CACHED_MESSAGES / 4096;
        for name in 0..continued {
            ask(name, 4096);
            // A chat that is continued again and again is not dropped from the cache.
            let cached = ask(continued, name + 1);
            assert_eq!(cached, name);
            let state = cache.lock();
            let count = |generation: &HashMap<_, Arc<MessageDigests>>| {
                generation.values().map(|digests| digests.len()).sum::<usize>()
            };
            assert!(state.messages <= MAX_CACHED_MESSAGES && count(&state.older) <= MAX_CACHED_MESSAGES);
            assert_eq!(state.messages, count(&state.by_digest));
        }
        assert_eq!(ask(continued - 1, 4097), 4096);
        assert_eq!(ask(0, 4097), 0);
    }

    #[test]
    fn settings_are_cached_and_their_bytes_are_bounded() {
        let cache = PrefixCache::default();
        let ask = |more: &str| {
            let text = format!(r#"{{"messages":[{{"role":"user","content":"a"}}],"model":"m"{more}}}"#);
            let request = cache.decode(API, &text).unwrap();
            assert!(cache.lock().settings_bytes <= MAX_SETTINGS_BYTES);
            request.settings
        };
        let is_same = |one: &Arc<ReceivedRequest>, other: &Arc<ReceivedRequest>| Arc::ptr_eq(one, other);
        let (one, two) = (ask(""), ask(r#","seed":1"#));
        assert!(is_same(&one, &ask("")) && is_same(&two, &ask(r#","seed":1"#)) && !is_same(&one, &two));
        assert_eq!((one.request.sampling.seed, two.request.sampling.seed), (None, Some(1)));
        let long = |seed: usize| format!(r#","user":"{}","seed":{seed}"#, "x".repeat(MAX_SETTINGS_BYTES / 2));
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
        fn a_cached_prefix_changes_no_result(
            all in prop::collection::vec(message(), 1..8),
            asks in prop::collection::vec((0..8_usize, prop::option::of((0..8_usize, message())), prop::option::of((any::<prop::sample::Index>(), "[a\"\\\\,\\]\\}\\{\\[ ]"))), 1..8),
        ) {
            let cache = PrefixCache::default();
            for (count, other, broken) in asks {
                let mut messages = all.get(..count.min(all.len())).unwrap().to_vec();
                if let Some((at, other)) = other && at < messages.len() {
                    messages[at] = other;
                }
                let mut text = format!(r#"{{"model":"m","messages":[{}],"seed":1}}"#, messages.join(","));
                let _ = read(&cache, &text);
                if let Some((at, letter)) = broken {
                    let at = at.index(text.len());
                    if text.is_char_boundary(at) && text.is_char_boundary(at + 1) {
                        text.replace_range(at..=at, &letter);
                    }
                    let _ = read(&cache, &text);
                }
            }
        }
    }
}
