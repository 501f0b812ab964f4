//! Random labels for what tools answer.

use crate::policy::Writer;

const PARTS: [&str; 8] = [
    "out.content.k",
    "out.content.s",
    "out.content.rows",
    "out.content.rows[*].x",
    "out.content.rows[*].y",
    "out.content.rows[*]",
    "out.content.more.z",
    "out.content.more",
];

/// Parts of texts: see [`crate::world::Formed`].
const CAPTURES: [(&str, &str); 3] = [
    (r"n=(?<n>[0-9]) .*", "n"),
    (r"n=[0-9] k=(?<k>[a-z]{1,3}) .*", "k"),
    (r"n=(?<n>[0-9]) k=(?<k>[a-z]{1,3}) .*", "k"),
];

/// What a statement decides about, by what another part says.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Decided {
    Computed,
    Fields,
    More,
    Text,
}

impl Writer<'_> {
    pub(crate) fn answers(&mut self, tool: usize) {
        if self.chance(80) {
            let label = self.low();
            self.out(tool, &format!("label out.content as {label}"), &[]);
        }
        for _ in 0..self.random.below(4) {
            let (part, label) = (self.random.of_list(&PARTS), self.label());
            self.out(tool, &format!("label {part} as {label}"), &[]);
        }
        if self.chance(35) {
            self.capture(tool);
        }
        if self.chance(5) {
            let label = self.low();
            self.out(tool, &format!("label out as {label}"), &["out.is_error in [True, False]"]);
        }
    }

    /// A part of a text that may be trusted more than the text, or less.
    fn capture(&mut self, tool: usize) {
        let place =
            self.random.of_list(&["out.content.s", "out.content.s", "out.content.rows[*].x", "out.content"]);
        let (pattern, group) = CAPTURES[self.random.below(CAPTURES.len())];
        let label = self.low();
        self.out(tool, &format!("label capture({place}, r\"{pattern}\", \"{group}\") as {label}"), &[]);
    }

    /// A field of some rows. A label that depends on the very text it labels tells something of it, and so do two that
    /// depend on each other; their author means it to. So one field decides about the other, never the other way round.
    fn rows(&mut self, tool: usize) {
        let value = self.random.of_list(&[
            "== \"me\"",
            "== \"you\"",
            "is None",
            "is not None",
            "not in [\"me\", \"secret\"]",
        ]);
        let label = self.label();
        let condition = format!("row.x {value}");
        self.out(tool, &format!("label row.y as {label}"), &["(row: dict) in out.content.rows", &condition]);
    }

    /// Labels that depend on what other parts say.
    pub(crate) fn deciding(&mut self, tool: usize, part: Decided) {
        match part {
            Decided::Computed if self.chance(40) => self.computed(tool),
            Decided::Fields if self.chance(40) => self.rows(tool),
            Decided::More if self.chance(20) => self.conditional(tool, "out.content.more"),
            Decided::Text if self.chance(25) => self.conditional(tool, "out.content.s"),
            _ => {}
        }
    }

    fn conditional(&mut self, tool: usize, part: &str) {
        let conditions = [
            "\"z\" not in out.content.more",
            "out.content.k == \"me\"",
            "is_mine(out)",
            "not is_mine(out)",
            "out.content.k is None",
            "out.content.k not in [\"me\", \"you\"]",
            "len(out.content.rows) > 1",
        ];
        let others = usize::from(part == "out.content.more");
        let (condition, label) = (self.random.of_list(&conditions[others..]), self.label());
        self.out(tool, &format!("label {part} as {label}"), &[condition]);
    }

    /// A label that a field says.
    fn computed(&mut self, tool: usize) {
        let Some(element) = self.space.computed(self.random, "out.content.k") else { return };
        let part = self.random.of_list(&["out.content.s", "out.content.more", "out.content.rows[*].y"]);
        let more = if self.chance(50) { "trusted, public, " } else { "" };
        self.out(tool, &format!("label {part} as {more}{element}"), &[]);
    }
}
