//! `races CASE`: one way of sharing data between threads, done right or wrong; without CASE, the list of them.
//!
//! `cargo xtask check tsan` runs all before the tests, to prove that ThreadSanitizer reports a race, and does not report
//! what the standard library or rayon synchronises. The names of those with a race begin with `race`.

use std::cell::UnsafeCell;
use std::hint::black_box;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Condvar, Mutex, Once, OnceLock, RwLock, mpsc};
use std::thread;

use rayon::prelude::*;

const THREADS: usize = 4;
const ROUNDS: usize = 2000;

/// A counter without synchronisation.
struct Plain(UnsafeCell<usize>);

// SAFETY: none. Each case shows with which synchronisation the counter is free of races.
unsafe impl Sync for Plain {}

impl Plain {
    fn new() -> Self {
        Plain(UnsafeCell::new(0))
    }

    fn add(&self) {
        // SAFETY: none, see above.
        unsafe { *self.0.get() += 1 };
    }

    fn get(&self) -> usize {
        // SAFETY: none, see above.
        black_box(unsafe { *self.0.get() })
    }
}

const CASES: [(&str, fn()); 18] = [
    ("race", race),
    ("race-relaxed", || flag(Ordering::Relaxed, Ordering::Relaxed)),
    ("race-read-lock", race_read_lock),
    ("race-arc", race_arc),
    ("race-rayon", race_rayon),
    ("mutex", mutex),
    ("rwlock", rwlock),
    ("condvar", condvar),
    ("once", once),
    ("park", park),
    ("scope", scope),
    ("channel", channel),
    ("barrier", barrier),
    ("flag", || flag(Ordering::Acquire, Ordering::Release)),
    ("arc", arc),
    ("output", output),
    ("rayon", rayon),
    ("rayon-pools", rayon_pools),
];

fn main() -> ExitCode {
    let Some(name) = std::env::args().nth(1) else {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    };
    let Some((_, case)) = CASES.iter().find(|(of, _)| *of == name) else {
        eprintln!("error: no case `{name}`\n\nhint: without an argument, the cases are listed");
        return ExitCode::from(2);
    };
    case();
    ExitCode::SUCCESS
}

/// Runs `work` in all threads at the same time.
///
/// The standard library locks something when a thread starts and when it ends: a thread that starts after another one has
/// ended is ordered after it, and has no race with it.
fn all(work: impl Fn(usize) + Sync) {
    let started = AtomicUsize::new(0);
    thread::scope(|scope| {
        for index in 0..THREADS {
            let (work, started) = (&work, &started);
            scope.spawn(move || {
                wait_for_all(started, THREADS);
                work(index)
            });
        }
    });
}

/// Waits until `count` threads are here, without ordering them.
fn wait_for_all(started: &AtomicUsize, count: usize) {
    started.fetch_add(1, Ordering::Relaxed);
    while started.load(Ordering::Relaxed) < count {
        thread::yield_now();
    }
}

fn race() {
    let counter = Plain::new();
    all(|_| {
        for _ in 0..ROUNDS {
            counter.add();
        }
    });
}

/// A read lock does not permit writes. All threads have it when the first one writes.
fn race_read_lock() {
    let (lock, readers, counter) = (RwLock::new(()), AtomicUsize::new(0), Plain::new());
    all(|_| {
        let _read = lock.read().unwrap();
        wait_for_all(&readers, THREADS);
        counter.add();
    });
}

/// Owners of one `Arc` are not synchronised while they live.
fn race_arc() {
    let shared = Arc::new(Plain::new());
    all(|_| (0..ROUNDS).for_each(|_| shared.clone().add()));
}

fn mutex() {
    let (lock, counter) = (Mutex::new(()), Plain::new());
    all(|_| {
        for _ in 0..ROUNDS {
            let _guard = lock.lock().unwrap();
            counter.add();
        }
    });
    assert_eq!(counter.get(), THREADS * ROUNDS);
}

fn rwlock() {
    let (lock, counter) = (RwLock::new(()), Plain::new());
    all(|index| {
        for round in 0..ROUNDS {
            if (index + round) % 2 == 0 {
                let _write = lock.write().unwrap();
                counter.add();
            } else {
                let _read = lock.read().unwrap();
                counter.get();
            }
        }
    });
}

