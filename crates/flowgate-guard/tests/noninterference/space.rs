//! Generates the dimensions of a case, and random points of their product.

use serde_json::{Value, json};

use crate::declared_policy::DeclaredGrant;
use crate::oracle_label::{DimensionElement, DimensionShape, OracleLabel};
use crate::random::Random;

const INTEGRITY: [&str; 2] = ["trusted", "untrusted"];
const SECRECY: [&str; 3] = ["public", "internal", "private"];

/// 2024-05-19 and 2020-01-01, in seconds since 1970.
const DAYS: [(&str, i64); 2] = [("2024-05-19", 1_716_076_800), ("2020-01-01", 1_577_836_800)];

/// A label in the policy language, and its meaning.
#[derive(Debug, Clone)]
pub(crate) struct WrittenLabel {
    pub(crate) text: String,
    pub(crate) grant: DeclaredGrant,
}

/// A dimension that a policy may have besides integrity and secrecy.
#[derive(Debug, Clone, Copy, PartialEq)]
enum ExtraDimension {
    Readers,
    Kinds,
    Sources,
    Age,
}

impl ExtraDimension {
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

    fn shape(self) -> DimensionShape {
        match self {
            Self::Readers => DimensionShape::Readers,
            Self::Kinds | Self::Sources => DimensionShape::Names,
            Self::Age => DimensionShape::Age,
        }
    }

    /// Generates an element with arguments: the text between the parentheses, and its meaning.
    fn of_arguments(self, random: &mut Random) -> (String, DimensionElement) {
        let lists: &[&[&str]] = match self {
            Self::Readers => &[&["ann"], &["bob"], &["ann", "bob"]],
            Self::Kinds => &[&[], &["pii"], &["money"]],
            Self::Sources => &[&[], &["web"], &["web", "me"]],
            Self::Age => {
                let (day, seconds) = DAYS[random.below(2)];
                return (format!("\"{day}\""), DimensionElement::written_at(seconds));
            }
        };
        let list = lists[random.below(lists.len())];
        let quoted = list.iter().map(|name| format!("\"{name}\"")).collect::<Vec<_>>().join(", ");
        match self {
            Self::Readers => (quoted, DimensionElement::readers(list)),
            Self::Kinds => (list.join(", "), DimensionElement::names(list)),
            _ => (quoted, DimensionElement::names(list)),
        }
    }

    fn element(self, random: &mut Random) -> (String, DimensionElement) {
        match random.below(4) {
            0 => (format!("{}.bottom", self.name()), self.shape().bottom()),
            1 => (format!("{}.top", self.name()), self.shape().top()),
            _ => {
                let (arguments, element) = self.of_arguments(random);
                (format!("{}({arguments})", self.name()), element)
            }
        }
    }

