//! Defines [`UnsafeCommandKind`], which names the unsafe effects of commands, such as running a download. A part of a
//! script that cannot be read counts as unsafe, and has kinds of its own. The scanner and its helpers report all kinds.

/// The effect of an unsafe command, or why a part of a script counts as unsafe.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum UnsafeCommandKind {
    /// A shell runs decoded text.
    DecodeToShell,
    /// A protection of the system is turned off.
    DisableSecurity,
    /// A disk is written directly or formatted.
    DiskWrite,
    /// All variables of the environment are printed.
    EnvironmentDump,
    /// A text is evaluated as a script.
    Eval,
    /// A function calls itself without end.
    ForkBomb,
    /// The record of commands is deleted or turned off.
    History,
    /// The code is in another language.
    OtherCode,
    /// A command is made to run at a later start.
    Persistence,
    /// A shell runs what is downloaded.
    PipeToShell,
    /// The command takes or gives more rights than the user has.
    Privilege,
    /// A whole tree of files is removed.
    RemoveAll,
    /// A shell is connected to another machine.
    ReverseShell,
    /// A file with secrets is read.
    SensitiveFile,
    /// The name of a command is computed.
    UnknownCommand,
    /// A part of the script cannot be read.
    Unreadable,
    /// Files or secrets are sent to another machine.
    Upload,
    /// All users may write to a file.
    WorldWritable,
}

impl UnsafeCommandKind {
    /// Returns the stable name of the kind, as policies and the Python package read it, such as `PIPE_TO_SHELL`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::DecodeToShell => "DECODE_TO_SHELL",
            Self::DisableSecurity => "DISABLE_SECURITY",
            Self::DiskWrite => "DISK_WRITE",
            Self::EnvironmentDump => "ENVIRONMENT_DUMP",
            Self::Eval => "EVAL",
            Self::ForkBomb => "FORK_BOMB",
            Self::History => "HISTORY",
            Self::OtherCode => "OTHER_CODE",
            Self::Persistence => "PERSISTENCE",
            Self::PipeToShell => "PIPE_TO_SHELL",
            Self::Privilege => "PRIVILEGE",
            Self::RemoveAll => "REMOVE_ALL",
            Self::ReverseShell => "REVERSE_SHELL",
            Self::SensitiveFile => "SENSITIVE_FILE",
            Self::UnknownCommand => "UNKNOWN_COMMAND",
            Self::Unreadable => "UNREADABLE",
            Self::Upload => "UPLOAD",
            Self::WorldWritable => "WORLD_WRITABLE",
        }
    }

    /// Returns whether the kind means that a part of the script cannot be read, and names no harmful effect.
    pub(super) fn is_unread(self) -> bool {
        matches!(self, Self::Unreadable | Self::UnknownCommand | Self::OtherCode)
    }
}