/// The threads take turns.
fn condvar() {
    let (turn, changed, counter) = (Mutex::new(0), Condvar::new(), Plain::new());
    all(|index| {
        for _ in 0..ROUNDS / 10 {
            let mut turn = changed.wait_while(turn.lock().unwrap(), |turn| *turn != index).unwrap();
            counter.add();
            *turn = (index + 1) % THREADS;
            changed.notify_all();
        }
    });
}

fn once() {
    for _ in 0..ROUNDS / 10 {
        let (once, cell, counter) = (Once::new(), OnceLock::new(), Plain::new());
        all(|_| {
            once.call_once(|| counter.add());
            assert_eq!(counter.get(), 1);
            assert_eq!(cell.get_or_init(|| Box::new(7)).as_ref(), &7);
        });
    }
}

fn park() {
    for _ in 0..ROUNDS / 10 {
        let counter = Arc::new(Plain::new());
        let parked = {
            let counter = counter.clone();
            thread::spawn(move || {
                thread::park();
                counter.get()
            })
        };
        counter.add();
        parked.thread().unpark();
        parked.join().unwrap();
    }
}

fn scope() {
    for _ in 0..ROUNDS / 10 {
        let counters = [const { UnsafeCell::new(0) }; THREADS].map(Plain);
        all(|index| counters[index].add());
        assert!(counters.iter().all(|counter| counter.get() == 1));
    }
}

fn channel() {
    for bound in [0, 1, ROUNDS] {
        let (sender, receiver) = mpsc::sync_channel::<Box<usize>>(bound);
        thread::scope(|scope| {
            for _ in 0..THREADS {
                let sender = sender.clone();
                scope.spawn(move || (0..ROUNDS).for_each(|round| sender.send(Box::new(round)).unwrap()));
            }
            drop(sender);
            let sum: usize = receiver.iter().map(|value| *value).sum();
            assert_eq!(sum, THREADS * (0..ROUNDS).sum::<usize>());
        });
    }
}

/// In each round another thread writes.
fn barrier() {
    let (barrier, counter) = (Barrier::new(THREADS), Plain::new());
    all(|index| {
        for round in 0..ROUNDS / 10 {
            if round % THREADS == index {
                counter.add();
            }
            barrier.wait();
        }
    });
}

/// A flag that hands the counter to the next thread.
fn flag(load: Ordering, store: Ordering) {
    let (turn, counter) = (AtomicUsize::new(0), Plain::new());
    all(|index| {
        while turn.load(load) != index {
            thread::yield_now();
        }
        counter.add();
        turn.store(index + 1, store);
    });
}

/// The last owner drops the value, after all have read it.
fn arc() {
    for _ in 0..ROUNDS / 10 {
        let shared = Arc::new(Box::new(1));
        let threads: Vec<_> = (0..THREADS)
            .map(|_| {
                let shared = shared.clone();
                thread::spawn(move || black_box(**shared))
            })
            .collect();
        drop(shared);
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

fn output() {
    all(|index| (0..10).for_each(|round| println!("{index} {round}")));
}

/// All threads of a pool write the same element.
fn race_rayon() {
    let (counter, threads) = (Plain::new(), AtomicUsize::new(0));
    rayon::broadcast(|_| {
        wait_for_all(&threads, rayon::current_num_threads());
        counter.add();
    });
}

/// Parallel loops, sums and joins over slices that are borrowed.
fn rayon() {
    for round in 0..ROUNDS / 10 {
        let mut values = vec![round; ROUNDS];
        values.par_chunks_mut(7).enumerate().for_each(|(index, chunk)| chunk.fill(index));
        let sum: usize = values.par_iter().sum();
        assert_eq!(sum, values.iter().sum());
        let (left, right) = values.split_at_mut(ROUNDS / 2);
        rayon::join(|| left.fill(1), || right.fill(2));
        assert_eq!(
            values.par_iter().map(|value| vec![*value]).reduce(Vec::new, |a, b| [a, b].concat()),
            values
        );
    }
}

/// Pools that are built, used from outside and dropped.
fn rayon_pools() {
    for _ in 0..ROUNDS / 100 {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(THREADS).build().unwrap();
        let mut values = vec![0; ROUNDS];
        pool.install(|| values.par_iter_mut().for_each(|value| *value += 1));
        pool.scope(|scope| values.chunks_mut(100).for_each(|chunk| scope.spawn(|_| chunk.fill(2))));
        assert!(values.iter().all(|value| *value == 2));
    }
}
