//! Defines [`AccessToken`], an access token that can be sent in a header. `token_source` creates it from the answers of
//! issuers.

use std::fmt;

use rmcp::transport::auth::OAuthTokenResponse;

/// The longest token, in bytes.
const MAX_LENGTH: usize = 16 << 10;

/// An access token. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq)]
pub struct AccessToken(String);

impl AccessToken {
    /// Reads a token; `None` if it is empty, too long, or has characters other than visible ASCII. A line break, for
    /// example, would end the header and begin another one.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let is_sendable =
            !text.is_empty() && text.len() <= MAX_LENGTH && text.bytes().all(|byte| byte.is_ascii_graphic());
        is_sendable.then(|| Self(text.to_owned()))
    }

    /// Returns the access token in the answer of an issuer; `None` if it is not a bearer token, or cannot be sent in a
    /// header.
    pub(crate) fn of(answer: &OAuthTokenResponse) -> Option<Self> {
        let answer = serde_json::to_value(answer).ok()?;
        let text = |member: &str| answer.get(member)?.as_str();
        text("token_type").filter(|kind| kind.eq_ignore_ascii_case("bearer"))?;
        Self::parse(text("access_token")?)
    }

    /// Returns whether this is the token with this text.
    pub(crate) fn is(&self, text: &str) -> bool {
        self.0 == text
    }

    /// Returns the value of the header `Authorization`.
    #[must_use]
    pub fn authorization(&self) -> String {
        format!("Bearer {}", self.0)
    }
}

impl fmt::Debug for AccessToken {
    /// Does not write the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("AccessToken(..)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn other_kinds_of_tokens_are_refused() {
        for (answer, expected) in [
            (r#"{"access_token": "a", "token_type": "Bearer"}"#, true),
            (r#"{"access_token": "a", "token_type": "BEARER"}"#, true),
            (r#"{"access_token": "a", "token_type": "mac"}"#, false),
            (r#"{"access_token": "a", "token_type": "DPoP"}"#, false),
            (r#"{"access_token": "a\nb", "token_type": "bearer"}"#, false),
        ] {
            let read: OAuthTokenResponse = serde_json::from_str(answer).unwrap();
            assert_eq!(AccessToken::of(&read).is_some(), expected, "{answer}");
        }
    }

    #[test]
    fn a_token_fits_into_a_header() {
        let longest = "a".repeat(MAX_LENGTH);
        for (text, expected) in [
            ("abc.DEF-_~+/=", true),
            (longest.as_str(), true),
            (&format!("{longest}a"), false),
            ("", false),
            ("a\r\nx-other: 1", false),
            ("a b", false),
            ("\u{e9}", false),
        ] {
            assert_eq!(AccessToken::parse(text).is_some(), expected, "{text:?}");
        }
        let token = AccessToken::parse("s3cret").unwrap();
        assert_eq!(
            (token.authorization().as_str(), format!("{token:?}").as_str()),
            ("Bearer s3cret", "AccessToken(..)")
        );
    }
}
