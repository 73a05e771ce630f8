//! Memory that the allocator keeps. In a process of its own, because other tests would change its memory.
#![cfg(all(target_os = "linux", target_env = "gnu"))]

use gallerist_util::memory::{limit_arenas, release_free};

/// Memory of the process without that of files, in MiB.
fn anonymous() -> usize {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("RssAnon:")).unwrap();
    line.trim().strip_suffix("kB").unwrap().trim().parse::<usize>().unwrap() >> 10
}

/// Freed buffers with small ones between them, so that the allocator has to keep their place. Returns the small ones.
fn scattered() -> Vec<Vec<u8>> {
    // Smaller than what the allocator asks the system for directly (128 KiB).
    let mut large = Vec::new();
    let small = (0..1000).map(|_| {
        large.push(vec![1u8; 100 << 10]);
        vec![1; 64]
    });
    small.collect()
}

#[test]
fn freed_memory_is_given_back_and_threads_share_their_arenas() {
    limit_arenas();
    let before = anonymous();
    let kept = scattered();
    assert!(anonymous() > before + 60, "the allocator keeps what was freed: {} MiB", anonymous());
    release_free();
    assert!(anonymous() < before + 30, "{before} MiB before, {} MiB after", anonymous());
    assert!(kept.iter().all(|small| small[0] == 1));

    // More threads than arenas, all at once; an arena of another thread is another range of 64 MiB addresses.
    let threads = 4 * std::thread::available_parallelism().map_or(1, usize::from);
    let all = std::sync::Barrier::new(threads);
    let mut arenas: Vec<usize> = std::thread::scope(|scope| {
        let start = |_| {
            scope.spawn(|| {
                let value = vec![1u8; 2000];
                all.wait();
                value.as_ptr().addr() >> 26
            })
        };
        let started: Vec<_> = (0..threads).map(start).collect();
        started.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    arenas.sort_unstable();
    arenas.dedup();
    // The arena of the first thread may lie on both sides of a border.
    assert!(arenas.len() <= threads / 4 + 1, "{} arenas for {threads} threads", arenas.len());
}
