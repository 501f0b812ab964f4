//! Compiles and matches regular expressions in policies, with Python's syntax and semantics. The compiler compiles
//! constant patterns, and the evaluator searches texts with them.
//!
//! Most patterns are compiled to an automaton, which searches in time linear in the text. Look-around, back-references
//! and atomic groups need backtracking: such patterns run under a limit, and a search that exceeds it is an error.

use std::borrow::Cow;
use std::ops::Range;

use regex::RegexBuilder;
use regex_syntax::hir::{Class, Hir, HirKind};

use crate::value::EvalError;

/// Maximum memory of one compiled regular expression, in bytes.
pub(crate) const SIZE: usize = 8 << 20;
/// Maximum number of attempts of one search by backtracking.
const BACKTRACKS: usize = 100_000;
/// Maximum length of a text that is searched by backtracking, in bytes.
const MAX_TRIED: usize = 64_000;

/// A compiled regular expression.
#[derive(Debug, Clone)]
pub(crate) struct Pattern {
    program: Program,
    /// The program for texts that end with a line break; `None` if `program` serves these, too. A pattern with `$` has
    /// one, since Python's `$` also matches before a final line break.
    before_break: Option<fancy_regex::Regex>,
}

/// A compiled pattern, by the kind of its search: in linear time, or by backtracking.
#[derive(Debug, Clone)]
enum Program {
    Linear(regex::Regex),
    Backtracking(fancy_regex::Regex),
}

/// The program that searches one text.
enum TextSearcher<'p> {
    Linear(&'p regex::Regex),
    Backtracking(&'p fancy_regex::Regex),
}

/// The meaning of `$`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EndAnchor {
    /// The end of the text.
    OfText,
    /// The end of the text, or before a final line break.
    Python,
}

/// The part of a text that a pattern must match.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MatchExtent {
    /// The whole text, line breaks included.
    Whole,
    /// As in invariant-ai: from the start, with only the last alternative anchored at the end.
    CompatWhole,
    /// From the start of the text.
    Start,
    /// Any part of the text.
    Anywhere,
}

impl Pattern {
    /// Compiles a pattern: to an automaton if that is possible, otherwise for backtracking. `extent` states which part
    /// of a text the pattern must match. A pattern with `$` gets a second program for texts that end with a line break,
    /// before which Python's `$` matches too. A pattern for the whole text needs none: its match must include the line
    /// break.
    ///
    /// # Errors
    /// What is wrong with the pattern, on one line.
    pub(crate) fn new(source: &str, extent: MatchExtent) -> Result<Self, String> {
        let may_match_before_break = has_end_anchor(source) && extent != MatchExtent::Whole;
        let before_break = if may_match_before_break {
            Some(backtracking(source, extent, EndAnchor::Python)?)
        } else {
            None
        };
        let (text, dot_all) = anchor_pattern(source, extent, EndAnchor::OfText);
        let linear = RegexBuilder::new(&text).size_limit(SIZE).dot_matches_new_line(dot_all).build();
        let program = match linear {
            Ok(regex) => Program::Linear(regex),
            // Backtracking would not help: the pattern is malformed or too large.
            Err(error) if !needs_backtracking(source) => return Err(describe(&error)),
            Err(_) => Program::Backtracking(backtracking(source, extent, EndAnchor::OfText)?),
        };
        Ok(Self { program, before_break })
    }

