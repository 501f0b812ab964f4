//! Reads the first bytes of a connection without consuming them, so that `connection` and `handshake` recognise its
//! protocol.

use std::future::poll_fn;
use std::io;

use tokio::io::ReadBuf;
use tokio::net::TcpStream;

use crate::http::admission::ConnectionPlace;

/// Waits for the first bytes of a connection, and leaves them unread. Meanwhile `place` notes that the server waits for
/// the client. Returns `MOST` bytes, and how many of them have arrived (the others are zero); 0 have arrived if the
/// client has closed its side.
///
/// # Errors
/// If the socket fails.
pub(crate) async fn first_bytes<const MOST: usize>(
    stream: &TcpStream,
    place: &ConnectionPlace,
) -> io::Result<([u8; MOST], usize)> {
    let mut bytes = [0; MOST];
    let count = poll_fn(|cx| {
        let peeked = stream.poll_peek(cx, &mut ReadBuf::new(&mut bytes));
        if peeked.is_pending() {
            place.mark_waiting();
        }
        peeked
    });
    let count = count.await?;
    Ok((bytes, count))
}
