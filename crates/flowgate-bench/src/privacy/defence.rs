//! Names the defences that the suite compares ([`PrivacyDefence`]): RTBAS's two baselines (redact everything private,
//! and ask about every call), methods of guarded conversations, and an oracle that knows the ground truth. Each defence
//! is a row of the tables; `flowgate bench privacy --defence` chooses one by its name.

use std::fmt;

use flowgate::monitor::Judgement;
use flowgate_guard::conversation::Method;
use flowgate_guard::method::StepMethod;

use super::double::RegionChoice;
use super::world::WorldVariant;

/// A defence.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PrivacyDefence {
    /// The ground truth with the oracle labels, as if the model were a person who knows when to ask (RTBAS, 8.2).
    Oracle,
    /// A guarded conversation whose screener is the attention of a local model (RTBAS, 3.3 and 7.2). A run of it needs
    /// the reader of [`PrivacySuite::with_attention`](super::PrivacySuite::with_attention).
    Attention,
    /// A guarded conversation.
    Live {
        /// The name in tables.
        name: &'static str,
        /// The method.
        method: Method,
        /// How the double chooses the regions that a step needs: in place of the screener's model, if the method has a
        /// screener, and as the agent that looks.
        judge: RegionChoice,
        /// The data of the environments.
        variant: WorldVariant,
    },
}

/// The default method of `flowgate run`, which the tables mark.
pub const OURS: &str = "lowest-first";

/// A name that no defence has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownPrivacyDefence(String);

impl fmt::Display for UnknownPrivacyDefence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The seed does not affect the names. A name that occurs twice is listed once.
        let mut names: Vec<&str> = PrivacyDefence::all(0).map(PrivacyDefence::name).collect();
        let mut listed = std::collections::BTreeSet::new();
        names.retain(|name| listed.insert(*name));
        write!(f, "there is no defence `{}`; use one of {}", self.0.escape_debug(), names.join(", "))
    }
}

impl std::error::Error for UnknownPrivacyDefence {}

impl PrivacyDefence {
    /// Returns the defences that run on the data of the suite. A name that begins with `paper/` is that of a baseline
    /// of RTBAS. Any other name is that of the method; if several judges are compared under one method, the name of the
    /// judge follows. `seed` determines the errors of the noisy judge.
    pub fn standard(seed: u64) -> Vec<Self> {
        let live =
            |name, method, judge| Self::Live { name, method, judge, variant: WorldVariant::Accidental };
        vec![
            live("paper/redact-all", Method::new(&RedactAll), RegionChoice::Honest),
            live("paper/confirm-always", Method::new(&ConfirmAlways), RegionChoice::Honest),
            live("never-look", Method::NeverLook, RegionChoice::Honest),
            live("confirm-acting", Method::ConfirmActing, RegionChoice::Honest),
            live("everything", Method::Everything, RegionChoice::Honest),
            live("provenance", Method::Provenance, RegionChoice::Honest),
            live("provenance/guessing", Method::Provenance, RegionChoice::Guessing),
            live("cheapest-first", Method::CheapestFirst, RegionChoice::Honest),
            live("judge/honest", Method::Judge, RegionChoice::Honest),
            live("judge/noisy", Method::Judge, RegionChoice::Noisy { seed }),
            live("judge/curious", Method::Judge, RegionChoice::Curious),
            live("introspection/honest", Method::Introspection, RegionChoice::Honest),
            live(OURS, Method::LowestFirst, RegionChoice::Honest),
            live("lowest-first/curious", Method::LowestFirst, RegionChoice::Curious),
            Self::Oracle,
        ]
    }

    /// Returns the defences that run on the data of the variant `planted`, which contains instructions to a judge:
    /// judges that obey these, and honest ones to compare them with.
    pub fn planted() -> Vec<Self> {
        let live = |name, method, judge| Self::Live { name, method, judge, variant: WorldVariant::Planted };
        vec![
            live("planted/judge/honest", Method::Judge, RegionChoice::Honest),
            live("planted/judge/obeying", Method::Judge, RegionChoice::Obeying),
            live("planted/introspection/honest", Method::Introspection, RegionChoice::Honest),
            live("planted/introspection/obeying", Method::Introspection, RegionChoice::Obeying),
        ]
    }

    /// Returns the defences that run by default with a double, on both variants of the data: those of the suite, then
    /// the planted ones.
    pub fn every(seed: u64) -> Vec<Self> {
        [Self::standard(seed), Self::planted()].concat()
    }

    /// Returns the defence with this name, also one that runs only with a model. The seed determines the errors of the
    /// noisy judge.
    ///
    /// # Errors
    /// If there is none.
    pub fn parse(name: &str, seed: u64) -> Result<Self, UnknownPrivacyDefence> {
        let found = Self::all(seed).find(|defence| defence.name() == name);
        found.ok_or_else(|| UnknownPrivacyDefence(name.to_owned()))
    }

    /// Returns all defences: those that run with a double, then those that run only with a model. Some are in both
    /// lists, so a name can occur twice.
    fn all(seed: u64) -> impl Iterator<Item = Self> {
        Self::every(seed).into_iter().chain(Self::for_models())
    }

