//! What a person sets.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::{HubKind, ProxySettings};

/// What a person can choose; nothing here must be set.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Settings {
    /// Language of the interface.
    pub language: Language,
    /// Colour scheme.
    pub theme: Theme,
    /// Base URL of the hub or of a mirror; empty: the default hub.
    pub hub_url: String,
    /// How that hub answers.
    pub hub_kind: HubKind,
    /// How to reach the network.
    pub proxy: ProxySettings,
    /// Base URLs of mirrors that may have the access token.
    pub token_mirrors: Vec<String>,
    /// Folder for downloaded models; empty: the default folder.
    pub models_dir: String,
    /// Rate that all downloads together keep to; 0: as fast as it goes.
    #[ts(type = "number")]
    pub max_download_bytes_per_s: u64,
    /// Connections per file, at most.
    pub connections_per_file: u32,
    /// Downloads that run at the same time.
    pub downloads_at_once: u32,
    /// Sampling; what is absent comes from the model file, then from defaults.
    pub sampling: Sampling,
    /// System prompt for new chats; empty: the model's own.
    pub system_prompt: String,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            language: Language::System,
            theme: Theme::System,
            hub_url: String::new(),
            hub_kind: HubKind::default(),
            proxy: ProxySettings::default(),
            token_mirrors: Vec::new(),
            models_dir: String::new(),
            max_download_bytes_per_s: 0,
            connections_per_file: 8,
            downloads_at_once: 1,
            sampling: Sampling::default(),
            system_prompt: String::new(),
        }
    }
}

/// Language of the interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Language {
    /// As the system says.
    System,
    /// English.
    En,
    /// 简体中文.
    Zh,
}

/// Colour scheme.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum Theme {
    /// As the system says.
    System,
    /// Light.
    Light,
    /// Dark.
    Dark,
}

/// Sampling parameters; `None` means the model file's recommendation, or the default.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct Sampling {
    /// 0 is greedy.
    pub temperature: Option<f32>,
    /// Keep the k likeliest; 0 is off.
    pub top_k: Option<u32>,
    /// Keep the smallest set with this mass.
    pub top_p: Option<f32>,
    /// Keep what has at least this share of the likeliest.
    pub min_p: Option<f32>,
    /// Divide or multiply logits of repeated tokens; 1 is off.
    pub repeat_penalty: Option<f32>,
    /// Taken once from a token that occurred.
    pub presence_penalty: Option<f32>,
    /// Taken per occurrence.
    pub frequency_penalty: Option<f32>,
    /// Seed; absent: random.
    pub seed: Option<u32>,
    /// Most tokens to generate; absent: to the end of the context.
    pub max_tokens: Option<u32>,
}
