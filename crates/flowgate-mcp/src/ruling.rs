//! Defines [`ProxyRuling`], one decision of the policy on which the messages of a proxy depend, and [`RulingTape`],
//! with which a proxy records these decisions or follows a record of them.
//!
//! A proxy that processes the same inputs with the same rulings sends the same messages, whatever its policy is.
//! `carry_over` uses this when a policy has changed. It keeps the rulings of the earlier policy, since what was sent
//! and shown cannot be undone, while the labels become those of the present policy.

use std::collections::VecDeque;

use serde::{Deserialize, Serialize};

/// What the policy decided at one point of processing an input. The serialized form is stored in databases: a variant
/// keeps its name.
///
/// The list is exhaustive on purpose: a proxy has to follow each ruling.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ProxyRuling {
    /// A call ran, or something was shown or permitted.
    Yes,
    /// A call did not run, or something was not shown or not permitted.
    No,
    /// A call ran under the verdict that it had in the chat.
    Chat,
    /// A person was to decide on a call.
    Ask,
    /// No person was asked, since there were too many questions.
    Unasked,
    /// The person at the client was asked in the answer to the call.
    AskedInAnswer,
    /// The person at the client was asked by an elicitation.
    AskedAtClient,
    /// A person was asked elsewhere.
    AskedElsewhere,
    /// No person could be asked.
    Unaskable,
}

/// Where a proxy takes its rulings from.
#[derive(Debug, Default)]
pub(super) enum RulingTape {
    /// From the present policy.
    #[default]
    Live,
    /// From the present policy; they are recorded.
    Recording(Vec<ProxyRuling>),
    /// From a record of an earlier policy. `has_diverged` says whether the proxy needed another ruling than the record
    /// has, or could not follow it.
    Following { left: VecDeque<ProxyRuling>, has_diverged: bool },
}

impl RulingTape {
    /// Returns whether the rulings are those of an earlier policy.
    pub(super) fn is_following(&self) -> bool {
        matches!(self, Self::Following { .. })
    }

    /// Returns whether something is shown or permitted. `now` is the answer of the present policy. If the tape follows
    /// the record of an earlier policy, the next ruling of the record is the answer instead. If that ruling is neither
    /// `Yes` nor `No`, the record has diverged, and the answer is no.
    pub(super) fn rule(&mut self, now: bool) -> bool {
        let now = if now { ProxyRuling::Yes } else { ProxyRuling::No };
        match self.choose(now) {
            ProxyRuling::Yes => true,
            ProxyRuling::No => false,
            _ => {
                self.note_divergence();
                false
            }
        }
    }

    /// Returns the ruling in force: `now`, the ruling of the present policy, or, if the tape follows the record of an
    /// earlier policy, the next ruling of the record. A tape that records adds `now` to its record. If the record that
    /// is followed has no ruling left, it has diverged, and the ruling is `No`.
    pub(super) fn choose(&mut self, now: ProxyRuling) -> ProxyRuling {
        match self {
            Self::Live => now,
            Self::Recording(rulings) => {
                rulings.push(now);
                now
            }
            Self::Following { left, has_diverged } => left.pop_front().unwrap_or_else(|| {
                *has_diverged = true;
                ProxyRuling::No
            }),
        }
    }

    /// Takes the next ruling of the record if it is `ruling`, and returns whether it was. Returns false if the tape
    /// follows no record.
    pub(super) fn take_if(&mut self, ruling: ProxyRuling) -> bool {
        match self {
            Self::Following { left, .. } if left.front() == Some(&ruling) => left.pop_front().is_some(),
            _ => false,
        }
    }

    /// Notes that the proxy cannot follow the record of an earlier policy, for example since the trace has no room.
    /// Does nothing if the rulings are those of the present policy.
    pub(super) fn note_divergence(&mut self) {
        if let Self::Following { has_diverged, .. } = self {
            *has_diverged = true;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rulings_are_recorded_and_followed() {
        let mut live = RulingTape::Live;
        assert!(live.rule(true) && !live.rule(false) && !live.is_following());
        let mut recording = RulingTape::Recording(Vec::new());
        assert!(recording.rule(true) && !recording.rule(false));
        assert_eq!(recording.choose(ProxyRuling::Ask), ProxyRuling::Ask);
        let RulingTape::Recording(rulings) = recording else { panic!() };
        assert_eq!(rulings, [ProxyRuling::Yes, ProxyRuling::No, ProxyRuling::Ask]);
        let followed = |left: &[ProxyRuling]| RulingTape::Following {
            left: left.iter().copied().collect(),
            has_diverged: false,
        };
        let diverged = |tape: &RulingTape| matches!(tape, RulingTape::Following { has_diverged: true, .. });
        // The present policy would rule otherwise.
        let mut tape = followed(&rulings);
        assert!(tape.rule(false) && !tape.rule(true));
        assert!(!tape.take_if(ProxyRuling::Chat) && tape.take_if(ProxyRuling::Ask) && !diverged(&tape));
        assert!(!tape.rule(true) && diverged(&tape));
        // A ruling of another kind.
        let mut tape = followed(&[ProxyRuling::Chat]);
        assert!(!tape.rule(true) && diverged(&tape));
    }

    #[test]
    fn rulings_keep_their_names() {
        let all = [
            (ProxyRuling::Yes, "yes"),
            (ProxyRuling::No, "no"),
            (ProxyRuling::Chat, "chat"),
            (ProxyRuling::Ask, "ask"),
            (ProxyRuling::Unasked, "unasked"),
            (ProxyRuling::AskedInAnswer, "asked_in_answer"),
            (ProxyRuling::AskedAtClient, "asked_at_client"),
            (ProxyRuling::AskedElsewhere, "asked_elsewhere"),
            (ProxyRuling::Unaskable, "unaskable"),
        ];
        for (ruling, name) in all {
            assert_eq!(serde_json::to_value(ruling).unwrap(), name);
        }
    }
}
