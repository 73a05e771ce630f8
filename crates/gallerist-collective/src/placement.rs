//! Where a rank runs.

/// The machine of a process and the cores that it may use, as text: equal for ranks that share their cores.
pub(crate) struct Placement;

impl Placement {
    pub(crate) fn of_process() -> String {
        let cores = status("Cpus_allowed:").unwrap_or_default();
        format!("{} {} {cores}", host(), namespace())
    }
}

/// Cores that this process may use.
pub(crate) fn cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The name of the machine.
pub(crate) fn host() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default().trim().to_owned()
}

/// The namespace in which the numbers of processes count; two containers of a machine have two.
pub(crate) fn namespace() -> String {
    let link = std::fs::read_link("/proc/self/ns/pid");
    link.map_or(String::new(), |link| link.to_string_lossy().into_owned())
}

/// A line of the process's status.
fn status(key: &str) -> Option<String> {
    let text = std::fs::read_to_string("/proc/self/status").ok()?;
    text.lines().find_map(|line| Some(line.strip_prefix(key)?.trim().to_owned()))
}
