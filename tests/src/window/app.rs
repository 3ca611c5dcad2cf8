//! The app in its window, driven through the page as a person would.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use fantoccini::elements::Element;
use fantoccini::key::Key;
use fantoccini::{Client, ClientBuilder, Locator};
use hyper_util::client::legacy::connect::HttpConnector;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};
use tokio::net::TcpStream;

use super::process::{Process, free_port};
use super::screen::Screen;
use super::until;

/// How the app is started.
#[derive(Clone, Debug)]
pub struct Start {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// A folder of this start alone, in place of the person's own: for the web view's caches and the exit code.
    pub home: PathBuf,
}

/// The app's window. Dropped, the driver ends; the app ends with its screen at the latest.
#[derive(Debug)]
pub struct AppWindow {
    client: Client,
    home: PathBuf,
    _driver: Process,
}

impl AppWindow {
    /// Starts the app on a screen and waits for its page.
    pub async fn open(screen: &Screen, start: &Start) -> Result<Self> {
        fs::create_dir_all(&start.home)?;
        let [pid, exit] = [start.home.join(PID), start.home.join(EXIT)];
        let _ = (fs::remove_file(&pid), fs::remove_file(&exit));

        let port = free_port()?;
        let mut command = Command::new("WebKitWebDriver");
        command.arg(format!("--port={port}")).stdin(Stdio::null());
        command.env("DISPLAY", screen.display()).env_remove("WAYLAND_DISPLAY");
        for variable in ["HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME", "XDG_CACHE_HOME"] {
            command.env(variable, &start.home);
        }
        // Without it the web view does not let itself be driven.
        command.env("TAURI_WEBVIEW_AUTOMATION", "true");
        let driver = Process::start(&mut command)?;

        let mut args = vec![json!("-c"), json!(KEEP_EXIT_CODE), json!("tandem"), json!(pid), json!(exit)];
        args.push(json!(start.program));
        for arg in &start.args {
            args.push(json!(arg.to_str().context("arguments are UTF-8")?));
        }
        let options = json!({ "webkitgtk:browserOptions": { "binary": "/bin/sh", "args": args } });
        let Value::Object(capabilities) = options else { bail!("capabilities are an object") };
        until("WebKit's WebDriver", LONG, async || Ok(TcpStream::connect(("127.0.0.1", port)).await.ok())).await?;
        let mut builder = ClientBuilder::new(HttpConnector::new());
        builder.capabilities(capabilities);
        let url = format!("http://127.0.0.1:{port}");
        // The driver waits for an app that has ended as long as for one that is slow.
        let client = tokio::select! {
            client = builder.connect(&url) => client.context("the app did not open a window")?,
            code = ended(&exit) => bail!("the app ended with code {} before its window opened", code?),
        };
        Ok(Self { client, home: start.home.clone(), _driver: driver })
    }

    /// Waits until something that matches is on the page.
    pub async fn see(&self, selector: &str) -> Result<Element> {
        self.see_within(selector, LONG).await
    }

    /// As `see`, with a deadline.
    pub async fn see_within(&self, selector: &str, within: Duration) -> Result<Element> {
        let found = until(&format!("`{selector}`"), within, async || Ok(self.find(selector).await?)).await;
        match found {
            Ok(element) => Ok(element),
            Err(error) => Err(error.context(format!("the page says: {}", self.page_text().await))),
        }
    }

    /// What matches now, if anything does.
    pub async fn find(&self, selector: &str) -> Result<Option<Element>> {
        Ok(self.client.find_all(Locator::Css(selector)).await?.into_iter().next())
    }

    /// Waits until something that matches can be clicked, and clicks it.
    pub async fn click(&self, selector: &str) -> Result<()> {
        let what = format!("`{selector}` to be clicked");
        let clicked = until(&what, LONG, async || {
            let Some(element) = self.find(selector).await? else { return Ok(None) };
            if !element.is_enabled().await.unwrap_or(false) {
                return Ok(None);
            }
            // Stale or covered for a moment: pages move.
            Ok(element.click().await.ok())
        });
        match clicked.await {
            Ok(()) => Ok(()),
            Err(error) => Err(error.context(format!("the page says: {}", self.page_text().await))),
        }
    }

