//! The processes of jobs.

use std::fs::{self, File};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};

use gallerist_train::State as Directory;

use super::folder::JobFolder;
use super::images::Fingerprints;
use super::job::Job;
use super::options::Options;
use super::outcome::End;
use super::progress::{Progress, State};
use crate::file::io;
use crate::{Error, Result};

/// The exit code of `gallerist train` after an interrupt.
const INTERRUPTED: i32 = 130;

/// Processes that train, at most [`Options::jobs`] at once. [`run`](super::run()) is the usual way to use it; a search
/// that chooses its next job by the last outcomes starts its jobs itself.
///
/// ```no_run
/// # use gallerist::jobs::{Job, Options, Pool};
/// # fn next(done: usize) -> Option<Job> { None }
/// let mut pool = Pool::new(&Options { jobs: 2, ..Options::new("runs/search") })?;
/// let (mut started, mut done) = (0, 0);
/// loop {
///     while let (true, Some(job)) = (pool.has_room(), next(done)) {
///         pool.start(started, &job)?;
///         started += 1;
///     }
///     if pool.is_empty() {
///         break;
///     }
///     for (job, state, end) in pool.poll()? {
///         done += usize::from(end.is_some());
///     }
///     std::thread::sleep(std::time::Duration::from_millis(100));
/// }
/// # Ok::<(), gallerist::Error>(())
/// ```
#[derive(Debug)]
pub struct Pool {
    options: Options,
    program: PathBuf,
    running: Vec<Running>,
    originals: Fingerprints,
}

#[derive(Debug)]
struct Running {
    id: usize,
    job: Job,
    /// Its [training](Job::training_key).
    training: Option<String>,
    folder: JobFolder,
    progress: Progress,
    process: Process,
    stopped: bool,
}

#[derive(Debug)]
enum Process {
    /// The numbers exist already.
    Done,
    /// The files of a run cannot be used, for this reason.
    Damaged(String),
    /// Another process has the folder.
    Elsewhere {
        reported: bool,
    },
    Here {
        child: Child,
        peak_memory_mib: Option<f64>,
        reported: bool,
        _lock: File,
    },
}

/// The environment variable of a process that is a job.
const IS_JOB: &str = "GALLERIST_JOB";

/// The place of a job, its state, and its end if it came to one.
type Change = (usize, State, Option<End>);

impl Pool {
    /// A pool without processes.
    ///
    /// # Errors
    ///
    /// When the store cannot be made, the path of the current program is unknown, or the process is itself a job of a program that does
    /// not call [`cli::run`](crate::cli::run): it would start itself again and again.
    pub fn new(options: &Options) -> Result<Self> {
        if std::env::var_os(IS_JOB).is_some() {
            return Err(Error::new(
                "this process was started as a job, with the command `train`, and begins jobs of its own",
                Some(
                    "let `main` of the program call `gallerist::cli::run`, or name the program `gallerist` in the options",
                ),
            ));
        }
        gallerist_util::files::create_dir_all(&options.store).map_err(|e| io("create", &options.store, e))?;
        let program = match &options.program {
            Some(program) => program.clone(),
            None => std::env::current_exe().map_err(|e| {
                Error::new(
                    format!("cannot find the current program: {e}"),
                    Some("name the program in the options"),
                )
            })?,
        };
        Ok(Pool {
            options: options.clone(),
            program,
            running: Vec::new(),
            originals: Fingerprints::default(),
        })
    }

    /// Whether another job can be started.
    pub fn has_room(&self) -> bool {
        self.running.len() < self.options.jobs.max(1)
    }

    /// Whether no job is running.
    pub fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    /// Whether a job runs whose [training](Job::training_key) is this one: another with the same should wait and take it over.
    pub fn trains(&self, training: &str) -> bool {
        self.running.iter().any(|running| running.training.as_deref() == Some(training))
    }

