//! `gallerist serve`.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use crate::cli::args::Serve;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::printer;
use crate::cli::terminal::Terminal;
use crate::serve::{Options, Tls, Token};
use crate::{NamedGallery, ServeOptions};

pub(super) fn run(args: Serve) -> CommandResult {
    // Before threads are started.
    gallerist_util::memory::limit_arenas();
    crate::set_threads(args.threads);
    let server = options(&args)?;
    let is_open = server.read_tokens.is_empty();
    let galleries = galleries(&args)?;
    let server = crate::serve_all(galleries, server, &mut Terminal::default())?;
    if !args.host.is_loopback() && is_open {
        printer::warning(
            &"everybody who reaches this machine can see the gallery and upload images; --read-token TOKEN asks for a token",
        );
    }
    printer::out(&format!("{}\n", server.url()?))?;
    server.run_until_signal()?;
    Ok(ExitCode::SUCCESS)
}

/// The galleries with their options.
fn galleries(args: &Serve) -> Result<Vec<NamedGallery>, Failure> {
    let galleries: Vec<(Option<String>, PathBuf)> = args.gallery.iter().map(|text| named(text)).collect();
    let names: Vec<&str> = galleries.iter().filter_map(|(name, _)| name.as_deref()).collect();
    let one = |(name, gallery): &(Option<String>, PathBuf)| {
        let of = |option: &str, values: &[String]| of_gallery(option, values, name.as_deref(), &names);
        let path = |option: &str, values| Ok::<_, Failure>(of(option, values)?.map(PathBuf::from));
        let options = ServeOptions {
            images: path("--images", &args.images)?,
            run: path("--run", &args.run)?,
            checkpoint: args.checkpoint,
            device: args.compute.device.device,
            products: args.compute.products,
            queries: path("--queries", &args.queries)?,
            query_images: path("--query-images", &args.query_images)?,
            protocol: of("--protocol", &args.protocol)?,
            compare: path("--compare", &args.compare)?,
            compare_queries: path("--compare-queries", &args.compare_queries)?,
            training: path("--training", &args.training)?,
            training_images: path("--training-images", &args.training_images)?,
            server: Options::default(),
        };
        Ok(NamedGallery { name: name.clone(), gallery: gallery.clone(), options })
    };
    galleries.iter().map(one).collect()
}

/// `NAME=FILE`, or a file. A file of the whole text comes first, and a name has no `/`.
fn named(text: &str) -> (Option<String>, PathBuf) {
    match text.split_once('=') {
        Some((name, file)) if !name.is_empty() && !name.contains('/') && !Path::new(text).exists() => {
            (Some(name.to_owned()), file.into())
        }
        _ => (None, text.into()),
    }
}

/// The value of an option for the gallery `name`: the one with `NAME=` before it, else the one for all galleries.
fn of_gallery(
    option: &str,
    values: &[String],
    name: Option<&str>,
    names: &[&str],
) -> Result<Option<String>, Failure> {
    let whose = |value: &str| {
        value.split_once('=').map(|(name, _)| name).filter(|name| names.contains(name)).map(str::to_owned)
    };
    let own = values.iter().filter(|value| name.is_some() && whose(value).as_deref() == name);
    let own: Vec<&str> = own.filter_map(|value| value.split_once('=')).map(|(_, value)| value).collect();
    let all: Vec<&str> = values.iter().map(String::as_str).filter(|value| whose(value).is_none()).collect();
    let hint =
        "give it once for all galleries, or once for each: NAME=VALUE, with the NAME of --gallery NAME=FILE";
    match (own.as_slice(), all.as_slice()) {
        ([_, _, ..], _) => Err(Failure::new(
            format!("{option} is given more than once for the gallery `{}`", name.unwrap_or_default()),
            Some(hint),
        )),
        (_, [_, other, ..]) => {
            Err(Failure::new(format!("{option} is given more than once: also `{other}`"), Some(hint)))
        }
        ([value], _) | ([], [value]) => Ok(Some((*value).to_owned())),
        ([], []) => Ok(None),
    }
}

fn options(args: &Serve) -> Result<Options, Failure> {
    let tokens = match args.writable {
        true => tokens_of(&args.token, "GALLERIST_TOKEN")?,
        false => Vec::new(),
    };
    if args.writable && tokens.is_empty() {
        return Err(Failure::new(
            "--writable needs a token, so that not everybody changes the gallery",
            Some("set GALLERIST_TOKEN in the environment, or give --token TOKEN"),
        ));
    }
    let tokens_to_read = tokens_of(&args.read_token, "GALLERIST_READ_TOKEN")?;
    Ok(Options {
        address: SocketAddr::new(args.host, args.port),
        hosts: args.host_name.clone(),
        tokens,
        read_tokens: tokens_to_read,
        threads: args.threads,
        upload_bytes: (args.upload_limit as usize) << 20,
        k: args.k_max as usize,
        decode_time: Duration::from_secs(args.decode_limit.into()),
        analysis_items: args.analysis_limit,
        ready_memory: args.ready_memory.map(|mebibytes| mebibytes << 20),
        tls: args
            .tls_cert
            .clone()
            .zip(args.tls_key.clone())
            .map(|(certificate, key)| Tls { certificate, key }),
        audit: args.audit.clone(),
        client_requests: args.client_requests,
        client_uploads: args.client_uploads,
        client_connections: args.client_connections as usize,
        trusted_proxies: args.trusted_proxy.clone(),
        thumbnails: args.thumbnails.clone(),
        note: |note| printer::warning(&note),
        ..Options::default()
    })
}

/// The tokens of the command line, or those of the environment.
fn tokens_of(given: &[String], variable: &str) -> Result<Vec<Token>, Failure> {
    let environment = std::env::var(variable).unwrap_or_default();
    let read = |text: &str| text.parse::<Token>().map_err(Failure::from);
    match given {
        [] => environment.split_whitespace().map(read).collect(),
        given => given.iter().map(|text| read(text)).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_what_stands_before_the_first_sign_of_equality() {
        let read = |text: &str| {
            let (name, file) = named(text);
            format!("{} {}", name.unwrap_or_default(), file.display())
        };
        assert_eq!(read("birds=a.safetensors"), "birds a.safetensors");
        assert_eq!(read("a.safetensors"), " a.safetensors");
        assert_eq!(read("runs/lr=0.1/x.safetensors"), " runs/lr=0.1/x.safetensors");
        assert_eq!(read("=a"), " =a");
    }

    #[test]
    fn a_value_is_of_one_gallery_or_of_all() {
        let values = |texts: &[&str]| texts.iter().map(ToString::to_string).collect::<Vec<_>>();
        let read = |texts: &[&str], name| {
            of_gallery("--images", &values(texts), name, &["a", "b"]).map_err(|failure| failure.message)
        };
        assert_eq!(read(&["x"], Some("a")), Ok(Some("x".into())));
        assert_eq!(read(&["a=x", "y"], Some("a")), Ok(Some("x".into())));
        assert_eq!(read(&["a=x", "y"], Some("b")), Ok(Some("y".into())));
        assert_eq!(read(&["a=x"], Some("b")), Ok(None));
        assert_eq!(read(&["c=x"], None), Ok(Some("c=x".into())));
        assert!(read(&["a=x", "a=y"], Some("a")).unwrap_err().contains("for the gallery `a`"));
        assert!(read(&["x", "y"], Some("a")).unwrap_err().contains("more than once"));
    }
}
