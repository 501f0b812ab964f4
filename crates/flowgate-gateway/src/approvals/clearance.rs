//! Decides which parts of a question a person may read: the parts whose labels flow to the person's clearance, the
//! setting `may-read` of `[people.*]`. `config` calls [`Clearance::read`], and the routes for people call
//! [`Clearance::show`].
//!
//! A clearance names elements of the policy's lattices, such as `private`, and principals in a lattice of readers, such
//! as `readers(group:finance)`. A dimension in which it names nothing is not limited. Under a policy that declares none
//! of the named elements, the clearance covers only text with the label bottom. A person without `may-read` may read
//! everything. A person who may not read a whole question can deny it, but cannot allow it: nobody may allow what they
//! have not seen.

use std::sync::Arc;

use flowgate::label::{ComputedLabelUse, DimensionKind, Label, NameTable, Space};
use flowgate::policy::Policy;
use serde_json::{Map, Value, json};

use crate::database::HIDDEN_MEMBER;

/// The prefix of the name of a group in a lattice of readers. No person's name begins with it.
pub(crate) const GROUP: &str = "group:";

/// In a list of readers in the configuration, this name stands for the person's own name and groups.
const OWN: &str = "*";

/// The most labels in a [`ReadBound`].
const MAX_BOUNDS: usize = 4_096;

/// The replacement for what a person may not read: a constant, so that it reveals nothing.
pub(crate) const HIDDEN: &str = "[hidden: your clearance does not cover this]";

/// The setting `may-read` of a person: the greatest elements that the person may read. The default covers everything.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Clearance {
    /// The named elements of lattices other than those of readers; `None` covers everything.
    names: Option<Vec<String>>,
    /// For each limited dimension of readers: the principals as whom the person reads.
    readers: Vec<ReaderNames>,
}

/// The principals as whom a person reads, in one dimension of readers: text is readable if one of them may read it.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ReaderNames {
    dimension: String,
    names: Vec<String>,
    /// Whether the person's own name and groups are among the principals: `*` in the configuration.
    is_own: bool,
}

/// The labels that bound what a person may read: a text is readable if its label flows to one of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ReadBound(Vec<Label>);

impl ReadBound {
    /// Returns whether a text with this label is readable.
    pub(crate) fn covers(&self, label: &Label) -> bool {
        self.0.iter().any(|bound| label.flows_to(bound))
    }

    /// Returns whether every text is readable, in this space.
    pub(crate) fn is_top(&self, space: &Space) -> bool {
        self.covers(&space.top())
    }
}

impl From<Label> for ReadBound {
    /// Creates the bound that consists of this one label.
    fn from(label: Label) -> Self {
        Self(vec![label])
    }
}

impl Clearance {
    /// Parses a clearance from the configuration: names of elements, and `readers(NAME, ...)` for a dimension of
    /// readers, separated by commas. If `text` is `None`, the clearance covers everything. `policies` are those of the
    /// clients that the person can see.
    ///
    /// # Errors
    /// If `text` names an element or a dimension of readers that none of `policies` declares, or a dimension of readers
    /// twice.
    pub(crate) fn read<'p>(
        text: Option<&str>,
        policies: &(impl Iterator<Item = &'p Policy> + Clone),
    ) -> Result<Self, String> {
        let Some(text) = text else { return Ok(Self::default()) };
        let (mut names, mut readers) = (Vec::new(), Vec::new());
        for element in elements(text) {
            // `DIMENSION(PRINCIPAL, ...)` limits a dimension of readers; anything else is the name of an element.
            let in_parentheses = element.strip_suffix(')').and_then(|element| element.split_once('('));
            let Some((dimension, principals)) = in_parentheses else {
                let is_known = |policy: &Policy| dimension_of(policy.space(), element).is_some();
                if !policies.clone().any(is_known) {
                    return Err(format!(
                        "may-read: no policy of a client that this person can see declares the element `{element}` in a lattice: correct the name, or declare the element"
                    ));
                }
                names.push(element.to_owned());
                continue;
            };
            let dimension = dimension.trim();
            if !policies.clone().any(|policy| has_readers(policy.space(), dimension)) {
                return Err(format!(
                    "may-read: no policy of a client that this person can see declares `lattice {dimension}: readers`: correct the name, or declare the lattice"
                ));
            }
            if readers.iter().any(|earlier: &ReaderNames| earlier.dimension == dimension) {
                return Err(format!(
                    "may-read: `{dimension}(...)` is written twice: write all its names in one, separated by commas"
                ));
            }
            let principals = principals.split(',').map(str::trim).filter(|name| !name.is_empty());
            // `*` stands for the person's own name and groups, which are not known here.
            let (own, others): (Vec<&str>, Vec<&str>) = principals.partition(|name| *name == OWN);
            let others = others.into_iter().map(str::to_owned).collect();
            readers.push(ReaderNames {
                dimension: dimension.to_owned(),
                names: others,
                is_own: !own.is_empty(),
            });
        }
        Ok(Self { names: Some(names), readers })
    }

