//! TCP connections for ureq that can also be read without blocking.
//!
//! [`without_waiting`] makes all reads of the current thread non-blocking. It works through the readers of ureq and
//! TLS, which pass on the error of the socket and can continue after it.

use std::cell::Cell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, Either, LazyBuffers, NextTimeout, Transport,
};
use ureq::{Error, Timeout};

thread_local! {
    static AT_ONCE: Cell<bool> = const { Cell::new(false) };
}

/// Runs `read` with non-blocking reads on this thread: without available bytes a read fails with
/// [`ErrorKind::WouldBlock`], and can be repeated later.
pub(super) fn without_waiting<T>(read: impl FnOnce() -> T) -> T {
    struct RestoreAtOnce(bool);
    impl Drop for RestoreAtOnce {
        fn drop(&mut self) {
            AT_ONCE.set(self.0);
        }
    }
    let _before = RestoreAtOnce(AT_ONCE.replace(true));
    read()
}

/// The least time for an address, so that each one is tried.
const MIN_ADDRESS_TIMEOUT: Duration = Duration::from_millis(10);

/// Creates connections, unless there is one already, such as to a proxy.
#[derive(Debug)]
pub(super) struct SocketConnector;

impl<In: Transport> Connector<In> for SocketConnector {
    type Out = Either<In, Socket>;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        chained: Option<In>,
    ) -> Result<Option<Self::Out>, Error> {
        if let Some(there) = chained {
            return Ok(Some(Either::A(there)));
        }
        let config = details.config;
        let stream = connect(&details.addrs, details.timeout)?;
        if config.no_delay() {
            stream.set_nodelay(true)?;
        }
        // The agent is never shut down, so the socket needs no handle for that.
        let buffers = LazyBuffers::new(config.input_buffer_size(), config.output_buffer_size());
        Ok(Some(Either::B(Socket { stream, buffers, blocks: true })))
    }
}

/// Tries the addresses in turn: each with half of the remaining time, the last one with all of it.
fn connect(addresses: &[SocketAddr], timeout: NextTimeout) -> Result<TcpStream, Error> {
    let begun = Instant::now();
    let mut failed = Error::Io(ErrorKind::ConnectionRefused.into());
    for (at, address) in addresses.iter().enumerate() {
        let connected = match timeout.not_zero() {
            None => TcpStream::connect(address),
            Some(whole) => {
                let left = whole.saturating_sub(begun.elapsed());
                let is_last = at + 1 == addresses.len();
                TcpStream::connect_timeout(
                    address,
                    MIN_ADDRESS_TIMEOUT.max(if is_last { left } else { left / 2 }),
                )
            }
        };
        failed = match connected {
            Ok(stream) => return Ok(stream),
            Err(error) if error.kind() == ErrorKind::TimedOut && begun.elapsed() > *timeout.after => {
                return Err(Error::Timeout(timeout.reason));
            }
            Err(error) if error.kind() == ErrorKind::TimedOut => Error::Timeout(Timeout::Connect),
            Err(error) if is_address_error(&error) => Error::Io(error),
            Err(error) => return Err(Error::Io(error)),
        };
    }
    Err(failed)
}

/// Whether another address may succeed.
fn is_address_error(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::ConnectionRefused
            | ErrorKind::HostUnreachable
            | ErrorKind::NetworkUnreachable
            | ErrorKind::AddrNotAvailable
    ) || cfg!(windows) && error.kind() == ErrorKind::PermissionDenied
}

/// A TCP connection.
pub(super) struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
    /// Whether the socket is in blocking mode; changed only if needed, to save system calls.
    blocks: bool,
}

impl fmt::Debug for Socket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The buffers contain the key.
        f.debug_struct("Socket").field("peer", &self.stream.peer_addr().ok()).finish_non_exhaustive()
    }
}

impl Socket {
    fn block(&mut self, blocks: bool) -> io::Result<()> {
        if self.blocks != blocks {
            self.stream.set_nonblocking(!blocks)?;
            self.blocks = blocks;
        }
        Ok(())
    }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = check_not_expired(timeout.for_write())?;
        self.block(true)?;
        tolerate_closed(self.stream.set_write_timeout(timeout.not_zero().map(|time| *time)))?;
        let output = self.buffers.output().get(..amount).unwrap_or_default();
        (&self.stream).write_all(output).map_err(|error| to_timeout_error(error, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = check_not_expired(timeout.for_read())?;
        let waits = !AT_ONCE.get();
        self.block(waits)?;
        let begun = Instant::now();
        let count = loop {
            if waits {
                let left = timeout.not_zero().map(|time| time.saturating_sub(begun.elapsed()));
                if left.is_some_and(|left| left.is_zero()) {
                    return Err(Error::Timeout(timeout.reason));
                }
                tolerate_closed(self.stream.set_read_timeout(left))?;
            }
            match (&self.stream).read(self.buffers.input_append_buf()) {
                // A signal does not abort the read.
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) if waits => return Err(to_timeout_error(error, timeout)),
                read => break read?,
            }
        };
        self.buffers.input_appended(count);
        Ok(count > 0)
    }

