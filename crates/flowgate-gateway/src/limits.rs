//! Every bound on what a client can make the server do.

use std::time::Duration;

/// Bounds in number, size and time. The defaults suit one service beside one fleet of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Limits {
    /// Bytes of one body.
    pub body: usize,
    /// Bytes of all bodies that are being read or evaluated.
    pub bodies: usize,
    /// Bytes that the values of all bodies may take that are being evaluated, as [`weight`] estimates them. One body may take a
    /// quarter of that.
    pub values: usize,
    /// Open connections; more wait to be accepted.
    pub connections: usize,
    /// Evaluations at the same time.
    pub workers: usize,
    /// Evaluations that wait for a worker; more are refused.
    pub queue: usize,
    /// Policies of one batch.
    pub batch: usize,
    /// Steps of evaluation for one request; the policies of a batch share them evenly.
    pub fuel: u64,
    /// Compiled policies that are kept.
    pub cached_policies: usize,
    /// Bytes of the compiled policies that are kept.
    pub cached_bytes: usize,
    /// Turns of agents at the same time.
    pub turns: usize,
    /// Streams of what MCP servers say unasked, at the same time.
    pub streams: usize,
    /// Time for a turn of an agent, with all that models take for it.
    pub turn_time: Duration,
    /// Time for the head of a request, and for the pause before the next request of a connection.
    pub head_time: Duration,
    /// Time for a body to arrive.
    pub body_time: Duration,
    /// Time for an answer, from the moment when the body is there.
    pub answer_time: Duration,
    /// Time for a client to take a part of the answer.
    pub write_time: Duration,
    /// Time for requests to end when the server stops.
    pub drain_time: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body: 8 << 20,
            bodies: 64 << 20,
            values: 1 << 30,
            connections: 256,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            queue: 64,
            batch: 256,
            fuel: flowgate::analysis::Options::default().fuel,
            cached_policies: 256,
            cached_bytes: 64 << 20,
            turns: 256,
            streams: 128,
            turn_time: Duration::from_secs(600),
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(20),
            answer_time: Duration::from_secs(30),
            write_time: Duration::from_secs(20),
            drain_time: Duration::from_secs(10),
        }
    }
}

/// What a body takes for each byte: it is read, compared, labelled and kept.
const FOR_A_BYTE: usize = 24;
/// What it takes for each value and each key, however short: measured, with some room.
const FOR_A_VALUE: usize = 400;

/// How many bytes of memory a JSON body takes while it is evaluated, roughly. Many short values take much more than the bytes that they
/// are written in.
pub fn weight(body: &[u8]) -> usize {
    let (mut values, mut is_text, mut is_escaped) = (1_usize, false, false);
    for byte in body {
        match (is_text, byte) {
            (true, _) if is_escaped => is_escaped = false,
            (true, b'\\') => is_escaped = true,
            (true, b'"') => is_text = false,
            (true, _) => {}
            (false, b'"') => is_text = true,
            (false, b',' | b':' | b'[' | b'{') => values = values.saturating_add(1),
            (false, _) => {}
        }
    }
    body.len().saturating_mul(FOR_A_BYTE).saturating_add(values.saturating_mul(FOR_A_VALUE))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_weigh_more_than_their_bytes() {
        let check = |body: &str, values: usize| {
            assert_eq!(weight(body.as_bytes()), body.len() * FOR_A_BYTE + values * FOR_A_VALUE, "{body}");
        };
        check("", 1);
        check("1", 1);
        check("[1,2]", 3);
        check(r#"{"a":[],"b":{}}"#, 7);
        // What stands in a text is no value.
        check(r#""a,b:[{""#, 1);
        check(r#"["\",[","\\",1]"#, 4);
        check("[[[[", 5);
    }
}
