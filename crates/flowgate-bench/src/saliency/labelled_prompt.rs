//! Defines a test case for screeners ([`DependencyCase`]), and the parts that its generators share: the builder of a
//! prompt with regions, and the people whose records are regions.

use std::ops::Range;

use crate::games::random::SeededRandom;

/// A prompt with regions, an output, and the regions that the output depends on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DependencyCase {
    /// The text before the output.
    pub prompt: String,
    /// The regions, as ranges of bytes of the prompt, in order.
    pub regions: Vec<Range<usize>>,
    /// The request, which is in the prompt as well, before or after the regions.
    pub request: String,
    /// The output.
    pub output: String,
    /// For each region whether the output depends on it.
    pub depends: Vec<bool>,
}

impl DependencyCase {
    /// Returns the texts that identify the case, for the digest in a manifest: the prompt, the output, the request, and the
    /// position of each region with whether the output depends on it. They contain no name of a field, so that a renamed
    /// field changes no digest.
    pub(super) fn texts(&self) -> Vec<String> {
        let regions = self.regions.iter().zip(&self.depends);
        let regions = regions.map(|(range, depends)| format!("{} to {}: {depends}", range.start, range.end));
        let texts = [self.prompt.clone(), self.output.clone(), self.request.clone()];
        texts.into_iter().chain(regions).collect()
    }
}

/// Builds a prompt from texts, and records where its regions are.
#[derive(Default)]
pub(super) struct PromptBuilder {
    pub(super) prompt: String,
    regions: Vec<Range<usize>>,
    depends: Vec<bool>,
}

impl PromptBuilder {
    /// Appends a region and a line break. `depends` says whether the output of the case depends on the region.
    pub(super) fn region(&mut self, text: &str, depends: bool) {
        let start = self.prompt.len();
        self.prompt.push_str(text);
        self.regions.push(start..self.prompt.len());
        self.depends.push(depends);
        self.prompt.push('\n');
    }

    /// Returns the case with the prompt that was built. `request` must be in the prompt already, and `output` must not.
    pub(super) fn finish(self, request: String, output: String) -> DependencyCase {
        let Self { prompt, regions, depends } = self;
        DependencyCase { prompt, regions, request, output, depends }
    }
}

/// The first names of people in the cases; with the [`LAST_NAMES`] they give 120 names.
pub(super) const FIRST_NAMES: [&str; 12] =
    ["Anna", "Bram", "Chidi", "Dara", "Elif", "Farid", "Greta", "Hugo", "Irma", "Jonas", "Keiko", "Lena"];
pub(super) const LAST_NAMES: [&str; 10] =
    ["Adler", "Brandt", "Costa", "Dubois", "Eriksen", "Fischer", "Garcia", "Hansen", "Ito", "Jansen"];
pub(super) const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];

/// A person who asks for a payment.
#[derive(Clone)]
pub(super) struct CasePerson {
    pub(super) name: String,
    pub(super) account: String,
    /// When the payment is due: the day, the month from 1, and the year.
    pub(super) day: (usize, usize, usize),
    /// The amount of the payment, in cents.
    pub(super) cents: usize,
}

impl CasePerson {
    /// Draws a person whose name none of `others` has.
    pub(super) fn draw(random: &mut SeededRandom, others: &[Self]) -> Self {
        loop {
            let pick = |list: &[&'static str], random: &mut SeededRandom| {
                list.get(random.below(list.len())).copied().unwrap_or_default()
            };
            let name = format!("{} {}", pick(&FIRST_NAMES, random), pick(&LAST_NAMES, random));
            if others.iter().any(|other| other.name == name) {
                continue;
            }
            return Self {
                name,
                account: format!("NL{:08}", random.below(100_000_000)),
                // Every month has at least 28 days.
                day: (1 + random.below(28), 1 + random.below(12), 2020 + random.below(10)),
                cents: 1000 + random.below(900_000),
            };
        }
    }

    /// Draws `count` people with different names.
    pub(super) fn draw_all(random: &mut SeededRandom, count: usize) -> Vec<Self> {
        let mut people = Vec::with_capacity(count);
        for _ in 0..count {
            let person = Self::draw(random, &people);
            people.push(person);
        }
        people
    }

    /// Returns the person's values as a tool would return them. `form` is 0 for JSON, 1 for YAML, 2 for a row of a
    /// table, and any other number for a mail.
    pub(super) fn record(&self, form: usize) -> String {
        let Self { name, account, day: (day, month, year), cents } = self;
        let date = format!("{year}-{month:02}-{day:02}");
        let amount = format!("{}.{:02}", cents / 100, cents % 100);
        match form {
            0 => format!(
                "{{\"name\": \"{name}\", \"account\": \"{account}\", \"due\": \"{date}\", \"amount\": \"{amount}\"}}"
            ),
            1 => format!("- name: {name}\n  account: {account}\n  due: {date}\n  amount: {amount}"),
            2 => format!("| {name} | {account} | {date} | {amount} |"),
            _ => format!("From: {name}\n\nMy account is {account}. The amount is {amount}, due on {date}."),
        }
    }

    /// Returns the call of a tool that pays what the person asks for, as text: the output of a case.
    pub(super) fn payment(&self) -> String {
        let Self { account, day: (day, month, year), cents, .. } = self;
        format!(
            " send_money(\"account\": \"{account}\", \"amount\": \"{}.{:02}\", \"due\": \"{year}-{month:02}-{day:02}\")",
            cents / 100,
            cents % 100
        )
    }
}
