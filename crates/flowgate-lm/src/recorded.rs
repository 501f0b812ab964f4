//! Defines [`RecordedModel`], which records the answers of a model in a file and replays them. Measurements and tests
//! with real models can thus be repeated without querying the models again. `flowgate bench` and `flowgate run` record
//! and replay answers with this module.
//!
//! Each line of the file is a JSON object with an answer and its key: the SHA-256 of the model's name and the request.
//! The file contains answers without their reasoning, and no requests. If several lines have the same key, the last
//! line applies.
//!
//! Since the key depends on the name, the name must identify the model. The command line therefore adds the beginning
//! of the digest of the files (`local::ModelDigest`) to the name of a local model, so that other weights in a folder of
//! the same name do not get the recorded answers.

mod line;

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use crate::chat::{Completion, Request};
use crate::{BoxFuture, ChatModel, Error, Listener, send_completion};

/// The longest line of a file, in bytes.
const MAX_LINE: u64 = 32 << 20;

/// The error of a request whose answer is not in the file.
const NOT_RECORDED: Error = Error::Unsupported(
    "no answer to it is recorded, since the request or the name of the model has changed; record the run again",
);

/// Returns a text that identifies a request, but not its model: the parts of the request on which the key of a recorded
/// answer depends, as JSON with sorted keys. Requests with equal texts get the same recorded answer. The manifests of
/// measurements contain a hash of this text, which depends on what a model receives and not on the names of types.
#[must_use]
pub fn request_text(request: &Request) -> String {
    line::text(request)
}

/// Whether a [`RecordedModel`] answers a request from its file, queries the model, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RecordingMode {
    /// Queries the model, and records the answer.
    Record,
    /// Returns the recorded answer; fails if there is none.
    Replay,
    /// Returns the recorded answer; if there is none, queries the model and records its answer.
    Both,
}

/// Why a file of answers cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AnswerFileError {
    /// The file cannot be read or written; with the system's description.
    Io(String),
    /// A line is not an answer.
    Damaged {
        /// The number of the line, from 1.
        line: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
}

impl fmt::Display for AnswerFileError {
    /// Writes the problem and what to do, in one line. The caller adds the path of the file, which the error does not
    /// have.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(why) => write!(
                f,
                "the file of recorded answers cannot be read or written: {why}; check its path and its permissions"
            ),
            Self::Damaged { line, problem } => {
                write!(
                    f,
                    "line {line} of the file of recorded answers is damaged: {problem}; restore the file, or \
                    record the answers again"
                )
            }
        }
    }
}

impl std::error::Error for AnswerFileError {}

impl From<io::Error> for AnswerFileError {
    /// Takes only the kind of the error, such as "permission denied".
    fn from(error: io::Error) -> Self {
        Self::Io(error.kind().to_string())
    }
}

/// A model whose answers are recorded in a file, or replayed from it.
pub struct RecordedModel<M> {
    /// The model that answers the requests that are not replayed.
    model: M,
    mode: RecordingMode,
    state: Mutex<RecordedAnswers>,
}

/// The answers of a file, by key.
struct RecordedAnswers {
    answers: BTreeMap<String, Completion>,
    /// The file for new answers; `None` in replay mode, or after a failed write.
    file: Option<File>,
}

impl<M> fmt::Debug for RecordedModel<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Recorded").field("mode", &self.mode).finish_non_exhaustive()
    }
}

/// A model of which only the name is known: every request fails.
#[derive(Debug, Clone)]
pub struct UnavailableModel(pub String);

impl ChatModel for UnavailableModel {
    /// Returns the name of the model whose answers were recorded.
    fn name(&self) -> &str {
        &self.0
    }

    /// Fails, with the error for a request that has no recorded answer.
    fn complete<'a>(
        &'a self,
        _: &'a Request,
        _: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(std::future::ready(Err(NOT_RECORDED)))
    }
}

impl RecordedModel<UnavailableModel> {
    /// Opens the file of recorded answers of the model `name`, for replay only.
    ///
    /// # Errors
    /// If the file cannot be read, or is damaged.
    pub fn replay(name: &str, path: &Path) -> Result<Self, AnswerFileError> {
        Self::open(UnavailableModel(name.to_owned()), path, RecordingMode::Replay)
    }
}

impl<M: ChatModel> RecordedModel<M> {
    /// Opens the file with the answers of a model, and reads all answers into memory. Creates the file if it does not
    /// exist, unless the mode is [`RecordingMode::Replay`]: in this mode, nothing is written.
    ///
    /// # Errors
    /// If the file cannot be read or written, or is damaged.
    pub fn open(model: M, path: &Path, mode: RecordingMode) -> Result<Self, AnswerFileError> {
        let file = match mode {
            RecordingMode::Replay => None,
            RecordingMode::Record | RecordingMode::Both => {
                Some(OpenOptions::new().append(true).create(true).open(path)?)
            }
        };
        let answers = read_answers(File::open(path)?)?;
        Ok(Self { model, mode, state: Mutex::new(RecordedAnswers { answers, file }) })
    }