    /// Returns this clearance with `principals`, the person's name and groups, in each list of readers that contains
    /// `*`. The groups are known only after the person has logged in.
    pub(crate) fn with_principals(&self, principals: &[String]) -> Self {
        let mut clearance = self.clone();
        for readers in clearance.readers.iter_mut().filter(|readers| readers.is_own) {
            let is_new = |name: &&String| !readers.names.contains(name);
            let more: Vec<String> = principals.iter().filter(is_new).cloned().collect();
            readers.names.extend(more);
        }
        clearance
    }

    /// Returns the elements of the clearance in the form of the configuration, for the page; `None` if it covers
    /// everything. `*` is left out: [`Clearance::with_principals`] has added the person's name and groups.
    pub(crate) fn names(&self) -> Option<Vec<String>> {
        let mut names = self.names.clone()?;
        let readers = self.readers.iter();
        names.extend(
            readers.map(|ReaderNames { dimension, names, .. }| format!("{dimension}({})", names.join(", "))),
        );
        Some(names)
    }

    /// Returns the labels up to which a person with this clearance may read under the policy with this label space. In
    /// a dimension with named elements, the bound is a greatest element below all of them. In a limited dimension of
    /// readers, text is readable if one of the principals may read it. In every other dimension, the bound is top.
    /// Under a policy that declares none of the named elements, only text with the label bottom is readable.
    /// `name_table` is the table of principals of the labels that the caller compares with the bound.
    pub(crate) fn bound_under(&self, space: &Space, name_table: &NameTable) -> ReadBound {
        let Some(names) = &self.names else { return space.top().into() };
        // The bound by the named elements.
        let mut label = space.top();
        // Whether the policy declares an element or a dimension that this clearance names.
        let mut is_known = false;
        for name in names {
            let Some(dimension) = dimension_of(space, name) else { continue };
            if let Some(element) = space.element(dimension, name) {
                // Top in every other dimension.
                let lower = space.replace(&space.top(), &element);
                label = space.greatest_below(&label, &lower);
                is_known = true;
            }
        }
        // Each dimension of readers multiplies the bounds: there is one for each combination of principals, one
        // principal from each dimension.
        let mut bounds = vec![label];
        let mut name_table = name_table.clone();
        for ReaderNames { dimension, names, .. } in &self.readers {
            if !has_readers(space, dimension) {
                continue;
            }
            is_known = true;
            // `Requirement`: if the table cannot represent a principal, the label is rounded down, so this principal
            // may read only what everyone may read.
            let mut label_for =
                |names: &[String]| name_table.set(space, dimension, names, ComputedLabelUse::Requirement);
            let mut reader_labels: Vec<_> =
                names.iter().filter_map(|name| label_for(std::slice::from_ref(name))).collect();
            // The list is empty, as in `readers()`: the person reads only what everyone may read.
            if reader_labels.is_empty() {
                reader_labels.extend(label_for(&[]));
            }
            // Bounds the work: a person with too many principals in several dimensions may read only what everyone may.
            if bounds.len().saturating_mul(reader_labels.len()) > MAX_BOUNDS {
                return Label::BOTTOM.into();
            }
            // Each bound with each label of this dimension.
            let pairs = bounds.iter().flat_map(|bound| reader_labels.iter().map(move |label| (bound, label)));
            bounds = pairs.map(|(bound, label)| space.replace(bound, label)).collect();
        }
        if is_known { ReadBound(bounds) } else { Label::BOTTOM.into() }
    }

    /// Returns whether the clearance covers text with the label `carries`: a JSON object with the element or the
    /// readers in each dimension. A dimension with a malformed value counts as top. A clearance that limits anything
    /// does not cover text whose label is unknown, or whose policy is unknown (`None`).
    fn covers(&self, policy: Option<&Arc<Policy>>, carries: Option<&Value>) -> bool {
        if self.names.is_none() {
            return true;
        }
        let (Some(policy), Some(carries)) = (policy, carries) else { return false };
        let space = policy.space();
        let mut name_table = NameTable::new(space);
        let label = space.from_names(carries, &mut name_table);
        self.bound_under(space, &name_table).covers(&label)
    }

