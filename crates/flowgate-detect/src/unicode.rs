//! Finds characters by their Unicode categories, and text that is invisible or misleading to a reader but not to a
//! model.
//!
//! Some of this text has legitimate uses, such as a joiner in an emoji or a name in two scripts, so each finding has a
//! kind by which a policy can distinguish them. `TAG` and `BIDI_CONTROL` are hardly ever legitimate. Zero-width joiners
//! are common in emoji and in Persian words, where they are not reported as `ZERO_WIDTH`. The functions `unicode` and
//! `hidden_text` of policies call [`category`] and [`find_hidden`].

use std::ops::Range;

use unicode_properties::{GeneralCategory, UnicodeGeneralCategory};

use super::{Finding, MAX_FINDINGS};

/// Returns the general category of each character in order, such as `Lu` or `Cf`.
///
/// ```
/// assert_eq!(flowgate_detect::unicode::categories("A1 "), ["Lu", "Nd", "Zs"]);
/// ```
pub fn categories(text: &str) -> Vec<&'static str> {
    text.chars().map(category).collect()
}

/// Returns the abbreviation of the general category of a character, such as `Lu` for a capital letter.
pub fn category(c: char) -> &'static str {
    match c.general_category() {
        GeneralCategory::UppercaseLetter => "Lu",
        GeneralCategory::LowercaseLetter => "Ll",
        GeneralCategory::TitlecaseLetter => "Lt",
        GeneralCategory::ModifierLetter => "Lm",
        GeneralCategory::OtherLetter => "Lo",
        GeneralCategory::NonspacingMark => "Mn",
        GeneralCategory::SpacingMark => "Mc",
        GeneralCategory::EnclosingMark => "Me",
        GeneralCategory::DecimalNumber => "Nd",
        GeneralCategory::LetterNumber => "Nl",
        GeneralCategory::OtherNumber => "No",
        GeneralCategory::ConnectorPunctuation => "Pc",
        GeneralCategory::DashPunctuation => "Pd",
        GeneralCategory::OpenPunctuation => "Ps",
        GeneralCategory::ClosePunctuation => "Pe",
        GeneralCategory::InitialPunctuation => "Pi",
        GeneralCategory::FinalPunctuation => "Pf",
        GeneralCategory::OtherPunctuation => "Po",
        GeneralCategory::MathSymbol => "Sm",
        GeneralCategory::CurrencySymbol => "Sc",
        GeneralCategory::ModifierSymbol => "Sk",
        GeneralCategory::OtherSymbol => "So",
        GeneralCategory::SpaceSeparator => "Zs",
        GeneralCategory::LineSeparator => "Zl",
        GeneralCategory::ParagraphSeparator => "Zp",
        GeneralCategory::Control => "Cc",
        GeneralCategory::Format => "Cf",
        GeneralCategory::Surrogate => "Cs",
        GeneralCategory::PrivateUse => "Co",
        GeneralCategory::Unassigned => "Cn",
    }
}

/// Returns the hidden or misleading text as findings, in the order of the text, at most [`MAX_FINDINGS`]. The kinds are
/// `TAG`, `BIDI_CONTROL`, `ZERO_WIDTH`, `VARIATION_SELECTORS`, `PRIVATE_USE`, `CONTROL` and `MIXED_SCRIPT`. A
/// `MIXED_SCRIPT` finding covers a word with letters of two scripts; any other covers a run of characters of its kind.
pub fn find_hidden(text: &str) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    // The character before the current one. At the beginning of the text, a space, after which a joiner is hidden text.
    let mut before = ' ';
    // The end of the last flag of a region: a black flag (U+1F3F4) and the tags that name the region, which hide
    // nothing.
    let mut flag_end = 0;
    for (at, c) in text.char_indices() {
        let end = at + c.len_utf8();
        let kind = kind_of_finding(c).filter(|kind| match *kind {
            "TAG" => at >= flag_end,
            // Joiners belong to emoji and to joining scripts such as Arabic; after ASCII or a letter of the scripts
            // that `script` lists, which need none, they are hidden text.
            "ZERO_WIDTH" => {
                let is_joiner = matches!(c, '\u{200c}' | '\u{200d}');
                !is_joiner || before.is_ascii() || script(before).is_some()
            }
            _ => true,
        });
        if c == '\u{1f3f4}' {
            flag_end = end + flag_tags_length(text.get(end..).unwrap_or_default());
        }
        // The finding that this character extends, if it continues a run.
        let run = findings.last_mut().filter(|last| last.span.end == at && Some(last.kind) == kind);
        match (run, kind) {
            (Some(last), _) => last.span.end = end,
            (None, Some(kind)) => findings.push(Finding { kind, span: at..end }),
            (None, None) => {}
        }
        before = c;
    }
    // One selector chooses the appearance of one character; several can encode bytes.
    let selectors = |span: &Range<usize>| text.get(span.clone()).map_or(0, |run| run.chars().count());
    findings.retain(|f| f.kind != "VARIATION_SELECTORS" || selectors(&f.span) > 1);
    findings.extend(mixed_words(text));
    findings.sort_by_key(|finding| finding.span.start);
    findings.truncate(MAX_FINDINGS);
    findings
}

