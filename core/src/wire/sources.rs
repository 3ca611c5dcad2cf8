//! Where models come from, how the network is reached, and as whom.

use serde::{Deserialize, Serialize};
use ts_rs::TS;

use super::Failure;

/// How a hub answers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum HubKind {
    /// As Hugging Face does: itself, or a mirror of it.
    #[default]
    HuggingFace,
    /// As ModelScope does.
    ModelScope,
}

/// A place that models can be fetched from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct HubSource {
    /// What people call it.
    pub name: String,
    /// Base URL.
    pub url: String,
    /// How it answers.
    pub kind: HubKind,
    /// Whether it is the hub that the others mirror: its word on a hash counts.
    pub is_origin: bool,
}

/// A source, and whether it can be used from here.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
pub struct SourceProbe {
    /// The source.
    pub source: HubSource,
    /// How it did.
    pub reach: Reach,
}

/// Whether a source lists models and gives their files.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Reach {
    /// It does both.
    Works {
        /// From a search to its answer.
        #[ts(type = "number")]
        answer_ms: u64,
        /// Rate of a short piece of a file; `None` where it offers no file small enough.
        bytes_per_s: Option<f64>,
    },
    /// It does not.
    Fails {
        /// Why.
        failure: Failure,
    },
}

/// Whose word a file's SHA256 is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum HashWord {
    /// Nobody's that is on record.
    #[default]
    Unknown,
    /// That of the hub which the others mirror.
    Hub {
        /// Its host.
        host: String,
    },
    /// That of mirrors: one alone, or several that agree.
    Mirrors {
        /// Their hosts, the one that was asked first ahead.
        hosts: Vec<String>,
    },
}

/// How to reach the network.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(default)]
pub struct ProxySettings {
    /// Which proxy.
    pub kind: ProxyKind,
    /// `host:port`, with `user:password@` ahead if need be; used by `Http` and `Socks5`.
    pub address: String,
}

/// Which proxy requests go through.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum ProxyKind {
    /// What the system says.
    #[default]
    System,
    /// None, whatever the system says.
    None,
    /// An HTTP proxy.
    Http,
    /// A SOCKS5 proxy, which also looks up names.
    Socks5,
}

/// What is known of the access token; never the token itself.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct TokenState {
    /// Where the token in use comes from, if there is one.
    pub place: Option<TokenPlace>,
    /// Its first and last characters, to tell it from another.
    pub hint: String,
    /// Account it belongs to, once the hub has said so.
    pub account: Option<String>,
    /// What the hub says against it, once it has said so.
    pub failure: Option<Failure>,
}

/// Where a token is kept.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum TokenPlace {
    /// In the system's key store.
    KeyStore,
    /// In a file that only this user can read.
    PrivateFile {
        /// Where.
        path: String,
    },
    /// Nowhere: until the app ends.
    Session,
    /// In an environment variable; not ours to remove.
    Environment {
        /// Its name.
        name: String,
    },
    /// In the file that Hugging Face's own tools keep; not ours to remove.
    HubFile {
        /// Where.
        path: String,
    },
}

/// Asks for an access token to be kept and used.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
pub struct TokenRequest {
    /// The token.
    pub token: String,
    /// Where to keep it.
    pub keep: TokenKeep,
}

/// Where a person wants a token kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, TS)]
#[serde(rename_all = "snake_case")]
pub enum TokenKeep {
    /// In the system's key store.
    KeyStore,
    /// In a file that only this user can read.
    PrivateFile,
    /// Nowhere: until the app ends.
    Session,
}
