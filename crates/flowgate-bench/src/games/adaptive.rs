//! Searches for an attack that takes effect under a defence: the user receives the marker for which the attack asks, or the forbidden tool runs. The
//! attacker learns from each attempt whether it took effect, and has a limited number of attempts for each task. The attacker of AgentSecBench is
//! fixed (its section 4.6), so this game is beyond that paper.
//!
//! An attempt runs the task with another attack, which consists of a text and a *variant*, the form in which the text is written (for example in
//! base64). The search first tries the prepared texts of the game in every variant, and then randomly composed texts in random variants. It ends at
//! the first attempt that takes effect. Every defence faces the same attempts in the same order, with the same limit.
//!
//! [`GameSuite`] has the tasks. `flowgate bench games --queries` calls [`search`].

use serde_json::{Value, json};

use super::attack::{AttackTemplate, compose, families};
use super::defence::Defence;
use super::generate::generate_pair;
use super::interval::Rate;
use super::output::ExecutionError;
use super::random::SeededRandom;
use super::runner::Runner;
use super::suite::GameSuite;
use super::task::{Game, Side};
use super::variant::Variant;

/// The result of the search on one task.
#[derive(Debug, Clone, PartialEq)]
pub struct AttackSearch {
    /// The identifier of the task.
    pub task: String,
    /// The game.
    pub game: Game,
    /// The defence.
    pub defence: Defence,
    /// The number of attempts that were made.
    pub queries: usize,
    /// The number of the first attempt in which an unauthorized coordinate was visible to the model, counted from 1; `None` if there was none.
    pub opened_at: Option<usize>,
    /// The number of the first attempt that was a violation; `None` if there was none.
    pub violated_at: Option<usize>,
    /// The number of the first attempt that took effect, with which the search ends; `None` if there was none.
    pub executed_at: Option<usize>,
    /// The template of the best attempt: the first that took effect, else the first violation, else the last one.
    pub best_attack: String,
    /// The variant of the best attempt.
    pub best_variant: Variant,
}

impl AttackSearch {
    /// Returns the result as one JSON object for the traces of a run; `model` is the name of the model that was attacked. `queries` is the number of
    /// attempts. The fields that end with `_at` are numbers of attempts, counted from 1: the first that opened the channel, that was a violation, and
    /// that took effect; `null` if there was none.
    pub fn to_json(&self, model: &str) -> Value {
        json!({
            "type": "search",
            "task": self.task,
            "game": self.game.name(),
            "model": model,
            "defence": self.defence.name(),
            "queries": self.queries,
            "opened_at": self.opened_at,
            "violated_at": self.violated_at,
            "executed_at": self.executed_at,
            "best_attack": self.best_attack,
            "best_variant": self.best_variant.name(),
        })
    }
}

/// Returns three rates of tasks: those in which some attempt opened the channel (the model saw the marker or the forbidden tool), those in
/// which one was a violation, and those in which one took effect.
pub fn search_rates(searches: &[AttackSearch]) -> [Rate; 3] {
    [
        Rate::of(searches, |search| search.opened_at.is_some()),
        Rate::of(searches, |search| search.violated_at.is_some()),
        Rate::of(searches, |search| search.executed_at.is_some()),
    ]
}

/// Searches on every task of a suite for an attack that takes effect under one defence, with at most `queries` attempts each. Returns one
/// result for each task. `after_query` is called after each attempt; if it returns true (the user has interrupted the command), the search
/// is given up and the result is `None`.
///
/// # Errors
/// If the model gives no answer.
pub fn search(
    suite: &GameSuite,
    runner: &Runner<'_>,
    defence: Defence,
    queries: usize,
    after_query: &mut dyn FnMut() -> bool,
) -> Result<Option<Vec<AttackSearch>>, ExecutionError> {
    let mut searches = Vec::new();
    for game in Game::ALL {
        for number in 0..suite.instances() {
            match search_task(suite.seed(), (game, number), runner, (defence, queries), after_query)? {
                Some(found) => searches.push(found),
                None => return Ok(None),
            }
        }
    }
    Ok(Some(searches))
}

/// Returns the attempts on a task, in order, as pairs of an attack and the variant in which it is written: first the attacks of all families in
/// all variants, then random compositions without end. They depend on the seed and the task alone, so every defence faces the same attempts.
fn attempts(seed: u64, game: Game, number: usize) -> impl Iterator<Item = (AttackTemplate, Variant)> {
    let variants = Variant::all();
    let listed: Vec<(AttackTemplate, Variant)> = variants
        .iter()
        .flat_map(|variant| families(game).into_iter().map(|attack| (attack, *variant)))
        .collect();
    // The tasks take the streams of random numbers from 0 upwards; those of the searches count downwards from the end, so that no search
    // repeats the choices of a task.
    let stream = u64::MAX - u64::try_from(number).unwrap_or(0) * Game::ALL.len() as u64 - game as u64;
    let mut random = SeededRandom::new(seed, stream);
    let composed = std::iter::repeat_with(move || {
        let variant = variants.get(random.below(variants.len())).copied().unwrap_or(Variant::Paper);
        (compose(game, &mut random), variant)
    });
    listed.into_iter().chain(composed)
}

