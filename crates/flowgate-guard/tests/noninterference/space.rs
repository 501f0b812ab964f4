//! The dimensions of a case, and points of their product.

use serde_json::{Value, json};

use crate::random::Random;

/// A dimension that a policy may have besides integrity and secrecy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Extra {
    Readers,
    Kinds,
    Sources,
    Age,
}

impl Extra {
    fn name(self) -> &'static str {
        match self {
            Self::Readers => "readers",
            Self::Kinds => "kinds",
            Self::Sources => "sources",
            Self::Age => "age",
        }
    }

    fn order(self) -> &'static str {
        match self {
            Self::Readers => "readers",
            Self::Kinds => "set of pii, money",
            Self::Sources => "set",
            Self::Age => "time",
        }
    }

    /// What may stand between the parentheses of an element.
    fn arguments(self, random: &mut Random) -> &'static str {
        random.of_list(match self {
            Self::Readers => &["\"ann\"", "\"bob\"", "\"ann\", \"bob\""],
            Self::Kinds => &["", "pii", "money"],
            Self::Sources => &["", "\"web\"", "\"web\", \"me\""],
            Self::Age => &["\"2024-05-19\"", "\"2020-01-01\""],
        })
    }

    fn element(self, random: &mut Random) -> String {
        match random.below(4) {
            0 => format!("{}.bottom", self.name()),
            1 => format!("{}.top", self.name()),
            _ => format!("{}({})", self.name(), self.arguments(random)),
        }
    }

    /// Who may see what flows to this, as a label in names.
    fn observed(self, random: &mut Random) -> Value {
        let lists = match self {
            Self::Readers => [json!("everyone"), json!(["ann"]), json!(["ann", "bob"])],
            Self::Kinds => [json!([]), json!(["pii"]), json!(["money"])],
            Self::Sources => [json!([]), json!(["web"]), json!(["me", "web"])],
            // 2024-01-01: newer than one of the days above, older than the other.
            Self::Age => [json!("fresh"), json!(1_704_067_200), json!(1_704_067_200)],
        };
        if random.chance(50) { json!("top") } else { lists[random.below(3)].clone() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Space(Vec<Extra>);

impl Space {
    pub(crate) fn new(random: &mut Random) -> Self {
        let all =
            [(Extra::Readers, 35), (Extra::Kinds, 25), (Extra::Sources, 20), (Extra::Age, 20)].into_iter();
        Self(all.filter(|(_, percent)| random.chance(*percent)).map(|(extra, _)| extra).collect())
    }

    pub(crate) fn declaration(&self) -> String {
        let mut text =
            "lattice integrity: trusted < untrusted\nlattice secrecy: public < internal < private\n"
                .to_owned();
        for extra in &self.0 {
            text.push_str(&format!("lattice {}: {}\n", extra.name(), extra.order()));
        }
        text
    }

    /// A point, or what a point is in some of the dimensions.
    pub(crate) fn label(&self, random: &mut Random) -> String {
        let integrity = random.of_list(&["trusted", "untrusted"]);
        let secrecy = random.of_list(&["public", "internal", "private"]);
        let mut parts = match random.below(5) {
            0 => vec![integrity.to_owned()],
            1 => vec![secrecy.to_owned()],
            _ => vec![integrity.to_owned(), secrecy.to_owned()],
        };
        for extra in &self.0 {
            if random.chance(60) {
                parts.push(extra.element(random));
            }
        }
        parts.join(", ")
    }

    /// The least point.
    pub(crate) fn bottom(&self) -> String {
        let more = self.0.iter().map(|extra| format!(", {}.bottom", extra.name()));
        format!("trusted, public{}", more.collect::<String>())
    }

    /// The least point more often than not.
    pub(crate) fn low(&self, random: &mut Random) -> String {
        if random.chance(60) { self.bottom() } else { self.label(random) }
    }

    /// An element of an open dimension that is computed from what stands at `place`.
    pub(crate) fn computed(&self, random: &mut Random, place: &str) -> Option<String> {
        let open: Vec<&Extra> = self.0.iter().filter(|extra| **extra != Extra::Kinds).collect();
        let extra = open.get(random.below(open.len()))?;
        Some(format!("{}({place})", extra.name()))
    }

    /// What somebody may see, in names.
    pub(crate) fn observer(&self, random: &mut Random) -> Value {
        let mut names = json!({
            "integrity": random.of_list(&["trusted", "untrusted"]),
            "secrecy": random.of_list(&["public", "internal", "private"]),
        });
        for extra in &self.0 {
            names[extra.name()] = extra.observed(random);
        }
        names
    }
}
