//! Recognises `sed` scripts that certainly run no commands and write no files, and `awk` programs that certainly run no
//! commands. [`foreign_launches`](super::foreign_launches) calls this module, and reports every other script of `sed` or
//! `awk` as not read.

/// Returns whether a script of `sed` certainly consists of commands that neither run programs nor write files.
pub(super) fn sed_is_plain(script: &str) -> bool {
    let mut chars = script.chars().peekable();
    loop {
        let Some(c) = chars.next() else { return true };
        match c {
            // Addresses and separators.
            ' ' | '\t' | '\n' | ';' | '{' | '}' | ',' | '!' | '$' | '~' | '+' | 'I' | 'M' | '0'..='9' => {}
            '/' => {
                if !skip_section(&mut chars, '/') {
                    return false;
                }
            }
            // `\cREGEXc` is an address whose regular expression is between two `c`, or any other character.
            '\\' => match chars.next() {
                Some(delimiter) if skip_section(&mut chars, delimiter) => {}
                _ => return false,
            },
            's' | 'y' => {
                let Some(delimiter) = chars.next().filter(|c| !matches!(c, '\n' | '\\')) else {
                    return false;
                };
                if !skip_section(&mut chars, delimiter) || !skip_section(&mut chars, delimiter) {
                    return false;
                }
                // The flags `e` and `w`, which run a program or write a file, are not accepted.
                while chars.next_if(|c| matches!(c, 'g' | 'p' | 'i' | 'I' | 'm' | 'M' | '0'..='9')).is_some()
                {
                }
                if chars.peek().is_some_and(|c| !matches!(c, ' ' | '\t' | '\n' | ';' | '}' | '#')) {
                    return false;
                }
            }
            'p' | 'd' | 'q' | 'Q' | 'D' | 'P' | 'G' | 'H' | 'h' | 'g' | 'x' | 'n' | 'N' | '=' | 'l' => {}
            // A comment ends with the line.
            '#' => while chars.next().is_some_and(|c| c != '\n') {},
            // Commands with a label. GNU `sed` ends a label at `;`, `}` or white space, and reads a further command
            // after the label; other versions read these characters as a part of the label. So the text after the label
            // is examined as commands.
            'b' | 't' | ':' => {
                while chars.next_if(|c| matches!(c, ' ' | '\t')).is_some() {}
                for c in chars.by_ref() {
                    if matches!(c, '\n' | ';' | '}' | ' ' | '\t') {
                        break;
                    }
                }
            }
            // Commands with a text, which continues on the next line after a backslash.
            'a' | 'i' | 'c' => {
                let mut escaped = false;
                for c in chars.by_ref() {
                    if c == '\n' && !escaped {
                        break;
                    }
                    escaped = c == '\\' && !escaped;
                }
            }
            _ => return false,
        }
    }
}

/// Skips a part of a command, such as a regular expression, and the delimiter after it. A delimiter after a backslash
/// does not end the part. Returns false if the script ends before the delimiter.
fn skip_section(chars: &mut std::iter::Peekable<std::str::Chars<'_>>, delimiter: char) -> bool {
    while let Some(c) = chars.next() {
        if c == delimiter {
            return true;
        }
        if c == '\\' {
            chars.next();
        }
    }
    false
}

/// Returns whether a program of `awk` certainly runs no commands.
pub(super) fn awk_is_plain(program: &str) -> bool {
    // `||` is the operator "or". A single `|` pipes into a command or reads from one. `@` includes other code, or calls
    // a function whose name is computed.
    let without_or = program.replace("||", "");
    !["system", "getline", "|", "@", "ENVIRON"].iter().any(|mark| without_or.contains(mark))
}
