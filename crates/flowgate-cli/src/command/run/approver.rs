//! Asks the person at the terminal whether a call may run. The agent of `flowgate run` calls it through the trait
//! [`Approver`].
//!
//! The question shows the call exactly, character by character, and nothing in it can change the text around it.
//! Without a terminal, the answer is no.

use std::collections::HashMap;
use std::fmt::Write;
use std::future::ready;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use flowgate::label::Purpose;
use flowgate::policy::Policy;
use flowgate::trace::EventId;
use flowgate_guard::approve::{ApprovalRequest, Approver, Decision, Excerpt};
use flowgate_lm::BoxFuture;

use super::terminal::{ChatTerminal, LineInput, QUESTION_BUDGET};
use crate::output::plural;
use crate::{escaping, report};

/// The description of each event's source: `the answer of web/fetch`.
pub(super) type EventSources = Arc<Mutex<HashMap<EventId, String>>>;

/// The answer to `?`: what each answer means.
const HELP: &str = "\
y  this call runs, with exactly these arguments, once (or as often as the question says); nothing else is allowed by it
c  (where it is offered) the same call may also run again in this conversation, for the same reasons
n  it does not run, and the model learns that; anything but y means no
Say y only if you would have made this call yourself: text that is quoted above may be there to make you.";

/// The person at the terminal.
pub(super) struct TerminalApprover {
    pub(super) terminal: Arc<ChatTerminal>,
    pub(super) policy: Arc<Policy>,
    /// The name of the policy's file.
    pub(super) name: Arc<str>,
    /// The agent that wants to call: `The model`.
    pub(super) caller: String,
    /// The descriptions of sources, which the observer of the chat writes.
    pub(super) sources: EventSources,
    /// The decisions on the last message of the model that also cover further calls of it.
    pub(super) repeated: Vec<RepeatedDecision>,
    /// The questions about later calls of the same message of the model, which the last question has announced to the
    /// person.
    pub(super) announced: Vec<ApprovalRequest>,
}

/// A decision on several equal calls of one message.
#[derive(Debug)]
pub(super) struct RepeatedDecision {
    question: ApprovalRequest,
    decision: Decision,
    /// The number of further calls that it is for.
    remaining: usize,
}

impl RepeatedDecision {
    /// Returns the decision for a further call if `ask` is the same question, and counts that call. Returns `None` if
    /// `ask` is another question, or if the decision has been used for all calls that it covers.
    fn for_further_call(&mut self, ask: &ApprovalRequest) -> Option<Decision> {
        let is_same = self.question.is_same_question(ask);
        // Subtracts one call if the question is the same, and otherwise none. `?` returns `None` if no call remains.
        self.remaining = self.remaining.checked_sub(usize::from(is_same))?;
        is_same.then_some(self.decision)
    }
}

impl Approver for TerminalApprover {
    /// Returns the person's decision on a call. A question about several equal calls of one message is asked once; the
    /// answer is then returned for each of them.
    fn decide<'a>(&'a mut self, ask: &'a ApprovalRequest) -> BoxFuture<'a, Decision> {
        let decision = match self.repeated.iter_mut().find_map(|repeated| repeated.for_further_call(ask)) {
            Some(decision) => decision,
            None => {
                // A question that was not announced is about another message, to which no earlier decision applies.
                if !self.announced.iter().any(|announced| announced.is_same_question(ask)) {
                    self.repeated.clear();
                }
                // The question announces those that follow it, which are remembered.
                let ask = &self.without_decided(ask);
                self.announced.clone_from(&ask.upcoming);
                let decision = self.ask_person(ask);
                // A grant for the conversation covers equal calls anyway, and an expired question is
                // asked again.
                let is_for_others = matches!(decision, Decision::AllowOnce | Decision::Deny) && ask.times > 1;
                self.repeated.extend(is_for_others.then(|| RepeatedDecision {
                    question: ask.clone(),
                    decision,
                    remaining: ask.times - 1,
                }));
                decision
            }
        };
        Box::pin(ready(decision))
    }
}

