//! Corrections of labels from CSV or TSV files: `image,action[,source][,label][,new_label]`, as `gallerist data issues` writes
//! them.

use std::collections::{HashMap, HashSet};
use std::path::{Path, PathBuf};

use sha2::{Digest, Sha256};

use super::labels::{self, LabelFrom};
use super::manifest::{Lines, fault_of};
use super::names::extension;
use super::record::ImageRecord;
use crate::error::Error;

/// The columns of a file of corrections.
const COLUMNS: [&str; 9] =
    ["kind", "source", "image", "label", "suggested_label", "score", "detail", "action", "new_label"];

/// What to do with an image, or with all images of a class.
#[derive(Clone, Debug)]
enum Action {
    Relabel(String),
    Drop,
}

impl Action {
    /// Whether both say the same, apart from spaces around labels and their order.
    fn is(&self, other: &Action) -> bool {
        match (self, other) {
            (Action::Relabel(one), Action::Relabel(other)) => {
                labels::canonical(one) == labels::canonical(other)
            }
            (Action::Drop, Action::Drop) => true,
            _ => false,
        }
    }
}

/// One correction. Its names are as they are written in the file: those of images and classes may have spaces around them.
#[derive(Debug)]
struct Correction {
    file: String,
    line: u64,
    /// The place of the source of the image; empty: any.
    source: String,
    /// The path of the image; empty: all images of the class `label`.
    image: String,
    label: String,
    action: Action,
    /// Images that it was for, in any split.
    found: usize,
}

/// The corrections of several files, in their order.
#[derive(Debug, Default)]
pub(super) struct Corrections {
    list: Vec<Correction>,
    /// By source and image.
    of_image: HashMap<(String, String), usize>,
    of_class: HashMap<String, usize>,
    /// By source and image without the spaces around it: those whose image the present source has only without them.
    spaced_images: HashMap<(String, String), usize>,
    /// By class in one spelling: those whose class no source so far has as it is written.
    spelt_classes: HashMap<String, usize>,
    /// The classes of the sources so far.
    classes: HashSet<String>,
    /// The places of the sources so far, the present one last.
    sources: Vec<String>,
    relabelled: usize,
    dropped: usize,
}

/// The SHA-256 of files of corrections, in their order: for a run that must not continue with other corrections.
///
/// # Errors
///
/// When a file cannot be read.
///
/// # Example
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// let file = folder.path().join("issues.csv");
/// std::fs::write(&file, "image,action\n1.png,drop\n").unwrap();
/// let digest = gallerist_data::digest_of_corrections(&[file]).unwrap();
/// assert_eq!(digest.len(), 64);
/// ```
pub fn digest_of_corrections(files: &[PathBuf]) -> Result<String, Error> {
    let mut digest = Sha256::new();
    for file in files {
        let bytes = read(file)?;
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(bytes);
    }
    Ok(gallerist_util::hex::encode(&digest.finalize()))
}

/// Whether a file of corrections corrects anything: in the table of `gallerist data issues`, the columns `action` and `new_label` are
/// empty until the user fills them.
///
/// # Errors
///
/// When the file cannot be read, or its rows cannot be used.
///
/// # Example
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// let file = folder.path().join("issues.csv");
/// std::fs::write(&file, "image,action\n1.png,\n").unwrap();
/// assert!(!gallerist_data::has_corrections(&file).unwrap());
/// ```
pub fn has_corrections(file: &Path) -> Result<bool, Error> {
    Ok(!Corrections::read(&[file.to_owned()])?.list.is_empty())
}

fn read(file: &Path) -> Result<Vec<u8>, Error> {
    gallerist_util::files::read_regular(file).map_err(|e| Error::io("read", file.display().to_string(), e))
}

impl Corrections {
    /// Reads files of corrections. Rows without an action are ignored.
    pub(super) fn read(files: &[PathBuf]) -> Result<Self, Error> {
        let mut all = Corrections::default();
        for file in files {
            all.add(&file.display().to_string(), &read(file)?)?;
        }
        Ok(all)
    }

