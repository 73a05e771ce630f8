//! Walking a folder.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use super::names::is_ignored;
use crate::error::Error;

/// The files of a folder.
#[derive(Default)]
pub(super) struct Listed {
    /// Paths relative to the folder, with `/` between the parts, in no particular order.
    pub(super) files: Vec<String>,
    /// Those of `files` that are links which lead nowhere.
    pub(super) lost_links: Vec<String>,
}

/// All files below `root`. Hidden files and folders are left out; links are followed.
pub(super) fn list(root: &Path) -> Result<Listed, Error> {
    let mut listed = Listed::default();
    let start = canonical(root)?;
    walk(root, "", &mut vec![start], &mut listed)?;
    Ok(listed)
}

fn walk(folder: &Path, prefix: &str, ancestors: &mut Vec<PathBuf>, listed: &mut Listed) -> Result<(), Error> {
    let failed = |e| Error::io("list", folder.display().to_string(), e);
    for entry in fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let Some(name) = entry.file_name().to_str().map(str::to_owned) else {
            return Err(Error::Layout {
                path: folder.display().to_string(),
                problem: format!("the name of `{}` is not UTF-8", path.display()),
                hint: "rename the file",
            });
        };
        if is_ignored(&name) {
            continue;
        }
        let mut kind = entry.file_type().map_err(failed)?;
        let link = kind.is_symlink();
        let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
        if link {
            kind = match fs::metadata(&path) {
                Ok(target) => target.file_type(),
                Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::NotADirectory) => {
                    listed.files.push(relative.clone());
                    listed.lost_links.push(relative);
                    continue;
                }
                Err(error) => return Err(Error::io("follow the link", path.display().to_string(), error)),
            };
        }
        if kind.is_dir() {
            // Only a link can lead back to a folder we are in.
            let here = if link {
                let here = canonical(&path)?;
                if ancestors.contains(&here) {
                    return Err(Error::Layout {
                        path: folder.display().to_string(),
                        problem: format!("`{}` is a link to a folder above it", path.display()),
                        hint: "remove the link",
                    });
                }
                here
            } else {
                ancestors.last().expect("the root is always there").join(entry.file_name())
            };
            ancestors.push(here);
            walk(&path, &relative, ancestors, listed)?;
            ancestors.pop();
        } else {
            // A named pipe or a socket, too: in place of an image it is a broken one.
            listed.files.push(relative);
        }
    }
    Ok(())
}

fn canonical(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|e| Error::io("open", path.display().to_string(), e))
}
