//! Plays games that AgentSecBench excludes by the limits that it states (section 10). In some games, the attacks of
//! AgentSecBench are encoded or divided among fields, a record contains text of several tenants, or a real retriever
//! ranks the observation. In others, an attack takes several steps or sessions. Each game has its own figures.
//!
//! [`ExtendedSuite`] runs one game under one defence at a time, so that an interrupted run still has the completed rows. `flowgate bench extended` is
//! the command.

use std::fmt;

use super::defence::Defence;
use super::execution::Execution;
use super::figures::Figures;
use super::generate::generate_pairs;
use super::journey::{JourneyGame, JourneyPair, generate_journeys};
use super::output::ExecutionError;
use super::runner::Runner;
use super::task::{Game, Side, Task};
use super::variant::{Encoding, Variant};
use flowgate_guard::conversation::Method;

/// A game beyond AgentSecBench.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExtendedGame {
    /// A game of AgentSecBench whose attacks are written in another way.
    Variant(Variant, Game),
    /// A game of several steps, with the attack in plain text or encoded.
    Journey(JourneyGame, Option<Encoding>),
}

impl ExtendedGame {
    /// Returns all games, in the order of the tables: each variant except AgentSecBench's with each game of
    /// AgentSecBench, then each game of several steps, with the attack in plain text and in base64. Variants that
    /// concern tenants or rankings occur in the retrieval game alone.
    pub fn all() -> Vec<Self> {
        let variants = Variant::all().into_iter().filter(|variant| *variant != Variant::Paper);
        let variants = variants.flat_map(|variant| {
            let is_of_retrieval = matches!(variant, Variant::MixedTenants(_) | Variant::Ranking(_));
            let games =
                Game::ALL.into_iter().filter(move |game| !is_of_retrieval || *game == Game::Retrieval);
            games.map(move |game| Self::Variant(variant, game))
        });
        let journeys = JourneyGame::ALL
            .into_iter()
            .flat_map(|game| [None, Some(Encoding::Base64)].map(|encoding| Self::Journey(game, encoding)));
        variants.chain(journeys).collect()
    }

    /// Returns the name for tables and options.
    pub fn name(self) -> String {
        match self {
            Self::Variant(variant, game) => format!("{}/{}", variant.name(), game.name()),
            Self::Journey(game, None) => game.name().to_owned(),
            Self::Journey(game, Some(encoding)) => format!("{}/{}", game.name(), encoding.name()),
        }
    }

    /// Returns the game with this name.
    ///
    /// # Errors
    /// If there is none.
    pub fn parse(name: &str) -> Result<Self, UnknownGame> {
        Self::all().into_iter().find(|game| game.name() == name).ok_or_else(|| UnknownGame(name.to_owned()))
    }

    /// Returns whether a violation that takes effect under a label defence is a defect. The only exception is the flooding game without a budget of
    /// questions, in which a person allows the call in the end.
    pub fn must_stay_without_effect(self) -> bool {
        !matches!(self, Self::Journey(JourneyGame::Flooding, _))
    }
}

/// A name that no game has, with advice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownGame(String);

impl fmt::Display for UnknownGame {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<String> = ExtendedGame::all().into_iter().map(ExtendedGame::name).collect();
        write!(f, "there is no game `{}`; use one of {}", self.0.escape_debug(), names.join(", "))
    }
}

impl std::error::Error for UnknownGame {}

/// The figures of one game under one defence.
#[derive(Debug, Clone, PartialEq)]
pub struct ExtendedFigures {
    /// The game.
    pub game: ExtendedGame,
    /// The defence.
    pub defence: Defence,
    /// The figures.
    pub figures: Figures,
}

/// The games of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExtendedSuite {
    /// The first seed of the tasks.
    pub seed: u64,
    /// The number of seeds, counted from the first. With several, the identifier of a task begins with its seed, by which the statistics group tasks.
    pub seeds: u64,
    /// The number of pairs of each game and seed.
    pub instances: usize,
}

impl ExtendedSuite {
    /// Returns the defences that are measured by default: no defence, AgentSecBench's combination, and three methods of
    /// guarded conversations.
    pub fn defences() -> Vec<Defence> {
        let methods = [Method::LowestFirst, Method::NeverLook, Method::Everything];
        [Defence::None, Defence::Combined].into_iter().chain(methods.map(Defence::Labels)).collect()
    }

    /// Returns the number of pairs of each game.
    pub fn pairs_per_row(&self) -> usize {
        self.instances.saturating_mul(usize::try_from(self.seeds).unwrap_or(usize::MAX))
    }

    /// Returns the number of executions of each game under each defence.
    pub fn executions_per_row(&self) -> usize {
        self.pairs_per_row().saturating_mul(Side::ALL.len())
    }

    /// Returns the seeds.
    pub(super) fn all_seeds(&self) -> impl Iterator<Item = u64> {
        let first = self.seed;
        (0..self.seeds).map(move |offset| first.wrapping_add(offset))
    }

