//! Performs TLS handshakes within a time limit. `connection` calls it.
//!
//! A connection counts against the limit of `admission` before its handshake begins. While the gateway waits for the
//! client during the handshake, `admission` may close the connection to make room for a new one, just as it may while
//! the gateway waits for the head of a request. So clients that are slow in the handshake cannot keep others out.

use std::io;
use std::sync::Arc;

use rustls::{AlertDescription, CertificateError, Error};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::http::admission::ConnectionPlace;
use crate::http::peek::first_bytes;
use crate::http::write_timeout::WriteTimeout;
use crate::limits::ServerLimits;
use crate::tls::reload::ServerTls;

/// The first byte of a client that speaks TLS: a record of the handshake.
const HANDSHAKE_RECORD: u8 = 0x16;

/// The answer to a client that speaks HTTP without TLS.
const PLAIN_ANSWER: &[u8] = b"HTTP/1.1 400 Bad Request\r\ncontent-type: application/json\r\ncontent-length: 63\r\nconnection: close\r\n\r\n\
    {\"detail\":\"this address speaks TLS: send the request by https\"}";
/// The most bytes of a client without TLS that are read and discarded after the answer: if they were left unread, the
/// socket could be reset before the client reads the answer.
const MAX_DISCARDED: usize = 64 << 10;

/// The reason why a handshake did not end in a connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HandshakeError {
    /// The client has disconnected.
    Disconnected,
    /// The time is over.
    Slow,
    /// The handshake failed for another reason, which the text explains to the operator.
    Refused(&'static str),
}

/// A socket with TLS.
pub(crate) type TlsSocket = TlsStream<WriteTimeout<TcpStream>>;

/// Performs the TLS handshake of a connection within the time for the head of a request, which `limits` contains.
/// `place` is the place of the connection among the open ones. A client that speaks HTTP without TLS receives an HTTP
/// error, which says that it has to use https.
///
/// # Errors
/// Why the handshake failed, for the operator's log.
pub(crate) async fn accept(
    stream: TcpStream,
    tls: &Arc<ServerTls>,
    place: &Arc<ConnectionPlace>,
    limits: &ServerLimits,
) -> Result<TlsSocket, HandshakeError> {
    let limit = limits.head_time;
    let accepted = timeout(limit, accept_unbounded(stream, tls, place, limits)).await;
    match accepted.map_err(|_| HandshakeError::Slow)? {
        Ok(accepted) => {
            // The client has answered in time, and now has time for its request.
            place.mark_active();
            Ok(accepted)
        }
        Err(AcceptFailure::Plain(stream)) => {
            // The connection is refused, whether or not the client receives the answer.
            let _ = timeout(limit, answer_plain(stream)).await;
            Err(HandshakeError::Refused(
                "a client connected without TLS: the address in its configuration must begin with https://",
            ))
        }
        Err(AcceptFailure::Other(error)) => Err(error),
    }
}

/// Why [`accept_unbounded`] has no TLS connection.
enum AcceptFailure {
    /// The client speaks HTTP without TLS.
    Plain(TcpStream),
    /// For another reason.
    Other(HandshakeError),
}

/// Performs the handshake of a connection without a limit of time. Recognises a client that speaks HTTP without TLS
/// by its first byte. From then on, writes to the socket are bounded by `limits`, and `place` records for how long
/// the gateway waits for the client.
///
/// # Errors
/// `Plain`, with the socket, if the client speaks HTTP without TLS; otherwise why the handshake failed.
async fn accept_unbounded(
    stream: TcpStream,
    tls: &Arc<ServerTls>,
    place: &Arc<ConnectionPlace>,
    limits: &ServerLimits,
) -> Result<TlsSocket, AcceptFailure> {
    let first = match first_bytes::<1>(&stream, place).await {
        Ok((first, 1..)) => first,
        Ok((_, 0)) | Err(_) => return Err(AcceptFailure::Other(HandshakeError::Disconnected)),
    };
    match first {
        [HANDSHAKE_RECORD] => {}
        // A request of HTTP begins with its method, in upper case.
        [first] if first.is_ascii_uppercase() => return Err(AcceptFailure::Plain(stream)),
        _ => {
            return Err(AcceptFailure::Other(HandshakeError::Refused(
                "a client sent neither TLS nor HTTP: check which program connects to this port",
            )));
        }
    }
    let acceptor = TlsAcceptor::from(tls.settings().await);
    let stream = WriteTimeout::new(stream, limits.write_time).reporting_to(Arc::clone(place));
    acceptor.accept(stream).await.map_err(|error| AcceptFailure::Other(reason(&error)))
}

/// Answers a client that speaks HTTP without TLS, and reads what it still sends, up to [`MAX_DISCARDED`]: a socket
/// that is closed with unread bytes is reset, and the client might not see the answer.
async fn answer_plain(mut stream: TcpStream) -> io::Result<()> {
    stream.write_all(PLAIN_ANSWER).await?;
    stream.shutdown().await?;
    let (mut discarded, mut buffer) = (0, [0; 4096]);
    while discarded < MAX_DISCARDED {
        match stream.read(&mut buffer).await? {
            0 => break,
            count => discarded += count,
        }
    }
    Ok(())
}

/// Explains a failed handshake by a constant: the text of the library could quote what the client sent.
fn reason(error: &io::Error) -> HandshakeError {
    // An error that is not of the TLS library comes from the socket.
    let Some(error) = error.get_ref().and_then(|error| error.downcast_ref::<Error>()) else {
        return match error.kind() {
            io::ErrorKind::TimedOut => HandshakeError::Slow,
            _ => HandshakeError::Disconnected,
        };
    };
    HandshakeError::Refused(match error {
        Error::NoCertificatesPresented => {
            "a client presented no certificate: give it one that the authority `client-ca` in [tls] signed"
        }
        Error::InvalidCertificate(CertificateError::Expired | CertificateError::ExpiredContext { .. }) => {
            "the certificate of a client has expired: issue a new one"
        }
        Error::InvalidCertificate(
            CertificateError::NotValidYet | CertificateError::NotValidYetContext { .. },
        ) => {
            "the certificate of a client is not valid yet: compare the clocks of the gateway and of its authority"
        }
        Error::InvalidCertificate(CertificateError::UnknownIssuer | CertificateError::BadSignature) => {
            "the certificate of a client was not signed by the authority `client-ca` in [tls]: give it one \
             that this authority signed"
        }
        Error::InvalidCertificate(
            CertificateError::InvalidPurpose | CertificateError::InvalidPurposeContext { .. },
        ) => {
            "the certificate of a client is not valid for TLS clients: issue one with the extended key usage \
             clientAuth"
        }
        Error::InvalidCertificate(_) => {
            "the certificate of a client is malformed or cannot be verified: issue another one with the authority `client-ca` in [tls]"
        }
        Error::AlertReceived(
            AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired
            | AlertDescription::DecryptError
            | AlertDescription::UnsupportedCertificate,
        ) => {
            "a client does not trust the certificate of the gateway: check that it has not expired, and that the client knows its authority"
        }
        Error::AlertReceived(_) => "a client ended the TLS handshake: see the log of the client",
        Error::PeerIncompatible(_) | Error::NoApplicationProtocol => {
            "a client and the gateway have no TLS version, cipher suite or application protocol in common: \
             update the client"
        }
        _ => {
            "a client did not follow the TLS protocol, so its connection was closed: check that it connects with https:// and a supported version of TLS"
        }
    })
}
