//! Checks the pattern of a `capture`: the pattern alone must determine which part of a text is captured, so that no
//! author of a part of the text can choose another part. The compiler of [targets](super::target) calls [`check`].
//!
//! A pattern of `capture` passes if the part before the group has a fixed length. A pattern of `capture_line` passes if
//! the number of lines before the group, or after it, is fixed; this relies on the tool to write each value on one
//! line.

use regex_syntax::hir::{Capture, Hir, HirKind};

/// The property of the tool that a capture relies on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CaptureReliance {
    /// Nothing: every byte before the group is counted.
    Nothing,
    /// The tool writes no line break into the values around the group.
    Lines,
}

/// The advice for a pattern of `capture`.
const FIXED_LENGTH: &str = "give the part before the group a fixed length, and the group a maximum length, since the author of an \
                            open-ended part could choose what the group is; if the tool writes each value on a line of its own, \
                            use `capture_line`, which counts lines";
/// The advice for a pattern of `capture_line`.
const FIXED_LINES: &str = "fix the number of lines before the group or after it, so write `[^\\n]*` and not `.*` in them; give the part \
                           of its line before the group a fixed length, and the group a maximum length and no line break";

/// Checks that the author of a text cannot choose where the group named `group` is when the text matches the pattern.
/// `reliance` states which property of the tool the capture relies on:
///
/// * [`CaptureReliance::Nothing`]: everything before the group must have a fixed length.
/// * [`CaptureReliance::Lines`]: the number of line breaks before the group or after it must be fixed, the group must
///   be within one line, and the part of its line before it must have a fixed length.
///
/// In both cases, the group needs a maximum length, and must not be nested in another part of the pattern.
///
/// # Errors
/// The advice how to write the pattern instead.
pub(super) fn check(pattern: &str, group: &str, reliance: CaptureReliance) -> Result<(), &'static str> {
    let help = match reliance {
        CaptureReliance::Nothing => FIXED_LENGTH,
        CaptureReliance::Lines => FIXED_LINES,
    };
    // `.` matches a line break too, as when the pattern is applied to a text.
    let mut parser = regex_syntax::ParserBuilder::new().dot_matches_new_line(true).build();
    let parsed = parser.parse(pattern).map_err(|_| help)?;
    let is_group = |part: &Hir| match part.kind() {
        HirKind::Capture(Capture { name: Some(name), .. }) => **name == *group,
        _ => false,
    };
    // The pattern as a sequence of parts. The group must be one of them, so that what is before it is known.
    let parts = match parsed.kind() {
        HirKind::Concat(parts) => parts.as_slice(),
        _ => std::slice::from_ref(&parsed),
    };
    let position = parts.iter().position(is_group).ok_or(help)?;
    let (before, rest) = parts.split_at(position);
    let (group_part, after) = rest.split_first().ok_or(help)?;
    let is_fixed = match reliance {
        CaptureReliance::Nothing => before.iter().all(has_fixed_length),
        CaptureReliance::Lines => {
            let is_counted = |parts: &[Hir]| parts.iter().all(|part| line_breaks(part).is_some());
            (is_counted(before) || is_counted(after))
                && line_breaks(group_part) == Some(0)
                && has_fixed_beginning_of_line(before)
        }
    };
    if is_fixed && group_part.properties().maximum_len().is_some() { Ok(()) } else { Err(help) }
}

/// Returns whether all texts that a part of a pattern matches have the same length.
fn has_fixed_length(part: &Hir) -> bool {
    let length = part.properties().minimum_len();
    length.is_some() && length == part.properties().maximum_len()
}

/// Returns whether the part of the group's own line that precedes the group has a fixed length. `before` are the parts
/// of the pattern before the group.
fn has_fixed_beginning_of_line(before: &[Hir]) -> bool {
    // The line begins within the last of these parts that may contain a line break, so that part counts as well.
    let own_line = before.iter().rposition(|part| line_breaks(part) != Some(0)).unwrap_or(0);
    before.get(own_line..).unwrap_or_default().iter().all(has_fixed_length)
}