    /// Adds those of a file. Values are separated by tabs if its name ends in `.tsv`, else by commas.
    ///
    /// Spaces around values stay: an image or a class may be called so. [`Corrections::find`] knows.
    fn add(&mut self, file: &str, bytes: &[u8]) -> Result<(), Error> {
        let fault = |line: u64, problem: String| Error::Corrections { path: file.to_owned(), line, problem };
        let bytes = bytes.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(bytes);
        let delimiter = if extension(file) == "tsv" { b'\t' } else { b',' };
        let mut reader =
            csv::ReaderBuilder::new().delimiter(delimiter).trim(csv::Trim::Headers).from_reader(bytes);
        let csv_fault = |e: csv::Error| {
            let (line, problem) = fault_of(&e, bytes);
            fault(line.unwrap_or(1), problem)
        };
        let header = reader.headers().map_err(csv_fault)?.clone();
        if let Some(unknown) = header.iter().find(|name| !COLUMNS.contains(name)) {
            return Err(fault(
                1,
                format!("no column is called `{unknown}`; there are {}", COLUMNS.join(", ")),
            ));
        }
        let place = |wanted: &str| header.iter().position(|name| name == wanted);
        for wanted in ["image", "action"] {
            if place(wanted).is_none() {
                return Err(fault(1, format!("no column `{wanted}`")));
            }
        }
        let mut lines = Lines::default();
        let mut record = csv::StringRecord::new();
        while reader.read_record(&mut record).map_err(csv_fault)? {
            let line = lines.at(bytes, record.position().map_or(0, csv::Position::byte));
            let value = |name: &str| {
                let value = place(name).map_or("", |place| &record[place]);
                if value.trim().is_empty() { String::new() } else { value.to_owned() }
            };
            let (image, mut label, mut new_label) = (value("image"), value("label"), value("new_label"));
            [&mut label, &mut new_label].into_iter().for_each(labels::to_nfc);
            let source = place_of(&value("source"));
            let action = match value("action").trim() {
                "" if new_label.is_empty() => continue,
                "drop" if new_label.is_empty() => Action::Drop,
                "relabel" if !new_label.is_empty() => Action::Relabel(new_label),
                "" => return Err(fault(line, format!("the new label `{new_label}` has no action"))),
                "drop" => return Err(fault(line, format!("`drop` with the new label `{new_label}`"))),
                "relabel" => return Err(fault(line, "`relabel` without a new label".to_owned())),
                other => return Err(fault(line, format!("no action is called `{other}`"))),
            };
            if let Action::Relabel(new) = &action
                && labels::canonical(new).is_none()
            {
                return Err(fault(line, format!("the label `{new}` has an empty part")));
            }
            if image.is_empty() && label.is_empty() {
                return Err(fault(line, "neither an image nor a label".to_owned()));
            }
            if image.is_empty() && !source.is_empty() {
                return Err(fault(line, "a source without an image".to_owned()));
            }
            let correction =
                Correction { file: file.to_owned(), line, source, image, label, action, found: 0 };
            self.push(correction)?;
        }
        Ok(())
    }

    /// Adds a correction; one that says the same again, in another row or file, is no error.
    fn push(&mut self, correction: Correction) -> Result<(), Error> {
        let of_image = (correction.source.clone(), correction.image.clone());
        let (before, key) = match correction.image.is_empty() {
            true => (self.of_class.get(&correction.label), &correction.label),
            false => (self.of_image.get(&of_image), &correction.image),
        };
        if let Some(&before) = before {
            let before = &self.list[before];
            if before.action.is(&correction.action) {
                return Ok(());
            }
            let problem =
                format!("`{key}` has another action here than in line {} of `{}`", before.line, before.file);
            return Err(Error::Corrections { path: correction.file, line: correction.line, problem });
        }
        match correction.image.is_empty() {
            true => self.of_class.insert(correction.label.clone(), self.list.len()),
            false => self.of_image.insert(of_image, self.list.len()),
        };
        self.list.push(correction);
        Ok(())
    }

