//! Downloads of weights: an interrupted download is resumed; a wrong checksum is an error.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use gallerist_retrieval::file::prepare_to_write;
use ureq::tls::RootCerts;

use super::http::{self, Url};
use crate::{Error, Result};

/// Attempts without progress before an error.
const TRIES: u32 = 4;
/// A larger file is no file of weights of these networks.
const LARGEST: u64 = 8 << 30;

/// A file that was fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fetched {
    /// Its path.
    pub path: PathBuf,
    /// Its size in bytes.
    pub bytes: u64,
    /// Its SHA-256, 64 hexadecimal digits.
    pub sha256: String,
    /// Bytes that existed already, from an earlier download.
    pub kept: u64,
}

/// Downloads a file to `out`, or into that directory under its own name.
///
/// Downloads to `NAME.part` next to the file, and renames it when it is complete and its SHA-256
/// begins with the digits of `sha256` (8 to 64, hexadecimal). An interrupted download is resumed
/// in the same or in a later call. If the file exists with the right checksum,
/// nothing is downloaded. `progress` receives the number of downloaded bytes, and the total if it is known.
///
/// # Errors
///
/// [`Error::Fetch`] where the address is none, the server cannot be reached or refuses, the transfer
/// breaks off again and again, or the checksum is another; [`Error::Io`] where the file cannot be written.
pub fn fetch(
    url: &str,
    sha256: &str,
    out: &Path,
    progress: &mut dyn FnMut(u64, Option<u64>),
) -> Result<Fetched> {
    Transfer::new(url, sha256, out, RootCerts::WebPki)?.run(progress)
}

struct Transfer {
    address: String,
    url: Url,
    /// Digits the checksum begins with, lower case.
    wanted: String,
    out: PathBuf,
    part: PathBuf,
    roots: RootCerts,
}

