//! Explains to the operator why a file that the configuration names, such as a policy or a certificate, cannot be read.
//! `config` and `tls` add this text to their errors.

use std::io;

/// Explains to the operator why a file of the configuration cannot be read.
pub(crate) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => {
            "there is no file of this name; relative paths begin at the folder of the configuration"
                .to_owned()
        }
        io::ErrorKind::PermissionDenied => {
            "there is no permission to read the file: let the user that runs the gateway read it".to_owned()
        }
        io::ErrorKind::IsADirectory => "the path names a directory: name a file in it".to_owned(),
        // Reported when the file is read as text.
        io::ErrorKind::InvalidData => "the file is not valid UTF-8: save it in UTF-8".to_owned(),
        _ => error.to_string(),
    }
}
