//! Computes the digest of a message: the hash of its role and of the `Debug` output of its content. [`super::History`]
//! compares chats by these digests, also with stored ones, so the hashed text must not change.
//!
//! The arguments of calls are hashed in their [canonical spelling](canonical_json): an agent may parse them and print
//! them again before it sends them back.
//!
//! A client sends its whole chat with every request, so all messages are formatted and hashed through one buffer.

use std::fmt::{self, Write};

use flowgate_lm::chat::{Message, Part, ToolCall};
use sha2::{Digest as _, Sha256};

use super::MessageDigest;
use crate::canonical_json::canonical_json;

/// The size of the buffer, in bytes.
const BUFFER_SIZE: usize = 4096;

/// Formats and hashes messages one after the other.
#[derive(Debug, Default)]
pub(super) struct MessageHasher {
    hash: Sha256,
    /// The bytes that are hashed next.
    text: String,
}

impl Write for MessageHasher {
    /// Adds a piece to the buffer, and hashes the buffer when it is full: hashing many short pieces would be slow.
    fn write_str(&mut self, piece: &str) -> fmt::Result {
        if self.text.len() + piece.len() > BUFFER_SIZE {
            self.hash.update(&self.text);
            self.text.clear();
        }
        match piece.len() {
            0..=BUFFER_SIZE => self.text.push_str(piece),
            // A piece that does not fit in the buffer, which is empty now, is hashed without it.
            _ => self.hash.update(piece),
        }
        Ok(())
    }
}

impl MessageHasher {
    /// Returns the digest of a message, over all its content except the model's reasoning, which a client does not send
    /// back.
    pub(super) fn digest(&mut self, message: &Message) -> MessageDigest {
        // Writing to the buffer cannot fail.
        let _ = self.write_message(message);
        self.hash.update(&self.text);
        self.text.clear();
        self.hash.finalize_reset().into()
    }

    /// Writes the text that is hashed to the digest of a message: the role of the message, and the `Debug` output
    /// of its content with the arguments of calls in their canonical spelling. The model's reasoning is left out.
    fn write_message(&mut self, message: &Message) -> fmt::Result {
        match message {
            Message::System(parts) => {
                self.write_str("system ")?;
                self.write_parts(parts)
            }
            Message::User(parts) => {
                self.write_str("user ")?;
                self.write_parts(parts)
            }
            Message::Assistant { text, calls, .. } => {
                self.write_str("assistant ")?;
                self.write_quoted(text)?;
                write!(self, " {:?}", calls.iter().map(with_canonical_arguments).collect::<Vec<_>>())
            }
            Message::Tool { call_id, content, is_error } => {
                write!(self, "tool {call_id:?} ")?;
                self.write_parts(content)?;
                // An unknown error flag has the digest of `false`.
                write!(self, " {}", *is_error == Some(true))
            }
        }
    }

    /// Writes the `Debug` output of the parts. A single text, the usual content, is written directly, because the
    /// formatter is slow.
    fn write_parts(&mut self, parts: &[Part]) -> fmt::Result {
        let [Part::Text(text)] = parts else { return write!(self, "{parts:?}") };
        self.write_str("[Text(")?;
        self.write_quoted(text)?;
        self.write_str(")]")
    }

    /// Writes the `Debug` output of a string. Runs of characters that need no escape are copied at once, which is
    /// faster than the formatter of `Debug`.
    fn write_quoted(&mut self, text: &str) -> fmt::Result {
        self.write_str("\"")?;
        let mut rest = text;
        while let Some((plain, others)) = rest.split_at_checked(plain_prefix_length(rest.as_bytes())) {
            self.write_str(plain)?;
            let mut others = others.chars();
            let Some(special) = others.next() else { break };
            special.escape_debug().try_for_each(|escaped| self.write_char(escaped))?;
            rest = others.as_str();
        }
        self.write_str("\"")
    }
}

/// Returns the call with its arguments in their canonical spelling.
fn with_canonical_arguments(call: &ToolCall) -> ToolCall {
    let ToolCall { id, name, arguments } = call;
    ToolCall { id: id.clone(), name: name.clone(), arguments: canonical_json(arguments).into_owned() }
}

