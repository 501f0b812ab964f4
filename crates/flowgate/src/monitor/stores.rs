//! Stores: state outside the agent through which one call reaches another.
//!
//! What is written to a store keeps its label when it is read again, or a tool that may carry private text
//! could hand it to one whose output is public (RTBAS section 6.2). A tool that no `store` statement
//! mentions shares one store with all other such tools of its server.

use std::sync::Arc;

use crate::label::Label;
use crate::policy::pattern::{PatternId, Servers};
use crate::policy::plan::Plan;
use crate::trace::Tool;

/// What a tool does to stores, by index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Access {
    pub(super) writes: Vec<usize>,
    pub(super) reads: Vec<usize>,
}

#[derive(Debug, Clone)]
struct State {
    server: Option<Arc<str>>,
    /// `None` for the store of all undeclared tools of a server.
    declared: Option<usize>,
    label: Label,
    /// How often this session has written to it.
    version: u64,
    /// How often others have, as far as is known.
    others: u64,
    /// Stands for the last write that other sessions can know of; empty if there is none.
    stamp: String,
    /// Whether this session has written since.
    is_written: bool,
}

/// What is known of a store: its name if it is declared, or the server whose undeclared tools share it; what it carries, and
/// what stands for the last write to it.
#[derive(Debug, Clone)]
pub(super) struct Carried<'s> {
    pub(super) declared: Option<usize>,
    pub(super) server: Option<Arc<str>>,
    pub(super) label: Label,
    pub(super) stamp: &'s str,
}

/// The labels of all stores.
#[derive(Debug, Clone, Default)]
pub(super) struct Stores {
    states: Vec<State>,
    /// What every store carries at least.
    floor: Label,
    /// How often anything has changed that is [carried](Self::carried).
    changes: u64,
}

impl Stores {
    fn index(&mut self, declared: Option<usize>, server: Option<&Arc<str>>) -> usize {
        let server = server.filter(|_| declared.is_none());
        let known = self.states.iter().position(|s| s.declared == declared && s.server.as_ref() == server);
        known.unwrap_or_else(|| {
            let (server, label) = (server.cloned(), Label::BOTTOM);
            let (stamp, is_written) = (String::new(), false);
            self.states.push(State { server, declared, label, version: 0, others: 0, stamp, is_written });
            self.changes += 1;
            self.states.len() - 1
        })
    }

    /// The stores that a tool writes and reads. Only a harmless tool does not write where nothing is declared.
    ///
    /// A pattern that has become ambiguous adds stores, but takes no tool out of the store of its server.
    pub(super) fn access(
        &mut self,
        plan: &Plan,
        servers: &Servers,
        tool: &Tool,
        is_harmless: bool,
    ) -> Access {
        let mut access = Access::default();
        let mut is_declared = false;
        for (declared, store) in plan.stores.iter().enumerate() {
            let mut among = |list: &[PatternId]| {
                let matches =
                    |id: &&PatternId| plan.patterns.get(id.0).is_some_and(|pattern| pattern.matches(tool));
                let matching: Vec<&PatternId> = list.iter().filter(matches).collect();
                is_declared |= matching.iter().any(|id| !servers.is_ambiguous(**id));
                !matching.is_empty()
            };
            let (writes, reads) = (among(&store.written), among(&store.read));
            if writes {
                access.writes.push(self.index(Some(declared), None));
            }
            if reads {
                access.reads.push(self.index(Some(declared), None));
            }
        }
        if !is_declared {
            let index = self.index(None, tool.server.as_ref());
            access.reads.push(index);
            if !is_harmless {
                access.writes.push(index);
            }
        }
        access
    }

    /// Notes that a call carrying `label` wrote to the stores.
    pub(super) fn write(&mut self, stores: &[usize], label: &Label) {
        for index in stores {
            if let Some(state) = self.states.get_mut(*index) {
                state.label = state.label.join(label);
                state.version += 1;
                state.is_written = true;
                self.changes += 1;
            }
        }
    }

    /// Marks what this session has written since the last time; whether it has.
    pub(super) fn stamp(&mut self, stamp: &str) -> bool {
        let mut is_written = false;
        for state in self.states.iter_mut().filter(|state| state.is_written) {
            stamp.clone_into(&mut state.stamp);
            (state.is_written, is_written) = (false, true);
            self.changes += 1;
        }
        is_written
    }

    /// Whether this session has written something since that was marked.
    pub(super) fn has_written(&self) -> bool {
        self.states.iter().any(|state| state.is_written)
    }

    /// Joins a label into stores that are not written to. What they hold has not changed.
    pub(super) fn raise(&mut self, stores: &[usize], label: &Label) {
        for index in stores {
            if let Some(state) = self.states.get_mut(*index).filter(|state| !label.flows_to(&state.label)) {
                state.label = state.label.join(label);
                self.changes += 1;
            }
        }
    }