/// Returns the length in bytes of the tags that name the region of a flag, at the start of the text after a black flag.
/// They are three to six lowercase letters or digits, and the tag that ends them. Returns 0 for any other tags, since
/// these can encode text.
fn flag_tags_length(text: &str) -> usize {
    let is_named = |c: &char| matches!(c, '\u{e0030}'..='\u{e0039}' | '\u{e0061}'..='\u{e007a}');
    // Takes one more than six, so that a longer run is noticed.
    let named: Vec<char> = text.chars().take_while(is_named).take(7).collect();
    let length: usize = named.iter().map(|c| c.len_utf8()).sum();
    let end = text.get(length..).and_then(|rest| rest.chars().next());
    match end.filter(|c| *c == '\u{e007f}') {
        Some(end) if (3..=6).contains(&named.len()) => length + end.len_utf8(),
        _ => 0,
    }
}

/// Returns the plain text that tag characters (U+E0000 to U+E007F) and runs of several variation selectors encode:
/// first the text of all tags, without control characters, then the text of all runs.
///
/// ```
/// let text = "Hi\u{e0068}\u{e0069}";
/// assert_eq!(flowgate_detect::unicode::decode_hidden(text), "hi");
/// ```
pub fn decode_hidden(text: &str) -> String {
    let of_tags = text.chars().filter(|c| is_tag(*c)).filter_map(|c| char::from_u32(c as u32 - 0xe0000));
    let plain: String = of_tags.filter(|c| !c.is_control()).collect();
    // Each selector encodes one byte: those from U+FE00 to U+FE0F the bytes 0 to 15, and those from U+E0100 on the
    // bytes 16 to 255.
    let bytes: Vec<u8> = find_hidden(text)
        .into_iter()
        .filter(|finding| finding.kind == "VARIATION_SELECTORS")
        .flat_map(|finding| text.get(finding.span).unwrap_or_default().chars())
        .filter_map(|c| match c as u32 {
            c @ 0xfe00..=0xfe0f => u8::try_from(c - 0xfe00).ok(),
            c => c.checked_sub(0xe0100 - 16).and_then(|byte| u8::try_from(byte).ok()),
        })
        .collect();
    plain + &String::from_utf8_lossy(&bytes)
}

/// Returns whether a character is a tag: an invisible copy of an ASCII character.
fn is_tag(c: char) -> bool {
    matches!(c, '\u{e0000}'..='\u{e007f}')
}

/// Returns the kind of finding to which a character belongs, such as `TAG`; `None` for an ordinary character. The
/// caller decides by the characters around `c` whether `c` is reported.
fn kind_of_finding(c: char) -> Option<&'static str> {
    Some(match c {
        c if is_tag(c) => "TAG",
        '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' => "BIDI_CONTROL",
        // Spaces and joiners without width, invisible operators, a byte order mark, a soft hyphen, and fillers.
        '\u{200b}'..='\u{200d}'
        | '\u{2060}'..='\u{2064}'
        | '\u{feff}'
        | '\u{180e}'
        | '\u{00ad}'
        | '\u{034f}'
        | '\u{115f}'
        | '\u{1160}'
        | '\u{3164}'
        | '\u{ffa0}' => "ZERO_WIDTH",
        '\u{fe00}'..='\u{fe0f}' | '\u{e0100}'..='\u{e01ef}' => "VARIATION_SELECTORS",
        '\u{e000}'..='\u{f8ff}' | '\u{f0000}'..='\u{10ffff}' => "PRIVATE_USE",
        '\t' | '\n' | '\r' => return None,
        c if c.is_control() => "CONTROL",
        _ => return None,
    })
}

