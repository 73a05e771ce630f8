//! Stores of a program without clients.

use std::ops::Range;
use std::path::Path;

use super::Listing;
use crate::{Error, Result};

/// A store; without the feature `clients` there is none.
#[derive(Clone, Debug)]
pub enum Store {}

/// A copy of an object on this machine; without the feature `clients` there is none.
#[derive(Debug)]
pub enum LocalCopy {}

impl Store {
    /// Refuses the address.
    ///
    /// # Errors
    /// Always.
    pub fn open(address: &str) -> Result<Self> {
        let hint = "build it with `cargo build --release --features object-store`";
        Err(Error::new("open", address, "this program was built without object stores", Some(hint)))
    }
}

macro_rules! unreachable_methods {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        #[allow(missing_docs, clippy::missing_errors_doc)]
        impl Store {
            $(pub fn $name(&self, $($argument: $type),*) -> $result {
                let _ = ($($argument,)*);
                match *self {}
            })*
        }
    };
}

unreachable_methods! {
    address() -> &str;
    location(name: &str) -> String;
    list(below: &str) -> Result<Listing>;
    size(name: &str) -> Result<Option<u64>>;
    read(name: &str, limit: u64) -> Result<Option<Vec<u8>>>;
    read_range(name: &str, range: Range<u64>) -> Result<Vec<u8>>;
    write(name: &str, bytes: Vec<u8>) -> Result<()>;
    upload(name: &str, from: &Path) -> Result<()>;
    temporary(name: &str) -> Result<LocalCopy>;
    download(name: &str) -> Result<LocalCopy>;
    remove_below(name: &str) -> Result<()>;
}

impl LocalCopy {
    /// Its path.
    pub fn path(&self) -> &Path {
        match *self {}
    }
}
