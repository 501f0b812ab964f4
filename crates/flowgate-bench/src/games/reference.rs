//! Holds the figures that AgentSecBench reports for its own tasks and two models, Qwen3-0.6B and Qwen3-1.7B, and
//! averages the figures of a run in the same way. [`report`](super::report) prints both side by side. The published
//! figures are only an orientation, since the tasks of a run are not those of the paper, and the model is often
//! another one.
//!
//! The figures are those of AgentSecBench's Tables 4 to 6. They are macro averages over games and models with equal
//! weights. The two risks of Table 6 (the risks given an open and a closed channel) are averages over the games that
//! have such a channel. The published numbers show this: with the filter, 2 of 22 open channels had a violation, which
//! would be 0.091; AgentSecBench has 0.062, the mean of the two games with open channels, 0 of 6 and 2 of 16 (0.125).
//! [`CompositeFigures`] averages a run in this way, unlike [`Figures`], whose rates count all executions together.

use super::defence::Defence;
use super::figures::{DefenceFigures, Figures};
use super::task::Game;

/// The names of AgentSecBench's models, in lower case.
const PAPER_MODELS: [&str; 2] = ["qwen3-0.6b", "qwen3-1.7b"];

/// The figures of one defence in AgentSecBench's form.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct CompositeFigures {
    /// Attack success.
    pub attack_success: Option<f64>,
    /// Paired advantage.
    pub advantage: Option<f64>,
    /// Canaries disclosed in the retrieval game.
    pub leakage: Option<f64>,
    /// Closed channels.
    pub closure: Option<f64>,
    /// Benign utility.
    pub benign_utility: Option<f64>,
    /// For each game, in the order of [`Game::ALL`], the rate of the protected event and the share of closed channels.
    /// The event is the leakage in the retrieval game, and the advantage in the others.
    pub games: [(Option<f64>, Option<f64>); 3],
    /// The risk given an open channel.
    pub open_risk: Option<f64>,
    /// The risk given a closed channel.
    pub closed_risk: Option<f64>,
}

/// Returns the figures that AgentSecBench reports for one defence; `None` if it does not have the defence.
pub fn paper_figures(defence: Defence) -> Option<CompositeFigures> {
    // Attack success, advantage, leakage, closure and utility (Table 4); the events and closures of the games (Table 5); the two risks (Table 6).
    let (summary, games, (open_risk, closed_risk)) = match defence {
        Defence::Combined => {
            ([0.0, 0.0, 0.0, 1.0, 0.335], [(0.0, 1.0), (0.0, 1.0), (0.0, 1.0)], (None, Some(0.0)))
        }
        Defence::Filter => (
            [0.042, 0.042, 0.125, 0.542, 0.361],
            [(0.0, 0.625), (0.125, 0.0), (0.0, 1.0)],
            (Some(0.062), Some(0.0)),
        ),
        Defence::LeastPrivilege => (
            [0.062, 0.062, 0.188, 0.333, 0.361],
            [(0.0, 0.0), (0.188, 0.0), (0.0, 1.0)],
            (Some(0.094), Some(0.0)),
        ),
        Defence::Provenance => {
            ([0.333, 0.333, 0.0, 0.333, 0.361], [(0.0, 0.0), (0.0, 1.0), (1.0, 0.0)], (Some(0.5), Some(0.0)))
        }
        Defence::None => {
            ([0.375, 0.375, 0.188, 0.0, 0.361], [(0.0, 0.0), (0.188, 0.0), (0.938, 0.0)], (Some(0.375), None))
        }
        Defence::Delimiter => (
            [0.438, 0.438, 0.562, 0.0, 0.335],
            [(0.062, 0.0), (0.562, 0.0), (0.688, 0.0)],
            (Some(0.438), None),
        ),
        Defence::Attention(_) | Defence::Labels(_) => return None,
    };
    let [attack_success, advantage, leakage, closure, benign_utility] = summary.map(Some);
    Some(CompositeFigures {
        attack_success,
        advantage,
        leakage,
        closure,
        benign_utility,
        games: games.map(|(event, closure)| (Some(event), Some(closure))),
        open_risk,
        closed_risk,
    })
}

/// Returns the figures of one defence over the runs of several models, averaged as in AgentSecBench: each model and
/// each game has the same weight. `runs` has the figures of this defence for each model. `None` without runs.
pub fn composite(runs: &[&DefenceFigures]) -> Option<CompositeFigures> {
    runs.first()?;
    // The mean over the models of `figure`. It is `None` if a model does not have the figure.
    let over_models =
        |figure: &dyn Fn(&DefenceFigures) -> Option<f64>| mean(runs.iter().map(|run| figure(run)));
    let macro_average = |figure: fn(&Figures) -> Option<f64>| over_models(&|run| run.macro_average(figure));
    // The mean of a risk over the games of all models in which the risk exists: those with an execution whose channel was open (or closed).
    let stratum = |risk: fn(&Figures) -> Option<f64>| {
        mean(runs.iter().flat_map(|run| run.games.iter().map(risk)).filter(Option::is_some))
    };
    // The event and the closure of the game at this position of `Game::ALL`, each averaged over the models.
    let game = |index: usize, game: Game| {
        let event = |figures: &Figures| match game {
            Game::Retrieval => figures.leakage.value(),
            Game::Instruction | Game::Capability => figures.advantage,
        };
        (
            over_models(&|run| run.games.get(index).and_then(event)),
            over_models(&|run| run.games.get(index)?.closure.value()),
        )
    };
    let [first, second, third] = Game::ALL;
    Some(CompositeFigures {
        attack_success: macro_average(|figures| figures.attack_success.value()),
        advantage: macro_average(|figures| figures.advantage),
        leakage: over_models(&|run| run.overall.leakage.value()),
        closure: macro_average(|figures| figures.closure.value()),
        benign_utility: macro_average(|figures| figures.benign_utility),
        games: [game(0, first), game(1, second), game(2, third)],
        open_risk: stratum(|figures| figures.open_risk.value()),
        closed_risk: stratum(|figures| figures.closed_risk.value()),
    })
}

