//! Finds constructs of markup languages that make a link or load a resource although no address is written plainly in
//! them, and returns where to insert a space so that no renderer recognises them. [`super::segment`] calls this module.
//!
//! A rendered reply could otherwise send data to a host or link to one. Addresses inside a construct are handled like
//! all others; but some renderers drop white space from an address or decode escapes in it, so the construct is broken
//! as well:
//!
//! * `.. image::`, `.. _name:`, `.. |name|`, `__` and `` `text <address>`_ `` of reStructuredText.
//! * `image::` of AsciiDoc, `\href{` of TeX.
//! * Attribute lists (`{style="..."}`) of Markdown, and `url(` of style sheets.
//! * Characters that are spelled as escapes of JSON, of programming languages or of style sheets.

/// Commands that open an address in TeX.
const COMMANDS: &[&str] = &["href", "hyperimage", "includegraphics", "nolinkurl", "url"];

/// Macros that open an address in AsciiDoc.
const MACROS: &[&str] = &["audio", "image", "include", "video"];

/// Attributes of elements that a browser follows, fetches or runs.
const ATTRIBUTES: &[&str] = &["background", "href", "longdesc", "ping", "src", "srcdoc", "srcset", "style"];

/// Returns whether a character marks superscript, highlighted, inserted or hidden text in an extension of Markdown. A
/// renderer of the extension drops it.
pub(super) fn is_mark(c: char) -> bool {
    matches!(c, '^' | '=' | '+' | '|')
}

/// Returns the index of the character before which a space breaks the construct that the character at `index` belongs
/// to. `is_after_dots` tells whether the preceding segment is `..`, which opens a construct of reStructuredText.
/// `None` if the character belongs to no construct.
pub(super) fn break_position(chars: &[char], index: usize, is_after_dots: bool) -> Option<usize> {
    let at = |index: usize| chars.get(index).copied();
    let next = at(index + 1);
    // Each branch recognises one construct of the module's list by its last sign; a space before or after that sign
    // breaks it.
    let is_broken = match at(index)? {
        '\\' => is_command(chars, index) || is_escape(chars, index),
        // `.. image::` or `image::`.
        ':' if next == Some(':') => is_after_dots || MACROS.contains(&word_before(chars, index).as_str()),
        '=' => return is_attribute(&word_before(chars, index)).then_some(index),
        '(' => return is_css_url_function(&word_before(chars, index)).then_some(index),
        // The end of `` `text <address>`_ ``: `chars` leaves out the backtick between the two signs.
        '>' => next == Some('_'),
        // `.. _name:`, or a segment that is `__` alone.
        '_' if index == 0 && next.is_some() => is_after_dots || chars == ['_', '_'],
        // `.. |name|`.
        '|' if index == 0 && next.is_some() => is_after_dots,
        _ => false,
    };
    is_broken.then_some(index + 1)
}

/// Returns whether a word in lower case names an attribute that a browser follows, fetches or runs: `href`, `onclick`.
fn is_attribute(word: &str) -> bool {
    let is_handler = || word.strip_prefix("on").is_some_and(|event| event.len() >= 3);
    ATTRIBUTES.contains(&word) || is_handler()
}

/// Returns whether a word in lower case names a function of style sheets that has an address as its argument.
fn is_css_url_function(word: &str) -> bool {
    word == "url" || word.ends_with("image-set")
}

/// Returns the word that ends before the character at `end`, in lower case. Of a longer word, only the last 24
/// characters are returned: no known word has more.
fn word_before(chars: &[char], end: usize) -> String {
    const LONGEST: usize = 24;
    let before = chars.get(..end).unwrap_or_default().iter().rev();
    let length = before.take(LONGEST).take_while(|c| c.is_ascii_alphanumeric() || **c == '-').count();
    chars.get(end - length..end).unwrap_or_default().iter().map(char::to_ascii_lowercase).collect()
}

/// Returns whether a backslash begins a command of TeX that opens an address.
fn is_command(chars: &[char], backslash: usize) -> bool {
    let following = chars.get(backslash + 1..).unwrap_or_default();
    // No command has more than 24 characters.
    let word: String = following.iter().take(24).take_while(|c| c.is_ascii_alphabetic()).collect();
    let after = following.get(word.len()).copied();
    // An argument, an option, a star or another command follows, or the segment ends.
    COMMANDS.contains(&word.as_str()) && after.is_none_or(|c| matches!(c, '{' | '[' | '*' | '\\'))
}

/// Returns whether a backslash begins an escape of a visible ASCII character.
fn is_escape(chars: &[char], backslash: usize) -> bool {
    let following = chars.get(backslash + 1..).unwrap_or_default();
    // Escapes of JSON and programming languages; those of style sheets have digits right after the backslash.
    let (skipped, max_digits) = match following {
        ['u' | 'U', '{', ..] => (2, 6),
        ['u', ..] => (1, 4),
        ['U', ..] => (1, 8),
        ['x' | 'X', ..] => (1, 2),
        _ => (0, 6),
    };
    let digits: String =
        following.iter().skip(skipped).take(max_digits).take_while(|c| c.is_ascii_hexdigit()).collect();
    u32::from_str_radix(&digits, 16).is_ok_and(|code| (0x21..0x7f).contains(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `check` takes a text, whether it follows `..`, and the text with a space in each construct.
    #[test]
    fn constructs_are_broken() {
        let check = |text: &str, is_after_dots: bool, expected: &str| {
            let chars: Vec<char> = text.chars().collect();
            let breaks: Vec<usize> =
                (0..chars.len()).filter_map(|index| break_position(&chars, index, is_after_dots)).collect();
            let written: String = (0..chars.len())
                .flat_map(|index| {
                    let space = breaks.contains(&index).then_some(' ');
                    space.into_iter().chain(chars.get(index).copied())
                })
                .collect();
            assert_eq!(written, expected, "{text}");
        };
        for (text, expected) in [
            (r"\href{x}{y} \url[z] \url", r"\ href{x}{y} \ url[z] \ url"),
            (r"\hrefs{x} \frac{a}{b} \beta \alpha C:\new", r"\hrefs{x} \frac{a}{b} \beta \alpha C:\new"),
            (
                r"\u002f \x2f \u{2f} \U0000002f \2f \00002fe",
                r"\ u002f \ x2f \ u{2f} \ U0000002f \ 2f \ 00002fe",
            ),
            (r"\u00e9 \x0a \2fe \1 \n \d+", r"\u00e9 \x0a \2fe \1 \n \d+"),
            ("image::x include::y std::vec", "image: :x include: :y std::vec"),
            ("*x*{style=y} {onload=z} a.src=b", "*x*{style =y} {onload =z} a.src =b"),
            ("one=1 x=y mysrc=1 lifestyle=2 == on=1", "one=1 x=y mysrc=1 lifestyle=2 == on=1"),
            ("url(x) image-set(y) curl(z) f(x)", "url (x) image-set (y) curl(z) f(x)"),
            ("<x>_", "<x> _"),
            ("_x: y|z __", "_x: y|z __"),
        ] {
            check(text, false, expected);
        }
        check("__", false, "_ _");
        check("_a:", true, "_ a:");
        check("|a|", true, "| a|");
        check("image::", true, "image: :");
        check("std::vec", true, "std: :vec");
    }
}
