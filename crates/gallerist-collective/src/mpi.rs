//! Ranks that an MPI launcher has started.
//!
//! Every operation is started without blocking and then tested for its end, so that it can be given up: where a process
//! of this machine is gone, or the time is over. Open MPI does not report a dead process to the others; its launcher
//! ends them, but says nothing about which rank was first.

use std::ffi::c_int;
use std::mem::MaybeUninit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use mpi_sys as ffi;

use crate::placement::{host, namespace};
use crate::{Collective, Error, Result};

/// How long a wait tests without a pause; a longer wait is for another rank's work and should not take its core.
const BUSY: Duration = Duration::from_millis(200);

/// The pause between two tests of a longer wait.
const PAUSE: Duration = Duration::from_micros(200);

/// The pause between two tests on the second communicator.
const SHORT_PAUSE: Duration = Duration::from_micros(50);

/// How often a wait looks whether the other processes are there.
const LOOK: Duration = Duration::from_secs(1);

/// Whether the end of this process must end all ranks.
static NEEDED: AtomicBool = AtomicBool::new(true);

/// A communicator of all ranks.
#[derive(Debug)]
pub(crate) struct Mpi {
    communicator: Communicator,
    process: Arc<Process>,
    /// A copy of the communicator: operations on the two need not be in step.
    second: Option<Arc<Mpi>>,
}

/// This process among the ranks.
#[derive(Debug)]
struct Process {
    rank: usize,
    size: usize,
    /// The processes of the ranks of this machine, this one left out.
    neighbours: Vec<(usize, u32)>,
    timeout: AtomicU64,
    /// Held during every call of MPI, as `MPI_THREAD_SERIALIZED` requires. The error of an operation that was given up.
    given_up: Mutex<Option<Error>>,
}

/// MPI's name of a communicator.
#[derive(Clone, Copy, Debug)]
struct Communicator(ffi::MPI_Comm);

// SAFETY: it is a name that MPI looks up; it is used only while `Process::given_up` is held.
unsafe impl Send for Communicator {}
// SAFETY: as above.
unsafe impl Sync for Communicator {}

impl Mpi {
    pub(crate) fn init() -> Result<Self> {
        let (mut provided, mut rank, mut size) = (0, 0, 0);
        // SAFETY: called once per process (`world` keeps the result), before any other call of MPI; null stands for
        // absent arguments; the other pointers are to local variables.
        unsafe {
            let (argc, argv) = (std::ptr::null_mut(), std::ptr::null_mut());
            ffi::MPI_Init_thread(argc, argv, ffi::RSMPI_THREAD_SERIALIZED, &mut provided);
            ffi::MPI_Comm_rank(ffi::RSMPI_COMM_WORLD, &mut rank);
            ffi::MPI_Comm_size(ffi::RSMPI_COMM_WORLD, &mut size);
            libc::atexit(at_exit);
        }
        let (rank, size) = (rank as usize, size as usize);
        // SAFETY: a constant of the library.
        if provided < unsafe { ffi::RSMPI_THREAD_SERIALIZED } {
            let reason = "the MPI library allows calls from one thread only (MPI_THREAD_SERIALIZED)".into();
            return Err(Error::Unavailable { size, reason });
        }
        let process = |neighbours| {
            let (timeout, given_up) = (AtomicU64::new(u64::MAX), Mutex::new(None));
            Arc::new(Process { rank, size, neighbours, timeout, given_up })
        };
        let communicator = |process: &Arc<Process>, communicator| Mpi {
            communicator: Communicator(communicator),
            process: process.clone(),
            second: None,
        };
        // SAFETY: a constant of the library.
        let of_all = unsafe { ffi::RSMPI_COMM_WORLD };
        let place = format!("{} {}", host(), namespace());
        let own = format!("{}\n{place}", std::process::id());
        let all = communicator(&process(Vec::new()), of_all).all_gather_any(own.as_bytes())?;
        let neighbour = |(other, text): (usize, Vec<u8>)| {
            let text = String::from_utf8(text).ok()?;
            let (process, its_place) = text.split_once('\n')?;
            (its_place == place && other != rank).then(|| Some((other, process.parse().ok()?)))?
        };
        let process = process(all.into_iter().enumerate().filter_map(neighbour).collect());
        let mut copy = MaybeUninit::<ffi::MPI_Comm>::uninit();
        // SAFETY: no other thread calls MPI yet, and all ranks come here; `copy` is written where the call succeeds, and MPI
        // ends the process where it does not.
        let copy = unsafe {
            ffi::MPI_Comm_dup(of_all, copy.as_mut_ptr());
            copy.assume_init()
        };
        let second = Some(Arc::new(communicator(&process, copy)));
        Ok(Mpi { second, ..communicator(&process, of_all) })
    }

