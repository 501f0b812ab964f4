//! Converts the source text of a policy to tokens, with Python's rules for indentation. The parser calls [`lex`] for
//! each file, and for each expression in an f-string.
//!
//! The lexer never fails: unknown characters become [`Token::Unknown`], which the parser reports. Comments are tokens
//! too, so that a formatter can preserve them; the parser skips them.

use logos::Logos;

use super::diagnostic::Span;

/// A token with its location.
pub(crate) type Lexeme = (Token, Span);

/// One token.
#[derive(Logos, Debug, Clone, Copy, PartialEq, Eq)]
#[logos(skip r"[ \t\r\f]+|\\\r?\n")]
pub(crate) enum Token {
    #[regex(r"#[^\n]*", allow_greedy = true)]
    Comment,
    #[token("\n")]
    Newline,
    /// The start of a block: deeper indentation.
    Indent,
    /// The end of a block: less indentation.
    Dedent,
    /// An indentation that matches no open block.
    BadIndent,
    End,

    #[regex(r"[\p{L}_][\p{L}\p{N}_]*")]
    Name,
    #[regex(r"[0-9][0-9_]*")]
    Int,
    #[regex(r"[0-9][0-9_]*\.[0-9]+([eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+")]
    Float,
    #[regex(r#"[rRfF]?"([^"\\\n]|\\[^\n])*""#)]
    #[regex(r#"[rRfF]?'([^'\\\n]|\\[^\n])*'"#)]
    #[regex(r#"[rRfF]?""""#, |lexer| skip_triple_quoted(lexer, "\"\"\""))]
    #[regex(r#"[rRfF]?'''"#, |lexer| skip_triple_quoted(lexer, "'''"))]
    Str,
    #[regex(r#"[rRfF]?"([^"\\\n]|\\[^\n])*"#, priority = 1)]
    #[regex(r#"[rRfF]?'([^'\\\n]|\\[^\n])*"#, priority = 1)]
    /// A text without a closing quotation mark.
    OpenStr,
    /// `tool:name`, `tool:server/name`, `tool:server/group/name`, with `*` for any characters.
    #[regex(
        r"tool:([A-Za-z_*]([A-Za-z0-9_.*-]*[A-Za-z0-9_*])?/){0,2}[A-Za-z_*]([A-Za-z0-9_.*-]*[A-Za-z0-9_*])?"
    )]
    Tool,
    /// `tool:"name"`, or `tool:r"pattern"` with a regular expression for the whole name.
    #[regex(r#"tool:[rR]?"([^"\\\n]|\\[^\n])*""#)]
    ToolQuoted,
    /// The prefix of a pattern, or a parameter called `tool`.
    #[token("tool:")]
    ToolPrefix,
    /// `<NAME>`, a matcher of values in tool patterns.
    #[regex(r"<[A-Z][A-Z_]*>")]
    Matcher,

    #[token("(")]
    ParenOpen,
    #[token(")")]
    ParenClose,
    #[token("[")]
    BracketOpen,
    #[token("]")]
    BracketClose,
    #[token("{")]
    BraceOpen,
    #[token("}")]
    BraceClose,
    #[token(",")]
    Comma,
    #[token(":")]
    Colon,
    #[token(":=")]
    Define,
    #[token(".")]
    Dot,
    #[token("=")]
    Assign,
    #[token("==")]
    Equal,
    #[token("!=")]
    NotEqual,
    #[token("<")]
    Less,
    #[token("<=")]
    LessEqual,
    #[token(">")]
    Greater,
    #[token(">=")]
    GreaterEqual,
    #[token("+")]
    Plus,
    #[token("-")]
    Minus,
    #[token("*")]
    Star,
    #[token("**")]
    Power,
    #[token("/")]
    Slash,
    #[token("%")]
    Percent,
    /// `->`: comes before.
    #[token("->")]
    Arrow,
    /// `~>`: comes right before.
    #[token("~>")]
    Immediate,
    /// `=>`: influences.
    #[token("=>")]
    Influence,
    Unknown,
}

/// Moves the lexer to the end of a triple-quoted text whose opening quotes it has read: after the closing `quote` or,
/// if the text is not closed, to the end of the file. Returns whether the text is closed. If not, logos reports an
/// error, which becomes [`Token::Unknown`].
fn skip_triple_quoted(lexer: &mut logos::Lexer<'_, Token>, quote: &str) -> bool {
    let end = lexer.remainder().find(quote);
    lexer.bump(end.map_or(lexer.remainder().len(), |at| at + quote.len()));
    end.is_some()
}

