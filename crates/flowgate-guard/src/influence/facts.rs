//! Extracts words, numbers, dates and times from a text, each in one canonical spelling. `index` uses them to find
//! where a value of a call was stated before.
//!
//! A model rarely passes a value to a tool in the spelling that it read: `May 19th` becomes `2024-05-19`, `$1,200`
//! becomes `1200.0`. Values are therefore compared by their meaning.

use std::ops::Range;

/// A *fact*: a number, a date or a time that a text states.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) enum StatedValue {
    /// A number, in the shortest spelling of its value.
    Number(String),
    /// A day of the year, and the year if it is stated.
    Date { year: Option<u16>, month: u8, day: u8 },
    /// A time of day.
    Time { hour: u8, minute: u8 },
}

const MONTHS: [&str; 12] = [
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
];

/// Returns the words of a text in lower case, with their byte ranges.
pub(crate) fn words(text: &str) -> Vec<(String, Range<usize>)> {
    let mut words = Vec::new();
    let mut start = None;
    // A space after the end closes the last word.
    for (at, c) in text.char_indices().chain([(text.len(), ' ')]) {
        match (c.is_alphanumeric(), start) {
            (true, None) => start = Some(at),
            (false, Some(from)) => {
                if let Some(word) = text.get(from..at) {
                    words.push((word.to_lowercase(), from..at));
                }
                start = None;
            }
            _ => {}
        }
    }
    words
}

/// Parses a plain decimal number, and returns it in its shortest spelling. A plain decimal consists of digits, with an
/// optional minus before them and an optional point after the first digit; returns `None` for any other text. Numbers
/// are compared by this spelling and not as floats: `98.70` equals `98.7`, and numbers that a float cannot distinguish
/// differ.
pub(crate) fn parse_decimal(spelled: &str) -> Option<StatedValue> {
    let (sign, digits) = spelled.strip_prefix('-').map_or(("", spelled), |digits| ("-", digits));
    let (whole, decimals) = digits.split_once('.').unwrap_or((digits, ""));
    let plain = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    if whole.is_empty() || !plain(whole) || !plain(decimals) {
        return None;
    }
    let whole = whole.trim_start_matches('0');
    let whole = if whole.is_empty() { "0" } else { whole };
    let decimals = decimals.trim_end_matches('0');
    let point = if decimals.is_empty() { "" } else { "." };
    Some(StatedValue::Number(format!("{sign}{whole}{point}{decimals}")))
}

/// Returns the numbers, dates and times that a text states.
pub(crate) fn stated_values(text: &str) -> Vec<StatedValue> {
    let words = words(text);
    let mut facts = Vec::new();
    // `between` returns the characters between two words, and `at` the word at an index with its range.
    let between = |a: &Range<usize>, b: &Range<usize>| text.get(a.end..b.start).unwrap_or("");
    let at = |index: usize| words.get(index).map(|(word, range)| (word.as_str(), range));
    for index in 0..words.len() {
        let Some((word, range)) = at(index) else { continue };
        if let Some(month) = month(word) {
            // `May 19th, 2024`, `May 19`, `19 May 2024`.
            let before = index.checked_sub(1).and_then(at).and_then(|(word, _)| day_of_month(word));
            let after = at(index + 1).and_then(|(word, _)| day_of_month(word));
            let year_of = |index: usize| at(index).and_then(|(word, _)| year(word));
            // If both neighbours can be the day, the one after the month is taken.
            if let Some(day) = after {
                facts.push(StatedValue::Date { year: year_of(index + 2), month, day });
            } else if let Some(day) = before {
                facts.push(StatedValue::Date { year: year_of(index + 1), month, day });
            }
        }
        // The word after the one at `index`, if exactly `separator` is between them.
        let joined = |index: usize, separator: &str| {
            let ((_, left), (right_word, right)) = (at(index)?, at(index + 1)?);
            (between(left, right) == separator).then_some(right_word)
        };
        if let (Some(y), Some(m)) = (year(word), joined(index, "-"))
            && let Some(d) = joined(index + 1, "-")
        {
            // `2024-05-19`, and `2024-05-19T12:00`, whose last word also contains the hour.
            let (d, hour) = d.split_once('t').map_or((d, None), |(d, hour)| (d, Some(hour)));
            if let (Some(month), Some(day)) = (parse_in_range(m, 1, 12), parse_in_range(d, 1, 31)) {
                facts.push(StatedValue::Date { year: Some(y), month, day });
                let minute = joined(index + 2, ":");
                if let (Some(hour), Some(minute)) = (
                    hour.and_then(|h| parse_in_range(h, 0, 23)),
                    minute.and_then(|m| parse_in_range(m, 0, 59)),
                ) {
                    facts.push(StatedValue::Time { hour, minute });
                }
            }
        }
        facts.extend(parse_time(word, joined(index, ":"), at(index + 1), at(index + 2)));
        facts.extend(spelled_number(text, range));
    }
    facts
}

