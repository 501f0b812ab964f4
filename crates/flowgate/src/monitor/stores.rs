//! Records the labels of stores, the external state through which one call influences another. The monitor raises the
//! label of a store when a call writes to the store, and joins this label into the outputs of calls that read it.
//!
//! Text that is written to a store keeps its label when it is read again. Otherwise a tool that may carry private text
//! could pass it to one whose output is public (section 6.2 of the paper RTBAS). Those tools of a server that no
//! `store` statement mentions share one store.

use std::sync::Arc;

use crate::label::Label;
use crate::policy::pattern::{MatchedServers, PatternId};
use crate::policy::plan::Plan;
use crate::trace::Tool;

/// The stores that a tool writes and reads, by index.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct StoreAccess {
    pub(super) writes: Vec<usize>,
    pub(super) reads: Vec<usize>,
}

/// One store: a declared one, or the one that the undeclared tools of a server share.
#[derive(Debug, Clone)]
struct StoreState {
    /// The server of undeclared tools; `None` for the agent's own tools, and for a declared store.
    server: Option<Arc<str>>,
    /// The index of the `store` statement; `None` for the store of undeclared tools.
    declared: Option<usize>,
    label: Label,
    /// The number of writes by this session.
    version: u64,
    /// The number of writes by other sessions, as far as they are known.
    foreign_writes: u64,
    /// The stamp of the last write that other sessions can observe; empty if there is none.
    stamp: String,
    /// Whether this session has written since the last stamp.
    is_written: bool,
}

/// The record of a store: its index if it is declared, or the server whose undeclared tools share it; its
/// label; and the stamp of the last write to it.
#[derive(Debug, Clone)]
pub(super) struct StoreRecord<'s> {
    pub(super) declared: Option<usize>,
    pub(super) server: Option<Arc<str>>,
    pub(super) label: Label,
    pub(super) stamp: &'s str,
}

/// The labels of all stores.
#[derive(Debug, Clone, Default)]
pub(super) struct StoreLabels {
    states: Vec<StoreState>,
    /// The lower bound on the label of every store.
    floor: Label,
    /// The number of possible changes to the [records](Self::records).
    changes: u64,
}

impl StoreLabels {
    /// Returns the index in `states` of a declared store or, with `declared: None`, of the store that the undeclared
    /// tools of a server share. Creates the store if it was not used before.
    fn index(&mut self, declared: Option<usize>, server: Option<&Arc<str>>) -> usize {
        let server = server.filter(|_| declared.is_none());
        let existing = self.states.iter().position(|s| s.declared == declared && s.server.as_ref() == server);
        existing.unwrap_or_else(|| {
            self.states.push(StoreState {
                server: server.cloned(),
                declared,
                label: Label::BOTTOM,
                version: 0,
                foreign_writes: 0,
                stamp: String::new(),
                is_written: false,
            });
            self.states.len() - 1
        })
    }