/// Returns the tokens of `source`, including comments, ending with [`Token::End`]. As in Python, changes of the
/// indentation become tokens ([`Token::Indent`], [`Token::Dedent`]), and a line break ends a line unless a bracket is
/// open. Unlike in Python, a line also continues on the next one if an operator is at the end of the first or at the
/// beginning of the second.
pub(crate) fn lex(source: &str) -> Vec<Lexeme> {
    let mut tokens: Vec<Lexeme> = Vec::new();
    // The number of open brackets.
    let mut depth = 0_usize;
    // The columns of the open blocks.
    let mut indents: Vec<usize> = Vec::new();
    let mut at_line_start = true;
    let end = source.len()..source.len();
    // The least indentation of all lines. Columns are counted from it, since a policy may be indented as a whole, such
    // as one that is embedded in a program.
    let base = source.lines().filter(|line| !line.trim().is_empty()).map(indentation).min().unwrap_or(0);
    for (token, span) in Token::lexer(source).spanned() {
        let token = token.unwrap_or(Token::Unknown);
        if depth > 0 && token == Token::Name && begins_statement(source, &span, base) {
            // A bracket was not closed. It ends here, at the next statement, so that only one statement is lost.
            depth = 0;
            at_line_start = true;
            tokens.push((Token::Newline, span.start..span.start));
        }
        match token {
            // A line break within brackets, of an empty line or after an operator does not end a line.
            Token::Newline if depth > 0 || at_line_start || needs_continuation(source, &tokens) => continue,
            // The line begins with an operator that needs a left operand, so it continues the line before, unless that
            // line opens a block; `remove_line_end` then returns false and changes nothing.
            _ if at_line_start && continues_line(source, token, &span) && remove_line_end(&mut tokens) => {
                at_line_start = false;
            }
            // A comment neither begins nor ends a line.
            Token::Comment => {
                tokens.push((token, span));
                continue;
            }
            Token::Newline => at_line_start = true,
            // The first token of a line: its column opens or closes blocks.
            _ if at_line_start => {
                at_line_start = false;
                let line = source.get(..span.start).and_then(|text| text.rsplit('\n').next()).unwrap_or("");
                let column = width(line).saturating_sub(base);
                add_indentation(&mut tokens, &mut indents, column, &span);
            }
            _ => {}
        }
        match token {
            Token::ParenOpen | Token::BracketOpen | Token::BraceOpen => depth += 1,
            Token::ParenClose | Token::BracketClose | Token::BraceClose => depth = depth.saturating_sub(1),
            _ => {}
        }
        tokens.push((token, span));
    }
    if !at_line_start {
        tokens.push((Token::Newline, end.clone()));
    }
    tokens.extend(indents.iter().map(|_| (Token::Dedent, end.clone())));
    tokens.push((Token::End, end));
    tokens
}

/// The words that start a statement.
pub(crate) const STATEMENTS: [&str; 16] = [
    "lattice", "store", "default", "label", "require", "payload", "consent", "endorse", "unsafe", "role",
    "raise", "ask", "log", "extern", "import", "from",
];

/// Returns whether the name at `span` begins a statement: it is one of [`STATEMENTS`] and the first word of its line,
/// and the line is not indented deeper than `base`, the indentation of the policy as a whole.
fn begins_statement(source: &str, span: &Span, base: usize) -> bool {
    let line = source.get(..span.start).and_then(|text| text.rsplit('\n').next()).unwrap_or_default();
    (line.trim().is_empty() && width(line) <= base)
        && STATEMENTS.contains(&source.get(span.clone()).unwrap_or_default())
}

/// Returns the width of white space in columns. A tab counts as four.
fn width(space: &str) -> usize {
    space.chars().map(|c| if c == '\t' { 4 } else { 1 }).sum()
}

/// Returns the indentation of a line in columns.
fn indentation(line: &str) -> usize {
    width(line.get(..line.len() - line.trim_start().len()).unwrap_or_default())
}

/// Returns whether the line that ends after `tokens` continues on the next line: its last token is an operator that
/// [joins lines](joins_lines), a `-`, or a word that needs a right operand, such as `and`.
fn needs_continuation(source: &str, tokens: &[Lexeme]) -> bool {
    let last = tokens.iter().rev().find(|(token, _)| *token != Token::Comment);
    last.is_some_and(|(token, span)| match token {
        Token::Name => {
            matches!(source.get(span.clone()), Some("or" | "and" | "not" | "in" | "contains_only"))
        }
        token => joins_lines(*token) || matches!(token, Token::Minus),
    })
}

/// Returns whether the line that begins with `token`, at `span`, continues the previous line: the token is an operator
/// that [joins lines](joins_lines), or a word that needs a left operand, such as `and`. No statement begins with these.
fn continues_line(source: &str, token: Token, span: &Span) -> bool {
    match token {
        Token::Name => matches!(source.get(span.clone()), Some("or" | "and" | "in" | "is" | "contains_only")),
        token => joins_lines(token),
    }
}