    /// The corrections that follow each other from `first` on: the new label of each may be a class with a correction of its own.
    fn chain(&self, first: usize) -> Vec<usize> {
        let mut chain = vec![first];
        while let Some(next) = self.next(chain[chain.len() - 1]).filter(|next| !chain.contains(next)) {
            chain.push(next);
        }
        chain
    }

    /// The correction of the class that images get by this one.
    fn next(&self, at: usize) -> Option<usize> {
        let Action::Relabel(new) = &self.list[at].action else { return None };
        self.of_class(&self.class_called(new)).filter(|&next| next != at)
    }

    /// The class that a new label names: one that is called so, with its spaces, else the label in one spelling.
    fn class_called(&self, new: &str) -> String {
        let spelt = labels::canonical(new).filter(|_| !self.classes.contains(new));
        spelt.unwrap_or_else(|| new.to_owned())
    }

    /// Refuses classes whose corrections lead back to them.
    fn check_chains(&self) -> Result<(), Error> {
        for &first in self.of_class.values() {
            let chain = self.chain(first);
            if self.next(chain[chain.len() - 1]) != Some(first) {
                continue;
            }
            let at = chain.iter().copied().max().unwrap_or(first);
            let from = chain.iter().position(|&link| link == at).unwrap_or(0);
            let (end, start) = (&chain[..from], &chain[from..]);
            let names =
                start.iter().chain(end).chain([&at]).map(|&link| format!("`{}`", self.list[link].label));
            let Correction { file, line, .. } = &self.list[at];
            let problem =
                format!("the new labels go in a circle: {}", names.collect::<Vec<_>>().join(" to "));
            return Err(Error::Corrections { path: file.clone(), line: *line, problem });
        }
        Ok(())
    }

    /// The correction of an image of the present source, if there is one; one that names the source comes first.
    fn of_image(&self, path: &str) -> Option<usize> {
        let source = self.sources.last().cloned().unwrap_or_default();
        let of = |source: String| {
            let key = (source, path.to_owned());
            self.of_image.get(&key).or_else(|| self.spaced_images.get(&key)).copied()
        };
        of(source).or_else(|| of(String::new()))
    }

    /// The correction of a class, if there is one.
    fn of_class(&self, class: &str) -> Option<usize> {
        let spelt = || self.spelt_classes.get(&labels::canonical(class)?);
        self.of_class.get(class).or_else(spelt).copied()
    }

    /// Finds what corrections name with spaces around it, or as a set `b | a`, for images of the present source. An image or a
    /// class that is called just as it is written comes first.
    fn find_respelt(&mut self, records: &[ImageRecord]) {
        self.spaced_images.clear();
        self.spelt_classes.clear();
        let paths: HashSet<&str> = records.iter().map(ImageRecord::path).collect();
        for at in 0..self.list.len() {
            let Correction { source, image, label, .. } = &self.list[at];
            let first = if image.is_empty() {
                let spelt = labels::canonical(label).filter(|_| !self.classes.contains(label));
                let Some(class) = spelt else { continue };
                let written = self.of_class.get(&class).copied().filter(|&written| written != at);
                written.unwrap_or_else(|| *self.spelt_classes.entry(class).or_insert(at))
            } else {
                let path = image.trim();
                if paths.contains(image.as_str()) || !paths.contains(path) {
                    continue;
                }
                let key = (source.clone(), path.to_owned());
                let written = self.of_image.get(&key).copied();
                written.unwrap_or_else(|| *self.spaced_images.entry(key).or_insert(at))
            };
            // One that says the same again is used, too.
            if first != at && self.list[first].action.is(&self.list[at].action) {
                self.list[at].found += 1;
            }
        }
    }

