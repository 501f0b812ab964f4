//! Defines [`Assembly`], which assembles a completion from the pieces of a streamed answer, and passes each readable
//! piece to a listener. The stream decoders of all formats call it.
//!
//! This module also owns the limits on the size of one answer, on its calls and on the parts of its reasoning, so that
//! a server cannot use up the memory. A method that adds a piece fails if the answer then exceeds a limit, and with
//! [`Error::Cancelled`] if the listener cancels.

use crate::Error;
use crate::chat::{Completion, ReasoningPart, Seal, ToolCall};
use crate::model::{Delta, Listener};

/// The most bytes of one answer.
pub(crate) const MAX_ANSWER: usize = 16 << 20;
/// The most calls of one answer.
pub(crate) const MAX_CALLS: usize = 256;
/// The most parts of the reasoning of one answer.
pub(crate) const MAX_THOUGHTS: usize = 4096;

/// The completion so far: what the listener has received, and the signatures of the reasoning.
#[derive(Debug, Default)]
pub(super) struct Assembly {
    /// The parts of the answer that have arrived. The decoder itself sets the stop reason and the usage.
    pub(super) completion: Completion,
    /// The bytes of the answer so far, at most [`MAX_ANSWER`].
    bytes: usize,
}

impl Assembly {
    /// Adds `bytes`, the size of the next piece, to the size of the answer. Fails if the answer becomes larger than
    /// [`MAX_ANSWER`].
    fn check_size(&mut self, bytes: usize) -> Result<(), Error> {
        self.bytes = self.bytes.saturating_add(bytes);
        if self.bytes > MAX_ANSWER { Err(Error::TooLong(MAX_ANSWER)) } else { Ok(()) }
    }

    /// Adds a piece of the text, and passes it to the listener. An empty piece is ignored. Fails if the answer becomes
    /// too large, or the listener cancels.
    pub(super) fn text(&mut self, piece: &str, listener: &mut dyn Listener) -> Result<(), Error> {
        if piece.is_empty() {
            return Ok(());
        }
        self.check_size(piece.len())?;
        self.completion.text.push_str(piece);
        send_delta(listener, Delta::Text(piece))
    }

    /// Begins a call of the tool `name`, and passes its id and name to the listener. Returns the index of the call,
    /// with which the caller adds the arguments later. If `id` is empty, the call receives an id, so that the tool's
    /// output can refer to it. Fails if `name` is empty, there are [`MAX_CALLS`] calls already, the answer becomes too
    /// large, or the listener cancels.
    pub(super) fn call(&mut self, id: &str, name: &str, listener: &mut dyn Listener) -> Result<usize, Error> {
        let index = self.completion.calls.len();
        if index >= MAX_CALLS {
            return Err(TOO_MANY_CALLS);
        }
        if name.is_empty() {
            return Err(Error::Malformed("a tool call of the answer has no `name`"));
        }
        self.check_size(id.len() + name.len())?;
        let call =
            ToolCall { id: call_id_or_index(id, index), name: name.to_owned(), arguments: String::new() };
        let sent = send_delta(listener, Delta::Call { index, id: &call.id, name });
        self.completion.calls.push(call);
        // `sent` is an error if the listener has cancelled.
        sent.map(|()| index)
    }

    /// Begins a part of the reasoning, with the texts and the seal that `thought` already has; the listener receives
    /// the texts. Returns the index of the part, with which the caller adds later pieces. Fails if there are
    /// [`MAX_THOUGHTS`] parts already, the answer becomes too large, or the listener cancels.
    pub(super) fn thought(
        &mut self,
        thought: ReasoningPart,
        listener: &mut dyn Listener,
    ) -> Result<usize, Error> {
        let index = self.completion.thoughts.len();
        if index >= MAX_THOUGHTS {
            return Err(TOO_MANY_THOUGHTS);
        }
        self.check_size(thought.size())?;
        for text in thought.texts.iter().filter(|text| !text.is_empty()) {
            send_delta(listener, Delta::Reasoning(text))?;
        }
        self.completion.thoughts.push(thought);
        Ok(index)
    }

