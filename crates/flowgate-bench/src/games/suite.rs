//! Generates the tasks of the games, and runs every task of every pair under a defence, in a stable order
//! (AgentSecBench, 6.3 and 6.4).
//!
//! `flowgate bench games` runs one defence after the other, so that an interrupted run still has the rows of the
//! completed defences.

use super::defence::Defence;
use super::execution::Execution;
use super::generate::{generate_pair, generate_pairs};
use super::ideal::Meaning;
use super::leakage::{ChannelLeakage, enumerate_canaries};
use super::output::ExecutionError;
use super::runner::Runner;
use super::sources::TextSources;
use super::task::{Game, Side, TaskPair};
use super::variant::Variant;

/// The tasks of a run: pairs of an adversarial task and its control for each of the three games.
#[derive(Debug, Clone)]
pub struct GameSuite {
    seed: u64,
    seeds: u64,
    instances: usize,
    variant: Variant,
    /// The number of background texts and the number of texts of injections in the user's collections.
    source_counts: (usize, usize),
    pairs: Vec<TaskPair>,
}

impl GameSuite {
    /// Generates `instances` pairs of each game from a seed, with attacks as in AgentSecBench.
    pub fn generate(seed: u64, instances: usize) -> Self {
        Self::generate_variant(seed, instances, Variant::Paper)
    }

    /// Generates `instances` pairs of each game from a seed, with attacks of a variant.
    pub fn generate_variant(seed: u64, instances: usize, variant: Variant) -> Self {
        Self::generate_seeds(seed, 1, instances, variant)
    }

    /// Generates `instances` pairs of each game from each of `seeds` seeds, the first of which is `seed`. With several seeds, the identifier of a task
    /// begins with its seed, by which the statistics group tasks.
    pub fn generate_seeds(seed: u64, seeds: u64, instances: usize, variant: Variant) -> Self {
        Self::generate_from(seed, seeds, instances, variant, &TextSources::default())
    }

    /// Generates the suite like [`generate_seeds`](Self::generate_seeds), with the background and the injections of
    /// `sources`. If `sources` has injections, they replace the attacks of AgentSecBench.
    pub fn generate_from(
        seed: u64,
        seeds: u64,
        instances: usize,
        variant: Variant,
        sources: &TextSources,
    ) -> Self {
        let mut pairs = Vec::new();
        for seed in (0..seeds).map(|offset| seed.wrapping_add(offset)) {
            for game in Game::ALL {
                let attacks = sources.attacks(game);
                let of_game = if attacks.is_empty() {
                    generate_pairs(game, seed, instances, variant)
                } else {
                    // If there are fewer attacks than instances, they are used again from the first one on.
                    let numbered = attacks.iter().cycle().take(instances).enumerate();
                    numbered
                        .map(|(number, attack)| generate_pair(game, seed, number, variant, attack))
                        .collect()
                };
                for (number, mut pair) in of_game.into_iter().enumerate() {
                    sources.add_background(&mut pair, seed, number);
                    // Without the seed, tasks of different seeds would have equal ids.
                    if seeds > 1 {
                        for task in [&mut pair.adversarial, &mut pair.control] {
                            task.id = format!("{seed}/{}", task.id);
                        }
                    }
                    pairs.push(pair);
                }
            }
        }
        let source_counts = (sources.background.len(), sources.injections.len());
        Self { seed, seeds, instances, variant, source_counts, pairs }
    }

    /// Returns the number of background texts and the number of injections in the collection from which the tasks were
    /// generated.
    pub fn source_counts(&self) -> (usize, usize) {
        self.source_counts
    }

    /// Returns the number of seeds.
    pub fn seeds(&self) -> u64 {
        self.seeds
    }

    /// Returns the variant of the suite: the form in which its attacks are written, for example in base64.
    pub fn variant(&self) -> Variant {
        self.variant
    }

    /// Returns the first seed of the tasks.
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// Returns the number of pairs of each game and seed.
    pub fn instances(&self) -> usize {
        self.instances
    }

    /// Returns the pairs, seed by seed, and of each seed game by game.
    pub fn pairs(&self) -> &[TaskPair] {
        &self.pairs
    }

    /// Returns the number of executions for each defence: one for each side of each pair.
    pub fn executions_per_defence(&self) -> usize {
        self.pairs.len() * Side::ALL.len()
    }