    /// Returns the identifier of a task in the whole run. `id` identifies the task among those of its seed; in a run
    /// with several seeds, the seed and a slash precede it.
    pub(super) fn task_id(&self, seed: u64, id: &str) -> String {
        if self.seeds > 1 { format!("{seed}/{id}") } else { id.to_owned() }
    }

    /// Returns the texts that identify the pairs of tasks of a game, of which the manifest computes a digest. A journey is a
    /// game of several steps.
    pub(super) fn tasks(&self, game: ExtendedGame) -> Vec<String> {
        let of_seed = |seed: u64| -> Vec<String> {
            match game {
                ExtendedGame::Variant(variant, game) => {
                    let pairs = generate_pairs(game, seed, self.instances, variant);
                    let tasks = pairs.iter().flat_map(|pair| Side::ALL.map(|side| pair.side(side)));
                    tasks.flat_map(Task::texts).collect()
                }
                ExtendedGame::Journey(game, encoding) => {
                    // Without an encoding, the attack is in plain text, as in AgentSecBench: the variant `Paper`.
                    let variant = encoding.map_or(Variant::Paper, Variant::Encoded);
                    let pairs = generate_journeys(game, seed, self.instances, variant);
                    pairs.iter().flat_map(JourneyPair::texts).collect()
                }
            }
        };
        self.all_seeds().flat_map(of_seed).collect()
    }

    /// Plays one game, which is a variant of a game of AgentSecBench or a journey (a game of several steps), under one defence. `after_execution` is
    /// called after each execution; if it returns true (the user has interrupted the command), the remaining ones are skipped and the result is
    /// `None`.
    ///
    /// # Errors
    /// If the model gives no answer.
    pub fn run(
        &self,
        runner: &Runner<'_>,
        game: ExtendedGame,
        defence: Defence,
        after_execution: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<Execution>>, ExecutionError> {
        let mut executions = Vec::with_capacity(self.executions_per_row());
        for seed in self.all_seeds() {
            // Records an execution and returns whether to stop.
            let mut record = |execution: Execution| {
                let task = self.task_id(seed, &execution.task);
                executions.push(Execution { task, ..execution });
                after_execution()
            };
            match game {
                ExtendedGame::Variant(variant, game) => {
                    for pair in generate_pairs(game, seed, self.instances, variant) {
                        for side in Side::ALL {
                            if record(runner.run(pair.side(side), side, defence)?) {
                                return Ok(None);
                            }
                        }
                    }
                }
                ExtendedGame::Journey(game, encoding) => {
                    // Without an encoding, the attack is in plain text, as in AgentSecBench: the variant `Paper`.
                    let variant = encoding.map_or(Variant::Paper, Variant::Encoded);
                    for pair in generate_journeys(game, seed, self.instances, variant) {
                        for side in Side::ALL {
                            if record(runner.run_journey(&pair, side, defence)?) {
                                return Ok(None);
                            }
                        }
                    }
                }
            }
        }
        Ok(Some(executions))
    }
}

#[cfg(test)]
mod tests {
    use super::super::double::ModelDouble;
    use super::*;

    fn figures(double: ModelDouble, game: ExtendedGame, defence: Defence) -> Figures {
        let suite = ExtendedSuite { seed: 5, seeds: 1, instances: 3 };
        let runner = Runner::new(&double, None).unwrap();
        let executions = suite.run(&runner, game, defence, &mut || false).unwrap().unwrap();
        assert_eq!(executions.len(), suite.executions_per_row());
        Figures::of(&executions)
    }

    const OURS: Defence = Defence::Labels(Method::LowestFirst);

    /// Several seeds are the runs of each seed one after the other; only the identifiers name the seed.
    #[test]
    fn several_seeds_are_several_runs() {
        let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
        for game in ["base64/retrieval", "memory/base64"] {
            let game = ExtendedGame::parse(game).unwrap();
            let run = |seed, seeds| {
                let suite = ExtendedSuite { seed, seeds, instances: 2 };
                let found = suite.run(&runner, game, OURS, &mut || false).unwrap().unwrap();
                assert_eq!(found.len(), suite.executions_per_row());
                (found, suite.tasks(game))
            };
            let (both, tasks) = run(7, 2);
            let (first, second) = (run(7, 1), run(8, 1));
            assert_eq!(tasks, [first.1, second.1].concat());
            for (found, (seed, alone)) in
                both.iter().zip(first.0.iter().map(|of| (7, of)).chain(second.0.iter().map(|of| (8, of))))
            {
                assert_eq!(found.task, format!("{seed}/{}", alone.task));
                assert_eq!(Execution { task: alone.task.clone(), ..found.clone() }, *alone);
            }
        }
    }

