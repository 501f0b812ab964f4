//! Generates random labels of the answers of tools.

use crate::declared_policy::{DeclaredCondition, DeclaredIndependence, LabelDeclaration, PartSelector};
use crate::policy::PolicyWriter;
use crate::space::WrittenLabel;

const CONTENT: PartSelector = PartSelector::Key("content");

/// The parts of answers that statements label, in the policy language and as paths.
const PARTS: [(&str, &[PartSelector]); 9] = [
    ("out.content.k", &[CONTENT, PartSelector::Key("k")]),
    ("out.content.s", &[CONTENT, PartSelector::Key("s")]),
    ("out.content.e", &[CONTENT, PartSelector::Key("e")]),
    ("out.content.rows", &[CONTENT, PartSelector::Key("rows")]),
    (
        "out.content.rows[*].x",
        &[CONTENT, PartSelector::Key("rows"), PartSelector::Each, PartSelector::Key("x")],
    ),
    (
        "out.content.rows[*].y",
        &[CONTENT, PartSelector::Key("rows"), PartSelector::Each, PartSelector::Key("y")],
    ),
    ("out.content.rows[*]", &[CONTENT, PartSelector::Key("rows"), PartSelector::Each]),
    ("out.content.more.z", &[CONTENT, PartSelector::Key("more"), PartSelector::Key("z")]),
    ("out.content.more", &[CONTENT, PartSelector::Key("more")]),
];

const WHOLE: (&str, &[PartSelector]) = ("out.content", &[CONTENT]);

/// Captures in texts: see [`crate::world::FormedText`].
const CAPTURES: [(&str, &str); 3] = [
    (r"n=(?<n>[0-9]) .*", "n"),
    (r"n=[0-9] k=(?<k>[a-z]{1,3}) .*", "k"),
    (r"n=(?<n>[0-9]) k=(?<k>[a-z]{1,3}) .*", "k"),
];

/// The condition by which a statement decides a label from another part.
#[derive(Debug, Clone, Copy)]
pub(crate) enum DependentLabel {
    Computed,
    Fields,
    More,
    Text,
}

fn part(name: &str) -> (&'static str, &'static [PartSelector]) {
    *PARTS.iter().find(|(part, _)| *part == name).expect("a part")
}

