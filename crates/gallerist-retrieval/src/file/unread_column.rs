//! What is not read of a file.

use std::fmt;

/// A column of a table or a tensor of a `.safetensors` file that is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unread {
    /// Its name.
    pub name: String,
    /// Its type, as the format calls it.
    pub kind: String,
    /// Why it is not read, where that is not its type.
    pub problem: Option<String>,
}

impl fmt::Display for Unread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.problem {
            None => write!(f, "`{}` ({})", self.name, self.kind),
            Some(problem) => write!(f, "`{}` ({}: {problem})", self.name, self.kind),
        }
    }
}
