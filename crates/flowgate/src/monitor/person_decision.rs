//! Defines the decision of a person on a [`Question`](super::Question). The programs that ask people use this type, so
//! that their requests, databases, audit logs and terminals have one name for each decision. The monitor does not use
//! it: such a program calls [`approve`](super::Monitor::approve) or
//! [`approve_for_session`](super::Monitor::approve_for_session) if the person allows the call.

/// What a person decides on a question. Why a question has no decision is not part of it: see `Decision` of
/// `flowgate_guard`.
///
/// It is exhaustive on purpose: a program that acts on it must be changed when a variant is added.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum PersonDecision {
    /// The call may run, once.
    AllowOnce,
    /// The call may run, and so may equal calls of the rest of its conversation.
    AllowForConversation,
    /// The call may run, and so may equal calls of all conversations of the client, under the terms of a lasting grant.
    AllowLasting,
    /// The call must not run.
    Deny,
}

impl PersonDecision {
    /// All decisions: those that allow the call, the one that allows least first, and then the denial.
    pub const ALL: [Self; 4] = [Self::AllowOnce, Self::AllowForConversation, Self::AllowLasting, Self::Deny];

    /// Returns the stable name of the decision, as requests, metrics and audit logs write it.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow",
            Self::AllowForConversation => "grant",
            Self::AllowLasting => "grant-lasting",
            Self::Deny => "deny",
        }
    }

    /// Returns the decision with this [name](Self::name); `None` if there is none.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|decision| decision.name() == name)
    }

    /// Returns the words by which a person chooses the decision.
    pub fn words(self) -> &'static str {
        match self {
            Self::AllowOnce => "allow once",
            Self::AllowForConversation => "allow for the conversation",
            Self::AllowLasting => "allow from now on",
            Self::Deny => "deny",
        }
    }

    /// Returns whether the call may run.
    pub fn allows(self) -> bool {
        self != Self::Deny
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_decisions_are_stable() {
        let names = PersonDecision::ALL.map(PersonDecision::name);
        assert_eq!(names, ["allow", "grant", "grant-lasting", "deny"]);
        for decision in PersonDecision::ALL {
            assert_eq!(PersonDecision::from_name(decision.name()), Some(decision));
            assert_eq!(decision.allows(), decision.words().starts_with("allow"));
        }
        for unknown in ["", "Allow", "allow once", "refuse"] {
            assert_eq!(PersonDecision::from_name(unknown), None, "{unknown}");
        }
    }
}
