//! The clients of `object_store`, called from threads.

use std::fmt;
use std::fs::File;
use std::io::{Read, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use futures_util::{StreamExt, TryStreamExt};
use object_store::aws::AmazonS3Builder;
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::path::Path as Name;
use object_store::{ObjectStore, ObjectStoreExt, ObjectStoreScheme, WriteMultipart};
use tempfile::{NamedTempFile, TempPath};
use tokio::runtime::Runtime;
use url::Url;

use crate::address::{check, divide, is_web};
use crate::answer::{environment, explain, message, names_no_bucket};
use crate::connector::{Connector, unreadable};
use crate::{Error, Listing, Object, Result};

/// Bytes of a part of an upload. A store takes at most 10,000 parts: 156 GiB.
const UPLOAD_PART: usize = 16 << 20;
/// Parts of an upload that are sent at the same time.
const UPLOADS: usize = 4;

/// The objects below an address.
///
/// ```no_run
/// let store = gallerist_store::Store::open("s3://bucket/photos")?;
/// for object in store.list("")?.objects {
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
        let address = check(address)?;
        let fault = |problem: String| Error::new("open", address, problem, Some(environment(address)));
        // The clients have no cryptography of their own. Another part of the program may have set it already.
        static CRYPTOGRAPHY: OnceLock<()> = OnceLock::new();
        CRYPTOGRAPHY.get_or_init(|| drop(rustls::crypto::ring::default_provider().install_default()));
        // The path of a bucket's address is no part of a URL, which would end at `#` and `?`.
        let (place, path) = if is_web(address) { (address, "") } else { divide(address) };
        let url = Url::parse(place).map_err(|e| fault(e.to_string()))?;
        let (scheme, prefix) =
            ObjectStoreScheme::parse(&url).map_err(|e| fault(message(&object_store::Error::from(e))))?;
        let client = client(&scheme, &url).map_err(|e| fault(message(&e)))?;
        let prefix = join(&prefix, path).map_err(|problem| Error::new("open", address, problem, None))?;
        Ok(Store { client, prefix, address: address.to_owned() })
    }

    /// Its address.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// The address of an object.
    pub fn location(&self, name: &str) -> String {
        match is_web(&self.address) {
            true => {
                let name = name.replace('%', "%25").replace('#', "%23").replace('?', "%3F");
                format!("{}/{name}", self.address)
            }
            false => format!("{}/{name}", self.address),
        }
    }

    fn name(&self, name: &str) -> Result<Name> {
        join(&self.prefix, name).map_err(|problem| Error::new("read", self.location(name), problem, None))
    }

    fn fault(&self, action: &'static str, name: &str, error: &object_store::Error) -> Error {
        let address = if name.is_empty() { self.address.clone() } else { self.location(name) };
        let (problem, hint) = explain(action, &self.address, error, has_credentials());
        Error::new(action, address, problem, hint.as_deref())
    }

    /// All objects whose names begin with the folder `below`.
    ///
    /// # Errors
    /// When the store refuses it or cannot be reached.
    pub fn list(&self, below: &str) -> Result<Listing> {
        let prefix = self.name(below)?;
        let found = runtime().block_on(self.client.list(Some(&prefix)).try_collect::<Vec<_>>());
        let mut listing = Listing::default();
        for object in found.map_err(|e| self.fault("list", below, &e))? {
            let Some(parts) = object.location.prefix_match(&self.prefix) else { continue };
            let parts: Vec<String> = parts.map(|part| part.as_ref().to_owned()).collect();
            let name = parts.join("/");
            let written = u64::try_from(object.last_modified.timestamp()).unwrap_or(0);
            match unreadable(&name) {
                Some(name) => listing.unreadable.push(name),
                None if name.is_empty() => {}
                None => listing.objects.push(Object { name, bytes: object.size, written }),
            }
        }
        listing.objects.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        listing.unreadable.sort_unstable();
        Ok(listing)
    }

    /// The length of an object in bytes; `None` if there is none.
    ///
    /// # Errors
    /// As [`list`](Self::list).
    pub fn size(&self, name: &str) -> Result<Option<u64>> {
        let key = self.name(name)?;
        match runtime().block_on(self.client.head(&key)) {
            Ok(object) => return Ok(Some(object.size)),
            Err(object_store::Error::NotFound { .. }) => {}
            Err(error) => return Err(self.fault("read", name, &error)),
        }
        // That answer has no text that says whether there is a bucket.
        match runtime().block_on(self.client.get_range(&key, 0..1)) {
            Err(error) if names_no_bucket(&error) => Err(self.fault("read", name, &error)),
            _ => Ok(None),
        }
    }

    /// A whole object of at most `limit` bytes; `None` if there is none.
    ///
    /// # Errors
    /// As [`list`](Self::list), and for a larger object.
    pub fn read(&self, name: &str, limit: u64) -> Result<Option<Vec<u8>>> {
        let key = self.name(name)?;
        let read = runtime().block_on(async {
            let object = self.client.get(&key).await?;
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
            Err(error @ object_store::Error::NotFound { .. }) if !names_no_bucket(&error) => Ok(None),
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
        let read = runtime().block_on(self.client.get_range(&self.name(name)?, range));
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
        let written = runtime().block_on(self.client.put(&self.name(name)?, bytes.into()));
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
        let key = self.name(name)?;
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
        let object = runtime().block_on(self.client.get(&self.name(name)?)).map_err(failed)?;
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
        for object in self.list(name)?.objects {
            match runtime().block_on(self.client.delete(&self.name(&object.name)?)) {
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

/// The client of a place. It reads the environment variables of its store, which it knows by the beginnings of their names (here
/// in lower case). The clients would also take names without the prefix, such as `TOKEN`, which other programs use.
fn client(scheme: &ObjectStoreScheme, url: &Url) -> object_store::Result<Arc<dyn ObjectStore>> {
    macro_rules! build {
        ($builder:ty, $url:expr, $beginnings:expr) => {{
            let start = <$builder>::new().with_url($url).with_http_connector(Connector);
            let of_store = variables().filter(|(name, _)| has_beginning(name, &$beginnings));
            let built = of_store.fold(start, |builder, (name, value)| match name.parse() {
                Ok(key) => builder.with_config(key, value),
                Err(_) => builder,
            });
            Ok(Arc::new(built.build()?))
        }};
    }
    match scheme {
        ObjectStoreScheme::AmazonS3 => build!(AmazonS3Builder, url.as_str(), ["aws_"]),
        ObjectStoreScheme::GoogleCloudStorage => {
            build!(GoogleCloudStorageBuilder, url.as_str(), ["google_", "service_account"])
        }
        // The two names are set on machines in Azure's cloud.
        ObjectStoreScheme::MicrosoftAzure => {
            build!(MicrosoftAzureBuilder, url.as_str(), ["azure_", "identity_endpoint", "msi_endpoint"])
        }
        _ => build!(HttpBuilder, &url[..url::Position::BeforePath], ["allow_http"]),
    }
}

fn has_beginning(name: &str, beginnings: &[&str]) -> bool {
    beginnings.iter().any(|beginning| name.starts_with(beginning))
}

/// The environment variables that are text, their names in lower case.
fn variables() -> impl Iterator<Item = (String, String)> {
    std::env::vars_os().filter_map(|(name, value)| {
        Some((name.into_string().ok()?.to_ascii_lowercase(), value.into_string().ok()?))
    })
}

/// Whether the environment has credentials of a store.
fn has_credentials() -> bool {
    const NAMES: [&str; 3] = ["aws_access_key_id", "google_service_account", "azure_storage_account_key"];
    variables().any(|(name, _)| NAMES.contains(&name.as_str()))
}

/// The name of an object below a prefix, whose characters stay as they are; or what is wrong with it.
fn join(prefix: &Name, name: &str) -> std::result::Result<Name, String> {
    let mut parts: Vec<&str> = prefix.as_ref().split('/').filter(|part| !part.is_empty()).collect();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop().ok_or("it leads out of the bucket or server")?),
            part => parts.push(part),
        }
    }
    // Only control characters are left to refuse.
    Name::parse(parts.join("/")).map_err(|_| "names with control characters are not read".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_characters_of_a_name_stay_and_parent_folders_stay_in_the_bucket() {
        let prefix = Name::parse("m/ü%20").unwrap();
        for name in ["a#b?.png", "100%.png", "%41.png", "{x}[1]~\"\\^<|*.png", "日本/u\u{308}.png"] {
            assert_eq!(join(&prefix, name).unwrap().as_ref(), format!("m/ü%20/{name}"));
        }
        assert_eq!(join(&prefix, "../../omni//./x.png").unwrap().as_ref(), "omni/x.png");
        assert!(join(&prefix, "../../../x.png").unwrap_err().contains("leads out"));
        assert!(join(&prefix, "a\u{1}.png").unwrap_err().contains("control characters"));
    }

    #[test]
    fn an_address_of_a_bucket_is_no_url() {
        let store = |address: &str| Store::open(address).unwrap();
        for key in ["omni#old", "q?m", "50%off", "we%20ird", "my photos", "ümlaut"] {
            assert_eq!(store(&format!("s3://bucket/{key}/")).prefix.as_ref(), key);
        }
        let web = store("https://host/we%20ird%23/x");
        assert_eq!(web.prefix.as_ref(), "we ird#/x");
        assert_eq!(web.location("a#b%.png"), "https://host/we%20ird%23/x/a%23b%25.png");
        assert!(Store::open("https://host/x?y=1").unwrap_err().to_string().contains("query"));
    }

    #[cfg(unix)]
    #[test]
    fn environment_variables_that_are_no_text_are_skipped() {
        use std::os::unix::ffi::OsStringExt;
        if std::env::var_os("GALLERIST_TEST_VARIABLE").is_some() {
            assert!(variables().all(|(name, _)| name != "gallerist_test_variable"));
            return;
        }
        let test = "clients::tests::environment_variables_that_are_no_text_are_skipped";
        let done = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .env("GALLERIST_TEST_VARIABLE", std::ffi::OsString::from_vec(vec![0xff]))
            .output()
            .unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stdout));
    }
}
