//! Reads public benchmarks from a folder of the user, and measures what a flow policy decides on their cases, without a model.
//! `flowgate bench corpus` is the command.
//!
//! The benchmarks are not part of this project: [`load`] reads the files that their authors publish, and refuses files of another format. TaintBench
//! is not published, so its scenarios are read in a format that Flowgate defines. The policy is [drafted](flowgate::draft) from the descriptions of the
//! benchmark's tools, and names nothing of its cases. Each case runs in a guarded conversation with a test double, which makes the calls of the user's
//! task, and does what the injected text asks for as soon as the text is visible. The figures describe the policy and the method, and not a model.
//!
//! Some files only read data for other suites: `mails.rs` for the games, `prompt_shield.rs` for detection, and `fake_news.rs` and `news_questions.rs`
//! for label propagation.
//!
//! | file | purpose |
//! |---|---|
//! | `case.rs` | defines tools, calls and cases, the form into which every benchmark is read |
//! | `files.rs` | reads the files of the folder, and records their digests |
//! | `reading.rs` | reads JSON values, and names their paths in errors |
//! | `python.rs` | reads Python literals, constants and classes |
//! | `toolkit.rs` | converts descriptions of parameters in the form of ToolEmu to JSON schemas |
//! | `arguments.rs` | chooses the arguments of the calls by which the double obeys an injected text |
//! | `injecagent.rs`, `tau_bench.rs`, `privacy_lens.rs`, `agentdyn.rs` | read one benchmark each |
//! | `taint_scenarios.rs` | reads scenarios of taint propagation in Flowgate's own format |
//! | `prompt_shield.rs` | reads labelled texts, on which [`detection`](crate::detection) measures detectors |
//! | `mails.rs` | reads e-mails as background text for the [games](crate::games) |
//! | `fake_news.rs`, `news_questions.rs` | read pairs of news articles with questions, and let a model write the questions |
//! | `double.rs`, `run.rs` | implement the double, and run one case |
//! | `figures.rs`, `report.rs`, `manifest.rs` | count the outcomes of calls, print the figures, and identify the run |

mod agentdyn;
mod arguments;
mod case;
mod double;
pub(crate) mod fake_news;
mod figures;
mod files;
mod injecagent;
mod mails;
mod manifest;
pub mod news_questions;
mod privacy_lens;
mod prompt_shield;
mod python;
mod reading;
pub mod report;
mod run;
mod taint_scenarios;
mod tau_bench;
mod toolkit;

use std::sync::Arc;

use flowgate::policy::Policy;
use flowgate_guard::conversation::Method;

pub use case::{BenchmarkCorpus, CallPurpose, CorpusCase, CorpusTool, ScriptedCall, ToolSet};
pub use fake_news::{NewsPair, NewsPairs, PairQuestion, load_news_articles, load_news_pairs};
pub use figures::{CaseRow, CorpusFigures, FateCounts, figures};
pub use files::{CorpusFolder, ReadFile};
pub use mails::load_mails;
pub use manifest::manifest;
pub use prompt_shield::{LabelledText, LabelledTexts, load_prompt_shield};
pub use reading::CorpusError;
pub use run::CallFate;

use files::CorpusFiles;

use crate::policy_errors;

/// The methods under which cases run.
pub const METHODS: [Method; 3] = [Method::Everything, Method::Provenance, Method::LowestFirst];

/// A public benchmark.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Benchmark {
    /// *InjecAgent: Benchmarking Indirect Prompt Injections in Tool-Integrated LLM Agents* (Zhan et al., 2024).
    InjecAgent,
    /// *τ-bench: A Benchmark for Tool-Agent-User Interaction in Real-World Domains* (Yao et al., 2024).
    TauBench,
    /// *PrivacyLens: Evaluating Privacy Norm Awareness of Language Models in Action* (Shao et al., 2024).
    PrivacyLens,
    /// *AgentDyn: A Dynamic Open-Ended Benchmark for Evaluating Prompt Injection Attacks of Real-World Agent Security System* (Li et al., 2026).
    AgentDyn,
    /// Scenarios of taint propagation, in a format that Flowgate defines. The benchmark of *Ghost in the Agent: Redefining Information Flow Tracking for
    /// LLM Agents* (Cai et al., 2026) is not published; the format follows the paper's abstract.
    TaintBench,
}

impl Benchmark {
    /// All benchmarks.
    pub const ALL: [Self; 5] =
        [Self::InjecAgent, Self::TauBench, Self::PrivacyLens, Self::AgentDyn, Self::TaintBench];

    /// Returns the name on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::InjecAgent => "injecagent",
            Self::TauBench => "tau-bench",
            Self::PrivacyLens => "privacylens",
            Self::AgentDyn => "agentdyn",
            Self::TaintBench => "taintbench",
        }
    }

    /// Returns the benchmark with this name; `None` if there is none.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|benchmark| benchmark.name() == name)
    }
}

