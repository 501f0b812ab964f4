//! Runs the propagation suite with a model in place of the doubles, which gives Tables 1 to 3 of *Permissive
//! Information-Flow Analysis*. The model must score texts and need not answer chats, so introspection does not run. The
//! answer of each question is the one that the data set gives. `flowgate bench propagation` calls this module if a
//! model is given.

use flowgate_lm::Error;

use super::measure::LabelFigures;
use super::method::{LabelMethod, Models, SearchParameters, apply};
use super::news::Retriever;
use super::suite::{DataSet, LabelRow, PropagationSuite};
use super::tune::{FIXED, GridPoint, LAMBDAS, THRESHOLDS, tune};

/// The results with one model.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelResults {
    /// The name of the model.
    pub name: String,
    /// The rows of Tables 1 to 3 of *Permissive Information-Flow Analysis*.
    pub labels: Vec<LabelRow>,
    /// The settings that were tried on the tuning questions, each with its data set.
    pub grids: Vec<(DataSet, GridPoint)>,
}

/// The methods that run on each data set, in the order of the tables.
const PLAN: [(DataSet, &[LabelMethod]); 5] = [
    (
        DataSet::KeyValue,
        &[LabelMethod::Naive, LabelMethod::HittingSet, LabelMethod::Shapley, LabelMethod::Knn],
    ),
    (DataSet::KeyValueSmall, &[LabelMethod::Literal, LabelMethod::HittingSet]),
    (DataSet::KeyValueUnseen, &[LabelMethod::Naive, LabelMethod::HittingSet, LabelMethod::Knn]),
    (DataSet::News(Retriever::Perfect), &[LabelMethod::Naive, LabelMethod::HittingSet, LabelMethod::Knn]),
    (
        DataSet::Agents { is_generated: false },
        &[LabelMethod::Naive, LabelMethod::HittingSet, LabelMethod::Knn],
    ),
];

impl PropagationSuite {
    /// Returns the number of steps of a run with a model, by which the command line shows progress: one for each
    /// question under each method, and one for each setting that is tried.
    pub fn model_steps(&self) -> usize {
        let plan: usize = PLAN.iter().map(|(set, methods)| self.of(*set).len() * methods.len()).sum();
        // Each of the three sets of tuning questions has a grid of λ for two methods, and the two sets of key-value
        // questions have one of thresholds as well. Without hidden states, the kNN-LM does not run, and there are
        // fewer steps.
        plan + 6 * LAMBDAS.len() + 2 * THRESHOLDS.len()
    }

    /// Computes Tables 1 to 3 of *Permissive Information-Flow Analysis* with a model. `name` names it in the rows. λ, the loss of utility that a
    /// search tolerates, is tuned for each kind of question on others, of which nothing is reported. `step` is called after each question and each
    /// setting that was tried; if it returns true (the user has interrupted the command), the result is `None`.
    ///
    /// # Errors
    /// If the model fails.
    pub fn run_model(
        &self,
        models: Models<'_>,
        name: &str,
        step: &mut dyn FnMut() -> bool,
    ) -> Result<Option<ModelResults>, Error> {
        let (key_value, news) = &self.tuning;
        // Each data set with its tuning questions, and whether the threshold of Shapley pruning is tuned on them, too.
        let tuned = [
            (DataSet::KeyValue, key_value, true),
            (DataSet::KeyValueUnseen, &self.unseen_tuning, true),
            (DataSet::News(Retriever::Perfect), news, false),
        ];
        let (mut parameters, mut grids): (Vec<(DataSet, SearchParameters)>, Vec<_>) =
            (Vec::new(), Vec::new());
        for (set, questions, with_shapley) in tuned {
            let Some((best, grid)) = tune(models, questions, with_shapley, step)? else { return Ok(None) };
            parameters.push((set, best));
            grids.extend(grid.into_iter().map(|point| (set, point)));
        }
        let parameters_of = |set: DataSet| {
            // Small contexts have the phrasing of the large ones. The agent conversations have no tuning questions, so their parameters are fixed.
            let tuned_as = if set == DataSet::KeyValueSmall { DataSet::KeyValue } else { set };
            parameters.iter().find(|(tuned, _)| *tuned == tuned_as).map_or(FIXED, |(_, best)| *best)
        };
        let mut labels = Vec::new();
        for (set, methods) in PLAN {
            // Only a model with hidden states can run the kNN-LM.
            for method in
                methods.iter().filter(|method| **method != LabelMethod::Knn || models.states.is_some())
            {
                let mut outcomes = Vec::new();
                for question in self.of(set) {
                    // The labels are those of the data set's answer. No method of the plan needs an example.
                    let outcome =
                        apply(*method, models, parameters_of(set), question, &question.answer, None)?;
                    outcomes.push(outcome);
                    if step() {
                        return Ok(None);
                    }
                }
                let (model, figures) = (name.to_owned(), LabelFigures::of(&outcomes));
                labels.push(LabelRow {
                    model,
                    set,
                    method: *method,
                    parameters: parameters_of(set),
                    figures,
                });
            }
        }
        Ok(Some(ModelResults { name: name.to_owned(), labels, grids }))
    }
}

#[cfg(test)]
mod tests {
    use super::super::double::{CopyModel, CopyingErrors};
    use super::super::report::{model_lines, model_page, model_tables};
    use super::super::suite::Size;
    use super::*;

    /// A double in the place of the model: every table has its rows, and the copying double finds the labels.
    #[test]
    fn a_run_with_a_model_has_every_row() {
        let suite = PropagationSuite::new(1, Size { questions: 4, pairs: 3 }).unwrap();
        let model = CopyModel { copying: CopyingErrors::Exact, seed: 1 };
        let models =
            Models { scores: &model, states: Some(&model), chat: None, count: &crate::tokens::count_lines };
        let mut steps = 0;
        let results = suite.run_model(models, "a model", &mut || {
            steps += 1;
            false
        });
        let results = results.unwrap().unwrap();
        assert_eq!(steps, suite.model_steps());
        assert_eq!(results.labels.len(), PLAN.iter().map(|(_, methods)| methods.len()).sum::<usize>());
        let text = model_tables(&results);
        for expected in ["a model", "key-value/unseen", "news/perfect", "agents/given", "(Table 1)"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(model_page(&results, &serde_json::json!({})).contains("key-value/unseen"));
        assert_eq!(model_lines(&results).len(), results.labels.len() + results.grids.len());
        assert_eq!(suite.run_model(models, "a model", &mut || true).unwrap(), None);
    }
}