    /// Starts a job, or continues it; `id` names it in [`poll`](Self::poll). A job that is done is only read.
    ///
    /// # Errors
    ///
    /// When the folder of the job cannot be written, or the program cannot be started.
    pub fn start(&mut self, id: usize, job: &Job) -> Result<()> {
        let folder = JobFolder::of(&self.options.store, job);
        let process = self.begin(job, &folder)?;
        let (job, training, progress) = (job.clone(), job.training_key(), Progress::default());
        self.running.push(Running { id, job, training, folder, progress, process, stopped: false });
        Ok(())
    }

    fn begin(&mut self, job: &Job, folder: &JobFolder) -> Result<Process> {
        let Some(lock) = folder.lock()? else { return Ok(Process::Elsewhere { reported: false }) };
        match folder.numbers() {
            Ok(Some(_)) => {
                return Ok(match self.originals.change(folder, &job.config) {
                    None => Process::Done,
                    Some(reason) => Process::Damaged(reason),
                });
            }
            Ok(None) => {}
            Err(error) => return Ok(Process::Damaged(error.with_hint())),
        }
        folder.set_failure(None)?;
        let run = folder.run();
        let mut state = Directory::of(&run)?;
        if state == Directory::Incomplete {
            // Its last checkpoint is gone: nothing to continue from.
            fs::remove_dir_all(&run).map_err(|e| io("remove", &run, e))?;
            state = Directory::Empty;
        }
        let threads = self.options.threads_each();
        folder.write_run_file(job, threads)?;
        let untrained = matches!(state, Directory::Empty | Directory::Begun { .. });
        if untrained {
            let images = self.originals.of_images(&job.config);
            let weights = self.originals.of_weights(&job.config);
            folder.set_originals(images.as_deref(), weights.as_deref())?;
            let store = &self.options.store;
            if folder.take_training(store, job, threads, images.as_deref(), weights.as_deref())? {
                state = Directory::Started;
            }
        }
        let stderr = folder.create_stderr()?;
        let mut command = Command::new(&self.program);
        command.arg("train").env(IS_JOB, "1");
        match state {
            Directory::Started => command.arg("--resume").arg(&run),
            _ => command.arg(folder.run_file()).arg("--out").arg(&run),
        };
        // Ctrl-C reaches this process only, which then stops its children once: a second signal would end them at once.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        // The child has the lock, too, as its input, which it does not read: if this process is killed before the child has locked
        // its run directory, the next command must wait for it.
        let held = lock.try_clone().map_err(|e| io("open", &folder.run(), e))?;
        let child = command.stdin(held).stdout(Stdio::null()).stderr(stderr).spawn().map_err(|e| {
            let hint = "name a program that has the command `train` of gallerist";
            Error::new(format!("cannot start `{}`: {e}", self.program.display()), Some(hint))
        })?;
        Ok(Process::Here { child, peak_memory_mib: None, reported: false, _lock: lock })
    }

    /// What has changed since the last call. A job with an [`End`] has left the pool.
    ///
    /// # Errors
    ///
    /// When the folder of a job cannot be read or written.
    pub fn poll(&mut self) -> Result<Vec<Change>> {
        let mut changes = Vec::new();
        let mut ended = Vec::new();
        for i in 0..self.running.len() {
            if let (Process::Elsewhere { reported: true }, false) =
                (&self.running[i].process, self.running[i].stopped)
            {
                let (job, folder) = (self.running[i].job.clone(), self.running[i].folder.clone());
                let process = self.begin(&job, &folder)?;
                if !matches!(process, Process::Elsewhere { .. }) {
                    self.running[i].process = process;
                }
            }
            let running = &mut self.running[i];
            if let Some((state, end)) = running.change()? {
                ended.extend(end.is_some().then_some(running.id));
                changes.push((running.id, state, end));
            }
        }
        self.running.retain(|running| !ended.contains(&running.id));
        Ok(changes)
    }

    /// Asks every process to write a checkpoint and end. [`poll`](Self::poll) reports their ends.
    pub fn stop(&mut self) {
        for running in &mut self.running {
            if let (false, Process::Here { child, .. }) = (running.stopped, &mut running.process) {
                interrupt(child);
            }
            running.stopped = true;
        }
    }
}

