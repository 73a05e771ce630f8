//! The clients of `object_store`, called from threads.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt, WriteMultipart};
use tempfile::{NamedTempFile, TempPath};
use tokio::runtime::Runtime;
use url::Url;

use super::Object;
use crate::{Error, Result};

/// Bytes of a part of an upload. A store takes at most 10,000 parts: 156 GiB.
const UPLOAD_PART: usize = 16 << 20;
/// Parts of an upload that are sent at the same time.
const UPLOADS: usize = 4;

/// The objects below an address.
///
/// ```no_run
/// let store = gallerist_store::Store::open("s3://bucket/photos")?;
/// for object in store.list("")? {
///     println!("{}: {} bytes", object.name, object.bytes);
/// }
/// # Ok::<(), gallerist_store::Error>(())
/// ```
#[derive(Clone)]
pub struct Store {
    client: Arc<dyn ObjectStore>,
    prefix: Name,
    /// Without a last `/`.
    address: String,
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Store({})", self.address)
    }
}

/// A copy of an object in the folder for temporary files; removed when it is dropped.
#[derive(Debug)]
pub struct LocalCopy {
    path: TempPath,
}

impl LocalCopy {
    /// Its path. It has the extension of the object.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl Store {
    /// The store of an address. Nothing is read yet.
    ///
    /// # Errors
    /// When the address names no store, or the environment variables are missing or contradict each other.
    pub fn open(address: &str) -> Result<Self> {
        let address = address.trim_end_matches('/');
        let fault = |problem: String| Error::new("open", address, problem, Some(environment(address)));
        // The clients have no cryptography of their own. Another part of the program may have set it already.
        static CRYPTOGRAPHY: OnceLock<()> = OnceLock::new();
        CRYPTOGRAPHY.get_or_init(|| drop(rustls::crypto::ring::default_provider().install_default()));
        let url = Url::parse(address).map_err(|e| fault(e.to_string()))?;
        let variables = std::env::vars().map(|(name, value)| (name.to_ascii_lowercase(), value));
        let (client, prefix) =
            object_store::parse_url_opts(&url, variables).map_err(|e| fault(message(&e)))?;
        Ok(Store { client: Arc::from(client), prefix, address: address.to_owned() })
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address of an object.
    pub fn location(&self, name: &str) -> String {
        format!("{}/{name}", self.address)
    }

    fn name(&self, name: &str) -> Name {
        name.split('/').filter(|part| !part.is_empty()).fold(self.prefix.clone(), |all, part| all.join(part))
    }

    fn fault(&self, action: &'static str, name: &str, error: &object_store::Error) -> Error {
        let address = if name.is_empty() { self.address.clone() } else { self.location(name) };
        let hint = match error {
            object_store::Error::NotFound { .. } => None,
            object_store::Error::NotImplemented { .. } | object_store::Error::NotSupported { .. } => Some(
                "this server cannot do it: a folder needs one that lists it, and a manifest with shards one that gives parts of files",
            ),
            _ => Some(environment(&self.address)),
        };
        Error::new(action, address, message(error), hint)
    }

    /// All objects whose names begin with the folder `below`, in the order of their names.
    ///
    /// # Errors
    /// When the store refuses it or cannot be reached.
    pub fn list(&self, below: &str) -> Result<Vec<Object>> {
        let prefix = self.name(below);
        let found = runtime().block_on(self.client.list(Some(&prefix)).try_collect::<Vec<_>>());
        let found = found.map_err(|e| self.fault("list", below, &e))?;
        let mut objects: Vec<Object> = found
            .into_iter()
            .filter_map(|object| {
                let parts = object.location.prefix_match(&self.prefix)?;
                let name: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
                let written = u64::try_from(object.last_modified.timestamp()).unwrap_or(0);
                (!name.is_empty()).then(|| Object { name: name.join("/"), bytes: object.size, written })
            })
            .collect();
        objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        Ok(objects)
    }

    /// The length of an object in bytes; `None` if there is none.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn size(&self, name: &str) -> Result<Option<u64>> {
        match runtime().block_on(self.client.head(&self.name(name))) {
            Ok(object) => Ok(Some(object.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.fault("read", name, &error)),
        }
    }

    /// A whole object of at most `limit` bytes; `None` if there is none.
    ///
    /// # Errors
    /// As [`list`](Self::list), and for a larger object.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let read = runtime().block_on(async {
            let object = self.client.get(&self.name(name)).await?;
            if object.meta.size > limit {
                return Ok(Err(object.meta.size));
            }
            Ok(Ok(object.bytes().await?))
        });
        match read {
            Ok(Ok(bytes)) => Ok(Some(bytes.into())),
            Ok(Err(bytes)) => {
                let problem = format!("it has {bytes} bytes; at most {limit} are read");
                Err(Error::too_large(self.location(name), problem))
            }
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(self.fault("read", name, &error)),
        }
    }

    /// A part of an object.
    ///
    /// # Errors
    /// As [`list`](Self::list), and for an object that is shorter.
    pub fn read_range(&self, name: &str, range: Range<u64>) -> Result<Vec<u8>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let wanted = range.end - range.start;
        let read = runtime().block_on(self.client.get_range(&self.name(name), range));
        let bytes = read.map_err(|e| self.fault("read", name, &e))?;
        if bytes.len() as u64 != wanted {
            let problem = format!("it gave {} bytes of {wanted}; it was changed", bytes.len());
            return Err(Error::new("read", self.location(name), problem, None));
        }
        Ok(bytes.into())
    }

    /// Replaces an object. It has its old or its new content, never a part.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn write(&self, name: &str, bytes: Vec<u8>) -> Result<()> {
        let written = runtime().block_on(self.client.put(&self.name(name), bytes.into()));
        written.map(drop).map_err(|e| self.fault("write", name, &e))
    }

    /// Replaces an object by a file of any size. It has its old or its new content, never a part.
    ///
    /// # Errors
    /// As [`list`](Self::list), and when the file cannot be read.
    pub fn upload(&self, name: &str, from: &Path) -> Result<()> {
        let unread = |e: std::io::Error| Error::new("read", from.display().to_string(), e.to_string(), None);
        let mut file = File::open(from).map_err(unread)?;
        let bytes = file.metadata().map_err(unread)?.len();
        if bytes <= UPLOAD_PART as u64 {
            let mut all = Vec::with_capacity(bytes as usize);
            file.read_to_end(&mut all).map_err(unread)?;
            return self.write(name, all);
        }
        let key = self.name(name);
        let failed = |e| self.fault("write", name, &e);
        let upload = runtime().block_on(self.client.put_multipart(&key)).map_err(failed)?;
        let mut upload = WriteMultipart::new_with_chunk_size(upload, UPLOAD_PART);
        let mut block = vec![0; UPLOAD_PART];
        let mut send = || -> Result<bool> {
            let read = file.read(&mut block).map_err(unread)?;
            // Tasks of the upload are started on the runtime.
            runtime()
                .block_on(async {
                    upload.wait_for_capacity(UPLOADS).await?;
                    upload.write(&block[..read]);
                    Ok(())
                })
                .map_err(failed)?;
            Ok(read > 0)
        };
        loop {
            match send() {
                Ok(true) => {}
                Ok(false) => return runtime().block_on(upload.finish()).map(drop).map_err(failed),
                Err(error) => {
                    // A store keeps, and charges for, the parts of an upload that was not given up.
                    let _ = runtime().block_on(upload.abort());
                    return Err(error);
                }
            }
        }
    }

    /// A temporary file with the extension of an object, empty.
    ///
    /// # Errors
    /// When the file cannot be made.
    pub fn temporary(&self, name: &str) -> Result<LocalCopy> {
        Ok(LocalCopy { path: self.temporary_file(name)?.into_temp_path() })
    }

    fn temporary_file(&self, name: &str) -> Result<NamedTempFile> {
        let extension =
            Path::new(name).extension().map_or(String::new(), |e| format!(".{}", e.to_string_lossy()));
        let file = tempfile::Builder::new().prefix("gallerist-").suffix(&extension).tempfile();
        file.map_err(|e| self.unwritten(name, &e))
    }

    fn unwritten(&self, name: &str, error: &std::io::Error) -> Error {
        let hint = "name a folder with room for it in the environment variable TMPDIR";
        Error::new("copy", self.location(name), error.to_string(), Some(hint))
    }

    /// Copies an object of any size to a temporary file.
    ///
    /// # Errors
    /// As [`list`](Self::list), also when there is no such object, and when the file cannot be written.
    pub fn download(&self, name: &str) -> Result<LocalCopy> {
        let unwritten = |e: std::io::Error| self.unwritten(name, &e);
        let mut file = self.temporary_file(name)?;
        let failed = |e: object_store::Error| self.fault("read", name, &e);
        let object = runtime().block_on(self.client.get(&self.name(name))).map_err(failed)?;
        let mut stream = object.into_stream();
        while let Some(block) = runtime().block_on(stream.next()) {
            file.write_all(&block.map_err(failed)?).map_err(unwritten)?;
        }
        file.flush().map_err(unwritten)?;
        Ok(LocalCopy { path: file.into_temp_path() })
    }

    /// Removes all objects of a folder.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn remove_below(&self, name: &str) -> Result<()> {
        for object in self.list(name)? {
            match runtime().block_on(self.client.delete(&self.name(&object.name))) {
                Ok(()) | Err(object_store::Error::NotFound { .. }) => {}
                Err(error) => return Err(self.fault("remove", &object.name, &error)),
            }
        }
        Ok(())
    }
}

