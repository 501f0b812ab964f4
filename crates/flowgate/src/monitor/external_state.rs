//! Saves and restores the labels of stores (external state that tools write and read) across sessions.
//!
//! For example, one conversation stores an untrusted page in a memory server, and the next one reads the page as its
//! own notes. So each session needs the labels of what earlier sessions with the same external state wrote.
//! [`Monitor::external_state_record`] returns these labels as JSON, and [`Monitor::join_external_state`] joins them
//! into the stores of another session. In between, the caller persists the record; it also decides which sessions share
//! a record. No function of this module lowers a recorded label; a caller that discards a record should log that.
//!
//! If the policy declares other stores than it did when the record was made, it is unknown which stores now contain the
//! written text. The join of all recorded labels is then joined into every store.

use std::fmt;
use std::sync::Arc;

use serde_json::{Value, json};

use super::Monitor;
use super::input_record::MonitorInput;
use super::stores::StoreRecord;
use crate::label::Label;
use crate::policy::pattern::PatternId;
use crate::policy::plan::Plan;

/// The error for a record of stores that cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalStateError(&'static str);

impl fmt::Display for ExternalStateError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the recorded labels of external state cannot be read: {}", self.0)
    }
}

impl std::error::Error for ExternalStateError {}

/// # External state
///
/// The labels of stores outlive a session: a record brings them into the next one.
impl Monitor {
    /// Returns the record of the external state as JSON, which later sessions join into theirs. It contains each store
    /// that this session or an earlier one has written to, or whose label it has raised: the label of the store, and
    /// the stamp of the last write. It also contains the declarations of stores in the policy, and the lower bound on
    /// the labels of all stores (`floor`).
    pub fn external_state_record(&self) -> Value {
        let (plan, space) = (&self.policy.plan, self.policy.space());
        let stores = self.stores.records().map(|StoreRecord { declared, server, label, stamp }| {
            let label = space.to_names(&label, &self.name_table);
            match declared.and_then(|index| plan.stores.get(index)) {
                Some(store) => json!({"store": store.name, "label": label, "written": stamp}),
                None => {
                    json!({"server": server.map(|server| server.to_string()), "label": label, "written": stamp})
                }
            }
        });
        let floor = space.to_names(&self.stores.floor(), &self.name_table);
        json!({"declared": store_declarations(plan), "floor": floor, "stores": stores.collect::<Vec<_>>()})
    }

    /// Stamps the stores that this session has written to since the last stamp, and returns whether there is such a
    /// store. A new stamp makes the [record](Self::external_state_record) show a write even if the label did not
    /// change. The caller must choose a stamp that no other session uses.
    pub fn stamp_writes(&mut self, stamp: &str) -> bool {
        self.stores.stamp(stamp)
    }

    /// Returns whether this session has written to a store since the last [stamp](Self::stamp_writes).
    pub fn has_written(&self) -> bool {
        self.stores.has_written()
    }

    /// Returns a counter that increases with each possible change of the
    /// [record](Self::external_state_record). While the counter is the same, so is the record.
    pub fn external_state_changes(&self) -> u64 {
        self.stores.changes()
    }

    /// Joins the record of earlier sessions into the stores of this one. If the record shows that another session has
    /// written to a store, approvals that refer to the store become void.
    ///
    /// # Errors
    /// If the record is malformed. The labels of the stores are then unchanged and may be too low, so the session
    /// should not begin.
    pub fn join_external_state(&mut self, record: &Value) -> Result<(), ExternalStateError> {
        let policy = Arc::clone(&self.policy);
        let (plan, space) = (&policy.plan, policy.space());
        let stores = record
            .get("stores")
            .and_then(Value::as_array)
            .ok_or(ExternalStateError("the list `stores` is missing in the record"))?;
        let mut records: Vec<StoreRecord<'_>> = Vec::new();
        // First the whole record is read, without an effect on the stores. `has_same_stores`: whether this policy
        // declares the same stores as the policy under which the record was made.
        let mut has_same_stores = record.get("declared") == Some(&store_declarations(plan));
        for store in stores {
            let label = store.get("label").filter(|label| label.is_object()).ok_or(ExternalStateError(
                "an entry of the list `stores` in the record has no object `label`",
            ))?;
            let label = space.from_names(label, &mut self.name_table);
            // The stamp of the last write, by which a write of another session is noticed.
            let stamp = store.get("written").and_then(Value::as_str).unwrap_or_default();
            let (declared, server) = match (store.get("store"), store.get("server")) {
                (Some(Value::String(name)), None) => {
                    let declared = plan.stores.iter().position(|known| known.name == *name);
                    has_same_stores &= declared.is_some();
                    (declared, None)
                }
                (None, Some(Value::String(server))) => (None, Some(server.as_str().into())),
                // The store that undeclared tools without a server share.
                (None, Some(Value::Null)) => (None, None),
                _ => {
                    return Err(ExternalStateError(
                        "an entry of `stores` names neither a store nor a server",
                    ));
                }
            };
            records.push(StoreRecord { declared, server, label, stamp });
        }
        // The lower bound on the label of every store; a record without it is not valid.
        let floor = record.get("floor").ok_or(ExternalStateError(
            "the field `floor`, the least label of all stores, is missing in the record",
        ))?;
        let floor = space.from_names(floor, &mut self.name_table);
        // The record is valid: from here on, nothing fails.
        self.version += 1;
        self.record_input(|| MonitorInput::ExternalState(record.clone()));
        self.stores.raise_floor(&floor);
        if has_same_stores {
            records.iter().for_each(|store| self.stores.join_record(store));
        } else {
            // It is unknown which store of this policy an entry means, so every store carries the labels of all.
            let joined = records.iter().fold(Label::BOTTOM, |joined, store| joined.join(&store.label));
            self.stores.raise_all(&joined);
        }
        Ok(())
    }
}

/// Returns, as JSON, the stores that a policy declares, with the patterns of the tools that write and read them. If two
/// policies have equal declarations, the same tools use their stores.
fn store_declarations(plan: &Plan) -> Value {
    let shown = |list: &[PatternId]| -> Vec<String> {
        list.iter().filter_map(|id| plan.patterns.get(id.0).map(ToString::to_string)).collect()
    };
    let one = |store: &crate::policy::plan::DeclaredStore| json!({"store": store.name, "written": shown(&store.written), "read": shown(&store.read)});
    plan.stores.iter().map(one).collect()
}
