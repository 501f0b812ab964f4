//! Prepares JSON with comments for a JSON parser: replaces comments, trailing commas and a byte order mark by spaces.
//! Every value stays at its position, so that `edit` can change it in the original text. `config_file` calls this
//! module.

/// Returns a text in which comments, trailing commas and a byte order mark are spaces, so that a JSON parser
/// accepts it. The other bytes keep their positions: the span of a value in the result is its span in the original
/// text, where it can be edited.
pub(crate) fn without_comments(text: &str) -> String {
    let mut blank = String::with_capacity(text.len());
    // The end of the last comment so far, in bytes; `0` if there was none.
    let mut comment_end = 0;
    let (mut in_string, mut is_escaped) = (false, false);
    for (at, c) in text.char_indices() {
        let rest = text.get(at..).unwrap_or_default();
        if !in_string && at >= comment_end {
            comment_end = comment_length(rest).map_or(comment_end, |length| at + length);
        }
        if at < comment_end || (at == 0 && c == '\u{feff}') {
            push_blank(c, &mut blank);
            continue;
        }
        match c {
            '"' if !is_escaped => in_string = !in_string,
            ',' if !in_string && is_trailing_comma(rest) => {
                blank.push(' ');
                continue;
            }
            _ => {}
        }
        is_escaped = in_string && c == '\\' && !is_escaped;
        blank.push(c);
    }
    blank
}

/// Returns the length of the comment with which a text begins, in bytes; `None` if it begins with no comment. A comment
/// without an end lasts to the end of the text.
fn comment_length(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    let inside = text.strip_prefix("/*")?;
    // The marks `/*` and `*/` have four bytes together.
    Some(inside.find("*/").map_or(text.len(), |end| end + 4))
}

/// Returns whether the comma at the beginning of `text` is a trailing one: only white space and comments are between
/// it and a closing bracket.
fn is_trailing_comma(text: &str) -> bool {
    let mut rest = text.get(1..).unwrap_or_default().trim_start();
    while let Some(length) = comment_length(rest) {
        rest = rest.get(length..).unwrap_or_default().trim_start();
    }
    rest.starts_with(['}', ']'])
}

/// Appends the spaces that replace the character `c`, one for each of its bytes. A line break is kept, for the line
/// numbers to stay right.
fn push_blank(c: char, blank: &mut String) {
    match c {
        '\n' | '\r' => blank.push(c),
        _ => blank.extend(std::iter::repeat_n(' ', c.len_utf8())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_become_spaces() {
        for (text, expected) in [
            ("{\"a\": 1}", "{\"a\": 1}"),
            ("{\"a\": 1, // é\n}", "{\"a\": 1       \n}"),
            ("{/* x */\"a//b\": \"\\\"/*\"}", "{       \"a//b\": \"\\\"/*\"}"),
            ("[1, /* , */ ]", "[1          ]"),
            ("[1, 2 /* open", "[1, 2        "),
            ("\u{feff}{}", "   {}"),
            ("[\"a,\", ]", "[\"a,\"  ]"),
            ("/", "/"),
        ] {
            let blank = without_comments(text);
            assert_eq!(blank, expected);
            assert_eq!(blank.len(), text.len(), "{text}");
        }
    }
}
