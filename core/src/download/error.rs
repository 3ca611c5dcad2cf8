//! What can go wrong with a download, as data, and in words.

use std::path::PathBuf;

use crate::error::{Explain, FileError, bad_request, detail as said, is_disk_full, size};
use crate::hub::HubError;
use crate::wire::{ErrorCode, Failure, Text};

/// Why a download is not begun, or does not go on.
#[derive(Debug, thiserror::Error)]
pub enum DownloadError {
    /// No file, or files of several repos, were asked for.
    #[error("a download is one or more files of one repo")]
    BadRequest,
    /// A path that would lead out of the models folder, or that some system cannot hold.
    #[error("`{repo}`: `{path}` cannot be stored")]
    BadPath {
        /// `publisher/name`.
        repo: String,
        /// Path in the repo.
        path: String,
    },
    /// No download of that name.
    #[error("no download `{id}`")]
    Unknown {
        /// As given.
        id: String,
    },
    /// The same file is being downloaded in another version, or is being removed.
    #[error("`{path}` is in use by another download")]
    InUse {
        /// Path in the repo.
        path: String,
    },
    /// Another process writes into the models folder.
    #[error("another copy of the app downloads into `{}`", dir.display())]
    FolderInUse {
        /// The folder.
        dir: PathBuf,
    },
    /// The volume has too little space.
    #[error("{needed_bytes} bytes are needed in `{}`, {free_bytes} are free", dir.display())]
    NoSpace {
        /// Where.
        dir: PathBuf,
        /// What this and all waiting downloads still need.
        needed_bytes: u64,
        /// What is free, less the reserve.
        free_bytes: u64,
        /// What is left to the app and the system.
        reserve_bytes: u64,
    },
    /// A file could not be read, written or renamed.
    #[error(transparent)]
    File(#[from] FileError),
    /// The hub did not give it.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// All bytes came, and they are not the file.
    #[error("`{path}`: SHA256 is {got}, expected {expected}")]
    ChecksumMismatch {
        /// Path in the repo.
        path: String,
        /// As the hub says.
        expected: String,
        /// Of what came.
        got: String,
    },
    /// The same piece was read otherwise than it was written, again and again.
    #[error("the disk gives back other bytes than were written to `{}`", path.display())]
    DiskDamages {
        /// The file under way.
        path: PathBuf,
    },
    /// Somebody else has moved, replaced or taken over what is being written.
    #[error("`{}` is not what was written there any more", path.display())]
    Displaced {
        /// The file under way, or its journal.
        path: PathBuf,
    },
    /// Something that is not ours lies under the final name and cannot be moved to the trash.
    #[error("`{}` is in the way: {detail}", path.display())]
    InTheWay {
        /// What lies there.
        path: PathBuf,
        /// Why it stays.
        detail: String,
    },
    /// The hub now has another file under this name.
    #[error("`{path}` has changed on the hub")]
    ChangedUpstream {
        /// Path in the repo.
        path: String,
    },
}

impl DownloadError {
    /// Whether it is for want of space.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::NoSpace { .. } => true,
            Self::File(error) => is_disk_full(&error.source),
            _ => false,
        }
    }
}