    /// Adds a piece to the readable text of the part of the reasoning with this index, and passes it to the listener.
    /// Fails if there is no such part, the answer becomes too large, or the listener cancels.
    pub(super) fn thought_text(
        &mut self,
        index: usize,
        piece: &str,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        if piece.is_empty() {
            return Ok(());
        }
        self.check_size(piece.len())?;
        let thought = self.completion.thoughts.get_mut(index).ok_or(NO_THOUGHT)?;
        // A part that arrives in pieces has a single text.
        match thought.texts.first_mut() {
            Some(text) => text.push_str(piece),
            None => thought.texts.push(piece.to_owned()),
        }
        send_delta(listener, Delta::Reasoning(piece))
    }

    /// Adds a piece to the signature of the part of the reasoning with this index; by the signature, the model's server
    /// recognises the part when it is sent back. Fails if there is no such part, if the part was not begun with a
    /// signature as its seal, or if the answer becomes too large.
    pub(super) fn signature(&mut self, index: usize, piece: &str) -> Result<(), Error> {
        self.check_size(piece.len())?;
        match self.completion.thoughts.get_mut(index).map(|thought| &mut thought.seal) {
            Some(Seal::Signature(signature)) => signature.push_str(piece),
            _ => return Err(NO_THOUGHT),
        }
        Ok(())
    }

    /// Seals the part of the reasoning with this index by a whole signature, for a format that sends the signature in
    /// one piece; an earlier seal of the part is replaced. Fails if there is no such part, or the answer becomes too
    /// large.
    pub(super) fn sign_thought(&mut self, index: usize, signature: &str) -> Result<(), Error> {
        self.check_size(signature.len())?;
        let thought = self.completion.thoughts.get_mut(index).ok_or(NO_THOUGHT)?;
        thought.seal = Seal::Signature(signature.to_owned());
        Ok(())
    }

    /// Adds a piece of the arguments of the call with this index, and passes it to the listener. An empty piece is
    /// ignored. Fails if there is no such call, the answer becomes too large, or the listener cancels.
    pub(super) fn arguments(
        &mut self,
        index: usize,
        json: &str,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        if json.is_empty() {
            return Ok(());
        }
        self.check_size(json.len())?;
        let call = self.completion.calls.get_mut(index).ok_or(Error::Malformed(
            "an event of the stream adds arguments to a tool call that did not begin",
        ))?;
        call.arguments.push_str(json);
        send_delta(listener, Delta::Arguments { index, json })
    }

    /// Takes `json`, the complete arguments of the call with this index: some formats send them at the end of a call,
    /// after or instead of the pieces. If no pieces were sent, adds them to the call. Otherwise they must equal the
    /// pieces; fails if they differ, since it is then uncertain what the model called, or if there is no such call.
    pub(super) fn complete_arguments(
        &mut self,
        index: usize,
        json: &str,
        listener: &mut dyn Listener,
    ) -> Result<(), Error> {
        match self.completion.calls.get(index) {
            Some(call) if call.arguments.is_empty() => self.arguments(index, json, listener),
            Some(call) if call.arguments == json => Ok(()),
            _ => Err(Error::Malformed(
                "the final arguments of a tool call differ from the arguments that were streamed",
            )),
        }
    }
}

/// The error of an answer with more than [`MAX_CALLS`] calls.
pub(super) const TOO_MANY_CALLS: Error = Error::TooMany("256 tool calls; ask for fewer at a time");
/// The error of an answer with more than [`MAX_THOUGHTS`] parts of reasoning.
pub(super) const TOO_MANY_THOUGHTS: Error = Error::TooMany("4096 parts of reasoning; ask for less reasoning");
/// The error of an event that continues a part of the reasoning that does not exist, or that continues the signature of
/// a part that has none.
const NO_THOUGHT: Error = Error::Malformed(
    "an event of the stream continues reasoning that did not begin, or that has no signature",
);

/// Returns `id`, the id that the server sent for a call or, if `id` is empty, an id with the call's index: with random
/// ids, two equal answers would have different ids.
pub(super) fn call_id_or_index(id: &str, index: usize) -> String {
    if id.is_empty() { format!("call_{index}") } else { id.to_owned() }
}

/// Passes a piece to the listener; fails with [`Error::Cancelled`] if the listener cancels.
fn send_delta(listener: &mut dyn Listener, delta: Delta<'_>) -> Result<(), Error> {
    if listener.on_delta(delta).is_break() { Err(Error::Cancelled) } else { Ok(()) }
}
