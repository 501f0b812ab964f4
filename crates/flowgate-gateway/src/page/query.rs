//! Parses the query of a request of the page: pairs of a known name and a value, each name once. The routes of the page
//! and `policy_review` call it.

use axum::http::StatusCode;

use crate::http::reply::HttpReply;

/// The most characters of an unknown name in a message.
const MAX_SHOWN_NAME: usize = 40;

/// The names and values of a query.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Query(Vec<(&'static str, String)>);

impl Query {
    /// Parses a query whose names are among `known`.
    ///
    /// # Errors
    /// The reply to send if a name is unknown or occurs twice, or a value is not percent-encoded UTF-8.
    pub(crate) fn read(query: Option<&str>, known: &[&'static str]) -> Result<Self, HttpReply> {
        let refuse = |why: String| HttpReply::detail(StatusCode::BAD_REQUEST, &why);
        let mut read = Self(Vec::new());
        for pair in query.unwrap_or_default().split('&').filter(|pair| !pair.is_empty()) {
            let (name, value) = pair.split_once('=').unwrap_or((pair, ""));
            let Some(name) = known.iter().find(|known| **known == name) else {
                let name: String = name.escape_debug().take(MAX_SHOWN_NAME).collect();
                return Err(refuse(format!(
                    "the query has the unknown parameter `{name}`: leave it out; the known ones are {}",
                    known.join(", ")
                )));
            };
            if read.text(name).is_some() {
                return Err(refuse(format!("the query has `{name}` twice: leave one out")));
            }
            let value = decode(value).ok_or_else(|| {
                refuse(format!(
                    "the value of `{name}` in the query is not percent-encoded UTF-8: encode it, for example a \
                    space as `%20`"
                ))
            })?;
            read.0.push((name, value));
        }
        Ok(read)
    }

    /// Returns the value of a name, if the query has it.
    pub(crate) fn text(&self, name: &str) -> Option<&str> {
        self.0.iter().find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
    }

    /// Returns the value of a name as an integer, if the query has the name.
    ///
    /// # Errors
    /// The reply to send if the value is not an integer of this type.
    pub(crate) fn number<N: std::str::FromStr>(&self, name: &str) -> Result<Option<N>, HttpReply> {
        let Some(value) = self.text(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| {
            let message = format!(
                "the value of `{name}` in the query cannot be used as a number: send a whole number of at most \
                18 digits, such as `{name}=20`"
            );
            HttpReply::detail(StatusCode::BAD_REQUEST, &message)
        })
    }

    /// Returns the value of a name that the query must have.
    ///
    /// # Errors
    /// The reply to send if the query does not have it.
    pub(crate) fn required(&self, name: &str) -> Result<&str, HttpReply> {
        self.text(name).ok_or_else(|| {
            HttpReply::detail(
                StatusCode::BAD_REQUEST,
                &format!("the query has no `{name}`: add `{name}=...`"),
            )
        })
    }
}

/// Decodes a value of a query, in which `+` means a space and `%` begins an escape of two hexadecimal digits. Returns
/// `None` if an escape is malformed, or the bytes are not UTF-8.
fn decode(value: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(value.len());
    let mut rest = value.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'+' => b' ',
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                u8::try_from(high * 16 + low).ok()?
            }
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_read_strictly() {
        let check = |query: &str, expected: Result<(Option<&str>, Option<u32>), &str>| {
            let read = Query::read(Some(query), &["name", "from"]);
            let seen = read.as_ref().map_err(|reply| reply.detail_text()).map(|read| {
                (read.text("name"), read.number::<u32>("from").map_err(|reply| reply.detail_text()))
            });
            match expected {
                Ok((name, from)) => assert_eq!(seen, Ok((name, Ok(from))), "{query}"),
                Err(why) => {
                    let told = match seen {
                        Err(told) | Ok((_, Err(told))) => told.unwrap(),
                        Ok(seen) => panic!("{query}: {seen:?}"),
                    };
                    assert!(told.contains(why), "{query}: {told}");
                }
            }
        };
        check("", Ok((None, None)));
        check("name=a%2Fb%20%C3%A9+c&from=7", Ok((Some("a/b é c"), Some(7))));
        check("name", Ok((Some(""), None)));
        check("from=-1", Err("`from` in the query cannot be used as a number"));
        check("from=99999999999", Err("`from` in the query cannot be used as a number"));
        check("name=a&name=b", Err("`name` twice"));
        check("other=a", Err("unknown parameter `other`: leave it out; the known ones are name, from"));
        check("name=%f", Err("not percent-encoded"));
        check("name=%+f", Err("not percent-encoded"));
        check("name=%ff", Err("not percent-encoded"));
        assert!(Query::read(None, &["name"]).unwrap().required("name").is_err());
    }
}