/// The threads that wait for the network.
fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| {
        tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .thread_name("object store")
            .enable_all()
            .build()
            .expect("threads can be started")
    })
}

/// An error with its causes, in one line.
fn message(error: &object_store::Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(one) = cause {
        let part = one.to_string();
        if !text.contains(&part) {
            text = format!("{text}: {part}");
        }
        cause = one.source();
    }
    text.lines().map(str::trim).collect::<Vec<_>>().join(" ")
}

/// The environment variables of the store of an address.
fn environment(address: &str) -> &'static str {
    let scheme = gallerist_util::text::address(address).map(|(scheme, _)| scheme.to_ascii_lowercase());
    match scheme.as_deref().unwrap_or_default() {
        "s3" | "s3a" => {
            "set AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and AWS_REGION; for a server other than Amazon's also \
             AWS_ENDPOINT_URL, and AWS_ALLOW_HTTP=true for one without TLS; for a public bucket AWS_SKIP_SIGNATURE=true"
        }
        "gs" => {
            "set GOOGLE_SERVICE_ACCOUNT to the file of a service account; for a public bucket GOOGLE_SKIP_SIGNATURE=true"
        }
        "az" | "abfs" | "abfss" => {
            "set AZURE_STORAGE_ACCOUNT_NAME and AZURE_STORAGE_ACCOUNT_KEY; for a public container AZURE_SKIP_SIGNATURE=true"
        }
        _ => {
            "an address is s3://BUCKET/PATH, gs://BUCKET/PATH, az://CONTAINER/PATH or https://HOST/PATH; for http:// set ALLOW_HTTP=true"
        }
    }
}
