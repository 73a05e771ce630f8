//! Walking a folder.

use std::fs;
use std::path::{Path, PathBuf};

use super::names::is_ignored;
use crate::error::Error;

/// All files below `root` as paths relative to it, with `/` between the parts,
/// in no particular order. Hidden files and folders are left out; links are
/// followed.
pub(super) fn list(root: &Path) -> Result<Vec<String>, Error> {
    let mut files = Vec::new();
    let start = canonical(root)?;
    walk(root, "", &mut vec![start], &mut files)?;
    Ok(files)
}

fn walk(
    folder: &Path,
    prefix: &str,
    ancestors: &mut Vec<PathBuf>,
    files: &mut Vec<String>,
) -> Result<(), Error> {
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
        if link {
            kind = fs::metadata(&path)
                .map_err(|e| Error::io("follow the link", path.display().to_string(), e))?
                .file_type();
        }
        let relative = if prefix.is_empty() { name } else { format!("{prefix}/{name}") };
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
            walk(&path, &relative, ancestors, files)?;
            ancestors.pop();
        } else if kind.is_file() {
            files.push(relative);
        }
    }
    Ok(())
}

fn canonical(path: &Path) -> Result<PathBuf, Error> {
    path.canonicalize().map_err(|e| Error::io("open", path.display().to_string(), e))
}
