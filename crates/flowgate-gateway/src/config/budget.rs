//! Reads the budgets of clients, and the prices of models in the section `[prices]`. `config` calls it for the prices,
//! and `config::client` for the budget of each client. The model routes compute from the prices what a turn costs
//! (`chat::budgets`).

use std::collections::BTreeMap;
use std::sync::Arc;

use flowgate_lm::chat::Usage;

use super::file::PriceSpec;

/// The highest price of a million tokens, so that no cost overflows.
const MAX_PRICE: f64 = 1e9;
/// The highest budget of a day, in the currency.
pub(crate) const MAX_COST: f64 = 1e12;

/// The prices of a model, for a million tokens in the currency. The same numbers are the prices of one token in
/// millionths of the currency.
#[derive(Debug, Clone, Copy, PartialEq)]
struct ModelPrice {
    input: f64,
    cached_input: f64,
    output: f64,
}

/// The prices of models, by the names of the models in requests.
#[derive(Debug, Clone, Default, PartialEq)]
pub(crate) struct Prices(BTreeMap<String, ModelPrice>);

/// What the models of a client may use on one day.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Budget {
    /// The most tokens of requests and answers together.
    pub tokens_per_day: Option<u64>,
    /// The most that these tokens may cost, in millionths of the currency.
    pub cost_per_day: Option<u64>,
    /// The prices of models.
    pub(crate) prices: Arc<Prices>,
}

impl Prices {
    /// Reads the section `[prices]`. Without a price for cached input, cached input costs as much as other input.
    ///
    /// # Errors
    /// If a price is not a number from 0 to [`MAX_PRICE`].
    pub(super) fn read(specs: BTreeMap<String, PriceSpec>) -> Result<Self, String> {
        let mut prices = BTreeMap::new();
        for (model, PriceSpec { input, output, cached_input }) in specs {
            let cached_input = cached_input.unwrap_or(input);
            let of_tokens = [("input", input), ("output", output), ("cached-input", cached_input)];
            if let Some((tokens, price)) =
                of_tokens.into_iter().find(|(_, price)| !(0.0..=MAX_PRICE).contains(price))
            {
                return Err(format!(
                    "{model}: `{tokens}`: the price {price} is out of range: write a number from 0 to {MAX_PRICE:e}"
                ));
            }
            prices.insert(model, ModelPrice { input, cached_input, output });
        }
        Ok(Self(prices))
    }

    /// Returns whether no model has a price.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns whether a model has a price.
    pub(crate) fn has(&self, model: &str) -> bool {
        self.0.contains_key(model)
    }

    /// Returns the cost of tokens of a model, in millionths of the currency. A model without a price costs as much as
    /// the most expensive one, or nothing if no model has a price.
    pub(crate) fn cost(&self, model: &str, usage: Usage) -> f64 {
        #[expect(clippy::cast_precision_loss, reason = "2^53 tokens cost more than any budget")]
        let number = |tokens: u64| tokens as f64;
        // If a server reports more cached input tokens than input tokens, all input tokens count as cached.
        let cached = usage.cached.min(usage.input);
        // The prices are for a million tokens, so `tokens * price` is in millionths of the currency.
        let cost = |price: &ModelPrice| {
            let input =
                price.input.mul_add(number(usage.input - cached), price.cached_input * number(cached));
            price.output.mul_add(number(usage.output), input)
        };
        match self.0.get(model) {
            Some(price) => cost(price),
            None => self.0.values().map(cost).fold(0.0, f64::max),
        }
    }
}