    /// Notes which corrections are for images of a source: all its images, before a split is chosen. It is the present source from
    /// now on.
    pub(super) fn find(
        &mut self,
        records: &[ImageRecord],
        source: &str,
        label_from: LabelFrom,
    ) -> Result<(), Error> {
        if self.list.is_empty() {
            return Ok(());
        }
        self.sources.push(place_of(source));
        let classes: Vec<String> = records.iter().map(|record| class_of(record, label_from)).collect();
        self.classes.extend(classes.iter().cloned());
        self.find_respelt(records);
        self.check_chains()?;
        for (record, label) in records.iter().zip(classes) {
            let of_image = self.of_image(record.path());
            if let Some(first) = of_image.or_else(|| self.of_class(&label)) {
                let chain = self.chain(first);
                chain.iter().skip(usize::from(of_image.is_some())).for_each(|&at| self.list[at].found += 1);
            }
            // A correction of a class is used, too, where every image of it has one of its own.
            if let (Some(_), Some(at)) = (of_image, self.of_class(&label)) {
                self.list[at].found += 1;
            }
            let Some(at) = of_image else { continue };
            let correction = &mut self.list[at];
            let fault = |problem: String| Error::Corrections {
                path: correction.file.clone(),
                line: correction.line,
                problem,
            };
            if correction.found > 0 {
                return Err(fault(format!("two sources have an image `{}`", correction.image)));
            }
            let is_called = |name: &String| {
                *name == label || labels::canonical(name).is_some_and(|name| name == label.trim())
            };
            if !correction.label.is_empty() && !is_called(&correction.label) {
                return Err(fault(format!(
                    "`{}` has the label `{label}` in `{source}`, not `{}`",
                    correction.image, correction.label
                )));
            }
            correction.found += 1;
        }
        Ok(())
    }

    /// Corrects the labels of records of the present source and leaves out those that are dropped. A correction of an image
    /// comes before one of its class. Where the new label is a class with a correction of its own, that one follows.
    pub(super) fn apply(&mut self, records: &mut Vec<ImageRecord>, label_from: LabelFrom) {
        if self.list.is_empty() {
            return;
        }
        let (mut relabelled, mut dropped) = (0, 0);
        records.retain_mut(|record| {
            let label = class_of(record, label_from);
            let first = self.of_image(record.path()).or_else(|| self.of_class(&label));
            let last = first.map(|first| self.chain(first)).and_then(|chain| chain.last().copied());
            match last.map(|at| &self.list[at].action) {
                None => true,
                Some(Action::Drop) => {
                    dropped += 1;
                    false
                }
                Some(Action::Relabel(new)) => {
                    let new = self.class_called(new);
                    relabelled += usize::from(label != new);
                    record.label = Some(new);
                    record.is_corrected = true;
                    true
                }
            }
        });
        self.relabelled += relabelled;
        self.dropped += dropped;
    }

    /// Refuses corrections that were for no image; `set` is the name of the set. Returns what was done, for the notes.
    ///
    /// Corrections of other sources are for other sets; there must be one of this set.
    pub(super) fn finish(self, set: &str) -> Result<Option<String>, Error> {
        let sources: HashSet<&str> = self.sources.iter().map(String::as_str).collect();
        let is_of_set =
            |correction: &Correction| correction.source.is_empty() || sources.contains(&*correction.source);
        let others = self.list.iter().filter(|correction| !is_of_set(correction)).count();
        if let Some(Correction { file, line, source, .. }) =
            self.list.first().filter(|_| others == self.list.len())
        {
            let problem = format!("all corrections are of other sources than `{set}`, such as `{source}`");
            return Err(Error::Corrections { path: file.clone(), line: *line, problem });
        }
        if let Some(unused) =
            self.list.iter().find(|correction| is_of_set(correction) && correction.found == 0)
        {
            let missing = match unused.image.is_empty() {
                true => format!("no image of `{set}` has the label `{}`", unused.label),
                false => format!("`{set}` has no image `{}`", unused.image),
            };
            let (path, line) = (unused.file.clone(), unused.line);
            return Err(Error::Corrections { path, line, problem: missing });
        }
        let images = |n: usize| if n == 1 { "1 image".to_owned() } else { format!("{n} images") };
        let note = || {
            let of_others = match others {
                0 => String::new(),
                1 => "; 1 correction is of another source".to_owned(),
                n => format!("; {n} corrections are of other sources"),
            };
            format!(
                "corrections: {} relabelled, {} left out{of_others}",
                images(self.relabelled),
                images(self.dropped)
            )
        };
        Ok((!self.list.is_empty()).then(note))
    }
}

