//! Parses two clauses about the approval of people: the limits of a `consent` (`up to 3 calls`), which approves calls
//! in advance, and the `grant` of a `require` or an `ask`, which says for how long an approval holds.
//! [`super::statement`] calls this module for the statements that have these clauses.

use super::super::diagnostic::Diagnostic;
use super::super::exact_amount::ExactAmount;
use super::super::grant_scope::{GrantClause, GrantScope};
use super::super::lexer::Token;
use super::super::syntax::ConsentLimit;
use super::{ParseResult, Parser};

/// The most days of `grant N days`: ten years.
const MAX_GRANT_DAYS: u32 = 3_650;

impl Parser<'_> {
    /// Parses the optional limits of a `consent`, separated by a comma: `up to 3 calls, 50 of call.arguments.amount`. A
    /// consent has at most one number of calls and one sum. Empty if there is no `up to`.
    pub(super) fn consent_limits(&mut self) -> ParseResult<Vec<ConsentLimit>> {
        const HELP: &str =
            "write `up to 3 calls`, `up to 50 of call.arguments.AMOUNT`, or both, separated by a comma";
        let mut limits: Vec<ConsentLimit> = Vec::new();
        if !self.eat_word("up") {
            return Ok(limits);
        }
        self.expect_word("to", HELP)?;
        loop {
            // Each limit is a number and what it limits: the calls (`amount` is `None`), or the sum of an argument.
            let start = self.next_span().start;
            if !matches!(self.peek(), Token::Int | Token::Float) {
                return Err(self.expected("a number", Some(HELP)));
            }
            let span = self.advance();
            let most = ExactAmount::parse(&self.text(&span).replace('_', ""));
            let is_sum = self.eat_word("of");
            let amount = if is_sum {
                Some(self.target("an argument of the call")?)
            } else {
                if !self.eat_word("call") {
                    self.expect_word("calls", HELP)?;
                }
                None
            };
            let is_valid = |most: &ExactAmount| !most.is_zero() && (is_sum || most.is_whole());
            let Some(most) = most.filter(is_valid) else {
                let (message, help) = if is_sum {
                    (
                        "the limit is not a number above zero with at most 15 digits before the point and 6 after it",
                        "write a number such as `50` or `12.5`",
                    )
                } else {
                    ("the limit is not a whole number above zero", "write a number such as `3`")
                };
                return Err(
                    self.report(Diagnostic::error("consent-limit", span, message.to_owned()).help(help))
                );
            };
            let after = self.next_span();
            // A policy might say `3 calls per day` or `50 of ... a day`, which the monitor cannot enforce.
            if matches!(self.peek_word(), "a" | "per") {
                let message =
                    "a limit of a `consent` holds for one conversation, not for a time such as a day"
                        .to_owned();
                let help = "the monitor has no clock: leave out the time, or let a person approve for some days by `grant 30 days`, whose terms can say how often and how much";
                return Err(self.report(Diagnostic::error("consent-limit", after, message).help(help)));
            }
            let span = start..after.start;
            let is_same_kind = |limit: &ConsentLimit| limit.amount.is_none() == amount.is_none();
            if limits.iter().any(is_same_kind) {
                let message = "the `consent` has two limits of the same kind".to_owned();
                let help = "write one number of calls and one sum; further limits are further `consent` statements with other conditions";
                return Err(self.report(Diagnostic::error("consent-limit", span, message).help(help)));
            }
            limits.push(ConsentLimit { most, amount });
            if !self.eat(Token::Comma) {
                return Ok(limits);
            }
        }
    }

    /// Parses the optional clause `grant conversation`, `grant 30 days` or `grant always`, with an optional `by class`:
    /// the approval may then also cover other values of the class that an endorsement describes. Without `grant`, an
    /// approval covers one call only.
    pub(super) fn grant(&mut self) -> ParseResult<GrantClause> {
        if !self.eat_word("grant") {
            return Ok(GrantClause::default());
        }
        let scope = self.grant_scope()?;
        let is_by_class = self.eat_word("by");
        if is_by_class {
            self.expect_word("class", "write `grant conversation by class`")?;
        }
        Ok(GrantClause { scope, is_by_class })
    }

    /// Parses the scope of a grant, which follows the word `grant`: `conversation`, `always`, or a number of days, such
    /// as `30 days`.
    fn grant_scope(&mut self) -> ParseResult<GrantScope> {
        const HELP: &str = "write `grant conversation`, `grant 30 days` or `grant always`";
        if self.eat_word("conversation") {
            return Ok(GrantScope::Conversation);
        }
        if self.eat_word("always") {
            return Ok(GrantScope::Always);
        }
        let span = self.expect(Token::Int, "`conversation`, a number of days or `always`")?;
        // A number that does not fit into 32 bits counts as 0, which is out of range too.
        let days = self.text(&span).replace('_', "").parse().unwrap_or(0);
        if !(1..=MAX_GRANT_DAYS).contains(&days) {
            let message = format!("the number of days is not between 1 and {MAX_GRANT_DAYS}");
            let help = "write `grant always` for a grant without an end";
            return Err(self.report(Diagnostic::error("number", span, message).help(help)));
        }
        if !self.eat_word("day") {
            self.expect_word("days", HELP)?;
        }
        Ok(GrantScope::Days(days))
    }
}