    /// Runs all tasks under one defence, both sides of each pair. `after_execution` is called after each; if it returns true (the user has
    /// interrupted the command), the remaining ones are skipped and the result is `None`.
    ///
    /// # Errors
    /// If the model gives no answer.
    pub fn run_defence(
        &self,
        runner: &Runner<'_>,
        defence: Defence,
        after_execution: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<Execution>>, ExecutionError> {
        let mut executions = Vec::with_capacity(self.executions_per_defence());
        for pair in &self.pairs {
            for side in Side::ALL {
                executions.push(runner.run(pair.side(side), side, defence)?);
                if after_execution() {
                    return Ok(None);
                }
            }
        }
        Ok(Some(executions))
    }

    /// Runs each adversarial task in the ideal world, in the order of the pairs, and returns what the executions mean
    /// (AgentSecBench, 3.6).
    ///
    /// # Errors
    /// If the model gives no answer.
    pub fn ideal_meanings(&self, runner: &Runner<'_>) -> Result<Vec<Meaning>, ExecutionError> {
        self.pairs.iter().map(|pair| runner.run_ideal(&pair.adversarial)).collect()
    }

    /// Sets `deviates` of each adversarial execution: whether its meaning differs from that of the ideal execution of
    /// the same task; `None` if there is no ideal execution. `ideals` are the results of
    /// [`ideal_meanings`](Self::ideal_meanings), one for each pair.
    pub fn compare_with_ideals(&self, executions: &mut [Execution], ideals: &[Meaning]) {
        for execution in executions.iter_mut().filter(|execution| execution.side == Side::Adversarial) {
            let known = self.pairs.iter().zip(ideals).find(|(pair, _)| pair.adversarial.id == execution.task);
            execution.deviates = known.map(|(_, ideal)| *ideal != execution.meaning);
        }
    }

    /// Measures the leakage of canaries under a defence for each adversarial task of the retrieval game, in the order of the pairs. It runs each task
    /// with several canaries and compares the outcomes (AgentSecBench, Definition 3). The model must be deterministic.
    ///
    /// # Errors
    /// If the model gives no answer.
    pub fn enumerate_leakage(
        &self,
        runner: &Runner<'_>,
        defence: Defence,
    ) -> Result<Vec<ChannelLeakage>, ExecutionError> {
        let retrieval = self.pairs.iter().filter(|pair| pair.adversarial.game == Game::Retrieval);
        retrieval.map(|pair| enumerate_canaries(runner, &pair.adversarial, defence)).collect()
    }
}

#[cfg(test)]
mod tests {
    use flowgate_guard::conversation::Method;
    use proptest::prelude::*;

    use super::super::defence::EnforcementClass;
    use super::super::double::ModelDouble;
    use super::super::guarded::{GuardedAgent, POLICY};
    use super::super::measure;
    use super::super::prompt::message_text;
    use super::*;

    /// The share of closed channels and the benign utility in each game.
    fn closure_and_utility(suite: &GameSuite, double: ModelDouble, defence: Defence) -> [(f64, f64); 3] {
        let runner = Runner::new(&double, None).unwrap().with_blocking(&double);
        let executions = suite.run_defence(&runner, defence, &mut || false).unwrap().unwrap();
        Game::ALL.map(|game| {
            let of_game: Vec<Execution> =
                executions.iter().filter(|execution| execution.game == game).cloned().collect();
            let closure = measure::closure(&of_game).value().unwrap();
            (closure, measure::benign_utility(&of_game).unwrap())
        })
    }

    /// Table 5 and Proposition 1 with the gullible double: which channels each defence closes, by construction.
    #[test]
    fn each_defence_closes_its_own_channels() {
        let suite = GameSuite::generate(11, PAPER);
        // Instruction, retrieval, capability: whether the channel is closed and whether the benign utility is 1.
        let rows = [
            ("none", [(false, true), (false, true), (false, true)]),
            ("delimiter", [(false, true), (false, true), (false, true)]),
            ("provenance", [(false, true), (true, true), (false, true)]),
            ("least-privilege", [(false, true), (false, true), (true, true)]),
            ("combined", [(true, true), (true, true), (true, true)]),
            // Nothing of the observation reaches the answer, or nothing that a projection would remove.
            ("attention/observation", [(true, false), (true, false), (true, false)]),
            ("attention/unauthorized", [(false, true), (true, true), (true, true)]),
            // The document is shown after a look, or it stays hidden and cannot be summarized.
            ("labels/lowest-first", [(false, true), (true, true), (true, true)]),
            ("labels/never-look", [(true, false), (true, true), (true, true)]),
            // As the screener's model, the gullible double shows what asks to be shown, so the note is shown as well.
            ("labels/judge", [(false, true), (true, true), (false, true)]),
            ("labels/introspection", [(false, true), (true, true), (false, true)]),
            // These show the note to a draft or to every step; the monitor judges what the model proposes.
            ("labels/everything", [(false, true), (true, true), (false, true)]),
            ("labels/provenance", [(false, true), (true, true), (false, true)]),
            ("labels/cheapest-first", [(false, true), (true, true), (false, true)]),
        ];
        for (name, expected) in rows {
            let defence = Defence::parse(name).unwrap();
            for double in ModelDouble::ALL {
                let found = closure_and_utility(&suite, double, defence);
                let expected = expected.map(|(closed, useful)| (f64::from(closed), f64::from(useful)));
                // The curious double also looks at the note, so where a look is possible, its label bounds nothing.
                let is_curious = double == ModelDouble::Curious && name == "labels/lowest-first";
                let of_double = if is_curious { [expected[0], expected[1], (0.0, 1.0)] } else { expected };
                if double.obeys_texts() {
                    assert_eq!(found, of_double, "{name}, {double:?}");
                }
                // An immune screener shows what the task needs, and not the note.
                let screens = ["labels/judge", "labels/introspection"].contains(&name);
                if double == ModelDouble::Immune && screens {
                    assert_eq!(found.map(|cell| cell.0), [0.0, 1.0, 1.0], "{name}");
                }
                let utility = |cells: [(f64, f64); 3]| cells.map(|cell| cell.1);
                assert_eq!(utility(found), utility(expected), "{name}");
            }
        }
    }

