//! Tests of the progress output in pipes, and of Ctrl-C.

use crate::{POLICY, TRACE, flowgate, text};

fn err(output: &std::process::Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

#[test]
fn a_pipe_gets_progress_only_if_that_was_asked_for() {
    for more in [&[][..], &["--progress", "auto"], &["--progress", "never"]] {
        let output = flowgate(&[&["bench", "detectors"], more].concat());
        assert!(!err(&output).contains('%'), "{}", err(&output));
    }
    let output = flowgate(&["bench", "detectors", "--progress", "always"]);
    let lines = err(&output);
    assert_eq!(lines.lines().count(), 10, "a line for each tenth:\n{lines}");
    assert!(lines.lines().all(|line| line.contains(" rows, ") && line.contains('%')), "{lines}");
    assert!(
        lines.lines().take(9).all(|line| line.ends_with(" left")) && lines.ends_with(" rows, 100%\n"),
        "{lines}"
    );
    let quiet = flowgate(&["bench", "detectors"]);
    assert_eq!(output.stdout, quiet.stdout, "progress is no result");

    for command in [
        &["check", POLICY, TRACE][..],
        &["analyze", POLICY, TRACE],
        &["explain", POLICY, TRACE],
        &["replay", "--policy", POLICY, TRACE],
    ] {
        let output = flowgate(&[command, &["--progress", "always"]].concat());
        assert!(err(&output).contains("1 run, 100% read\n"), "{command:?}: {}", text(&output));
        assert!(!err(&flowgate(command)).contains("% read"), "{command:?}");
    }
}

/// A command that reads its standard input and is interrupted between two lines.
#[cfg(unix)]
mod interrupted {
    use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
    use std::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command, Stdio};

    use crate::{POLICY, file, name};

    const RUN: &str = "{\"messages\":[{\"role\":\"user\",\"content\":\"hi\"}]}\n";

    struct RunningCommand {
        child: Child,
        input: Option<ChildStdin>,
        out: BufReader<ChildStdout>,
        err: BufReader<ChildStderr>,
    }

    impl Drop for RunningCommand {
        fn drop(&mut self) {
            let _ = self.child.kill();
        }
    }

    /// Reads lines until one contains `part`.
    fn wait(from: &mut impl BufRead, part: &str) {
        let mut line = String::new();
        while !line.contains(part) {
            line.clear();
            assert_ne!(from.read_line(&mut line).unwrap(), 0, "there is no line with {part:?}");
        }
    }

    impl RunningCommand {
        fn start(arguments: &[&str]) -> Self {
            let mut command = Command::new(env!("CARGO_BIN_EXE_flowgate"));
            command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
            let mut child = command.spawn().unwrap();
            let (out, err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
            let input = child.stdin.take();
            Self { child, input, out: BufReader::new(out), err: BufReader::new(err) }
        }

        fn write(&mut self, text: &str) {
            let input = self.input.as_mut().unwrap();
            input.write_all(text.as_bytes()).unwrap();
            input.flush().unwrap();
        }

        /// Sends SIGINT, then writes the rest of the input; returns the exit code and the rest of both outputs.
        fn interrupt(mut self, rest: &str) -> (Option<i32>, String, String) {
            let process = self.child.id().to_string();
            assert!(Command::new("kill").args(["-INT", &process]).status().unwrap().success());
            wait(&mut self.err, "interrupted: finishing the work that has begun; Ctrl-C again quits at once");
            // The command may have ended already.
            let input = self.input.take();
            let written = input.map_or(Ok(()), |mut input| input.write_all(rest.as_bytes()));
            assert!(written.is_ok() || written.is_err_and(|error| error.kind() == ErrorKind::BrokenPipe));
            let (mut out, mut err) = (String::new(), String::new());
            self.out.read_to_string(&mut out).unwrap();
            self.err.read_to_string(&mut err).unwrap();
            (self.child.wait().unwrap().code(), out, err)
        }
    }

    #[test]
    fn check_ends_with_the_runs_so_far() {
        let policy = file("interrupted.flow", b"raise \"hi\" if:\n    (m: Message)\n");
        for (format, judged, result) in [
            ("text", "-:2", "2 runs: 0 calls permitted, 0 to be confirmed, 0 denied; 2 findings\n"),
            ("jsonl", "\"line\":2", "{\"type\":\"interrupted\",\"runs\":2}\n"),
        ] {
            let mut running = RunningCommand::start(&["check", name(&policy), "-", "--format", format]);
            running.write(&RUN.repeat(2));
            wait(&mut running.out, judged);
            let (code, out, err) = running.interrupt(RUN);
            assert_eq!(code, Some(130), "{out}{err}");
            assert!(out.ends_with(result) && !out.contains("-:3"), "{out}");
            assert!(err.contains("warning: interrupted after 2 runs: the results are incomplete"), "{err}");
        }
    }

    #[test]
    fn replay_ends_with_a_table_of_the_runs_so_far() {
        let mut running = RunningCommand::start(&["replay", "--policy", POLICY, "--progress", "always", "-"]);
        running.write(&RUN.repeat(2));
        wait(&mut running.err, "2 runs, ");
        let (code, out, err) = running.interrupt(RUN);
        assert_eq!(code, Some(130), "{out}{err}");
        let row: Vec<&str> = out.lines().nth(1).unwrap_or_default().split_whitespace().take(3).collect();
        assert_eq!(row, ["payment", "everything", "2"], "{out}");
    }

    /// After an interruption, an incompletely read log is not reported as truncated.
    #[test]
    #[cfg(feature = "gateway")]
    fn audit_verify_does_not_judge_half_a_log() {
        let (log, _) = crate::audit::audit_log("audit-interrupted");
        let lines = std::fs::read_to_string(&log).unwrap();
        let mut running = RunningCommand::start(&["audit", "verify", name(&log), "-"]);
        wait(&mut running.out, "is whole");
        let (code, out, err) = running.interrupt(lines.get(..300).unwrap());
        assert_eq!(code, Some(130), "{out}{err}");
        assert!(!out.contains("✗"), "{out}");
        assert!(err.contains("warning: interrupted: the rest of the input was not read"), "{err}");
    }
}