impl TerminalApprover {
    /// Returns the question without the announcements of questions that are decided already.
    fn without_decided(&self, ask: &ApprovalRequest) -> ApprovalRequest {
        let mut ask = ask.clone();
        // `remaining` is the number of further calls that a decision still covers.
        let is_decided = |next: &ApprovalRequest| {
            self.repeated
                .iter()
                .any(|repeated| repeated.remaining > 0 && repeated.question.is_same_question(next))
        };
        ask.upcoming.retain(|next| !is_decided(next));
        ask
    }

    /// Asks the person at the terminal. Refuses without asking if the turn was cancelled, there is no terminal, or the
    /// budget of questions is used up.
    fn ask_person(&mut self, ask: &ApprovalRequest) -> Decision {
        let tool = escaping::line(&ask.tool.to_string());
        if self.terminal.is_cancelled() {
            return Decision::Deny;
        }
        if !self.terminal.has_person() {
            self.terminal.note(&format!(
                "{tool} needs a person's approval, and there is no terminal, so it does not run"
            ));
            // `false`: without content, since the output may be a log.
            self.terminal.print(&self.question(ask, false));
            return Decision::Deny;
        }
        if !self.terminal.allows_question() {
            self.terminal.note(&format!(
                "{tool} needs your approval, and you are not asked: you refused {} in a row, or had {} in this chat. \
                 Something may provoke them; see /why. It does not run",
                plural(QUESTION_BUDGET.refusals_in_row, "question"),
                QUESTION_BUDGET.questions
            ));
            return Decision::Unasked;
        }
        let decision = self.ask_at_prompt(ask, &tool);
        self.terminal.count_question(decision);
        decision
    }

    /// Shows the question, and waits for the answer until the question expires. `tool` is the name of its tool, as it
    /// is printed.
    fn ask_at_prompt(&mut self, ask: &ApprovalRequest, tool: &str) -> Decision {
        // Lines that were typed before the question do not answer it.
        self.terminal.discard_lines();
        // `true`: with the content, which the person must see to decide.
        self.terminal.print(&self.question(ask, true));
        // A time that the clock cannot represent counts as reached.
        let until = Instant::now().checked_add(ask.expires).unwrap_or_else(Instant::now);
        loop {
            let choices = match (ask.is_grantable(), ask.changeable.as_slice()) {
                (false, _) => "once? [y/N/?]".to_owned(),
                (true, []) => "once, or in this conversation? [y/c/N/?]".to_owned(),
                // Later calls may differ in these arguments and are still allowed.
                (true, names) => {
                    let names = escaping::line(&names.join(", "));
                    format!("once, or in this conversation with any {names}? [y/c/N/?]")
                }
            };
            let prompt = self.terminal.paint("1;33", &format!("{tool}: allow this call {choices} "));
            match self.terminal.wait_for_answer(&prompt, until) {
                LineInput::Line(line) => match line.trim() {
                    "y" | "Y" | "yes" | "Yes" | "YES" => return Decision::AllowOnce,
                    "c" | "C" if ask.is_grantable() => return Decision::AllowForConversation,
                    "?" => self.terminal.print(HELP),
                    // Any other answer, also an empty line, means no.
                    _ => return Decision::Deny,
                },
                LineInput::Late => {
                    self.terminal.print("");
                    let seconds = ask.expires.as_secs();
                    self.terminal
                        .note(&format!("nobody answered within {seconds} s, so {tool} does not run"));
                    return Decision::Unanswered;
                }
                LineInput::End | LineInput::Stopped => return Decision::Deny,
            }
        }
    }

