//! Connections that send the head and the body of a request in one write.
//!
//! ureq writes them separately, which would wake the server twice.

use std::fmt;

use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectProxyConnector, ConnectionDetails, Connector, NextTimeout, RustlsConnector, Transport,
};

use super::socket::SocketConnector;

/// Creates the connector: directly or through a proxy, with TLS where the address requires it.
pub(super) fn connector() -> impl Connector {
    ().chain(ConnectProxyConnector::default())
        .chain(SocketConnector)
        .chain(RustlsConnector::default())
        .chain(HeadBodyConnector)
}

#[derive(Debug)]
struct HeadBodyConnector;

impl<In: Transport> Connector<In> for HeadBodyConnector {
    type Out = HeadBufferedTransport<In>;

    fn connect(&self, _: &ConnectionDetails<'_>, chained: Option<In>) -> Result<Option<Self::Out>, Error> {
        Ok(chained.map(|transport| HeadBufferedTransport { transport, head: Vec::new() }))
    }
}

/// A connection, and the head of a request that is held back until its body follows.
struct HeadBufferedTransport<T> {
    transport: T,
    head: Vec<u8>,
}

impl<T: Transport> fmt::Debug for HeadBufferedTransport<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The head contains the key.
        f.debug_struct("Connection").field("transport", &self.transport).finish_non_exhaustive()
    }
}

impl<T: Transport> HeadBufferedTransport<T> {
    /// Sends the held-back head and `piece`, which is in the output buffer, after it.
    fn send(&mut self, piece: usize, timeout: NextTimeout) -> Result<(), Error> {
        let head = std::mem::take(&mut self.head);
        let output = self.transport.buffers().output();
        let both = head.len() + piece;
        if both <= output.len() {
            output.copy_within(..piece, head.len());
            write_prefix(output, &head);
            return self.transport.transmit_output(both, timeout);
        }
        // A long body consists of many pieces, so that one more write does not matter.
        let piece = output.get(..piece).unwrap_or_default().to_vec();
        for part in [head, piece] {
            write_prefix(self.transport.buffers().output(), &part);
            self.transport.transmit_output(part.len(), timeout)?;
        }
        Ok(())
    }
}

fn write_prefix(output: &mut [u8], bytes: &[u8]) {
    if let Some(place) = output.get_mut(..bytes.len()) {
        place.copy_from_slice(bytes);
    }
}

/// Whether the output is the complete head of a POST request, which always has a body.
fn is_head(output: &[u8]) -> bool {
    output.starts_with(b"POST ") && output.ends_with(b"\r\n\r\n")
}

impl<T: Transport> Transport for HeadBufferedTransport<T> {
    fn buffers(&mut self) -> &mut dyn Buffers {
        self.transport.buffers()
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        if !self.head.is_empty() {
            return self.send(amount, timeout);
        }
        let output = self.transport.buffers().output().get(..amount).unwrap_or_default();
        if is_head(output) {
            self.head = output.to_vec();
            return Ok(());
        }
        self.transport.transmit_output(amount, timeout)
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        if !self.head.is_empty() {
            self.send(0, timeout)?;
        }
        self.transport.await_input(timeout)
    }

    fn is_open(&mut self) -> bool {
        self.head.is_empty() && self.transport.is_open()
    }

    fn is_tls(&self) -> bool {
        self.transport.is_tls()
    }
}

#[cfg(test)]
mod tests {
    use ureq::unversioned::transport::LazyBuffers;

    use super::*;

    /// A transport that records what is sent.
    #[derive(Debug)]
    struct RecordingTransport {
        buffers: LazyBuffers,
        sent: Vec<String>,
    }

    impl Transport for RecordingTransport {
        fn buffers(&mut self) -> &mut dyn Buffers {
            &mut self.buffers
        }

        fn transmit_output(&mut self, amount: usize, _: NextTimeout) -> Result<(), Error> {
            let output = self.buffers.output().get(..amount).unwrap();
            self.sent.push(String::from_utf8_lossy(output).into_owned());
            Ok(())
        }

        fn await_input(&mut self, _: NextTimeout) -> Result<bool, Error> {
            self.sent.push("?".to_owned());
            Ok(true)
        }

        fn is_open(&mut self) -> bool {
            true
        }
    }

    #[test]
    fn a_head_waits_for_its_body() {
        let check = |pieces: &[&str], expected: &[&str]| {
            let transport = RecordingTransport { buffers: LazyBuffers::new(32, 32), sent: Vec::new() };
            let mut connection = HeadBufferedTransport { transport, head: Vec::new() };
            for piece in pieces {
                write_prefix(connection.buffers().output(), piece.as_bytes());
                connection.transmit_output(piece.len(), NextTimeout::default()).unwrap();
            }
            let is_sent = connection.transport.sent.concat() == pieces.concat();
            assert_eq!(connection.is_open(), is_sent, "{pieces:?}");
            connection.await_input(NextTimeout::default()).unwrap();
            assert_eq!(connection.transport.sent, expected, "{pieces:?}");
            assert!(connection.is_open());
        };
        let head = "POST /v1 HTTP/1.1\r\n\r\n";
        check(&[head, "{}"], &["POST /v1 HTTP/1.1\r\n\r\n{}", "?"]);
        check(&[head, "0123456789"], &["POST /v1 HTTP/1.1\r\n\r\n0123456789", "?"]);
        check(&[head, "0123456789ab", "a", "b"], &[head, "0123456789ab", "a", "b", "?"]);
        check(
            &[head, "{", "}", head, "{}"],
            &["POST /v1 HTTP/1.1\r\n\r\n{", "}", "POST /v1 HTTP/1.1\r\n\r\n{}", "?"],
        );
        // A request without a body, or with an incomplete head, is not held back.
        check(&[head], &[head, "?"]);
        check(&["POST /v1", "\r\n\r\n", "{}"], &["POST /v1", "\r\n\r\n", "{}", "?"]);
        check(&["CONNECT a:1 HTTP/1.1\r\n\r\n"], &["CONNECT a:1 HTTP/1.1\r\n\r\n", "?"]);
        check(&[], &["?"]);
    }
}
