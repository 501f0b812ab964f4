//! Defines the bounds on what a client can make the gateway do, such as the bytes of a body or the number of concurrent
//! turns ([`ServerLimits`]), and estimates how much memory a JSON body takes. The HTTP service enforces the bounds, and
//! the options of `flowgate serve` set most of them.

#[cfg(test)]
mod documented;

use std::time::Duration;

/// Bounds in number, size and time. The defaults suit one service with one fleet of agents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServerLimits {
    /// Bytes of one body.
    pub body: usize,
    /// Bytes of all bodies that are being read or evaluated.
    pub bodies: usize,
    /// Bytes of memory for the values of all bodies, answers of servers and conversations in use, as
    /// [`estimated_memory`] estimates them. One body or answer may take a quarter of that.
    pub values: usize,
    /// Open connections; more wait to be accepted.
    pub connections: usize,
    /// Open connections of one address that have not shown a valid key; 0 means no separate bound, for a gateway
    /// behind a proxy.
    pub connections_of_address: usize,
    /// Concurrent evaluations for the policy API and for people.
    pub workers: usize,
    /// Evaluations that wait for a worker; more are rejected.
    pub queue: usize,
    /// Policies of one batch.
    pub batch: usize,
    /// The fuel of one request; the policies of a batch share it evenly.
    pub fuel: u64,
    /// Compiled policies in the cache.
    pub cached_policies: usize,
    /// Bytes of the compiled policies in the cache.
    pub cached_bytes: usize,
    /// Concurrent turns of agents.
    pub turns: usize,
    /// Concurrent messages to MCP servers.
    pub exchanges: usize,
    /// Concurrent streams of unsolicited messages of MCP servers.
    pub streams: usize,
    /// The time for a turn of an agent, including all requests to models.
    pub turn_time: Duration,
    /// The time for the head of a request, and for the pause before the next request of a connection.
    pub head_time: Duration,
    /// The time for a body to arrive.
    pub body_time: Duration,
    /// The time for an evaluation by a worker, for the policy API or for people, after the body has arrived.
    pub answer_time: Duration,
    /// The time for a client to accept a part of the answer.
    pub write_time: Duration,
    /// The time for open requests to end when the server stops.
    pub drain_time: Duration,
}

impl Default for ServerLimits {
    /// Returns limits that suit one service with one fleet of agents. Those that end in `<< 20` are MiB in bytes, and
    /// the others without a duration are numbers of objects or, for `fuel`, of evaluation steps.
    fn default() -> Self {
        Self {
            body: 8 << 20,
            bodies: 64 << 20,
            values: 1280 << 20,
            connections: 8192,
            connections_of_address: 64,
            workers: std::thread::available_parallelism().map_or(1, usize::from),
            queue: 64,
            batch: 256,
            fuel: flowgate::analysis::AnalysisOptions::default().fuel,
            cached_policies: 256,
            cached_bytes: 64 << 20,
            turns: 8192,
            exchanges: 8192,
            streams: 1024,
            turn_time: Duration::from_secs(600),
            head_time: Duration::from_secs(10),
            body_time: Duration::from_secs(20),
            answer_time: Duration::from_secs(30),
            write_time: Duration::from_secs(20),
            drain_time: Duration::from_secs(10),
        }
    }
}

/// The bytes of memory for each byte of a body, which is parsed, compared, labelled and stored.
const MEMORY_OF_A_BYTE: usize = 36;
/// The bytes of memory for each byte of a character outside ASCII: such text is compared in more forms.
const MEMORY_OF_A_BYTE_BEYOND_ASCII: usize = 64;
/// The bytes of memory for each value and each key, however short: measured, with some margin.
const MEMORY_OF_A_VALUE: usize = 420;

/// Estimates the bytes of memory that a JSON body takes while it is evaluated. Each byte counts several times, more so
/// outside ASCII, and each value or key counts in addition: many short values take much more than their bytes.
pub fn estimated_memory(body: &[u8]) -> usize {
    let beyond_ascii = body.iter().filter(|byte| !byte.is_ascii()).count();
    let text = (body.len() - beyond_ascii).saturating_mul(MEMORY_OF_A_BYTE);
    let text = text.saturating_add(beyond_ascii.saturating_mul(MEMORY_OF_A_BYTE_BEYOND_ASCII));
    text.saturating_add(count_values(body).saturating_mul(MEMORY_OF_A_VALUE))
}

/// Returns an upper bound of the number of values and keys in a JSON text: counts its commas, colons and opening
/// brackets outside strings, without parsing it.
pub(crate) fn count_values(json: &[u8]) -> usize {
    // The outermost value is preceded by nothing, so the count begins at 1. `is_text` is true within a string, and
    // `is_escaped` after a backslash there.
    let (mut values, mut is_text, mut is_escaped) = (1_usize, false, false);
    for byte in json {
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
    values
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_values_weigh_more_than_their_bytes() {
        let check = |body: &str, values: usize| {
            assert_eq!(
                estimated_memory(body.as_bytes()),
                body.len() * MEMORY_OF_A_BYTE + values * MEMORY_OF_A_VALUE,
                "{body}"
            );
        };
        check("", 1);
        check("1", 1);
        check("[1,2]", 3);
        check(r#"{"a":[],"b":{}}"#, 7);
        let beyond = MEMORY_OF_A_VALUE + 2 * MEMORY_OF_A_BYTE + 2 * MEMORY_OF_A_BYTE_BEYOND_ASCII;
        assert_eq!(estimated_memory("\"\u{e9}\"".as_bytes()), beyond);
        // The content of a string has no values.
        check(r#""a,b:[{""#, 1);
        check(r#"["\",[","\\",1]"#, 4);
        check("[[[[", 5);
    }
}
