//! The command that a user most likely needs next.

use std::path::Path;

use super::printer;

/// A command line that can be pasted into a shell.
#[derive(Debug)]
pub(crate) struct Next(String);

impl Next {
    /// The command `gallerist COMMAND`.
    pub(crate) fn command(command: &str) -> Self {
        Next(format!("gallerist {command}"))
    }

    /// Adds a path, quoted where the shell would take it apart.
    pub(crate) fn path(self, path: impl AsRef<Path>) -> Self {
        let path = path.as_ref().to_string_lossy();
        Next(format!("{} {}", self.0, quoted(&path)))
    }

    /// Prints `next: gallerist …`.
    pub(crate) fn show(self) {
        printer::note(&format!("next: {}", self.0));
    }
}

/// A word of a shell. A name that begins with `-` becomes a path, because it would be an option.
fn quoted(word: &str) -> String {
    let word = if word.starts_with('-') { format!("./{word}") } else { word.to_owned() };
    let plain = |c: char| c.is_alphanumeric() || "_-./:=@%+,".contains(c) || (cfg!(windows) && c == '\\');
    match word.chars().all(plain) && !word.is_empty() {
        true => word,
        false if cfg!(windows) => format!("\"{word}\""),
        false => format!("'{}'", word.replace('\'', r"'\''")),
    }
}

#[cfg(all(test, unix))]
mod tests {
    use super::*;

    #[test]
    fn a_shell_reads_the_path_that_was_meant() {
        for path in [
            "runs/x",
            "my photos/Über uns",
            "it's",
            "a$HOME`b`",
            "-x",
            "a*b?",
            "鳥/ñ",
            "a\"b",
            "~",
            "#1",
            "a;b",
        ] {
            let Next(line) = Next::command("x").path(path);
            let word = line.strip_prefix("gallerist x ").unwrap();
            let out =
                std::process::Command::new("sh").args(["-c", &format!("printf %s {word}")]).output().unwrap();
            let read = String::from_utf8(out.stdout).unwrap();
            assert_eq!(read, if path == "-x" { "./-x" } else { path }, "{word}");
        }
        assert_eq!(Next::command("train").path("runs/鳥/x.toml").0, "gallerist train runs/鳥/x.toml");
    }
}
