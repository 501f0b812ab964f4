//! Defines [`ExactAmount`], a number that can be summed without rounding. The parser reads the limits of `consent`
//! statements as exact amounts, and the monitor sums the arguments of calls to compare them with these limits.

use serde_json::Value as Json;

/// The most digits of an amount after the decimal point.
const FRACTION_DIGITS: usize = 6;
/// The most digits of an amount before the decimal point. The sum over all events of a session then fits into the type.
const WHOLE_DIGITS: usize = 15;

/// A number of at least 0, with at most six digits after the point, stored as a multiple of 0.000001.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub(crate) struct ExactAmount(u128);

impl ExactAmount {
    /// Returns the amount that a text spells as a decimal number: `50`, `12.5`. `None` for any other text, such as a
    /// number with a sign or an exponent, and for a number with more digits than an amount can have.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
        let is_digits = |part: &str, most: usize| {
            (1..=most).contains(&part.len()) && part.bytes().all(|byte| byte.is_ascii_digit())
        };
        if !is_digits(whole, WHOLE_DIGITS) || !is_digits(fraction, FRACTION_DIGITS) {
            return None;
        }
        // The digits of both parts, with zeros up to the last place.
        let digits = format!("{whole}{fraction:0<FRACTION_DIGITS$}");
        digits.parse().ok().map(Self)
    }

    /// Converts the value of an argument; `None` if it is not a number, is negative, or has too many digits. A text is
    /// not a number, even if it consists of digits.
    pub(crate) fn of_value(value: &Json) -> Option<Self> {
        match value {
            Json::Number(number) => Self::parse(&number.to_string()),
            _ => None,
        }
    }

    /// Returns the amount 1, by which each call counts against a limit on the number of calls.
    pub(crate) fn one() -> Self {
        // Amounts are stored in millionths.
        Self(10_u128.pow(6))
    }

    /// Returns whether the amount is zero.
    pub(crate) fn is_zero(self) -> bool {
        self.0 == 0
    }

    /// Returns whether the amount is a whole number.
    pub(crate) fn is_whole(self) -> bool {
        self.0.checked_rem(Self::one().0) == Some(0)
    }

    /// Returns the sum of two amounts; `None` if it is too large.
    pub(crate) fn plus(self, other: Self) -> Option<Self> {
        self.0.checked_add(other.0).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_decimal_numbers_from_zero_are_exact() {
        for (value, expected) in [
            (json!(0), Some("0")),
            (json!(50), Some("50")),
            (json!(12.5), Some("12.5")),
            (json!(0.1), Some("0.1")),
            (json!(50.0), Some("50")),
            (json!(999_999_999_999_999_u64), Some("999999999999999")),
            (json!(1_000_000_000_000_000_u64), None),
            (json!(-1), None),
            (json!(-0.0), None),
            (json!(1e30), None),
            (json!(1e-7), None),
            (json!(0.123_456_7), None),
            (json!("50"), None),
            (json!(true), None),
            (json!(null), None),
            (json!([50]), None),
        ] {
            assert_eq!(ExactAmount::of_value(&value), expected.and_then(ExactAmount::parse), "{value}");
        }
        for text in ["", ".", "5.", ".5", "+5", "5e3", "٣", "1.2.3", "1_000"] {
            assert_eq!(ExactAmount::parse(text), None, "{text}");
        }
    }

    #[test]
    fn sums_are_exact() {
        let tenth = ExactAmount::parse("0.1").unwrap();
        let sum = (0..30).try_fold(ExactAmount::default(), |sum, _| sum.plus(tenth));
        assert_eq!(sum, ExactAmount::parse("3"));
        assert!(sum.unwrap().is_whole() && !tenth.is_whole() && !tenth.is_zero());
        assert!(ExactAmount::default().is_zero() && ExactAmount::parse("1") == Some(ExactAmount::one()));
        assert_eq!(ExactAmount(u128::MAX).plus(tenth), None);
    }
}
