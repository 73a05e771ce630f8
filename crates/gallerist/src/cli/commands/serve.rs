//! `gallerist serve`.

use std::net::SocketAddr;
use std::process::ExitCode;
use std::time::Duration;

use crate::ServeOptions;
use crate::cli::args::Serve;
use crate::cli::failure::{CommandResult, Failure};
use crate::cli::printer;
use crate::cli::terminal::Terminal;
use crate::serve::Options;

pub(super) fn run(args: Serve) -> CommandResult {
    crate::set_threads(args.threads);
    let server = options(&args)?;
    let options = ServeOptions {
        images: args.images,
        run: args.run,
        checkpoint: args.checkpoint,
        device: args.device.device,
        queries: args.queries,
        query_images: args.query_images,
        protocol: args.protocol,
        compare: args.compare,
        compare_queries: args.compare_queries,
        training: args.training,
        training_images: args.training_images,
        server,
    };
    let server = crate::serve(&args.gallery, options, &mut Terminal::default())?;
    if !args.host.is_loopback() {
        printer::warning(&"everybody who reaches this machine can see the gallery and upload images");
    }
    printer::out(&format!("http://{}\n", server.address()?))?;
    server.run_until_signal()?;
    Ok(ExitCode::SUCCESS)
}

fn options(args: &Serve) -> Result<Options, Failure> {
    let token = match args.writable {
        true => args.token.clone().or_else(|| std::env::var("GALLERIST_TOKEN").ok()),
        false => None,
    };
    if args.writable && token.as_ref().is_none_or(String::is_empty) {
        return Err(Failure::new(
            "--writable needs a token, so that not everybody changes the gallery",
            Some("set GALLERIST_TOKEN in the environment, or give --token TOKEN"),
        ));
    }
    Ok(Options {
        address: SocketAddr::new(args.host, args.port),
        hosts: args.host_name.clone(),
        token,
        threads: args.threads,
        upload_bytes: (args.upload_limit as usize) << 20,
        k: args.k_max as usize,
        decode_time: Duration::from_secs(args.decode_limit.into()),
        analysis_items: args.analysis_limit,
        thumbnails: args.thumbnails.clone(),
        note: |note| printer::warning(&note),
        ..Options::default()
    })
}
