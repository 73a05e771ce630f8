//! An index whose server is a list of answers, for tests of what any server may answer.

use std::time::Duration;

use crate::Result;
use crate::client::{Client, ConnectOptions};
use crate::collection::{Collection, greeted};
use crate::grpc::Connection;
use crate::index::DatabaseIndex;

/// Opens a gallery on a server that gives these answers, one after the other: first those to opening the collection, and
/// then those to the calls of the index. The last answer is that to all further calls, up to `most` calls.
///
/// # Errors
/// As [`DatabaseIndex::open`].
pub fn open<C: Collection>(answers: Vec<Vec<u8>>, most: usize) -> Result<DatabaseIndex<C>> {
    let address = format!("{}localhost/gallery", C::SYSTEM.scheme).parse()?;
    let options = ConnectOptions {
        timeout: Duration::from_secs(1),
        patience: Duration::ZERO,
        ..ConnectOptions::default()
    };
    let client = Client::of(Connection::scripted(answers, most), &address, options);
    DatabaseIndex::load(greeted::<C>(client)?)
}