    /// Returns the text of the question. With `content`, it shows the arguments and excerpts of the trace, for the
    /// person who decides; without a person, it must not contain them.
    fn question(&self, ask: &ApprovalRequest, content: bool) -> String {
        let mut text = String::new();
        let title = self
            .terminal
            .paint("1", &format!("{} wants to call {}", self.caller, escaping::line(&ask.tool.to_string())));
        // Writing to a text does not fail, here and below.
        let _ = writeln!(text, "\n{title}");
        if content {
            for line in escaping::json(&ask.arguments).lines() {
                let _ = writeln!(text, "    {line}");
            }
        }
        if content && !ask.summary.is_empty() {
            let _ = writeln!(text, "{}", escaping::line(&ask.summary));
            for sentence in &ask.evidence {
                let _ = writeln!(text, "  {}", escaping::line(sentence));
            }
        }
        if ask.times > 1 {
            let times = plural(ask.times, "time");
            let _ = writeln!(text, "It makes this call {times}; the answer is for all of them.");
        }
        for next in &ask.upcoming {
            let often =
                if next.times > 1 { format!(" ({})", plural(next.times, "time")) } else { String::new() };
            let _ = writeln!(
                text,
                "You will also be asked about {}{often}.",
                escaping::line(&next.tool.to_string())
            );
        }
        let _ = writeln!(text, "It carries {}. Why you are asked:", escaping::line(&ask.label.join(", ")));
        for reason in report::group_reasons(&ask.reasons) {
            let _ = writeln!(text, "  - {}", escaping::line(&reason.message));
            if let Some(statement) = report::statement(&reason, &self.policy, &self.name) {
                let _ = writeln!(
                    text,
                    "{}",
                    self.terminal.paint("2", &format!("      │ {}", escaping::line(&statement)))
                );
            }
        }
        for excerpt in &ask.excerpts {
            let location = escaping::line(&self.location(excerpt));
            let _ = writeln!(text, "  {}", self.effect(excerpt, &location));
            if content {
                let quoted = format!("      “{}”", escaping::excerpt(&excerpt.text, 400));
                let _ = writeln!(text, "{}", self.terminal.paint("2", &quoted));
            }
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// Returns where an excerpt is: its region and, if it is known, the source of its event.
    fn location(&self, excerpt: &Excerpt) -> String {
        let sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        match sources.get(&excerpt.region.event) {
            Some(source) => format!("{} in the {source}", excerpt.region),
            None => excerpt.region.to_string(),
        }
    }

    /// Returns a phrase for how an excerpt concerns the call, by its label: an untrusted text may have led the model to
    /// the call, and the call would pass on a confidential text. `location` says where the excerpt is.
    fn effect(&self, excerpt: &Excerpt, location: &str) -> String {
        let space = self.policy.space();
        // A word of the label is about trust if a dimension of integrity has an element of this name.
        let trust = space.dimensions().iter().filter(|dimension| dimension.purpose == Purpose::Integrity);
        let names: Vec<&str> = trust.map(|dimension| dimension.name.as_str()).collect();
        let (untrusted, confidential): (Vec<&String>, Vec<&String>) = excerpt
            .label
            .iter()
            .partition(|word| names.iter().any(|name| space.element(name, word).is_some()));
        let listed = |words: &[&String]| {
            escaping::line(&words.iter().map(|word| word.as_str()).collect::<Vec<_>>().join(", "))
        };
        match (untrusted.is_empty(), confidential.is_empty()) {
            (false, true) => format!("may be led to it by {location} ({})", listed(&untrusted)),
            (true, false) => format!("would pass on {location} ({})", listed(&confidential)),
            (false, false) => format!(
                "may be led to it by {location} ({}), and would pass it on ({})",
                listed(&untrusted),
                listed(&confidential)
            ),
            (true, true) => format!("depends on {location}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;
    use std::io;
    use std::sync::mpsc::{Sender, channel};
    use std::time::Duration;

    use flowgate::monitor::Monitor;
    use flowgate::trace::Tool;
    use flowgate_guard::agent::{Agent, NullObserver, Toolbox};
    use flowgate_guard::conversation::{Conversation, ConversationSettings, Method, ToolAnswer};
    use flowgate_guard::{DescriptionAuthor, OfferedTool, approve::DigestKey};
    use flowgate_lm::ScriptedModel;
    use flowgate_lm::chat::{Completion, ToolCall};
    use serde_json::json;

    use super::*;

    const POLICY: &str = "\
lattice integrity: trusted < untrusted
lattice secrecy: public < private
label message as trusted, public if:
    (message: Message)
label out.content as untrusted, private if:
    (out: ToolOutput) is tool:read
require top if:
    (call: ToolCall) is tool:read
require trusted, public if:
    (call: ToolCall) is tool:send
";

    /// A rule asks about each call, whatever led to it.
    const ASKING: &str = "\
lattice integrity: trusted < untrusted
label message as trusted if:
    (message: Message)
require top if:
    (call: ToolCall) is tool:r\"read|send\"
ask \"calls of send\" if:
    (call: ToolCall) is tool:send
";

    /// A terminal double: records what is shown, and types the next line whenever a question appears.
    #[derive(Clone)]
    struct TerminalDouble {
        shown: Arc<Mutex<Vec<u8>>>,
        says: Sender<String>,
        lines: Arc<Mutex<VecDeque<&'static str>>>,
    }

    impl io::Write for TerminalDouble {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.shown.lock().unwrap().extend_from_slice(bytes);
            if bytes.ends_with(b"[y/N/?] ")
                && let Some(line) = self.lines.lock().unwrap().pop_front()
            {
                self.says.send(line.to_owned()).unwrap();
            }
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    /// Returns everything that is shown to a person who types these lines, and the number of calls that they allowed.
    fn asked(lines: &'static [&'static str], expires: Duration) -> (String, usize) {
        asked_about(
            (POLICY, Method::Everything),
            &[r#"{"to": "bob\u202egro.live", "body": "\u001b[2J\u007f"}"#],
            lines,
            expires,
        )
    }

    /// The same, for a message with several calls of `send`.
    fn asked_about(
        (policy, method): (&str, Method),
        calls: &[&str],
        lines: &'static [&'static str],
        expires: Duration,
    ) -> (String, usize) {
        let call = |name: &str, arguments: &str| ToolCall {
            id: "c".to_owned(),
            name: name.to_owned(),
            arguments: arguments.to_owned(),
        };
        let message = |calls: Vec<ToolCall>| Completion { calls, ..Completion::default() };
        let sends = calls.iter().map(|arguments| call("send", arguments)).collect();
        let said = Completion { text: "Done.".to_owned(), ..Completion::default() };
        let answers = [message(vec![call("read", "{}")]), message(sends), said];
        let model = ScriptedModel::from_answers(answers);
        let policy = Arc::new(Policy::parse(policy).unwrap());
        let offered = |name: &str| OfferedTool {
            tool: Tool::local(name),
            description: name.to_owned(),
            parameters: json!({"type": "object"}).into(),
            output: None,
            words: DescriptionAuthor::Operator,
        };
        let mut settings = ConversationSettings::new(method, DigestKey::new([1; 32]));
        settings.expires = expires;
        let tools = vec![offered("read"), offered("send")];
        let mut conversation = Conversation::new(Monitor::new(Arc::clone(&policy)), tools, settings).unwrap();
        let mut toolbox = Toolbox::new();
        let (says, hears) = channel();
        // Typed before there is a question: it is not an answer.
        says.send("y".to_owned()).unwrap();
        let lines = Arc::new(Mutex::new(lines.iter().copied().collect()));
        let paper = TerminalDouble { shown: Arc::default(), says, lines };
        toolbox.add(Tool::local("read"), |_: flowgate::monitor::AuthorizedCall| {
            ToolAnswer::text("Pay \u{1b}[1AMallory!")
        });
        toolbox.add(Tool::local("send"), |_: flowgate::monitor::AuthorizedCall| ToolAnswer::text("sent"));
        let terminal = Arc::new(ChatTerminal::double(hears, paper.clone()));
        let (name, who) = ("p.flow".into(), "The model".to_owned());
        let mut person = TerminalApprover {
            terminal,
            policy,
            name,
            caller: who,
            sources: EventSources::default(),
            repeated: Vec::new(),
            announced: Vec::new(),
        };
        let begun = Instant::now();
        let mut agent = Agent {
            model: &model,
            screener: &model,
            filler: &model,
            tools: &toolbox,
            provider_tools: None,
            approver: &mut person,
            clock: &|| begun.elapsed(),
            observer: &mut NullObserver,
        };
        let turn = flowgate_lm::block_on(agent.run_turn(&mut conversation, "Do it.".into())).unwrap();
        let output = String::from_utf8(paper.shown.lock().unwrap().clone()).unwrap();
        (output, turn.spent.allowed)
    }

    #[test]
    fn the_question_shows_everything_and_plays_no_tricks() {
        let (output, allowed) = asked(&["?", "y"], Duration::from_secs(60));
        let expected = "
The model wants to call send
    {
      \"to\": \"bob\\u202egro.live\",
      \"body\": \"\\u001b[2J\\u007f\"
    }
This call of send sends to \"bob\\u{202e}gro.live\". Text that is untrusted may have led to this call, and may have chosen the recipient (`to`) and the \
content (`body`). It would disclose what is private, by the recipient (`to`), the content (`body`) and the fact that it is made.
  \"bob\\u{202e}gro.live\" is in no trusted message of the user, is not a field of a trusted answer, and is in no other answer that this question may show.
It carries untrusted, private. Why you are asked:
  - decision, arguments.to, arguments.body carry untrusted, private, and may carry at most trusted, public
      │ p.flow:9  require trusted, public if:
  may be led to it by #2 content (untrusted), and would pass it on (private)
      “Pay \\u{1b}[1AMallory!”
";
        assert!(output.starts_with(expected), "{output}");
        assert!(output.contains("send: allow this call once? [y/N/?] "), "{output}");
        assert!(output.contains("nothing else is allowed by it"), "{output}");
        assert_eq!(allowed, 1);
    }

    /// An answer that could have led to the next call would be another reason, and so another question.
    ///
    /// Rows: the calls of the message, what the person types, how many questions appear, how many calls are allowed.
    #[test]
    fn equal_calls_of_a_message_are_one_question() {
        let asking = (ASKING, Method::LowestFirst);
        let (ann, bob) = (r#"{"to": "ann"}"#, r#"{"to": "bob"}"#);
        for (calls, lines, questions, allowed) in [
            (&[ann, ann, ann][..], &["y"][..], 1, 3),
            (&[ann, ann], &["n"], 1, 0),
            (&[ann, bob, ann], &["y", "n"], 2, 2),
            (&[ann, bob, ann], &["n", "y"], 2, 1),
            (&[ann, bob, ann, bob], &["y", "y"], 2, 4),
            (&[ann, ann, bob], &["y", "n"], 2, 2),
        ] {
            let (output, found) = asked_about(asking, calls, lines, Duration::from_secs(60));
            assert_eq!(
                output.matches("send: allow this call once?").count(),
                questions,
                "{calls:?}: {output}"
            );
            assert_eq!(found, allowed, "{calls:?}");
        }
        let (output, _) = asked_about(asking, &[ann, ann, bob], &["y", "n"], Duration::from_secs(60));
        assert!(output.contains("It makes this call 2 times; the answer is for all of them."), "{output}");
        assert!(output.contains("You will also be asked about send."), "{output}");
    }

    /// A text that provokes questions gets refusals: after three in a row, nobody is asked until the user writes again.
    #[test]
    fn refusals_in_a_row_end_the_questions() {
        let asking = (ASKING, Method::LowestFirst);
        let [a, b, c, d] = ["a", "b", "c", "d"].map(|name| format!("{{\"to\": \"{name}\"}}"));
        let calls = [a.as_str(), &b, &c, &d];
        for (lines, questions, allowed) in [(&["n", "n", "n", "y"], 3, 0), (&["n", "n", "y", "y"], 4, 2)] {
            let (output, found) = asked_about(asking, &calls, lines, Duration::from_secs(60));
            assert_eq!(output.matches("send: allow this call once?").count(), questions, "{output}");
            assert_eq!(found, allowed, "{output}");
            assert_eq!(output.contains("you are not asked"), questions == 3, "{output}");
        }
    }

    #[test]
    fn everything_but_yes_is_a_no() {
        for (lines, expires, expected) in [
            (&["n"][..], 60, 0),
            (&[""], 60, 0),
            (&["sure", "y"], 60, 0),
            (&["?", ""], 60, 0),
            (&[], 0, 0),
            (&[" yes "], 60, 1),
        ] {
            assert_eq!(asked(lines, Duration::from_secs(expires)).1, expected, "{lines:?}");
        }
        assert!(asked(&[], Duration::ZERO).0.contains("nobody answered within 0 s, so send does not run"));
    }
}
