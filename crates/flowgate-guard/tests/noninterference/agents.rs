//! Computes what each agent of a trace has seen, for the oracle: its own events, their parents, and everything that the
//! parents had seen.
//!
//! The monitor keeps a clock for each agent; the oracle keeps, for every event, the set of the events before
//! it.

use std::collections::{BTreeMap, BTreeSet};

/// The name of the main agent.
pub(crate) const MAIN: &str = "";

#[derive(Debug, Default)]
pub(crate) struct AgentKnowledge {
    seen: BTreeMap<String, BTreeSet<usize>>,
    /// For each event, what its agent had seen before it.
    before: Vec<BTreeSet<usize>>,
}

impl AgentKnowledge {
    /// Records an event of an agent.
    pub(crate) fn happened(&mut self, agent: &str, event: usize) {
        assert_eq!(event, self.before.len(), "events come in order");
        let seen = self.seen.entry(agent.to_owned()).or_default();
        self.before.push(seen.clone());
        seen.insert(event);
    }

    /// Adds parents to an agent: it has seen these events and all that they had seen. An agent that starts
    /// without a parent may have seen everything.
    pub(crate) fn joins(&mut self, agent: &str, parents: &[usize]) {
        let mut seen = self.seen.get(agent).cloned().unwrap_or_default();
        if parents.is_empty() && !self.knows(agent) {
            self.seen.values().for_each(|others| seen.extend(others));
        }
        for parent in parents {
            seen.insert(*parent);
            seen.extend(&self.before[*parent]);
        }
        self.seen.insert(agent.to_owned(), seen);
    }

    pub(crate) fn knows(&self, agent: &str) -> bool {
        self.seen.contains_key(agent)
    }

    pub(crate) fn seen(&self, agent: &str) -> impl Iterator<Item = usize> + '_ {
        self.seen.get(agent).into_iter().flatten().copied()
    }
}
