//! Reads and writes the header `traceparent` of W3C Trace Context, by which a client says to which trace its request
//! belongs.
//!
//! `telemetry` reads it from requests of clients, and a [`Span`](super::span::Span) writes it for requests to
//! upstreams. The header `tracestate` is not read: it is text that others chose.

use axum::http::HeaderMap;
use opentelemetry::trace::{SpanContext, SpanId, TraceFlags, TraceId, TraceState};

use crate::random::hex;

/// The header.
pub(crate) const TRACE_PARENT: &str = "traceparent";
/// The length of a value of version 00.
const LENGTH: usize = 55;
/// The longest value of a later version that is read: only its beginning is used.
const MAX_LENGTH: usize = 128;

/// Reads from the headers of a request to which span of its client the request belongs. `None` if there is no such
/// header, there are several, or the value does not have the prescribed form.
pub(crate) fn read(headers: &HeaderMap) -> Option<SpanContext> {
    let mut values = headers.get_all(TRACE_PARENT).iter();
    match (values.next(), values.next()) {
        (Some(value), None) => parse(value.as_bytes()),
        _ => None,
    }
}

/// Parses `VERSION-TRACE-SPAN-FLAGS`, in lower-case hexadecimal; `None` if the value does not have this form, or if the
/// id of the trace or of the span is 0, which the standard forbids.
fn parse(value: &[u8]) -> Option<SpanContext> {
    let (head, rest) = value.split_at_checked(LENGTH)?;
    let mut parts = head.split(|byte| *byte == b'-');
    let mut part = |length: usize| parts.next().filter(|part| part.len() == length);
    let [version, trace, span, flags] = [part(2)?, part(32)?, part(16)?, part(2)?];
    let version = number(version)?;
    let is_known_form = match version {
        0 => rest.is_empty(),
        // The standard forbids this version.
        255 => false,
        // A later version may have more parts.
        _ => value.len() <= MAX_LENGTH && rest.first().is_none_or(|byte| *byte == b'-'),
    };
    let (trace, span) = (TraceId::from(number(trace)?), SpanId::from(u64::try_from(number(span)?).ok()?));
    // Of the flags, only the one that says whether the trace is recorded is used.
    let is_sampled = number(flags)? & 1 == 1;
    let flags = if is_sampled { TraceFlags::SAMPLED } else { TraceFlags::default() };
    // The span is one of the client.
    let is_remote = true;
    let context = SpanContext::new(trace, span, flags, is_remote, TraceState::default());
    (is_known_form && context.is_valid()).then_some(context)
}

/// Parses a number in lower-case hexadecimal; `None` if there is another character, or the number has over 128 bits.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0_u128, |number, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        number.checked_mul(16)?.checked_add(u128::from(value))
    })
}

/// Returns the value of the header for a request that belongs to this span.
pub(crate) fn write(context: &SpanContext) -> String {
    let (trace, span) = (hex(&context.trace_id().to_bytes()), hex(&context.span_id().to_bytes()));
    // Version 0. Of the flags, only the one that says whether the trace is recorded is passed on.
    format!("00-{trace}-{span}-{:02x}", context.trace_flags().to_u8() & 1)
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const SPAN: &str = "00f067aa0ba902b7";

    #[test]
    fn values_are_read_or_ignored() {
        let check = |value: &str, expected: Option<bool>| {
            let read = parse(value.as_bytes());
            assert_eq!(read.as_ref().map(SpanContext::is_sampled), expected, "{value}");
            if let Some(read) = read {
                let flags = if read.is_sampled() { "01" } else { "00" };
                assert_eq!(write(&read), format!("00-{TRACE}-{SPAN}-{flags}"), "{value}");
                assert!(read.is_remote());
            }
        };
        check(&format!("00-{TRACE}-{SPAN}-01"), Some(true));
        check(&format!("00-{TRACE}-{SPAN}-00"), Some(false));
        // Other flags mean nothing to the gateway, and are not passed on.
        check(&format!("00-{TRACE}-{SPAN}-ff"), Some(true));
        check(&format!("00-{TRACE}-{SPAN}-02"), Some(false));
        check(&format!("cc-{TRACE}-{SPAN}-01"), Some(true));
        check(&format!("cc-{TRACE}-{SPAN}-01-what-comes-later"), Some(true));
        check(&format!("cc-{TRACE}-{SPAN}-01{}", "-".repeat(MAX_LENGTH)), None);
        check(&format!("cc-{TRACE}-{SPAN}-01."), None);
        check(&format!("00-{TRACE}-{SPAN}-01-more"), None);
        check(&format!("ff-{TRACE}-{SPAN}-01"), None);
        check(&format!("00-{}-{SPAN}-01", TRACE.to_uppercase()), None);
        check(&format!("00-{}-{SPAN}-01", "0".repeat(32)), None);
        check(&format!("00-{TRACE}-{}-01", "0".repeat(16)), None);
        check(&format!("00-{TRACE}-{SPAN}-0"), None);
        check(&format!("00-{TRACE}-{SPAN}-+1"), None);
        check(&format!("00-{TRACE}_{SPAN}-01"), None);
        check(&format!("00_{TRACE}-{SPAN}-01"), None);
        check(&format!("00-{SPAN}-{TRACE}-01"), None);
        check("", None);
        check("00-é", None);
        check(&"é".repeat(60), None);
    }

    #[test]
    fn a_header_that_occurs_twice_is_ignored() {
        let mut headers = HeaderMap::new();
        assert!(read(&headers).is_none());
        let value = format!("00-{TRACE}-{SPAN}-01");
        headers.append(TRACE_PARENT, HeaderValue::from_str(&value).unwrap());
        assert!(read(&headers).is_some());
        headers.append(TRACE_PARENT, HeaderValue::from_str(&value).unwrap());
        assert!(read(&headers).is_none());
    }
}