/// Reads the cases of a benchmark from its folder.
///
/// # Errors
/// If a file is missing, or is not in the form of the benchmark. The error names the file, the position in it, and what was expected.
pub fn load(benchmark: Benchmark, folder: &dyn CorpusFolder) -> Result<BenchmarkCorpus, CorpusError> {
    let mut files = CorpusFiles::new(folder);
    let (tool_sets, cases) = match benchmark {
        Benchmark::InjecAgent => injecagent::load(&mut files)?,
        Benchmark::TauBench => tau_bench::load(&mut files)?,
        Benchmark::PrivacyLens => privacy_lens::load(&mut files)?,
        Benchmark::AgentDyn => agentdyn::load(&mut files)?,
        Benchmark::TaintBench => taint_scenarios::load(&mut files)?,
    };
    Ok(BenchmarkCorpus { benchmark: benchmark.name(), tool_sets, cases, files: files.into_read() })
}

/// The cases of a benchmark, with the policies that are drafted for its tools.
#[derive(Debug)]
pub struct CorpusSuite {
    corpus: BenchmarkCorpus,
    /// The policy of each set of tools, in the order of the sets.
    policies: Vec<Arc<Policy>>,
}

impl CorpusSuite {
    /// Drafts a policy for each set of tools of the corpus.
    ///
    /// # Errors
    /// If a drafted policy does not compile. The error names the set of tools, and says why.
    pub fn new(corpus: BenchmarkCorpus) -> Result<Self, CorpusError> {
        let policy = |set: &ToolSet| {
            let parsed = Policy::parse(&set.policy());
            let policy = parsed.map_err(|errors| {
                let problem = format!(
                    "the policy that is drafted for these tools does not compile; this is a defect of Flowgate; please report it: {}",
                    policy_errors::one_line(&errors)
                );
                CorpusError::new(&set.name, problem)
            });
            policy.map(Arc::new)
        };
        let policies = corpus.tool_sets.iter().map(policy).collect::<Result<_, _>>()?;
        Ok(Self { corpus, policies })
    }

    /// Returns the cases, with their tools and the files that were read.
    pub fn corpus(&self) -> &BenchmarkCorpus {
        &self.corpus
    }

    /// Runs all cases under one method, and returns a row for each. `after_case` is called after each case; if it returns true (the user has
    /// interrupted the command), the remaining cases are skipped and the result is `None`.
    ///
    /// # Errors
    /// If a case cannot run. The error names the case, and says why.
    pub fn run_method(
        &self,
        method: Method,
        after_case: &mut dyn FnMut() -> bool,
    ) -> Result<Option<Vec<CaseRow>>, CorpusError> {
        let mut rows = Vec::new();
        for case in &self.corpus.cases {
            // The tools of the case, and the policy that was drafted for them.
            let parts = self.corpus.tool_sets.get(case.tool_set).zip(self.policies.get(case.tool_set));
            let (set, policy) = parts.ok_or_else(|| {
                CorpusError::new(
                    &case.name,
                    "a case names a set of tools that does not exist; this is a defect of Flowgate; please report it"
                        .to_owned(),
                )
            })?;
            // What happened to each call of the case.
            let fates = run::run_case(policy, set, case, method)
                .map_err(|problem| CorpusError::new(&case.name, problem))?;
            rows.push(CaseRow::new(case, method, fates));
            if after_case() {
                return Ok(None);
            }
        }
        Ok(Some(rows))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Checks the error for a folder in one file of which one text is replaced.
    pub(super) fn check_change(
        benchmark: Benchmark,
        mut folder: BTreeMap<String, String>,
        path: &str,
        (from, to): (&str, &str),
        error: &str,
    ) {
        let text = folder.get_mut(path).unwrap();
        assert!(text.contains(from), "{from}");
        *text = text.replacen(from, to, 1);
        assert_eq!(load(benchmark, &folder).unwrap_err().to_string(), error);
    }

    /// Checks that no beginning of a file, and no file without one of its lines, makes a reader panic.
    pub(super) fn check_broken_files(benchmark: Benchmark, folder: &BTreeMap<String, String>) {
        for (path, text) in folder {
            let cuts = (0..text.len()).step_by(7).filter_map(|end| text.get(..end)).map(str::to_owned);
            let lines: Vec<&str> = text.lines().collect();
            let gaps = (0..lines.len()).map(|gap| {
                let kept = lines.iter().enumerate().filter(|(at, _)| *at != gap).map(|(_, line)| *line);
                kept.collect::<Vec<_>>().join("\n")
            });
            for broken in cuts.chain(gaps) {
                let mut folder = folder.clone();
                folder.insert(path.clone(), broken);
                // Both results are in order: what is left may be complete.
                let _ = load(benchmark, &folder)
                    .and_then(CorpusSuite::new)
                    .map(|suite| suite.corpus().cases.len());
            }
        }
    }

    #[test]
    fn names_are_parsed() {
        for benchmark in Benchmark::ALL {
            assert_eq!(Benchmark::parse(benchmark.name()), Some(benchmark));
        }
        assert_eq!(Benchmark::parse("other"), None);
    }
}
