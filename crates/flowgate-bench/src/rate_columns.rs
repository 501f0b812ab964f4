//! Names the columns of a rate in reports: [`rate_columns`]. The reports of the propagation suite, of the agents, of
//! the privacy suite and of both measurements of detectors (`detectors` and `detection`) call it, so that rates have
//! the same columns in JSON lines and CSV.

use serde_json::Value;

use crate::games::interval::Rate;
use crate::rounding::rounded;

/// Returns the columns of a rate, each with its name, which begins with `name`: the two counts, the share, and the ends
/// of its Wilson interval at 95 %. The share and the ends are `null` if there were no items.
pub(crate) fn rate_columns(name: &str, rate: Rate) -> [(String, Value); 5] {
    let number = |value: Option<f64>| value.map_or(Value::Null, rounded);
    let (low, high) = rate.wilson_95().unzip();
    [
        (format!("{name}_count"), rate.hits.into()),
        (format!("{name}_of"), rate.of.into()),
        (name.to_owned(), number(rate.value())),
        (format!("{name}_low"), number(low)),
        (format!("{name}_high"), number(high)),
    ]
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn a_rate_has_five_columns() {
        let check = |hits: usize, of: usize, expected: Value| {
            let columns = rate_columns("x", Rate { hits, of });
            assert_eq!(Value::Object(columns.into_iter().collect()), expected);
        };
        check(1, 2, json!({"x_count": 1, "x_of": 2, "x": 0.5, "x_low": 0.094531, "x_high": 0.905469}));
        check(0, 0, json!({"x_count": 0, "x_of": 0, "x": null, "x_low": null, "x_high": null}));
    }
}
