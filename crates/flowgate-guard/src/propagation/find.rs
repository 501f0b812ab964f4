//! Finds the labels whose documents are sufficient for an answer, by scoring the answer with a model. A label search
//! ([`LabelSearch`]) does no I/O itself: it names the labels to test. This module tests each with the model, as long as
//! the budget of the options lasts, and prunes the result if the options ask for it.
//! [`Propagator`](super::wrapper::Propagator), the influence method `lambda` and the benchmarks call this module.

use std::collections::BTreeMap;

use flowgate::label::Label;
use flowgate::label::span::{SpanElement, minimal};
use flowgate_lm::Error;

use super::algorithm_1::Literal;
use super::hitting_set::HittingSet;
use super::options::{PropagationOptions, SearchKind, ShapleyPruning};
use super::scorer::ContextScorer;
use super::search::{LabelSearch, SimilarLabels};
use super::shapley::{ShapleyPlan, prune};
use super::utility::is_similar;

/// Returns the minimal labels whose subcontexts are λ-similar to the context. If there is no better one, returns only
/// the naive label, the join of the labels of all documents.
///
/// Each returned label other than the naive one was scored, and its subcontext loses at most λ of the utility. Two
/// options change the result:
///
/// * `goal` is a label for which a greater loss is permitted. If no label found flows to it, the labels at or below the
///   goal may lose up to the λ of the goal.
/// * `shapley` removes labels from the result: those that need documents of little value for the answer, by the Shapley
///   values of their labels. It changes no other label, so those that remain lose no more than without it. If none
///   remains, the result is the naive label.
///
/// All steps together test and score at most `options.budget` subcontexts besides the context. A step that does not fit
/// into the rest of the budget is left out, and the result is then not complete.
///
/// # Errors
/// If the model cannot score a subcontext.
pub async fn find_labels(
    scorer: &mut ContextScorer<'_>,
    options: &PropagationOptions,
) -> Result<SimilarLabels, Error> {
    let mut found = search_below(scorer, options).await?;
    if let Some(goal) = options.goal {
        let is_reached = |element: &SpanElement| scorer.span().label(*element).flows_to(&goal.label);
        if !found.elements.iter().any(is_reached) {
            found = search_goal(scorer, options, &goal.label, goal.lambda, found).await?;
        }
    }
    if let Some(pruning) = options.shapley {
        found = prune_by_value(scorer, options.budget, pruning, found).await?;
    }
    Ok(found)
}

/// Returns the utility that an answer at `label` loses: the utility of the whole context, minus the utility of the
/// documents that flow to the label. [`find_labels`] does the reverse: it gets the loss and finds the labels
/// (Permissive Information-Flow Analysis, section 6.3).
///
/// # Errors
/// If the model cannot score the subcontext.
pub async fn loss_at(scorer: &mut ContextScorer<'_>, label: &Label) -> Result<f64, Error> {
    let element = scorer.span().at(label);
    let utility = scorer.utilities(&[element]).await?;
    Ok(scorer.context_utility() - utility.first().copied().unwrap_or(f64::NAN))
}

/// Searches for labels that lose at most λ of the utility, as the options say. With leave-one-in, it searches only the
/// labels whose documents alone raise the utility by more than a threshold, provided that the documents of these labels
/// are sufficient together; otherwise it searches all labels. The literal search ignores leave-one-in, and so does a
/// search whose budget is too small for it.
///
/// # Errors
/// If the model cannot score a subcontext.
async fn search_below(
    scorer: &mut ContextScorer<'_>,
    options: &PropagationOptions,
) -> Result<SimilarLabels, Error> {
    let span = scorer.span().clone();
    let (lambda, budget) = (options.lambda, options.budget);
    if options.search == SearchKind::Literal {
        return drive(scorer, &mut Literal::new(span), options, (lambda, budget)).await;
    }
    // Leave-one-in scores the subcontext without documents and the subcontext of each label. One more test is that of
    // the join of the helpful labels.
    let tests = span.labels().len() + 2;
    let Some(threshold) = options.leave_one_in.filter(|_| tests <= budget) else {
        return drive(scorer, &mut HittingSet::new(span), options, (lambda, budget)).await;
    };
    let gains = leave_one_in(scorer).await?;
    // The search starts at the join of the labels that help on their own, if their documents are sufficient together.
    let helpful = (0..gains.len()).filter(|label| gains.get(*label).is_some_and(|gain| *gain > threshold));
    let start = span.join_of(helpful);
    let is_sufficient = start != span.top() && is_element_similar(scorer, start, lambda).await?;
    let start = if is_sufficient { start } else { span.top() };
    // The search removes the labels that help least first, in large blocks.
    let mut search = HittingSet::within(span, start).with_scores(&gains);
    let mut found = drive(scorer, &mut search, options, (lambda, budget - tests)).await?;
    found.tests += tests;
    Ok(found)
}

/// Returns the leave-one-in scores, one for each label of the span: by how much the utility with the documents of this
/// label alone exceeds the utility without documents.
///
/// # Errors
/// If the model cannot score a subcontext.
pub async fn leave_one_in(scorer: &mut ContextScorer<'_>) -> Result<Vec<f64>, Error> {
    let span = scorer.span().clone();
    // The first element has no documents.
    let mut elements = vec![span.bottom()];
    elements.extend((0..span.labels().len()).map(|label| span.join_of([label])));
    let utilities = scorer.utilities(&elements).await?;
    let none = utilities.first().copied().unwrap_or(f64::NAN);
    Ok(utilities.iter().skip(1).map(|utility| utility - none).collect())
}