    /// Generates an observer's element of the dimension, in names.
    fn observed(self, random: &mut Random) -> Value {
        let lists = match self {
            Self::Readers => [json!("everyone"), json!(["ann"]), json!(["ann", "bob"])],
            Self::Kinds => [json!([]), json!(["pii"]), json!(["money"])],
            Self::Sources => [json!([]), json!(["web"]), json!(["me", "web"])],
            // 2024-01-01 lies between the two days above.
            Self::Age => [json!("fresh"), json!(1_704_067_200), json!(1_704_067_200)],
        };
        if random.chance(50) { json!("top") } else { lists[random.below(3)].clone() }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct CaseDimensions(Vec<ExtraDimension>);

impl CaseDimensions {
    pub(crate) fn new(random: &mut Random) -> Self {
        let all = [
            (ExtraDimension::Readers, 35),
            (ExtraDimension::Kinds, 25),
            (ExtraDimension::Sources, 20),
            (ExtraDimension::Age, 20),
        ]
        .into_iter();
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

    /// Returns the dimensions, in order.
    pub(crate) fn shapes(&self) -> Vec<(&'static str, DimensionShape)> {
        let mut shapes = vec![
            ("integrity", DimensionShape::Chain(&INTEGRITY)),
            ("secrecy", DimensionShape::Chain(&SECRECY)),
        ];
        shapes.extend(self.0.iter().map(|extra| (extra.name(), extra.shape())));
        shapes
    }

    /// Generates a point, or its elements in some of the dimensions.
    pub(crate) fn label(&self, random: &mut Random) -> WrittenLabel {
        let (integrity, secrecy) = (random.below(2), random.below(3));
        let mut parts = match random.below(5) {
            0 => vec![(INTEGRITY[integrity].to_owned(), 0, DimensionElement::Rank(integrity as u64))],
            1 => vec![(SECRECY[secrecy].to_owned(), 1, DimensionElement::Rank(secrecy as u64))],
            _ => vec![
                (INTEGRITY[integrity].to_owned(), 0, DimensionElement::Rank(integrity as u64)),
                (SECRECY[secrecy].to_owned(), 1, DimensionElement::Rank(secrecy as u64)),
            ],
        };
        for (index, extra) in self.0.iter().enumerate() {
            if random.chance(60) {
                let (text, element) = extra.element(random);
                parts.push((text, index + 2, element));
            }
        }
        WrittenLabel::of(parts)
    }

    /// Returns the least point.
    pub(crate) fn bottom(&self) -> WrittenLabel {
        let more = self.0.iter().map(|extra| format!(", {}.bottom", extra.name()));
        let text = format!("trusted, public{}", more.collect::<String>());
        let OracleLabel(bottom) = OracleLabel::bottom(&self.shapes());
        WrittenLabel {
            text,
            grant: DeclaredGrant { parts: bottom.into_iter().enumerate().collect(), computed: None },
        }
    }

    /// Generates a point, in most cases the least one.
    pub(crate) fn low(&self, random: &mut Random) -> WrittenLabel {
        if random.chance(60) { self.bottom() } else { self.label(random) }
    }

    /// Generates a point that is high in most dimensions, and names all of them.
    pub(crate) fn high(&self, random: &mut Random) -> WrittenLabel {
        let (integrity, secrecy) = (usize::from(random.chance(30)), 1 + random.below(2));
        let mut parts = vec![
            (INTEGRITY[integrity].to_owned(), 0, DimensionElement::Rank(integrity as u64)),
            (SECRECY[secrecy].to_owned(), 1, DimensionElement::Rank(secrecy as u64)),
        ];
        for (index, extra) in self.0.iter().enumerate() {
            let top = (format!("{}.top", extra.name()), extra.shape().top());
            let (text, element) = if random.chance(60) { top } else { extra.element(random) };
            parts.push((text, index + 2, element));
        }
        WrittenLabel::of(parts)
    }

    /// Generates a default label. Unnamed dimensions are at their top.
    pub(crate) fn unlabelled(&self, random: &mut Random) -> (String, OracleLabel) {
        let (integrity, secrecy) = [(0, 0), (1, 1)][random.below(2)];
        let mut level = OracleLabel::top(&self.shapes());
        level.0[0] = DimensionElement::Rank(integrity as u64);
        level.0[1] = DimensionElement::Rank(secrecy as u64);
        match random.below(3) {
            0 => (self.bottom().text, OracleLabel::bottom(&self.shapes())),
            _ => (format!("{}, {}", INTEGRITY[integrity], SECRECY[secrecy]), level),
        }
    }

    /// Generates an element of an open dimension that is computed from the value at `place`, with the index
    /// of the dimension.
    pub(crate) fn computed(&self, random: &mut Random, place: &str) -> Option<(String, usize)> {
        let open: Vec<(usize, &ExtraDimension)> =
            self.0.iter().enumerate().filter(|(_, extra)| **extra != ExtraDimension::Kinds).collect();
        let (index, extra) = open.get(random.below(open.len()))?;
        Some((format!("{}({place})", extra.name()), index + 2))
    }

    /// Generates the label of an observer, in names.
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

impl WrittenLabel {
    fn of(parts: Vec<(String, usize, DimensionElement)>) -> Self {
        let text = parts.iter().map(|(text, ..)| text.as_str()).collect::<Vec<_>>().join(", ");
        let parts = parts.into_iter().map(|(_, dimension, element)| (dimension, element)).collect();
        Self { text, grant: DeclaredGrant { parts, computed: None } }
    }
}
