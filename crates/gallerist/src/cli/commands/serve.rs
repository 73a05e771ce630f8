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
        let (images, image_sources) = images_of(own_or_all(&args.images, name.as_deref(), &names))?;
        let options = ServeOptions {
            images,
            image_sources,
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

/// The values of an option for the gallery `name`: those with `NAME=` before them, else those for all galleries.
fn own_or_all<'a>(values: &'a [String], name: Option<&str>, names: &[&str]) -> Vec<&'a str> {
    let own_of = |value: &'a str| value.split_once('=').filter(|(name, _)| names.contains(name));
    let values = || values.iter().map(|value| (value.as_str(), own_of(value)));
    let own = values().filter_map(|(_, own)| own).filter(|(whose, _)| name == Some(*whose));
    let own: Vec<&str> = own.map(|(_, value)| value).collect();
    match own.is_empty() {
        true => values().filter(|(_, own)| own.is_none()).map(|(value, _)| value).collect(),
        false => own,
    }
}

/// The value of an option for the gallery `name`.
fn of_gallery(
    option: &str,
    values: &[String],
    name: Option<&str>,
    names: &[&str],
) -> Result<Option<String>, Failure> {
    match own_or_all(values, name, names)[..] {
        [] => Ok(None),
        [value] => Ok(Some(value.to_owned())),
        [_, other, ..] => Err(Failure::new(
            match name {
                Some(name) => {
                    format!("{option} is given more than once for the gallery `{name}`: also `{other}`")
                }
                None => format!("{option} is given more than once: also `{other}`"),
            },
            Some(
                "give it once for all galleries, or once for each: NAME=VALUE, with the NAME of --gallery NAME=FILE",
            ),
        )),
    }
}

/// The images of a gallery: one path, or `SOURCE=PATH` for each source of its items.
#[expect(clippy::type_complexity, reason = "the two fields of the options")]
fn images_of(values: Vec<&str>) -> Result<(Option<PathBuf>, Vec<(String, PathBuf)>), Failure> {
    if let [path] = values[..]
        && (Path::new(path).exists() || !path.contains('='))
    {
        return Ok((Some(path.into()), Vec::new()));
    }
    let source = |value: &str| match value.split_once('=') {
        Some((source, path)) if !source.is_empty() && !path.is_empty() => {
            Ok((source.to_owned(), path.into()))
        }
        _ => Err(Failure::new(
            format!("--images is given more than once, and `{value}` does not name the source of its images"),
            Some(
                "give one path, or SOURCE=PATH for each source; `gallerist index info FILE` lists the sources",
            ),
        )),
    };
    Ok((None, values.into_iter().map(source).collect::<Result<_, _>>()?))
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
    let mut tokens_to_read = tokens_of(&args.read_token, "GALLERIST_READ_TOKEN")?;
    if !args.writable {
        // Who may change a gallery may also read it, on a server that nobody may change as well.
        let to_change = tokens_of(&[], "GALLERIST_TOKEN")?;
        if tokens_to_read.is_empty() && !to_change.is_empty() {
            printer::warning(
                &"GALLERIST_TOKEN has no effect: without --writable nobody can change the gallery, and without \
                  GALLERIST_READ_TOKEN everybody may read it",
            );
        } else {
            tokens_to_read.extend(to_change);
        }
    }
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

    #[test]
    fn images_are_at_one_path_or_one_for_each_source() {
        let read = |values: &[&str]| images_of(values.to_vec()).map_err(|failure| failure.message);
        let sources = |list: &[(&str, &str)]| {
            list.iter().map(|(name, path)| ((*name).to_owned(), PathBuf::from(path))).collect::<Vec<_>>()
        };
        assert_eq!(read(&[]), Ok((None, vec![])));
        assert_eq!(read(&["new"]), Ok((Some("new".into()), vec![])));
        assert_eq!(read(&["photos=new"]), Ok((None, sources(&[("photos", "new")]))));
        let both = sources(&[("/old/a", "new/a"), ("photos", "b=c")]);
        assert_eq!(read(&["/old/a=new/a", "photos=b=c"]), Ok((None, both)));
        assert!(read(&["new", "photos=b"]).unwrap_err().contains("`new` does not name the source"));
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lr=0.1");
        std::fs::create_dir(&path).unwrap();
        assert_eq!(read(&[path.to_str().unwrap()]), Ok((Some(path.clone()), vec![])));
    }
}
