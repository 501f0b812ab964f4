//! Computes Shapley values of labels, which measure how much each label contributes to the utility of an answer
//! (Permissive Information-Flow Analysis, appendix A). [`prune`] drops the results of a label search that need a label
//! of low value. `find` computes the values and prunes by them if the options of the search ask for it.
//!
//! The value of a label is the mean, over all orders in which labels are added, of the utility that it adds. For up to
//! [`MAX_EXACT_LABELS`] labels, the values are exact and need the utilities of all subsets. For more labels, they are
//! estimated from sampled orders, and have a standard error.

use std::collections::{BTreeMap, BTreeSet};

use flowgate::label::LabelSpan;
use flowgate::label::span::SpanElement;

/// The most labels for which the values are exact.
pub const MAX_EXACT_LABELS: usize = 10;

/// The Shapley values of the labels of a lattice, in the order of these labels.
#[derive(Debug, Clone, PartialEq)]
pub struct ShapleyValues {
    /// The value of each label.
    pub values: Vec<f64>,
    /// The standard error of each value; 0 if the values are exact.
    pub errors: Vec<f64>,
}

/// A plan for computing Shapley values: lists the elements whose utilities are needed, and computes the values from
/// these utilities.
#[derive(Debug, Clone)]
pub struct ShapleyPlan {
    span: LabelSpan,
    /// The sampled orders, each a permutation of the labels; `None` if the values are exact.
    orders: Option<Vec<Vec<usize>>>,
}

impl ShapleyValues {
    /// Returns the largest standard error of a value: 0 if all values are exact, and without labels.
    #[must_use]
    pub fn largest_error(&self) -> f64 {
        self.errors.iter().copied().fold(0.0, f64::max)
    }
}

impl ShapleyPlan {
    /// Plans exact values, or for more than [`MAX_EXACT_LABELS`] labels values from `permutations` sampled orders, at
    /// least two: the gains of a single order have no standard error. The same `seed` gives the same orders.
    #[must_use]
    pub fn new(span: &LabelSpan, permutations: usize, seed: u64) -> Self {
        let is_exact = span.labels().len() <= MAX_EXACT_LABELS;
        let orders = (!is_exact).then(|| sampled_orders(span, permutations, seed));
        Self { span: span.clone(), orders }
    }

    /// Plans as [`new`](Self::new) does, if `is_affordable` accepts the elements that are needed. Otherwise plans
    /// values from sampled orders: of `permutations` orders, the first ones, as many as are affordable. Returns `None`
    /// if not even two orders are affordable.
    pub fn within(
        span: &LabelSpan,
        permutations: usize,
        seed: u64,
        is_affordable: impl Fn(&[SpanElement]) -> bool,
    ) -> Option<Self> {
        let plan = Self::new(span, permutations, seed);
        if is_affordable(&plan.needed()) {
            return Some(plan);
        }
        let orders = sampled_orders(span, permutations, seed);
        // Fewer orders need fewer elements, so the greatest affordable number is found by halving.
        let with = |count: usize| {
            let orders = orders.get(..count).unwrap_or_default().to_vec();
            Self { span: span.clone(), orders: Some(orders) }
        };
        // `most` orders are affordable, or none were tried yet; `beyond` orders are not affordable, or not available.
        let (mut most, mut beyond) = (1, orders.len() + 1);
        while most + 1 < beyond {
            let count = (most + beyond) / 2;
            if is_affordable(&with(count).needed()) { most = count } else { beyond = count }
        }
        (most >= 2).then(|| with(most))
    }

    /// Returns the elements whose utilities are needed: the joins of all subsets of labels or, for sampled orders, of
    /// their beginnings.
    #[must_use]
    pub fn needed(&self) -> Vec<SpanElement> {
        let mut needed = BTreeSet::new();
        match &self.orders {
            None => needed.extend((0..1_usize << self.span.labels().len()).map(|set| self.subset(set))),
            Some(orders) => orders.iter().for_each(|order| needed.extend(self.prefixes(order))),
        }
        needed.into_iter().collect()
    }

    /// Returns the values, given the utilities of the [needed](Self::needed) elements. A missing utility counts as not
    /// a number.
    #[must_use]
    pub fn values(&self, utilities: &BTreeMap<SpanElement, f64>) -> ShapleyValues {
        let utility = |element: SpanElement| utilities.get(&element).copied().unwrap_or(f64::NAN);
        match &self.orders {
            None => self.exact(utility),
            Some(orders) => self.sampled(orders, utility),
        }
    }

    /// Returns the join of the labels in a set: bit `n` says whether it contains label `n`.
    fn subset(&self, set: usize) -> SpanElement {
        self.span.join_of((0..self.span.labels().len()).filter(|label| set >> label & 1 == 1))
    }

