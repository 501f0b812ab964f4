//! Explains why a file that the configuration names cannot be read.

use std::io;

/// Explains why a file cannot be read.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no such file; paths begin at the folder of the configuration".to_owned()
        }
        io::ErrorKind::PermissionDenied => "the file may not be read".to_owned(),
        io::ErrorKind::IsADirectory => "this is a directory, not a file".to_owned(),
        io::ErrorKind::InvalidData => "the file is not UTF-8".to_owned(),
        _ => error.to_string(),
    }
}