    /// Returns the name in tables and options.
    pub fn name(self) -> &'static str {
        match self {
            Self::Oracle => "oracle",
            Self::Attention => "attention",
            Self::Live { name, .. } => name,
        }
    }

    /// Returns the data with which the defence runs. The oracle, which reads no data, and the defence `attention` have
    /// [`WorldVariant::Accidental`].
    pub fn variant(self) -> WorldVariant {
        match self {
            Self::Oracle | Self::Attention => WorldVariant::Accidental,
            Self::Live { variant, .. } => variant,
        }
    }

    /// Returns the defences that run with a real model: those with the honest judge, since the other judges imitate
    /// errors that a model makes by itself. In names, `honest` becomes `model`, because the model itself is the
    /// screener. In the defence `attention`, the model is only the agent; the screener reads the attention of another
    /// model.
    pub fn for_models() -> Vec<Self> {
        let is_honest = |defence: &Self| matches!(defence, Self::Live { judge: RegionChoice::Honest, .. });
        let named = |defence: Self| match defence {
            Self::Live { name: "judge/honest", method, judge, variant } => {
                Self::Live { name: "judge/model", method, judge, variant }
            }
            Self::Live { name: "introspection/honest", method, judge, variant } => {
                Self::Live { name: "introspection/model", method, judge, variant }
            }
            other => other,
        };
        // The seed has no effect, since the noisy judge is left out.
        Self::standard(0).into_iter().filter(is_honest).map(named).chain([Self::Attention]).collect()
    }

    /// Returns the defence with the random numbers of another seed; `None` if the defence draws no random numbers, so
    /// that it has the same results with every seed.
    pub fn with_seed(self, seed: u64) -> Option<Self> {
        match self {
            Self::Live { name, method, judge: RegionChoice::Noisy { .. }, variant } => {
                Some(Self::Live { name, method, judge: RegionChoice::Noisy { seed }, variant })
            }
            Self::Live { .. } | Self::Attention | Self::Oracle => None,
        }
    }

    /// Returns whether the defence decides without a model: it is a guarded conversation whose method has no screener.
    /// Its results are then those of the method alone, and do not depend on how well a model screens.
    pub fn is_model_free(self) -> bool {
        matches!(self, Self::Live { method, .. } if method.screener().is_none())
    }
}

/// RTBAS's *Confirm Never - Redact All*: every private region is redacted, and nobody is asked.
#[derive(Debug)]
struct RedactAll;

/// All other answers are the defaults of [`StepMethod`]: every step is at the base label and is shown only what flows
/// to it, the model can neither look nor leave slots, and nobody is asked about a permitted call.
impl StepMethod for RedactAll {
    fn name(&self) -> &'static str {
        "redact-all"
    }

    fn doc(&self) -> &'static str {
        "nothing that is not public"
    }
}

/// RTBAS's *Confirm Every Time (GPTs)*: everything is shown, and a person is asked about every call.
#[derive(Debug)]
struct ConfirmAlways;

impl StepMethod for ConfirmAlways {
    fn name(&self) -> &'static str {
        "confirm-always"
    }

    fn doc(&self) -> &'static str {
        "the model sees everything; a person is asked about every call"
    }

    /// Returns true: nothing is hidden from a step, whatever its label.
    fn shows_everything(&self) -> bool {
        true
    }

    /// Returns true: a person is asked about every call, also about one that the policy permits.
    fn confirms(&self, _: &Judgement) -> bool {
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_bring_a_defence_back() {
        for defence in PrivacyDefence::every(3) {
            assert_eq!(PrivacyDefence::parse(defence.name(), 3), Ok(defence));
        }
        // The advice names each defence once, also those that run only with a model.
        let error = PrivacyDefence::parse("prayer", 1).unwrap_err().to_string();
        let (problem, names) = error.split_once("; use one of ").unwrap();
        assert_eq!(problem, "there is no defence `prayer`");
        let names: Vec<&str> = names.split(", ").collect();
        assert!(names.iter().all(|name| PrivacyDefence::parse(name, 1).is_ok()), "{error}");
        for defence in PrivacyDefence::all(1) {
            assert_eq!(names.iter().filter(|name| **name == defence.name()).count(), 1, "{error}");
        }
        assert!(
            PrivacyDefence::standard(3)
                .into_iter()
                .all(|defence| defence.variant() == WorldVariant::Accidental)
        );
        // Only the noisy judge draws random numbers.
        let drawing = PrivacyDefence::every(3).into_iter().filter(|defence| defence.with_seed(4).is_some());
        assert_eq!(drawing.map(PrivacyDefence::name).collect::<Vec<_>>(), ["judge/noisy"]);
        let noisy = PrivacyDefence::parse("judge/noisy", 3).unwrap();
        assert_eq!(noisy.with_seed(4), PrivacyDefence::parse("judge/noisy", 4).ok());
        assert!(PrivacyDefence::planted().into_iter().all(|defence| defence.name().starts_with("planted/")));
    }
}