impl Budget {
    /// Checks the daily budget of a client, and converts its limit on the cost to millionths of the currency. `models`
    /// are the models that the client's section names: with a limit on the cost, each of them needs a price.
    ///
    /// # Errors
    /// If a limit is 0 or negative, or the limit on the cost is above [`MAX_COST`]; with a limit on the cost, also if
    /// no model has a price, or one of `models` has none.
    pub(super) fn read<'m>(
        tokens_per_day: Option<u64>,
        cost_per_day: Option<f64>,
        prices: &Arc<Prices>,
        mut models: impl Iterator<Item = &'m str>,
    ) -> Result<Self, String> {
        if tokens_per_day == Some(0) {
            return Err(
                "tokens-per-day: the budget is 0: write a number above 0; to stop the client, freeze it or remove it"
                    .to_owned(),
            );
        }
        let Some(cost) = cost_per_day else {
            return Ok(Self { tokens_per_day, cost_per_day: None, prices: Arc::clone(prices) });
        };
        if !(cost > 0.0 && cost <= MAX_COST) {
            return Err(format!(
                "cost-per-day: {cost} is out of range: write a number above 0 and at most {MAX_COST:e}"
            ));
        }
        if prices.0.is_empty() {
            return Err(
                "cost-per-day: no model has a price: write [prices] with NAME = { input = 1.25, output = 10.0 }, each for a \
                 million tokens"
                    .to_owned(),
            );
        }
        if let Some(model) = models.find(|model| !prices.has(model)) {
            return Err(format!("cost-per-day: the model {model} has no price: add it to [prices]"));
        }
        // In millionths of the currency.
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is at most 10^18")]
        let cost_per_day = Some((cost * 1e6).round() as u64);
        Ok(Self { tokens_per_day, cost_per_day, prices: Arc::clone(prices) })
    }

    /// Returns whether the budget limits tokens or cost, so that the use of models has to be counted.
    pub(crate) fn is_limited(&self) -> bool {
        self.tokens_per_day.is_some() || self.cost_per_day.is_some()
    }

    /// Returns whether the client may ask a model: a budget that limits the cost permits only models with a price.
    pub(crate) fn permits_model(&self, model: &str) -> bool {
        self.cost_per_day.is_none() || self.prices.has(model)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prices(text: &str) -> Result<Prices, String> {
        Prices::read(toml::from_str(text).unwrap())
    }

    #[test]
    fn costs_follow_the_prices() {
        let prices = prices(
            "a = { input = 1.25, output = 10.0 }\nb = { input = 1.0, cached-input = 0.1, output = 2.0 }\n\
            free = { input = 0, output = 0 }\n",
        )
        .unwrap();
        let check = |model: &str, (input, cached): (u64, u64), output: u64, millionths: f64| {
            let cost = prices.cost(model, Usage { input, output, cached });
            assert!((cost - millionths).abs() < 1e-6, "{model} {input} {cached} {output}: {cost}");
        };
        check("a", (1_000_000, 0), 0, 1.25e6);
        check("a", (100, 0), 3, 155.0);
        // Without a price of its own, cached input costs as much as other input.
        check("a", (100, 80), 3, 155.0);
        check("b", (100, 0), 3, 106.0);
        check("b", (100, 80), 3, 34.0);
        check("b", (100, 100), 0, 10.0);
        check("b", (100, 1000), 0, 10.0);
        check("free", (100, 80), 3, 0.0);
        check("unknown", (100, 0), 3, 155.0);
        let usage = Usage { input: 100, output: 3, cached: 0 };
        assert_eq!(Prices::default().cost("a", usage).to_bits(), 0);
    }

    #[test]
    fn wrong_prices_and_budgets() {
        for (text, expected) in [
            (
                "a = { input = -1, output = 0 }",
                "a: `input`: the price -1 is out of range: write a number from 0 to 1e9",
            ),
            (
                "a = { input = 1, output = inf }",
                "a: `output`: the price inf is out of range: write a number from 0 to 1e9",
            ),
            (
                "a = { input = 1, output = 1, cached-input = -1 }",
                "a: `cached-input`: the price -1 is out of range: write a number from 0 to 1e9",
            ),
            (
                "a = { input = nan, output = 1 }",
                "a: `input`: the price NaN is out of range: write a number from 0 to 1e9",
            ),
        ] {
            assert_eq!(prices(text), Err(expected.to_owned()));
        }
        let known = Arc::new(prices("a = { input = 1, output = 1 }").unwrap());
        let check = |tokens, cost, prices: &Arc<Prices>, model: &'static str, expected: &str| {
            let error = Budget::read(tokens, cost, prices, std::iter::once(model)).err().unwrap_or_default();
            assert!(error.starts_with(expected) && error.is_empty() == expected.is_empty(), "{error}");
        };
        check(None, None, &Arc::default(), "b", "");
        check(Some(1), None, &Arc::default(), "b", "");
        check(Some(1), Some(0.5), &known, "a", "");
        check(Some(0), None, &known, "a", "tokens-per-day: the budget is 0");
        check(None, Some(0.0), &known, "a", "cost-per-day: 0 is out of range: write a number above 0");
        check(None, Some(f64::NAN), &known, "a", "cost-per-day: NaN is out of range");
        check(None, Some(1.0), &Arc::default(), "a", "cost-per-day: no model has a price: write [prices]");
        check(None, Some(1.0), &known, "b", "cost-per-day: the model b has no price: add it to [prices]");
    }
}
