//! How many threads make sense: cores, performance cores, and what this process may use.
//!
//! On Linux a parser over `/sys` and `/proc` (a folder in tests); elsewhere only what the standard library says.
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread::available_parallelism;

/// Counts of this machine's processors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Hardware threads.
    pub n_logical: usize,
    /// Cores.
    pub n_physical: usize,
    /// Cores of the fastest kind; all, where there is one kind.
    pub n_performance: usize,
    /// Hardware threads that this process may use at once: affinity and control-group quota.
    pub n_allowed: usize,
    /// Performance cores among those.
    n_usable: usize,
}

impl Topology {
    /// Of this machine and process.
    pub fn probe() -> Topology {
        Self::from_root(Path::new("/")).unwrap_or_else(|| {
            let n = available_parallelism().map_or(1, usize::from);
            Topology { n_logical: n, n_physical: n, n_performance: n, n_allowed: n, n_usable: n }
        })
    }

    /// Threads for the compute pool: one per performance core that this process may use, within its quota.
    ///
    /// Slow cores and second hardware threads gain nothing where memory is the limit, and delay the last task.
    pub fn default_threads(&self) -> usize {
        self.n_usable.min(self.n_allowed).max(1)
    }

    /// From `sys` and `proc` under `root`; `None` if they do not list processors.
    pub fn from_root(root: &Path) -> Option<Topology> {
        let cpus = root.join("sys/devices/system/cpu");
        let online = cpu_list(&cpus.join("online"))?;
        let affinity = affinity(root).unwrap_or_else(|| online.clone());
        let fast = performance_cpus(root, &cpus, &online);
        let allowed: BTreeSet<usize> = affinity.intersection(&online).copied().collect();
        let usable: BTreeSet<usize> = allowed.intersection(&fast).copied().collect();
        // pinned to slow cores only: they are the cores to use
        let usable = if usable.is_empty() { allowed.clone() } else { usable };
        let n_allowed = quota(root).map_or(allowed.len(), |q| q.min(allowed.len())).max(1);
        Some(Topology {
            n_logical: online.len(),
            n_physical: n_cores(&cpus, &online),
            n_performance: n_cores(&cpus, &fast),
            n_allowed,
            n_usable: n_cores(&cpus, &usable),
        })
    }
}

/// Distinct cores of these processors; one that does not say is a core of its own.
fn n_cores(cpus: &Path, set: &BTreeSet<usize>) -> usize {
    let core = |cpu: &usize| {
        let siblings = cpu_list(&cpus.join(format!("cpu{cpu}/topology/thread_siblings_list")));
        siblings.and_then(|s| s.first().copied()).unwrap_or(*cpu)
    };
    set.iter().map(core).collect::<BTreeSet<usize>>().len()
}

/// Processors of the fastest kind: what Intel's hybrid drivers list, or those of the largest capacity.
fn performance_cpus(root: &Path, cpus: &Path, online: &BTreeSet<usize>) -> BTreeSet<usize> {
    if let Some(fast) = cpu_list(&root.join("sys/devices/cpu_core/cpus")) {
        return fast.intersection(online).copied().collect();
    }
    let capacity = |cpu: usize| -> usize {
        let text = fs::read_to_string(cpus.join(format!("cpu{cpu}/cpu_capacity"))).unwrap_or_default();
        text.trim().parse().unwrap_or(0)
    };
    let largest = online.iter().map(|cpu| capacity(*cpu)).max().unwrap_or(0);
    // cores of one kind differ a little in their best clock
    online.iter().copied().filter(|cpu| capacity(*cpu) * 10 >= largest * 9).collect()
}

/// Processors that this process may be scheduled on.
fn affinity(root: &Path) -> Option<BTreeSet<usize>> {
    let status = fs::read_to_string(root.join("proc/self/status")).ok()?;
    parse_list(status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?)
}

/// Processors' worth of time that control groups grant, rounded up; `None` without a limit.
fn quota(root: &Path) -> Option<usize> {
    let groups = fs::read_to_string(root.join("proc/self/cgroup")).ok()?;
    groups.lines().filter_map(|line| group_quota(root, line)).min()
}

/// Smallest limit on the way from one line's group to the root. Lines are `id:controllers:path`.
fn group_quota(root: &Path, line: &str) -> Option<usize> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let mount = root.join("sys/fs/cgroup");
    let (mount, limit): (PathBuf, fn(&Path) -> Option<usize>) = if controllers.is_empty() {
        (mount, limit_v2)
    } else if controllers.split(',').any(|c| c == "cpu") {
        let named = mount.join(controllers);
        (if named.is_dir() { named } else { mount.join("cpu") }, limit_v1)
    } else {
        return None;
    };
    let path = Path::new(path.trim_start_matches('/'));
    // inside a container the path may lie outside what is mounted: the mount's own root still holds the limit
    path.ancestors().filter_map(|group| limit(&mount.join(group))).min()
}

/// `cpu.max`: "quota period" in microseconds, or "max period".
fn limit_v2(group: &Path) -> Option<usize> {
    let text = fs::read_to_string(group.join("cpu.max")).ok()?;
    let mut fields = text.split_whitespace();
    whole_cpus(fields.next()?.parse().ok()?, fields.next()?.parse().ok()?)
}

/// `cpu.cfs_quota_us` (-1: none) and `cpu.cfs_period_us`.
fn limit_v1(group: &Path) -> Option<usize> {
    let read = |name: &str| fs::read_to_string(group.join(name)).ok()?.trim().parse().ok();
    whole_cpus(read("cpu.cfs_quota_us")?, read("cpu.cfs_period_us")?)
}

