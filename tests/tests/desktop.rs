//! The whole path in the real window: find, download, verify, load, ask, stop, restart; and what goes wrong, said there.
//!
//! `cargo xtask test` builds the app and installs what drives it. Pictures of every stage land in `artefacts/`.
#![cfg(target_os = "linux")]

use std::ffi::OsString;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal};
use serde_json::Value;
use tandem_tests::hub::{Repo, TestHub, TestHubOptions, demo_repos, tiny_gguf};
use tandem_tests::models::{gemma, smollm2};
use tandem_tests::window::{AppWindow, Screen, Start, free_port, id, until};
use tokio::sync::{Mutex, MutexGuard};

const SMOLLM2: &str = "HuggingFaceTB/SmolLM2-135M-Instruct-GGUF";
const GEMMA: &str = "ggml-org/gemma-3-270m-GGUF";
const DAMAGED: &str = "tandem-demo/Tiny-Damaged-GGUF";
/// Of an architecture that nobody has.
const UNKNOWN: &str = "tandem-demo/Tiny-Unknown-GGUF";
/// Slow enough that a download of 98 MB is seen under way, several times.
const BYTES_PER_S: u64 = 24_000_000;
const LONG: Duration = Duration::from_secs(120);
/// Makes a small model write until it is stopped.
const ENDLESS: &str = "Write a very long story about a lighthouse keeper, with many chapters.";

/// Two cores carry one window at a time.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

#[tokio::test]
async fn from_search_to_a_chat_that_survives_a_restart() -> Result<()> {
    let stage = Stage::set().await?;
    let hub = hub(Some(BYTES_PER_S))?;
    let start = stage.start(hub.url());

    let window = stage.open(&start).await?;
    window.see(&id("welcome-model")).await?;
    stage.save("01-first-start", &window).await?;

    window.open_repo("smollm2", SMOLLM2).await?;
    window.see(&format!("{}[data-quant=\"Q4_1\"]", id("version-row"))).await?;
    window.see(&id("recommended-download")).await?;
    stage.save("02-model-page", &window).await?;

    window.js(WATCH_DOWNLOAD, vec![]).await?;
    window.click(&id("recommended-download")).await?;
    window.see(&format!("{}[data-state=\"running\"]", id("download-row"))).await?;
    until("the download to be under way", LONG, async || {
        Ok(progress(&window).await?.filter(|percent| *percent > 20.0))
    })
    .await?;
    stage.save("03-download", &window).await?;
    // Downloaded in order to chat, so the chat opens by itself once the model is there and verified.
    window.wait_for_phase("idle").await?;
    let watched = window.js("return window.__watched", vec![]).await?;
    assert_download_was_seen(&watched);
    stage.save("04-loaded", &window).await?;
    let row = library_row(&window).await?;
    assert!(row.contains("Verified"), "the library says: {row}");

    window.click(&id("nav-new-chat")).await?;
    window.ask(ENDLESS).await?;
    let lengths = watch_text_grow(&window).await?;
    assert!(lengths.len() >= 5, "text came in pieces of lengths {lengths:?}");
    window.wait_for_phase("generating").await?;
    watch_rate_move(&window).await?;
    let ram = window.gauge("gauge-ram-app").await?;
    assert!(ram.is_some_and(|bytes| bytes > 98e6), "the model alone is 98 MB, the gauge shows {ram:?}");
    stage.save("05-answering", &window).await?;

    window.click(&id("stop-button")).await?;
    until("the answer to be stopped", LONG, async || window.answer_end().await).await?;
    assert_eq!(window.answer_end().await?.as_deref(), Some("stopped"));
    let kept = window.answer().await?;
    assert!(!kept.is_empty());
    window.wait_for_phase("idle").await?;
    stage.save("06-stopped", &window).await?;
    stage.close(&window).await?;
    drop(hub);

    // The same folder again, with no hub: what was said is there, and the model answers.
    let window = stage.open(&start).await?;
    window.click(&id("chat-item")).await?;
    window.see(&format!("{}[data-end=\"stopped\"]", id("message-assistant"))).await?;
    assert_eq!(window.answer().await?, kept);
    stage.save("07-after-restart", &window).await?;

    window.ask("Please go on, and do not stop.").await?;
    watch_text_grow(&window).await?;
    // In mid-answer: ends the engine, keeps the text, exits cleanly.
    stage.close(&window).await?;

    let window = stage.open(&start).await?;
    window.click(&id("chat-item")).await?;
    until("both answers", LONG, async || {
        let n_answers = window.js("return document.querySelectorAll('[data-testid=message-assistant]').length", vec![]);
        Ok((n_answers.await?.as_u64() == Some(2)).then_some(()))
    })
    .await?;
    assert!(!window.answer().await?.is_empty());
    assert_eq!(window.answer_end().await?.as_deref(), Some("stopped"));
    // Asked to end by the system, it ends as if its window were closed.
    window.signal(Signal::TERM).await?;
    assert_eq!(window.exit_code().await?, 0);
    Ok(())
}