    /// Returns the program that searches a text: `before_break` for a text that ends with a line break, if the pattern
    /// has this second program, and otherwise `program`.
    fn program(&self, text: &str) -> TextSearcher<'_> {
        match (&self.before_break, &self.program) {
            (Some(regex), _) if text.ends_with('\n') => TextSearcher::Backtracking(regex),
            (_, Program::Backtracking(regex)) => TextSearcher::Backtracking(regex),
            (_, Program::Linear(regex)) => TextSearcher::Linear(regex),
        }
    }

    /// Returns the fuel for one search of a text, which the caller spends before the search. One unit of fuel pays for
    /// the time in which an automaton reads 16 bytes.
    pub(crate) fn cost(&self, text: &str) -> usize {
        match (&self.program, self.program(text)) {
            (_, TextSearcher::Linear(_)) => text.len() / 16,
            // The program `before_break` of a pattern that otherwise needs no backtracking. It may run an instruction
            // at each byte, which takes longer than an automaton: one unit pays for one byte. Only `$` looks around
            // here, by at most two bytes, so an attempt reads little: one unit pays for 16 attempts.
            (Program::Linear(_), TextSearcher::Backtracking(_)) => text.len() + BACKTRACKS / 16,
            // `BACKTRACKS` limits the number of attempts, but not how much each one reads. Look-around may read the
            // whole text at every position, so the cost is quadratic: one unit pays for 1024 pairs of positions.
            (Program::Backtracking(_), _) => text.len().saturating_mul(text.len()) / 1024 + text.len() / 16,
        }
    }

    /// Returns the fuel for the search for a further match in a text, after a match that ends at the byte `end`. The
    /// search may read all bytes after `end`, or find the next match at once, so it costs a quarter of a first search
    /// of these bytes. With a pattern that needs backtracking, it costs what the maximum number of attempts costs,
    /// whatever the length.
    pub(crate) fn cost_after_match(&self, text: &str, end: usize) -> usize {
        let left = text.len().saturating_sub(end);
        match (&self.program, self.program(text)) {
            (_, TextSearcher::Linear(_)) => left / 64,
            (Program::Linear(_), TextSearcher::Backtracking(_)) => (left + BACKTRACKS / 16) / 4,
            (Program::Backtracking(_), _) => BACKTRACKS / 16,
        }
    }

    /// Returns whether the text matches.
    ///
    /// # Errors
    /// If the text is searched by backtracking, and is too long for that or needs too many attempts.
    pub(crate) fn is_match(&self, text: &str) -> Result<bool, EvalError> {
        match self.program(text) {
            TextSearcher::Linear(regex) => Ok(regex.is_match(text)),
            TextSearcher::Backtracking(_) if text.len() > MAX_TRIED => Err(backtracking_limit_error()),
            TextSearcher::Backtracking(regex) => regex.is_match(text).map_err(|_| backtracking_limit_error()),
        }
    }

    /// Returns the byte ranges of successive matches, at most `limit` of them.
    ///
    /// # Errors
    /// If the text is searched by backtracking, and is too long for that or needs too many attempts.
    pub(crate) fn find(&self, text: &str, limit: usize) -> Result<Vec<Range<usize>>, EvalError> {
        match self.program(text) {
            TextSearcher::Linear(regex) => {
                Ok(regex.find_iter(text).take(limit).map(|found| found.range()).collect())
            }
            TextSearcher::Backtracking(_) if text.len() > MAX_TRIED => Err(backtracking_limit_error()),
            TextSearcher::Backtracking(regex) => regex
                .find_iter(text)
                .take(limit)
                .map(|found| found.map(|found| found.range()).map_err(|_| backtracking_limit_error()))
                .collect(),
        }
    }
}

/// Translates a pattern to the syntax of the Rust libraries, and adds anchors for `extent`, the part of a text that the
/// pattern must match. `end` is the meaning of `$`. Returns the result, and whether `.` in it matches line breaks.
fn anchor_pattern(source: &str, extent: MatchExtent, end: EndAnchor) -> (String, bool) {
    let translated = translate(source, end);
    match extent {
        MatchExtent::Whole => (format!(r"\A(?:{translated})\z"), true),
        // invariant-ai appends the end of the text without parentheses, so it belongs to the last alternative only.
        MatchExtent::CompatWhole => (format!(r"\A(?:{translated}(?:\n?\z))"), true),
        MatchExtent::Start => (format!(r"\A(?:{translated})"), false),
        MatchExtent::Anywhere => (translated.into_owned(), false),
    }
}

/// Compiles a pattern to a program that searches by backtracking, with a limit on its attempts. An error is on one
/// line.
fn backtracking(source: &str, extent: MatchExtent, end: EndAnchor) -> Result<fancy_regex::Regex, String> {
    let (text, dot_all) = anchor_pattern(source, extent, end);
    let text = if dot_all { format!("(?s:{text})") } else { text };
    let builder =
        fancy_regex::RegexBuilder::new(&text).backtrack_limit(BACKTRACKS).delegate_size_limit(SIZE).build();
    builder.map_err(|error| error.to_string().replace('\n', " "))
}