/// Returns the length of the prefix that needs no escape, in bytes.
fn plain_prefix_length(text: &[u8]) -> usize {
    let is_plain = |byte: u8| matches!(byte, b' '..=b'~') & (byte != b'"') & (byte != b'\\');
    // First the blocks of 32 bytes that need no escape, each of which is checked without a branch for each byte. Then
    // the bytes at the beginning of the next block.
    let plain =
        text.chunks(32).take_while(|bytes| bytes.iter().fold(true, |all, byte| all & is_plain(*byte)));
    let at: usize = plain.map(<[u8]>::len).sum();
    at + text.iter().skip(at).take_while(|byte| is_plain(**byte)).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The digest equals the hash of the role and of the `Debug` output, as in stored chats.
    #[test]
    fn a_digest_is_the_hash_of_the_debug_output() {
        let check = |message: Message| {
            let hashed = match &message {
                Message::System(parts) => format!("system {parts:?}"),
                Message::User(parts) => format!("user {parts:?}"),
                Message::Assistant { text, calls, .. } => format!("assistant {text:?} {calls:?}"),
                Message::Tool { call_id, content, is_error } => {
                    format!("tool {call_id:?} {content:?} {}", *is_error == Some(true))
                }
            };
            let expected = <[u8; 32]>::from(Sha256::digest(hashed.as_bytes()));
            let mut hasher = MessageHasher::default();
            assert_eq!([(); 2].map(|()| hasher.digest(&message)), [expected; 2], "{hashed}");
        };
        let image = || Part::ImageUrl("https://x.org/a.png".to_owned());
        let call = ToolCall { id: "c\"".to_owned(), name: "f".to_owned(), arguments: "{}".to_owned() };
        let every: String =
            ('\0'..'\u{3100}').chain(['\u{fe0f}', '\u{200b}', '\u{1f600}', '\u{e0001}']).collect();
        let spread: String = every.chars().flat_map(|c| [c, 'a', 'b']).collect();
        let long = format!("{}\n{}\"{}", "a".repeat(31), "b".repeat(32), "c".repeat(70));
        let longer = format!("{long}{}\n{long}", "d".repeat(2 * BUFFER_SIZE)).repeat(3);
        for text in [
            "",
            "Hello, it's 5 o'clock.",
            "a \"quoted\" word",
            "back\\slash",
            "two\nlines",
            "ä\u{301}\u{7f}",
            &every,
            &spread,
            &long,
            &longer,
        ] {
            for parts in [vec![Part::from(text)], vec![Part::from(text), image()], vec![image()], vec![]] {
                check(Message::System(parts.clone()));
                check(Message::User(parts.clone()));
                check(Message::Tool { call_id: text.to_owned(), content: parts, is_error: Some(true) });
            }
            check(Message::Assistant { text: text.to_owned(), calls: Vec::new(), thoughts: Vec::new() });
            check(Message::Assistant {
                text: text.to_owned(),
                calls: vec![call.clone()],
                thoughts: Vec::new(),
            });
        }
    }

    /// Agents that parse a call and print it again have not rewritten it.
    #[test]
    fn the_spelling_of_arguments_does_not_count() {
        let digest = |arguments: &str| {
            let call =
                ToolCall { id: "c1".to_owned(), name: "send".to_owned(), arguments: arguments.to_owned() };
            MessageHasher::default().digest(&Message::Assistant {
                text: String::new(),
                calls: vec![call],
                thoughts: Vec::new(),
            })
        };
        let sent = digest(r#"{"to": "Zoë", "amount": 20.0}"#);
        for same in [r#"{"to":"Zoë","amount":20}"#, "{\"amount\": 2e1, \"to\": \"Zo\\u00eb\"}"] {
            assert_eq!(digest(same), sent, "{same}");
        }
        for other in [r#"{"to":"Zoe","amount":20}"#, r#"{"to":"Zoë","amount":"20"}"#, r#"{"to":"Zoë"}"#] {
            assert_ne!(digest(other), sent, "{other}");
        }
        // Parsers may read these differently, so their spelling counts.
        assert_ne!(digest(r#"{"to":"a","to":"b"}"#), digest(r#"{"to":"a", "to":"b"}"#));
        assert_ne!(digest("{"), digest("{ "));
    }

    /// Digests are persisted, so they are the same in every version.
    #[test]
    fn a_digest_stays_what_it_is() {
        let check = |message: Message, expected: &str| {
            let digest = MessageHasher::default().digest(&message);
            let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(digest, expected, "{message:?}");
        };
        let call =
            ToolCall { id: "c1".to_owned(), name: "send".to_owned(), arguments: "{\"to\":1}".to_owned() };
        let image = Part::ImageData { media_type: "image/png".to_owned(), data: "AAAA".to_owned() };
        check(
            Message::System(vec![Part::from("You help.")]),
            "1a09bf12a3d4cae18acb0bbce534a47f6b4d0e0f57c99c271440f3c3469d3886",
        );
        check(
            Message::User(vec![Part::from("It's \"two\"\nlines, größer \u{1f600}\u{200b}")]),
            "3a77356bac85430cbd72ba67769b50a97e5bc46d54eb7ca8754ad007716a0a40",
        );
        check(
            Message::User(vec![Part::from("a"), image]),
            "350bd277853eb9167883a700026e9b262455495a70cbdefdf1fca3e7bb6d84e0",
        );
        check(
            Message::Assistant { text: String::new(), calls: vec![call], thoughts: Vec::new() },
            "bf6674865223ca0898b569f758e2f4d0c4bbb0a9b8ac89adb212f20647ca96f1",
        );
        check(
            Message::Assistant { text: "Done.".to_owned(), calls: Vec::new(), thoughts: Vec::new() },
            "7cdec95567be6cf7c0b0b7448282598fdcd4bda5f502a06079f0ee1519f0e6e5",
        );
        let content = vec![Part::from("{\"a\": 1}")];
        check(
            Message::Tool { call_id: "c1".to_owned(), content, is_error: Some(false) },
            "39029a920598c64c352fb850f333601fef92ff96ad9bc31fb57a609a1e67d229",
        );
    }
}