/// Searches for labels at or below `goal` that lose no more utility than `goal` itself, and adds them to `found`. If
/// `goal` loses more than `most`, returns `found` with one more test and no other change. If `found` has spent the
/// budget, returns `found` marked as not complete.
///
/// # Errors
/// If the model cannot score a subcontext.
async fn search_goal(
    scorer: &mut ContextScorer<'_>,
    options: &PropagationOptions,
    goal: &Label,
    most: f64,
    found: SimilarLabels,
) -> Result<SimilarLabels, Error> {
    // One further test scores the goal itself.
    let Some(budget) = options.budget.checked_sub(found.tests + 1) else {
        return Ok(SimilarLabels { is_complete: false, ..found });
    };
    let loss = loss_at(scorer, goal).await?;
    let tests = found.tests + 1;
    // The loss is compared with no loss (0): it is too great if it exceeds `most`.
    if !is_similar(loss, 0.0, most) {
        return Ok(SimilarLabels { tests, ..found });
    }
    let span = scorer.span().clone();
    let start = span.at(goal);
    let mut search = HittingSet::within(span, start);
    let below = drive(scorer, &mut search, options, (loss, budget)).await?;
    let elements = minimal(found.elements.into_iter().chain(below.elements));
    let is_complete = found.is_complete && below.is_complete;
    Ok(SimilarLabels { elements, is_complete, tests: tests + below.tests, shapley: None })
}

/// Drives a search for labels that lose at most `lambda` of the utility, until it is complete or has made `budget`
/// tests, which are scored in batches. Returns what the search has found.
///
/// # Errors
/// If the model cannot score a subcontext.
async fn drive(
    scorer: &mut ContextScorer<'_>,
    search: &mut dyn LabelSearch,
    options: &PropagationOptions,
    (lambda, budget): (f64, usize),
) -> Result<SimilarLabels, Error> {
    let mut tests = 0;
    loop {
        let remaining_tests = budget.saturating_sub(tests);
        // One element is requested even if no test is left, to learn whether the search is complete.
        let needed = search.need(options.batch.clamp(1, remaining_tests.max(1)));
        if needed.is_empty() || remaining_tests == 0 {
            return Ok(SimilarLabels::of(search, needed.is_empty(), tests));
        }
        tests += needed.len();
        let utilities = scorer.utilities_from(&needed, least_utility(scorer, lambda)).await?;
        for (element, utility) in needed.into_iter().zip(utilities) {
            let context = scorer.context_utility();
            search.answer(element, utility.is_some_and(|utility| is_similar(context, utility, lambda)));
        }
    }
}

/// Returns whether the subcontext of an element loses at most `lambda` of the utility of the context.
///
/// # Errors
/// If the model cannot score a subcontext.
async fn is_element_similar(
    scorer: &mut ContextScorer<'_>,
    element: SpanElement,
    lambda: f64,
) -> Result<bool, Error> {
    let context = scorer.context_utility();
    let least = least_utility(scorer, lambda);
    // `None` if the utility is below `least`: the element is then not similar.
    let utility = scorer.utilities_from(&[element], least).await?.first().copied().flatten();
    Ok(utility.is_some_and(|utility| is_similar(context, utility, lambda)))
}

/// Returns the least utility that a similar subcontext may have: the utility of the context minus `lambda`, and minus
/// a small margin. The margin is greater than the tolerance of [`is_similar`], so that the scoring of a subcontext that
/// counts as similar never stops early.
fn least_utility(scorer: &ContextScorer<'_>, lambda: f64) -> f64 {
    let context = scorer.context_utility();
    context - lambda - 1e-8 * (1.0 + context.abs())
}

/// Removes from `found` the elements that need a document whose label has a Shapley value below the threshold of
/// `pruning`. If none is left, the result has only the element of the naive label.
///
/// The values are computed within what is left of `budget`. If the budget is too small for the orders of the labels
/// from which the values would otherwise be computed, fewer orders are used. If it is too small for two orders, nothing
/// is removed, and the result is not complete.
///
/// # Errors
/// If the model cannot score a subcontext.
async fn prune_by_value(
    scorer: &mut ContextScorer<'_>,
    budget: usize,
    pruning: ShapleyPruning,
    found: SimilarLabels,
) -> Result<SimilarLabels, Error> {
    let span = scorer.span().clone();
    // Only elements that were not scored before cost a test.
    let unscored =
        |needed: &[SpanElement]| needed.iter().filter(|element| !scorer.has_scored(**element)).count();
    let left = budget.saturating_sub(found.tests);
    let plan =
        ShapleyPlan::within(&span, pruning.permutations, pruning.seed, |needed| unscored(needed) <= left);
    let Some(plan) = plan else { return Ok(SimilarLabels { is_complete: false, ..found }) };
    let needed = plan.needed();
    let scored = unscored(&needed);
    let utilities = scorer.utilities(&needed).await?;
    let utilities: BTreeMap<SpanElement, f64> = needed.into_iter().zip(utilities).collect();
    let values = plan.values(&utilities);
    let kept = prune(&span, &found.elements, &values, pruning.threshold);
    let elements = if kept.is_empty() { vec![span.top()] } else { kept };
    Ok(SimilarLabels { elements, tests: found.tests + scored, shapley: Some(values), ..found })
}
