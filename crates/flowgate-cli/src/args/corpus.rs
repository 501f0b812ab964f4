//! Declares the arguments and the help of `flowgate bench corpus`, which measures a drafted policy on a public
//! benchmark in a folder. `clap` parses the arguments.

use std::path::PathBuf;

use super::ReportFormat;
use flowgate_bench::corpora::{Benchmark, METHODS};
use flowgate_guard::conversation::Method;

pub(super) const CORPUS_HELP: &str = "\
Examples:
  flowgate bench corpus injecagent InjecAgent                     a clone of the benchmark
  flowgate bench corpus injecagent InjecAgent --method everything
                                                                  one method
  flowgate bench corpus tau-bench tau-bench                       recorded actions of tasks
  flowgate bench corpus injecagent InjecAgent --format jsonl > run.jsonl
                                                                  every case, with a manifest
  flowgate bench corpus injecagent InjecAgent --format csv > figures.csv
                                                                  figures for other programs

The benchmarks, with the files that the folder must have:
  injecagent   data/tools.json, and data/test_cases_dh_base.json or other cases
  tau-bench    tau_bench/envs/DOMAIN with tools, tasks_test.py and data
  privacylens  data/main_data.json, and core_virtual_tools.py in data_construction
  agentdyn     runs, with user_task_N/none/none.json below it
  taintbench   scenarios/*.json in a form of our own, since TaintBench is not
               published; docs/bench.md describes it

  The data is not part of Flowgate. Get it from its authors, under their licence.

How to read the table:
  attacks     cases in which a text of a tool asks for calls, or a call discloses
              what the case says to be sensitive
  ran         all calls of the attack ran, and nobody was asked; 0 under everything
  asked       a person was asked, who refused
  denied      the policy refused without a question
  unmade      the double did not make the call, because the text was hidden from it
  actions     calls of the users' tasks: permitted, asked about and then allowed,
              denied, or not made because what they depend on was hidden

  The policy is drafted from the descriptions of the benchmark's tools, as by
  `flowgate init`. The double obeys every text that it sees. No figure is that of
  a real model.

Exit codes:
  0    the measurement is complete
  1    under everything, an attack ran without a question; read the draft
  2    the command line or the folder cannot be used
  130  interrupted by Ctrl-C; methods whose runs are complete have rows";

/// The options of `bench corpus`.
#[derive(Debug, clap::Args)]
pub(crate) struct CorpusArgs {
    /// The benchmark.
    #[arg(value_name = "NAME", value_parser = benchmark)]
    pub(crate) benchmark: Benchmark,
    /// The folder with the benchmark's files.
    #[arg(value_name = "FOLDER")]
    pub(crate) folder: PathBuf,
    /// A method: `everything`, `provenance` or `lowest-first`. May be given several times. [default: all]
    #[arg(long = "method", value_name = "NAME", value_parser = method)]
    pub(crate) methods: Vec<Method>,
    /// The format of the result.
    #[arg(long, value_enum, default_value_t = ReportFormat::Text)]
    pub(crate) format: ReportFormat,
    /// Run nothing, and say how many requests to a model the run would cost: none, since no model of a server takes
    /// part.
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Parses the name of a benchmark. The error lists the benchmarks.
fn benchmark(name: &str) -> Result<Benchmark, String> {
    let names = Benchmark::ALL.map(Benchmark::name).join(", ");
    Benchmark::parse(name)
        .ok_or_else(|| format!("there is no benchmark `{}`; use one of {names}", name.escape_debug()))
}

/// Parses the name of a method of a guarded conversation. The error lists the methods that this measurement has.
fn method(name: &str) -> Result<Method, String> {
    let names = METHODS.map(|method| method.name()).join(", ");
    let found = METHODS.into_iter().find(|method| method.name() == name);
    found.ok_or_else(|| {
        format!("this measurement has no method `{}`; use one of {names}", name.escape_debug())
    })
}
