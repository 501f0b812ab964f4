//! What is kept beside a log.

use std::ffi::OsString;
use std::io::BufRead;
use std::path::{Path, PathBuf};

use crate::input::{self, InputError};

/// Opens what is kept beside a log. If there is no such file, nothing is kept, or nothing is left.
pub(super) fn open(log: &Path) -> Result<Box<dyn BufRead>, InputError> {
    let mut name = OsString::from(log);
    name.push(".content");
    let path = PathBuf::from(name);
    if log == Path::new("-") || !path.exists() { Ok(Box::new(std::io::empty())) } else { input::open(&path) }
}
