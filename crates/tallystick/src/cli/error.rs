//! How a command ends. The numbers are a promise to scripts.

use std::process::ExitCode;

use tallystick_runner::DbError;
use tallystick_runner::looper::chain;

/// Exit codes of every command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: done, or all holds.
    Done,
    /// 1: a promise or check did not hold.
    Broken,
    /// 2: wrong use or settings.
    Usage,
    /// 3: something needed is away.
    Away,
    /// 4: time ran out.
    TimedOut,
}

impl Exit {
    /// The number that the process ends with.
    #[must_use]
    pub const fn code(self) -> u8 {
        match self {
            Self::Done => 0,
            Self::Broken => 1,
            Self::Usage => 2,
            Self::Away => 3,
            Self::TimedOut => 4,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        Self::from(exit.code())
    }
}

/// Why a command did not do its work. The text goes to stderr and says what to do next.
#[derive(Debug, thiserror::Error)]
pub enum CliError {
    /// A promise or check did not hold.
    #[error("{0}")]
    Broken(String),
    /// Wrong use or settings.
    #[error("{0}")]
    Usage(String),
    /// Something needed is away.
    #[error("{0}")]
    Away(String),
    /// Time ran out.
    #[error("{0}")]
    TimedOut(String),
}

impl CliError {
    /// The exit code that belongs to it.
    #[must_use]
    pub const fn exit(&self) -> Exit {
        match self {
            Self::Broken(_) => Exit::Broken,
            Self::Usage(_) => Exit::Usage,
            Self::Away(_) => Exit::Away,
            Self::TimedOut(_) => Exit::TimedOut,
        }
    }
}

impl From<DbError> for CliError {
    fn from(error: DbError) -> Self {
        let text = chain(&error);
        match error.code().as_deref() {
            // 3D000: no such database.
            Some("3D000") => Self::Away(format!(
                "{text}. Create the database and run `tallystick migrate`, or correct the address"
            )),
            // 28xxx: refused log-in; 42501: the role may not do this.
            Some(code) if code.starts_with("28") || code == "42501" => {
                Self::Usage(format!("{text}. Check the user and its rights in the database's address"))
            }
            // 3F000, 42P01, 42883, 42703: a schema, table, function or column is missing.
            Some("3F000" | "42P01" | "42883" | "42703") => Self::Usage(format!(
                "{text}. The database does not fit this program: run `tallystick migrate`"
            )),
            _ if error.is_transient() => {
                Self::Away(format!("{text}. Is PostgreSQL running, and is the database's address right?"))
            }
            Some(_) => Self::Broken(text),
            None => match error {
                DbError::Sql(_) => Self::Usage(format!("{text}. Check the database's address")),
                DbError::Unavailable(_) | DbError::CommitUnknown(_) | DbError::RowCount { .. } => {
                    Self::Broken(text)
                }
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn exit_codes_are_fixed() {
        let all = [Exit::Done, Exit::Broken, Exit::Usage, Exit::Away, Exit::TimedOut];
        assert_eq!(all.map(Exit::code), [0, 1, 2, 3, 4]);
        let errors = [
            CliError::Broken(String::new()),
            CliError::Usage(String::new()),
            CliError::Away(String::new()),
            CliError::TimedOut(String::new()),
        ];
        assert_eq!(errors.map(|e| e.exit().code()), [1, 2, 3, 4]);
    }
}
