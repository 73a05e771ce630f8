//! One set of images whose file names a protocol of queries and a gallery, or that has the label of junk.

use gallerist_util::text::grouped;

use super::protocol::{JUNK, Protocol, Setting};
use crate::{Error, Result};

/// One set of images, of which each row is compared with the others by no protocol. Its file may name a protocol of queries and
/// a gallery, by which some rows are junk; here they would be a class.
///
/// ```
/// use gallerist_retrieval::eval::OneSet;
///
/// let labels = ["0001", "-1", "-1"].map(String::from);
/// let of_market = OneSet::of(Some("market1501"));
/// let error = of_market.check("gallery.parquet", of_market.junk_rows(&labels), "give queries").unwrap_err();
/// assert!(error.to_string().ends_with("2 rows with the label `-1` are junk, no class"));
/// // Without a protocol, `-1` may be a class.
/// let other = OneSet::of(None);
/// let warning = other.check("gallery.parquet", other.junk_rows(&labels), "give queries")?;
/// assert_eq!(warning.unwrap(), "`gallery.parquet`: 2 rows with the label `-1` count as one class");
/// # Ok::<(), gallerist_retrieval::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OneSet {
    /// The protocol of queries and a gallery.
    protocol: Option<&'static Protocol>,
}

impl OneSet {
    /// The hint of commands for [`check`](Self::check).
    pub const COMMAND_HINT: &'static str = "embed the splits `query` and `gallery` (embed --split) and give them as --query and \
                                            --gallery; --protocol none compares every row with the others all the same";

    /// A set whose file names this protocol. A protocol that is not known, or that compares every image with the others, has no
    /// effect.
    pub fn of(protocol: Option<&str>) -> Self {
        let protocol = protocol.and_then(Protocol::named);
        Self { protocol: protocol.filter(|protocol| protocol.setting != Setting::EveryImage) }
    }

    /// The label that [`check`](Self::check) needs the number of rows of; `None` if the protocol has no junk.
    fn junk(self) -> Option<&'static str> {
        self.protocol.map_or(Some(JUNK), |protocol| protocol.junk)
    }

    /// The rows with the label of junk.
    pub fn junk_rows(self, labels: &[String]) -> usize {
        labels.iter().filter(|label| Some(label.as_str()) == self.junk()).count()
    }

    /// Checks that no junk would count as a class. `name` is of the set, for messages. Returns a warning if the protocol is not
    /// applied, or if several rows have the label of junk and there is no protocol.
    ///
    /// # Errors
    /// [`Error::Protocol`], with this hint, for junk by the protocol.
    pub fn check(self, name: &str, junk_rows: usize, hint: &str) -> Result<Option<String>> {
        let count = grouped(junk_rows as u64);
        let Some(protocol) = self.protocol else {
            let warning = || format!("`{name}`: {count} rows with the label `{JUNK}` count as one class");
            return Ok((junk_rows > 1).then(warning));
        };
        let what = format!("the protocol `{}`", protocol.name);
        let problem = format!("compares queries with a gallery, and `{name}` is one set");
        let (rows, are) = if junk_rows == 1 { ("row", "is") } else { ("rows", "are") };
        match protocol.junk.filter(|_| junk_rows > 0) {
            Some(junk) => Err(Error::Protocol {
                what,
                problem: format!("{problem}\n  {count} {rows} with the label `{junk}` {are} junk, no class"),
                hint: Some(hint.to_owned()),
            }),
            None => {
                Ok(Some(format!("{what} {problem}: every row is compared with the others here\n  {hint}")))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::OneSet;

    fn checked(protocol: Option<&str>, labels: &[&str]) -> Result<Option<String>, String> {
        let set = OneSet::of(protocol);
        let labels: Vec<String> = labels.iter().map(ToString::to_string).collect();
        set.check("a.npy", set.junk_rows(&labels), "a hint").map_err(|error| error.to_string())
    }

    #[test]
    fn junk_by_a_protocol_is_refused_and_a_protocol_that_is_not_applied_is_a_warning() {
        let what = "the protocol `market1501` compares queries with a gallery, and `a.npy` is one set";
        let refused = checked(Some("market1501"), &["-1", "0001"]).unwrap_err();
        assert_eq!(refused, format!("{what}\n  1 row with the label `-1` is junk, no class"));
        let warning = format!("{what}: every row is compared with the others here\n  a hint");
        assert_eq!(checked(Some("market1501"), &["0000", "0001"]), Ok(Some(warning)));
        // Without junk, `-1` is a class like any other.
        let warning = checked(Some("inshop"), &["-1", "-1"]).unwrap().unwrap();
        assert!(warning.starts_with("the protocol `inshop` compares queries with a gallery"), "{warning}");
    }

    #[test]
    fn several_rows_of_junk_without_such_a_protocol_are_a_warning() {
        for protocol in [None, Some("cub200"), Some("of another program")] {
            assert_eq!(checked(protocol, &["-1", "a", "a"]), Ok(None));
            let warning = "`a.npy`: 2 rows with the label `-1` count as one class";
            assert_eq!(checked(protocol, &["-1", "-1", "a"]), Ok(Some(warning.to_owned())));
        }
    }
}
