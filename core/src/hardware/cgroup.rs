//! Linux control groups: the memory limits that a container or a service manager puts on this process. Other systems
//! have none.
use std::path::{Path, PathBuf};

/// One group's limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Limit {
    /// Most that the group may hold.
    pub(super) max_bytes: u64,
    /// What it holds and cannot drop: its use without the file cache.
    pub(super) held_bytes: u64,
}

/// Limits of all groups this process is in, innermost first; each of them holds.
pub(super) fn limits() -> impl Iterator<Item = Limit> {
    // Absent on other systems, and then there is nothing to read.
    let membership = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    limits_under(Path::new("/sys/fs/cgroup"), &membership).into_iter()
}

/// The same for a mount point and the text of `/proc/self/cgroup`.
fn limits_under(mount: &Path, membership: &str) -> Vec<Limit> {
    let mut limits = Vec::new();
    for line in membership.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, files) = match controllers {
            "" => (mount.to_path_buf(), &V2),
            v1 if v1.split(',').any(|name| name == "memory") => (mount.join("memory"), &V1),
            _ => continue,
        };
        limits.extend(groups(&root, path).iter().filter_map(|group| files.read(group)));
    }
    limits
}

/// The group and its ancestors. Within a container the path may lead out of what is mounted: then only the root counts.
fn groups(root: &Path, path: &str) -> Vec<PathBuf> {
    let relative = Path::new(path.trim_start_matches('/'));
    let is_plain = relative.components().all(|part| matches!(part, std::path::Component::Normal(_)));
    if is_plain { relative.ancestors().map(|ancestor| root.join(ancestor)).collect() } else { vec![root.to_path_buf()] }
}

/// Where one version of control groups keeps its figures.
struct Files {
    max: &'static str,
    used: &'static str,
    cache_keys: [&'static str; 2],
}

/// Source: Linux `Documentation/admin-guide/cgroup-v2.rst`.
static V2: Files = Files { max: "memory.max", used: "memory.current", cache_keys: ["inactive_file", "active_file"] };

/// Source: Linux `Documentation/admin-guide/cgroup-v1/memory.rst`. "No limit" is a number near 2^63.
static V1: Files = Files {
    max: "memory.limit_in_bytes",
    used: "memory.usage_in_bytes",
    cache_keys: ["total_inactive_file", "total_active_file"],
};

impl Files {
    /// A group without a limit (`max`) or without figures sets no limit.
    fn read(&self, group: &Path) -> Option<Limit> {
        let number = |file| std::fs::read_to_string(group.join(file)).ok()?.trim().parse::<u64>().ok();
        let max_bytes = number(self.max)?;
        let used_bytes = number(self.used)?;
        let stat = std::fs::read_to_string(group.join("memory.stat")).unwrap_or_default();
        let cache_bytes: u64 = self.cache_keys.iter().filter_map(|key| stat_value(&stat, key)).sum();
        Some(Limit { max_bytes, held_bytes: used_bytes.saturating_sub(cache_bytes) })
    }
}

fn stat_value(stat: &str, key: &str) -> Option<u64> {
    stat.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(' ')?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        dir
    }

    #[test]
    fn every_group_on_the_way_up_counts() {
        let dir = tree(&[
            ("app/inner/memory.max", "max\n"),
            ("app/inner/memory.current", "7\n"),
            ("app/memory.max", "1000\n"),
            ("app/memory.current", "700\n"),
            ("app/memory.stat", "anon 300\nfile 400\ninactive_file 250\nactive_file 100\nactive_file_x 9\n"),
            ("memory.max", "5000\n"),
            ("memory.current", "800\n"),
        ]);
        let limits = limits_under(dir.path(), "0::/app/inner\n");
        let expected = [(1000, 350), (5000, 800)].map(|(max_bytes, held_bytes)| Limit { max_bytes, held_bytes });
        assert_eq!(limits, expected);
    }

    #[test]
    fn version_1_is_read_from_its_memory_controller() {
        let dir = tree(&[
            ("memory/box/memory.limit_in_bytes", "4096\n"),
            ("memory/box/memory.usage_in_bytes", "3000\n"),
            ("memory/box/memory.stat", "cache 1\ntotal_inactive_file 500\ntotal_active_file 24\n"),
        ]);
        let limits = limits_under(dir.path(), "5:cpu,cpuacct:/box\n4:memory:/box\n1:name=systemd:/box\n");
        assert_eq!(limits, [Limit { max_bytes: 4096, held_bytes: 2476 }]);
    }

    #[test]
    fn odd_memberships_set_no_limit() {
        let dir = tree(&[("memory.max", "99\n"), ("memory.current", "x\n")]);
        for membership in ["", "0", "0::", "0::/gone\n", "0::/../..\n", ":::\n"] {
            assert_eq!(limits_under(dir.path(), membership), [], "{membership:?}");
        }
        let dir = tree(&[("memory.max", "99\n"), ("memory.current", "9\n")]);
        assert_eq!(limits_under(dir.path(), "0::/../..\n"), [Limit { max_bytes: 99, held_bytes: 9 }]);
    }
}