impl Transfer {
    fn new(address: &str, sha256: &str, out: &Path, roots: RootCerts) -> Result<Self> {
        let error = |reason: &str, hint: &str| Error::Fetch {
            url: address.into(),
            reason: reason.into(),
            hint: Some(hint.into()),
        };
        let url = Url::parse(address)
            .ok_or_else(|| error("it is no address", "write it as https://host/path/file.pth"))?;
        let wanted = sha256.to_ascii_lowercase();
        if !(8..=64).contains(&wanted.len()) || !wanted.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err(error(
                "its SHA-256 is needed",
                "give 8 to 64 hexadecimal digits from a source you trust",
            ));
        }
        let out = match (out.is_dir(), url.file_name()) {
            (false, _) => out.to_path_buf(),
            (true, Some(name)) => out.join(name),
            (true, None) => return Err(error("it names no file", "give the file's place with its name")),
        };
        let mut part = out.clone().into_os_string();
        part.push(".part");
        Ok(Transfer { address: address.into(), url, wanted, out, part: part.into(), roots })
    }

    fn error(&self, reason: String, hint: Option<&str>) -> Error {
        Error::Fetch { url: self.address.clone(), reason, hint: hint.map(str::to_string) }
    }

    fn run(&self, progress: &mut dyn FnMut(u64, Option<u64>)) -> Result<Fetched> {
        // A file that is there, also at the end of a link, is only compared.
        if !self.out.is_file() {
            prepare_to_write(&self.out)?;
        }
        prepare_to_write(&self.part)?;
        if self.out.exists() {
            let (bytes, sha256) = digest(&self.out)?;
            if sha256.starts_with(&self.wanted) {
                // A loss of power during the renaming can leave both names.
                let _ = fs::remove_file(&self.part);
                return Ok(Fetched { path: self.out.clone(), bytes, sha256, kept: bytes });
            }
            let path = self.out.display();
            let reason = format!("`{path}` is there and its SHA-256 is {sha256}, not {}", self.wanted);
            return Err(self.error(reason, Some("move it away, or name another place with --out")));
        }
        let mut kept = self.part.metadata().map_or(0, |metadata| metadata.len());
        loop {
            if let Err(error) = self.transfer(progress) {
                if self.part.metadata().is_ok_and(|metadata| metadata.len() == 0) {
                    // Nothing is lost if an empty file stays.
                    let _ = fs::remove_file(&self.part);
                }
                return Err(error);
            }
            let (bytes, sha256) = digest(&self.part)?;
            if sha256.starts_with(&self.wanted) {
                self.publish()?;
                return Ok(Fetched { path: self.out.clone(), bytes, sha256, kept });
            }
            fs::remove_file(&self.part).map_err(|source| io("remove", &self.part, source))?;
            // The rest of an earlier download may belong to another file.
            if kept == 0 {
                let reason = format!("the SHA-256 of what came is {sha256}, not {}", self.wanted);
                let hint = "the file was changed on the way or at its source; it has been thrown away";
                return Err(self.error(reason, Some(hint)));
            }
            kept = 0;
        }
    }

    /// Downloads until the file is complete; each attempt resumes the previous one.
    fn transfer(&self, progress: &mut dyn FnMut(u64, Option<u64>)) -> Result<()> {
        let mut file = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.part)
            .map_err(|source| io("create", &self.part, source))?;
        let mut length = file.seek(SeekFrom::End(0)).map_err(|source| io("write", &self.part, source))?;
        let mut idle = 0;
        loop {
            let before = length;
            match self.attempt(&mut file, &mut length, progress) {
                Ok(()) => {
                    file.sync_all().map_err(|source| io("write", &self.part, source))?;
                    return Ok(());
                }
                Err(Stop::Error(error)) => return Err(error),
                Err(Stop::Broken(reason)) => {
                    idle = if length > before { 1 } else { idle + 1 };
                    if idle == TRIES {
                        let hint = "the received part is kept; the same command continues from there";
                        return Err(self.error(reason, Some(hint)));
                    }
                    std::thread::sleep(Duration::from_millis(100 << idle));
                }
            }
        }
    }

    /// One request and as much of its answer as comes.
    fn attempt(
        &self,
        file: &mut File,
        length: &mut u64,
        progress: &mut dyn FnMut(u64, Option<u64>),
    ) -> std::result::Result<(), Stop> {
        let write = |source| Stop::Error(io("write", &self.part, source));
        let broken = |e: std::io::Error| Stop::Broken(e.to_string());
        let mut response = http::get(&self.url, *length, &self.roots).map_err(broken)?;
        let total = match response.status {
            // The server does not resume: from the beginning.
            200 => {
                file.set_len(0).map_err(write)?;
                *length = 0;
                response.header("content-length").and_then(|text| text.parse().ok())
            }
            206 => {
                let range = response.header("content-range").and_then(content_range);
                match range {
                    Some((from, total)) if from == *length => total,
                    _ => {
                        file.set_len(0).map_err(write)?;
                        *length = 0;
                        return Err(Stop::Broken(
                            "the server sent another part than the requested one".into(),
                        ));
                    }
                }
            }
            // The server has no more bytes: the checksum decides.
            416 if *length > 0 => return Ok(()),
            // The server's trouble may pass.
            status @ (408 | 429 | 500..=599) => {
                return Err(Stop::Broken(format!("the server answers {status}")));
            }
            status => {
                let hint = (status == 404).then_some("the file is not there; see `gallerist weights list`");
                return Err(Stop::Error(self.error(format!("the server answers {status}"), hint)));
            }
        };
        if total.is_some_and(|total| total > LARGEST) {
            return Err(Stop::Error(self.error(format!("it is larger than {} GiB", LARGEST >> 30), None)));
        }
        let mut buffer = vec![0; 64 * 1024];
        loop {
            let count = response.body.read(&mut buffer).map_err(broken)?;
            if count == 0 {
                return Ok(());
            }
            file.write_all(&buffer[..count]).map_err(write)?;
            *length += count as u64;
            if *length > LARGEST {
                return Err(Stop::Error(
                    self.error(format!("it is larger than {} GiB", LARGEST >> 30), None),
                ));
            }
            progress(*length, total);
        }
    }

    /// Moves the whole file to its place.
    fn publish(&self) -> Result<()> {
        fs::rename(&self.part, &self.out).map_err(|source| io("create", &self.out, source))?;
        let parent = self.out.parent().filter(|parent| !parent.as_os_str().is_empty());
        // A directory cannot be synced everywhere; the file itself was.
        if let Ok(directory) = File::open(parent.unwrap_or(Path::new("."))) {
            let _ = directory.sync_all();
        }
        Ok(())
    }
}

/// Why a try ended.
enum Stop {
    /// Another try may help.
    Broken(String),
    /// None will.
    Error(Error),
}

fn io(action: &'static str, path: &Path, source: std::io::Error) -> Error {
    Error::Io { action, path: path.into(), source }
}

/// `bytes 5-9/10` or `bytes 5-9/*`: the first byte, and all.
fn content_range(text: &str) -> Option<(u64, Option<u64>)> {
    let (range, total) = text.strip_prefix("bytes")?.trim().split_once('/')?;
    Some((range.split('-').next()?.parse().ok()?, total.parse().ok()))
}

/// Size and SHA-256 of a file.
fn digest(path: &Path) -> Result<(u64, String)> {
    let read = |source| io("read", path, source);
    let file = gallerist_retrieval::file::open_regular(path).map_err(read)?;
    gallerist_util::hex::sha256_of(file).map_err(read)
}

#[cfg(test)]
#[path = "fetch_tests.rs"]
mod tests;
