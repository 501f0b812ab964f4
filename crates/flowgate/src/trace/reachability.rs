//! Decides which earlier events the agent of an event had seen, and which of them could have influenced the event,
//! across agents that branch and merge. The flow operators of rules (`->`, `=>`) and the monitor use this module.

use std::collections::HashMap;

use super::{EventId, PossibleInfluence, Trace};

impl Trace {
    /// Returns whether the agent of `later` had seen `earlier` before `later` happened. It had seen an earlier event of
    /// its own, and an event of another agent if the vector clock of `later` counts it. False if one of the two does
    /// not exist.
    pub fn sees(&self, later: EventId, earlier: EventId) -> bool {
        let (Some(b), Some(a)) = (self.event(later), self.event(earlier)) else { return false };
        // `sequence` numbers the events of one agent. An entry of `clock` is the number of events of another agent that
        // were seen.
        if a.agent == b.agent {
            a.sequence < b.sequence
        } else {
            b.clock.get(a.agent).is_some_and(|seen| a.sequence < *seen)
        }
    }

    /// Returns whether `earlier` may have influenced `later`, directly or through intermediate events.
    pub fn influences(&self, earlier: EventId, later: EventId) -> bool {
        self.influences_in_steps(earlier, later).0
    }

    /// Returns whether `earlier` may have influenced `later`, as [`influences`](Self::influences) does, and the number
    /// of visited events, for which the caller pays with fuel. Follows dependencies backwards from `later`, from event
    /// to event: to the events that the attribution of an event names, and to the calls that wrote to a store before
    /// the event read the store.
    pub(crate) fn influences_in_steps(&self, earlier: EventId, later: EventId) -> (bool, usize) {
        let mut visited = std::collections::HashSet::new();
        // The number of visited writers of each store, so that none is visited again for a later read.
        let mut visited_of_store: HashMap<usize, usize> = HashMap::new();
        let mut pending = vec![later];
        let mut steps = 0;
        while let Some(id) = pending.pop() {
            steps += 1;
            let Some(event) = self.event(id).filter(|_| visited.insert(id)) else { continue };
            // The first `count` writers of a store had written to it before the event was read from it.
            for (store, count) in &event.read_from {
                let visited_writers = visited_of_store.entry(*store).or_default();
                let writers =
                    self.writers.get(*store).into_iter().flatten().take(*count).skip(*visited_writers);
                *visited_writers = (*visited_writers).max(*count);
                for writer in writers {
                    steps += 1;
                    if *writer == earlier {
                        return (true, steps);
                    }
                    pending.push(*writer);
                }
            }
            match &event.influence {
                // The event may depend on everything that its agent had seen.
                PossibleInfluence::All if self.sees(id, earlier) => return (true, steps),
                PossibleInfluence::Of(sources) if sources.contains(&earlier) => return (true, steps),
                PossibleInfluence::Of(sources) => pending.extend(sources),
                PossibleInfluence::View(_, sources) if sources.contains(&earlier) => return (true, steps),
                // A model that was shown a view saw the events whose existence flows to the label of the view.
                PossibleInfluence::View(label, sources) => {
                    let shown = |other: &EventId| {
                        self.sees(id, *other) && self.existence_label(*other).flows_to(label)
                    };
                    if shown(&earlier) {
                        return (true, steps);
                    }
                    // Each earlier event is tested, so each costs a step.
                    steps += id.0;
                    pending.extend(sources);
                    pending.extend((0..id.0).map(EventId).filter(shown));
                }
                PossibleInfluence::All => {
                    // Everything that a seen event had seen is seen as well, and `earlier` is not among it. So only a
                    // seen event that has read a store can lead to `earlier`.
                    if self.writers.iter().all(Vec::is_empty) {
                        continue;
                    }
                    steps += id.0;
                    let reads =
                        |other: &EventId| self.event(*other).is_some_and(|event| !event.read_from.is_empty());
                    pending
                        .extend((0..id.0).map(EventId).filter(|other| reads(other) && self.sees(id, *other)));
                }
            }
        }
        (false, steps)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::label::Label;
    use crate::trace::document::Document;
    use crate::trace::{EventPositionError, Message, Status, TraceEntry};

    fn push(trace: &mut Trace, name: &str, agent: &str, parents: &[&str]) -> EventId {
        let message = Message::new("user", Value::String(name.into()));
        let entry = TraceEntry {
            agent: Some(agent.into()),
            name: Some(name.into()),
            parents: parents.iter().map(|p| (*p).to_owned()).collect(),
            ..TraceEntry::from(message)
        };
        let place = trace.position_of(&entry).unwrap();
        let document = Document::new(&entry.body, Label::BOTTOM);
        trace.append(entry, place, document, Status::Done, None, PossibleInfluence::All)
    }

    /// The reference definition: walks the edges.
    fn reaches(edges: &[(usize, usize)], from: usize, to: usize) -> bool {
        edges.iter().any(|(a, b)| *a == from && (*b == to || reaches(edges, *b, to)))
    }

    #[test]
    fn branches_do_not_see_each_other_and_a_merge_sees_both() {
        let mut trace = Trace::new();
        let start = push(&mut trace, "start", "", &[]);
        let left = push(&mut trace, "left", "L", &["start"]);
        let right = push(&mut trace, "right", "R", &["start"]);
        let left2 = push(&mut trace, "left2", "L", &[]);
        let merge = push(&mut trace, "merge", "", &["left2"]);
        let all = push(&mut trace, "all", "", &["right"]);
        for (later, earlier, expected) in [
            (left, start, true),
            (right, left, false),
            (left, right, false),
            (left2, left, true),
            (merge, left, true),
            (merge, right, false),
            (all, right, true),
            (start, start, false),
        ] {
            assert_eq!(trace.sees(later, earlier), expected, "{later} sees {earlier}");
        }
        let unknown = TraceEntry { parents: vec!["nobody".into()], ..trace_entry() };
        assert_eq!(trace.position_of(&unknown).unwrap_err(), EventPositionError::UnknownParent);
        let taken = TraceEntry { name: Some("start".into()), ..trace_entry() };
        assert_eq!(trace.position_of(&taken).unwrap_err(), EventPositionError::DuplicateName);
    }

    fn trace_entry() -> TraceEntry {
        TraceEntry::user(Value::Null)
    }

    /// The kinds of generated events.
    const READ: usize = 0;
    const WRITE: usize = 1;

    #[test]
    fn a_store_that_an_earlier_event_has_read_connects_agents() {
        let mut trace = Trace::new();
        let writer = push(&mut trace, "write", "b", &[]);
        trace.record_write(writer, &[0]);
        let start = push(&mut trace, "start", "", &[]);
        let late = push(&mut trace, "write2", "b", &[]);
        trace.record_write(late, &[0]);
        let read = push(&mut trace, "read", "", &[]);
        trace.record_store_read(read, &[0]);
        let after = push(&mut trace, "write3", "b", &[]);
        trace.record_write(after, &[0]);
        let call = push(&mut trace, "call", "", &[]);
        assert!(!trace.sees(call, late));
        for (earlier, later, expected) in
            [(late, call, true), (late, read, true), (after, call, false), (late, start, false)]
        {
            assert_eq!(trace.influences(earlier, later), expected, "{earlier} => {later}");
        }
    }

    proptest::proptest! {
        #[test]
        fn influences_agree_with_reachability(
            steps in proptest::collection::vec((0_usize..3, 0_usize..8, 0_usize..4, 0_usize..2), 1..14)
        ) {
            let mut trace = Trace::new();
            let mut edges = Vec::new();
            let mut heads: [Option<usize>; 3] = [None; 3];
            let mut writers: [Vec<usize>; 2] = Default::default();
            for (index, (agent, parent, kind, store)) in steps.iter().enumerate() {
                let parent = Some(*parent).filter(|parent| *parent < index);
                let names: Vec<String> = parent.iter().map(|parent| format!("e{parent}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                if heads[*agent].is_none() && parent.is_none() {
                    edges.extend(heads.iter().flatten().map(|head| (*head, index)));
                }
                edges.extend(parent.map(|parent| (parent, index)));
                edges.extend(heads[*agent].map(|head| (head, index)));
                heads[*agent] = Some(index);
                let id = push(&mut trace, &format!("e{index}"), ["", "b", "c"][*agent], &names);
                if *kind == READ {
                    edges.extend(writers[*store].iter().map(|writer| (*writer, index)));
                    trace.record_store_read(id, &[*store]);
                } else if *kind == WRITE {
                    writers[*store].push(index);
                    trace.record_write(id, &[*store]);
                }
            }
            for a in 0..steps.len() {
                for b in 0..steps.len() {
                    let (earlier, later) = (EventId(a), EventId(b));
                    proptest::prop_assert_eq!(trace.influences(earlier, later), reaches(&edges, a, b), "{} {}", a, b);
                }
            }
        }

        #[test]
        fn clocks_agree_with_reachability(steps in proptest::collection::vec((0_usize..3, 0_usize..8, 0_usize..8), 1..14)) {
            let mut trace = Trace::new();
            let mut edges = Vec::new();
            let mut heads: [Option<usize>; 3] = [None; 3];
            for (index, (agent, one, two)) in steps.iter().enumerate() {
                let parents: Vec<usize> = [*one, *two].into_iter().filter(|parent| *parent < index).collect();
                let names: Vec<String> = parents.iter().map(|parent| format!("e{parent}")).collect();
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                if heads[*agent].is_none() && parents.is_empty() {
                    edges.extend(heads.iter().flatten().map(|head| (*head, index)));
                }
                edges.extend(parents.iter().map(|parent| (*parent, index)));
                edges.extend(heads[*agent].map(|head| (head, index)));
                heads[*agent] = Some(index);
                push(&mut trace, &format!("e{index}"), ["", "b", "c"][*agent], &names);
            }
            for a in 0..steps.len() {
                for b in 0..steps.len() {
                    proptest::prop_assert_eq!(trace.sees(EventId(b), EventId(a)), reaches(&edges, a, b), "{} {}", a, b);
                }
            }
        }
    }
}