    /// Returns the content of a stored question as a person with this clearance may read it, and whether the clearance
    /// covers the whole question. If it covers all, the content lacks only [`HIDDEN_MEMBER`], which is for the gateway.
    /// Otherwise the content has the tool and the covered reasons; [`HIDDEN`] replaces the arguments and is added to
    /// the reasons, and the label and the excerpts are empty. `policy` is the policy of the question's client; `None`
    /// if the client is not in the configuration any more.
    pub(crate) fn show(&self, policy: Option<&Arc<Policy>>, stored: &Value) -> (Value, bool) {
        let mut content = stored.clone();
        let hidden_member =
            content.as_object_mut().and_then(|content| content.remove(HIDDEN_MEMBER)).unwrap_or_default();
        if self.covers(policy, hidden_member.get("carries")) {
            return (content, true);
        }
        // Each reason is stored with the label that it carries, so the covered ones can be shown.
        let reasons =
            hidden_member.get("reasons").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
        let mut shown: Vec<&str> = reasons
            .iter()
            .filter(|reason| self.covers(policy, reason.get("carries")))
            .filter_map(|reason| reason.get("text").and_then(Value::as_str))
            .collect();
        // Compares neighbours only: a repetition elsewhere in the list does no harm.
        shown.dedup();
        shown.push(HIDDEN);
        let mut withheld = Map::new();
        withheld.insert("tool".to_owned(), content.get("tool").cloned().unwrap_or_default());
        withheld.insert("arguments".to_owned(), HIDDEN.into());
        withheld.insert("label".to_owned(), json!([]));
        withheld.insert("reasons".to_owned(), json!(shown));
        withheld.insert("excerpts".to_owned(), json!([]));
        (Value::Object(withheld), false)
    }
}

/// Splits the setting `may-read` at its commas outside of parentheses: the principals of one dimension stay together.
fn elements(text: &str) -> impl Iterator<Item = &str> {
    let mut depth = 0_usize;
    text.split(move |c| {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            _ => {}
        }
        c == ',' && depth == 0
    })
    .map(str::trim)
}

/// Returns whether the space has a dimension of readers with this name.
fn has_readers(space: &Space, dimension: &str) -> bool {
    let named = space.dimensions().iter().find(|known| known.name == dimension);
    named.is_some_and(|known| known.kind == DimensionKind::Readers)
}