/// The absolute path of a source, however it is written; of a name or an address, the spaces around it are left out.
fn place_of(source: &str) -> String {
    let trimmed = source.trim();
    if trimmed.is_empty() {
        return String::new();
    }
    let place = Path::new(source).canonicalize().or_else(|_| Path::new(trimmed).canonicalize());
    place.map_or_else(|_| trimmed.to_owned(), |place| place.to_string_lossy().into_owned())
}

/// The name of a record's class, as a set has it; empty without a label.
fn class_of(record: &ImageRecord, label_from: LabelFrom) -> String {
    let Some(label) = &record.label else { return String::new() };
    let mut label = label_from.class_of(label);
    labels::to_nfc(&mut label);
    match label.contains(labels::SEPARATOR) {
        true => labels::canonical(&label).unwrap_or(label),
        false => label,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn corrections(text: &str) -> Result<Corrections, Error> {
        let mut all = Corrections::default();
        all.add("c.csv", text.as_bytes())?;
        Ok(all)
    }

    fn records() -> Vec<ImageRecord> {
        [("1.png", "a"), ("2.png", "a"), ("3.png", "b"), ("4.png", "c")]
            .map(|(path, label)| ImageRecord::new(path).with_label(label))
            .to_vec()
    }

    #[test]
    fn labels_change_and_images_are_left_out() {
        let text = "kind,image,label,suggested_label,score,detail,action,new_label\n\
                    wrong_label,1.png,a,b,.9,,relabel,b\n\
                    outlier,3.png,b,,4,,drop,\n\
                    wrong_label,2.png,a,b,.8,,,\n\
                    same_class,,c,d,.9,,relabel,d\n";
        let mut all = corrections(text).unwrap();
        let mut records = records();
        all.find(&records, "set", LabelFrom::Path).unwrap();
        all.apply(&mut records, LabelFrom::Path);
        let left: Vec<_> = records.iter().map(|r| (r.path(), r.label.as_deref().unwrap())).collect();
        assert_eq!(left, [("1.png", "b"), ("2.png", "a"), ("4.png", "d")]);
        assert_eq!(
            all.finish("set").unwrap().as_deref(),
            Some("corrections: 2 images relabelled, 1 image left out")
        );
    }

    #[test]
    fn faults_name_the_file_the_line_and_the_problem() {
        let faults = [
            ("image,action,newlabel\n", "no column is called `newlabel`"),
            ("image,label\n", "no column `action`"),
            ("image,action\n1.png,delete\n", "line 2: no action is called `delete`"),
            ("image,action,new_label\n1.png,relabel,\n", "`relabel` without a new label"),
            ("image,action,new_label\n1.png,,b\n", "the new label `b` has no action"),
            ("image,action,new_label\n1.png,drop,b\n", "`drop` with the new label `b`"),
            ("image,action,new_label\n1.png,relabel,|\n", "has an empty part"),
            ("image,action\n,drop\n", "neither an image nor a label"),
            (
                "image,action,new_label\n1.png,relabel,b\n1.png,relabel,c\n",
                "line 3: `1.png` has another action here than in line 2 of `c.csv`",
            ),
        ];
        for (text, wanted) in faults {
            let message = corrections(text).unwrap_err().to_string();
            assert!(message.starts_with("corrections `c.csv`, line"), "{message}");
            assert!(message.contains(wanted), "{message}");
        }
        assert!(corrections("image,action\n1.png,drop\n1.png,drop\n").is_ok());
    }

    #[test]
    fn lines_are_counted_as_an_editor_does() {
        let line = "corrections `c.csv`, line";
        for (text, wanted) in [
            ("image,action\r\n1.png,drop\r\n2.png,delete\r\n", "3: no action is called `delete`"),
            ("image,action\r\n\r\n1.png,drop\r\n\r\n2.png,delete\r\n", "5: no action is called `delete`"),
            ("image,action\n\n2.png,delete\n", "3: no action is called `delete`"),
            ("image,action\r\n1.png,drop\r\n2.png\r\n", "3: 1 values where the header has 2 columns"),
        ] {
            let message = corrections(text).unwrap_err().to_string();
            assert!(message.starts_with(&format!("{line} {wanted}")), "{message}");
        }
    }

    #[test]
    fn spaces_around_a_name_count_only_where_something_is_called_so() {
        let all_of = |records: &[(&str, &str)], text: &str| {
            let mut records: Vec<_> =
                records.iter().map(|&(path, label)| ImageRecord::new(path).with_label(label)).collect();
            let mut all = corrections(&format!("image,label,action,new_label\n{text}"))?;
            all.find(&records, "set", LabelFrom::Path)?;
            all.apply(&mut records, LabelFrom::Path);
            all.finish("set")?;
            Ok::<_, Error>(records.into_iter().map(|record| record.label.unwrap()).collect::<Vec<_>>())
        };
        let found = |records: &[(&str, &str)], text: &str| all_of(records, text).unwrap();
        // As typed by hand.
        let plain = [("1.png", "a"), ("2.png", "b"), ("3.png", "b")];
        assert_eq!(found(&plain, " 1.png , a ,relabel , b \n"), ["b", "b", "b"]);
        assert_eq!(found(&plain, ", b , relabel, new \n"), ["a", "new", "new"]);
        assert_eq!(found(&plain, ",b,relabel,a\n, b,relabel,a \n1.png,,drop,\n 1.png,,drop,\n"), ["a", "a"]);
        assert_eq!(found(&plain, ",a,relabel,b \n, b ,relabel,c\n"), ["c", "c", "c"]);
        // As a class folder and a file are called.
        let spaced = [(" neu/1.png", " neu"), ("alt/1.png", "alt"), ("alt/ 1.png", "alt")];
        assert_eq!(found(&spaced, " neu/1.png, neu,relabel,alt\n"), ["alt", "alt", "alt"]);
        assert_eq!(found(&spaced, "alt/1.png,alt,relabel, neu\n"), [" neu", " neu", "alt"]);
        assert_eq!(found(&spaced, "alt/ 1.png,alt,drop,\n"), [" neu", "alt"]);
        assert_eq!(found(&spaced, ",neu,relabel,alt\n"), ["alt", "alt", "alt"]);
        // Both are there: each is called as it is written.
        let both = [("1.png", "neu"), (" 1.png", " neu"), ("2.png", "alt")];
        assert_eq!(found(&both, " 1.png,,drop,\n"), ["neu", "alt"]);
        assert_eq!(found(&both, ",neu,relabel,x\n"), ["x", " neu", "alt"]);
        assert_eq!(found(&both, ", neu,relabel,x\n,neu,relabel,y\n"), ["y", "x", "alt"]);
        assert_eq!(found(&both, "2.png,,relabel,neu\n, neu,relabel,x\n"), ["neu", "x", "neu"]);
        assert_eq!(found(&both, ", neu,relabel,neu\n"), ["neu", "neu", "alt"]);
        let refused = |records: &[(&str, &str)], text: &str| all_of(records, text).unwrap_err().to_string();
        let message = refused(&both, ",neu,relabel, neu\n, neu,relabel,neu\n");
        assert!(message.contains("the new labels go in a circle"), "{message}");
        // A contradiction is not decided in silence.
        let message = refused(&plain, "1.png,,drop,\n 1.png,,relabel,b\n");
        assert!(message.contains("line 3: `set` has no image ` 1.png`"), "{message}");
        let message = refused(&plain, ",b,drop,\n,b ,relabel,a\n");
        assert!(message.contains("line 3: no image of `set` has the label `b `"), "{message}");
    }

    /// The labels that images get by these corrections.
    fn corrected(text: &str) -> Vec<(String, String)> {
        let mut all = corrections(text).unwrap();
        let mut records = records();
        all.find(&records, "set", LabelFrom::Path).unwrap();
        all.apply(&mut records, LabelFrom::Path);
        all.finish("set").unwrap();
        records.iter().map(|record| (record.path().to_owned(), record.label.clone().unwrap())).collect()
    }

    #[test]
    fn classes_are_joined_along_a_chain_of_corrections_and_a_circle_is_refused() {
        let labels = |text: &str| corrected(text).into_iter().map(|(_, label)| label).collect::<Vec<_>>();
        let chain = "image,label,action,new_label\n,a,relabel,b\n,b,relabel,c\n";
        assert_eq!(labels(chain), ["c", "c", "c", "c"]);
        // A class without images of its own is a link, too.
        let through = "image,label,action,new_label\n,a,relabel,x\n,x,relabel,c\n";
        assert_eq!(labels(through), ["c", "c", "b", "c"]);
        let of_image = "image,label,action,new_label\n1.png,a,relabel,b\n,b,relabel,c\n";
        assert_eq!(labels(of_image), ["c", "a", "c", "c"]);
        let to_dropped = "image,label,action,new_label\n,a,relabel,b\n,b,drop,\n";
        assert_eq!(corrected(to_dropped), [("4.png".to_owned(), "c".to_owned())]);
        for text in [",a,relabel,b\n,b,relabel,a\n", ",c,relabel,a\n,a,relabel,b\n,b,relabel,a\n"] {
            let all = corrections(&format!("image,label,action,new_label\n{text}")).unwrap();
            let message = all.check_chains().unwrap_err().to_string();
            assert!(message.contains("the new labels go in a circle: `b` to `a` to `b`"), "{message}");
        }
        assert!(corrections("image,label,action,new_label\n,a,relabel,a\n").unwrap().check_chains().is_ok());
    }

    #[test]
    fn a_correction_with_a_source_is_for_the_image_of_that_source_alone() {
        let text = "source,image,label,action,new_label\none,1.png,a,relabel,x\ntwo,2.png,,drop,\n";
        let mut all = corrections(text).unwrap();
        let mut labels = Vec::new();
        for source in ["one", "two"] {
            let mut records = records();
            all.find(&records, source, LabelFrom::Path).unwrap();
            all.apply(&mut records, LabelFrom::Path);
            labels.push(records.iter().map(|r| r.label.clone().unwrap()).collect::<Vec<_>>());
        }
        assert_eq!(labels, [vec!["x", "a", "b", "c"], vec!["a", "b", "c"]]);
        assert!(all.finish("both").is_ok());
        // Of one source alone.
        let mut all = corrections(text).unwrap();
        all.find(&records(), "one", LabelFrom::Path).unwrap();
        all.apply(&mut records(), LabelFrom::Path);
        let note = all.finish("one").unwrap().unwrap();
        assert!(
            note.ends_with("1 image relabelled, 0 images left out; 1 correction is of another source"),
            "{note}"
        );
        let mut all = corrections(text).unwrap();
        all.find(&records(), "three", LabelFrom::Path).unwrap();
        let message = all.finish("three").unwrap_err().to_string();
        assert!(
            message.contains("all corrections are of other sources than `three`, such as `one`"),
            "{message}"
        );
    }

    #[test]
    fn corrections_of_another_set_are_refused() {
        let mut all = corrections("image,action\n9.png,drop\n").unwrap();
        all.find(&records(), "set", LabelFrom::Path).unwrap();
        assert!(all.finish("set").unwrap_err().to_string().contains("`set` has no image `9.png`"));
        let mut all = corrections("image,label,action\n1.png,b,drop\n").unwrap();
        let message = all.find(&records(), "set", LabelFrom::Path).unwrap_err().to_string();
        assert!(message.contains("`1.png` has the label `a` in `set`, not `b`"), "{message}");
        let mut all = corrections("image,label,action\n1.png,a,drop\n").unwrap();
        all.find(&records(), "one", LabelFrom::Path).unwrap();
        assert!(
            all.find(&records(), "two", LabelFrom::Path).unwrap_err().to_string().contains("two sources")
        );
        let mut all = corrections("image,label,action\n,z,drop\n").unwrap();
        all.find(&records(), "set", LabelFrom::Path).unwrap();
        assert!(all.finish("set").unwrap_err().to_string().contains("has the label `z`"));
    }
}
