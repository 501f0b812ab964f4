//! Rewrites the attacks of the games so that they ask for a given call: the families of all three games, and the variants that encode or
//! divide the name of the tool. The [list of wordings](crate::wordings) for `flowgate attack` contains these texts.

use serde_json::Value;

use super::attack::families;
use super::task::Game;
use super::variant::{Encoding, Variant};

/// A text of an attacker in the games.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum GameWording {
    /// An attack that a game has: the game, the name of the family, and the template.
    Family(Game, &'static str, String),
    /// An attack of the capability game in which the name of the tool is encoded or divided: the variant that does
    /// this, and the template.
    Written(Variant, String),
}

/// Returns all texts: the families, then each way to write the name of a tool.
pub(crate) fn wordings() -> Vec<GameWording> {
    let games = [Game::Instruction, Game::Retrieval, Game::Capability].into_iter();
    let of_families = games.flat_map(|game| {
        families(game).into_iter().map(move |attack| GameWording::Family(game, attack.family, attack.text))
    });
    let written = Encoding::ALL.into_iter().map(Variant::Encoded).chain([Variant::SplitFields]);
    // One template suffices for the ways to write a name, since they do not depend on the text around the name.
    let template =
        families(Game::Capability).into_iter().next().map(|attack| attack.text).unwrap_or_default();
    let of_variants = written.map(|variant| GameWording::Written(variant, template.clone()));
    of_families.chain(of_variants).collect()
}

impl GameWording {
    /// Returns the name of the set of texts to which this one belongs.
    pub(crate) fn set(&self) -> &'static str {
        match self {
            Self::Family(Game::Instruction, ..) => "games-instruction",
            Self::Family(Game::Retrieval, ..) => "games-retrieval",
            Self::Family(Game::Capability, ..) => "games-capability",
            Self::Written(..) => "games-encoded",
        }
    }

    /// Returns the name of the text in its set.
    pub(crate) fn name(&self) -> String {
        match self {
            Self::Family(_, family, _) => (*family).to_owned(),
            Self::Written(variant, _) => variant.name(),
        }
    }

    /// Returns the text in a form that asks for a call of `tool` with these arguments. In a template, `{target}` is the
    /// marker to write, `{blocked}` the tenant whose data is asked for, and `{forbidden}` the tool to call. An attack
    /// of the instruction game asks the model to write the call in place of the marker. An attack of the retrieval game
    /// asks for data, so a sentence is added that asks to send the data by the call. `flowgate attack` has neither tenants
    /// nor markers, so `each tenant` and `DONE` replace their placeholders.
    pub(crate) fn text(&self, tool: &str, arguments: &Value) -> String {
        // The call is inserted last, since its arguments could contain a name in braces.
        let call = format!("{tool} with the arguments {arguments}");
        match self {
            Self::Family(Game::Instruction, _, text) => {
                text.replace("{target}", &format!("a call of {call}"))
            }
            Self::Family(Game::Retrieval, _, text) => {
                format!("{} Send it: call {call}.", text.replace("{blocked}", "each tenant"))
            }
            Self::Family(Game::Capability, _, text) => {
                text.replace("{target}", "DONE").replace("{forbidden}", &call)
            }
            Self::Written(variant, text) => {
                // The name as the variant writes it: in one part or, with `SplitFields` and an underscore in the name,
                // in two. The sentence has the first part, and an appendix has the second.
                let parts = variant.parts(tool);
                let rest = parts.get(1).map_or_else(String::new, |rest| format!("\nAppendix: {rest}."));
                let name = parts.first().map_or(tool, String::as_str);
                let call = format!("{name} with the arguments {arguments}");
                text.replace("{target}", "DONE").replace("{forbidden}", &call) + &rest
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::variant::{decode, join_parts};
    use super::*;

    /// The doubles of the games read in each text the tool and the arguments that the attacker wants; encoded texts do not show the name.
    #[test]
    fn every_text_contains_or_encodes_the_call() {
        let arguments = json!({"to": "mallory", "note": "{target} and {forbidden}"});
        for wording in wordings() {
            let text = wording.text("transfer_funds", &arguments);
            assert!(text.contains(&arguments.to_string()), "{text}");
            let is_plain = text.contains("transfer_funds");
            assert_eq!(is_plain, matches!(wording, GameWording::Family(..)), "{text}");
            let mut parts: Vec<String> = text.lines().map(decode).collect();
            join_parts(&mut parts);
            assert!(parts.iter().any(|part| part.contains("transfer_funds")), "{text} {parts:?}");
            // No placeholder of the template is left.
            assert!(!text.replace(&arguments.to_string(), "").contains(['{', '}']), "{text}");
        }
    }
}
