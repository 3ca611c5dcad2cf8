//! The loaded model.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{Failure, Plan, Text, Wishes};

/// What is loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RuntimeState {
    /// Nothing.
    Empty,
    /// A model is being loaded.
    Loading {
        /// Library model.
        model_id: String,
        /// 0 to 1.
        progress: f64,
    },
    /// A model is ready.
    Ready {
        /// Library model.
        model_id: String,
        /// How it runs.
        plan: Box<Plan>,
        /// Milliseconds the load took.
        load_ms: f64,
        /// What was given up because memory was short, in a sentence.
        given_up: Option<Text>,
        /// What a plan made now would do better, in a sentence: free memory has changed since the load.
        offer: Option<Text>,
    },
    /// The last load failed.
    Failed {
        /// Library model.
        model_id: String,
        /// Why.
        failure: Failure,
    },
}

/// Asks for a model to be loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct LoadRequest {
    /// Library model.
    pub model_id: String,
    /// Constraints.
    pub wishes: Wishes,
}

/// What a load reports.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum LoadEvent {
    /// On its way, 0 to 1.
    Progress {
        /// 0 to 1.
        progress: f64,
    },
    /// Ready.
    Ready {
        /// How it runs.
        plan: Box<Plan>,
        /// Milliseconds the load took.
        load_ms: f64,
        /// What was given up because memory was short, in a sentence.
        given_up: Option<Text>,
    },
    /// Failed or cancelled.
    Failed {
        /// Why.
        failure: Failure,
    },
}