/// Returns the error of a search by backtracking that exceeds a limit: on the length of the text, or on its attempts.
fn backtracking_limit_error() -> EvalError {
    EvalError::Type(format!(
        "the search for the pattern needs backtracking, and exceeded the limit on the length of the text \
             ({MAX_TRIED} bytes) or on attempts; write the pattern without look-around, back-references, atomic \
             groups and `$`"
    ))
}

/// Returns why a pattern does not compile, on one line. That is the last line of the message of the `regex` library;
/// the lines before it repeat the pattern.
pub(crate) fn describe(error: &regex::Error) -> String {
    if matches!(error, regex::Error::CompiledTooBig(_)) {
        return "it is too large after its repetitions are expanded".to_owned();
    }
    let text = error.to_string();
    let last = text.lines().last().unwrap_or("malformed");
    last.trim_start_matches("error: ").to_owned()
}

/// Returns whether a pattern seems to have look-around, back-references or atomic groups. This is a search for their
/// spellings: it is wrongly true for an escaped backslash before a digit, and for `(?=` within a class. That is
/// harmless, since the caller asks only about a pattern that cannot become an automaton, and then tries to compile it
/// for backtracking.
fn needs_backtracking(source: &str) -> bool {
    let has_group = ["(?=", "(?!", "(?<=", "(?<!", "(?P=", "(?>"].iter().any(|group| source.contains(group));
    let reference = |pair: &[u8]| matches!(pair, [b'\\', b'1'..=b'9']);
    has_group || source.as_bytes().windows(2).any(reference)
}

/// Returns the weight of a pattern, an estimate of its size when compiled: approximately the number of its character
/// ranges after repetitions are expanded. The compiler limits the total weight of a policy's patterns.
pub(crate) fn weight(source: &str) -> usize {
    /// Returns the weight of a part of a parsed pattern.
    fn hir_weight(hir: &Hir) -> usize {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => 1,
            HirKind::Literal(literal) => literal.0.len(),
            HirKind::Class(Class::Unicode(class)) => class.ranges().len(),
            HirKind::Class(Class::Bytes(class)) => class.ranges().len(),
            HirKind::Repetition(repetition) => {
                // A repetition without a maximum is compiled as its minimum and a loop. The weight is at least that of
                // one repetition, so that `x*` and `x{0}` are not free.
                let times = repetition.max.unwrap_or(repetition.min).max(1);
                hir_weight(&repetition.sub).saturating_mul(usize::try_from(times).unwrap_or(usize::MAX))
            }
            HirKind::Capture(capture) => hir_weight(&capture.sub),
            HirKind::Concat(parts) | HirKind::Alternation(parts) => {
                parts.iter().map(hir_weight).fold(1, usize::saturating_add)
            }
        }
    }
    // `regex_syntax` does not accept look-around. The compiled size of such a pattern has a limit of its own, so a
    // rough estimate suffices: 64 for each byte.
    regex_syntax::parse(&translate(source, EndAnchor::OfText))
        .map_or(source.len().saturating_mul(64), |hir| hir_weight(&hir))
}

/// Parses a pattern that must match a whole text; `None` if it is malformed or has look-around.
pub(crate) fn parse_whole(source: &str) -> Option<Hir> {
    let mut parser = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build();
    parser.parse(&translate(source, EndAnchor::OfText)).ok()
}

/// Returns whether a text is a valid pattern, even if it is too large.
pub(crate) fn is_pattern(source: &str) -> bool {
    regex_syntax::parse(&translate(source, EndAnchor::OfText)).is_ok()
}

/// Returns whether a pattern contains a `$` that matches only at the end of the text. With the flag `m`, `$` matches at
/// the end of each line; if any part of the pattern has this flag, the result is false for the whole pattern.
fn has_end_anchor(source: &str) -> bool {
    let is_per_line = source
        .split("(?")
        .skip(1)
        .any(|group| group.chars().take_while(char::is_ascii_alphabetic).any(|c| c == 'm'));
    !is_per_line && translate(source, EndAnchor::Python) != translate(source, EndAnchor::OfText)
}

