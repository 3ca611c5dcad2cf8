//! Downloads and where they stand.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{Failure, RepoFile};

/// Asks for a version to be downloaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct DownloadRequest {
    /// One file, or all shards.
    pub files: Vec<RepoFile>,
}

/// Moves a download within the queue.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct MoveDownloadRequest {
    /// Which.
    pub id: String,
    /// Where to.
    pub to: Move,
}

/// A step in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Move {
    /// Before the one before it.
    Up,
    /// After the one after it.
    Down,
}

/// A download and where it stands.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct Download {
    /// Identifies it for pause, resume and cancel.
    pub id: String,
    /// What is being fetched.
    pub files: Vec<RepoFile>,
    /// Quantisation label.
    pub quant: String,
    /// Of all files.
    #[ts(type = "number")]
    pub size_bytes: u64,
    /// On disk so far.
    #[ts(type = "number")]
    pub arrived_bytes: u64,
    /// Hashed so far.
    #[ts(type = "number")]
    pub verified_bytes: u64,
    /// Pieces of 16 MiB that were found damaged and fetched again.
    pub n_repaired: u32,
    /// Where it stands.
    pub state: DownloadState,
    /// Over the last seconds; 0 when not running.
    pub bytes_per_s: f64,
    /// At this rate.
    pub seconds_left: Option<f64>,
    /// Set while `state` is `Failed` or `Paused` by a fault.
    pub failure: Option<Failure>,
}

/// Where a download stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum DownloadState {
    /// Waits for its turn.
    Queued,
    /// Bytes arrive.
    Running,
    /// Connection lost; tries again by itself.
    Retrying,
    /// Stopped; what arrived is kept.
    Paused,
    /// All bytes are here and are being hashed.
    Verifying,
    /// All bytes came and are not the file: damage is looked for, and only that is fetched again.
    Repairing,
    /// In the library.
    Done,
    /// Stopped for a reason a person must look at; what is good is kept.
    Failed,
}