/// Whether a lower-case word names a month, apart from signs at its end.
pub(super) fn is_month(word: &str) -> bool {
    month(word.trim_end_matches(|c: char| !c.is_alphanumeric())).is_some()
}

/// Parses the name of a month in lower case, in full or as its first three letters: returns 1 to 12, or `None`.
fn month(word: &str) -> Option<u8> {
    let position =
        MONTHS.iter().position(|name| word == *name || (word.len() == 3 && name.starts_with(word)));
    position.and_then(|index| u8::try_from(index + 1).ok())
}

/// Parses a year from 1900 to 2199; `None` for any other word. Other numbers of four digits are rarely years.
fn year(word: &str) -> Option<u16> {
    (word.len() == 4).then(|| word.parse().ok()).flatten().filter(|year| (1900..2200).contains(year))
}

/// Parses a number of at most two digits from `least` to `most`; `None` for any other word.
fn parse_in_range(word: &str, least: u8, most: u8) -> Option<u8> {
    (word.len() <= 2).then(|| word.parse().ok()).flatten().filter(|n| (least..=most).contains(n))
}

/// Parses a day of the month (`19`, `19th`, `1st`): returns 1 to 31, or `None`.
fn day_of_month(word: &str) -> Option<u8> {
    let digits = ["st", "nd", "rd", "th"].iter().find_map(|suffix| word.strip_suffix(suffix)).unwrap_or(word);
    parse_in_range(digits, 1, 31)
}

/// Parses a time of day that begins with `word`: `12:00`, `2:30 pm`, `2 pm`, `2pm`, `noon`. `next` and `after` are the
/// next two words, and `minute` is `next` if a colon precedes it. `am` or `pm` may be `next` or, after a minute,
/// `after`. `None` if no time begins there.
fn parse_time(
    word: &str,
    minute: Option<&str>,
    next: Option<(&str, &Range<usize>)>,
    after: Option<(&str, &Range<usize>)>,
) -> Option<StatedValue> {
    if word == "noon" {
        return Some(StatedValue::Time { hour: 12, minute: 0 });
    }
    // The hours that `am` and `pm` add. In `a.m.` and `p.m.` the first word is a single letter, so `a` and `p` count
    // as well, and `2 a day` is read as a time.
    let half_of = |word: Option<&str>| match word {
        Some("am" | "a") => Some(0),
        Some("pm" | "p") => Some(12),
        _ => None,
    };
    // The hour from 0 to 23. With `am` or `pm`, only 1 to 12 are hours: 12 am is 0, and 12 pm is 12.
    let to_24 = |hour: u8, half: Option<u8>| match half {
        Some(half) if (1..=12).contains(&hour) => Some(hour % 12 + half),
        Some(_) => None,
        None => Some(hour),
    };
    if let (Some(hour), Some(minute)) = (parse_in_range(word, 0, 23), minute) {
        // `am` or `pm` may follow the digits without a space.
        let (digits, glued) = minute.split_at_checked(2)?;
        let minute = parse_in_range(digits, 0, 59)?;
        let half = half_of(if glued.is_empty() { after.map(|(word, _)| word) } else { Some(glued) });
        return Some(StatedValue::Time { hour: to_24(hour, half)?, minute });
    }
    let (digits, glued) = match word.find(|c: char| !c.is_ascii_digit()) {
        Some(at) => word.split_at_checked(at)?,
        None => (word, ""),
    };
    let half = half_of(if glued.is_empty() { next.map(|(word, _)| word) } else { Some(glued) })?;
    Some(StatedValue::Time { hour: to_24(parse_in_range(digits, 0, 12)?, Some(half))?, minute: 0 })
}

