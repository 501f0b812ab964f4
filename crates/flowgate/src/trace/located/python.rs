//! Python literals: the output of `repr` for lists, dicts, tuples and sets.
//!
//! `repr` prints values without a literal as a call (`datetime.datetime(2024, 5, 15)`), in angle brackets
//! (`<Color.RED: 'r'>`) or with a prefix (`b'..'`). They are parsed as one scalar whose text is its spelling.

use super::cursor::Cursor;
use super::tree::{Place, Tree};
use super::{DEPTH_LIMIT, Kind, Node, Unlocated};

/// Parses a text that is one list, dict, tuple or set.
pub(super) fn read(text: &str) -> Result<Node, Unlocated> {
    let mut c = Cursor::new(text);
    let mut tree = Tree::default();
    let mut closers = Vec::new();
    space(&mut c);
    if !matches!(c.peek(), Some(b'[' | b'(' | b'{')) {
        return Err(Unlocated::NotStructured);
    }
    value(&mut c, &mut tree, &mut closers)?;
    while let (Some(place), Some(&close)) = (tree.place(), closers.last()) {
        space(&mut c);
        let comma = tree.len() > 0 && c.eat(b',');
        space(&mut c);
        let grouping = close == b')' && tree.len() == 1 && !comma;
        if !grouping && c.eat(close) {
            closers.pop();
            tree.close(c.at())?;
            continue;
        }
        if tree.len() > 0 && !comma {
            return c.fail();
        }
        if place == Place::Key {
            let start = c.at();
            let key = key(&mut c)?;
            tree.key(key, start..c.at())?;
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

fn space(c: &mut Cursor<'_>) {
    c.skip(|b| matches!(b, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c'));
}

/// Parses a scalar, or the opening bracket of a list or map.
fn value(c: &mut Cursor<'_>, tree: &mut Tree, closers: &mut Vec<u8>) -> Result<(), Unlocated> {
    let start = c.at();
    let kind = match c.peek() {
        Some(open @ (b'[' | b'(' | b'{')) => {
            c.next();
            closers.push(closer(open));
            return if open == b'{' && is_dict(c)? { tree.open_map(start) } else { tree.open_list(start) };
        }
        Some(b'\'' | b'"') => Kind::Text(string(c)?),
        _ => word(c)?,
    };
    tree.leaf(start..c.at(), kind)
}

fn closer(open: u8) -> u8 {
    match open {
        b'(' => b')',
        b'[' => b']',
        _ => b'}',
    }
}

/// Looks ahead behind a `{`: a dict, unless its first item has no `:` after it. Text is scanned again only where such
/// braces nest, so at most [`DEPTH_LIMIT`] times.
fn is_dict(c: &mut Cursor<'_>) -> Result<bool, Unlocated> {
    let start = c.at();
    space(c);
    let dict = c.peek() == Some(b'}') || {
        match c.peek() {
            // A list or a map as a key is rejected.
            Some(b'[' | b'{') => return Ok(false),
            Some(b'(') => brackets(c)?,
            Some(b'\'' | b'"') => quoted(c)?,
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

/// Parses a key: a string is decoded, any other hashable value is kept as spelled.
fn key(c: &mut Cursor<'_>) -> Result<String, Unlocated> {
    let start = c.at();
    match c.peek() {
        Some(b'\'' | b'"') => return string(c),
        Some(b'(') => brackets(c)?,
        _ => {
            word(c)?;
        }
    }
    Ok(c.since(start).to_owned())
}

/// Parses a scalar that is not a plain string.
fn word(c: &mut Cursor<'_>) -> Result<Kind, Unlocated> {
    let start = c.at();
    match c.peek() {
        Some(b'<') => {
            angles(c)?;
            return Ok(Kind::Text(c.since(start).to_owned()));
        }
        Some(b'-' | b'+' | b'.' | b'0'..=b'9') => return number(c),
        _ => {}
    }
    c.skip(|b| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'.') || !b.is_ascii());
    let kind = match (c.since(start), c.peek()) {
        ("b", Some(b'\'' | b'"')) => {
            quoted(c)?;
            Kind::Text(c.since(start).to_owned())
        }
        ("", _) => return c.fail(),
        (_, Some(b'(')) => {
            brackets(c)?;
            Kind::Text(c.since(start).to_owned())
        }
        ("None", _) => Kind::Null,
        ("True", _) => Kind::Bool(true),
        ("False", _) => Kind::Bool(false),
        (name @ ("inf" | "nan"), _) => Kind::Number(name.to_owned()),
        _ => return Err(Unlocated::Syntax { offset: start }),
    };
    Ok(kind)
}

fn number(c: &mut Cursor<'_>) -> Result<Kind, Unlocated> {
    let digits = |c: &mut Cursor<'_>| c.skip(|b| b.is_ascii_digit());
    let start = c.at();
    let _signed = c.eat(b'-') || c.eat(b'+');
    if c.eat(b'i') {
        c.expect(b'n')?;
        c.expect(b'f')?;
        return Ok(Kind::Number(c.since(start).to_owned()));
    }
    let zero = c.peek() == Some(b'0');
    let first = c.at();
    let whole = digits(c);
    let padded = zero && c.since(first).bytes().any(|b| b != b'0');
    let mut float = false;
    if c.eat(b'.') {
        float = true;
        if !digits(c) && !whole {
            return c.fail();
        }
    } else if !whole {
        return c.fail();
    }
    if c.eat(b'e') || c.eat(b'E') {
        float = true;
        let _signed = c.eat(b'+') || c.eat(b'-');
        if !digits(c) {
            return c.fail();
        }
    }
    if padded && !float {
        return Err(Unlocated::Syntax { offset: first });
    }
    Ok(Kind::Number(c.since(start).to_owned()))
}

/// Consumes everything up to the bracket that matches the next one.
fn brackets(c: &mut Cursor<'_>) -> Result<(), Unlocated> {
    let mut closers = Vec::new();
    loop {
        c.skip(|b| !matches!(b, b'(' | b'[' | b'{' | b')' | b']' | b'}' | b'\'' | b'"'));
        match c.peek() {
            Some(b'\'' | b'"') => quoted(c)?,
            Some(open @ (b'(' | b'[' | b'{')) => {
                if closers.len() >= DEPTH_LIMIT {
                    return Err(Unlocated::TooDeep { offset: c.at() });
                }
                closers.push(closer(open));
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

/// Consumes everything up to the `>` that matches the next `<`.
fn angles(c: &mut Cursor<'_>) -> Result<(), Unlocated> {
    let mut depth = 0_usize;
    loop {
        c.skip(|b| !matches!(b, b'<' | b'>' | b'\'' | b'"' | b'\n'));
        match c.peek() {
            Some(b'\'' | b'"') => {
                quoted(c)?;
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

/// Consumes a quoted string without decoding it.
fn quoted(c: &mut Cursor<'_>) -> Result<(), Unlocated> {
    let Some(quote) = c.next() else {
        return c.fail();
    };
    loop {
        c.skip(|b| b != quote && !matches!(b, b'\\' | b'\n' | b'\r'));
        if c.eat(quote) {
            return Ok(());
        }
        c.expect(b'\\')?;
        if matches!(c.peek(), Some(b'\\' | b'\'' | b'"')) {
            c.next();
        }
    }
}

/// Parses a string and decodes it.
fn string(c: &mut Cursor<'_>) -> Result<String, Unlocated> {
    let Some(quote @ (b'\'' | b'"')) = c.next() else {
        return c.fail();
    };
    let mut decoded = String::new();
    loop {
        let start = c.at();
        c.skip(|b| b != quote && !matches!(b, b'\\' | b'\n' | b'\r'));
        decoded.push_str(c.since(start));
        if c.eat(quote) {
            return Ok(decoded);
        }
        c.expect(b'\\')?;
        escape(c, &mut decoded)?;
    }
}

/// Parses the characters after a backslash. As in Python, a backslash that starts no known escape represents itself.
fn escape(c: &mut Cursor<'_>, decoded: &mut String) -> Result<(), Unlocated> {
    let at = c.at();
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
            decoded.push(char::from_u32(octal(c)).ok_or(Unlocated::Syntax { offset: at })?);
            return Ok(());
        }
        Some(long @ (b'x' | b'u' | b'U')) => {
            c.next();
            let code = c.hex(match long {
                b'x' => 2,
                b'u' => 4,
                _ => 8,
            })?;
            decoded.push(char::from_u32(code).ok_or(Unlocated::Syntax { offset: at })?);
            return Ok(());
        }
        // Named characters and joined lines, which `repr` does not print.
        Some(b'N' | b'\n' | b'\r') | None => return c.fail(),
        Some(_) => {
            decoded.push('\\');
            return Ok(());
        }
    };
    c.next();
    decoded.push(simple);
    Ok(())
}

/// Consumes up to three octal digits.
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
