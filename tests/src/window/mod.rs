//! The real window without a display: an X server of its own, WebKit's WebDriver, and what a person does with them.
//!
//! Waiting means asking again until a deadline that names what was waited for.

mod app;
mod drag;
mod pages;
mod process;
mod screen;

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

pub use app::{AppWindow, Start};
pub use drag::Drag;
pub use process::{Process, free_port};
pub use screen::{Picture, Screen};

/// Asks again until there is an answer.
///
/// Errors   the condition's own, or the deadline with `what` in it
pub async fn until<T>(what: &str, within: Duration, mut ask: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask().await? {
            return Ok(answer);
        }
        if begun.elapsed() > within {
            bail!("waited {} s in vain for {what}", within.as_secs());
        }
        tokio::time::sleep(ASK_AGAIN).await;
    }
}

/// Selector of what carries this `data-testid`.
pub fn id(name: &str) -> String {
    format!("[data-testid=\"{name}\"]")
}

/// Short beside anything a person notices, long beside one question to the driver.
const ASK_AGAIN: Duration = Duration::from_millis(40);
