//! Patterns for personal data and secrets, with checksums where there are any.
//!
//! A detector finds what is written plainly; it proves nothing about what it does not find. Rules that must
//! hold use labels, and detectors on top.

use std::ops::Range;
use std::sync::LazyLock;

use regex::Regex;

/// Something found in a text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What it is, such as `EMAIL_ADDRESS`.
    pub kind: &'static str,
    /// Its bytes.
    pub span: Range<usize>,
}

struct Pattern {
    kind: &'static str,
    regex: Option<Regex>,
    check: fn(&str) -> bool,
}

/// A kind, its regular expression, and a check of what that matches.
type Row = (&'static str, &'static str, fn(&str) -> bool);

fn compile(rows: &[Row]) -> Vec<Pattern> {
    rows.iter()
        .map(|(kind, regex, check)| Pattern { kind, regex: Regex::new(regex).ok(), check: *check })
        .collect()
}

static PERSONAL: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    compile(&[
        ("EMAIL_ADDRESS", EMAIL, |_| true),
        ("IBAN_CODE", r"\b[A-Z]{2}[0-9]{2}(?: ?[A-Z0-9]){11,30}\b", is_iban),
        ("CREDIT_CARD", r"\b[0-9](?:[ -]?[0-9]){12,18}\b", is_card),
        ("PHONE_NUMBER", r"(?:\+[0-9]{1,3}[ .-]?)(?:\(?[0-9]{1,4}\)?[ .-]?){2,5}[0-9]{2,4}\b", |_| true),
        ("PHONE_NUMBER", r"\b\(?[0-9]{3}\)?[ .-][0-9]{3}[.-][0-9]{4}\b", |_| true),
        ("US_SSN", r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b", |t| !t.starts_with("000") && !t.starts_with('9')),
    ])
});

static SECRETS: LazyLock<Vec<Pattern>> = LazyLock::new(|| {
    compile(&[
        ("AWS_ACCESS_KEY", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b", |_| true),
        ("GITHUB_TOKEN", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{22,})\b", |_| true),
        ("SLACK_TOKEN", r"\bxox[baprs]-[A-Za-z0-9-]{10,}", |_| true),
        ("OPENAI_API_KEY", r"\bsk-[A-Za-z0-9_-]{20,}", |_| true),
        ("AZURE_STORAGE_KEY", r"AccountKey=[A-Za-z0-9+/=]{80,}", |_| true),
        ("GOOGLE_API_KEY", r"\bAIza[0-9A-Za-z_-]{35}", |_| true),
        ("STRIPE_KEY", r"\b[rs]k_(?:live|test)_[0-9A-Za-z]{16,}", |_| true),
        ("PRIVATE_KEY", r"-----BEGIN (?:[A-Z]+ )?PRIVATE KEY-----", |_| true),
        ("JSON_WEB_TOKEN", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}", |_| true),
    ])
});

const EMAIL: &str = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)+";

fn scan<'t>(patterns: &'static [Pattern], text: &'t str) -> impl Iterator<Item = Finding> + 't {
    patterns.iter().flat_map(move |pattern| {
        let found = pattern.regex.iter().flat_map(move |regex| regex.find_iter(text));
        found
            .filter(|found| (pattern.check)(found.as_str()))
            .map(|f| Finding { kind: pattern.kind, span: f.range() })
    })
}

/// The e-mail addresses in a text.
pub fn emails(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    personal_data(text).filter(|finding| finding.kind == "EMAIL_ADDRESS").map(|finding| finding.span)
}

/// E-mail addresses, phone numbers, IBANs, card numbers and US social security numbers in a text.
pub fn personal_data(text: &str) -> impl Iterator<Item = Finding> + '_ {
    scan(&PERSONAL, text)
}

/// Keys and tokens of well-known forms in a text.
pub fn secrets(text: &str) -> impl Iterator<Item = Finding> + '_ {
    scan(&SECRETS, text)
}

/// The check digits of ISO 13616.
fn is_iban(text: &str) -> bool {
    let compact: Vec<u32> = text.chars().filter_map(|c| c.to_digit(36)).collect();
    let rotated = compact.iter().skip(4).chain(compact.iter().take(4));
    let remainder = rotated.fold(0_u32, |rest, digit| {
        let shift = if *digit > 9 { 100 } else { 10 };
        (rest * shift + digit) % 97
    });
    compact.len() >= 15 && remainder == 1
}

/// The check digit of Luhn.
fn is_card(text: &str) -> bool {
    let digits: Vec<u32> = text.chars().filter_map(|c| c.to_digit(10)).collect();
    let sum: u32 = digits
        .iter()
        .rev()
        .enumerate()
        .map(|(i, digit)| match i % 2 {
            0 => *digit,
            _ if *digit > 4 => digit * 2 - 9,
            _ => digit * 2,
        })
        .sum();
    sum.is_multiple_of(10) && digits.iter().any(|digit| *digit != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<_> =
                personal_data(text).chain(secrets(text)).map(|finding| finding.kind).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("write to ann.lee+x@mail.example.org.", &["EMAIL_ADDRESS"]);
        check("IBAN GB82 WEST 1234 5698 7654 32", &["IBAN_CODE"]);
        check("IBAN GB83 WEST 1234 5698 7654 32", &[]);
        check("card 4111 1111 1111 1111", &["CREDIT_CARD"]);
        check("card 4111 1111 1111 1112", &[]);
        check("call +49 30 1234567", &["PHONE_NUMBER"]);
        check("call 555-123-4567", &["PHONE_NUMBER"]);
        check("SSN 123-45-6789", &["US_SSN"]);
        check("AKIAIOSFODNN7EXAMPLE", &["AWS_ACCESS_KEY"]);
        check(&format!("ghp_{}", "a".repeat(36)), &["GITHUB_TOKEN"]);
        check("-----BEGIN RSA PRIVATE KEY-----", &["PRIVATE_KEY"]);
        check("nothing to see, 2024-05-19 12:00", &[]);
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(PERSONAL.iter().chain(SECRETS.iter()).all(|pattern| pattern.regex.is_some()));
    }
}