impl Explain for DownloadError {
    fn explain(&self) -> Failure {
        match self {
            Self::BadRequest => bad_request("there is nothing to download", "没有可下载的文件"),
            Self::Unknown { .. } => bad_request("this download is gone", "该下载已不存在"),
            Self::BadPath { path, .. } => Failure::new(
                ErrorCode::BadRequest,
                Text::new(
                    format!("`{path}` is not a file name that can be stored"),
                    format!("无法以 `{path}` 为文件名保存"),
                ),
                Text::new("choose another version of the model", "请选择该模型的其他版本"),
            ),
            Self::InUse { path } => Failure::new(
                ErrorCode::Busy,
                Text::new(format!("`{path}` is already being downloaded"), format!("`{path}` 正在下载")),
                Text::new("cancel that download first", "请先取消那个下载"),
            ),
            Self::FolderInUse { dir } => Failure::new(
                ErrorCode::Busy,
                Text::new(
                    format!("another copy of Tandem downloads into `{}`", dir.display()),
                    format!("另一个 Tandem 正在向 `{}` 下载", dir.display()),
                ),
                Text::new(
                    "close that one, or choose another models folder in the settings",
                    "请关闭它，或在设置中选择其他模型文件夹",
                ),
            ),
            Self::NoSpace { dir, needed_bytes, free_bytes, reserve_bytes } => {
                let (needed, free, reserve) = (size(*needed_bytes), size(*free_bytes), size(*reserve_bytes));
                let dir = dir.display();
                Failure::new(
                    ErrorCode::DiskFull,
                    Text::new(
                        format!(
                            "not enough space in `{dir}`: {needed} are needed, {free} can be used beside {reserve} that are \
                             left to the system"
                        ),
                        format!("`{dir}` 空间不足：需要 {needed}，除为系统保留的 {reserve} 外可用 {free}"),
                    ),
                    Text::new(
                        "free some space, then let it go on; what has arrived is kept",
                        "请腾出空间后继续；已下载的内容会保留",
                    ),
                )
            }
            Self::File(error) => error.explain(),
            Self::Hub(error) => error.explain(),
            Self::ChecksumMismatch { path, .. } => Failure::new(
                ErrorCode::ChecksumMismatch,
                Text::new(
                    format!("`{path}` keeps arriving otherwise than the hub promises: its SHA256 is wrong"),
                    format!("`{path}` 多次下载的内容都与模型站承诺的不同：SHA256 不一致"),
                ),
                Text::new(
                    "what has arrived is kept: choose another source or network and try again, and it is compared with \
                     what comes from there",
                    "已下载的内容会保留：请更换来源或网络后重试，届时会与新的来源比对",
                ),
            ),
            Self::DiskDamages { path } => Failure::new(
                ErrorCode::ChecksumMismatch,
                Text::new(
                    format!("the disk gives back other data than was written to `{}`", path.display()),
                    format!("磁盘读出的内容与写入 `{}` 的内容不同", path.display()),
                ),
                Text::new(
                    "the disk or the memory of this computer may be failing: check them before you go on",
                    "本机的磁盘或内存可能有故障：请先检查再继续",
                ),
            ),
            Self::Displaced { path } => Failure::new(
                ErrorCode::Busy,
                Text::new(
                    format!("`{}` was moved, replaced or taken over while it was written", path.display()),
                    format!("写入期间 `{}` 被移动、替换或由其他程序接管", path.display()),
                ),
                Text::new(
                    "if another copy of Tandem uses this folder, let it finish or close it; then let the download go on",
                    "如果另一个 Tandem 正在使用此文件夹，请等待其完成或将其关闭，然后继续下载",
                ),
            ),
            Self::InTheWay { path, detail } => Failure::new(
                ErrorCode::Io,
                Text::new(
                    format!(
                        "`{}` is there already, is not the hub's file, and cannot be moved to the trash: {detail}",
                        path.display()
                    ),
                    format!("`{}` 已存在且不是模型站的文件，并且无法移到回收站{}", path.display(), said(detail)),
                ),
                Text::new(
                    "move or rename it, then let the download go on; what has arrived is kept",
                    "请将其移走或重命名，然后继续下载；已下载的内容会保留",
                ),
            ),
            Self::ChangedUpstream { path } => Failure::new(
                ErrorCode::ChangedUpstream,
                Text::new(
                    format!("`{path}` has changed on the hub since this download began"),
                    format!("下载开始后，模型站上的 `{path}` 已更改"),
                ),
                Text::new(
                    "start it again from the model's page to get the new file",
                    "请在模型页面重新开始下载，以获取新文件",
                ),
            ),
        }
    }
}
