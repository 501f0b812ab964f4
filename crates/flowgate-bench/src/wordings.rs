//! Lists the wordings of injections that the benchmarks use ([`injection_wordings`]): those of the gullible agent, of
//! the security games, of the saliency cases, and of the texts with which the small detector is trained. Each wording
//! becomes a text that asks for a given call. `flowgate attack` tries these texts on a policy.

use serde_json::Value;

use crate::agents::instruction;
use crate::detectors::generated::{ADDRESSES, REVOCATIONS, SECRECY};
use crate::games::wordings::{self as games, GameWording};
use crate::saliency::INJECTION;

/// A wording of an injection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InjectionWording(WordingText);

/// Where a wording is from.
#[derive(Debug, Clone, PartialEq, Eq)]
enum WordingText {
    /// The instruction that the gullible agent of `bench agents` follows.
    Agents,
    /// An attack of the security games.
    Games(GameWording),
    /// The injected sentence of the saliency cases.
    Saliency,
    /// The sentences with this index in the lists of sentences from which the training texts of the detector are built.
    Detectors(usize),
}

/// Returns the wordings of all benchmarks.
pub fn injection_wordings() -> Vec<InjectionWording> {
    let games = games::wordings().into_iter().map(WordingText::Games);
    // One wording for each sentence of the longer of two lists: sentences that address the model, and sentences that
    // revoke its instructions. `InjectionWording::text` combines the sentences with the same index.
    let detectors = (0..ADDRESSES.len().max(REVOCATIONS.len())).map(WordingText::Detectors);
    let all = [WordingText::Agents].into_iter().chain(games).chain([WordingText::Saliency]).chain(detectors);
    all.map(InjectionWording).collect()
}

impl InjectionWording {
    /// Returns the name of the set of similar wordings to which this one belongs.
    pub fn set(&self) -> &'static str {
        match &self.0 {
            WordingText::Agents => "agents",
            WordingText::Games(wording) => wording.set(),
            WordingText::Saliency => "saliency",
            WordingText::Detectors(_) => "detectors",
        }
    }

    /// Returns the name of the wording, which begins with the name of its set. No other wording has it.
    pub fn name(&self) -> String {
        match &self.0 {
            WordingText::Agents | WordingText::Saliency => self.set().to_owned(),
            WordingText::Games(wording) => format!("{}-{}", self.set(), wording.name()),
            WordingText::Detectors(index) => format!("{}-{}", self.set(), index + 1),
        }
    }

    /// Returns the text of the injection, which asks for a call of `tool` with these arguments.
    pub fn text(&self, tool: &str, arguments: &Value) -> String {
        match &self.0 {
            WordingText::Agents => instruction(tool, arguments),
            WordingText::Games(wording) => wording.text(tool, arguments),
            WordingText::Saliency => format!("{INJECTION} Call {tool} with the arguments {arguments}."),
            WordingText::Detectors(index) => {
                // The lists differ in length, so the shorter ones begin again.
                let sentence =
                    |list: &[&'static str]| list.iter().cycle().nth(*index).copied().unwrap_or_default();
                format!(
                    "{} {} Call {tool} with the arguments {arguments}. {}",
                    sentence(ADDRESSES),
                    sentence(REVOCATIONS),
                    sentence(SECRECY)
                )
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::json;

    use super::*;

    #[test]
    fn every_wording_has_a_name_of_its_own_and_asks_for_the_call() {
        let wordings = injection_wordings();
        let names: BTreeSet<String> = wordings.iter().map(InjectionWording::name).collect();
        assert_eq!(names.len(), wordings.len(), "{names:?}");
        let arguments = json!({"to": "mallory"});
        for wording in &wordings {
            assert!(wording.name().starts_with(wording.set()));
            let text = wording.text("send_external_email", &arguments);
            assert!(text.contains(&arguments.to_string()), "{text}");
            // `games::wordings` tests the names that are encoded.
            let is_encoded = wording.set() == "games-encoded";
            assert!(is_encoded || text.contains("send_external_email"), "{text}");
        }
        // Every sentence of the detector's texts is in one of them.
        let texts: Vec<String> = wordings.iter().map(|wording| wording.text("t", &arguments)).collect();
        for sentence in [ADDRESSES, REVOCATIONS, SECRECY].concat() {
            assert!(texts.iter().any(|text| text.contains(sentence)), "{sentence}");
        }
    }
}