    /// The right to call MPI.
    ///
    /// # Errors
    ///
    /// If an operation of any communicator was given up.
    fn turn(&self) -> Result<MutexGuard<'_, Option<Error>>> {
        let given_up = self.process.given_up.lock().unwrap_or_else(|e| e.into_inner());
        match &*given_up {
            Some(error) => Err(error.clone()),
            None => Ok(given_up),
        }
    }

    /// Starts an operation and waits for its end. The memory of `exchange` stays where it is until then, and is not freed
    /// where the operation is given up.
    fn run(
        &self,
        operation: &'static str,
        mut exchange: Exchange,
        start: impl FnOnce(&mut Exchange, *mut ffi::MPI_Request),
    ) -> Result<Vec<u8>> {
        NEEDED.store(true, Ordering::Relaxed);
        let Process { rank: own, size, neighbours, timeout, .. } = &*self.process;
        let (own, size) = (*own, *size);
        let mut request = MaybeUninit::<ffi::MPI_Request>::uninit();
        let turn = self.turn()?;
        start(&mut exchange, request.as_mut_ptr());
        drop(turn);
        let (begun, mut looked) = (Instant::now(), Instant::now());
        loop {
            let mut done: c_int = 0;
            match self.turn() {
                // SAFETY: `start` has written the request; the turn makes this the only call of MPI now; the status may be
                // ignored.
                Ok(_turn) => unsafe {
                    ffi::MPI_Test(request.as_mut_ptr(), &mut done, ffi::RSMPI_STATUS_IGNORE);
                },
                Err(error) => {
                    // MPI may still read and write them.
                    std::mem::forget(exchange);
                    return Err(error);
                }
            }
            if done != 0 {
                return Ok(exchange.received);
            }
            match self.second {
                Some(_) if begun.elapsed() < BUSY => std::thread::yield_now(),
                Some(_) => std::thread::sleep(PAUSE),
                // It exchanges while the process computes.
                None => std::thread::sleep(SHORT_PAUSE),
            }
            if looked.elapsed() < LOOK {
                continue;
            }
            looked = Instant::now();
            let seconds = begun.elapsed().as_secs();
            let error = match neighbours.iter().find(|(_, process)| !is_alive(*process)) {
                Some(&(rank, process)) => Some(Error::Lost { rank, size, process, own }),
                None => (seconds >= timeout.load(Ordering::Relaxed)).then_some(Error::Timeout {
                    own,
                    size,
                    seconds,
                    operation,
                }),
            };
            if let Some(error) = error
                && let Ok(mut given_up) = self.turn()
            {
                *given_up = Some(error);
            }
        }
    }
}

/// Bytes that are sent, bytes that are received, and their counts and places.
struct Exchange {
    sent: Vec<u8>,
    received: Vec<u8>,
    send_counts: Vec<c_int>,
    send_places: Vec<c_int>,
    counts: Vec<c_int>,
    places: Vec<c_int>,
}

impl Exchange {
    fn new(parts: &[&[u8]], lengths: &[usize]) -> Self {
        // The address of a `Vec` without memory is 1, which is `MPI_IN_PLACE` in Open MPI.
        let (mut sent, mut received) = (Vec::with_capacity(1), Vec::with_capacity(1));
        parts.iter().for_each(|part| sent.extend_from_slice(part));
        received.resize(lengths.iter().sum(), 0);
        let of_parts: Vec<usize> = parts.iter().map(|part| part.len()).collect();
        let ((send_counts, send_places), (counts, places)) = (layout(&of_parts), layout(lengths));
        Exchange { sent, received, send_counts, send_places, counts, places }
    }
}

