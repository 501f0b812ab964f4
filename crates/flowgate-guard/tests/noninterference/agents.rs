//! What each agent of a trace has seen: its own events, and those that the events had seen which it names as parents.
//!
//! The monitor keeps a clock for each agent; here, every event keeps the set of those that were seen before it.

use std::collections::{BTreeMap, BTreeSet};

/// The main agent's name.
pub(crate) const MAIN: &str = "";

#[derive(Debug, Default)]
pub(crate) struct Agents {
    seen: BTreeMap<String, BTreeSet<usize>>,
    /// For each event, what its agent had seen before it.
    before: Vec<BTreeSet<usize>>,
}

impl Agents {
    /// An event of an agent happened.
    pub(crate) fn happened(&mut self, agent: &str, event: usize) {
        assert_eq!(event, self.before.len(), "events come in order");
        let seen = self.seen.entry(agent.to_owned()).or_default();
        self.before.push(seen.clone());
        seen.insert(event);
    }

    /// An agent is told what these events had seen, and the events. Who begins without a parent may have been told anything.
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
