//! Defines [`Target`]: the model and the method that the address of a request names. In Gemini's API, an address such
//! as `/models/gemini-3-pro:streamGenerateContent` names both. The gateway parses such addresses, and `RemoteModel`
//! writes them.

use std::fmt::Write as _;

/// The model that the address of a request names, and the method of the model that the request calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    /// The name of the model.
    pub model: String,
    /// The method.
    pub method: TargetMethod,
}

/// The method of a model that a request calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TargetMethod {
    /// Returns an answer in one piece.
    Generate,
    /// Returns an answer as a stream.
    Stream,
    /// Returns the number of tokens of a request.
    CountTokens,
}

/// The methods with their names.
const METHODS: [(&str, TargetMethod); 3] = [
    ("generateContent", TargetMethod::Generate),
    ("streamGenerateContent", TargetMethod::Stream),
    ("countTokens", TargetMethod::CountTokens),
];

impl Target {
    /// Parses the part of an address after `models/`, such as `gemini-3-pro:generateContent`. `None` if the name of the
    /// model is missing or its encoding is malformed, or if the method is not supported.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (model, name) = text.rsplit_once(':')?;
        let (_, method) = METHODS.into_iter().find(|(known, _)| *known == name)?;
        let model = decoded(model).filter(|model| !model.is_empty())?;
        Some(Self { model, method })
    }
}

/// Returns the path, below a server's base address, of a request for an answer of the model with the name `model`. If
/// `stream` is true, the request is for a streamed answer.
pub(in crate::wire) fn path(model: &str, stream: bool) -> String {
    // Google also writes the names of models with `models/` before them.
    let model = model.strip_prefix("models/").unwrap_or(model);
    let method = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
    format!("/models/{}:{method}", encoded(model))
}

/// Encodes the name of a model as one segment of a path: all bytes except letters, digits and `-_.~` become `%` and two
/// hexadecimal digits. A client may have chosen the name; with a `/` or `?`, it could otherwise lead to another
/// address.
fn encoded(name: &str) -> String {
    let mut text = String::new();
    for byte in name.bytes() {
        if byte.is_ascii_alphanumeric() || b"-_.~".contains(&byte) {
            text.push(char::from(byte));
        } else {
            // Writing to a `String` does not fail.
            let _ = write!(text, "%{byte:02X}");
        }
    }
    text
}

/// Decodes the name of a model in a path, in which `%` and two hexadecimal digits are one byte. `None` if there are not
/// two such digits after a `%`, or if the bytes are not valid UTF-8.
fn decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.bytes();
    while let Some(byte) = rest.next() {
        if byte != b'%' {
            bytes.push(byte);
            continue;
        }
        let mut digit = || rest.next().and_then(|digit| char::from(digit).to_digit(16));
        let value = digit()? * 16 + digit()?;
        bytes.push(u8::try_from(value).ok()?);
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_name_models_and_methods() {
        let check = |text: &str, expected: Option<(&str, TargetMethod)>| {
            let parsed = Target::parse(text);
            let shown = parsed.as_ref().map(|target| (target.model.as_str(), target.method));
            assert_eq!(shown, expected, "{text}");
        };
        check("gemini-3-pro:generateContent", Some(("gemini-3-pro", TargetMethod::Generate)));
        check("a:b:streamGenerateContent", Some(("a:b", TargetMethod::Stream)));
        check("team/a%3Ab%C3%BC:countTokens", Some(("team/a:bü", TargetMethod::CountTokens)));
        for bad in
            ["gemini-3-pro", ":generateContent", "m:embedContent", "m:", "%4:countTokens", "%FF:countTokens"]
        {
            check(bad, None);
        }
    }

    /// The name of a model becomes one segment of the path, whatever characters it has, and is parsed back from it.
    #[test]
    fn names_stay_in_their_segment() {
        for name in ["gemini-3-pro", "../other", "a?key=1#", "models", "tuned/a:b", "ü %", "."] {
            let path = path(name, true);
            let segment =
                path.strip_prefix("/models/").and_then(|rest| rest.strip_suffix("?alt=sse")).unwrap();
            assert!(!segment.contains(['/', '?', '#', ' ']), "{path}");
            let expected = Target { model: name.to_owned(), method: TargetMethod::Stream };
            assert_eq!(Target::parse(segment), Some(expected), "{path}");
        }
        assert_eq!(path("models/gemini-3-pro", false), "/models/gemini-3-pro:generateContent");
    }
}
