//! Chooses which parts of an observation the defences by attention blocking hide (AgentSecBench, 3.2). These defences
//! change no text: the model receives all of it, but no token outside a blocked span, those of the answer included,
//! attends to a token in it. Only a model that is evaluated in this process can do that.
//!
//! [`runner`](super::super::runner) sends the spans to a [`BlockingModel`](flowgate_lm::BlockingModel).

use std::ops::Range;

use super::projection::{canary_spans, capability_spans, other_record_spans};
use crate::games::task::{Task, TaskLabels};

/// What a defence by attention blocking hides.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlockedChannel {
    /// The whole observation: the answer depends on the trusted texts alone.
    Observation,
    /// What the projections of AgentSecBench remove: records of other tenants and canaries in the retrieval game, and
    /// names of forbidden tools with their action tokens in the capability game.
    Unauthorized,
}

impl BlockedChannel {
    /// Both choices of what is blocked.
    pub const ALL: [Self; 2] = [Self::Observation, Self::Unauthorized];

    /// Returns the name of the choice, which follows `attention/` in the name of the defence.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Observation => "observation",
            Self::Unauthorized => "unauthorized",
        }
    }

    /// Returns the ranges of bytes in the task's observation that are blocked, in order and without overlaps. If the
    /// whole observation is blocked, white space at its ends stays visible, because chat templates may remove it.
    pub fn blocked_spans(self, task: &Task) -> Vec<Range<usize>> {
        let text = task.context.as_str();
        let spans = match (self, &task.labels) {
            (Self::Observation, _) => {
                let start = text.len() - text.trim_start().len();
                std::iter::once(start..text.trim_end().len()).collect()
            }
            (Self::Unauthorized, TaskLabels::Tenants { permitted, .. }) => {
                let mut spans = other_record_spans(text, permitted);
                spans.extend(canary_spans(text));
                spans
            }
            (Self::Unauthorized, TaskLabels::Tools { forbidden, .. }) => capability_spans(text, forbidden),
            // In the instruction game, the projections of AgentSecBench remove nothing.
            (Self::Unauthorized, TaskLabels::Document { .. }) => Vec::new(),
        };
        merged(spans)
    }
}

/// Returns the union of ranges: in order, with ranges that overlap or touch joined, and without empty ones.
fn merged(mut spans: Vec<Range<usize>>) -> Vec<Range<usize>> {
    spans.retain(|span| !span.is_empty());
    spans.sort_by_key(|span| span.start);
    let mut union: Vec<Range<usize>> = Vec::new();
    for span in spans {
        match union.last_mut() {
            Some(last) if span.start <= last.end => last.end = last.end.max(span.end),
            _ => union.push(span),
        }
    }
    union
}

/// Returns a text without the bytes in `spans`, which are in order and do not overlap. The result is what the tokens
/// outside the spans can depend on. The channel counts as closed if the result has no unauthorized coordinate.
pub(in crate::games) fn without_spans(text: &str, spans: &[Range<usize>]) -> String {
    let mut rest = String::with_capacity(text.len());
    let mut start = 0;
    for span in spans {
        rest.push_str(text.get(start..span.start).unwrap_or_default());
        start = span.end;
    }
    rest + text.get(start..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::super::suite::GameSuite;
    use super::super::super::task::Game;
    use super::*;

    #[test]
    fn ranges_are_merged_and_left_out() {
        let check = |spans: &[Range<usize>], union: &[Range<usize>], rest: &str| {
            assert_eq!(merged(spans.to_vec()), union);
            assert_eq!(without_spans("0123456789", union), rest);
        };
        check(&[], &[], "0123456789");
        check(&[7..9, 1..3, 2..4, 4..5, 6..6], &[1..5, 7..9], "0569");
        check(&[0..4, 2..3, 6..10], &[0..4, 6..10], "45");
    }

    /// The spans are those that the projections remove, so that both kinds of defence close the same channels.
    #[test]
    fn what_is_blocked_is_what_projections_remove() {
        for pair in GameSuite::generate(4, 8).pairs() {
            for (task, is_attacked) in [(&pair.adversarial, true), (&pair.control, false)] {
                let blocked = |channel: BlockedChannel| channel.blocked_spans(task);
                let rest = |channel: BlockedChannel| without_spans(&task.context, &blocked(channel));
                assert!(rest(BlockedChannel::Observation).trim().is_empty());
                let visible = rest(BlockedChannel::Unauthorized);
                let closes = task.game != Game::Instruction;
                assert_eq!(task.has_coordinate(&visible), is_attacked && !closes, "{visible}");
                assert_eq!(blocked(BlockedChannel::Unauthorized).is_empty(), !is_attacked || !closes);
                for term in &task.utility_terms {
                    assert!(visible.contains(term), "{visible}");
                }
            }
        }
    }
}