/// Rewrites a pattern from Python's syntax to that of the Rust libraries. The two differ in `\Z`, `\<`, white space
/// (`\s`), a brace that begins no repetition, and brackets and operators within a class such as `[a-z]`. With
/// [`EndAnchor::Python`], `$` also matches before a final line break.
fn translate(source: &str, end: EndAnchor) -> Cow<'_, str> {
    let mut out = String::with_capacity(source.len());
    // Whether the current character is within a class.
    let mut in_class = false;
    let mut rest = source.char_indices().peekable();
    while let Some((at, c)) = rest.next() {
        let tail = source.get(at + c.len_utf8()..).unwrap_or_default();
        match c {
            '$' if !in_class && end == EndAnchor::Python => out.push_str(r"(?=\n?\z)"),
            '\\' => match rest.next() {
                Some((_, 'Z')) if !in_class => out.push_str(r"\z"),
                // Python counts the separators of files, groups, records and units (0x1c to 0x1f) as white space.
                Some((_, 's')) if in_class => out.push_str(r"\s\x1c-\x1f"),
                Some((_, 's')) => out.push_str(r"[\s\x1c-\x1f]"),
                Some((_, 'S')) => out.push_str(r"[^\s\x1c-\x1f]"),
                // In the libraries, `\<` and `\>` are the ends of a word; in Python, they are the plain characters.
                Some((_, c @ ('<' | '>'))) => out.push(c),
                Some((_, c)) => out.extend(['\\', c]),
                None => out.push('\\'),
            },
            // A named class such as `[:alpha:]` is left as it is. Python has none, and reads single characters here.
            '[' if in_class && tail.starts_with(':') => out.push('['),
            '[' if in_class => out.push_str(r"\["),
            '[' => {
                in_class = true;
                out.push('[');
                // A bracket at the start of a class is a member of it.
                if let Some((_, '^')) = rest.peek() {
                    rest.next();
                    out.push('^');
                }
                if let Some((_, ']')) = rest.peek() {
                    rest.next();
                    out.push_str(r"\]");
                }
            }
            ']' => {
                in_class = false;
                out.push(']');
            }
            // In a class, `&&`, `~~` and `--` are operators of the libraries, but plain characters in Python.
            '&' | '~' if in_class && tail.starts_with(c) => out.extend(['\\', c]),
            // Of `--` in a class, one hyphen is escaped, and the other one may denote a range. The escaped one is the
            // second or, at the beginning of the class, the first.
            '-' if in_class && out.ends_with('-') && !out.ends_with(r"\-") => out.push_str(r"\-"),
            '-' if in_class && tail.starts_with('-') && out.ends_with(['[', '^']) => out.push_str(r"\-"),
            '{' if !in_class && !is_repetition(tail) => out.push_str(r"\{"),
            // In Python, a missing lower bound is 0.
            '{' if !in_class && tail.starts_with(',') => out.push_str("{0"),
            c => out.push(c),
        }
    }
    if out == source { Cow::Borrowed(source) } else { Cow::Owned(out) }
}

