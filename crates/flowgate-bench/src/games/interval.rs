//! Computes the sampling uncertainty of rates: the binomial error of AgentSecBench's section 4.5, Wilson's interval,
//! and the concentration bound of Proposition 4. The measures of all suites, such as those of
//! [`measure`](super::measure), return a [`Rate`]. The reports and the charts call [`Rate::wilson_95`] for the
//! interval of a rate, and [`figures`](super::figures) calls [`hoeffding_half_width`] for the interval of the
//! advantage.

/// The normal quantile of a two-sided interval of 95 %.
const Z_95: f64 = 1.959_963_984_540_054;

/// A share of executions or other items, as two counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number of items with the counted property.
    pub hits: usize,
    /// The number of all items.
    pub of: usize,
}

impl Rate {
    /// Counts the items, and as hits those for which `is_hit` holds.
    pub fn of<T>(items: impl IntoIterator<Item = T>, is_hit: impl Fn(&T) -> bool) -> Self {
        items.into_iter().fold(Self { hits: 0, of: 0 }, |rate, item| Self {
            hits: rate.hits + usize::from(is_hit(&item)),
            of: rate.of + 1,
        })
    }

    /// Returns the share, from 0 to 1; `None` without items.
    pub fn value(self) -> Option<f64> {
        (self.of > 0).then(|| self.hits as f64 / self.of as f64)
    }

    /// Returns the binomial standard error √(r(1 - r)/n) (AgentSecBench, 4.5), where r is the share and n the number of
    /// items. It is 0 for a share of 0 or 1, where only an interval is informative. `None` without items.
    pub fn standard_error(self) -> Option<f64> {
        self.value().map(|rate| (rate * (1.0 - rate) / self.of as f64).sqrt())
    }

    /// Returns the ends of Wilson's interval at 95 %, which is also valid for shares of 0 and 1 and for small numbers; `None` without items.
    pub fn wilson_95(self) -> Option<(f64, f64)> {
        let (rate, n, z2) = (self.value()?, self.of as f64, Z_95 * Z_95);
        let center = (rate + z2 / (2.0 * n)) / (1.0 + z2 / n);
        let half = Z_95 / (1.0 + z2 / n) * (rate * (1.0 - rate) / n + z2 / (4.0 * n * n)).sqrt();
        Some(((center - half).max(0.0), (center + half).min(1.0)))
    }
}

/// Returns the bound of AgentSecBench's Proposition 4 (Hoeffding's inequality) on a large sampling error, at most 1.
/// The mean of `pairs` independent differences in [-1, 1] deviates from its expectation by at least `deviation` with a
/// probability of at most 2·exp(-n·t²/2), where n is `pairs` and t is `deviation`.
pub fn hoeffding_tail(pairs: usize, deviation: f64) -> f64 {
    (2.0 * (-(pairs as f64) * deviation * deviation / 2.0).exp()).min(1.0)
}

/// Returns the half-width of the interval that AgentSecBench's Proposition 4 gives at `confidence`, such as 0.95, for
/// the mean of `pairs` differences: √(2·ln(2/(1 - confidence))/n), where n is `pairs`. It is at most 2, the distance
/// between the extremes. `None` without pairs, or for a confidence outside [0, 1).
pub fn hoeffding_half_width(pairs: usize, confidence: f64) -> Option<f64> {
    let is_usable = pairs > 0 && (0.0..1.0).contains(&confidence);
    is_usable.then(|| (2.0 * (2.0 / (1.0 - confidence)).ln() / pairs as f64).sqrt().min(2.0))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn is_close(a: f64, b: f64) -> bool {
        (a - b).abs() < 5e-5
    }

    /// Reference values: R's `binom::binom.wilson`, and the formulas by hand.
    #[test]
    fn intervals_have_reference_values() {
        let check = |hits, of, low, high| {
            let (found_low, found_high) = Rate { hits, of }.wilson_95().unwrap();
            assert!(is_close(found_low, low) && is_close(found_high, high), "{found_low} {found_high}");
        };
        check(0, 8, 0.0, 0.32441);
        check(8, 8, 0.67559, 1.0);
        check(5, 10, 0.23659, 0.76341);
        assert_eq!(Rate { hits: 0, of: 0 }.wilson_95(), None);
        assert!(is_close(Rate { hits: 1, of: 4 }.standard_error().unwrap(), (0.1875_f64 / 4.0).sqrt()));
        assert!(is_close(hoeffding_tail(8, 1.0), 2.0 * (-4.0_f64).exp()));
        assert!(is_close(hoeffding_tail(1, 0.0), 1.0));
        for (pairs, confidence) in [(0, 0.95), (8, 1.0), (8, -0.1), (8, f64::NAN)] {
            assert_eq!(hoeffding_half_width(pairs, confidence), None);
        }
    }

    /// The probability of each number of successes in `n` trials.
    fn binomial(n: usize, p: f64) -> Vec<f64> {
        let mut mass = vec![1.0];
        for _ in 0..n {
            let before = mass.clone();
            mass = (0..=before.len())
                .map(|k| {
                    let stays = before.get(k).map_or(0.0, |mass| mass * (1.0 - p));
                    let rises = k.checked_sub(1).and_then(|k| before.get(k)).map_or(0.0, |mass| mass * p);
                    stays + rises
                })
                .collect();
        }
        mass
    }

    proptest! {
        /// Proposition 4 against the exact distribution of differences that are -1 or 1.
        #[test]
        fn the_tail_is_bounded(n in 1_usize..60, p in 0.0_f64..1.0, deviation in 0.0_f64..2.0) {
            let expected = 2.0 * p - 1.0;
            let exact: f64 = binomial(n, p)
                .iter()
                .enumerate()
                .filter(|(k, _)| ((2.0 * *k as f64 - n as f64) / n as f64 - expected).abs() >= deviation)
                .map(|(_, mass)| mass)
                .sum();
            prop_assert!(exact <= hoeffding_tail(n, deviation) + 1e-9, "{} {}", exact, hoeffding_tail(n, deviation));
        }

        #[test]
        fn the_half_width_inverts_the_tail(n in 4_usize..10_000, confidence in 0.0_f64..0.999) {
            let width = hoeffding_half_width(n, confidence).unwrap();
            prop_assert!(width >= 2.0 || (hoeffding_tail(n, width) - (1.0 - confidence)).abs() < 1e-9);
        }

        #[test]
        fn wilson_contains_the_share(of in 1_usize..500, part in 0.0_f64..=1.0) {
            let rate = Rate { hits: (of as f64 * part) as usize, of };
            let (low, high) = rate.wilson_95().unwrap();
            let value = rate.value().unwrap();
            prop_assert!(0.0 <= low && low <= value + 1e-12 && value <= high + 1e-12 && high <= 1.0);
        }
    }
}
