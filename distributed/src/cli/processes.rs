//! The processes of a cluster.

use gallerist_cluster::cluster::{ExecutorOptions, SchedulerOptions, run_executor, run_scheduler};
use gallerist_cluster::{Error, Result};

use super::args::{Executor, Scheduler};

pub(super) async fn scheduler(arguments: Scheduler) -> Result<()> {
    let Scheduler { bind, port, host, executor_timeout } = arguments;
    eprintln!("scheduler at {bind}:{port}");
    let options = SchedulerOptions { bind, port, host, executor_timeout };
    tokio::select! {
        ended = run_scheduler(&options) => ended,
        _ = tokio::signal::ctrl_c() => Ok(()),
    }
}

pub(super) async fn executor(arguments: Executor) -> Result<()> {
    let Executor { scheduler, bind, host, port, slots, work_dir, heartbeat } = arguments;
    let Some((scheduler_host, Ok(scheduler_port))) =
        scheduler.rsplit_once(':').map(|(host, port)| (host.to_owned(), port.parse()))
    else {
        let problem = format!("`{scheduler}` is no address of a scheduler");
        return Err(Error::input(problem, Some("give HOST:PORT, such as 127.0.0.1:50050")));
    };
    let failed =
        |error: std::io::Error| Error::input(format!("cannot make a folder for results: {error}"), None);
    // Removed when this process ends, unless it is killed.
    let temporary = match &work_dir {
        Some(folder) => {
            std::fs::create_dir_all(folder).map_err(failed)?;
            None
        }
        None => Some(tempfile::Builder::new().prefix("gallerist-executor-").tempdir().map_err(failed)?),
    };
    let folder = work_dir.or_else(|| temporary.as_ref().map(|folder| folder.path().to_owned()));
    let Some(work_dir) = folder else { unreachable!("a folder is given or made") };
    eprintln!("executor at {bind}:{port} of the scheduler at {scheduler}");
    run_executor(&ExecutorOptions {
        scheduler_host,
        scheduler_port,
        bind,
        host,
        port,
        grpc_port: port + 1,
        slots: slots.into(),
        work_dir,
        heartbeat,
    })
    .await
}