/// Returns the number of line breaks in every text that a part of a pattern matches. `None` if texts with different
/// numbers match, since the author of the text could then choose on which line the next part is.
fn line_breaks(part: &Hir) -> Option<usize> {
    match part.kind() {
        HirKind::Empty | HirKind::Look(_) => Some(0),
        HirKind::Literal(literal) => Some(literal.0.iter().filter(|byte| **byte == b'\n').count()),
        HirKind::Class(_) if !matches_line_break(part) => Some(0),
        // A class that matches line breaks and other characters has no fixed number.
        HirKind::Class(_) => {
            (part.properties().maximum_len() == Some(1) && is_line_break_only(part)).then_some(1)
        }
        HirKind::Capture(capture) => line_breaks(&capture.sub),
        HirKind::Concat(parts) => parts.iter().map(line_breaks).sum(),
        HirKind::Alternation(parts) => {
            let mut counts = parts.iter().map(line_breaks);
            let first = counts.next()??;
            counts.all(|count| count == Some(first)).then_some(first)
        }
        HirKind::Repetition(repetition) => match line_breaks(&repetition.sub)? {
            0 => Some(0),
            count if repetition.max == Some(repetition.min) => {
                count.checked_mul(usize::try_from(repetition.min).ok()?)
            }
            _ => None,
        },
    }
}

/// Returns the ranges of a character class, each as its first and last code point (or byte). Empty for any other part
/// of a pattern.
fn ranges_of(part: &Hir) -> Vec<(u32, u32)> {
    match part.kind() {
        HirKind::Class(regex_syntax::hir::Class::Unicode(class)) => {
            class.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
        HirKind::Class(regex_syntax::hir::Class::Bytes(class)) => {
            class.ranges().iter().map(|range| (range.start().into(), range.end().into())).collect()
        }
        _ => Vec::new(),
    }
}

/// Returns whether a character class contains the line break.
fn matches_line_break(class: &Hir) -> bool {
    let line_break = u32::from('\n');
    ranges_of(class).iter().any(|(first, last)| (*first..=*last).contains(&line_break))
}

/// Returns whether a character class consists of the line break alone.
fn is_line_break_only(class: &Hir) -> bool {
    let line_break = u32::from('\n');
    ranges_of(class) == [(line_break, line_break)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_author_of_the_pattern_determines_where_the_group_is() {
        let check = |pattern: &str, by_length: bool, by_lines: bool| {
            let is_fixed = |reliance| super::check(pattern, "g", reliance).is_ok();
            assert_eq!(is_fixed(CaptureReliance::Nothing), by_length, "{pattern} by length");
            assert_eq!(is_fixed(CaptureReliance::Lines), by_lines, "{pattern} by lines");
        };
        check(r"Rating: (?<g>[0-9])\n.*", true, true);
        check(r"(?<g>[0-9]{1,9})", true, true);
        // An open-ended value before the group, on a line of its own.
        check(r"Name: [^\n]*\nRating: (?<g>[0-9])\n.*", false, true);
        check(r"Name: [^\n]*\n(Stars: [^\n]*|Price: [0-9]+)\nRating: (?<g>[0-9])\n.*", false, true);
        // The lines after the group are counted.
        check(r".*\nid: (?<g>[0-9]{1,9})\nowner: [^\n]*\nsize: [0-9]+", false, true);
        check(r".*\nid: (?<g>[0-9]{1,9})(\n[^\n]*){3}", false, true);
        // Neither is counted.
        check(r"Name: .*\nRating: (?<g>[0-9])\n.*", false, false);
        check(r".*\nid: (?<g>[0-9])\n.*", false, false);
        check(r".*\nid: (?<g>[0-9])(\n[^\n]*)*", false, false);
        check(r"(a\n|b)*\nRating: (?<g>[0-9])\n.*", false, false);
        check(r"(a\n|b)x: (?<g>[0-9])\n.*", false, false);
        check(r"(x|a\nb)\nRating: (?<g>[0-9])\n.*", false, false);
        // The author of the value on the group's own line could choose it.
        check(r"Name: [^\n]*(?<g>[0-9])\n.*", false, false);
        check(r"Name: [^\n]*, (?<g>[0-9])\nsize: [0-9]+", false, false);
        // The group itself has no end, or contains a line break.
        check(r"Rating: (?<g>[0-9]+)", false, false);
        check(r"Rating: (?<g>.{1,9})\nx", true, false);
        check(r"Rating: (?<g>[0-9]\n?)x", true, false);
        // A line break by another name.
        check(r"Name: \P{L}*\nRating: (?<g>[0-9])\n.*", false, false);
        check(r"Name: [^\n]*\x0ARating: (?<g>[0-9])\n.*", false, true);
        check(r"Name: [^\n]*[\n]Rating: (?<g>[0-9])\n.*", false, true);
        check(r"Name: [a-z\s]*\nRating: (?<g>[0-9])\n.*", false, false);
    }
}