/// Parses the number whose integer part begins with the word at `range`, with its thousands groups and decimals and
/// without its sign. Returns `None` if the digits are part of a longer word, date, time or version.
fn spelled_number(text: &str, range: &Range<usize>) -> Option<StatedValue> {
    let digits = text.get(range.clone())?;
    if !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let before = text.get(..range.start)?;
    // Whether the digits are part of a longer word, date or version.
    let glued = before.ends_with(['.', ',', ':', '/', '-', '_'])
        && before.trim_end_matches(['.', ',', ':', '/', '-', '_']).ends_with(|c: char| c.is_alphanumeric());
    if glued {
        return None;
    }
    // Each further group of thousands is a comma with exactly three digits.
    let mut spelled = digits.to_owned();
    let mut rest = text.get(range.end..)?;
    while let Some(group) = rest
        .strip_prefix(',')
        .and_then(|rest| rest.get(..3))
        .filter(|g| g.bytes().all(|b| b.is_ascii_digit()))
    {
        // A fourth digit follows, so the comma does not begin a group.
        if rest.get(4..).is_some_and(|rest| rest.starts_with(|c: char| c.is_ascii_digit())) {
            break;
        }
        spelled.push_str(group);
        rest = rest.get(4..)?;
    }
    if let Some(decimals) = rest.strip_prefix('.') {
        let length = decimals.find(|c: char| !c.is_ascii_digit()).unwrap_or(decimals.len());
        if length > 0 {
            spelled.push('.');
            spelled.push_str(decimals.get(..length)?);
            rest = decimals.get(length..)?;
        }
    }
    // `10:30`, `2024-05`, `10.0.0.1` and `3rd` are not numbers.
    let connected = rest.starts_with([':', '/', '-', '_', '.', ','])
        && rest.get(1..).is_some_and(|r| r.starts_with(|c: char| c.is_alphanumeric()));
    if connected || rest.starts_with(|c: char| c.is_alphanumeric()) {
        return None;
    }
    parse_decimal(&spelled)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn show(fact: &StatedValue) -> String {
        match fact {
            StatedValue::Number(number) => format!("#{number}"),
            StatedValue::Date { year, month, day } => {
                format!("{}-{month:02}-{day:02}", year.map_or("?".to_owned(), |year| year.to_string()))
            }
            StatedValue::Time { hour, minute } => format!("{hour:02}:{minute:02}"),
        }
    }

    /// Rows: a text, and the values that it states: `#` precedes a number, and `?` replaces a missing year.
    #[test]
    fn texts_state_these_facts() {
        for (text, expected) in [
            ("on May 19th, 2024 at 12:00", "2024-05-19 #2024 12:00"),
            ("January 11th to January 15th 2025", "?-01-11 2025-01-15 #2025"),
            ("19 May", "#19 ?-05-19"),
            ("2024-05-19T09:30", "2024-05-19 09:30"),
            ("at 2 pm or 2:30 PM or 9am", "14:00 #2 14:30 09:00"),
            ("pay $1,200.50 and 98.70, then 5", "#1200.5 #98.7 #5"),
            ("10.0.0.1 and a-13 and 3rd", ""),
            ("maybe marching", ""),
        ] {
            let shown: Vec<String> = stated_values(text).iter().map(show).collect();
            assert_eq!(shown.join(" "), expected, "{text}");
        }
    }

    #[test]
    fn words_are_lower_case_with_their_place() {
        assert_eq!(words("Élan, b2!"), [("élan".to_owned(), 0..5), ("b2".to_owned(), 7..9)]);
    }
}