#[tokio::test]
async fn what_goes_wrong_is_said_in_both_languages_and_themes() -> Result<()> {
    let stage = Stage::set().await?;
    let hub = hub(None)?;
    let window = stage.open(&stage.start(hub.url())).await?;

    window.choose("settings-language", "en").await?;
    window.choose("settings-theme", "light").await?;
    stage.save("10-settings-en-light", &window).await?;
    // Search lists repos with GGUF files only; this one loses its file while it stands in the list.
    window.search("damaged", DAMAGED).await?;
    hub.publish(Repo::new(DAMAGED).file("README.md", "moved"));
    window.open_result(DAMAGED).await?;
    window.see(&error_note("no_gguf_in_repo")).await?;
    stage.save("11-no-gguf-en-light", &window).await?;
    window.open_repo("unknown", UNKNOWN).await?;
    let refusal = window.see(&error_note("unknown_architecture")).await?.text().await?;
    assert!(refusal.contains("pangolin"), "refused by name: {refusal}");
    stage.save("12-refused-en-light", &window).await?;

    window.choose("settings-language", "zh").await?;
    window.choose("settings-theme", "dark").await?;
    stage.save("13-settings-zh-dark", &window).await?;
    window.open_repo("unknown", UNKNOWN).await?;
    let refusal = window.see(&error_note("unknown_architecture")).await?.text().await?;
    assert!(refusal.contains("pangolin") && !refusal.is_ascii(), "refused by name, in Chinese: {refusal}");
    stage.save("14-refused-zh-dark", &window).await?;
    stage.close(&window).await?;

    let nobody = format!("http://127.0.0.1:{}", free_port()?);
    let window = stage.open(&stage.start(&nobody)).await?;
    window.click(&id("nav-discover")).await?;
    window.see(&format!(".results {}", error_note("no_network"))).await?;
    stage.save("15-hub-down-zh-dark", &window).await?;
    stage.close(&window).await
}

#[tokio::test]
async fn files_and_folders_dropped_on_the_window_are_used_where_they_lie() -> Result<()> {
    let stage = Stage::set().await?;
    let window = stage.open(&stage.start("http://127.0.0.1:9")).await?;
    let (pid, lying) = (window.pid().await?, stage.folder.path().join("拖 放 🙂"));
    std::fs::create_dir_all(lying.join("folder"))?;
    let [file, inside] = [lying.join("dropped #1.gguf"), lying.join("folder/inside.gguf")];
    std::fs::write(&file, tiny_gguf("llama"))?;
    std::fs::write(&inside, tiny_gguf("qwen3"))?;

    let held = stage.screen.drag(pid, &[&file]).await?;
    window.see(".drop").await?;
    stage.save("30-held-over", &window).await?;
    held.leave()?;
    until("the invitation to go", LONG, async || Ok(window.find(".drop").await?.is_none().then_some(()))).await?;

    stage.screen.drag(pid, &[&file, &lying.join("folder")]).await?.drop_here().await?;
    let rows = "return document.querySelectorAll('[data-testid=library-row]').length";
    until("both models", LONG, async || Ok((window.js(rows, vec![]).await?.as_u64() == Some(2)).then_some(()))).await?;
    stage.save("31-dropped", &window).await?;
    assert!(file.is_file() && inside.is_file(), "in place");
    let models = std::fs::read_dir(stage.folder.path().join("data/models"))?.count();
    assert_eq!(models, 0, "nothing is copied");
    stage.close(&window).await
}