/// A script whose letters resemble those of another script.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Script {
    Latin,
    Greek,
    Cyrillic,
    Armenian,
}

/// Returns the script of a letter; `None` if `c` is not a letter, or belongs to a script that [`Script`] does not list.
fn script(c: char) -> Option<Script> {
    if !c.is_alphabetic() {
        return None;
    }
    Some(match c {
        'A'..='Z' | 'a'..='z' | '\u{c0}'..='\u{24f}' | '\u{1e00}'..='\u{1eff}' => Script::Latin,
        '\u{370}'..='\u{3ff}' | '\u{1f00}'..='\u{1fff}' => Script::Greek,
        '\u{400}'..='\u{52f}' => Script::Cyrillic,
        '\u{530}'..='\u{58f}' => Script::Armenian,
        _ => return None,
    })
}

/// Returns words of three letters or more with letters of two scripts: `pаypal` with a Cyrillic `а`, but not `Δx` or
/// `µm`. The signs for micro and ohm are ignored, since they are units in Latin texts.
fn mixed_words(text: &str) -> impl Iterator<Item = Finding> + '_ {
    let mut at = 0;
    text.split_inclusive(|c: char| !c.is_alphanumeric()).filter_map(move |piece| {
        let start = at;
        at += piece.len();
        let word = piece.trim_end_matches(|c: char| !c.is_alphanumeric());
        let mut scripts = word.chars().filter(|c| !matches!(c, 'µ' | 'Ω')).filter_map(script);
        let first = scripts.next()?;
        let mixed = scripts.any(|script| script != first) && word.chars().count() > 2;
        mixed.then(|| Finding { kind: "MIXED_SCRIPT", span: start..start + word.len() })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_hidden() {
        let check = |text: &str, expected: &[(&str, Range<usize>)]| {
            let found: Vec<_> = find_hidden(text).into_iter().map(|f| (f.kind, f.span)).collect();
            assert_eq!(found, expected, "{text:?}");
        };
        check("plain text, naïve Ω 5 µm\r\n\t", &[]);
        check("a\u{e0061}\u{e0062}b", &[("TAG", 1..9)]);
        check("\u{1f3f4}\u{e0067}\u{e0062}\u{e0073}\u{e0063}\u{e0074}\u{e007f}", &[]);
        // Tags after a flag are reported unless they name a region: tags without the end tag, and more tags than a
        // region has.
        check("\u{1f3f4}\u{e0068}\u{e0069}\u{e0068}", &[("TAG", 4..16)]);
        let long = "\u{e0061}".repeat(9);
        check(&format!("\u{1f3f4}{long}\u{e007f}"), &[("TAG", 4..44)]);
        check("x\u{202e}y", &[("BIDI_CONTROL", 1..4)]);
        check("pass\u{200b}word", &[("ZERO_WIDTH", 4..7)]);
        check("ig\u{200d}nore", &[("ZERO_WIDTH", 2..5)]);
        check("👩\u{200d}💻 می\u{200c}خواهم", &[]);
        check("☀\u{fe0f}", &[]);
        check("☀\u{e0110}\u{e0111}", &[("VARIATION_SELECTORS", 3..11)]);
        check("\u{e001}", &[("PRIVATE_USE", 0..3)]);
        check("\u{1b}[31m", &[("CONTROL", 0..1)]);
        check("log in to pаypal.com", &[("MIXED_SCRIPT", 10..17)]);
        check("привет world", &[]);
    }

    #[test]
    fn hidden_text_is_read() {
        let tagged: String = "how are y".chars().filter_map(|c| char::from_u32(0xe0000 + c as u32)).collect();
        assert_eq!(decode_hidden(&format!("Tagged output: {tagged}")), "how are y");
        let selected: String =
            b"hi".iter().filter_map(|b| char::from_u32(0xe0100 + u32::from(*b) - 16)).collect();
        assert_eq!(decode_hidden(&format!("☀{selected}")), "hi");
        assert_eq!(decode_hidden("nothing"), "");
    }

    #[test]
    fn every_category_has_two_letters() {
        assert_eq!(categories("Aa\u{e0041}\u{e000}\u{378}$"), ["Lu", "Ll", "Cf", "Co", "Cn", "Sc"]);
    }
}
