//! Identifies a run of the games, of the experiment of AgentSecBench or of the games beyond it by a manifest: seed,
//! model, defences, and digests of what determines its results. The manifest is the first line of a recorded run, and
//! `flowgate bench verify` compares it. The manifests of the other suites also use [`digest`].
//!
//! Two runs with equal manifests and a deterministic model have the same traces.

use flowgate_lm::ChatModel;
use flowgate_lm::recorded::request_text;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

use super::adaptive::author_prompts;
use super::defence::Defence;
use super::extended::{ExtendedGame, ExtendedSuite};
use super::generate::generate_pairs;
use super::guarded::POLICY;
use super::journey::{self, JOURNEY_POLICY};
use super::prompt::request;
use super::suite::GameSuite;
use super::task::{Side, TaskPair};
use crate::code::code_digest;

/// Returns the manifest of a run of the games of AgentSecBench as a JSON object. It has digests of the prompts, the policy and the code, so that a
/// difference in any of them is noticed.
pub fn manifest(suite: &GameSuite, defences: &[Defence], model: &dyn ChatModel) -> Value {
    let (background, injections) = suite.source_counts();
    json!({
        "type": "manifest",
        "suite": "agentsecbench-games",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": suite.seed(),
        "seeds": suite.seeds(),
        "instances": suite.instances(),
        "background_texts": background,
        "attack_texts": injections,
        "variant": suite.variant().name(),
        "model": model.name(),
        "defences": defences.iter().map(|defence| defence.name()).collect::<Vec<_>>(),
        "executions": suite.executions_per_defence() * defences.len(),
        "sha256": {
            "prompts": digest(prompts(suite.pairs(), defences)),
            "policy": digest([POLICY]),
            "code": code_digest(),
        },
    })
}

/// Adds the field `search` to the manifest of a run that also searches for attacks. The field has `queries`, the maximum
/// number of attempts for each task; `attacker`, the name of the model that drives the attacker (null without one); and a
/// digest of the texts that this model receives in every search. If `queries` is 0, the manifest stays unchanged.
#[must_use]
pub fn with_search(mut manifest: Value, queries: usize, attacker: Option<&str>) -> Value {
    let prompts = attacker.map(|_| digest(author_prompts()));
    let search = json!({"queries": queries, "attacker": attacker, "prompts_sha256": prompts});
    if let (Some(fields), true) = (manifest.as_object_mut(), queries > 0) {
        fields.insert("search".to_owned(), search);
    }
    manifest
}

/// Returns the manifest of the experiment of AgentSecBench with these models, as a JSON object. All models see the
/// same prompts, so the manifest has one digest of them.
pub fn experiment_manifest(suite: &GameSuite, models: &[&str]) -> Value {
    let defences = Defence::of_the_paper();
    json!({
        "type": "manifest",
        "suite": "agentsecbench-paper",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": suite.seed(),
        "instances": suite.instances(),
        "models": models,
        "defences": defences.iter().map(|defence| defence.name()).collect::<Vec<_>>(),
        "executions": suite.executions_per_defence() * defences.len() * models.len(),
        "sha256": {
            "prompts": digest(prompts(suite.pairs(), &defences)),
            "policy": digest([POLICY]),
            "code": code_digest(),
        },
    })
}

/// Returns the manifest of a run of the games beyond AgentSecBench, as a JSON object. It has a digest of the tasks, and
/// one of the prompts that do not depend on what the model did before: all requests of a game of one step, and what every
/// request of a game of several steps has in common.
pub fn extended_manifest(
    suite: &ExtendedSuite,
    games: &[ExtendedGame],
    defences: &[Defence],
    model: &dyn ChatModel,
) -> Value {
    let tasks = games.iter().flat_map(|game| suite.tasks(*game));
    json!({
        "type": "manifest",
        "suite": "agentsecbench-extended",
        "version": env!("CARGO_PKG_VERSION"),
        "seed": suite.seed,
        "seeds": suite.seeds,
        "instances": suite.instances,
        "games": games.iter().map(|game| game.name()).collect::<Vec<_>>(),
        "model": model.name(),
        "defences": defences.iter().map(|defence| defence.name()).collect::<Vec<_>>(),
        "executions": suite.executions_per_row() * games.len() * defences.len(),
        "sha256": {
            "tasks": digest(tasks),
            "prompts": digest(extended_prompts(suite, games, defences)),
            "policy": digest([POLICY, JOURNEY_POLICY]),
            "code": code_digest(),
        },
    })
}

/// Returns the texts of which the manifest has a digest: those of each task, and for each task and defence the request that
/// the defence would send. For a defence by attention blocking, the blocked spans follow its request. The texts are what a
/// model receives, so that no renamed type or field changes the digest.
fn prompts(pairs: &[TaskPair], defences: &[Defence]) -> Vec<String> {
    let mut prompts = Vec::new();
    for pair in pairs {
        for task in Side::ALL.map(|side| pair.side(side)) {
            // A label defence changes no text; its requests depend on the conversation, so the task identifies them.
            prompts.extend(task.texts());
            for defence in defences {
                let request = request(task, defence.annotation(), &defence.defend_text(task));
                prompts.push(request_text(&request));
                if let Defence::Attention(channel) = defence {
                    let spans = channel.blocked_spans(task).into_iter();
                    let spans = spans.map(|span| format!("{} to {}", span.start, span.end));
                    prompts.push(spans.collect::<Vec<_>>().join(", "));
                }
            }
        }
    }
    prompts
}