#[tokio::test]
async fn a_second_start_says_so_and_ends() -> Result<()> {
    let stage = Stage::set().await?;
    let start = stage.start("http://127.0.0.1:9");
    let window = stage.open(&start).await?;
    window.see(&id("nav-library")).await?;

    let mut command = Command::new(&start.program);
    command.args(&start.args).env("DISPLAY", stage.screen.display()).env("HOME", stage.folder.path());
    command.env_remove("WAYLAND_DISPLAY").env_remove("DBUS_SESSION_BUS_ADDRESS");
    let mut second = command.stderr(Stdio::piped()).spawn()?;
    let pid = Pid::from_child(&second);
    until("the second start's message", LONG, async || Ok(stage.screen.shows_window_of(pid)?.then_some(()))).await?;
    stage.save("20-second-start", &window).await?;
    stage.screen.ask_to_close(pid)?;
    let ended: ExitStatus = until("the second start to end", LONG, async || Ok(second.try_wait()?)).await?;
    let mut said = String::new();
    second.stderr.take().context("a pipe")?.read_to_string(&mut said)?;
    assert_eq!(ended.code(), Some(3), "{said}");
    assert!(said.contains("Tandem") && !said.is_ascii(), "said in both languages: {said}");

    // The first is none the worse.
    window.click(&id("nav-library")).await?;
    stage.close(&window).await
}

/// What `cargo xtask run --hub` starts where there is no display, the first time.
#[tokio::test]
async fn the_first_question_fetches_a_model_where_there_is_none() -> Result<()> {
    let stage = Stage::set().await?;
    let hub = hub(None)?;
    let screenshot = stage.folder.path().join("first.png");
    let mut command = Command::new(env!("CARGO_BIN_EXE_tandem-first-chat"));
    command.args(["--question", "What is the capital of France?", "--repo", SMOLLM2, "--screenshot"]);
    command.arg(&screenshot).arg("--").arg(app()?).args(stage.start(hub.url()).args);
    let output = tokio::task::spawn_blocking(move || command.output()).await??;
    let said = String::from_utf8(output.stdout)?;
    assert!(output.status.success(), "{said}\n{}", String::from_utf8_lossy(&output.stderr));
    assert!(said.contains("downloading from") && said.contains("tok/s") && screenshot.is_file(), "{said}");
    Ok(())
}

#[test]
fn without_a_display_it_says_so() -> Result<()> {
    let folder = tempfile::tempdir()?;
    let mut command = Command::new(app()?);
    command.arg("--data-dir").arg(folder.path()).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
    let output = command.env("XDG_RUNTIME_DIR", folder.path()).output()?;
    let said = String::from_utf8(output.stderr)?;
    assert_eq!(output.status.code(), Some(4), "{said}");
    assert!(said.contains("needs a display") && said.contains("需要图形界面"), "{said}");
    assert!(!said.contains("panicked"), "{said}");
    Ok(())
}

