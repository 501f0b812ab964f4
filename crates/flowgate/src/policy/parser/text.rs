//! Parses the text literals in a policy: quotes, escapes, and f-strings with embedded expressions. The parser of
//! expressions calls [`Parser::literal`] for each text literal, and [`unquote`] for the quoted name in a tool pattern.

use super::super::diagnostic::{Diagnostic, Span};
use super::super::dialect::Dialect;
use super::super::lexer::{self, Token};
use super::super::syntax::{ExprKind, FormatPart};
use super::{ParseResult, Parser};

impl Parser<'_> {
    /// Parses the text literal at `span`. An f-string (`f"to {call.arguments.to}"`) becomes a list of texts and
    /// embedded expressions. In it, `{{` and `}}` denote braces, and a single brace without a partner is an error.
    pub(super) fn literal(&mut self, span: &Span) -> ParseResult<ExprKind> {
        let literal = self.text(span);
        // In the dialect of invariant-ai the prefix `f` has no effect: invariant-ai accepts and ignores it.
        if !literal.starts_with(['f', 'F']) || self.dialect == Dialect::Compat {
            return Ok(ExprKind::Str(unquote(literal, self.dialect)));
        }
        let body = literal_body(literal);
        // The body begins after the prefix `f` and the quotation marks.
        let start = span.start + 1 + quotes(literal);
        let mut parts = Vec::new();
        // The plain text since the last embedded expression.
        let mut text = String::new();
        let mut rest = body.to_owned();
        // The position of `rest` in the source.
        let mut at = start;
        while let Some(brace) = rest.find(['{', '}']) {
            text.push_str(rest.get(..brace).unwrap_or_default());
            let after = rest.get(brace + 1..).unwrap_or_default().to_owned();
            // The position of the brace in the source.
            let here = at + brace;
            let opens = rest.get(brace..).is_some_and(|tail| tail.starts_with('{'));
            let doubled = if opens { '{' } else { '}' };
            // A doubled brace is a character of the text.
            if let Some(behind) = after.strip_prefix(doubled) {
                text.push(doubled);
                at = here + 2;
                rest = behind.to_owned();
                continue;
            }
            if !opens {
                let diagnostic = Diagnostic::error("syntax", here..here + 1, "the `}` has no `{` before it");
                return Err(self.report(diagnostic.help("write `}}` for a brace")));
            }
            // Any other `{` begins an expression, which ends before the next `}`.
            let Some(length) = after.find('}') else {
                let diagnostic = Diagnostic::error("syntax", here..here + 1, "the `{` has no `}` after it");
                return Err(self.report(diagnostic.help("write `{{` for a brace")));
            };
            parts.push(FormatPart::Text(unescape(&std::mem::take(&mut text))));
            let expression = here + 1..here + 1 + length;
            // The next text begins after the closing brace.
            at = expression.end + 1;
            let value = self.with_depth(|parser| parser.embedded_expression(expression))?;
            parts.push(FormatPart::Value(value));
            rest = after.get(length + 1..).unwrap_or_default().to_owned();
        }
        text.push_str(&rest);
        parts.push(FormatPart::Text(unescape(&text)));
        parts.retain(|part| !matches!(part, FormatPart::Text(text) if text.is_empty()));
        Ok(ExprKind::Format(parts))
    }

    /// Parses the expression at `span` in an f-string. While it is parsed, its tokens replace the tokens of the file.
    fn embedded_expression(&mut self, span: Span) -> ParseResult<super::Expr> {
        let inner = lexer::lex(self.text(&span));
        let shifted = inner
            .into_iter()
            .filter(|(token, _)| !matches!(token, Token::Newline | Token::End | Token::Comment))
            .map(|(token, at)| (token, span.start + at.start..span.start + at.end))
            // The closing brace marks the end of the expression, so that any text left before it is an error.
            .chain([(Token::BraceClose, span.end..span.end + 1), (Token::End, span.end..span.end)])
            .collect();
        let outer = std::mem::replace(&mut self.tokens, shifted);
        let position = std::mem::replace(&mut self.position, 0);
        let value = self.expression().and_then(|value| self.expect(Token::BraceClose, "`}`").map(|_| value));
        self.tokens = outer;
        self.position = position;
        value
    }
}

/// Returns how many quotation marks, 1 or 3, are at each end of a literal. A prefix such as `r` does not count.
fn quotes(literal: &str) -> usize {
    let body = literal.trim_start_matches(['r', 'R', 'f', 'F']);
    if body.starts_with("\"\"\"") || body.starts_with("'''") { 3 } else { 1 }
}

/// Returns the text between the quotation marks, without the prefix such as `r` or `f`.
fn literal_body(literal: &str) -> &str {
    let quotes = quotes(literal);
    let body = literal.trim_start_matches(['r', 'R', 'f', 'F']);
    body.get(quotes..body.len().saturating_sub(quotes)).unwrap_or("")
}

/// Returns the value of a text literal: the text between its quotation marks, with escapes such as `\n` replaced. An
/// unknown escape remains unchanged, so `"\d"` is a backslash and a `d`. A literal with the prefix `r` has no escapes.
///
/// In the dialect of invariant-ai, only `\"` and `\'` are replaced. In a text in three quotation marks nothing is
/// replaced, but the indentation that its lines have in common is removed.
pub(super) fn unquote(literal: &str, dialect: Dialect) -> String {
    let body = literal_body(literal);
    match dialect {
        _ if literal.starts_with(['r', 'R']) => body.to_owned(),
        Dialect::Flowgate => unescape(body),
        // A text in three quotation marks may have several lines.
        Dialect::Compat if quotes(literal) == 3 => dedent(body),
        Dialect::Compat => body.replace("\\\"", "\"").replace("\\'", "'"),
    }
}

/// Replaces the escapes of white space, backslashes and quotation marks by the characters. Other escapes remain
/// unchanged.
fn unescape(body: &str) -> String {
    let mut value = String::with_capacity(body.len());
    let mut chars = body.chars();
    while let Some(c) = chars.next() {
        if c != '\\' {
            value.push(c);
            continue;
        }
        match chars.next() {
            Some('n') => value.push('\n'),
            Some('t') => value.push('\t'),
            Some('r') => value.push('\r'),
            Some(c @ ('\\' | '"' | '\'')) => value.push(c),
            Some(c) => value.extend(['\\', c]),
            None => value.push('\\'),
        }
    }
    value
}

/// Removes the indentation that all lines of a text have in common. Blank lines do not count for it, and lose at most
/// their own white space.
fn dedent(text: &str) -> String {
    let indent = |line: &str| line.len() - line.trim_start().len();
    let common = text.lines().filter(|line| !line.trim().is_empty()).map(indent).min().unwrap_or(0);
    let lines = text.split('\n').map(|line| line.get(common.min(indent(line))..).unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_has_its_escapes() {
        for (literal, flowgate, compat) in [
            (r#""a\n\d\"\\""#, "a\n\\d\"\\", r#"a\n\d"\\"#),
            (r#"r"\n""#, "\\n", "\\n"),
            ("'''\n  a\n    b'''", "\n  a\n    b", "\na\n  b"),
        ] {
            assert_eq!(unquote(literal, Dialect::Flowgate), flowgate, "{literal}");
            assert_eq!(unquote(literal, Dialect::Compat), compat, "{literal}");
        }
    }
}
