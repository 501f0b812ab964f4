//! Generates the policy that the measured gateway enforces: fifty statements, with two lattices and three stores, for
//! an agent with mails, files, money and the web.

/// The tools whose output is untrusted.
const READERS: [&str; 4] = ["read_mail", "search_web", "read_page", "read_file"];
/// The tools that act.
const ACTORS: [&str; 4] = ["send_mail", "pay", "post_note", "write_file"];
/// Texts that no answer contains; the policy has a rule about each.
const WORDS: [&str; 4] = ["hunter2", "BEGIN PRIVATE KEY", "account number", "password is"];

/// The number of statements; rules that never match complete it.
pub(crate) const STATEMENTS: usize = 50;

/// Returns the text of the policy. With rules over the model's messages, the gateway sends nothing of a text before it is
/// complete; `has_message_rules` includes them.
pub(crate) fn text(has_message_rules: bool) -> String {
    let mut statements = vec![
        "label message as trusted, public if:\n    (message: Message)\n    message.role in [\"system\", \"user\"]"
            .to_owned(),
        "label tool as trusted, public if:\n    (tool: Tool)".to_owned(),
    ];
    for reader in READERS {
        let secrecy = if matches!(reader, "search_web" | "read_page") { "public" } else { "internal" };
        statements.push(format!(
            "label out.content as untrusted, {secrecy} if:\n    (out: ToolOutput) is tool:{reader}"
        ));
        statements.push(format!("require top if:\n    (call: ToolCall) is tool:{reader}"));
    }
    for actor in ACTORS {
        statements
            .push(format!("label out.content as trusted, public if:\n    (out: ToolOutput) is tool:{actor}"));
        statements.push(format!("require trusted, internal if:\n    (call: ToolCall) is tool:{actor}"));
        statements.push(format!("payload call.arguments.body if:\n    (call: ToolCall) is tool:{actor}"));
    }
    for (index, word) in WORDS.iter().enumerate() {
        statements.extend(has_message_rules.then(|| format!(
            "raise \"no secrets in answers, {index}\" if:\n    (message: Message)\n    message.role == \"assistant\"\n    \"{word}\" in message.content"
        )));
        statements.push(format!(
            "raise \"no secrets in calls, {index}\" if:\n    (call: ToolCall)\n    \"{word}\" in call.arguments.body"
        ));
    }
    for reader in READERS {
        for actor in ACTORS {
            statements.push(format!(
                "ask \"{actor} after {reader}?\" if:\n    (read: ToolOutput) -> (call: ToolCall)\n    read is tool:{reader}\n    call is tool:{actor}\n    \"urgent\" in read.content"
            ));
        }
        statements.push(format!(
            "raise \"{reader} decides who is paid\" if:\n    (read: ToolOutput) => (call: ToolCall)\n    read is tool:{reader}\n    call is tool:pay"
        ));
    }
    assert!(statements.len() <= STATEMENTS);
    for index in statements.len()..STATEMENTS {
        statements.push(format!(
            "log \"a note, {index}\" if:\n    (message: Message)\n    \"note {index} of\" in message.content"
        ));
    }
    format!(
        "lattice integrity: trusted < untrusted\nlattice secrecy: public < internal < secret\n\n\
         store mail: written by send_mail, read by read_mail\nstore files: written by write_file, read by read_file\n\
         store money: written by pay, read by get_balance\n\n{}\n",
        statements.join("\n\n")
    )
}
