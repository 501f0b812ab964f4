//! Finds personal data: e-mail and IP addresses, numbers with check digits, names and places. Policies use it through
//! the function `pii` and through kinds in tool patterns, such as `<EMAIL_ADDRESS>`.
//!
//! Kinds have the names that Microsoft Presidio, a detector of personal data, uses, where Presidio has such a kind.
//! There are three levels:
//!
//! * [`personal_data`] finds data that has a distinctive form, and verifies check digits if the form has some. A number
//!   without a distinctive form counts only after a word that names it ("BSN 111222333").
//! * [`names`] finds `PERSON` and `LOCATION`, by titles and by lists of common given names and of places. This is weak:
//!   a rare name is missed, and a brand that resembles a name is found.
//! * [`all_findings`] finds both, and `URL`, as Presidio reports by default.
//!
//! An address that is spelled out ("ann at example dot org"), a number in words and a street address are not found. The
//! submodule `checksum` verifies check digits.

mod checksum;
mod names;

use std::net::{Ipv4Addr, Ipv6Addr};
use std::ops::Range;
use std::sync::LazyLock;

pub use names::names;

use super::pattern::{CompiledRules, DetectionRule, PatternMatch, rule};
use super::{Finding, MAX_FINDINGS, markup};

/// The compiled rules of [`TABLE`].
static RULES: LazyLock<CompiledRules> = LazyLock::new(|| CompiledRules::new(TABLE));

/// The rule for e-mail addresses alone.
static EMAILS: LazyLock<CompiledRules> =
    LazyLock::new(|| CompiledRules::new(const { &[rule("EMAIL_ADDRESS", EMAIL).check(has_domain)] }));

/// Returns the e-mail addresses in a text.
pub fn emails(text: &str) -> impl Iterator<Item = Range<usize>> + '_ {
    EMAILS.find(text).into_iter().map(|finding| finding.span)
}

/// Returns addresses and phone, account, card and identity numbers in a text, in order and without overlap.
///
/// ```
/// let found: Vec<_> = flowgate_detect::personal_data("IBAN GB82 WEST 1234 5698 7654 32").collect();
/// assert_eq!((found[0].kind, found[0].span.clone()), ("IBAN_CODE", 5..32));
/// ```
pub fn personal_data(text: &str) -> impl Iterator<Item = Finding> + '_ {
    RULES.find(text).into_iter()
}

/// Returns the findings of [`personal_data`] and of [`names`], and the addresses as findings of the kind `URL`, all in
/// the order of the text. A name that overlaps other personal data is omitted; a URL may contain other findings.
pub fn all_findings(text: &str) -> Vec<Finding> {
    let mut findings = RULES.find(text);
    let overlaps =
        |span: &Range<usize>, other: &Finding| other.span.start < span.end && span.start < other.span.end;
    let mut name_findings = names(text);
    // Both lists are sorted by position, so one pass finds the overlaps. `at` is the first finding that does not end
    // before the name.
    let mut at = 0;
    name_findings.retain(|name| {
        while findings.get(at).is_some_and(|finding| finding.span.end <= name.span.start) {
            at += 1;
        }
        !findings.get(at).is_some_and(|finding| overlaps(&name.span, finding))
    });
    findings.extend(name_findings);
    findings.extend(markup::addresses(text).into_iter().map(|span| Finding { kind: "URL", span }));
    findings.sort_by_key(|finding| (finding.span.start, finding.span.end));
    findings.truncate(MAX_FINDINGS);
    findings
}

/// An e-mail address.
const EMAIL: &str = r"[A-Za-z0-9._%+-]+@[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?(?:\.[A-Za-z0-9](?:[A-Za-z0-9-]*[A-Za-z0-9])?)+";

/// A date, used for dates of birth.
const DATE: &str = concat!(
    r"(?i)\b(?:[0-9]{4}[-/.][0-9]{1,2}[-/.][0-9]{1,2}|[0-9]{1,2}[-/.][0-9]{1,2}[-/.](?:[0-9]{4}|[0-9]{2})",
    r"|[0-9]{1,2}(?:st|nd|rd|th)?\.? (?:of )?[a-zéû]{3,9}\.?,? [0-9]{4}|[a-z]{3,9}\.? [0-9]{1,2}(?:st|nd|rd|th)?,? [0-9]{4})\b"
);

/// Words before a date of birth.
const BIRTH: &[&str] = &[
    "born",
    "birth",
    "birthday",
    "birthdate",
    "dob",
    "d o b",
    "geboren",
    "geburtsdatum",
    "geb",
    "née",
    "né",
    "naissance",
    "nato",
    "nata",
    "nascita",
    "nacido",
    "nacida",
    "nacimiento",
    "nascimento",
    "geboortedatum",
    "urodzony",
    "född",
];