/// Returns the mean of values; `None` if one is missing, or there are none.
fn mean(values: impl Iterator<Item = Option<f64>>) -> Option<f64> {
    let values: Option<Vec<f64>> = values.collect();
    let values = values.filter(|values| !values.is_empty())?;
    Some(values.iter().sum::<f64>() / values.len() as f64)
}

/// Returns whether `models` are the two models of AgentSecBench, in any order. Each must contain the name of a model of
/// AgentSecBench; it can be the name of a folder, or of a model on a server.
pub fn are_paper_models(models: &[&str]) -> bool {
    let is_named = |name: &&str| models.iter().any(|model| model.to_lowercase().contains(name));
    models.len() == PAPER_MODELS.len() && PAPER_MODELS.iter().all(is_named)
}

#[cfg(test)]
mod tests {
    use super::super::double::ModelDouble;
    use super::super::runner::Runner;
    use super::super::suite::GameSuite;
    use super::*;

    fn is_near(found: Option<f64>, expected: f64) -> bool {
        found.is_some_and(|found| (found - expected).abs() < 0.001)
    }

    /// The tables of the paper agree with each other: Table 4 has the means of Table 5, and Table 6 those of the games
    /// with an open channel.
    #[test]
    fn the_tables_of_the_paper_agree() {
        for defence in Defence::of_the_paper() {
            let figures = paper_figures(defence).unwrap();
            let events = figures.games.map(|(event, _)| event.unwrap());
            let closures = figures.games.map(|(_, closure)| closure.unwrap());
            let third = |values: [f64; 3]| values.iter().sum::<f64>() / 3.0;
            assert!(is_near(figures.advantage, third(events)), "{defence:?}");
            assert!(is_near(figures.closure, third(closures)), "{defence:?}");
            assert_eq!(figures.leakage, figures.games[1].0, "{defence:?}");
            // Where a channel is open at all, its closed ones carry no risk, so the risk is that of the open ones.
            let open: Vec<f64> = closures
                .iter()
                .zip(events)
                .filter(|(closure, _)| **closure < 1.0)
                .map(|(_, event)| event)
                .collect();
            match figures.open_risk {
                None => assert!(open.is_empty(), "{defence:?}"),
                // The filter closes a part of one game, whose risk is 0 in any case.
                Some(risk) => {
                    assert!(is_near(Some(risk), open.iter().sum::<f64>() / open.len() as f64), "{defence:?}")
                }
            }
        }
        assert_eq!(paper_figures(Defence::by_attention()[0]), None);
    }

    /// Of the filter, whose channels are open in three of eight tasks of the instruction game and in all of the retrieval game. In the run, the model is
    /// immune in the instruction game and gullible in the others.
    #[test]
    fn runs_are_averaged_like_the_paper() {
        let suite = GameSuite::generate(1, 8);
        let executions = |double: ModelDouble| {
            let runner = Runner::new(&double, None).unwrap();
            suite.run_defence(&runner, Defence::Filter, &mut || false).unwrap().unwrap()
        };
        let immune = executions(ModelDouble::Immune);
        let mut mixed = executions(ModelDouble::Gullible);
        mixed.retain(|execution| execution.game != Game::Instruction);
        mixed.extend(immune.iter().filter(|execution| execution.game == Game::Instruction).cloned());
        let figures = |executions| DefenceFigures::of(Defence::Filter, executions, Vec::new());
        let (mixed, immune) = (figures(&mixed), figures(&immune));
        let one = composite(&[&mixed]).unwrap();
        // Five of the eight comments pass the filter. The pooled risk is 5 in 11.
        assert!(is_near(mixed.overall.open_risk.value(), 5.0 / 11.0));
        assert!(is_near(one.closure, 0.542) && is_near(one.open_risk, 5.0 / 16.0), "{one:?}");
        assert_eq!(one.games.map(|(event, _)| event), [Some(0.0), Some(0.625), Some(0.0)]);
        let both = composite(&[&mixed, &immune]).unwrap();
        assert!(is_near(both.leakage, 5.0 / 16.0) && is_near(both.open_risk, 5.0 / 32.0), "{both:?}");
        assert_eq!(both.closure, one.closure);
        assert_eq!(composite(&[]), None);
        assert!(are_paper_models(&["Qwen3-1.7B", "models/Qwen3-0.6B"]));
        assert!(!are_paper_models(&["Qwen3-0.6B"]) && !are_paper_models(&["Qwen3-0.6B", "Qwen3-0.6B"]));
    }
}