/// Returns whether the text after a brace is the rest of a repetition: `2}`, `2,}`, `,2}`, `2,3}`, or `,}` (without
/// bounds).
fn is_repetition(tail: &str) -> bool {
    let Some((inside, _)) = tail.split_once('}') else { return false };
    // True for an empty text as well, since a bound may be left out.
    let digits = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    match inside.split_once(',') {
        Some((least, most)) => digits(least) && digits(most),
        None => digits(inside) && !inside.is_empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Such a text is searched by backtracking, which costs more than the bytes that an automaton reads.
    #[test]
    fn a_further_match_of_an_end_anchor_costs_what_backtracking_costs() {
        let pattern = Pattern::new("a$", MatchExtent::Anywhere).unwrap();
        assert_eq!(pattern.cost_after_match("aaaa", 1), 0);
        assert!(pattern.cost_after_match("aaa\n", 1) >= BACKTRACKS / 64);
    }

    #[test]
    fn patterns_mean_what_they_mean_in_python() {
        let check = |pattern: &str, extent: MatchExtent, text: &str, expected: bool| {
            let compiled = Pattern::new(pattern, extent).unwrap();
            assert_eq!(compiled.is_match(text), Ok(expected), "{pattern} {text:?}");
        };
        check("^(?!Peter$).*$", MatchExtent::Whole, "Attacker", true);
        check("^(?!Peter$).*$", MatchExtent::Whole, "Peter", false);
        check("^(?!Peter$).*$", MatchExtent::Whole, "Peter\nAttacker", true);
        check(r"(a+)\1", MatchExtent::Whole, "aaaa", true);
        check("a|ab", MatchExtent::Whole, "ab", true);
        check("b|a", MatchExtent::CompatWhole, "bxx", true);
        check("b|a", MatchExtent::CompatWhole, "axx", false);
        check("a", MatchExtent::CompatWhole, "a\n", true);
        check("a.c", MatchExtent::Whole, "a\nc", true);
        check("a.c", MatchExtent::Anywhere, "a\nc", false);
        check(r"a\Z", MatchExtent::Start, "a", true);
        check(r"\<b\>", MatchExtent::Anywhere, "<b>", true);
        check("{a}", MatchExtent::Whole, "{a}", true);
        check("a{2}", MatchExtent::Whole, "aa", true);
        check("[[]", MatchExtent::Whole, "[", true);
        check("[]a]", MatchExtent::Whole, "]", true);
        check("[^]]", MatchExtent::Whole, "]", false);
        check("[a&&b]", MatchExtent::Whole, "&", true);
        check("(?P<x>a)", MatchExtent::Whole, "a", true);
        check("^a$", MatchExtent::Start, "a\n", true);
        check("^a$", MatchExtent::Start, "a\n\n", false);
        check("^a$", MatchExtent::Whole, "a\n", false);
        check(r"a\$", MatchExtent::Start, "a\n", false);
        check("(?=a)a$", MatchExtent::Anywhere, "a\n", true);
        check("^a{,3}b", MatchExtent::Start, "aab", true);
        check("^a{,1}b", MatchExtent::Start, "aab", false);
        check("^a{,}b", MatchExtent::Start, "aab", true);
        check("(?!.*safe$)", MatchExtent::Start, "safe\n", false);
        check("a(?!$)", MatchExtent::Start, "a\n", false);
        check(r"a$\n", MatchExtent::Start, "a\n", true);
        check(r"[a-z$]+\Z", MatchExtent::Start, "ab\n", false);
        check(r"^foo$(?!\n)", MatchExtent::Start, "foo\n", false);
        check("(?m)^a$", MatchExtent::Start, "a\nb", true);
        check("[+--]x", MatchExtent::Start, "-x", true);
        check("[--a]x", MatchExtent::Start, "Zx", true);
        check("[a-]x", MatchExtent::Start, "-x", true);
        check(r"a\sb", MatchExtent::Start, "a\x1cb", true);
        check(r"a[\s,]b", MatchExtent::Start, "a\x1cb", true);
        check(r"a\Sb", MatchExtent::Start, "a\x1cb", false);
        check(r"a[\S,]b", MatchExtent::Start, "a\x1cb", false);
        check(r"a[\S,]b", MatchExtent::Start, "axb", true);
        check(r"a[^\S]b", MatchExtent::Start, "a\x1cb", true);
        check(r"a[^\S]b", MatchExtent::Start, "axb", false);
        check(r"a[\S](?=b)", MatchExtent::Start, "a\x1cb", false);
        check(r"a[\S](?=b)", MatchExtent::Start, "axb", true);
    }

    #[test]
    fn mistakes_and_limits() {
        assert_eq!(Pattern::new("(", MatchExtent::Whole).unwrap_err(), "unclosed group");
        assert!(Pattern::new("(?=a", MatchExtent::Whole).is_err());
        let bomb = Pattern::new("(?=(a+)+$)b", MatchExtent::Anywhere).unwrap();
        let _ = bomb.is_match(&"a".repeat(5_000));
        let bomb = Pattern::new(r"^(a|aa)+\1c$", MatchExtent::Whole).unwrap();
        assert_eq!(bomb.is_match(&"a".repeat(5_000)), Err(backtracking_limit_error()));
        let long = "a".repeat(MAX_TRIED + 1);
        assert_eq!(
            Pattern::new("(?=a)b", MatchExtent::Anywhere).unwrap().find(&long, 2),
            Err(backtracking_limit_error())
        );
        let found =
            |pattern, text| Pattern::new(pattern, MatchExtent::Anywhere).unwrap().find(text, 2).unwrap();
        assert_eq!(found("a", "aaaa"), [0..1, 1..2]);
        assert_eq!(found("a$", "a\n").first(), Some(&(0..1)));
        assert_eq!(found("password(?=:$)", "password:\n").first(), Some(&(0..8)));
        assert_eq!(found(r"\w+$|\w", "rm\n").first(), Some(&(0..2)));
        assert_eq!(found("a\n?$", "a\n").as_slice(), std::slice::from_ref(&(0..2)));
    }
}