/// Words before a phone number.
const PHONE: &[&str] = &[
    "phone",
    "telephone",
    "tel",
    "mobile",
    "cell",
    "call",
    "fax",
    "sms",
    "whatsapp",
    "dial",
    "ring",
    "text me",
    "contact",
    "telefon",
    "handy",
    "mobil",
    "tél",
    "téléphone",
    "teléfono",
    "móvil",
    "telefono",
    "cellulare",
    "telefoon",
    "celular",
];

/// The rules for data that has a distinctive form. Where matches overlap, earlier rows take precedence.
const TABLE: &[DetectionRule] = &[
    rule("EMAIL_ADDRESS", EMAIL).check(has_domain),
    rule("IBAN_CODE", r"\b[A-Za-z]{2}[0-9]{2}(?:[ -]?[A-Za-z0-9]){11,30}\b")
        .truncated_by(checksum::iban_length)
        .check(|m| checksum::iban(m.text)),
    rule("CREDIT_CARD", r"\b[0-9](?:[ -]?[0-9]){12,18}\b")
        .check(|m| stands_alone(m) && checksum::card(m.text)),
    rule("CRYPTO", r"\bbc1[02-9ac-hj-np-z]{11,71}\b").check(|m| checksum::bech32(m.text)),
    rule("CRYPTO", r"\b[13][1-9A-HJ-NP-Za-km-z]{25,34}\b").check(|m| checksum::base58_address(m.text)),
    rule("CRYPTO", r"\b0x[0-9a-fA-F]{40}\b"),
    rule("CRYPTO", r"\b4[0-9AB][1-9A-HJ-NP-Za-km-z]{93}\b"),
    rule("DATE_OF_BIRTH", DATE).after_phrases(BIRTH),
    rule("US_SSN", r"\b[0-9]{3}-[0-9]{2}-[0-9]{4}\b").check(|m| stands_alone(m) && ssn(m)),
    rule("US_SSN", r"\b[0-9]{3}[ .]?[0-9]{2}[ .]?[0-9]{4}\b").check(ssn).after_phrases(&[
        "ssn",
        "social security",
        "social security number",
    ]),
    rule("US_ITIN", r"\b9[0-9]{2}-(?:5[0-9]|6[0-5]|7[0-9]|8[0-8]|9[0-24-9])-[0-9]{4}\b")
        .after_phrases(&["itin", "taxpayer"]),
    rule("ES_NIF", r"\b[0-9]{8}-?[A-Z]\b").check(|m| stands_alone(m) && checksum::es_letter(m.text)),
    rule("ES_NIE", r"\b[XYZ]-?[0-9]{7}-?[A-Z]\b").check(|m| stands_alone(m) && checksum::es_letter(m.text)),
    rule("IT_FISCAL_CODE", r"\b[A-Z]{6}[0-9]{2}[A-EHLMPR-T][0-9]{2}[A-Z][0-9]{3}[A-Z]\b")
        .check(|m| checksum::it_fiscal_code(m.text)),
    rule("CH_AHV", r"\b756[. ]?[0-9]{4}[. ]?[0-9]{4}[. ]?[0-9]{2}\b").check(|m| checksum::ch_ahv(m.text)),
    rule("FR_NIR", r"\b[12] ?[0-9]{2} ?[0-9]{2} ?(?:[0-9]{2}|2[AB]) ?[0-9]{3} ?[0-9]{3} ?[0-9]{2}\b")
        .check(|m| checksum::fr_nir(m.text)),
    rule("BR_CPF", r"\b[0-9]{3}\.[0-9]{3}\.[0-9]{3}-[0-9]{2}\b").check(|m| checksum::br_cpf(m.text)),
    rule("BE_NRN", r"\b[0-9]{2}\.[0-9]{2}\.[0-9]{2}-[0-9]{3}\.[0-9]{2}\b")
        .check(|m| checksum::be_nrn(m.text)),
    rule("SG_NRIC_FIN", r"\b[STFG][0-9]{7}[A-Z]\b").check(|m| checksum::sg_nric(m.text)),
    rule("FI_PERSONAL_IDENTITY_CODE", r"\b[0-3][0-9][01][0-9]{3}[-+A-FU-Y][0-9]{3}[0-9A-FHJ-NPR-Y]\b")
        .check(|m| checksum::fi_hetu(m.text)),
    rule("SE_PERSONNUMMER", r"\b(?:19|20)?[0-9]{6}[-+][0-9]{4}\b")
        .check(|m| stands_alone(m) && checksum::se_personnummer(m.text)),
    rule("KR_RRN", r"\b[0-9]{6}-[1-4][0-9]{6}\b").check(|m| checksum::kr_rrn(m.text)),
    rule("UK_NINO", r"\b[A-CEGHJ-PR-TW-Z][A-CEGHJ-NPR-TW-Z] ?[0-9]{2} ?[0-9]{2} ?[0-9]{2} ?[A-D]\b").check(
        |m| !["BG", "GB", "KN", "NK", "NT", "TN", "ZZ"].iter().any(|prefix| m.text.starts_with(prefix)),
    ),
    rule("IN_PAN", r"\b[A-Z]{3}[ABCFGHJLPT][A-Z][0-9]{4}[A-Z]\b"),
    rule("IN_AADHAAR", r"\b[2-9][0-9]{3}[ -]?[0-9]{4}[ -]?[0-9]{4}\b").check(|m| {
        checksum::verhoeff(m.text)
            && (m.text.contains(' ') || m.follows_phrase(&["aadhaar", "aadhar", "uid", "uidai"]))
    }),
    rule("NL_BSN", r"\b[0-9]{4}\.?[0-9]{2}\.?[0-9]{3}\b")
        .check(|m| checksum::nl_bsn(m.text))
        .after_phrases(&["bsn", "burgerservicenummer", "sofinummer"]),
    rule("DE_TAX_ID", r"\b[1-9][0-9](?: ?[0-9]{3}){3}\b")
        .check(|m| checksum::de_tax_id(m.text))
        .after_phrases(&[
            "steuer id",
            "steuerid",
            "steueridentifikationsnummer",
            "idnr",
            "tax id",
            "tin",
            "identifikationsnummer",
        ]),
    rule("PL_PESEL", r"\b[0-9]{11}\b").check(|m| checksum::pl_pesel(m.text)).after_phrases(&["pesel"]),
    rule("UK_NHS", r"\b[0-9]{3}[ -]?[0-9]{3}[ -]?[0-9]{4}\b")
        .check(|m| checksum::uk_nhs(m.text))
        .after_phrases(&["nhs", "national health", "health service"]),
    rule("CA_SIN", r"\b[1-9][0-9]{2}[ -]?[0-9]{3}[ -]?[0-9]{3}\b")
        .check(|m| checksum::luhn(m.text))
        .after_phrases(&["sin", "social insurance", "social insurance number"]),
    rule("AU_ABN", r"\b[0-9]{2}(?: ?[0-9]{3}){3}\b").check(|m| checksum::au_abn(m.text)).after_phrases(&[
        "abn",
        "abn is",
        "business number",
    ]),
    rule("AU_TFN", r"\b[0-9]{3} ?[0-9]{3} ?[0-9]{3}\b")
        .check(|m| checksum::au_tfn(m.text))
        .after_phrases(&["tfn", "tax file number"]),
    rule("IP_ADDRESS", r"\b[0-9]{1,3}(?:\.[0-9]{1,3}){3}\b").check(ipv4),
    rule("IP_ADDRESS", r"[0-9A-Fa-f:][0-9A-Fa-f:.]{1,44}").check(ipv6),
    rule("PHONE_NUMBER", r"\+[1-9][0-9]{0,2}[ .-]?(?:\(?[0-9]{1,4}\)?[ .-]?){2,5}[0-9]{2,4}\b").check(phone),
    rule("PHONE_NUMBER", r"(?:1[ .-])?(?:\([2-9][0-9]{2}\) ?|[2-9][0-9]{2}[ .-])[0-9]{3}[.-][0-9]{4}\b")
        .check(phone),
    rule(
        "PHONE_NUMBER",
        r"\b(?:0[0-9]{1,4}(?:[ ./-]?[0-9]{2,8}){1,5}|[2-9][0-9]{2}[ .-]?[0-9]{3}[ .-]?[0-9]{4})\b",
    )
    .check(phone)
    .after_phrases(PHONE),
];