    /// Returns the number of recorded answers.
    pub fn len(&self) -> usize {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).answers.len()
    }

    /// Returns whether there are no recorded answers.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the recorded answer to the request with this key; `None` if none is recorded.
    fn find_answer(&self, key: &str) -> Option<Completion> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner).answers.get(key).cloned()
    }

    /// Appends the answer to the file, and adds it to the answers in memory, under the key of its request. After a
    /// failed write, which may leave a partial line, every later call fails as well.
    fn store_answer(&self, key: String, completion: &Completion) -> Result<(), Error> {
        let text = line::write(&key, self.model.name(), completion);
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        // The file is taken out of the state, and put back only after a complete write: an answer that was appended to
        // a partial line would be damaged as well.
        let file = state.file.take().ok_or_else(|| {
            Error::NotRecorded(
                "an earlier answer was written only in part; record the run again, into another file"
                    .to_owned(),
            )
        })?;
        // One write at the end of the file, so that lines of several threads and processes do not interleave.
        (&file).write_all(text.as_bytes()).map_err(|error| {
            Error::NotRecorded(format!(
                "{}; correct this, and record the run again, into another file",
                error.kind()
            ))
        })?;
        state.file = Some(file);
        state.answers.insert(key, completion.clone());
        Ok(())
    }
}

impl<M: ChatModel> ChatModel for RecordedModel<M> {
    /// Returns the name of the recorded model, so that reports do not depend on the recording.
    fn name(&self) -> &str {
        self.model.name()
    }

    /// Returns the recorded answer, or queries the model and records its answer, as the mode states. Fails if there is
    /// no recorded answer in the mode [`RecordingMode::Replay`], or if the answer of the model cannot be recorded.
    fn complete<'a>(
        &'a self,
        request: &'a Request,
        listener: &'a mut dyn Listener,
    ) -> BoxFuture<'a, Result<Completion, Error>> {
        Box::pin(async move {
            let key = line::key(self.model.name(), request);
            if self.mode != RecordingMode::Record {
                if let Some(completion) = self.find_answer(&key) {
                    send_completion(&completion, listener)?;
                    return Ok(completion);
                }
                if self.mode == RecordingMode::Replay {
                    return Err(NOT_RECORDED);
                }
            }
            // The mode is `Record`, or `Both` and the file has no answer to this request.
            let completion = self.model.complete(request, listener).await?;
            self.store_answer(key, &completion)?;
            Ok(completion)
        })
    }
}

