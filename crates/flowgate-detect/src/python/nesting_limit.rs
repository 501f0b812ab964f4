//! Rejects Python code that nests too deeply, before it is parsed. [`python`](super) calls [`check_nesting`] for each
//! text.
//!
//! The parser grows its own stack, but the tree is walked and dropped recursively, so a chain `a.b.b.b` of 100 000
//! terms would exhaust the stack and abort the process. The tokens give an upper bound: the depth of an expression is
//! at most the number of enclosing brackets plus, at each level, the operators since the last comma.

use ruff_python_ast::token::TokenKind;
use ruff_python_parser::Mode;
use ruff_python_parser::lexer::lex;

/// Maximum depth of an expression. Some generated sums are deeper; hand-written code is not.
const MAX_DEPTH: usize = 400;

/// Maximum depth of blocks, as in CPython.
const MAX_BLOCKS: usize = 100;

/// The operators that were read at one level of brackets, and that may nest what follows.
#[derive(Default, Clone, Copy)]
struct BracketLevel {
    /// Operators since the last comma.
    operators: usize,
    /// `lambda`s, whose parameters also contain commas.
    lambdas: usize,
}

/// Checks that expressions nest at most `MAX_DEPTH` deep and blocks at most `MAX_BLOCKS` deep: the tree of deeper code
/// could overflow the stack when it is walked or dropped.
///
/// The code is not parsed, so the depth is an upper bound. Each operator and each bracket counts as a level until the
/// next comma or the end of the statement. A bracket still counts after it was closed, since each call in `a()()()`
/// nests within the next one.
///
/// # Errors
/// Returns the reason as a text for people. A bracket that is not closed or not opened, and an invalid token, are
/// errors as well.
pub(super) fn check_nesting(text: &str, mode: Mode) -> Result<(), String> {
    let mut lexer = lex(text, mode);
    // The levels outside the innermost open bracket, and the level inside it.
    let mut outer: Vec<BracketLevel> = Vec::new();
    let mut level = BracketLevel::default();
    // The bound on the depth at this token: all operators and lambdas of `outer` and `level`.
    let mut depth = 0_usize;
    let mut blocks = 0_usize;
    loop {
        match lexer.next_token() {
            TokenKind::EndOfFile => {
                return if outer.is_empty() {
                    Ok(())
                } else {
                    Err("the code has a bracket that is not closed".to_owned())
                };
            }
            TokenKind::Unknown => {
                return Err("the code has an invalid character, indentation or string".to_owned());
            }
            TokenKind::Indent => blocks += 1,
            TokenKind::Dedent => blocks = blocks.saturating_sub(1),
            // The end of a statement ends everything in it, a comma only the operators: a lambda's body continues after
            // the commas of its parameters.
            TokenKind::Newline | TokenKind::Semi => {
                depth -= level.operators + level.lambdas;
                level = BracketLevel::default();
            }
            TokenKind::Comma => {
                depth -= level.operators;
                level.operators = 0;
            }
            TokenKind::Lpar
            | TokenKind::Lsqb
            | TokenKind::Lbrace
            | TokenKind::FStringStart
            | TokenKind::TStringStart => {
                level.operators += 1;
                depth += 1;
                outer.push(level);
                level = BracketLevel::default();
            }
            TokenKind::Rpar
            | TokenKind::Rsqb
            | TokenKind::Rbrace
            | TokenKind::FStringEnd
            | TokenKind::TStringEnd => {
                depth -= level.operators + level.lambdas;
                level = outer.pop().ok_or("the code has a closing bracket without an opening one")?;
            }
            TokenKind::Lambda => {
                level.lambdas += 1;
                depth += 1;
            }
            TokenKind::Name
            | TokenKind::Int
            | TokenKind::Float
            | TokenKind::Complex
            | TokenKind::String
            | TokenKind::FStringMiddle
            | TokenKind::TStringMiddle
            | TokenKind::Comment
            | TokenKind::NonLogicalNewline
            | TokenKind::IpyEscapeCommand => {}
            // Operators, and keywords, since some of them are operators (`not`, `if`).
            _ => {
                level.operators += 1;
                depth += 1;
            }
        }
        if depth > MAX_DEPTH {
            return Err(format!(
                "an expression has more than {MAX_DEPTH} nested operators and brackets, so the code is not parsed"
            ));
        }
        if blocks > MAX_BLOCKS {
            return Err(format!("the code has more than {MAX_BLOCKS} nested blocks, so it is not parsed"));
        }
    }
}
