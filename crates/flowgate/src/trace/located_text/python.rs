//! Locates the parts of a text that is a Python literal: the output of `repr` for lists, dicts, tuples and sets, as
//! tools that are written in Python often answer. [`locate`](super::locate) tries it after JSON and before YAML.
//!
//! `repr` prints values without a literal as a call (`datetime.datetime(2024, 5, 15)`), in angle brackets
//! (`<Color.RED: 'r'>`) or with a prefix (`b'..'`). They are parsed as one scalar whose text is its spelling.

use super::cursor::Cursor;
use super::tree::{ExpectedNode, TreeBuilder};
use super::{DEPTH_LIMIT, LocateError, LocatedNode, LocatedNodeKind};

/// Parses a text that is one list, dict, tuple or set. A text that begins with none of `[`, `(` and `{` is
/// [`LocateError::NotStructured`]. A tuple or a set becomes a list. The function does not call itself for an inner list
/// or dict: `closers` has the brackets that must close the open ones, so deep nesting cannot exhaust the stack.
pub(super) fn read(text: &str) -> Result<LocatedNode, LocateError> {
    let mut c = Cursor::new(text);
    let mut tree = TreeBuilder::default();
    let mut closers = Vec::new();
    space(&mut c);
    if !matches!(c.peek(), Some(b'[' | b'(' | b'{')) {
        return Err(LocateError::NotStructured);
    }
    value(&mut c, &mut tree, &mut closers)?;
    // While a list, dict, tuple or set is open: its end, or its next item or entry.
    while let (Some(expected), Some(&close)) = (tree.expected_node(), closers.last()) {
        space(&mut c);
        let comma = tree.len() > 0 && c.eat(b',');
        space(&mut c);
        // `(1)` is a number in parentheses, which is an error here; only `(1,)` is a tuple.
        let is_grouping = close == b')' && tree.len() == 1 && !comma;
        if !is_grouping && c.eat(close) {
            closers.pop();
            tree.close(c.offset())?;
            continue;
        }
        if tree.len() > 0 && !comma {
            return c.fail();
        }
        if expected == ExpectedNode::Key {
            let start = c.offset();
            let key = key(&mut c)?;
            tree.key(key, start..c.offset())?;
            space(&mut c);
            c.expect(b':')?;
            space(&mut c);
        }
        value(&mut c, &mut tree, &mut closers)?;
    }
    space(&mut c);
    c.end()?;
    tree.finish()
}

