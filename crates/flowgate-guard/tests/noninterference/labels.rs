//! Random labels of the answers of tools.

use crate::declared::{Condition, Labels, Way};
use crate::policy::Writer;
use crate::space::Written;

const CONTENT: Way = Way::Key("content");

/// The parts of answers that statements label, in the policy language and as paths.
const PARTS: [(&str, &[Way]); 9] = [
    ("out.content.k", &[CONTENT, Way::Key("k")]),
    ("out.content.s", &[CONTENT, Way::Key("s")]),
    ("out.content.e", &[CONTENT, Way::Key("e")]),
    ("out.content.rows", &[CONTENT, Way::Key("rows")]),
    ("out.content.rows[*].x", &[CONTENT, Way::Key("rows"), Way::Each, Way::Key("x")]),
    ("out.content.rows[*].y", &[CONTENT, Way::Key("rows"), Way::Each, Way::Key("y")]),
    ("out.content.rows[*]", &[CONTENT, Way::Key("rows"), Way::Each]),
    ("out.content.more.z", &[CONTENT, Way::Key("more"), Way::Key("z")]),
    ("out.content.more", &[CONTENT, Way::Key("more")]),
];

const WHOLE: (&str, &[Way]) = ("out.content", &[CONTENT]);

/// Captures in texts: see [`crate::world::Formed`].
const CAPTURES: [(&str, &str); 3] = [
    (r"n=(?<n>[0-9]) .*", "n"),
    (r"n=[0-9] k=(?<k>[a-z]{1,3}) .*", "k"),
    (r"n=(?<n>[0-9]) k=(?<k>[a-z]{1,3}) .*", "k"),
];

/// The condition by which a statement decides a label from another part.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decided {
    Computed,
    Fields,
    More,
    Text,
}

fn part(name: &str) -> (&'static str, &'static [Way]) {
    *PARTS.iter().find(|(part, _)| *part == name).expect("a part")
}

impl Writer<'_> {
    /// Writes a statement that labels a part of the answers of a tool.
    fn labels(
        &mut self,
        tool: usize,
        (place, way): (&str, &[Way]),
        capture: Option<(&str, &'static str)>,
        label: Written,
        (texts, condition): (&[&str], Condition),
    ) {
        let head = match capture {
            None => format!("label {place} as {}", label.text),
            Some((pattern, group)) => {
                format!("label capture({place}, r\"{pattern}\", \"{group}\") as {}", label.text)
            }
        };
        let pattern = self.of_tool(tool, &head, "out: ToolOutput", texts);
        let capture = capture.map(|(_, group)| group);
        let (target, grant) = (way.to_vec(), label.grant);
        self.declared.answers.push(Labels { pattern, target, capture, grant, condition });
    }

    pub(crate) fn answers(&mut self, tool: usize) {
        if self.chance(80) {
            let label = self.low();
            self.labels(tool, WHOLE, None, label, (&[], Condition::Always));
        }
        for _ in 0..self.random.below(4) {
            let (place, label) = (PARTS[self.random.below(PARTS.len())], self.label());
            self.labels(tool, place, None, label, (&[], Condition::Always));
        }
        if self.chance(35) {
            self.capture(tool);
        }
        if self.chance(5) {
            let label = self.low();
            let condition = (["out.is_error in [True, False]"].as_slice(), Condition::MentionsError);
            self.labels(tool, ("out", &[]), None, label, condition);
        }
    }

    /// Writes a capture of a part of a text, whose label may be lower or higher than that of the text.
    fn capture(&mut self, tool: usize) {
        let s = part("out.content.s");
        let place = [s, s, part("out.content.rows[*].x"), WHOLE][self.random.below(4)];
        let capture = CAPTURES[self.random.below(CAPTURES.len())];
        let label = self.low();
        self.labels(tool, place, Some(capture), label, (&[], Condition::Always));
    }

    /// Writes labels of a field of some rows. A label that depends on the text that it labels reveals
    /// information about it, and so do two labels that depend on each other. One field therefore decides the
    /// label of the other, never the reverse.
    fn rows(&mut self, tool: usize) {
        let (value, condition) = [
            ("== \"me\"", Condition::RowIs("me")),
            ("== \"you\"", Condition::RowIs("you")),
            ("is None", Condition::RowIsNone(true)),
            ("is not None", Condition::RowIsNone(false)),
            ("not in [\"me\", \"secret\"]", Condition::RowNotIn(&["me", "secret"])),
        ][self.random.below(5)];
        let (label, text) = (self.label(), format!("row.x {value}"));
        let texts = ["(row: dict) in out.content.rows", text.as_str()];
        // The written target is the part of a row.
        let place = ("row.y", part("out.content.rows[*].y").1);
        self.labels(tool, place, None, label, (&texts, condition));
    }

    /// Writes labels that depend on the values of other parts.
    pub(crate) fn deciding(&mut self, tool: usize, decided: Decided) {
        match decided {
            Decided::Computed if self.chance(40) => self.computed(tool),
            Decided::Fields if self.chance(40) => self.rows(tool),
            Decided::More if self.chance(20) => self.conditional(tool, "out.content.more"),
            Decided::Text if self.chance(25) => self.conditional(tool, "out.content.s"),
            _ => {}
        }
    }

    fn conditional(&mut self, tool: usize, name: &str) {
        let word = self.word;
        let conditions = [
            ("\"z\" not in out.content.more", Condition::NoZ),
            ("out.content.k == \"me\"", Condition::KeyIs("me")),
            ("is_mine(out)", Condition::KeyIs(word)),
            ("not is_mine(out)", Condition::KeyIsNot(word)),
            ("out.content.k is None", Condition::KeyIsNone),
            ("out.content.k not in [\"me\", \"you\"]", Condition::KeyNotIn(&["me", "you"])),
            ("len(out.content.rows) > 1", Condition::ManyRows),
            ("known(out.content.k)", Condition::KeyIsKnown),
            ("known(out.content.k)", Condition::KeyIsKnown),
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
        let mut label = Written { text, grant: crate::declared::Grant::default() };
        if self.chance(50) {
            let text = format!("trusted, public, {}", label.text);
            label = Written { text, grant: self.space.bottom().grant };
            label.grant.parts.truncate(2);
        }
        label.grant.computed = Some(dimension);
        self.labels(tool, part(name), None, label, (&[], Condition::Always));
    }
}
