//! Returns random bytes and names from the operating system, and converts bytes to hexadecimal and back.

/// The operating system returned no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RandomError;

/// Returns random bytes of the system.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}

/// Returns an unguessable name of 128 random bits.
pub(crate) fn unguessable_name() -> Result<String, RandomError> {
    bytes::<16>().map(|bytes| hex(&bytes))
}

/// Encodes bytes in hexadecimal.
pub(crate) fn hex(bytes: &[u8]) -> String {
    let digit = |value: u8| char::from(if value < 10 { b'0' + value } else { b'a' + value - 10 });
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// Decodes exactly `N` bytes from hexadecimal.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0_u8; N];
    if text.len() != N * 2 {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}
