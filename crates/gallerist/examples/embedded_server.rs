//! A program that serves its own embeddings: the page and the HTTP API of `gallerist serve`, on a thread.
//!
//! ```text
//! cargo run --release --example embedded_server
//! ```

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;

use gallerist::prelude::*;
use gallerist::serve::{Gallery, Options, Server};

/// Serves on the port (0: any free one) while `use_it` runs with the address, then stops.
pub fn run<T>(port: u16, use_it: impl FnOnce(SocketAddr) -> T) -> Result<T, Box<dyn Error>> {
    let rows = Matrix::new(3, 2, vec![1.0, 0.0, 0.8, 0.6, 0.0, 1.0])?;
    let labels = ["heron", "wren", "wren"].map(String::from).to_vec();
    let set = EmbeddingSet { labels: Some(labels), ..rows.into() };

    // `gallerist::serve` opens a file of embeddings, its images and its network in place of these two lines.
    let gallery = Gallery::from_set("birds", set)?;
    let options = Options { address: (Ipv4Addr::LOCALHOST, port).into(), ..Options::default() };
    let server = Server::bind(gallery.into(), options)?;

    let (address, stop) = (server.address()?, server.stop());
    let serving = thread::spawn(move || server.run());
    let result = use_it(address);
    stop.now();
    serving.join().expect("the server does not panic")?;
    Ok(result)
}

fn main() -> Result<(), Box<dyn Error>> {
    run(8080, |address| {
        println!("http://{address} (Enter stops the server)");
        let _ = std::io::stdin().read_line(&mut String::new());
    })
}
