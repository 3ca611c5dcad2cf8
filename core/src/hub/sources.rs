//! The sources that are known by name: Hugging Face, a public mirror of it, and ModelScope.

use reqwest::Url;

use super::DEFAULT_HUB_URL;
use super::http::{is_loopback, parse_base};
use crate::wire::{HubKind, HubSource};

/// All known sources: the hub itself first, then in the order in which they are offered.
pub fn known_sources() -> Vec<HubSource> {
    let source = |&(name, url, kind): &(&str, &str, HubKind)| HubSource {
        name: name.to_owned(),
        url: url.to_owned(),
        kind,
        is_origin: url == DEFAULT_HUB_URL,
    };
    KNOWN.iter().map(source).collect()
}

/// Whether an address leads to this machine: whoever uses such a hub means it alone.
pub fn is_this_machine(base_url: &str) -> bool {
    parse_base(base_url).is_ok_and(|url: Url| is_loopback(&url))
}

const KNOWN: &[(&str, &str, HubKind)] = &[
    ("Hugging Face", DEFAULT_HUB_URL, HubKind::HuggingFace),
    ("hf-mirror", "https://hf-mirror.com", HubKind::HuggingFace),
    ("ModelScope", "https://modelscope.cn", HubKind::ModelScope),
];
