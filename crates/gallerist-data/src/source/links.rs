//! Links in an archive.

use std::collections::{BTreeMap, HashMap};

use super::manifest::resolve;

/// Links that are followed one after the other to find a file, as Linux does.
const MOST_STEPS: usize = 40;
/// Files and links that links to folders may stand for. A few links to each other can stand for any number.
const MOST_FILES: usize = 1 << 20;

/// An entry that names another.
pub(super) struct Link {
    /// As it is written in the archive.
    pub(super) target: String,
    /// Relative to the folder of the link; a hard link is relative to the top of the archive.
    pub(super) is_symbolic: bool,
}

impl Link {
    /// The path in the archive that a link at `at` names; `None` where it leads outside.
    fn path(&self, at: &str) -> Option<String> {
        if self.target.starts_with('/') {
            return None;
        }
        let folder = if self.is_symbolic { at.rsplit_once('/').map_or("", |(folder, _)| folder) } else { "" };
        resolve(folder, &self.target)
    }
}

/// Adds the files that links stand for to `files`, each with the value of the file that it leads to. Returns the links
/// that lead to nothing in the archive, with their targets.
///
/// # Errors
///
/// A link to a folder above it, and links that stand for too many files.
pub(super) fn follow<T: Copy>(
    files: &mut HashMap<String, T>,
    links: &HashMap<String, Link>,
) -> Result<HashMap<String, String>, String> {
    if links.is_empty() {
        return Ok(HashMap::new());
    }
    let sorted: BTreeMap<String, T> = files.iter().map(|(path, &value)| (path.clone(), value)).collect();
    let links: BTreeMap<&str, &Link> = links.iter().map(|(path, link)| (path.as_str(), link)).collect();
    let all = Archive { files: sorted, links };
    let mut found = Found { files: Vec::new(), visited: 0, above: Vec::new() };
    let mut lost = HashMap::new();
    for (&path, link) in &all.links {
        if !all.add(path, path, &mut found)? {
            lost.insert(path.to_owned(), link.target.clone());
        }
    }
    files.extend(found.files);
    Ok(lost)
}

/// Why a file cannot be read that is not in the archive. `lost` has the links that [`follow`] lost.
pub(super) fn absence(path: &str, lost: &HashMap<String, String>) -> String {
    match lost.get(path) {
        Some(target) => format!("it is a link to `{target}`, which is not in the archive"),
        None => "there is no such file in the archive".to_owned(),
    }
}

struct Archive<'a, T> {
    files: BTreeMap<String, T>,
    links: BTreeMap<&'a str, &'a Link>,
}

/// What links stand for.
struct Found<T> {
    files: Vec<(String, T)>,
    /// Files and links that were visited.
    visited: usize,
    /// The linked folders that the current one is in, by their own paths.
    above: Vec<String>,
}

impl<T> Found<T> {
    fn visit(&mut self) -> Result<(), String> {
        self.visited += 1;
        match self.visited > MOST_FILES || self.above.len() > MOST_STEPS {
            true => Err(format!(
                "its links to folders stand for more than {MOST_FILES} files or {MOST_STEPS} folders"
            )),
            false => Ok(()),
        }
    }
}

