//! Repeats the experiment of AgentSecBench (its sections 6.2 to 6.4) with several models: every task of a suite under each of the six defences of the
//! paper. `flowgate bench paper` runs it and `flowgate bench verify` repeats it; [`report`](super::report) prints the figures next to those of the paper.

use std::time::Duration;

use flowgate_lm::ChatModel;
use serde_json::Value;

use super::defence::Defence;
use super::execution::Execution;
use super::figures::DefenceFigures;
use super::output::ExecutionError;
use super::report::{figure_rows, paper_rows};
use super::runner::Runner;
use super::suite::GameSuite;

/// The complete run of one model.
#[derive(Debug, Clone)]
pub struct ModelRun {
    /// The name of the model.
    pub name: String,
    /// The executions, defence by defence.
    pub executions: Vec<Execution>,
    /// The figures of each defence of the paper.
    pub figures: Vec<DefenceFigures>,
}

impl ModelRun {
    /// Runs all tasks of the suite under each defence of the paper with one model. With a clock, latency is measured. `after_execution` is called
    /// after each execution; if it returns true (the user has interrupted the command), the result is `None`.
    ///
    /// # Errors
    /// If the model gives no answer.
    pub fn complete(
        suite: &GameSuite,
        model: &dyn ChatModel,
        clock: Option<&dyn Fn() -> Duration>,
        after_execution: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Self>, ExecutionError> {
        let runner = Runner::new(model, clock)?;
        let (mut executions, mut figures) = (Vec::new(), Vec::new());
        for defence in Defence::of_the_paper() {
            let Some(found) = suite.run_defence(&runner, defence, after_execution)? else {
                return Ok(None);
            };
            // The canaries are not enumerated here, so the list of their leakages is empty.
            figures.push(DefenceFigures::of(defence, &found, Vec::new()));
            executions.extend(found);
        }
        Ok(Some(Self { name: model.name().to_owned(), executions, figures }))
    }

    /// Returns the figures as JSON objects, one for each defence and game, and one for all games.
    pub fn figure_rows(&self) -> Vec<Value> {
        let undefended = self.figures.iter().find(|figures| figures.defence == Defence::None);
        let rows = self.figures.iter().flat_map(|of| figure_rows(of, undefended, &self.name));
        rows.map(Value::Object).collect()
    }

    /// Returns the executions and the figures as the objects of JSON lines, without what the model wrote.
    pub fn lines(&self) -> Vec<Value> {
        let executions = self.executions.iter().map(|execution| execution.to_json(&self.name, false));
        executions.chain(self.figure_rows()).collect()
    }
}

/// Returns the lines of the experiment after the manifest: those of each model, and then a line for each defence with the mean of the models next to
/// the figure of the paper.
pub fn experiment_lines(runs: &[ModelRun]) -> Vec<Value> {
    let models: Vec<(&str, &[DefenceFigures])> =
        runs.iter().map(|run| (run.name.as_str(), run.figures.as_slice())).collect();
    runs.iter().flat_map(ModelRun::lines).chain(paper_rows(&models)).collect()
}

#[cfg(test)]
mod tests {
    use super::super::double::ModelDouble;
    use super::*;

    #[test]
    fn the_experiment_has_the_size_of_the_paper() {
        let suite = GameSuite::generate(1, 8);
        let mut steps = 0;
        let step = &mut || {
            steps += 1;
            false
        };
        let run = |double: ModelDouble, step: &mut dyn FnMut() -> bool| {
            ModelRun::complete(&suite, &double, None, step).unwrap().unwrap()
        };
        let runs = [run(ModelDouble::Gullible, step), run(ModelDouble::Immune, step)];
        assert_eq!((runs[0].executions.len() + runs[1].executions.len(), steps), (576, 576));
        let lines = experiment_lines(&runs);
        let count = |kind: &str| lines.iter().filter(|line| line["type"] == kind).count();
        // Three games and their sum for each of six defences and two models.
        assert_eq!((count("execution"), count("figures"), count("paper")), (576, 48, 6));
        assert!(ModelRun::complete(&suite, &ModelDouble::Immune, None, &mut || true).unwrap().is_none());
    }
}