    /// Whether the connection is open and has no unexpected input: neither bytes nor an end of the stream.
    fn is_open(&mut self) -> bool {
        let quiet = |read: io::Result<usize>| read.is_err_and(|error| error.kind() == ErrorKind::WouldBlock);
        self.block(false).is_ok() && quiet(self.stream.peek(&mut [0]))
    }
}

fn check_not_expired(timeout: NextTimeout) -> Result<NextTimeout, Error> {
    if timeout.after.is_zero() { Err(Error::Timeout(timeout.reason)) } else { Ok(timeout) }
}

/// Maps an error of a blocking call: on Unix, `WouldBlock` means that the time limit was reached.
fn to_timeout_error(error: io::Error, timeout: NextTimeout) -> Error {
    match error.kind() {
        ErrorKind::TimedOut | ErrorKind::WouldBlock => Error::Timeout(timeout.reason),
        _ => Error::Io(error),
    }
}

/// macOS refuses new time limits on a socket that the peer has closed; what the peer sent can still be read.
fn tolerate_closed(set: io::Result<()>) -> io::Result<()> {
    match set {
        Err(error) if cfg!(target_os = "macos") && error.kind() == ErrorKind::InvalidInput => Ok(()),
        set => set,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use ureq::unversioned::transport::time;

    use super::*;

    fn within(time: Duration) -> NextTimeout {
        NextTimeout { after: time.into(), reason: Timeout::Global, ..NextTimeout::default() }
    }

    const LONG: Duration = Duration::from_secs(20);

    /// Returns a connection and its peer.
    fn pair() -> (Socket, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = connect(&[listener.local_addr().unwrap()], within(LONG)).unwrap();
        let socket = Socket { stream, buffers: LazyBuffers::new(64, 64), blocks: true };
        (socket, listener.accept().unwrap().0)
    }

    /// Summarises the result of a read: whether there is more, and the input, or the error.
    fn shown(read: Result<bool, Error>, socket: &mut Socket) -> String {
        let input = String::from_utf8_lossy(socket.buffers.input()).into_owned();
        socket.buffers.input_consume(input.len());
        match read {
            Ok(more) => format!("{more} {input}"),
            Err(Error::Io(error)) => format!("{:?}", error.kind()),
            Err(error) => error.to_string(),
        }
    }

    #[test]
    fn reading_waits_or_does_not() {
        let (mut socket, mut other) = pair();
        let read = |socket: &mut Socket, time: Duration| {
            let read = socket.await_input(within(time));
            shown(read, socket)
        };
        let short = Duration::from_millis(50);
        assert_eq!(without_waiting(|| read(&mut socket, LONG)), "WouldBlock");
        assert_eq!(without_waiting(|| read(&mut socket, Duration::ZERO)), "timeout: global");
        assert_eq!(read(&mut socket, short), "timeout: global");
        let writer = std::thread::spawn(move || {
            std::thread::sleep(short);
            other.write_all(b"late").unwrap();
            other
        });
        assert_eq!(read(&mut socket, LONG), "true late");
        let mut other = writer.join().unwrap();
        other.write_all(b"there").unwrap();
        assert!(!socket.is_open(), "nobody has asked for this");
        assert_eq!(without_waiting(|| read(&mut socket, LONG)), "true there");
        assert!(socket.is_open());
        assert_eq!(read(&mut socket, short), "timeout: global");
        drop(other);
        assert_eq!(read(&mut socket, LONG), "false ");
        assert_eq!(without_waiting(|| read(&mut socket, LONG)), "false ");
        assert!(!socket.is_open());
    }

    #[test]
    fn writing_waits_for_the_other_side_and_not_for_ever() {
        let (mut socket, other) = pair();
        assert!(socket.is_open(), "so that it does not block");
        let begun = Instant::now();
        let failed = loop {
            if let Err(error) = socket.transmit_output(64, within(Duration::from_millis(100))) {
                break error;
            }
            assert!(begun.elapsed() < LONG);
        };
        assert_eq!(failed.to_string(), "timeout: global");
        drop(other);
    }

    #[test]
    fn addresses_are_tried_in_turn() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let good = listener.local_addr().unwrap();
        let nobody = "127.0.0.1:1".parse().unwrap();
        let check = |addresses: &[SocketAddr], after: time::Duration, expected: &str| {
            let timeout = NextTimeout { after, reason: Timeout::Connect, ..NextTimeout::default() };
            let connected = connect(addresses, timeout).map(|stream| stream.peer_addr().unwrap() == good);
            let shown = connected.map_or_else(|error| error.to_string(), |right| right.to_string());
            assert!(shown.starts_with(expected), "{shown}");
        };
        for after in [LONG.into(), time::Duration::NotHappening] {
            check(&[good], after, "true");
            check(&[nobody, good], after, "true");
            check(&[nobody, nobody], after, "io: Connection refused");
            check(&[], after, "io: connection refused");
        }
    }
}