    /// Returns the joins of the first 0, 1, ... labels of an order, up to the join of all.
    fn prefixes(&self, order: &[usize]) -> Vec<SpanElement> {
        (0..=order.len())
            .map(|length| self.span.join_of(order.get(..length).unwrap_or_default().iter().copied()))
            .collect()
    }

    /// Returns the exact values: for each label, the sum of its gains over all subsets without it, each weighted by the
    /// share of the orders in which exactly this subset precedes the label. Bit `n` of a `set` says whether it contains
    /// label `n`.
    fn exact(&self, utility: impl Fn(SpanElement) -> f64) -> ShapleyValues {
        let count = self.span.labels().len();
        let utilities: Vec<f64> = (0..1_usize << count).map(|set| utility(self.subset(set))).collect();
        let utility_of = |set: usize| utilities.get(set).copied().unwrap_or(f64::NAN);
        let factorial = |n: usize| (1..=n).map(|n| n as f64).product::<f64>();
        let value = |label: usize| {
            let sets_without_label = (0..1_usize << count).filter(|set| set >> label & 1 == 0);
            let weighted_gain = |set: usize| {
                let size = set.count_ones() as usize;
                // The share of the orders that begin with the labels of the set, in any order, followed by `label`.
                let weight = factorial(size) * factorial(count - size - 1) / factorial(count);
                let set_with_label = set | 1 << label;
                weight * (utility_of(set_with_label) - utility_of(set))
            };
            sets_without_label.map(weighted_gain).sum()
        };
        // Exact values have no error.
        ShapleyValues { values: (0..count).map(value).collect(), errors: vec![0.0; count] }
    }

    /// Returns for each label the mean of its gain over the sampled orders, and the standard error of that mean.
    fn sampled(&self, orders: &[Vec<usize>], utility: impl Fn(SpanElement) -> f64) -> ShapleyValues {
        let count = self.span.labels().len();
        // For each label, its gain in each order.
        let mut gains: Vec<Vec<f64>> = vec![Vec::with_capacity(orders.len()); count];
        for order in orders {
            // The utilities of the first 0, 1, ... labels of the order. Each label's gain is the difference between the
            // utility with it and the one before it.
            let utilities: Vec<f64> = self.prefixes(order).into_iter().map(&utility).collect();
            for (label, pair) in order.iter().zip(utilities.windows(2)) {
                if let ([before, after], Some(gains)) = (pair, gains.get_mut(*label)) {
                    gains.push(after - before);
                }
            }
        }
        let mean = |gains: &Vec<f64>| gains.iter().sum::<f64>() / gains.len() as f64;
        let error = |gains: &Vec<f64>| {
            let (mean, n) = (mean(gains), gains.len() as f64);
            let variance = gains.iter().map(|gain| (gain - mean).powi(2)).sum::<f64>() / (n - 1.0);
            (variance / n).sqrt()
        };
        ShapleyValues { values: gains.iter().map(mean).collect(), errors: gains.iter().map(error).collect() }
    }
}

/// Returns those of the `elements` that need no label with a Shapley value below `threshold`: an element needs no such
/// label if the join of its other labels is still the same element.
#[must_use]
pub fn prune(
    span: &LabelSpan,
    elements: &[SpanElement],
    values: &ShapleyValues,
    threshold: f64,
) -> Vec<SpanElement> {
    let is_valued = |label: &usize| values.values.get(*label).is_some_and(|value| *value >= threshold);
    let is_kept = |element: &&SpanElement| span.join_of(element.labels().filter(is_valued)) == **element;
    elements.iter().filter(is_kept).copied().collect()
}

/// Returns random orders of the labels of a span: `permutations`, but at least two.
fn sampled_orders(span: &LabelSpan, permutations: usize, seed: u64) -> Vec<Vec<usize>> {
    let mut state = seed;
    (0..permutations.max(2)).map(|_| shuffled(span.labels().len(), &mut state)).collect()
}

/// Returns a random order of the numbers below `count` (Fisher and Yates). Draws random numbers from the generator with
/// this `state`, which advances.
fn shuffled(count: usize, state: &mut u64) -> Vec<usize> {
    let mut order: Vec<usize> = (0..count).collect();
    for last in (1..count).rev() {
        let drawn = split_mix(state) % (last as u64 + 1);
        order.swap(last, usize::try_from(drawn).unwrap_or(0));
    }
    order
}