/// A screen, a folder for the app's data, and the right to be the only window.
struct Stage {
    screen: Screen,
    folder: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Stage {
    async fn set() -> Result<Self> {
        let alone = ONE_AT_A_TIME.lock().await;
        Ok(Self { screen: Screen::open(1180, 760)?, folder: tempfile::tempdir()?, _alone: alone })
    }

    fn start(&self, hub_url: &str) -> Start {
        let data_dir = self.folder.path().join("data");
        let args = [OsString::from("--data-dir"), data_dir.into(), "--hub-url".into(), hub_url.into()];
        // What is missing, `open` says.
        Start { program: app().unwrap_or_default(), args: args.to_vec(), home: self.folder.path().join("home") }
    }

    async fn open(&self, start: &Start) -> Result<AppWindow> {
        app()?;
        let window = AppWindow::open(&self.screen, start).await?;
        window.see(&id("nav-settings")).await?;
        Ok(window)
    }

    /// Closes the window as a person does; the app must end by itself and without a fault.
    async fn close(&self, window: &AppWindow) -> Result<()> {
        self.screen.ask_to_close(window.pid().await?)?;
        assert_eq!(window.exit_code().await?, 0);
        Ok(())
    }

    /// Keeps a picture of the screen; there must be something on it.
    async fn save(&self, name: &str, window: &AppWindow) -> Result<()> {
        window.painted().await?;
        let artefacts = Path::new(env!("CARGO_MANIFEST_DIR")).join("../artefacts");
        let picture = self.screen.save(&artefacts.join(format!("{name}.png")))?;
        // An empty window has one or two colours; text alone brings dozens of shades.
        assert!(picture.n_colours > 30, "`{name}` shows a blank window: {} colours", picture.n_colours);
        Ok(())
    }
}

/// Records every state and percentage that the download's row goes through.
const WATCH_DOWNLOAD: &str = r#"
    window.__watched = { states: [], percents: [] };
    const note = () => {
        const row = document.querySelector('[data-testid=download-row]');
        if (!row) return;
        const { states, percents } = window.__watched;
        const percent = row.querySelector('[role=progressbar]')?.getAttribute('aria-valuenow');
        if (states.at(-1) !== row.dataset.state) states.push(row.dataset.state);
        if (percent && percents.at(-1) !== Number(percent)) percents.push(Number(percent));
    };
    new MutationObserver(note).observe(document.body, { subtree: true, childList: true, attributes: true });
"#;

fn assert_download_was_seen(watched: &Value) {
    let words = watched.to_string();
    let states: Vec<&str> = watched["states"].as_array().expect(&words).iter().filter_map(Value::as_str).collect();
    for state in ["running", "verifying"] {
        assert!(states.contains(&state), "`{state}` was shown: {words}");
    }
    let n_steps = watched["percents"].as_array().expect(&words).len();
    assert!(n_steps >= 5, "progress was shown in {n_steps} steps: {words}");
}

async fn progress(window: &AppWindow) -> Result<Option<f64>> {
    let bar = format!("{} [role=progressbar]", id("download-row"));
    Ok(window.attribute(&bar, "aria-valuenow").await?.and_then(|percent| percent.parse().ok()))
}

async fn library_row(window: &AppWindow) -> Result<String> {
    window.click(&id("nav-library")).await?;
    window.see(&id("library-row")).await?.text().await.context("the row has text")
}

/// Waits until the answer has grown a few times, and yields its lengths.
async fn watch_text_grow(window: &AppWindow) -> Result<Vec<usize>> {
    let mut lengths: Vec<usize> = Vec::new();
    until("the answer to grow", LONG, async || {
        let length = window.answer().await?.chars().count();
        if length > lengths.last().copied().unwrap_or(0) {
            lengths.push(length);
        }
        Ok((lengths.len() >= 5).then(|| lengths.clone()))
    })
    .await
}

/// Waits until the gauge has shown two rates.
async fn watch_rate_move(window: &AppWindow) -> Result<()> {
    let mut rates: Vec<f64> = Vec::new();
    until("the rate to move", LONG, async || {
        let rate = window.gauge("gauge-rate").await?.filter(|rate| *rate > 0.0);
        rates.extend(rate.filter(|rate| !rates.contains(rate)));
        Ok((rates.len() >= 2).then_some(()))
    })
    .await
}

fn error_note(code: &str) -> String {
    format!("{}[data-code=\"{code}\"]", id("error-note"))
}

/// A hub with the two small real models and the odd repos.
fn hub(bytes_per_s: Option<u64>) -> Result<TestHub> {
    let mut repos = demo_repos();
    repos.push(real(SMOLLM2, "llama", &smollm2())?);
    repos.push(real(GEMMA, "gemma3", &gemma())?);
    Ok(TestHub::with(TestHubOptions { repos, bytes_per_s, ..TestHubOptions::default() })?)
}

fn real(id: &str, architecture: &str, file: &Path) -> Result<Repo> {
    let name = file.file_name().and_then(|name| name.to_str()).context("a model has a name")?;
    Ok(Repo::new(id).file_at(name, file)?.popularity(10_000, 100).gguf(architecture, 100_000_000, 8192))
}

/// The app, built beside this test.
fn app() -> Result<PathBuf> {
    let test = std::env::current_exe()?;
    let path = test.ancestors().nth(2).context("tests lie two folders below the programs")?.join("tandem-desktop");
    anyhow::ensure!(path.is_file(), "`{}` is not built; `cargo xtask test` builds it", path.display());
    Ok(path)
}
