//! Finds the labels whose documents are sufficient for an answer, by scoring the answer with a model. The searches do
//! no I/O themselves: this file drives them up to a number of tests, and applies the prunings that the options ask for.
//! [`Propagator`](super::wrapper::Propagator), the influence method `lambda` and the benchmarks call it.

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
/// Each label other than the naive one was scored, and its subcontext loses at most λ of the utility. Two options
/// change the result:
///
/// * `goal` is a label for which a greater loss is permitted. If no label found flows to it, the labels at or below the
///   goal may lose up to the λ of the goal.
/// * `shapley` removes labels from the result: those that need documents of little value for the answer, by the Shapley
///   values of their labels. It changes no other label, so those that remain lose no more than without it. If none
///   remains, the result is the naive label.
///
/// # Errors
/// If the model cannot score a subcontext.
pub async fn find_labels(
    scorer: &mut ContextScorer<'_>,
    options: &PropagationOptions,
) -> Result<SimilarLabels, Error> {
    let mut found = search_below(scorer, options, options.lambda).await?;
    if let Some(goal) = options.goal {
        let is_reached = |element: &SpanElement| scorer.span().label(*element).flows_to(&goal.label);
        if !found.elements.iter().any(is_reached) {
            found = search_goal(scorer, options, &goal.label, goal.lambda, found).await?;
        }
    }
    if let Some(pruning) = options.shapley {
        found.elements = prune_by_value(scorer, pruning, &found.elements).await?;
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

/// Searches with the options for labels that lose at most `lambda` of the utility. With leave-one-in, it searches only
/// the labels whose documents alone raise the utility by more than a threshold, provided that the documents of these
/// labels are sufficient together; otherwise it searches all labels. The literal search ignores leave-one-in.
///
/// # Errors
/// If the model cannot score a subcontext.
async fn search_below(
    scorer: &mut ContextScorer<'_>,
    options: &PropagationOptions,
    lambda: f64,
) -> Result<SimilarLabels, Error> {
    let span = scorer.span().clone();
    if options.search == SearchKind::Literal {
        return drive(scorer, &mut Literal::new(span), options, lambda).await;
    }
    let Some(threshold) = options.leave_one_in else {
        return drive(scorer, &mut HittingSet::new(span), options, lambda).await;
    };
    let gains = leave_one_in(scorer).await?;
    let helpful = (0..gains.len()).filter(|label| gains.get(*label).is_some_and(|gain| *gain > threshold));
    let start = span.join_of(helpful);
    let tests = gains.len();
    let is_sufficient = start != span.top() && is_element_similar(scorer, start, lambda).await?;
    let start = if is_sufficient { start } else { span.top() };
    // The search removes the labels that help least first, in large blocks.
    let mut search = HittingSet::within(span, start).with_scores(&gains);
    let mut found = drive(scorer, &mut search, options, lambda).await?;
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
/// `goal` loses more than `most`, returns `found` with one more test and no other change.
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
    let loss = loss_at(scorer, goal).await?;
    let tests = found.tests + 1;
    // The loss is compared with no loss (0): it is too great if it exceeds `most`.
    if !is_similar(loss, 0.0, most) {
        return Ok(SimilarLabels { tests, ..found });
    }
    let span = scorer.span().clone();
    let start = span.at(goal);
    let mut search = HittingSet::within(span, start);
    let below = drive(scorer, &mut search, options, loss).await?;
    let elements = minimal(found.elements.into_iter().chain(below.elements));
    let is_complete = found.is_complete && below.is_complete;
    Ok(SimilarLabels { elements, is_complete, tests: tests + below.tests })
}

/// Drives a search in batches, until it is complete or has made the most tests that the options allow. Returns what it
/// has found.
///
/// # Errors
/// If the model cannot score a subcontext.
async fn drive(
    scorer: &mut ContextScorer<'_>,
    search: &mut dyn LabelSearch,
    options: &PropagationOptions,
    lambda: f64,
) -> Result<SimilarLabels, Error> {
    let mut tests = 0;
    loop {
        let remaining_tests = options.budget.saturating_sub(tests);
        // One element is requested even if no test is left, to learn whether the search is complete.
        let needed = search.need(options.batch.clamp(1, remaining_tests.max(1)));
        if needed.is_empty() || remaining_tests == 0 {
            let is_complete = needed.is_empty();
            return Ok(SimilarLabels { elements: search.found(), is_complete, tests });
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

/// Returns those of the elements that need no document whose label has a Shapley value below the threshold of
/// `pruning`. If there is none, returns only the element of the naive label.
///
/// # Errors
/// If the model cannot score a subcontext.
async fn prune_by_value(
    scorer: &mut ContextScorer<'_>,
    pruning: ShapleyPruning,
    elements: &[SpanElement],
) -> Result<Vec<SpanElement>, Error> {
    let span = scorer.span().clone();
    let plan = ShapleyPlan::new(&span, pruning.permutations, pruning.seed);
    let needed = plan.needed();
    let utilities = scorer.utilities(&needed).await?;
    let utilities: BTreeMap<SpanElement, f64> = needed.into_iter().zip(utilities).collect();
    let kept = prune(&span, elements, &plan.values(&utilities), pruning.threshold);
    Ok(if kept.is_empty() { vec![span.top()] } else { kept })
}