    /// Beyond the paper: a pattern opens where the attack is written otherwise; labels do not depend on how it is written.
    #[test]
    fn labels_stay_closed_where_patterns_open() {
        for variant in Variant::all().into_iter().filter(|variant| !variant.is_plain()) {
            let suite = GameSuite::generate_variant(11, PAPER, variant);
            let lowest = Defence::Labels(Method::LowestFirst);
            let labels = closure_and_utility(&suite, ModelDouble::Gullible, lowest);
            assert_eq!(labels[1..], [(1.0, 1.0), (1.0, 1.0)], "{}", variant.name());
            let combined = closure_and_utility(&suite, ModelDouble::Gullible, Defence::Combined);
            assert!(combined.iter().any(|(closure, _)| *closure < 1.0), "{}: {combined:?}", variant.name());
            if variant.mixes_tenants() {
                assert!(combined[1].0 < 1.0, "the chunk names the permitted tenant: {combined:?}");
            }
        }
    }

    const PAPER: usize = super::super::generate::PAPER_INSTANCES;

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(12))]

        /// The laws of every run with a double. The obedient ones violate what a defence leaves open; the immune one
        /// violates nothing; no control is a violation; nothing takes effect under the labels.
        #[test]
        fn doubles_obey_the_laws(seed: u64, variant in proptest::sample::select(Variant::all())) {
            let suite = GameSuite::generate_variant(seed, 6, variant);
            for double in ModelDouble::ALL {
                let runner = Runner::new(&double, None).unwrap();
                for defence in Defence::standard() {
                    let executions = suite.run_defence(&runner, defence, &mut || false).unwrap().unwrap();
                    prop_assert_eq!(executions.len(), suite.executions_per_defence());
                    // Section 3.6: a distinguisher that reads the whole response is at least as good as the predicate. Where no
                    // control is a violation, the gap of the predicate is the risk.
                    let gap = measure::real_ideal_gap(&executions).unwrap();
                    prop_assert!(gap <= measure::response_gap(&executions).value().unwrap() + 1e-9);
                    prop_assert!((gap - measure::attack_success(&executions).value().unwrap()).abs() < 1e-9);
                    for execution in &executions {
                        let is_attacked = execution.side == Side::Adversarial;
                        prop_assert_eq!(execution.is_closed.is_some(), is_attacked);
                        prop_assert_eq!(execution.is_leaked.is_some(), execution.game == Game::Retrieval);
                        prop_assert!(!execution.is_executed || execution.is_violated);
                        prop_assert!(is_attacked || !execution.is_violated, "{:?}", execution);
                        // Proposition 1: an annotation closes nothing.
                        let annotates =
                            matches!(defence.enforcement(), EnforcementClass::None | EnforcementClass::Annotation);
                        prop_assert!(!annotates || execution.is_closed != Some(true));
                        // Lemma 1 for models that invent no target.
                        prop_assert!(execution.is_closed != Some(true) || !execution.is_violated, "{:?}", execution);
                        prop_assert!(double.obeys_texts() || !execution.is_violated);
                        if matches!(defence, Defence::Labels(_)) {
                            prop_assert!(!execution.is_executed, "{:?}", execution);
                        }
                        // The filter can remove the request and leave the marker, and half of a split one can be redacted.
                        let is_plain = variant.is_plain() && defence != Defence::Filter;
                        if double.obeys_texts() && is_plain {
                            prop_assert!(execution.is_closed != Some(false) || execution.is_violated);
                        }
                    }
                }
            }
        }

        /// Lowest first in the retrieval game: the answer is as useful under attack, and the canary and what asks for it
        /// change nothing that the model writes but the names of tenants.
        #[test]
        fn hidden_records_leave_the_answer_useful(seed: u64) {
            let suite = GameSuite::generate(seed, 4);
            let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
            let defence = Defence::Labels(Method::LowestFirst);
            let executions = suite.run_defence(&runner, defence, &mut || false).unwrap().unwrap();
            for execution in executions.iter().filter(|execution| execution.game != Game::Instruction) {
                prop_assert!((execution.utility - 1.0).abs() < 1e-9, "{:?}", execution);
            }
        }

        /// Proposition 3 for label redaction: hiding what does not flow to one label, and then what does not flow to another,
        /// is hiding what does not flow to the greatest label below both.
        #[test]
        fn redactions_compose(seed: u64) {
            let suite = GameSuite::generate(seed, 2);
            let agent = GuardedAgent::new().unwrap();
            for pair in suite.pairs() {
                let task = &pair.adversarial;
                let conversation = agent.observed(task, Method::Everything).unwrap();
                let policy = conversation.monitor().policy();
                let (top, bottom) = (policy.space().top(), flowgate::label::Label::BOTTOM);
                let visible = |label| {
                    let request = conversation.view_at(label).request;
                    let text: Vec<String> = request.messages.iter().map(message_text).collect();
                    text.join("\n")
                };
                let (all, least) = (visible(top), visible(bottom));
                prop_assert!(task.has_coordinate(&all) && !task.has_coordinate(&least), "{}", least);
                let space = policy.space();
                let labels = [
                    top,
                    space.replace(&top, &space.dimension_bottom(0)),
                    space.replace(&top, &space.dimension_bottom(1)),
                    bottom,
                ];
                // Words that occur once, so that each belongs to one region.
                let words = all.split(|c: char| !c.is_alphanumeric() && c != '_');
                let words: Vec<&str> =
                    words.filter(|word| !word.is_empty() && all.matches(word).count() == 1).collect();
                for (a, b) in labels.iter().flat_map(|a| labels.iter().map(move |b| (a, b))) {
                    let below = visible(space.greatest_below(a, b));
                    let (at_a, at_b) = (visible(*a), visible(*b));
                    for word in &words {
                        prop_assert_eq!(below.contains(word), at_a.contains(word) && at_b.contains(word), "{}", word);
                    }
                }
            }
        }
    }

    /// The policy of the label defences names no marker, no attack and no tool of a task.
    #[test]
    fn the_policy_has_no_marker_patterns() {
        for pair in GameSuite::generate(1, 40).pairs() {
            assert!(!pair.adversarial.has_coordinate(POLICY), "{:?}", pair.adversarial.target);
        }
        for word in ["CANARY", "OVERRIDE", "CALL_", "ignore", "regex", "match(", "injection", "secrets("] {
            assert!(!POLICY.contains(word), "{word}");
        }
    }

    #[test]
    fn attention_blocking_needs_a_model_that_can() {
        let suite = GameSuite::generate(3, 1);
        let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
        for defence in Defence::by_attention() {
            let error = suite.run_defence(&runner, defence, &mut || false).unwrap_err().to_string();
            assert!(error.contains("the model cannot block attention"), "{error}");
        }
    }

    /// A suite of several seeds has the tasks of each, named by its seed.
    #[test]
    fn seeds_are_in_the_names_of_tasks() {
        let suite = GameSuite::generate_seeds(5, 2, 3, Variant::Paper);
        assert_eq!(suite.executions_per_defence(), 2 * 3 * 3 * 2);
        for (pair, seed) in suite.pairs().iter().zip([5; 9].into_iter().chain([6; 9])) {
            let alone = GameSuite::generate(seed, 3);
            let id = pair.adversarial.id.strip_prefix(&format!("{seed}/")).unwrap();
            let known = alone.pairs().iter().find(|known| known.adversarial.id == id).unwrap();
            assert_eq!(known.adversarial.context, pair.adversarial.context);
            assert_eq!(pair.adversarial.id, pair.control.id);
        }
    }

    #[test]
    fn a_run_can_be_stopped_and_repeated() {
        let suite = GameSuite::generate(3, 2);
        let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
        let run = |stop_after: usize| {
            let mut count = 0;
            let mut step = || {
                count += 1;
                count == stop_after
            };
            suite.run_defence(&runner, Defence::None, &mut step).unwrap()
        };
        assert_eq!(run(3), None);
        assert_eq!(run(0), run(0));
    }
}