/// Returns whether a matched number is complete: not part of a longer number or word, such as `1.2.3.4.5` or `x-12`.
fn stands_alone(m: PatternMatch<'_>) -> bool {
    let joins = |c: Option<char>| c.is_some_and(|c| c.is_alphanumeric() || matches!(c, '-' | '_'));
    // A point and a digit after the number continue the number, whereas a point alone ends a sentence. A point directly
    // before the number always belongs to the number.
    let point = |text: &str| text.starts_with('.') && text.chars().nth(1).is_some_and(|c| c.is_ascii_digit());
    !joins(m.before().chars().next_back())
        && !joins(m.after().chars().next())
        && !m.before().ends_with('.')
        && !point(m.after())
}

/// Returns whether the last label of an address belongs to a domain, not to a version (`node@20.1.0`).
fn has_domain(m: PatternMatch<'_>) -> bool {
    let last = m.text.rsplit('.').next().unwrap_or_default();
    last.len() > 1 && last.starts_with(|c: char| c.is_ascii_alphabetic())
}

/// Returns whether a social security number of the United States can have been issued, by its area, group and serial
/// number.
fn ssn(m: PatternMatch<'_>) -> bool {
    let digits: String = m.text.chars().filter(char::is_ascii_digit).collect();
    let part = |range| digits.get(range).unwrap_or_default();
    !matches!(part(0..3), "000" | "666")
        && !digits.starts_with('9')
        && part(3..5) != "00"
        && part(5..9) != "0000"
}