impl Drop for Pool {
    /// Asks the processes to end and waits for them, so that none outlives an error.
    fn drop(&mut self) {
        self.stop();
        for running in &mut self.running {
            if let Process::Here { child, .. } = &mut running.process {
                let _ = child.wait();
            }
        }
    }
}

impl Running {
    fn change(&mut self) -> Result<Option<(State, Option<End>)>> {
        let (child, peak, reported) = match &mut self.process {
            Process::Done => return self.end(None).map(Some),
            Process::Damaged(reason) => {
                let reason = reason.clone();
                return Ok(Some((State::Failed(reason.clone()), Some(End::Failed(reason)))));
            }
            Process::Elsewhere { .. } if self.stopped => {
                return Ok(Some((State::Stopped, Some(End::Stopped))));
            }
            Process::Elsewhere { reported } => {
                let first = !std::mem::replace(reported, true);
                return Ok(first.then_some((State::Elsewhere, None)));
            }
            Process::Here { child, peak_memory_mib, reported, .. } => (child, peak_memory_mib, reported),
        };
        *peak = peak_memory_mib(child.id()).or(*peak);
        let status = child.try_wait().map_err(|e| io("wait for the process of", &self.folder.run(), e))?;
        if let Some(status) = status {
            let peak = *peak;
            self.folder.add_usage(peak)?;
            return self.end(Some(status)).map(Some);
        }
        let first = !std::mem::replace(reported, true);
        let moved = self.progress.update(&self.folder.log());
        Ok((first || moved).then(|| (self.progress.state(self.job.config.train.steps), None)))
    }

    /// The end of a job whose process has ended, or that was done before.
    fn end(&self, status: Option<ExitStatus>) -> Result<(State, Option<End>)> {
        let numbers = self.folder.numbers();
        if let Ok(Some(numbers)) = numbers {
            return Ok((State::Done, Some(End::Done(Box::new(numbers)))));
        }
        let interrupted = status.is_some_and(|status| status.code() == Some(INTERRUPTED));
        if self.stopped || interrupted {
            return Ok((State::Stopped, Some(End::Stopped)));
        }
        let reason = numbers.map_or_else(|error| error.with_hint(), |_| self.reason(status));
        self.folder.set_failure(Some(&reason))?;
        Ok((State::Failed(reason.clone()), Some(End::Failed(reason))))
    }

    /// Why the process failed: the last lines that it printed, or the signal that ended it.
    fn reason(&self, status: Option<ExitStatus>) -> String {
        const LINES: usize = 12;
        let bytes = fs::read(self.folder.stderr()).unwrap_or_default();
        let text = String::from_utf8_lossy(&bytes);
        let lines: Vec<&str> = text.lines().filter(|line| !line.trim().is_empty()).collect();
        let tail = lines[lines.len().saturating_sub(LINES)..].join("\n");
        match status {
            Some(status) if status.code().is_none() => {
                format!("the process ended by {status}; the system may have run out of memory\n{tail}")
                    .trim()
                    .into()
            }
            Some(status) if tail.is_empty() => format!("the process ended with {status} and printed nothing"),
            _ => tail,
        }
    }
}

/// Asks a process to end as Ctrl-C does.
#[cfg(unix)]
fn interrupt(child: &mut Child) {
    use nix::sys::signal::{Signal, kill};
    use nix::unistd::Pid;

    // The child was not waited for yet, so its number is still its own.
    if let Ok(id) = i32::try_from(child.id()) {
        let _ = kill(Pid::from_raw(id), Signal::SIGTERM);
    }
}

/// Ends a process; it continues from its last checkpoint.
#[cfg(not(unix))]
fn interrupt(child: &mut Child) {
    let _ = child.kill();
}

/// The largest resident memory of a process so far, on Linux.
fn peak_memory_mib(id: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kib: f64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kib / 1024.0)
}