fn whole_cpus(quota: i64, period: i64) -> Option<usize> {
    (quota > 0 && period > 0).then(|| usize::try_from((quota - 1) / period + 1).ok())?
}

fn cpu_list(file: &Path) -> Option<BTreeSet<usize>> {
    parse_list(&fs::read_to_string(file).ok()?)
}

/// "0-3,8,10-11"; `None` if it is anything else or empty.
fn parse_list(text: &str) -> Option<BTreeSet<usize>> {
    /// More processors than any Linux kernel is built for.
    const MAX_CPUS: usize = 1 << 16;
    let mut set = BTreeSet::new();
    for part in text.trim().split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
        if last >= MAX_CPUS {
            return None;
        }
        set.extend(first..=last);
    }
    (!set.is_empty()).then_some(set)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files under a fresh root and reads the topology.
    fn topology(files: &[(&str, &str)]) -> Option<Topology> {
        let root = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = root.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        Topology::from_root(root.path())
    }

    /// Two threads per core on the first `n_double` cores, one on the others.
    fn machine(n_double: usize, n_single: usize) -> Vec<(String, String)> {
        let n = 2 * n_double + n_single;
        let mut files = vec![("sys/devices/system/cpu/online".to_owned(), format!("0-{}\n", n - 1))];
        for cpu in 0..n {
            let siblings =
                if cpu < 2 * n_double { format!("{}-{}\n", cpu / 2 * 2, cpu / 2 * 2 + 1) } else { format!("{cpu}\n") };
            files.push((format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"), siblings));
        }
        files
    }

    fn with<'a>(machine: &'a [(String, String)], more: &[(&'a str, &'a str)]) -> Topology {
        let files: Vec<(&str, &str)> =
            machine.iter().map(|(p, t)| (p.as_str(), t.as_str())).chain(more.iter().copied()).collect();
        topology(&files).unwrap()
    }

    fn counts(t: Topology) -> (usize, usize, usize, usize, usize) {
        (t.n_logical, t.n_physical, t.n_performance, t.n_allowed, t.default_threads())
    }

    #[test]
    fn plain_machine_with_two_threads_per_core() {
        assert_eq!(counts(with(&machine(8, 0), &[])), (16, 8, 8, 16, 8));
    }

    #[test]
    fn hybrid_machine_uses_its_performance_cores() {
        let m = machine(6, 8);
        assert_eq!(counts(with(&m, &[("sys/devices/cpu_core/cpus", "0-11\n")])), (20, 14, 6, 20, 6));
    }

    #[test]
    fn capacities_tell_kinds_apart() {
        let m = machine(0, 4);
        let capacity = [
            ("sys/devices/system/cpu/cpu0/cpu_capacity", "1024\n"),
            ("sys/devices/system/cpu/cpu1/cpu_capacity", "1000\n"),
            ("sys/devices/system/cpu/cpu2/cpu_capacity", "446\n"),
            ("sys/devices/system/cpu/cpu3/cpu_capacity", "446\n"),
        ];
        assert_eq!(counts(with(&m, &capacity)), (4, 4, 2, 4, 2));
    }

    #[test]
    fn affinity_limits_threads_to_its_cores() {
        let m = machine(8, 0);
        let status =
            |list: &str| format!("Name:\ttandem\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nThreads:\t1\n");
        assert_eq!(counts(with(&m, &[("proc/self/status", &status("0-3"))])), (16, 8, 8, 4, 2));
        assert_eq!(counts(with(&m, &[("proc/self/status", &status("0,2,4"))])), (16, 8, 8, 3, 3));
        let hybrid = machine(2, 4);
        let slow_only = [("sys/devices/cpu_core/cpus", "0-3"), ("proc/self/status", &status("4-6"))];
        assert_eq!(counts(with(&hybrid, &slow_only)), (8, 6, 2, 3, 3));
    }

    #[test]
    fn control_group_quota_limits_threads() {
        let m = machine(8, 0);
        let v2 = [
            ("proc/self/cgroup", "0::/user.slice/app.scope\n"),
            ("sys/fs/cgroup/user.slice/cpu.max", "250000 100000\n"),
            ("sys/fs/cgroup/user.slice/app.scope/cpu.max", "max 100000\n"),
        ];
        assert_eq!(counts(with(&m, &v2)), (16, 8, 8, 3, 3));
        let v1 = [
            ("proc/self/cgroup", "4:cpu,cpuacct:/docker/abc\n3:memory:/docker/abc\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "200000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000\n"),
        ];
        assert_eq!(counts(with(&m, &v1)), (16, 8, 8, 2, 2));
        let unlimited = [("proc/self/cgroup", "0::/\n"), ("sys/fs/cgroup/cpu.max", "max 100000\n")];
        assert_eq!(counts(with(&m, &unlimited)), (16, 8, 8, 16, 8));
    }

    #[test]
    fn malformed_files_are_no_topology() {
        assert_eq!(topology(&[]), None);
        for text in ["", "abc", "3-", "1,,2", "0-999999999999"] {
            assert_eq!(topology(&[("sys/devices/system/cpu/online", text)]), None, "{text}");
        }
    }

    #[test]
    fn this_machine_has_a_thread() {
        let t = Topology::probe();
        assert!(t.default_threads() >= 1 && t.n_logical >= t.n_physical && t.n_physical >= t.n_performance);
    }
}
