//! The volume of a folder: its size, what is free, and whether it is a hard disk.
use std::path::{Path, PathBuf};

use sysinfo::{DiskKind, DiskRefreshKind, Disks};

use crate::wire;

/// The volume that holds `folder`, or will once it is made; zeros and unknowns where the system does not say.
pub fn disk(folder: &Path) -> wire::Disk {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_path_buf());
    let existing = absolute.ancestors().find(|path| path.exists()).unwrap_or(&absolute);
    wire::Disk {
        path: folder.display().to_string(),
        total_bytes: fs4::total_space(existing).unwrap_or(0),
        free_bytes: fs4::available_space(existing).unwrap_or(0),
        kind: kind(existing),
    }
}

fn kind(path: &Path) -> wire::DiskKind {
    let disks = Disks::new_with_refreshed_list_specifics(DiskRefreshKind::nothing().with_kind());
    let mounts = disks.iter().map(|disk| (disk.mount_point().to_path_buf(), disk.kind())).collect::<Vec<_>>();
    // Links lead to other volumes, and on Windows a plain path has no prefix in common with a mount point of its own form.
    let real = dunce::canonicalize(path).unwrap_or_else(|_| path.to_path_buf());
    kind_of(&real, &mounts)
}

/// The innermost mount counts.
fn kind_of(path: &Path, mounts: &[(PathBuf, DiskKind)]) -> wire::DiskKind {
    let holding = mounts.iter().filter(|(mount, _)| path.starts_with(mount));
    match holding.max_by_key(|(mount, _)| mount.components().count()) {
        Some((_, DiskKind::SSD)) => wire::DiskKind::Solid,
        Some((_, DiskKind::HDD)) => wire::DiskKind::Rotating,
        Some((_, DiskKind::Unknown(_))) | None => wire::DiskKind::Unknown,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_to_come_is_measured_by_its_volume() {
        let dir = tempfile::tempdir().unwrap();
        let disk = disk(&dir.path().join("not").join("there yet"));
        assert!(disk.total_bytes > 0);
        assert!(disk.free_bytes <= disk.total_bytes);
    }

    #[test]
    fn the_innermost_mount_says_what_a_folder_is_on() {
        let mounts = [
            (PathBuf::from("/"), DiskKind::SSD),
            (PathBuf::from("/data"), DiskKind::HDD),
            (PathBuf::from("/data/net"), DiskKind::Unknown(-1)),
        ];
        for (path, expected) in [
            ("/home/me", wire::DiskKind::Solid),
            ("/data/models", wire::DiskKind::Rotating),
            ("/data", wire::DiskKind::Rotating),
            ("/database", wire::DiskKind::Solid),
            ("/data/net/models", wire::DiskKind::Unknown),
        ] {
            assert_eq!(kind_of(Path::new(path), &mounts), expected, "{path}");
        }
        assert_eq!(kind_of(Path::new("/x"), &[]), wire::DiskKind::Unknown);
    }
}
