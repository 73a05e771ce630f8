//! The audit log: who changed what, one JSON object per line.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use gallerist_util::files;
use gallerist_util::sync::{Mutex, PoisonError};
use serde::Serialize;

use crate::id::Id;
use crate::saved::Kind;

/// Who makes a change.
#[derive(Clone, Debug)]
pub(crate) struct Author {
    pub(crate) client: Option<IpAddr>,
    /// The name of the token.
    pub(crate) token: String,
}

/// A change of a gallery.
#[derive(Serialize)]
#[serde(tag = "change", rename_all = "snake_case")]
pub(crate) enum Change {
    Add {
        item: Id,
        path: String,
        label: Option<String>,
        camera: Option<String>,
        source: Option<String>,
        #[serde(skip_serializing_if = "Option::is_none")]
        columns: Option<serde_json::Map<String, serde_json::Value>>,
        replace: bool,
    },
    Remove {
        item: Id,
    },
    /// Of a tag or a selection.
    List {
        kind: Kind,
        name: String,
        add: Vec<Id>,
        remove: Vec<Id>,
        rename: Option<String>,
        delete: bool,
    },
    Reload {
        all: bool,
    },
}

/// How the lines of an audit log begin: those of changes, and those of changes that failed.
pub const AUDIT_LINES: [&[u8]; 2] = [b"{\"entry\":", b"{\"failed\":"];

#[derive(Serialize)]
struct Entry<'a> {
    entry: u64,
    time: String,
    client: Option<IpAddr>,
    token: &'a str,
    /// `None` for a change of all galleries.
    gallery: Option<&'a str>,
    #[serde(flatten)]
    change: &'a Change,
}

/// Follows the entry of a change that failed.
#[derive(Serialize)]
struct Failed {
    /// The number of that entry.
    failed: u64,
    time: String,
    problem: String,
}

/// The change was not made, because it could not be logged.
#[derive(Debug)]
pub(crate) struct Unlogged;

/// Writes entries. Without a file it writes nothing.
pub(crate) struct Audit {
    path: Option<PathBuf>,
    /// The number of the last entry.
    last: Mutex<u64>,
    note: fn(&str),
}

impl Audit {
    /// Creates the file if it does not exist, and refuses one that is no audit log.
    pub(crate) fn open(path: Option<PathBuf>, note: fn(&str)) -> crate::Result<Self> {
        if let Some(path) = &path {
            check(path)?;
            let action = format!("write the audit log `{}`", path.display());
            append(path, "").map_err(|source| crate::Error::Io { action, source })?;
        }
        Ok(Self { path, last: Mutex::new(0), note })
    }

    /// Makes a change of a gallery, or of all, after its entry is on disk. A change that fails gets a second entry.
    pub(crate) fn around<T, E: fmt::Display>(
        &self,
        author: &Author,
        gallery: Option<&str>,
        change: &Change,
        make: impl FnOnce() -> Result<T, E>,
    ) -> Result<Result<T, E>, Unlogged> {
        let Some(path) = &self.path else { return Ok(make()) };
        let entry = self.write(path, |entry, time| {
            let Author { client, token } = author;
            serde_json::to_string(&Entry { entry, time, client: *client, token, gallery, change })
        })?;
        let made = make();
        if let Err(error) = &made {
            let problem = error.to_string();
            // The change was not made, so nothing is missing from the log.
            let _ = self.write(path, |_, time| {
                serde_json::to_string(&Failed { failed: entry, time, problem: problem.clone() })
            });
        }
        Ok(made)
    }

    /// Appends one line; gives its number, which is larger than those before: microseconds since 1970.
    fn write(
        &self,
        path: &Path,
        line: impl FnOnce(u64, String) -> serde_json::Result<String>,
    ) -> Result<u64, Unlogged> {
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let entry = (now.as_micros() as u64).max(*last + 1);
        let line = line(entry, rfc3339(now)).expect("keys are strings");
        append(path, &line).map_err(|error| {
            (self.note)(&format!("the audit log `{}` cannot be written: {error}", path.display()));
            Unlogged
        })?;
        *last = entry;
        Ok(entry)
    }
}

/// Refuses a file that is no audit log, such as the gallery itself: an appended entry would destroy it. A log begins with an
/// entry, after a rotation perhaps with its failure; a crash may have cut this line.
fn check(path: &Path) -> crate::Result<()> {
    let refused = |problem: &str| crate::Error::Option {
        problem: format!("cannot append the audit log to `{}`: {problem}", path.display()),
        hint: Some("give --audit another file; one that does not exist is made".to_owned()),
    };
    let file = match files::open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
            return Err(refused(&error.to_string()));
        }
        // A missing file is made. Of other errors, appending reports the reason.
        Err(_) => return Ok(()),
    };
    let mut start = Vec::new();
    let read = file.take(AUDIT_LINES[1].len() as u64).read_to_end(&mut start);
    read.map_err(|error| refused(&error.to_string()))?;
    let is_log = AUDIT_LINES.iter().any(|log| log.iter().zip(&start).all(|(wanted, found)| wanted == found));
    if is_log { Ok(()) } else { Err(refused("it has other content than entries of this log")) }
}

/// Appends a line and returns when it is on disk. The file is opened for every line, so that it can be renamed (log rotation).
fn append(path: &Path, line: &str) -> io::Result<()> {
    let mut options = OpenOptions::new();
    options.read(true).append(true);
    // The log names users and their addresses.
    #[cfg(unix)]
    std::os::unix::fs::OpenOptionsExt::mode(&mut options, 0o600);
    let (mut file, is_new) = match options.open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => (options.create(true).open(path)?, true),
        opened => (opened?, false),
    };
    if is_new {
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        #[cfg(unix)]
        File::open(folder.unwrap_or(Path::new(".")))?.sync_all()?;
        #[cfg(not(unix))]
        let _ = folder;
    }
    if line.is_empty() {
        return Ok(());
    }
    // A line that was cut by a crash is not continued.
    let start = if ends_a_line(&mut file)? { "" } else { "\n" };
    file.write_all(format!("{start}{line}\n").as_bytes())?;
    file.sync_data()
}

