//! Builds, signs and checks *heads*: lines whose signature covers all lines before them, since each line has the hash
//! of the line before it. Also defines [`LogHead`], the number and the hash of a line, which a party outside the
//! gateway can keep. The writer of a log, its verifier and the reader of its end (`tail`) share these functions.

use super::key::{AuditKey, AuditPublicKey};
use super::line_hash::{LineHash, hex, parse_hex};
use super::record::{self, RecordFields, Timestamp};
use super::record_kind::RecordKind;

/// The prefix of every signed message, for domain separation.
const DOMAIN: &[u8] = b"flowgate audit head 1\n";
/// The last field of a head.
pub(super) const SIGNATURE: &str = "signature";

/// A line that a party outside the gateway can keep, to check later that the log still contains it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogHead {
    /// The number of the line, from 0.
    pub seq: u64,
    /// The hash of the line.
    pub hash: LineHash,
}

/// Returns a new head, the line with the number `seq`, without its line feed. Its signature covers its number, its time
/// and the hash of the line before it (`previous`), and by that hash all earlier lines.
pub(super) fn head_line(seq: u64, time: Timestamp, previous: LineHash, key: &AuditKey) -> String {
    let line = record::serialize_record(seq, time, &RecordKind::Head, previous, RecordFields::default());
    // The signature covers the object without its closing brace, and is appended as the last field.
    let signed = line.strip_suffix('}').unwrap_or(&line);
    format!("{signed}{}{}\"}}", signature_separator(), hex(&key.sign(&signed_message(signed))))
}

/// Returns whether a head is signed by this key. The signature must be its last field, in the form that [`head_line`]
/// writes, and must match the text before that field.
pub(super) fn is_signed(line: &[u8], key: &AuditPublicKey) -> bool {
    let Ok(line) = std::str::from_utf8(line) else { return false };
    let Some((signed, rest)) = line.split_once(&signature_separator()) else { return false };
    let signature = rest.strip_suffix("\"}").and_then(parse_hex);
    signature.is_some_and(|signature| key.has_signed(&signed_message(signed), &signature))
}

/// Returns the text between the signed part of a head and its signature.
fn signature_separator() -> String {
    format!(",\"{SIGNATURE}\":\"")
}

/// Returns the bytes that the key signs: a fixed prefix, and the text of a head before its signature (`signed`).
fn signed_message(signed: &str) -> Vec<u8> {
    [DOMAIN, signed.as_bytes()].concat()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_digits_have_one_spelling() {
        let check = |text: &str, expected: Option<[u8; 2]>| assert_eq!(parse_hex(text), expected, "{text}");
        check("00ff", Some([0, 255]));
        check(&hex(&[10, 160]), Some([10, 160]));
        check("00FF", None);
        check("00f", None);
        check("00ff00", None);
        check("+0ff", None);
        check("é0", None);
    }

    #[test]
    fn a_head_is_signed_as_a_whole() {
        let key = AuditKey::from_seed([7; 32]);
        let line = head_line(3, Timestamp(5), LineHash::of_line(b"line"), &key);
        let check = |line: &str, key: &AuditPublicKey, expected: bool| {
            assert_eq!(is_signed(line.as_bytes(), key), expected, "{line}");
        };
        check(&line, &key.public_key(), true);
        check(&line, &AuditKey::from_seed([8; 32]).public_key(), false);
        check(&line.replace("\"seq\":3", "\"seq\":4"), &key.public_key(), false);
        check(&line.replace("\"time\":5", "\"time\":6"), &key.public_key(), false);
        check(&line.replace("\"}", "\" }"), &key.public_key(), false);
        check(&line.replace("\"}", "\",\"x\":1}"), &key.public_key(), false);
        check("{}", &key.public_key(), false);
    }
}
