//! Rounds the numbers of reports, so that every platform prints the same digits. Floating-point functions such as `ln`
//! can differ in the last bit, and `flowgate bench verify` compares whole lines.

use serde_json::Value;

/// Returns the number as JSON, rounded to six decimal places; `null` if it is not finite.
pub(crate) fn rounded(value: f64) -> Value {
    // Adding 0 turns a negative zero into a positive one.
    Value::from((value * 1e6).round() / 1e6 + 0.0)
}

#[cfg(test)]
mod tests {
    use super::rounded;

    #[test]
    fn rounded_numbers_have_no_negative_zero() {
        assert_eq!(rounded(-0.0).to_string(), "0.0");
    }
}
