//! What a person does on Tandem's pages, step by step. The only file here that knows what the pages hold.

use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use super::app::AppWindow;
use super::{id, until};

/// For a model to be loaded, and for a short answer to be written, on a busy machine.
const LONG: Duration = Duration::from_secs(120);

impl AppWindow {
    /// Searches the hub, and waits until this repo is among the results.
    pub async fn search(&self, query: &str, repo: &str) -> Result<()> {
        self.click(&id("nav-discover")).await?;
        self.type_into(&id("search-input"), query).await?;
        self.see(&result(repo)).await.map(drop)
    }

    /// Searches the hub and opens one of the results.
    pub async fn open_repo(&self, query: &str, repo: &str) -> Result<()> {
        self.search(query, repo).await?;
        self.open_result(repo).await
    }

    /// Opens one of the results of the last search.
    pub async fn open_result(&self, repo: &str) -> Result<()> {
        self.click(&result(repo)).await
    }

    /// Begins a chat with the first model of the library, and waits until it is loaded.
    pub async fn chat_with_first_model(&self) -> Result<()> {
        self.click(&id("nav-library")).await?;
        self.click(&id("chat-with-model")).await?;
        self.wait_for_phase("idle").await
    }

    /// Waits until the engine does this: `empty`, `loading`, `idle`, `prompt`, `generating`.
    pub async fn wait_for_phase(&self, phase: &str) -> Result<()> {
        self.see_within(&format!("{}[data-phase=\"{phase}\"]", id("engine-phase")), LONG).await.map(drop)
    }

    /// Sends a message and waits until the answer has its place on the page.
    pub async fn ask(&self, question: &str) -> Result<()> {
        self.type_into(&id("composer-input"), question).await?;
        self.click(&id("send-button")).await?;
        self.see(&id("message-assistant")).await.map(drop)
    }

    /// What has been written of the last answer so far.
    pub async fn answer(&self) -> Result<String> {
        Ok(self.text(&format!("{} .md", id("message-assistant"))).await?.trim_end().to_owned())
    }

    /// How the last answer ended; `None` while it is being written.
    pub async fn answer_end(&self) -> Result<Option<String>> {
        self.attribute(&id("message-assistant"), "data-end").await
    }

    /// Waits for the answer to end, tells `on_text` all of it whenever there is more, and yields how it ended.
    pub async fn follow_answer(&self, mut on_text: impl FnMut(&str)) -> Result<String> {
        let mut seen = String::new();
        until("the answer to end", LONG, async || {
            // In this order: text that came with the end is not missed.
            let end = self.answer_end().await?;
            let text = self.answer().await?;
            if text != seen {
                on_text(&text);
                seen = text;
            }
            Ok(end)
        })
        .await
    }

    /// Number that a gauge carries; `None` while it has none.
    pub async fn gauge(&self, name: &str) -> Result<Option<f64>> {
        let Some(value) = self.attribute(&id(name), "data-value").await? else { bail!("there is no gauge `{name}`") };
        if value.is_empty() {
            return Ok(None);
        }
        value.parse().map(Some).with_context(|| format!("`{name}` shows `{value}`"))
    }

    /// Changes one of the settings that are a choice of few.
    pub async fn choose(&self, setting: &str, value: &str) -> Result<()> {
        self.click(&id("nav-settings")).await?;
        self.click(&format!("{} [data-value=\"{value}\"]", id(setting))).await?;
        self.see(&format!("{}[data-value=\"{value}\"]", id(setting))).await.map(drop)
    }
}

fn result(repo: &str) -> String {
    format!("{}[data-repo=\"{repo}\"]", id("search-result"))
}