fn ends_a_line(file: &mut File) -> io::Result<bool> {
    if file.metadata()?.len() == 0 {
        return Ok(true);
    }
    let mut last = [0];
    file.seek(SeekFrom::End(-1))?;
    file.read_exact(&mut last)?;
    Ok(last == *b"\n")
}

/// A time in UTC: `2026-11-24T04:41:58.123Z`. Days are converted as in Howard Hinnant's `civil_from_days`: a crate for dates
/// would be more than this one line of output needs.
fn rfc3339(since_1970: Duration) -> String {
    let (days, seconds) = (since_1970.as_secs() / 86_400, since_1970.as_secs() % 86_400);
    // Years begin in March, so that a leap day is the last of its year; eras have 400 years.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month + 2) / 5 + 1;
    let month = if month < 10 { month + 3 } else { month - 9 };
    let year = 400 * era + year + u64::from(month <= 2);
    let (hour, minute, second) = (seconds / 3600, seconds / 60 % 60, seconds % 60);
    let millis = since_1970.subsec_millis();
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_the_calendar() {
        // From `date -u -d @SECONDS`.
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400, "2000-02-29T00:00:00.000Z"),
            (951_868_799, "2000-02-29T23:59:59.000Z"),
            (1_709_251_199, "2024-02-29T23:59:59.000Z"),
            (1_735_689_599, "2024-12-31T23:59:59.000Z"),
            (1_795_495_318, "2026-11-24T04:41:58.000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), text);
        }
        assert_eq!(rfc3339(Duration::from_millis(1_005)), "1970-01-01T00:00:01.005Z");
    }

    #[test]
    fn entries_are_appended_a_cut_line_is_ended_and_a_failed_change_says_so() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        let audit = Audit::open(Some(path.clone()), |_| ()).unwrap();
        let author = Author { client: Some([1, 1, 1, 1].into()), token: "alice".to_owned() };
        let remove = Change::Remove { item: Id(7) };
        let make =
            |made: Result<u32, &'static str>| audit.around(&author, Some("g"), &remove, || made).unwrap();
        assert_eq!(make(Ok(3)), Ok(3));
        std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"{\"entry\": 1").unwrap();
        assert_eq!(make(Err("no \"room\"\n")), Err("no \"room\"\n"));
        // As log rotation does.
        std::fs::rename(&path, folder.path().join("old")).unwrap();
        assert_eq!(make(Ok(4)), Ok(4));
        let read = |name: &str| std::fs::read_to_string(folder.path().join(name)).unwrap();
        let old = read("old");
        let lines: Vec<&str> = old.lines().collect();
        assert_eq!((lines.len(), lines[1], read("audit.jsonl").lines().count()), (4, "{\"entry\": 1", 1));
        let parse = |line: &str| serde_json::from_str::<serde_json::Value>(line).unwrap();
        let (first, second, failed) = (parse(lines[0]), parse(lines[2]), parse(lines[3]));
        assert_eq!(
            (&first["client"], &first["token"], &first["change"]),
            (&"1.1.1.1".into(), &"alice".into(), &"remove".into())
        );
        assert!(second["entry"].as_u64() > first["entry"].as_u64());
        assert_eq!((&failed["failed"], &failed["problem"]), (&second["entry"], &"no \"room\"\n".into()));
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        }
    }

    #[test]
    fn a_file_that_is_no_audit_log_is_refused_and_stays_as_it_is() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("audit.jsonl");
        for (content, is_log) in [
            ("", true),
            ("{\"entry\":1}\n", true),
            ("{\"failed\":1}\n", true),
            ("{\"ent", true),
            ("{\"version\": 1}", false),
            ("\0\0index", false),
            ("\n", false),
        ] {
            std::fs::write(&path, content).unwrap();
            let error = Audit::open(Some(path.clone()), |_| ()).err();
            assert_eq!(error.is_none(), is_log, "{content:?}");
            if let Some(error) = error {
                assert!(error.to_string().contains("it has other content"), "{error}");
                assert!(error.hint().unwrap().contains("another file"));
            }
            assert_eq!(std::fs::read_to_string(&path).unwrap(), content);
        }
        #[cfg(all(unix, not(miri)))]
        {
            let pipe = folder.path().join("pipe");
            assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
            for (path, kind) in [(pipe, "a named pipe"), (PathBuf::from("/dev/null"), "a device")] {
                let error = Audit::open(Some(path), |_| ()).err().unwrap().to_string();
                assert!(error.ends_with(&format!("it is {kind}, not a file")), "{error}");
            }
        }
    }

    #[test]
    fn a_change_that_cannot_be_logged_is_not_made() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("logs/audit.jsonl");
        assert!(Audit::open(Some(path.clone()), |_| ()).is_err(), "the folder is missing");
        std::fs::create_dir(folder.path().join("logs")).unwrap();
        let audit = Audit::open(Some(path), |_| ()).unwrap();
        std::fs::remove_dir_all(folder.path().join("logs")).unwrap();
        let author = Author { client: None, token: "alice".to_owned() };
        let mut made = false;
        let done = audit.around(&author, None, &Change::Reload { all: true }, || {
            made = true;
            Ok::<_, String>(())
        });
        assert!(done.is_err() && !made);
    }
}
