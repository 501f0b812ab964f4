//! Resolves plain YAML scalars to values: `true` is a Boolean, `0x1` a number. It follows the core schema of YAML
//! 1.2. The YAML reader calls it for each plain scalar.

use super::super::LocatedNodeKind;

/// Returns the value of a plain (unquoted) scalar by the core schema of YAML 1.2. A scalar without another type there
/// is text, dates included. Printers that follow YAML 1.1 leave a few texts unquoted that are numbers here, such as
/// `08` and `1e3`; a number keeps its spelling, so no content is lost.
pub(super) fn resolve(text: String) -> LocatedNodeKind {
    match text.as_str() {
        "" | "~" | "null" | "Null" | "NULL" => LocatedNodeKind::Null,
        "true" | "True" | "TRUE" => LocatedNodeKind::Bool(true),
        "false" | "False" | "FALSE" => LocatedNodeKind::Bool(false),
        ".nan" | ".NaN" | ".NAN" => LocatedNodeKind::Number(text),
        spelled if is_number(spelled) => LocatedNodeKind::Number(text),
        _ => LocatedNodeKind::Text(text),
    }
}

/// Returns whether a plain scalar is a number by the core schema of YAML 1.2: a decimal, hexadecimal (`0x`) or octal
/// (`0o`) number, or an infinity. The caller recognises `.nan`.
fn is_number(spelled: &str) -> bool {
    if let Some(digits) = spelled.strip_prefix("0x") {
        return is_all(digits, |b| b.is_ascii_hexdigit());
    }
    if let Some(digits) = spelled.strip_prefix("0o") {
        return is_all(digits, |b| matches!(b, b'0'..=b'7'));
    }
    let unsigned = spelled.strip_prefix(['-', '+']).unwrap_or(spelled);
    if matches!(unsigned, ".inf" | ".Inf" | ".INF") {
        return true;
    }
    // A decimal number: digits with an optional point, and an optional exponent.
    let (mantissa, exponent) = match unsigned.split_once(['e', 'E']) {
        Some((mantissa, exponent)) => (mantissa, Some(exponent)),
        None => (unsigned, None),
    };
    let exponent = exponent.map(|e| e.strip_prefix(['-', '+']).unwrap_or(e));
    let is_digit = |b: u8| b.is_ascii_digit();
    let has_valid_exponent = exponent.is_none_or(|e| is_all(e, is_digit));
    let has_valid_mantissa = match mantissa.split_once('.') {
        Some(("", fraction)) => is_all(fraction, is_digit),
        Some((whole, fraction)) => is_all(whole, is_digit) && fraction.bytes().all(is_digit),
        None => is_all(mantissa, is_digit),
    };
    has_valid_exponent && has_valid_mantissa
}

/// Returns whether the text is not empty and all its bytes pass a test.
fn is_all(text: &str, pass: impl Fn(u8) -> bool) -> bool {
    !text.is_empty() && text.bytes().all(pass)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plain_scalars_have_types() {
        for text in ["", "~", "null", "Null", "NULL"] {
            assert_eq!(resolve(text.into()), LocatedNodeKind::Null, "{text}");
        }
        for (text, truth) in [("true", true), ("FALSE", false), ("False", false)] {
            assert_eq!(resolve(text.into()), LocatedNodeKind::Bool(truth), "{text}");
        }
        for text in [
            "0", "-1", "+12", "007", "0x1F", "0o17", "1.5", "1.", ".5", "-.5", "1e3", "1.5E-07", ".inf",
            "-.INF", "+.Inf", ".nan",
        ] {
            assert_eq!(resolve(text.into()), LocatedNodeKind::Number(text.into()), "{text}");
        }
        for text in [
            "nULL",
            "yes",
            "2024-05-15",
            "10:00",
            "1_000",
            "0x",
            "0xg",
            "0o8",
            "-0x1",
            ".",
            "-",
            "+",
            "e3",
            "1e",
            "1e+",
            "1.5.2",
            "1 2",
            "inf",
            "nan",
            "-.nan",
            "--1",
            ".e1",
            "٣",
        ] {
            assert_eq!(resolve(text.into()), LocatedNodeKind::Text(text.into()), "{text}");
        }
    }
}
