//! Adds the attention screener of RTBAS (its sections 3.3 and 7.2) to the agent of a run. The agent's model writes
//! every message, also the preliminary message that the screener reads. The attention of a local model decides on which
//! regions the next step depends. [`runner`](super::runner) runs the defence `attention` with a
//! [`ScreenedByAttention`].

use std::sync::Arc;

use flowgate_guard::screener::attention::AttentionReader;
use flowgate_guard::screener::judge::JudgeScreener;
use flowgate_lm::chat::{Completion, Request};
use flowgate_lm::{
    Attention, AttentionModel, AttentionRequest, BoxFuture, ChatModel, Error, Listener, RegionClassifier,
    RegionSummary, send_completion,
};

/// An agent whose screener is the attention of a local model.
pub(super) struct ScreenedByAttention<'a> {
    /// Writes all messages, also the preliminary ones, and fills slots.
    pub(super) agent: &'a dyn ChatModel,
    /// Answers the questions of the screener.
    pub(super) reader: &'a AttentionReader,
}

impl ChatModel for ScreenedByAttention<'_> {
    fn name(&self) -> &str {
        self.agent.name()
    }

    /// Answers a question of the screener from the attention, and passes every other request to the agent.
    ///
    /// # Errors
    /// If the agent or the listener fails.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        if JudgeScreener::tagged_chat(request).is_none() {
            return self.agent.complete(request, listener);
        }
        Box::pin(async move {
            let completion = self.reader.answer(self.agent, request).await?;
            send_completion(&completion, listener)?;
            Ok(completion)
        })
    }
}

/// A model that reads nothing, and the classifier of its regions.
struct Unread;

impl AttentionModel for Unread {
    /// Returns an error, so that every region counts as needed.
    fn attention(&self, _: &AttentionRequest<'_>) -> Result<Attention, Error> {
        Err(Error::Unsupported("attention"))
    }
}

impl RegionClassifier for Unread {
    /// Returns an error.
    fn probabilities(&self, _: &[RegionSummary]) -> Result<Vec<f64>, Error> {
        Err(Error::Unsupported("a classification of regions"))
    }
}

/// Returns a reader that evaluates no model: every region counts as needed. `flowgate bench privacy --dry-run` uses it,
/// since a dry run counts the requests of a run and loads no local model.
pub fn unread() -> AttentionReader {
    // `Unread` gives no probabilities, so none is compared with the threshold.
    AttentionReader { model: Arc::new(Unread), classifier: Arc::new(Unread), threshold: 0.0 }
}

#[cfg(test)]
mod tests {
    use super::super::defence::PrivacyDefence;
    use super::super::read;
    use super::super::run::{PersonDouble, PrivacyRun};
    use super::super::runner::PrivacyRunner;
    use super::super::task::PrivacyTask;
    use super::*;

    /// A model in which each byte of the output attends to each word of the prompt with a digit, and a classifier that
    /// names a region if the output has one of its values.
    struct SharedValues;

    impl AttentionModel for SharedValues {
        fn attention(&self, request: &AttentionRequest<'_>) -> Result<Attention, Error> {
            let mut tokens = Vec::new();
            let mut weights = Vec::new();
            let mut start = 0;
            for word in request.prompt.split_inclusive(|c: char| !c.is_alphanumeric()) {
                tokens.push(start..start + word.len());
                start += word.len();
                let value = word.trim_end_matches(|c: char| !c.is_alphanumeric());
                let is_value = value.len() > 3 && value.contains(|c: char| c.is_ascii_digit());
                weights.push(f32::from(u8::from(is_value && request.continuation.contains(value))));
            }
            let gradients = vec![1.0; weights.len()];
            let output = std::iter::once(0..request.continuation.len()).collect();
            Attention::new(tokens, output, (1, 1), weights, gradients).ok_or(Error::Unsupported("this shape"))
        }
    }

    impl RegionClassifier for SharedValues {
        fn probabilities(&self, regions: &[RegionSummary]) -> Result<Vec<f64>, Error> {
            Ok(regions.iter().map(|region| f64::from(u8::from(region.plain.sum > 0.0))).collect())
        }
    }

    /// Runs all tasks under the defence `attention`, and returns each with its run. `person` answers the questions.
    fn run_all(reader: &AttentionReader, person: PersonDouble) -> Vec<(PrivacyTask, PrivacyRun)> {
        let runner = PrivacyRunner::new().unwrap().with_attention(reader.clone());
        let run = |task: PrivacyTask| {
            let run = runner.run(&task, PrivacyDefence::Attention, person).unwrap();
            (task, run)
        };
        read::all().unwrap().into_iter().map(run).collect()
    }

    /// Attention that finds copied values shows the card that a booking contains, and needs no answer of the double.
    #[test]
    fn the_attention_chooses_what_is_shown() {
        let model: Arc<SharedValues> = Arc::new(SharedValues);
        let values = AttentionReader {
            model: Arc::clone(&model) as Arc<dyn AttentionModel>,
            classifier: model,
            threshold: 0.5,
        };
        let (found, blind) =
            (run_all(&values, PersonDouble::Allows), run_all(&unread(), PersonDouble::Allows));
        let solved =
            |runs: &[(PrivacyTask, PrivacyRun)]| runs.iter().filter(|(_, run)| run.is_successful).count();
        // A reader that fails names every region.
        assert!(solved(&blind) > blind.len() / 2, "{}", solved(&blind));
        // The privacy suite has 16 tasks that need nothing private.
        assert!(solved(&found) > 16, "{}", solved(&found));
        let categories = |runs: &[(PrivacyTask, PrivacyRun)]| -> usize {
            runs.iter().flat_map(|(_, run)| &run.calls).map(|call| call.categories.len()).sum()
        };
        assert!(categories(&found) < categories(&blind));
        assert!(found.iter().flat_map(|(_, run)| &run.calls).any(|call| call.categories.contains("card")));
    }

    /// A wrong choice of the attention costs questions or tasks, and discloses nothing.
    #[test]
    fn nothing_is_disclosed_without_consent() {
        for (task, run) in run_all(&unread(), PersonDouble::Denies) {
            assert!(!run.is_disclosed, "{}: {run:?}", task.name);
        }
    }

    #[test]
    fn without_a_reader_the_defence_is_an_error() {
        let task = read::all().unwrap().remove(0);
        let runner = PrivacyRunner::new().unwrap();
        let error =
            runner.run(&task, PrivacyDefence::Attention, PersonDouble::Allows).unwrap_err().to_string();
        assert!(error.contains("reads the attention of a local model"), "{error}");
    }
}