/// Consumes white space, which Python permits anywhere between brackets, if there is any.
fn space(c: &mut Cursor<'_>) {
    c.skip(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c'));
}

/// Parses a scalar, or only the opening bracket of a list or map, whose content the caller parses; adds the bracket
/// that ends it to `closers`.
fn value(c: &mut Cursor<'_>, tree: &mut TreeBuilder, closers: &mut Vec<u8>) -> Result<(), LocateError> {
    let start = c.offset();
    let kind = match c.peek() {
        Some(open @ (b'[' | b'(' | b'{')) => {
            c.next();
            closers.push(closing_bracket(open));
            // A tuple and a set are read as lists.
            return if open == b'{' && is_dict(c)? { tree.open_map(start) } else { tree.open_list(start) };
        }
        Some(b'\'' | b'"') => LocatedNodeKind::Text(string(c)?),
        _ => word(c)?,
    };
    tree.add_scalar(start..c.offset(), kind)
}

/// Returns the bracket that closes `open`, which is `(`, `[` or `{`.
fn closing_bracket(open: u8) -> u8 {
    match open {
        b'(' => b')',
        b'[' => b']',
        _ => b'}',
    }
}

/// Returns whether a `{` that was consumed opens a dict and not a set: a `}` or, after the first item, a `:` follows.
/// Looks ahead without consuming. A text is scanned again only where such braces nest, so at most [`DEPTH_LIMIT`]
/// times.
fn is_dict(c: &mut Cursor<'_>) -> Result<bool, LocateError> {
    let start = c.offset();
    space(c);
    let dict = c.peek() == Some(b'}') || {
        match c.peek() {
            // A list or a map cannot be a key: after one, the parser of a set rejects the `:`. Only white space was
            // consumed, which the caller skips as well.
            Some(b'[' | b'{') => return Ok(false),
            Some(b'(') => skip_brackets(c)?,
            Some(b'\'' | b'"') => skip_quoted(c)?,
            _ => {
                word(c)?;
            }
        }
        space(c);
        c.peek() == Some(b':')
    };
    c.rewind(start);
    Ok(dict)
}

/// Parses a key. A string is decoded. For any other hashable value, such as a number or a tuple (in `(`), the result is
/// its spelling.
fn key(c: &mut Cursor<'_>) -> Result<String, LocateError> {
    let start = c.offset();
    match c.peek() {
        Some(b'\'' | b'"') => return string(c),
        Some(b'(') => skip_brackets(c)?,
        _ => {
            word(c)?;
        }
    }
    Ok(c.text_since(start).to_owned())
}

/// Parses a scalar that is not a plain string: a number, `None`, `True` or `False`. A value that Python prints without
/// a literal of its own, such as the call `date(2026, 1, 2)` or `<object at 0x1>`, becomes a text, its spelling. So
/// does a byte string. Any other name is an error.
fn word(c: &mut Cursor<'_>) -> Result<LocatedNodeKind, LocateError> {
    let start = c.offset();
    // The values whose first character cannot begin a name.
    match c.peek() {
        Some(b'<') => {
            skip_angles(c)?;
            return Ok(LocatedNodeKind::Text(c.text_since(start).to_owned()));
        }
        Some(b'-' | b'+' | b'.' | b'0'..=b'9') => return number(c),
        _ => {}
    }
    // A name, perhaps with dots; the character after it decides whether it begins a byte string or a call.
    c.skip(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.') || !b.is_ascii());
    let kind = match (c.text_since(start), c.peek()) {
        ("b", Some(b'\'' | b'"')) => {
            skip_quoted(c)?;
            LocatedNodeKind::Text(c.text_since(start).to_owned())
        }
        ("", _) => return c.fail(),
        (_, Some(b'(')) => {
            skip_brackets(c)?;
            LocatedNodeKind::Text(c.text_since(start).to_owned())
        }
        ("None", _) => LocatedNodeKind::Null,
        ("True", _) => LocatedNodeKind::Bool(true),
        ("False", _) => LocatedNodeKind::Bool(false),
        (name @ ("inf" | "nan"), _) => LocatedNodeKind::Number(name.to_owned()),
        _ => return Err(LocateError::Syntax { offset: start }),
    };
    Ok(kind)
}

/// Parses a number of Python, also `-inf`, which `repr` prints. The result is its spelling. An integer with leading
/// zeros is rejected, as in Python, but not a float such as `01.5` or the integer `00`.
fn number(c: &mut Cursor<'_>) -> Result<LocatedNodeKind, LocateError> {
    let digits = |c: &mut Cursor<'_>| c.skip(|b| b.is_ascii_digit());
    let start = c.offset();
    // A sign is optional here and in the exponent, so the results do not matter.
    let _signed = c.eat(b'-') || c.eat(b'+');
    if c.eat(b'i') {
        c.expect(b'n')?;
        c.expect(b'f')?;
        return Ok(LocatedNodeKind::Number(c.text_since(start).to_owned()));
    }
    let begins_with_zero = c.peek() == Some(b'0');
    let first_digit = c.offset();
    let has_whole_part = digits(c);
    // The first digit is zero, and another one is not.
    let has_leading_zeros = begins_with_zero && c.text_since(first_digit).bytes().any(|b| b != b'0');
    let mut is_float = false;
    if c.eat(b'.') {
        is_float = true;
        // Digits may be missing on one side of the point only.
        if !digits(c) && !has_whole_part {
            return c.fail();
        }
    } else if !has_whole_part {
        return c.fail();
    }
    if c.eat(b'e') || c.eat(b'E') {
        is_float = true;
        let _signed = c.eat(b'+') || c.eat(b'-');
        if !digits(c) {
            return c.fail();
        }
    }
    if has_leading_zeros && !is_float {
        return Err(LocateError::Syntax { offset: first_digit });
    }
    Ok(LocatedNodeKind::Number(c.text_since(start).to_owned()))
}

/// Consumes a call or a tuple from its opening bracket up to the matching one, without parsing what is between them.
/// Fails if the brackets do not match, or nest deeper than [`DEPTH_LIMIT`].
fn skip_brackets(c: &mut Cursor<'_>) -> Result<(), LocateError> {
    let mut closers = Vec::new();
    loop {
        c.skip(|b| !matches!(b, b'(' | b'[' | b'{' | b')' | b']' | b'}' | b'\'' | b'"'));
        match c.peek() {
            Some(b'\'' | b'"') => skip_quoted(c)?,
            Some(open @ (b'(' | b'[' | b'{')) => {
                if closers.len() >= DEPTH_LIMIT {
                    return Err(LocateError::TooDeep { offset: c.offset() });
                }
                closers.push(closing_bracket(open));
                c.next();
            }
            Some(close) if closers.last() == Some(&close) => {
                closers.pop();
                c.next();
            }
            _ => return c.fail(),
        }
        if closers.is_empty() {
            return Ok(());
        }
    }
}

/// Consumes a value in angle brackets, such as `<object at 0x1>`, up to the `>` that matches the first `<`. Brackets in
/// quoted strings do not count. Fails at the end of the line, since `repr` prints such a value on one line. The caller
/// has checked that a `<` is next.
fn skip_angles(c: &mut Cursor<'_>) -> Result<(), LocateError> {
    let mut depth = 0_usize;
    loop {
        c.skip(|b| !matches!(b, b'<' | b'>' | b'\'' | b'"' | b'\n'));
        match c.peek() {
            Some(b'\'' | b'"') => {
                skip_quoted(c)?;
                continue;
            }
            Some(b'<') => depth += 1,
            Some(b'>') => depth -= 1,
            _ => return c.fail(),
        }
        c.next();
        if depth == 0 {
            return Ok(());
        }
    }
}

/// Consumes a quoted string without decoding it. Fails at the end of the line: `repr` escapes line breaks.
fn skip_quoted(c: &mut Cursor<'_>) -> Result<(), LocateError> {
    let Some(quote) = c.next() else {
        return c.fail();
    };
    loop {
        c.skip(|b| b != quote && !matches!(b, b'\\' | b'\n' | b'\r'));
        if c.eat(quote) {
            return Ok(());
        }
        c.expect(b'\\')?;
        // Of the escaped characters, only these would otherwise be read as the end of the string or as a backslash.
        if matches!(c.peek(), Some(b'\\' | b'\'' | b'"')) {
            c.next();
        }
    }
}

/// Parses a string in single or double quotation marks and decodes it. Fails at a line break, which `repr` escapes.
fn string(c: &mut Cursor<'_>) -> Result<String, LocateError> {
    let Some(quote @ (b'\'' | b'"')) = c.next() else {
        return c.fail();
    };
    let mut decoded = String::new();
    loop {
        let start = c.offset();
        c.skip(|b| b != quote && !matches!(b, b'\\' | b'\n' | b'\r'));
        decoded.push_str(c.text_since(start));
        if c.eat(quote) {
            return Ok(decoded);
        }
        c.expect(b'\\')?;
        escape(c, &mut decoded)?;
    }
}

/// Parses the characters after a backslash, and appends the character that they represent to `decoded`. As in Python, a
/// backslash that starts no known escape represents itself.
fn escape(c: &mut Cursor<'_>, decoded: &mut String) -> Result<(), LocateError> {
    let at = c.offset();
    let simple = match c.peek() {
        Some(quote @ (b'\'' | b'"' | b'\\')) => char::from(quote),
        Some(b'a') => '\u{7}',
        Some(b'b') => '\u{8}',
        Some(b'f') => '\u{c}',
        Some(b'n') => '\n',
        Some(b'r') => '\r',
        Some(b't') => '\t',
        Some(b'v') => '\u{b}',
        Some(b'0'..=b'7') => {
            decoded.push(char::from_u32(octal(c)).ok_or(LocateError::Syntax { offset: at })?);
            return Ok(());
        }
        Some(long @ (b'x' | b'u' | b'U')) => {
            c.next();
            let code = c.hex(match long {
                b'x' => 2,
                b'u' => 4,
                _ => 8,
            })?;
            decoded.push(char::from_u32(code).ok_or(LocateError::Syntax { offset: at })?);
            return Ok(());
        }
        // Named characters and joined lines, which `repr` does not print.
        Some(b'N' | b'\n' | b'\r') | None => return c.fail(),
        Some(_) => {
            // The caller reads the character after the backslash as plain text.
            decoded.push('\\');
            return Ok(());
        }
    };
    c.next();
    decoded.push(simple);
    Ok(())
}

/// Consumes up to three octal digits of an escape such as `\101`, and returns the code of the character.
fn octal(c: &mut Cursor<'_>) -> u32 {
    let mut code = 0;
    for _ in 0..3 {
        match c.peek() {
            Some(digit @ b'0'..=b'7') => code = code * 8 + u32::from(digit - b'0'),
            _ => break,
        }
        c.next();
    }
    code
}

#[cfg(test)]
mod tests;
