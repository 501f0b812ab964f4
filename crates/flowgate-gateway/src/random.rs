//! Returns random bytes of the operating system and unguessable names made of them, and converts bytes to
//! hexadecimal and back. All parts of the gateway use it, for example for names of conversations, ids of grants and
//! keys of digests.

/// The error if the operating system returned no random bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RandomError;

/// Returns `N` random bytes of the operating system.
pub(crate) fn bytes<const N: usize>() -> Result<[u8; N], RandomError> {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|_| RandomError)?;
    Ok(bytes)
}

/// Returns an unguessable name: 128 random bits in hexadecimal.
pub(crate) fn unguessable_name() -> Result<String, RandomError> {
    bytes::<16>().map(|bytes| hex(&bytes))
}

/// Returns whether a name has the form of the names of [`unguessable_name`].
pub(crate) fn is_unguessable_name(name: &str) -> bool {
    name.len() == 32 && name.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
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

/// Decodes exactly `N` bytes from hexadecimal; `None` if the text has another length or other characters.
pub(crate) fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let mut bytes = [0_u8; N];
    // `from_str_radix` would also accept a sign.
    if text.len() != N * 2 || !text.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(text.get(index * 2..index * 2 + 2)?, 16).ok()?;
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hexadecimal_is_decoded_strictly() {
        let check =
            |text: &str, expected: Option<[u8; 2]>| assert_eq!(from_hex::<2>(text), expected, "{text}");
        check("00ff", Some([0, 255]));
        check("00FF", Some([0, 255]));
        check(&hex(&[7, 160]), Some([7, 160]));
        check("+f00", None);
        check("00f", None);
        check("00fff", None);
        check("00é", None);
        check("00fg", None);
    }
}
