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
        /// What it holds on graphics cards.
        #[serde(default)]
        cards: Vec<CardMemory>,
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
        /// What it holds on graphics cards.
        #[serde(default)]
        cards: Vec<CardMemory>,
    },
    /// Failed or cancelled.
    Failed {
        /// Why.
        failure: Failure,
    },
}

/// What a loaded model holds on a graphics card.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct CardMemory {
    /// Index of the card.
    pub index: u32,
    /// Its name.
    pub name: String,
    /// Part by part.
    pub parts: Vec<CardPart>,
    /// What the driver says is free since.
    #[ts(type = "number")]
    pub free_bytes: u64,
}

/// One part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct CardPart {
    /// What it is.
    pub what: Text,
    /// What the plan said.
    #[ts(type = "number")]
    pub planned_bytes: u64,
    /// What was allocated.
    #[ts(type = "number")]
    pub allocated_bytes: u64,
}