    /// How often anything has changed that is [carried](Self::carried): as long as it is the same, so is that.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// What is known of each store. One that carries nothing and was never written to is left out: that a call of its tools was
    /// judged may be hidden.
    pub(super) fn carried(&self) -> impl Iterator<Item = Carried<'_>> + '_ {
        let is_known =
            |state: &&State| state.label != Label::BOTTOM || state.is_written || !state.stamp.is_empty();
        self.states.iter().filter(is_known).map(|state| Carried {
            declared: state.declared,
            server: state.server.clone(),
            label: state.label.join(&self.floor),
            stamp: &state.stamp,
        })
    }

    /// What every store carries at least.
    pub(super) fn floor(&self) -> Label {
        self.floor
    }

    /// Joins what other sessions know of one store. One that they have written to has changed.
    pub(super) fn join(&mut self, known: &Carried<'_>) {
        let index = self.index(known.declared, known.server.as_ref());
        self.raise(&[index], &known.label);
        if let Some(state) = self.states.get_mut(index).filter(|state| state.stamp != known.stamp) {
            known.stamp.clone_into(&mut state.stamp);
            state.others += 1;
            self.changes += 1;
        }
    }

    /// Joins what every store carries elsewhere. If that is more, something was written that nobody knows the place of.
    pub(super) fn raise_floor(&mut self, label: &Label) {
        if !label.flows_to(&self.floor) {
            self.raise_all(label);
        }
    }

    /// Joins a label into every store, also into those that nobody has used yet.
    pub(super) fn raise_all(&mut self, label: &Label) {
        self.floor = self.floor.join(label);
        self.changes += 1;
        self.states.iter_mut().for_each(|state| state.others += 1);
    }

    /// The join of what the stores carry.
    pub(super) fn label(&self, stores: &[usize]) -> Label {
        let states = stores.iter().filter_map(|index| self.states.get(*index));
        states.fold(self.floor, |label, state| label.join(&state.label))
    }

    /// Whether a `store` statement declares it.
    pub(super) fn is_declared(&self, store: usize) -> bool {
        self.states.get(store).is_some_and(|state| state.declared.is_some())
    }

    /// How often other sessions have written to each of these stores.
    pub(super) fn versions_of_others(&self, stores: &[usize]) -> Vec<(usize, u64)> {
        stores.iter().filter_map(|index| Some((*index, self.states.get(*index)?.others))).collect()
    }

    /// Whether no other session has written to the stores since.
    pub(super) fn unchanged_by_others(&self, versions: &[(usize, u64)]) -> bool {
        versions.iter().all(|(index, others)| self.states.get(*index).is_some_and(|s| s.others == *others))
    }

    /// How often this session has written to each of the stores that an access touches.
    pub(super) fn versions(&self, access: &Access) -> Vec<(usize, u64)> {
        let touched = access.writes.iter().chain(&access.reads);
        touched.filter_map(|index| Some((*index, self.states.get(*index)?.version))).collect()
    }

    /// Whether this session has written to none of the stores since.
    pub(super) fn unchanged(&self, versions: &[(usize, u64)]) -> bool {
        versions.iter().all(|(index, version)| self.states.get(*index).is_some_and(|s| s.version == *version))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Policy;

    proptest! {
        /// Who has seen what is carried need not look again as long as nothing has changed.
        #[test]
        fn what_has_not_changed_is_the_same(
            steps in prop::collection::vec((0..7_u8, 0..3_usize, 0..3_usize), 1..24),
        ) {
            let policy = Policy::parse("lattice secrecy: public < private\nlattice integrity: trusted < untrusted").unwrap();
            let space = policy.space();
            let label = |dimension: &str, name: &str| space.element(dimension, name).unwrap().label;
            let labels = [Label::BOTTOM, label("secrecy", "private"), label("integrity", "untrusted")];
            let server = |number: usize| (number > 0).then(|| Arc::from(format!("s{number}")));
            let shown = |stores: &Stores| {
                let all: Vec<String> = stores.carried().map(|each| format!("{each:?}")).collect();
                (stores.floor(), all)
            };
            let mut stores = Stores::default();
            for (step, store, label) in steps {
                let (before, changes) = (shown(&stores), stores.changes());
                let label = &labels[label];
                match step {
                    0 => drop(stores.index(None, server(store).as_ref())),
                    1 => stores.write(&[store], label),
                    2 => drop(stores.stamp(&format!("stamp {store}"))),
                    3 => stores.raise(&[store], label),
                    4 => stores.join(&Carried { declared: None, server: server(store), label: *label, stamp: "theirs" }),
                    5 => stores.raise_floor(label),
                    _ => stores.raise_all(label),
                }
                prop_assert!(stores.changes() > changes || shown(&stores) == before);
            }
        }
    }
}
