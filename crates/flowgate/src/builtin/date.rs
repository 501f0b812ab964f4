//! Parses dates and times, and prints them in one canonical form: `2024-05-19`, `12:00`, `2024-05-19 12:00`. The
//! functions of [`super::kind`] use this module to recognise dates and times. Labels with a time dimension use
//! [`seconds`] to read their dates.

/// Parses a date `YYYY-MM-DD` to year, month and day; `None` if there is no such day.
fn date(text: &str) -> Option<(u32, u32, u32)> {
    let (year, rest) = text.split_once('-')?;
    let (month, day) = rest.split_once('-')?;
    let (year, month, day) = (digits(year, 4)?, digits(month, 2)?, digits(day, 2)?);
    let leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    // The number of days of the month.
    let length = match month {
        4 | 6 | 9 | 11 => 30,
        2 if leap => 29,
        2 => 28,
        1..=12 => 31,
        _ => return None,
    };
    (1..=length).contains(&day).then_some((year, month, day))
}

/// Returns the number that a text of exactly `count` digits spells; `None` for another text.
fn digits(text: &str, count: usize) -> Option<u32> {
    (text.len() == count && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

/// Parses a time `HH:MM` or `HH:MM:SS` to hour, minute and optional second; `None` if there is no such time.
fn time(text: &str) -> Option<(u32, u32, Option<u32>)> {
    let mut parts = text.split(':');
    let hour = digits(parts.next()?, 2).filter(|hour| *hour < 24)?;
    let minute = digits(parts.next()?, 2).filter(|minute| *minute < 60)?;
    let second = match parts.next() {
        Some(second) => Some(digits(second, 2).filter(|second| *second < 60)?),
        None => None,
    };
    parts.next().is_none().then_some((hour, minute, second))
}

/// Returns the canonical form of a date, if the text is one; ignores white space around it.
pub(super) fn canonical_date(text: &str) -> Option<String> {
    date(text.trim()).map(|(year, month, day)| format!("{year:04}-{month:02}-{day:02}"))
}

/// Returns the canonical form of a time of day, if the text is one; ignores white space around it.
pub(super) fn canonical_time(text: &str) -> Option<String> {
    time(text.trim()).map(|(hour, minute, second)| match second {
        Some(second) => format!("{hour:02}:{minute:02}:{second:02}"),
        None => format!("{hour:02}:{minute:02}"),
    })
}

/// Returns the canonical form of a date with a time of day, if the text is one; ignores white space around it. A `T` or
/// a space separates the two parts.
pub(super) fn canonical_datetime(text: &str) -> Option<String> {
    let (date, time) = text.trim().split_once(['T', ' '])?;
    Some(format!("{} {}", canonical_date(date)?, canonical_time(time)?))
}

/// Returns the seconds from the Unix epoch to a date (its beginning in UTC), or to a date with a time in UTC; `None` if
/// the text is neither. A `Z` at the end of the text has no effect.
pub(crate) fn seconds(text: &str) -> Option<i64> {
    let text = text.trim();
    let text = text.strip_suffix('Z').unwrap_or(text);
    let (day, clock) = text.split_once(['T', ' ']).map_or((text, None), |(day, clock)| (day, Some(clock)));
    let (year, month, day) = date(day)?;
    let (hour, minute, second) = match clock {
        Some(clock) => time(clock)?,
        None => (0, 0, None),
    };
    // The algorithm is Howard Hinnant's `days_from_civil`. Its years begin in March, so that a leap day is the last day
    // of a year. It groups years in eras of 400 years, which all have the same number of days. 719 468 days lie between
    // 1 March of the year 0 and 1970. With the months counted from March, `(153 * month + 2) / 5` days of the year
    // precede a month.
    let year = i64::from(year) - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * ((i64::from(month) + 9) % 12) + 2) / 5 + i64::from(day) - 1;
    let days =
        era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468;
    Some(days * 86_400 + i64::from(hour) * 3600 + i64::from(minute) * 60 + i64::from(second.unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_real_dates_have_a_canonical_print() {
        for (text, expected) in [
            ("2024-02-29", Some("2024-02-29")),
            (" 2024-05-19 ", Some("2024-05-19")),
            ("2023-02-29", None),
            ("2024-13-01", None),
            ("2024-5-1", None),
            ("2024-05-19; rm -rf", None),
        ] {
            assert_eq!(canonical_date(text).as_deref(), expected, "{text}");
        }
        assert_eq!(canonical_datetime("2024-05-19T09:05:00").as_deref(), Some("2024-05-19 09:05:00"));
        assert_eq!(canonical_datetime("2024-05-19 9:05"), None);
        assert_eq!(canonical_time("24:00"), None);
    }

    #[test]
    fn seconds_since_the_epoch() {
        for (text, expected) in [
            ("1970-01-01", 0),
            ("1970-01-02T00:00:01Z", 86_401),
            ("2000-03-01", 951_868_800),
            ("2024-05-19 12:00", 1_716_120_000),
            ("0001-01-01", -62_135_596_800),
        ] {
            assert_eq!(seconds(text), Some(expected), "{text}");
        }
        assert_eq!(seconds("soon"), None);
        assert_eq!(seconds("2024-05-19ZZ"), None);
    }
}
