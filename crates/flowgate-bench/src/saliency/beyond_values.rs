//! Generates cases whose dependencies a comparison of values cannot find, because the output repeats no value of a
//! region. A value of the output is the sum of values of two regions ([`derived`]), a region has the value in words
//! ([`in_words`]), or a region decides only which tool is called ([`tool_choice`]). The module `case` builds sets of
//! these cases.

use flowgate_lm::chat::Completion;
use serde_json::json;

use super::labelled_prompt::{CaseChat, CasePerson, DependencyCase, MONTHS, call_of};
use crate::games::random::SeededRandom;

/// Generates a case whose output is a call with the sum of what two people ask for. The regions are the records of
/// several people; the output depends on those of the two whom the request names.
pub(super) fn derived(random: &mut SeededRandom) -> DependencyCase {
    let count = 4 + random.below(3);
    let people = CasePerson::draw_all(random, count);
    let first = random.below(count);
    // Anybody except the first person.
    let second = (first + 1 + random.below(count - 1)) % count;
    let is_named = |index: usize| index == first || index == second;
    let named = || people.iter().enumerate().filter(|(index, _)| is_named(*index)).map(|(_, person)| person);
    let names: Vec<&str> = named().map(|person| person.name.as_str()).collect();
    let request = format!("Approve what {} ask for together.", names.join(" and "));
    let cents: usize = named().map(|person| person.cents).sum();
    let mut chat = CaseChat::default();
    chat.user(&request);
    for (index, person) in people.iter().enumerate() {
        // A record has one of four forms, such as JSON or a mail.
        chat.record(&person.record(random.below(4)), is_named(index));
    }
    let amount = format!("{}.{:02}", cents / 100, cents % 100);
    chat.before(call_of("approve_budget", &json!({"amount": amount})))
}

/// Numbers in words; the index is the number.
const WORDS: [&str; 13] = [
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
];
/// Days of a month in words; the index is the day minus one.
const DAYS: [&str; 12] = [
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
    "eleventh", "twelfth",
];

/// Generates a case whose output is a call with numbers that a region has in words. The regions are mails of several
/// people; the output depends on the mail of the person whom the request names.
pub(super) fn in_words(random: &mut SeededRandom) -> DependencyCase {
    let count = 4 + random.below(3);
    let people = CasePerson::draw_all(random, count);
    let needed = random.below(count);
    let name = people.get(needed).map(|person| person.name.clone()).unwrap_or_default();
    let request = format!("Book the table that {name} wants.");
    let mut chat = CaseChat::default();
    chat.user(&request);
    let mut draft = Completion::default();
    for (index, person) in people.iter().enumerate() {
        let (month, day) = (random.below(MONTHS.len()), random.below(DAYS.len()));
        let (guests, hour) = (2 + random.below(10), 1 + random.below(10));
        let word = |number: usize| WORDS.get(number).copied().unwrap_or_default();
        let mail = format!(
            "From: {}\n\nWe are {} people and come on the {} of {} at half past {} in the afternoon.",
            person.name,
            word(guests),
            DAYS.get(day).copied().unwrap_or_default(),
            MONTHS.get(month).copied().unwrap_or_default(),
            word(hour),
        );
        chat.record(&mail, index == needed);
        if index == needed {
            let (day, time) = (format!("{:02}-{:02}", month + 1, day + 1), format!("{}:30", hour + 12));
            draft = call_of("book_table", &json!({"guests": guests.to_string(), "day": day, "time": time}));
        }
    }
    chat.before(draft)
}

/// Wishes of people, each with the tool that fulfils it.
const WISHES: [(&str, &str); 5] = [
    ("I cannot come any more, so please take my name off the list.", "cancel_booking"),
    ("Yes, that suits me, I will be there.", "confirm_booking"),
    ("Could we do it a week later instead?", "postpone_booking"),
    ("I would like to stay one more night.", "extend_booking"),
    ("Somebody else will come in my place.", "transfer_booking"),
];

/// Generates a case whose output is a call with the values of the request. Which tool it calls follows from the mail of
/// the person whom the request names; the regions are mails of several people with different wishes.
pub(super) fn tool_choice(random: &mut SeededRandom) -> DependencyCase {
    let people = CasePerson::draw_all(random, WISHES.len());
    let needed = random.below(people.len());
    // Each person has a different wish. The first person has a random one, and the others have the wishes after it.
    let shift = random.below(WISHES.len());
    let name = people.get(needed).map(|person| person.name.clone()).unwrap_or_default();
    let booking = 1000 + random.below(9000);
    let request = format!("Do with the booking {booking} what {name} wants.");
    let mut chat = CaseChat::default();
    chat.user(&request);
    let mut draft = Completion::default();
    for (index, person) in people.iter().enumerate() {
        let (wish, tool) = WISHES.get((index + shift) % WISHES.len()).copied().unwrap_or_default();
        chat.record(&format!("From: {}\n\n{wish}", person.name), index == needed);
        if index == needed {
            draft = call_of(tool, &json!({"booking": booking.to_string()}));
        }
    }
    chat.before(draft)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the regions of a case that its output depends on, and the others.
    fn divided(case: &DependencyCase) -> (Vec<&str>, Vec<&str>) {
        let regions = case.regions.iter().zip(&case.depends);
        let of = |wanted: bool| {
            let of = regions.clone().filter(move |(_, depends)| **depends == wanted);
            of.map(|(range, _)| case.prompt.get(range.clone()).unwrap()).collect()
        };
        (of(true), of(false))
    }

    #[test]
    fn what_a_call_needs_is_in_the_regions_of_the_people_that_the_request_names() {
        let mut random = SeededRandom::new(3, 1);
        for (generate, named) in [(derived as fn(&mut _) -> _, 2), (in_words, 1), (tool_choice, 1)] {
            for _ in 0..20 {
                let case: DependencyCase = generate(&mut random);
                let (needed, others) = divided(&case);
                assert_eq!(needed.len(), named, "{case:?}");
                assert!(others.len() >= 2, "{case:?}");
                let values: Vec<&str> = case.output.split('"').skip(3).step_by(4).collect();
                assert!(!values.is_empty(), "{case:?}");
                for region in needed.iter().chain(&others) {
                    assert!(values.iter().all(|value| !region.contains(value)), "{case:?}");
                }
            }
        }
    }

    #[test]
    fn a_sum_is_that_of_two_amounts() {
        let mut random = SeededRandom::new(4, 1);
        let amount = regex::Regex::new(r"[0-9]+\.[0-9]{2}\b").unwrap();
        for _ in 0..20 {
            let case = derived(&mut random);
            let cents = |text: &str| -> usize {
                amount.find(text).unwrap().as_str().replace('.', "").parse().unwrap()
            };
            let sum: usize = divided(&case).0.into_iter().map(cents).sum();
            assert_eq!(sum, cents(&case.output), "{case:?}");
        }
    }
}