/// Counts and first places of parts that follow each other.
fn layout(lengths: &[usize]) -> (Vec<c_int>, Vec<c_int>) {
    let int = |bytes: usize| c_int::try_from(bytes).expect("an exchange is of less than 2 GiB");
    let mut end = 0;
    let place = |length: &usize| {
        let start = end;
        end += length;
        int(start)
    };
    let places = lengths.iter().map(place).collect();
    (lengths.iter().map(|&length| int(length)).collect(), places)
}

impl Collective for Mpi {
    fn rank(&self) -> usize {
        self.process.rank
    }

    fn size(&self) -> usize {
        self.process.size
    }

    fn second(&self) -> Option<Arc<dyn Collective>> {
        self.second.clone().map(|second| second as Arc<dyn Collective>)
    }

    fn all_gather(&self, own: &[u8], lengths: &[usize]) -> Result<Vec<u8>> {
        assert_eq!(lengths.len(), self.size(), "lengths of {} ranks of {}", lengths.len(), self.size());
        assert_eq!(lengths[self.rank()], own.len(), "the length of rank {}", self.rank());
        let Communicator(communicator) = self.communicator;
        self.run("a gathering", Exchange::new(&[own], lengths), |exchange, request| {
            // SAFETY: the buffers are as long as their counts and places say, they are not moved (their `Vec`s own
            // them) and live until the operation has ended (`run`); the communicator has `size` ranks.
            unsafe {
                ffi::MPI_Iallgatherv(
                    exchange.sent.as_ptr().cast(),
                    exchange.send_counts[0],
                    ffi::RSMPI_UINT8_T,
                    exchange.received.as_mut_ptr().cast(),
                    exchange.counts.as_ptr(),
                    exchange.places.as_ptr(),
                    ffi::RSMPI_UINT8_T,
                    communicator,
                    request,
                );
            }
        })
    }

    fn all_to_all(&self, parts: &[&[u8]], lengths: &[usize]) -> Result<Vec<u8>> {
        assert!(
            parts.len() == self.size() && lengths.len() == self.size(),
            "{} parts and {} lengths for {} ranks",
            parts.len(),
            lengths.len(),
            self.size()
        );
        let Communicator(communicator) = self.communicator;
        self.run("an exchange", Exchange::new(parts, lengths), |exchange, request| {
            // SAFETY: as in `all_gather`.
            unsafe {
                ffi::MPI_Ialltoallv(
                    exchange.sent.as_ptr().cast(),
                    exchange.send_counts.as_ptr(),
                    exchange.send_places.as_ptr(),
                    ffi::RSMPI_UINT8_T,
                    exchange.received.as_mut_ptr().cast(),
                    exchange.counts.as_ptr(),
                    exchange.places.as_ptr(),
                    ffi::RSMPI_UINT8_T,
                    communicator,
                    request,
                );
            }
        })
    }

    fn set_timeout(&self, timeout: Duration) {
        self.process.timeout.store(timeout.as_secs().max(1), Ordering::Relaxed);
    }

    fn finish(&self) {
        NEEDED.store(false, Ordering::Relaxed);
    }
}

/// Whether a process of this machine is there and not only waits to be collected by its parent.
fn is_alive(process: u32) -> bool {
    // `12 (name) S ...`; a name may have brackets.
    let Ok(text) = std::fs::read_to_string(format!("/proc/{process}/stat")) else {
        return !std::path::Path::new("/proc/self/stat").exists();
    };
    let state = text.rsplit_once(") ").map_or("", |(_, rest)| rest);
    !state.starts_with(['Z', 'X', 'x'])
}

/// Ends MPI with the process. A rank that fails must not wait here for the others, which wait for it.
extern "C" fn at_exit() {
    // SAFETY: MPI is initialised, and no other thread calls it while the process ends.
    unsafe {
        if NEEDED.load(Ordering::Relaxed) {
            ffi::MPI_Abort(ffi::RSMPI_COMM_WORLD, 2);
        } else {
            ffi::MPI_Finalize();
        }
    }
}