    /// Returns the stores that a tool writes and reads. A tool that no `store` statement mentions reads the store that
    /// the undeclared tools of its server share, and also writes to this store unless the call is harmless
    /// (`is_harmless`): the policy permits it at every label.
    ///
    /// A tool that only ambiguous patterns match accesses the declared stores of these patterns as well as the store of
    /// its server.
    pub(super) fn access(
        &mut self,
        plan: &Plan,
        servers: &MatchedServers,
        tool: &Tool,
        is_harmless: bool,
    ) -> StoreAccess {
        let mut access = StoreAccess::default();
        let mut is_declared = false;
        for (declared, store) in plan.stores.iter().enumerate() {
            // Returns whether one of the patterns matches the tool, and sets `is_declared` if such a pattern is certain
            // to mean this tool.
            let mut matches_one_of = |list: &[PatternId]| {
                let matches =
                    |id: &&PatternId| plan.patterns.get(id.0).is_some_and(|pattern| pattern.matches(tool));
                let matching: Vec<&PatternId> = list.iter().filter(matches).collect();
                // An ambiguous pattern may mean another tool, so the tool also remains in the store of its server.
                is_declared |= matching.iter().any(|id| !servers.is_ambiguous(**id));
                !matching.is_empty()
            };
            let (writes, reads) = (matches_one_of(&store.written), matches_one_of(&store.read));
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

    /// Records that a call with this label wrote to the stores: raises their labels, and counts the write.
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

    /// Sets `stamp`, a text that the caller has not used before, in the record of each store that this session has
    /// written to since the last stamp. Other sessions that read the record notice the write by the new stamp. Returns
    /// whether there is such a store.
    pub(super) fn stamp(&mut self, stamp: &str) -> bool {
        let mut is_written = false;
        for state in self.states.iter_mut().filter(|state| state.is_written) {
            stamp.clone_into(&mut state.stamp);
            (state.is_written, is_written) = (false, true);
            self.changes += 1;
        }
        is_written
    }

    /// Returns whether this session has written to a store that it has not [stamped](Self::stamp) since.
    pub(super) fn has_written(&self) -> bool {
        self.states.iter().any(|state| state.is_written)
    }

    /// Undoes all changes since `before`, an earlier state. Stores that were used for the first time since then stay in
    /// the list as unused ones, so that the indices of stores remain valid.
    pub(super) fn restore(&mut self, before: &Self) {
        for (index, state) in self.states.iter_mut().enumerate() {
            match before.states.get(index) {
                Some(earlier) => state.clone_from(earlier),
                None => {
                    (state.label, state.version, state.is_written) = (Label::BOTTOM, 0, false);
                    (state.foreign_writes, state.stamp) = (0, String::new());
                }
            }
        }
        self.floor = before.floor;
        self.changes += 1;
    }

    /// Joins a label into stores without counting a write: the content of the stores is unchanged, so approvals that
    /// refer to it stay valid.
    pub(super) fn raise(&mut self, stores: &[usize], label: &Label) {
        for index in stores {
            if let Some(state) = self.states.get_mut(*index).filter(|state| !label.flows_to(&state.label)) {
                state.label = state.label.join(label);
                self.changes += 1;
            }
        }
    }

    /// Returns a counter that increases with each operation that may change the [records](Self::records). While it is
    /// the same, so are the records.
    pub(super) fn changes(&self) -> u64 {
        self.changes
    }

    /// Returns the record of each store, the declared ones first. The label of a record is not lower than `floor`, the
    /// lower bound for all stores. A store at bottom that no session has written to is omitted: it exists only because
    /// a call of its tools was judged, and this call may be hidden from the reader of the records. (`is_written` shows
    /// writes since the last stamp, and `stamp` shows earlier ones.)
    pub(super) fn records(&self) -> impl Iterator<Item = StoreRecord<'_>> + '_ {
        let is_recorded =
            |state: &&StoreState| state.label != Label::BOTTOM || state.is_written || !state.stamp.is_empty();
        let mut recorded: Vec<&StoreState> = self.states.iter().filter(is_recorded).collect();
        recorded.sort_by_key(|state| (state.declared.is_none(), state.declared, state.server.as_deref()));
        recorded.into_iter().map(|state| StoreRecord {
            declared: state.declared,
            server: state.server.clone(),
            label: state.label.join(&self.floor),
            stamp: &state.stamp,
        })
    }

    /// Returns the lower bound on the label of every store.
    pub(super) fn floor(&self) -> Label {
        self.floor
    }

    /// Joins the record of a store, which other sessions have left, into the state of this store here. Creates the
    /// store if this session has not used it. A different stamp means that another session has written to it.
    pub(super) fn join_record(&mut self, record: &StoreRecord<'_>) {
        let index = self.index(record.declared, record.server.as_ref());
        self.raise(&[index], &record.label);
        if let Some(state) = self.states.get_mut(index).filter(|state| state.stamp != record.stamp) {
            record.stamp.clone_into(&mut state.stamp);
            state.foreign_writes += 1;
            self.changes += 1;
        }
    }

    /// Raises the lower bound on the labels of all stores to `label`, the bound that other sessions recorded. If the
    /// bound rises, another session has written to an unknown store, so this counts as a write of another session to
    /// every store.
    pub(super) fn raise_floor(&mut self, label: &Label) {
        if !label.flows_to(&self.floor) {
            self.raise_all(label);
        }
    }

    /// Joins a label into every store, including those that are not used yet, and counts a write of another session to
    /// each.
    pub(super) fn raise_all(&mut self, label: &Label) {
        self.floor = self.floor.join(label);
        self.changes += 1;
        self.states.iter_mut().for_each(|state| state.foreign_writes += 1);
    }

    /// Returns the join of the labels of the stores, at least the lower bound for all stores.
    pub(super) fn label(&self, stores: &[usize]) -> Label {
        let states = stores.iter().filter_map(|index| self.states.get(*index));
        states.fold(self.floor, |label, state| label.join(&state.label))
    }

    /// Returns whether a `store` statement declares the store.
    pub(super) fn is_declared(&self, store: usize) -> bool {
        self.states.get(store).is_some_and(|state| state.declared.is_some())
    }

    /// Returns each of these stores with the number of writes to it by other sessions. Omits a store that is unknown.
    pub(super) fn versions_of_others(&self, stores: &[usize]) -> Vec<(usize, u64)> {
        stores.iter().filter_map(|index| Some((*index, self.states.get(*index)?.foreign_writes))).collect()
    }

    /// Returns whether no other session has written to the stores since `versions` was returned by
    /// [`versions_of_others`](Self::versions_of_others).
    pub(super) fn is_unchanged_by_others(&self, versions: &[(usize, u64)]) -> bool {
        versions
            .iter()
            .all(|(index, others)| self.states.get(*index).is_some_and(|s| s.foreign_writes == *others))
    }

    /// Returns each of the stores that an access touches with the number of writes by this session to it.
    pub(super) fn versions(&self, access: &StoreAccess) -> Vec<(usize, u64)> {
        let touched = access.writes.iter().chain(&access.reads);
        touched.filter_map(|index| Some((*index, self.states.get(*index)?.version))).collect()
    }

    /// Returns whether this session has written to none of the stores since [`versions`](Self::versions) returned
    /// `versions`.
    pub(super) fn is_unchanged(&self, versions: &[(usize, u64)]) -> bool {
        versions.iter().all(|(index, version)| self.states.get(*index).is_some_and(|s| s.version == *version))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::policy::Policy;

    /// A call that must not be observable can be the first to reach a store.
    #[test]
    fn the_order_in_which_stores_are_met_is_not_carried() {
        let carried = |order: &[(Option<usize>, Option<&str>)]| {
            let mut stores = StoreLabels::default();
            for (declared, server) in order {
                let server = server.map(Arc::from);
                let index = stores.index(*declared, server.as_ref());
                stores.write(&[index], &Label::BOTTOM);
            }
            let known = stores.records().map(|each| (each.declared, each.server));
            known.collect::<Vec<_>>()
        };
        let first =
            carried(&[(Some(1), None), (None, None), (None, Some("b")), (Some(0), None), (None, Some("a"))]);
        let second =
            carried(&[(None, Some("a")), (Some(0), None), (None, Some("b")), (None, None), (Some(1), None)]);
        assert_eq!(first, second);
        assert_eq!(first.len(), 5);
    }

    proptest! {
        /// A caller that has read the records need not read them again while the change count is the same.
        #[test]
        fn the_change_count_identifies_the_records(
            steps in prop::collection::vec((0..7_u8, 0..3_usize, 0..3_usize), 1..24),
        ) {
            let policy = Policy::parse("lattice secrecy: public < private\nlattice integrity: trusted < untrusted").unwrap();
            let space = policy.space();
            let label = |dimension: &str, name: &str| space.element(dimension, name).unwrap().label;
            let labels = [Label::BOTTOM, label("secrecy", "private"), label("integrity", "untrusted")];
            let server = |number: usize| (number > 0).then(|| Arc::from(format!("s{number}")));
            let shown = |stores: &StoreLabels| {
                let all: Vec<String> = stores.records().map(|each| format!("{each:?}")).collect();
                (stores.floor(), all)
            };
            let mut stores = StoreLabels::default();
            for (step, store, label) in steps {
                let (before, changes) = (shown(&stores), stores.changes());
                let label = &labels[label];
                match step {
                    0 => drop(stores.index(None, server(store).as_ref())),
                    1 => stores.write(&[store], label),
                    2 => drop(stores.stamp(&format!("stamp {store}"))),
                    3 => stores.raise(&[store], label),
                    4 => stores.join_record(&StoreRecord { declared: None, server: server(store), label: *label, stamp: "theirs" }),
                    5 => stores.raise_floor(label),
                    _ => stores.raise_all(label),
                }
                prop_assert!(stores.changes() > changes || shown(&stores) == before);
            }
        }
    }
}
