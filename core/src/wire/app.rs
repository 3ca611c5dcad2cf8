//! The app as a whole.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{CalibrationState, Download, Failure, Gauges, Hardware, HubSource, LibraryModel, RuntimeState, Settings};

/// What the window needs at start.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct AppInfo {
    /// Version of the app.
    pub version: String,
    /// Settings.
    pub settings: Settings,
    /// Hub in use.
    pub hub_url: String,
    /// The same, and how it answers.
    pub source: HubSource,
    /// All sources known by name.
    pub sources: Vec<HubSource>,
    /// Where data lies.
    pub data_dir: String,
    /// Where models lie.
    pub models_dir: String,
    /// The machine.
    pub hardware: Hardware,
    /// What is loaded.
    pub runtime: RuntimeState,
    /// Problems found at start that do not keep the app from running (a full disk, a damaged database set aside).
    pub notices: Vec<Failure>,
}

/// Files and folders dragged over the window.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Drag {
    /// They are over it.
    Over,
    /// They have gone again.
    Left,
    /// They were dropped.
    Dropped {
        /// Their full paths.
        paths: Vec<String>,
    },
}

/// What the app tells the window without being asked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AppEvent {
    /// A download changed (at most four times a second each).
    Download {
        /// The download.
        download: Download,
    },
    /// A download was cancelled and is gone.
    DownloadGone {
        /// Its identifier.
        id: String,
    },
    /// The library changed.
    Library {
        /// All of it.
        models: Vec<LibraryModel>,
    },
    /// Something that a person should know, and that keeps nobody from anything.
    Notice {
        /// What.
        notice: Failure,
    },
    /// Something is dragged over the window, or dropped on it.
    Drag {
        /// What happens.
        drag: Drag,
    },
    /// What is loaded changed.
    Runtime {
        /// Now.
        state: RuntimeState,
    },
    /// The benchmark of this machine's speed began, went on or ended.
    Calibration {
        /// Now.
        state: CalibrationState,
    },
    /// Gauges.
    Gauges {
        /// Now.
        gauges: Gauges,
    },
}