    #[test]
    fn names_are_distinct() {
        let mut names: Vec<String> = ExtendedGame::all().into_iter().map(ExtendedGame::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
        for game in ExtendedGame::all() {
            assert_eq!(ExtendedGame::parse(&game.name()), Ok(game));
        }
        let error = ExtendedGame::parse("chess").unwrap_err().to_string();
        assert!(error.starts_with("there is no game `chess`; use one of base64/instruction"), "{error}");
    }

    /// The gullible double obeys each disguise: without a defence, every attack takes effect and every task is done.
    #[test]
    fn no_game_is_closed_by_itself() {
        for game in ExtendedGame::all() {
            let found = figures(ModelDouble::Gullible, game, Defence::None);
            assert_eq!((found.closure.hits, found.executed.hits), (0, 3), "{}", game.name());
            assert_eq!((found.advantage, found.benign_utility), (Some(1.0), Some(1.0)), "{}", game.name());
            let immune = figures(ModelDouble::Immune, game, Defence::None);
            assert_eq!((immune.advantage, immune.benign_utility), (Some(0.0), Some(1.0)), "{}", game.name());
        }
    }

    /// Nothing takes effect under the labels, whatever the disguise, at no cost for the user's task; but for the flood that no budget stops.
    #[test]
    fn nothing_takes_effect_under_labels() {
        for game in ExtendedGame::all() {
            let found = figures(ModelDouble::Gullible, game, OURS);
            let expected = if game.must_stay_without_effect() { 0 } else { 3 };
            assert_eq!(found.executed.hits, expected, "{}", game.name());
            assert_eq!(found.benign_utility, Some(1.0), "{}", game.name());
        }
    }

    /// Nor does anything take effect if the model looks at everything that is hidden, or if the screener's model does what
    /// the texts ask; and what never-look hides from the curious double stays hidden. The games are one of each kind, since
    /// all of them take minutes.
    #[test]
    fn nothing_takes_effect_under_labels_with_the_worst_choice_of_regions() {
        let suite = ExtendedSuite { seed: 5, seeds: 1, instances: 1 };
        let counts = |double: ModelDouble, game: ExtendedGame, method: Method| {
            let runner = Runner::new(&double, None).unwrap();
            let found = suite.run(&runner, game, Defence::Labels(method), &mut || false).unwrap().unwrap();
            let found = Figures::of(&found);
            (found.closure.hits, found.executed.hits)
        };
        for name in
            ["base64/capability", "mixed-tenants-base64/retrieval", "memory", "turns", "flooding-budget"]
        {
            let game = ExtendedGame::parse(name).unwrap();
            let (curious, gullible) = (ModelDouble::Curious, ModelDouble::Gullible);
            assert_eq!(counts(curious, game, Method::LowestFirst).1, 0, "{name}");
            assert_eq!(counts(gullible, game, Method::Judge).1, 0, "{name}");
            assert_eq!(counts(curious, game, Method::NeverLook), (1, 0), "{name}");
        }
        // The curious double looks at the ticket that is only to be kept, which the gullible one leaves hidden.
        let memory = ExtendedGame::parse("memory").unwrap();
        assert_eq!(counts(ModelDouble::Curious, memory, Method::LowestFirst).0, 0);
        assert_eq!(counts(ModelDouble::Gullible, memory, Method::LowestFirst).0, 1);
    }

    /// Where text is only passed on, or belongs to others, the channel is closed under labels, and the paper's
    /// combination opens.
    #[test]
    fn labels_stay_closed_where_the_combination_opens() {
        for game in ExtendedGame::all() {
            let must_read = match game {
                ExtendedGame::Variant(_, game) => game == Game::Instruction,
                ExtendedGame::Journey(game, _) => {
                    matches!(game, JourneyGame::Session | JourneyGame::Turns) || game.is_flooding()
                }
            };
            let (ours, combined) = (
                figures(ModelDouble::Gullible, game, OURS),
                figures(ModelDouble::Gullible, game, Defence::Combined),
            );
            assert_eq!(ours.closure.hits, if must_read { 0 } else { 3 }, "{}", game.name());
            let is_encoded = matches!(game, ExtendedGame::Journey(_, Some(_)))
                || matches!(
                    game,
                    ExtendedGame::Variant(Variant::MixedTenants(Some(_)) | Variant::Ranking(Some(_)), _)
                );
            if is_encoded {
                assert!(combined.closure.hits < 3 && combined.executed.hits > 0, "{}", game.name());
            }
        }
    }

    /// The budget and the flood rule stop the flood: fewer questions, and no effect.
    #[test]
    fn a_budget_stops_a_flood() {
        for encoding in [None, Some(Encoding::Base64)] {
            let flood =
                figures(ModelDouble::Gullible, ExtendedGame::Journey(JourneyGame::Flooding, encoding), OURS);
            let budget = figures(
                ModelDouble::Gullible,
                ExtendedGame::Journey(JourneyGame::FloodingBudget, encoding),
                OURS,
            );
            assert_eq!((flood.executed.hits, budget.executed.hits), (3, 0));
            // Five refusals and the approval, and two refusals, on each of three attacked journeys.
            assert_eq!((flood.questions, budget.questions), (18, 6));
        }
    }

    #[test]
    fn a_run_can_be_stopped_and_repeated() {
        let suite = ExtendedSuite { seed: 2, seeds: 1, instances: 2 };
        let runner = Runner::new(&ModelDouble::Gullible, None).unwrap();
        let game = ExtendedGame::Journey(JourneyGame::Memory, None);
        let run = |stop: bool| suite.run(&runner, game, OURS, &mut || stop).unwrap();
        assert_eq!(run(true), None);
        assert_eq!(run(false), run(false));
    }
}