/// Reads all answers of a file, by key. Of several answers with one key, the last one applies. Fails at the first line
/// that is not a complete answer, instead of skipping it: the file is then damaged, and a replay could not be trusted.
fn read_answers(file: File) -> Result<BTreeMap<String, Completion>, AnswerFileError> {
    let mut reader = BufReader::new(file);
    let mut answers = BTreeMap::new();
    for number in 1.. {
        let mut bytes = Vec::new();
        // At most one byte more than a permitted line is read, which is enough to see that a line is too long.
        if (&mut reader).take(MAX_LINE + 1).read_until(b'\n', &mut bytes)? == 0 {
            break;
        }
        let damaged = |problem| AnswerFileError::Damaged { line: number, problem };
        if u64::try_from(bytes.len()).is_ok_and(|length| length > MAX_LINE) {
            return Err(damaged("the line is longer than 32 MiB"));
        }
        // A last line without a line break is incomplete, and the next answer would be appended to this line.
        let Some(bytes) = bytes.strip_suffix(b"\n") else {
            return Err(damaged("the line is incomplete, since no line break follows it"));
        };
        let text = std::str::from_utf8(bytes).map_err(|_| damaged("the line is not valid UTF-8"))?;
        let (key, completion) = line::read(text).map_err(damaged)?;
        answers.insert(key, completion);
    }
    Ok(answers)
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;
    use crate::chat::{Message, Part, Stop, ToolCall, Usage};
    use crate::{ScriptedModel, ignore_deltas};

    /// A unique path, which is removed on drop.
    struct TemporaryFile(PathBuf);

    impl TemporaryFile {
        fn new() -> Self {
            static COUNT: AtomicU32 = AtomicU32::new(0);
            let name =
                format!("flowgate-lm-{}-{}.jsonl", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
            Self(std::env::temp_dir().join(name))
        }
    }

    impl Drop for TemporaryFile {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    fn asked(text: &str) -> Request {
        Request { messages: vec![Message::User(vec![Part::from(text)])].into(), ..Request::default() }
    }

    /// An answer with this text and one call, whose arguments are not complete JSON.
    fn said(text: &str) -> Completion {
        let call = ToolCall { id: "c".to_owned(), name: "f".to_owned(), arguments: "{\"a\":\n".to_owned() };
        let usage = Usage { input: 1, output: 2, cached: 0 };
        Completion {
            text: text.to_owned(),
            calls: vec![call],
            stop: Stop::Calls,
            usage,
            ..Completion::default()
        }
    }

    #[tokio::test]
    async fn answers_are_recorded_and_replayed() {
        let place = TemporaryFile::new();
        let model = ScriptedModel::from_answers([said("a"), said("b"), said("secret answer")]).with_name("m");
        let recorded = RecordedModel::open(model, &place.0, RecordingMode::Both).unwrap();
        assert!(recorded.is_empty());
        for (question, answer) in [("1", "a"), ("secret question", "b"), ("1", "a")] {
            assert_eq!(recorded.complete(&asked(question), &mut ignore_deltas).await.unwrap(), said(answer));
        }
        assert_eq!((recorded.len(), recorded.model.requests()), (2, 2));
        let text = std::fs::read_to_string(&place.0).unwrap();
        assert!(!text.contains("question"), "{text}");
        assert_eq!(text.lines().count(), 2);

        let replayed = RecordedModel::replay("m", &place.0).unwrap();
        let mut heard = 0;
        let mut listener = |_: crate::Delta<'_>| {
            heard += 1;
            std::ops::ControlFlow::Continue(())
        };
        assert_eq!(replayed.complete(&asked("1"), &mut listener).await.unwrap(), said("a"));
        assert_eq!(heard, 3);
        let missing = "the model cannot answer this request: no answer to it is recorded, since the request or the \
            name of the model has changed; record the run again";
        assert_eq!(
            replayed.complete(&asked("2"), &mut ignore_deltas).await.unwrap_err().to_string(),
            missing
        );
        let other = RecordedModel::replay("other", &place.0).unwrap();
        assert_eq!(other.complete(&asked("1"), &mut ignore_deltas).await.unwrap_err().to_string(), missing);

        let again = ScriptedModel::from_answers([said("new")]).with_name("m");
        let recorded = RecordedModel::open(again, &place.0, RecordingMode::Record).unwrap();
        assert_eq!(recorded.complete(&asked("1"), &mut ignore_deltas).await.unwrap(), said("new"));
        let replayed = RecordedModel::replay("m", &place.0).unwrap();
        assert_eq!(
            replayed.complete(&asked("1"), &mut ignore_deltas).await.unwrap(),
            said("new"),
            "the last one counts"
        );
    }

    #[tokio::test]
    async fn an_answer_that_cannot_be_recorded_is_an_error() {
        let full = Path::new("/dev/full");
        if !full.exists() {
            return;
        }
        let place = TemporaryFile::new();
        let model = ScriptedModel::from_function(|_| Ok(said("a"))).with_name("m");
        let recorded = RecordedModel::open(model, &place.0, RecordingMode::Both).unwrap();
        recorded.state.lock().unwrap().file = Some(OpenOptions::new().append(true).open(full).unwrap());
        for why in [
            "no storage space; correct this, and record the run again, into another file",
            "an earlier answer was written only in part; record the run again, into another file",
        ] {
            let error = recorded.complete(&asked("1"), &mut ignore_deltas).await.unwrap_err().to_string();
            assert_eq!(error, format!("the model answered, but the answer cannot be recorded: {why}"));
        }
        assert!(recorded.is_empty());
    }

    /// Opens a file of recorded answers with the content `text`, and checks that this fails with the message `expected`
    /// and the advice for damaged files.
    fn check(text: &str, expected: &str) {
        let place = TemporaryFile::new();
        std::fs::write(&place.0, text).unwrap();
        let error = RecordedModel::replay("m", &place.0).unwrap_err();
        assert_eq!(
            error.to_string(),
            format!("{expected}; restore the file, or record the answers again"),
            "{text}"
        );
    }

    #[test]
    fn damage_is_located() {
        let good = line::write("k", "m", &said("a"));
        check(
            &format!("{good}{{"),
            "line 2 of the file of recorded answers is damaged: the line is incomplete, since no line break follows it",
        );
        check(
            &format!("{good}\n"),
            "line 2 of the file of recorded answers is damaged: the line is not valid JSON",
        );
        check(
            &format!("{good}{{}}\n{good}"),
            "line 2 of the file of recorded answers is damaged: the line has no string in the field `key`",
        );
        check(
            &good.replace("\"stop\":\"calls\"", "\"stop\":\"why\""),
            "line 1 of the file of recorded answers is damaged: the field `answer` of the line is missing or is not an answer of a model",
        );
        let missing = RecordedModel::replay("m", Path::new("/nowhere/at/all")).unwrap_err();
        assert_eq!(
            missing.to_string(),
            "the file of recorded answers cannot be read or written: entity not found; check its path and its permissions"
        );
    }
}
