//! Computes how the risk of a violation divides into the risks on open and on closed channels, and an upper bound on violations that take effect
//! (AgentSecBench, section 3.5: Lemma 1 and Theorem 1). A channel is open if the model can see the marker or the forbidden tool.
//!
//! The formulas separate two ways to prevent harm. A defence can close the channel, which hides the attack from the model. A validator, which in
//! Flowgate is the monitor, can stop what the model proposes. [`figures`](super::figures) computes the bound from measured rates.

/// Returns the risk of a violation as Theorem 1 of AgentSecBench decomposes it: p·r_open + (1 - p)·r_closed. Here p is
/// the share of open channels, from 0 to 1, and r_open and r_closed are the risks on open and on closed channels. A
/// risk is `None` if no channel of its kind was observed. The result is `None` if a risk is `None` although the share
/// of its channels is above 0.
pub fn decomposed_risk(open_share: f64, open_risk: Option<f64>, closed_risk: Option<f64>) -> Option<f64> {
    let term =
        |share: f64, risk: Option<f64>| if share > 0.0 { risk.map(|risk| share * risk) } else { Some(0.0) };
    Some(term(open_share, open_risk)? + term(1.0 - open_share, closed_risk)?)
}

/// Returns the upper bound of AgentSecBench's Theorem 1 on the share of executions in which a violation takes effect: ν·(p·r_open + (1 - p)·ε).
/// ν is the share of violations that the validator misses, p the share of open channels, and r_open the risk on open channels. ε, `invention`,
/// bounds the probability that the model invents a target that it does not see (Lemma 1). `None` if some channel is open and `open_risk` is `None`.
pub fn composed_bound(
    validator_false_negatives: f64,
    open_share: f64,
    open_risk: Option<f64>,
    invention: f64,
) -> Option<f64> {
    decomposed_risk(open_share, open_risk, Some(invention)).map(|risk| validator_false_negatives * risk)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::interval::Rate;
    use super::*;

    proptest! {
        /// Theorem 1 over any outcomes: the decomposition equals the risk, and with the measured rates the bound covers the
        /// executed risk.
        #[test]
        fn the_decomposition_is_exact_and_the_bound_holds(
            outcomes in proptest::collection::vec((any::<bool>(), any::<bool>(), any::<bool>()), 1..40),
        ) {
            // An effect without a violation is impossible.
            let outcomes: Vec<(bool, bool, bool)> =
                outcomes.into_iter().map(|(open, violated, runs)| (open, violated, violated && runs)).collect();
            let open = Rate::of(&outcomes, |outcome| outcome.0).value().unwrap();
            let among = |is_open: bool| {
                Rate::of(outcomes.iter().filter(|outcome| outcome.0 == is_open), |outcome| outcome.1).value()
            };
            let risk = Rate::of(&outcomes, |outcome| outcome.1).value().unwrap();
            let decomposed = decomposed_risk(open, among(true), among(false)).unwrap();
            prop_assert!((decomposed - risk).abs() < 1e-9);
            let executed = Rate::of(&outcomes, |outcome| outcome.2).value().unwrap();
            let missed = Rate::of(outcomes.iter().filter(|outcome| outcome.1), |outcome| outcome.2);
            let missed = missed.value().unwrap_or(0.0);
            let bound = composed_bound(missed, open, among(true), among(false).unwrap_or(0.0)).unwrap();
            prop_assert!(executed <= bound + 1e-9, "{} {}", executed, bound);
        }
    }

    #[test]
    fn a_risk_that_was_not_observed_is_not_needed_where_its_share_is_zero() {
        assert_eq!(decomposed_risk(1.0, Some(0.5), None), Some(0.5));
        assert_eq!(decomposed_risk(0.0, None, Some(0.25)), Some(0.25));
        assert_eq!(decomposed_risk(0.5, None, Some(0.25)), None);
        // The validator's factor applies to both terms.
        assert_eq!(composed_bound(0.5, 0.5, Some(1.0), 0.5), Some(0.375));
        assert_eq!(composed_bound(0.0, 1.0, Some(1.0), 0.0), Some(0.0));
    }
}