impl<T: Copy> Archive<'_, T> {
    /// Adds the file, or the files of the folder, that the link at `link` leads to, under the path `name`. Returns false if it leads
    /// to nothing.
    fn add(&self, link: &str, name: &str, found: &mut Found<T>) -> Result<bool, String> {
        found.visit()?;
        let Some(target) = self.real_path(link) else { return Ok(false) };
        if let Some(&file) = self.files.get(&target) {
            found.files.push((name.to_owned(), file));
            return Ok(true);
        }
        let prefix = if target.is_empty() { String::new() } else { format!("{target}/") };
        if found.above.contains(&target) || link.starts_with(&prefix) {
            return Err(format!("`{link}` is a link to a folder above it"));
        }
        let mut is_folder = false;
        found.above.push(target);
        let is_below = |path: &str| path.starts_with(&prefix);
        for (path, &file) in self.files.range(prefix.clone()..).take_while(|(path, _)| is_below(path)) {
            is_folder = true;
            found.visit()?;
            found.files.push((format!("{name}/{}", &path[prefix.len()..]), file));
        }
        for (inner, _) in self.links.range(prefix.as_str()..).take_while(|(path, _)| is_below(path)) {
            // One that leads to nothing is reported at its own place.
            is_folder |= self.add(inner, &format!("{name}/{}", &inner[prefix.len()..]), found)?;
        }
        found.above.pop();
        Ok(is_folder)
    }

    /// The path that a link leads to, after all the links on the way; `None` where it leads outside or in circles.
    fn real_path(&self, link: &str) -> Option<String> {
        let mut path = self.links.get(link)?.path(link)?;
        for _ in 0..MOST_STEPS {
            // The shortest leading part that is a link itself.
            let ends = path.match_indices('/').map(|(at, _)| at).chain([path.len()]);
            let step = ends.map(|end| &path[..end]).find_map(|part| Some((part, self.links.get(part)?)));
            let Some((part, link)) = step else { return Some(path) };
            path = resolve(&link.path(part)?, &path[part.len()..])?;
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paths of links with the numbers of the files that they lead to, and the lost links.
    type Followed = (Vec<(String, usize)>, Vec<String>);

    fn followed(files: &[&str], links: &[(&str, &str)]) -> Result<Followed, String> {
        let mut all: HashMap<String, usize> =
            files.iter().enumerate().map(|(i, path)| (path.to_string(), i)).collect();
        let links = links.iter().map(|(path, target)| {
            // `=` marks a hard link.
            let is_symbolic = !target.starts_with('=');
            let target = target.trim_start_matches('=').to_owned();
            (path.to_string(), Link { target, is_symbolic })
        });
        let lost = follow(&mut all, &links.collect())?;
        for path in files {
            all.remove(*path);
        }
        let mut all: Vec<_> = all.into_iter().collect();
        all.sort();
        let mut lost: Vec<String> = lost.into_keys().collect();
        lost.sort();
        Ok((all, lost))
    }

    #[test]
    fn links_lead_to_files_through_other_links_and_to_folders() {
        let files = ["a/1.png", "a/b/2.png"];
        let links = [
            ("c/1.png", "../a/1.png"),
            ("c/hard.png", "=a/1.png"),
            ("c/twice.png", "1.png"),
            ("d", "a"),
            ("e/through.png", "../d/b/2.png"),
            ("f", "c"),
        ];
        let (found, lost) = followed(&files, &links).unwrap();
        let wanted = [
            ("c/1.png", 0),
            ("c/hard.png", 0),
            ("c/twice.png", 0),
            ("d/1.png", 0),
            ("d/b/2.png", 1),
            ("e/through.png", 1),
            ("f/1.png", 0),
            ("f/hard.png", 0),
            ("f/twice.png", 0),
        ];
        assert_eq!(found, wanted.map(|(path, file)| (path.to_owned(), file)));
        assert_eq!(lost, [] as [&str; 0]);
    }

    #[test]
    fn links_that_lead_nowhere_outside_or_to_each_other_are_lost() {
        let links = [
            ("gone.png", "b.png"),
            ("out.png", "../../x.png"),
            ("root.png", "/x.png"),
            ("x", "y"),
            ("y", "x"),
        ];
        let (found, lost) = followed(&["1.png"], &links).unwrap();
        assert_eq!(
            (found.len(), lost),
            (0, ["gone.png", "out.png", "root.png", "x", "y"].map(str::to_owned).to_vec())
        );
    }

    #[test]
    fn links_to_folders_above_them_and_too_many_files_are_refused() {
        let above = followed(&["a/1.png"], &[("a/back", "..")]).unwrap_err();
        assert_eq!(above, "`a/back` is a link to a folder above it");
        let each_other = followed(&["a/1.png", "b/1.png"], &[("a/x", "../b"), ("b/x", "../a")]).unwrap_err();
        assert!(each_other.ends_with("is a link to a folder above it"), "{each_other}");
        // Each folder has two links to the next.
        let links: Vec<(String, String)> = (0..30)
            .flat_map(|i| ["x", "y"].map(|name| (format!("{i:02}/{name}"), format!("../{:02}", i + 1))))
            .collect();
        let links: Vec<(&str, &str)> = links.iter().map(|(a, b)| (a.as_str(), b.as_str())).collect();
        let many = followed(&["30/1.png", "30/2.png"], &links).unwrap_err();
        assert!(many.contains("more than 1048576 files"), "{many}");
        // And lead to no file.
        let many = followed(&["1.png"], &links).unwrap_err();
        assert!(many.contains("more than 1048576 files"), "{many}");
    }
}
