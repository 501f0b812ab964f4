//! Opens `LOG.content`, the file next to an audit log with the contents of its events. The subcommands `show` and
//! `verify` of `flowgate audit` use it.

use std::ffi::OsString;
use std::io::BufRead;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use flowgate_audit::ContentCipher;

use crate::command::serve;
use crate::input::{self, InputError};

/// Returns the cipher of contents that are encrypted with the keys of the gateway whose configuration is in the file
/// `config`; `None` if it names no keys.
pub(super) fn cipher_of(config: &Path) -> Result<Option<Arc<dyn ContentCipher>>, InputError> {
    Ok(serve::gateway_config(config)?.store.encryption.audit_content_cipher())
}

/// Opens `LOG.content`, the file next to a log with the contents of its events. Returns an empty reader if there is no
/// such file, or if the log is the standard input.
pub(super) fn open(log: &Path) -> Result<Box<dyn BufRead>, InputError> {
    let mut name = OsString::from(log);
    name.push(".content");
    let path = PathBuf::from(name);
    if log == Path::new("-") || !path.exists() { Ok(Box::new(std::io::empty())) } else { input::open(&path) }
}