    /// Types into a field, in place of what it held.
    pub async fn type_into(&self, selector: &str, text: &str) -> Result<()> {
        let field = self.see(selector).await?;
        field.click().await?;
        // Key strokes, because WebDriver's own clearing fires no `input` event.
        let (control, released, backspace) = (Key::Control, Key::Null, Key::Backspace);
        let clear = format!("{}a{}{}", char::from(control), char::from(released), char::from(backspace));
        field.send_keys(&clear).await?;
        Ok(field.send_keys(text).await?)
    }

    /// Presses one key where the focus is.
    pub async fn press(&self, key: Key) -> Result<()> {
        Ok(self.client.active_element().await?.send_keys(&char::from(key).to_string()).await?)
    }

    /// Text of the last thing that matches; empty where nothing does.
    pub async fn text(&self, selector: &str) -> Result<String> {
        let script = "const all = document.querySelectorAll(arguments[0]); return all.length ? all[all.length - 1].innerText : '';";
        let text = self.js(script, vec![json!(selector)]).await?;
        Ok(text.as_str().unwrap_or_default().to_owned())
    }

    /// Attribute of the last thing that matches; `None` where there is none.
    pub async fn attribute(&self, selector: &str, name: &str) -> Result<Option<String>> {
        let script = "const all = document.querySelectorAll(arguments[0]); return all.length ? all[all.length - 1].getAttribute(arguments[1]) : null;";
        let value = self.js(script, vec![json!(selector), json!(name)]).await?;
        Ok(value.as_str().map(str::to_owned))
    }

    /// Runs a script in the page and yields what it returns.
    pub async fn js(&self, script: &str, args: Vec<Value>) -> Result<Value> {
        Ok(self.client.execute(script, args).await?)
    }

    /// Waits until what the page holds now is on the screen.
    pub async fn painted(&self) -> Result<()> {
        let script =
            "const done = arguments[0]; requestAnimationFrame(() => requestAnimationFrame(() => setTimeout(done)));";
        self.client.execute_async(script, vec![]).await?;
        Ok(())
    }

    /// Process id of the app.
    pub async fn pid(&self) -> Result<Pid> {
        let path = self.home.join(PID);
        until("the app's process id", LONG, async || {
            let number = fs::read_to_string(&path).unwrap_or_default().trim().parse().ok();
            Ok(number.and_then(Pid::from_raw))
        })
        .await
    }

    /// Asks the app to end by a signal.
    pub async fn signal(&self, signal: Signal) -> Result<()> {
        Ok(kill_process(self.pid().await?, signal)?)
    }

    /// Waits for the app to end and yields its exit code.
    pub async fn exit_code(&self) -> Result<i32> {
        ended(&self.home.join(EXIT)).await
    }

    /// What the page says, shortened, for messages.
    async fn page_text(&self) -> String {
        match self.text("body").await {
            Ok(text) => text.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(600).collect(),
            Err(error) => format!("nothing ({error:#})"),
        }
    }
}

/// Waits for the exit code to be written.
async fn ended(file: &Path) -> Result<i32> {
    until("the app to end", LONG, async || Ok(fs::read_to_string(file).unwrap_or_default().trim().parse().ok())).await
}

/// For what takes moments on an idle machine and much longer on a busy one.
const LONG: Duration = Duration::from_secs(60);
/// Files in `Start::home`.
const PID: &str = "app.pid";
const EXIT: &str = "app.exit";
/// The driver starts the app and does not tell how it ended; a shell in between does.
const KEEP_EXIT_CODE: &str =
    r#"pid=$1 exit=$2; shift 2; "$@" & echo $! > "$pid"; wait $!; echo $? 2> /dev/null > "$exit""#;
