//! Computes ROUGE-L, by which Table 4 of *Permissive Information-Flow Analysis* compares two answers: the F-score of
//! their longest common subsequence of words (Lin, 2004). `regenerate.rs` calls [`rouge_l`].

/// Returns the F-score of two texts, from 0 to 1. It is twice the length of their longest common subsequence of words,
/// divided by the number of words of both texts together. Case and punctuation at the ends of words are ignored. The
/// score is 1 if neither text has a word.
pub fn rouge_l(candidate: &str, reference: &str) -> f64 {
    let words = |text: &str| -> Vec<String> {
        let words = text.split_whitespace().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        words.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
    };
    let (candidate, reference) = (words(candidate), words(reference));
    if candidate.is_empty() && reference.is_empty() {
        return 1.0;
    }
    let common = longest_common_subsequence(&candidate, &reference) as f64;
    2.0 * common / (candidate.len() + reference.len()) as f64
}

/// Returns the length of the longest common subsequence of two lists, by dynamic programming. The table has a row for
/// each word of `a` and a column for each word of `b`. Only the last row is stored; each row overwrites the one before.
fn longest_common_subsequence(a: &[String], b: &[String]) -> usize {
    let mut row = vec![0; b.len() + 1];
    for word in a {
        // The cells at the upper left and at the left of the current one.
        let mut diagonal = 0;
        let mut left = 0;
        for (cell, other) in row.iter_mut().skip(1).zip(b) {
            let above = *cell;
            *cell = if word == other { diagonal + 1 } else { above.max(left) };
            (diagonal, left) = (above, *cell);
        }
    }
    row.last().copied().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::rouge_l;

    /// Reference values: the definition by hand, with F = 2 LCS / (m + n).
    #[test]
    fn scores_have_reference_values() {
        let check = |candidate: &str, reference: &str, expected: f64| {
            assert!((rouge_l(candidate, reference) - expected).abs() < 1e-12, "{candidate} {reference}");
        };
        check("police killed the gunman", "police kill the gunman", 0.75);
        check("the gunman kill police", "police kill the gunman", 0.5);
        check("a b c", "c b a", 1.0 / 3.0);
        check("A, b.", "a b", 1.0);
        check("a", "", 0.0);
        check("", "", 1.0);
    }
}