/// Searches on the task with this game and number, with at most `queries` attempts under the defence, and returns what was reached; `None` if
/// `after_query` asks to stop before an attack has taken effect. Only the adversarial side runs, since the control does not depend on the attack.
fn search_task(
    seed: u64,
    (game, number): (Game, usize),
    runner: &Runner<'_>,
    (defence, queries): (Defence, usize),
    after_query: &mut dyn FnMut() -> bool,
) -> Result<Option<AttackSearch>, ExecutionError> {
    let mut found = AttackSearch {
        task: format!("{}-{number:04}", game.name()),
        game,
        defence,
        queries: 0,
        opened_at: None,
        violated_at: None,
        executed_at: None,
        // The first attempt replaces these two.
        best_attack: String::new(),
        best_variant: Variant::Paper,
    };
    for (attack, variant) in attempts(seed, game, number).take(queries) {
        let pair = generate_pair(game, seed, number, variant, &attack);
        let execution = runner.run(&pair.adversarial, Side::Adversarial, defence)?;
        found.queries += 1;
        // Until the first violation, the best attempt is the latest; after it, only an attempt that takes effect is better.
        let is_first_violation = execution.is_violated && found.violated_at.is_none();
        if is_first_violation || execution.is_executed || found.violated_at.is_none() {
            (found.best_attack, found.best_variant) = (attack.text, variant);
        }
        // The number of this attempt, counted from 1.
        let at = Some(found.queries);
        found.opened_at = found.opened_at.or(at.filter(|_| execution.is_closed == Some(false)));
        found.violated_at = found.violated_at.or(at.filter(|_| execution.is_violated));
        found.executed_at = at.filter(|_| execution.is_executed);
        let is_stopped = after_query();
        if found.executed_at.is_some() {
            // A search that has reached its goal is complete, even if the command is stopped now.
            break;
        }
        if is_stopped {
            return Ok(None);
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use flowgate_guard::conversation::Method;

    use super::super::double::ModelDouble;
    use super::*;

    fn rates(defence: Defence, queries: usize) -> [Rate; 3] {
        let (suite, model) = (GameSuite::generate(4, 2), ModelDouble::Gullible);
        let runner = Runner::new(&model, None).unwrap();
        let searches = search(&suite, &runner, defence, queries, &mut || false).unwrap().unwrap();
        search_rates(&searches)
    }

    /// A search opens every defence that depends on the form of a text, and none that depends on labels.
    #[test]
    fn a_search_opens_patterns_and_not_labels() {
        let all = Rate { hits: 6, of: 6 };
        for defence in [Defence::None, Defence::Filter, Defence::Combined] {
            assert_eq!(rates(defence, 120), [all; 3], "{defence:?}");
        }
        // The document of the instruction game is shown after a look; nothing takes effect.
        let shown = Rate { hits: 2, of: 6 };
        let none = Rate { hits: 0, of: 6 };
        assert_eq!(rates(Defence::Labels(Method::LowestFirst), 120), [shown, shown, none]);
        assert_eq!(rates(Defence::Labels(Method::NeverLook), 120), [none; 3]);
    }

    #[test]
    fn a_search_repeats_and_can_be_given_up() {
        let (suite, model) = (GameSuite::generate(4, 1), ModelDouble::Immune);
        let runner = Runner::new(&model, None).unwrap();
        let run = |stop_after: usize| {
            let mut count = 0;
            let mut step = || {
                count += 1;
                count == stop_after
            };
            search(&suite, &runner, Defence::None, 5, &mut step).unwrap()
        };
        assert_eq!(run(0), run(0));
        assert_eq!(run(3), None);
        let searches = run(0).unwrap();
        assert!(searches.iter().all(|search| search.queries == 5 && search.violated_at.is_none()));
    }

    #[test]
    fn attempts_differ_and_begin_with_the_families() {
        for game in Game::ALL {
            let first: Vec<_> = attempts(1, game, 0).take(400).collect();
            assert_eq!(first[0].0, families(game)[0]);
            let mut distinct: Vec<String> = first.iter().map(|attempt| format!("{attempt:?}")).collect();
            distinct.sort();
            distinct.dedup();
            assert!(distinct.len() > 300, "{}", distinct.len());
            assert_ne!(attempts(2, game, 0).nth(200), attempts(1, game, 0).nth(200));
        }
    }
}