/// Returns the next number of SplitMix64, a published sequence of random numbers, and advances its `state`.
fn split_mix(state: &mut u64) -> u64 {
    *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut mixed = *state;
    mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::test_labels::flat_labels;
    use super::*;

    /// A game over a flat lattice: a weight for each label, and a bonus for the first two together.
    fn utility(weights: &[f64], bonus: f64) -> impl Fn(SpanElement) -> f64 + '_ {
        move |element| {
            let labels: Vec<usize> = element.labels().collect();
            let together = if labels.contains(&0) && labels.contains(&1) { bonus } else { 0.0 };
            labels.iter().map(|label| weights[*label]).sum::<f64>() + together
        }
    }

    fn values(
        span: &LabelSpan,
        permutations: usize,
        seed: u64,
        utility: impl Fn(SpanElement) -> f64,
    ) -> ShapleyValues {
        let plan = ShapleyPlan::new(span, permutations, seed);
        let utilities = plan.needed().into_iter().map(|element| (element, utility(element))).collect();
        plan.values(&utilities)
    }

    proptest! {
        /// Shapley's axioms: the values of an additive game are its weights, what two labels add together is shared,
        /// and the values sum to the utility of the whole.
        #[test]
        fn exact_values_obey_the_axioms(weights in proptest::collection::vec(-3.0_f64..3.0, 2..7), bonus in -2.0_f64..2.0) {
            let span = LabelSpan::new(&flat_labels(weights.len())).unwrap();
            let found = values(&span, 0, 0, utility(&weights, bonus));
            let expected = |label: usize| weights[label] + if label < 2 { bonus / 2.0 } else { 0.0 };
            for (label, value) in found.values.iter().enumerate() {
                prop_assert!((value - expected(label)).abs() < 1e-9);
            }
            prop_assert!(found.errors.iter().all(|error| *error == 0.0));
        }

        /// Sampled values sum to the utility of the whole as well, and an additive game has no sampling error.
        #[test]
        fn sampled_values_are_efficient(weights in proptest::collection::vec(-3.0_f64..3.0, 11..14), bonus in 0.0_f64..2.0, seed: u64) {
            let span = LabelSpan::new(&flat_labels(weights.len())).unwrap();
            let found = values(&span, 40, seed, utility(&weights, bonus));
            let whole = utility(&weights, bonus)(span.top());
            prop_assert!((found.values.iter().sum::<f64>() - whole).abs() < 1e-9);
            for (label, weight) in weights.iter().enumerate().skip(2) {
                prop_assert!((found.values[label] - weight).abs() < 1e-9 && found.errors[label] < 1e-9);
            }
            // The bonus is half of the first two labels' within five standard errors.
            prop_assert!((found.values[0] - weights[0] - bonus / 2.0).abs() <= 5.0 * found.errors[0] + 1e-9);
        }
    }

    /// With a budget, as many orders are sampled as it allows, and no more elements are needed than it allows.
    #[test]
    fn a_budget_limits_the_orders() {
        let check = |labels: usize, budget: usize, expected: Option<Option<usize>>| {
            let span = LabelSpan::new(&flat_labels(labels)).unwrap();
            let plan = ShapleyPlan::within(&span, 12, 1, |needed| needed.len() <= budget);
            let orders = plan.as_ref().map(|plan| plan.orders.as_ref().map(Vec::len));
            assert_eq!(orders, expected, "{labels} {budget}");
            if let Some(plan) = plan {
                assert!(plan.needed().len() <= budget, "{labels} {budget}");
                let exact_or_all = ShapleyPlan::new(&span, 12, 1);
                let has_all =
                    expected == Some(None) || expected == Some(Some(12)) && labels > MAX_EXACT_LABELS;
                assert_eq!(plan.needed() == exact_or_all.needed(), has_all, "{labels} {budget}");
            }
        };
        // Exact values, then as many of the twelve orders as there is room for.
        check(4, 16, Some(None));
        check(10, 1024, Some(None));
        check(10, 1023, Some(Some(12)));
        check(14, 1000, Some(Some(12)));
        // An order of 14 labels needs 15 elements. Two orders may share only the first and the last element, so the
        // second order adds 13.
        check(14, 28, Some(Some(2)));
        check(14, 27, None);
        check(14, 0, None);
    }

    #[test]
    fn labels_of_low_value_are_pruned() {
        let span = LabelSpan::new(&flat_labels(3)).unwrap();
        let found = ShapleyValues { values: vec![1.0, 0.1, 0.5], errors: vec![0.0; 3] };
        let sets = [vec![0], vec![0, 1], vec![0, 2], vec![]].map(|labels| span.join_of(labels));
        assert_eq!(prune(&span, &sets, &found, 0.2), [sets[0], sets[2], sets[3]]);
        assert_eq!(prune(&span, &sets, &found, 0.0), sets);
        // In a chain, the lower label of an element counts only if the upper one does not.
        let chain: Vec<_> = {
            let flat = flat_labels(2);
            vec![flat[0], flat[0].join(&flat[1])]
        };
        let span = LabelSpan::new(&chain).unwrap();
        let found = ShapleyValues { values: vec![0.0, 1.0], errors: vec![0.0; 2] };
        assert_eq!(prune(&span, &[span.top()], &found, 0.5), [span.top()]);
    }
}