/// Returns the name of the first dimension that has this element; `None` if no dimension has it.
fn dimension_of<'s>(space: &'s Space, element: &str) -> Option<&'s str> {
    let mut dimensions = space.dimensions().iter();
    dimensions
        .find(|dimension| space.element(&dimension.name, element).is_some())
        .map(|dimension| dimension.name.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A text is readable if one of the person's principals may read it.
    #[test]
    fn readers_are_principals() {
        let policy = Policy::parse("lattice readers: readers\nlattice secrecy: public < private\n").unwrap();
        let other = Policy::parse("lattice level: low < high\n").unwrap();
        let all = [&policy, &other];
        let read = |text: &str| Clearance::read(Some(text), &all.into_iter());
        let principals = ["ann", "group:finance"].map(str::to_owned);
        let check = |clearance: &str, readers: Value, secrecy: &str, expected: bool| {
            let clearance = read(clearance).unwrap().with_principals(&principals);
            let mut name_table = NameTable::new(policy.space());
            let label = json!({"readers": readers, "secrecy": secrecy});
            let label = policy.space().from_names(&label, &mut name_table);
            let bound = clearance.bound_under(policy.space(), &name_table);
            assert_eq!(bound.covers(&label), expected, "{clearance:?} {readers} {secrecy}");
        };
        check("readers(*)", json!(["ann"]), "private", true);
        check("readers(*)", json!(["group:finance", "bob"]), "private", true);
        check("readers(*)", json!(["finance"]), "private", false);
        check("readers(*)", json!(["group:hr"]), "public", false);
        check("readers(*)", json!([]), "public", false);
        check("readers(*)", json!("top"), "public", false);
        check("readers(*)", json!("everyone"), "private", true);
        check("readers(group:hr)", json!(["group:hr"]), "private", true);
        check("readers(group:hr)", json!(["ann"]), "private", false);
        check("readers(group:hr, *)", json!(["ann"]), "private", true);
        check("readers()", json!(["ann"]), "public", false);
        check("readers()", json!("everyone"), "public", true);
        check("public, readers(*)", json!(["ann"]), "public", true);
        check("public, readers(*)", json!(["ann"]), "private", false);
        check("readers(*), public", json!(["group:hr"]), "public", false);
        check("public", json!(["group:hr"]), "public", true);
        assert_eq!(
            read("readers(ann), readers(*)").unwrap_err(),
            "may-read: `readers(...)` is written twice: write all its names in one, separated by commas"
        );
        // Under a policy without readers, nothing above the bottom.
        let clearance = read("readers(*)").unwrap();
        assert_eq!(
            clearance.bound_under(other.space(), &NameTable::new(other.space())),
            Label::BOTTOM.into()
        );
        assert_eq!(read("public, readers(a, *)").unwrap().names().unwrap(), ["public", "readers(a)"]);
        for wrong in ["reader(*)", "level(*)", "secrecy(*)", "readers(*", "readers*)", "readers(*) public"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn content_is_shown_if_it_flows_to_the_clearance() {
        let policy = |text: &str| Arc::new(Policy::parse(text).unwrap());
        let own =
            policy("lattice integrity: trusted < untrusted\nlattice secrecy: public < internal < private\n");
        let other = policy("lattice level: low < high\n");
        let rules = policy("raise \"no\" if:\n    (call: ToolCall)\n    call is tool:x\n");
        let all = [own.clone(), other.clone(), rules.clone()];
        let question = |secrecy: &str| {
            let reason = |text: &str, secrecy: &str| json!({"text": text, "carries": {"integrity": "trusted", "secrecy": secrecy}});
            json!({
                "tool": "send", "arguments": {"body": "4111"}, "label": ["private"], "reasons": ["one", "two"], "excerpts": ["4111"],
                HIDDEN_MEMBER: {"state": "s", "carries": {"integrity": "untrusted", "secrecy": secrecy},
                      "reasons": [reason("one", "public"), reason("two", secrecy)]},
            })
        };
        // The clearance, the policy, the question's secrecy, the reasons that are shown, and whether that is all.
        type ClearanceCase<'r> = (Option<&'r str>, &'r Arc<Policy>, &'r str, &'r [&'r str], bool);
        let rows: [ClearanceCase<'_>; 9] = [
            (None, &own, "private", &["one", "two"], true),
            (Some("private"), &own, "private", &["one", "two"], true),
            (Some("internal"), &own, "internal", &["one", "two"], true),
            (Some("internal"), &own, "private", &["one", HIDDEN], false),
            (Some("public"), &own, "internal", &["one", HIDDEN], false),
            (Some("public, trusted"), &own, "public", &["one", "two", HIDDEN], false),
            (Some("private, low"), &own, "private", &["one", "two"], true),
            // A policy without the element, and a label that cannot be read.
            (Some("public"), &other, "public", &[HIDDEN], false),
            (Some("internal"), &own, "nonsense", &["one", HIDDEN], false),
        ];
        for (number, (clearance, policy, secrecy, reasons, is_all)) in rows.into_iter().enumerate() {
            let clearance = Clearance::read(clearance, &all.iter().map(AsRef::as_ref)).unwrap();
            let (shown, all) = clearance.show(Some(policy), &question(secrecy));
            assert_eq!((&shown["reasons"], all), (&json!(reasons), is_all), "{number}");
            assert_eq!(shown.to_string().contains("4111"), is_all, "{number}: {shown}");
            assert!(shown.get(HIDDEN_MEMBER).is_none() && shown["tool"] == "send", "{number}: {shown}");
        }
        let read = |text: &str| Clearance::read(Some(text), &all.iter().map(AsRef::as_ref));
        assert!(read("secret").unwrap_err().contains("declares the element `secret`"));
        assert!(read("").is_err());
        // Without a label, and without the client's policy, nothing is shown.
        let clearance = read("private").unwrap();
        let mut unlabelled = question("public");
        unlabelled.as_object_mut().unwrap().remove(HIDDEN_MEMBER);
        assert!(!clearance.show(Some(&own), &unlabelled).1 && !clearance.show(None, &question("public")).1);
        // A policy without lattices labels nothing.
        assert!(Clearance::default().show(Some(&rules), &unlabelled).1);
    }
}
