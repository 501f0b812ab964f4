//! Computes an upper bound on the number of texts that a regular expression matches as a whole. The bound is in bits: n
//! bits mean at most 2^n texts. The compiler uses it for `fullmatch`, so that `endorse` can limit how much information
//! an attacker can put into an endorsed value by choosing one of these texts.

use regex_syntax::hir::{Class, Hir, HirKind};

use super::regex::parse_whole;

/// Returns an upper bound on the number of texts that a pattern matches as a whole, in bits, rounded up. `endorse`
/// judges by it whether a pattern restricts a value enough. `None` if there is no bound of at most 1024 bits, or if the
/// pattern needs look-around.
pub(crate) fn matched_text_bits(pattern: &str) -> Option<u32> {
    let bits = bits_of(&parse_whole(pattern)?)?;
    let mut whole = 0_u32;
    // Rounds up. A bound of more than 1024 bits is as useless as none.
    while f64::from(whole) < bits {
        whole = Some(whole + 1).filter(|whole| *whole <= 1024)?;
    }
    Some(whole)
}

/// Returns an upper bound on the number of texts that a part of a pattern matches, in bits; `None` if it matches
/// infinitely many. Independent choices add their bits: a text of a repetition is determined by the number of items and
/// the choice of each item, and a text of an alternation by the branch and the choice of a text of the branch.
fn bits_of(hir: &Hir) -> Option<f64> {
    match hir.kind() {
        HirKind::Empty | HirKind::Literal(_) | HirKind::Look(_) => Some(0.0),
        HirKind::Class(class) => Some(class_size(class).max(1.0).log2()),
        HirKind::Capture(group) => bits_of(&group.sub),
        HirKind::Repetition(repeated) => {
            let (most, one) = (repeated.max?, bits_of(&repeated.sub)?);
            // The number of choices for how many items the repetition has.
            let lengths = f64::from(most.saturating_sub(repeated.min)) + 1.0;
            Some(f64::from(most) * one + lengths.log2())
        }
        HirKind::Concat(parts) => parts.iter().map(bits_of).sum(),
        HirKind::Alternation(parts) => {
            // A bound on the sum over the branches: their number times the largest.
            let branches: Vec<f64> = parts.iter().map(bits_of).collect::<Option<_>>()?;
            let most = branches.iter().copied().fold(0.0, f64::max);
            // The number of branches, as a floating-point number.
            let count: f64 = branches.iter().map(|_| 1.0).sum();
            Some(most + count.max(1.0).log2())
        }
    }
}

/// Returns the number of characters in a class, as a floating-point number for its logarithm.
fn class_size(class: &Class) -> f64 {
    match class {
        Class::Unicode(class) => class
            .ranges()
            .iter()
            .map(|range| f64::from(u32::from(range.end()) - u32::from(range.start())) + 1.0)
            .sum(),
        Class::Bytes(class) => {
            class.ranges().iter().map(|range| f64::from(range.end() - range.start()) + 1.0).sum()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bound_is_at_least_the_number_of_texts() {
        for (pattern, bits) in [
            ("abc", Some(0)),
            ("", Some(0)),
            ("[01]", Some(1)),
            ("[0-9]{6}", Some(20)),
            ("[A-Z]{2}[0-9]{3,4}", Some(24)),
            ("(red|green|blue)", Some(2)),
            ("a?", Some(1)),
            ("(?:[ab]|[abcd])", Some(2)),
            ("(?<code>[a-f0-9]{8})", Some(32)),
            (r"\d", Some(10)),
            ("[a-z]+", None),
            ("[a-z]*", None),
            (".{5,}", None),
            ("(?=a)b", None),
            ("[a-z]{10000}", None),
        ] {
            assert_eq!(matched_text_bits(pattern), bits, "{pattern}");
        }
    }
}