impl PolicyWriter<'_> {
    /// Writes a statement that labels a part of the answers of a tool.
    fn labels(
        &mut self,
        tool: usize,
        (place, way): (&str, &[PartSelector]),
        capture: Option<(&str, &'static str)>,
        label: WrittenLabel,
        (texts, condition): (&[&str], DeclaredCondition),
    ) {
        // Not drawn from the same source, so that the other cases stay what they are.
        let is_independent = capture.is_some() && {
            let of = format!("{place} {tool} {}", self.text);
            crate::random::Random::of(&of).chance(80)
        };
        let of_one = format!("one argument? {place} {tool} {}", self.text);
        let (independence, words) = match (is_independent, crate::random::Random::of(&of_one).chance(15)) {
            (false, _) => (DeclaredIndependence::Undeclared, ""),
            (true, true) => (DeclaredIndependence::OfB, " independent of arguments.b"),
            (true, false) => (DeclaredIndependence::OfAll, " independent of arguments"),
        };
        let head = match capture {
            None => format!("label {place} as {}", label.text),
            Some((pattern, group)) => {
                format!("label capture({place}, r\"{pattern}\", \"{group}\") as {}{words}", label.text)
            }
        };
        let pattern = self.of_tool(tool, &head, "out: ToolOutput", texts);
        let capture = capture.map(|(_, group)| group);
        let (target, grant) = (way.to_vec(), label.grant);
        self.declared.answers.push(LabelDeclaration {
            pattern,
            target,
            capture,
            grant,
            condition,
            independence,
        });
    }

    pub(crate) fn answers(&mut self, tool: usize) {
        if self.chance(80) {
            let label = self.low();
            self.labels(tool, WHOLE, None, label, (&[], DeclaredCondition::Always));
        }
        for _ in 0..self.random.below(4) {
            let (place, label) = (PARTS[self.random.below(PARTS.len())], self.label());
            self.labels(tool, place, None, label, (&[], DeclaredCondition::Always));
        }
        if self.chance(35) {
            self.capture(tool);
        }
        if self.chance(5) {
            let label = self.low();
            let condition = (["out.is_error in [True, False]"].as_slice(), DeclaredCondition::MentionsError);
            self.labels(tool, ("out", &[]), None, label, condition);
        }
    }

    /// Writes a capture of a part of a text, whose label may be lower or higher than that of the text.
    fn capture(&mut self, tool: usize) {
        let (s, x) = (part("out.content.s"), part("out.content.rows[*].x"));
        // An answer that a part is captured from is one region; most answers have fields.
        let place = [s, s, s, s, x, x, x, WHOLE][self.random.below(8)];
        let capture = CAPTURES[self.random.below(CAPTURES.len())];
        let label = self.low();
        self.labels(tool, place, Some(capture), label, (&[], DeclaredCondition::Always));
    }

    /// Writes labels of a field of some rows. A label that depends on the text that it labels reveals
    /// information about it, and so do two labels that depend on each other. One field therefore decides the
    /// label of the other, never the reverse.
    fn rows(&mut self, tool: usize) {
        let (value, condition) = [
            ("== \"me\"", DeclaredCondition::RowIs("me")),
            ("== \"you\"", DeclaredCondition::RowIs("you")),
            ("is None", DeclaredCondition::RowIsNone(true)),
            ("is not None", DeclaredCondition::RowIsNone(false)),
            ("not in [\"me\", \"secret\"]", DeclaredCondition::RowNotIn(&["me", "secret"])),
        ][self.random.below(5)];
        let (label, text) = (self.label(), format!("row.x {value}"));
        let texts = ["(row: dict) in out.content.rows", text.as_str()];
        // The written target is the part of a row.
        let place = ("row.y", part("out.content.rows[*].y").1);
        self.labels(tool, place, None, label, (&texts, condition));
    }

    /// Writes labels that depend on the values of other parts.
    pub(crate) fn deciding(&mut self, tool: usize, decided: DependentLabel) {
        match decided {
            DependentLabel::Computed if self.chance(40) => self.computed(tool),
            DependentLabel::Fields if self.chance(40) => self.rows(tool),
            DependentLabel::More if self.chance(20) => self.conditional(tool, "out.content.more"),
            DependentLabel::Text if self.chance(25) => self.conditional(tool, "out.content.s"),
            _ => {}
        }
    }

    fn conditional(&mut self, tool: usize, name: &str) {
        let word = self.word;
        let conditions = [
            ("\"z\" not in out.content.more", DeclaredCondition::NoZ),
            ("out.content.k == \"me\"", DeclaredCondition::KeyIs("me")),
            ("is_mine(out)", DeclaredCondition::KeyIs(word)),
            ("not is_mine(out)", DeclaredCondition::KeyIsNot(word)),
            ("out.content.k is None", DeclaredCondition::KeyIsNone),
            ("out.content.k not in [\"me\", \"you\"]", DeclaredCondition::KeyNotIn(&["me", "you"])),
            ("len(out.content.rows) > 1", DeclaredCondition::ManyRows),
            ("known(out.content.k)", DeclaredCondition::KeyIsKnown),
            ("known(out.content.k)", DeclaredCondition::KeyIsKnown),
        ];
        let others = usize::from(name == "out.content.more");
        let (text, condition) = conditions[others + self.random.below(conditions.len() - others)];
        let label = self.label();
        self.labels(tool, part(name), None, label, (&[text], condition));
    }

    /// Writes a label that is computed from a field.
    fn computed(&mut self, tool: usize) {
        let Some((text, dimension)) = self.space.computed(self.random, "out.content.k") else { return };
        let name = self.random.of_list(&["out.content.s", "out.content.more", "out.content.rows[*].y"]);
        let mut label = WrittenLabel { text, grant: crate::declared_policy::DeclaredGrant::default() };
        if self.chance(50) {
            let text = format!("trusted, public, {}", label.text);
            label = WrittenLabel { text, grant: self.space.bottom().grant };
            label.grant.parts.truncate(2);
        }
        label.grant.computed = Some(dimension);
        self.labels(tool, part(name), None, label, (&[], DeclaredCondition::Always));
    }
}