/// Returns whether a match is an IPv4 address and not a version number.
fn ipv4(m: PatternMatch<'_>) -> bool {
    // `Chrome/120.0.0.0` and `version 1.2.3.4` are not addresses, and neither are an object identifier (`oid`) and the
    // number of a section.
    let in_path =
        m.before().strip_suffix('/').is_some_and(|rest| rest.ends_with(|c: char| c.is_ascii_alphabetic()));
    m.text.parse::<Ipv4Addr>().is_ok()
        && stands_alone(m)
        && !in_path
        && !m.follows_phrase(&["version", "oid", "release", "section"])
}

/// Returns whether a match is an IPv6 address with at least two groups and a digit, and not part of a longer text.
/// `::1` is one as well.
fn ipv6(m: PatternMatch<'_>) -> bool {
    let joins = |c: char| c.is_alphanumeric() || matches!(c, ':' | '_');
    let groups = m.text.split(':').filter(|group| !group.is_empty()).count();
    m.text.parse::<Ipv6Addr>().is_ok()
        && (groups > 1 || m.text == "::1")
        // Without a digit it may be a path in code: `add::bad` is a valid address.
        && m.text.contains(|c: char| c.is_ascii_digit())
        && !m.before().ends_with(joins)
        && !m.after().starts_with(joins)
}

/// Returns whether a match is a complete number with as many digits as phone numbers have. A `+` directly before the
/// match would belong to the number, which is then not complete.
fn phone(m: PatternMatch<'_>) -> bool {
    let digits = m.text.chars().filter(char::is_ascii_digit).count();
    (8..=15).contains(&digits) && stands_alone(m) && !m.before().ends_with('+')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_found() {
        let check = |text: &str, expected: &[&str]| {
            let found: Vec<_> = personal_data(text).map(|finding| finding.kind).collect();
            assert_eq!(found, expected, "{text}");
        };
        check("npm install node@20.1.0", &[]);
        check("write to ann.lee+x@mail.example.org.", &["EMAIL_ADDRESS"]);
        check("IBAN GB82 WEST 1234 5698 7654 32", &["IBAN_CODE"]);
        check("GB82 WEST 1234 5698 7654 32 at our bank", &["IBAN_CODE"]);
        check("IBAN GB83 WEST 1234 5698 7654 32", &[]);
        check("card 4111 1111 1111 1111", &["CREDIT_CARD"]);
        check("card 4111 1111 1111 1112", &[]);
        check("12 4111 1111 1111 1111", &["CREDIT_CARD"]);
        check("call +49 30 1234567", &["PHONE_NUMBER"]);
        check("call 555-123-4567", &["PHONE_NUMBER"]);
        check("call (555) 123-4567", &["PHONE_NUMBER"]);
        check("the form +000000120 or 1.38435736E+12", &[]);
        check("SSN 123-45-6789", &["US_SSN"]);
        check("666-45-6789", &[]);
        check("from 10.0.0.1 or 2001:db8::1", &["IP_ADDRESS", "IP_ADDRESS"]);
        check("std::vec::Vec and 12:30:45", &[]);
        check("BSN 111222333", &["NL_BSN"]);
        check("order 111222333", &[]);
        check("born 1984-03-12", &["DATE_OF_BIRTH"]);
        check("paid 1984-03-12", &[]);
        check("nothing to see, 2024-05-19 12:00", &[]);
    }

    #[test]
    fn names_and_links_come_on_top() {
        let text = "Maria Gonzalez (maria@example.com) of Berlin, https://example.com/4.3.2.1";
        let found: Vec<_> =
            all_findings(text).iter().map(|f| (f.kind, text.get(f.span.clone()).unwrap())).collect();
        assert_eq!(
            found,
            [
                ("PERSON", "Maria Gonzalez"),
                ("EMAIL_ADDRESS", "maria@example.com"),
                ("LOCATION", "Berlin"),
                ("URL", "https://example.com/4.3.2.1"),
            ]
        );
    }

    #[test]
    fn every_pattern_compiles() {
        assert!(RULES.uncompiled_kinds().is_empty(), "{:?}", RULES.uncompiled_kinds());
    }
}