/// Returns the texts of which the manifest of the games beyond AgentSecBench has a digest: for a variant of a game, those
/// of [`prompts`]; for a game of several steps, the system message with what each defence adds to it, the messages of the
/// user, and the tools.
fn extended_prompts(suite: &ExtendedSuite, games: &[ExtendedGame], defences: &[Defence]) -> Vec<String> {
    let of_game = |game: &ExtendedGame| match *game {
        ExtendedGame::Variant(variant, game) => {
            let pairs =
                suite.all_seeds().flat_map(|seed| generate_pairs(game, seed, suite.instances, variant));
            prompts(&pairs.collect::<Vec<_>>(), defences)
        }
        ExtendedGame::Journey(game, _) => {
            let added = defences.iter().map(|defence| defence.annotation().unwrap_or_default().to_owned());
            journey::prompts(game).into_iter().chain(added).collect()
        }
    };
    games.iter().flat_map(of_game).collect()
}

/// Returns the SHA-256 digest of a list of texts, in hexadecimal. The length of each text is hashed before the text, so
/// that two lists which divide the same characters differently have different digests.
pub(crate) fn digest<T: AsRef<str>>(texts: impl IntoIterator<Item = T>) -> String {
    let mut hash = Sha256::new();
    for text in texts {
        let text = text.as_ref();
        hash.update((text.len() as u64).to_be_bytes());
        hash.update(text);
    }
    hash.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::super::double::ModelDouble;
    use super::*;

    #[test]
    fn a_manifest_identifies_the_run() {
        let build = |seed, instances, defences: &[Defence]| {
            manifest(&GameSuite::generate(seed, instances), defences, &ModelDouble::Gullible)
        };
        let all = Defence::standard();
        assert_eq!(build(1, 8, &all), build(1, 8, &all));
        assert_ne!(build(1, 8, &all)["sha256"]["prompts"], build(2, 8, &all)["sha256"]["prompts"]);
        assert_ne!(build(1, 8, &all)["sha256"]["prompts"], build(1, 9, &all)["sha256"]["prompts"]);
        assert_eq!(build(1, 8, &all)["sha256"]["code"], build(2, 9, &all[..1])["sha256"]["code"]);
        // The paper's size: 288 for each of its two models.
        assert_eq!(build(1, 8, &all[..6])["executions"], 288);
        // The search is part of what identifies a run.
        let searched = |queries, attacker| with_search(build(1, 1, &all), queries, attacker);
        assert_eq!(searched(0, Some("m")), build(1, 1, &all));
        assert_eq!(searched(5, None)["search"]["queries"], 5);
        assert!(searched(5, None)["search"]["prompts_sha256"].is_null());
        assert_eq!(searched(5, Some("m"))["search"]["attacker"], "m");
        assert_eq!(searched(5, Some("m"))["search"]["prompts_sha256"].as_str().unwrap().len(), 64);
        // The length of a text counts, not only the concatenation.
        assert_ne!(digest(["ab", "c"]), digest(["a", "bc"]));
        assert_eq!(digest([""; 0]), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    }

    /// What is hashed is what a model receives. The text of a value's `Debug` form would change with the name of a field.
    #[test]
    fn prompts_are_texts_of_a_model() {
        let suite = GameSuite::generate(1, 1);
        let defences: Vec<Defence> = Defence::standard().into_iter().chain(Defence::by_attention()).collect();
        let mut texts = prompts(suite.pairs(), &defences);
        let extended = ExtendedSuite { seed: 1, seeds: 1, instances: 1 };
        texts.extend(extended_prompts(&extended, &ExtendedGame::all(), &defences));
        texts.extend(ExtendedGame::all().into_iter().flat_map(|game| extended.tasks(game)));
        for name in
            ["Request {", "Task {", "Sampling {", "TaskLabels", "Some(", "None,", "Tool {", "user_prompt:"]
        {
            assert!(!texts.iter().any(|text| text.contains(name)), "{name}");
        }
        let pair = suite.pairs().first().unwrap();
        assert!(texts.contains(&pair.adversarial.context));
        assert!(texts.iter().any(|text| text.contains("\"max_tokens\":64")), "the limit of an answer counts");
        assert!(texts.contains(&"at most 512 tokens".to_owned()), "also that of games of several steps");
    }

    /// The prompts of a game beyond AgentSecBench depend on the game, the defences and the tasks.
    #[test]
    fn the_prompts_of_further_games_are_part_of_the_manifest() {
        let build = |seed, game: &str, defences: &[Defence]| {
            let suite = ExtendedSuite { seed, seeds: 1, instances: 1 };
            let game = ExtendedGame::parse(game).unwrap();
            extended_manifest(&suite, &[game], defences, &ModelDouble::Gullible)["sha256"]["prompts"].clone()
        };
        for game in ["base64/capability", "memory"] {
            assert_eq!(build(1, game, &[Defence::None]), build(1, game, &[Defence::None]));
            assert_ne!(build(1, game, &[Defence::None]), build(1, game, &[Defence::Delimiter]));
            assert_ne!(build(1, game, &[Defence::None]), build(1, "file", &[Defence::None]));
        }
        // The tickets of a journey are in the digest of the tasks.
        assert_eq!(build(1, "memory", &[Defence::None]), build(2, "memory", &[Defence::None]));
        let none = &[Defence::None];
        assert_ne!(build(1, "base64/capability", none), build(2, "base64/capability", none));
    }
}