/// Returns whether a token is an operator that joins two lines: a line that ends with it continues on the next line,
/// and a line that begins with it continues the previous line. Five operators with two operands are left out:
///
/// * `*`, since it can also end a line, as the end of the name of a tool (`read by bank/get_*`);
/// * `-`, since it can also begin a line, as a sign ([`needs_continuation`] joins the line after it);
/// * `<`, `>` and `/`: a comparison or a division with these must be on one line or in brackets.
fn joins_lines(token: Token) -> bool {
    matches!(
        token,
        Token::Equal
            | Token::NotEqual
            | Token::LessEqual
            | Token::GreaterEqual
            | Token::Plus
            | Token::Percent
            | Token::Power
            | Token::Arrow
            | Token::Immediate
            | Token::Influence
    )
}

/// Removes the token for the end of the last line, so that the next line continues this line, and returns true. If the
/// last line opens a block, by a colon or `:=` at its end, or if the last token does not end a line, changes nothing
/// and returns false.
fn remove_line_end(tokens: &mut Vec<Lexeme>) -> bool {
    let Some(newline) = tokens.iter().rposition(|(token, _)| *token != Token::Comment) else { return false };
    let is_token = |at: usize, wanted: Token| tokens.get(at).is_some_and(|(token, _)| *token == wanted);
    let opens_block = newline
        .checked_sub(1)
        .is_none_or(|before| is_token(before, Token::Colon) || is_token(before, Token::Define));
    if !is_token(newline, Token::Newline) || opens_block {
        return false;
    }
    tokens.remove(newline);
    true
}

/// Adds the tokens for the indentation of a line that begins at `column`: an indent if it begins a block, a dedent for
/// each block that it ends, or nothing if it is in the same block. If no enclosing block begins at this column, also
/// adds [`Token::BadIndent`]. `indents` are the columns of the enclosing blocks, and `span` is the location of the
/// first token of the line.
fn add_indentation(tokens: &mut Vec<Lexeme>, indents: &mut Vec<usize>, column: usize, span: &Span) {
    let here = span.start..span.start;
    if column > indents.last().copied().unwrap_or(0) {
        indents.push(column);
        tokens.push((Token::Indent, here));
        return;
    }
    while indents.last().is_some_and(|last| column < *last) {
        indents.pop();
        tokens.push((Token::Dedent, here.clone()));
    }
    if column != indents.last().copied().unwrap_or(0) {
        tokens.push((Token::BadIndent, here));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(source: &str, expected: &str) {
        let shown: Vec<String> = lex(source).iter().map(|(token, _)| format!("{token:?}")).collect();
        assert_eq!(shown.join(" "), expected, "{source:?}");
    }

    #[test]
    fn lines_and_blocks() {
        check("a\n", "Name Newline End");
        check("a", "Name Newline End");
        check(
            "a:\n  b\n\n  # c\n  d\ne",
            "Name Colon Newline Indent Name Newline Comment Name Newline Dedent Name Newline End",
        );
        check("(a,\n  b)\n", "ParenOpen Name Comma Name ParenClose Newline End");
        check(
            "a:\n  b:\n    c",
            "Name Colon Newline Indent Name Colon Newline Indent Name Newline Dedent Dedent End",
        );
        check("a:\n    b\n  c", "Name Colon Newline Indent Name Newline Dedent BadIndent Name Newline End");
        check("a \\\n  b", "Name Name Newline End");
        check("a or\n  b", "Name Name Name Newline End");
        check("a\n  # c\n    -> b\nc", "Name Comment Arrow Name Newline Name Newline End");
        check("a:\n  -> b", "Name Colon Newline Indent Arrow Name Newline Dedent End");
        check(
            "    a:\n        b\n    c\n  ",
            "Name Colon Newline Indent Name Newline Dedent Name Newline End",
        );
    }

    #[test]
    fn literals_and_operators() {
        check("1 1.5 2e3 1_000", "Int Float Float Int Newline End");
        check(r#""a\"b" r'\d' 'x"#, "Str Str OpenStr Newline End");
        check("'''a\n'b'''", "Str Newline End");
        check("a -> b ~> c => d", "Name Arrow Name Immediate Name Influence Name Newline End");
        check("x := <= == != **", "Name Define LessEqual Equal NotEqual Power Newline End");
        check("a < b <EMAIL_ADDRESS>", "Name Less Name Matcher Newline End");
        check("\u{1F980}", "Unknown Newline End");
    }

    #[test]
    fn tool_names() {
        for (source, end) in [
            ("tool:get_balance", 16),
            ("tool:bank/get_balance(", 21),
            ("tool:bank/resources/read(", 24),
            ("tool:a-b.c -> x", 10),
            ("tool:a->b", 6),
            ("tool:get_*", 10),
            ("tool:*/send", 11),
        ] {
            let (token, span) = lex(source).remove(0);
            assert_eq!((token, span), (Token::Tool, 0..end), "{source}");
        }
        check("tool:r\"get_.*\" tool:\"a b\"", "ToolQuoted ToolQuoted Newline End");
        check("f(tool: str)", "Name ParenOpen ToolPrefix Name ParenClose Newline End");
    }
}
