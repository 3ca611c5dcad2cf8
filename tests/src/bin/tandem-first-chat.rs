//! Opens the real window on a display of its own, asks one question through the page, and prints the answer as it
//! appears: what `cargo xtask run` does where nobody can look at a window.

#[cfg(target_os = "linux")]
fn main() -> anyhow::Result<()> {
    linux::main()
}

#[cfg(not(target_os = "linux"))]
fn main() -> anyhow::Result<()> {
    anyhow::bail!("only on Linux can the window be driven without a display")
}

#[cfg(target_os = "linux")]
mod linux {
    use std::ffi::OsString;
    use std::io::Write as _;
    use std::path::PathBuf;

    use anyhow::{Context as _, Result, ensure};
    use clap::Parser;
    use tandem_tests::window::{AppWindow, Screen, Start, id};

    /// Asks one question through the app's own window.
    #[derive(Parser)]
    struct Args {
        /// What to ask.
        #[arg(long)]
        question: String,
        /// Where to save what the screen shows at the end.
        #[arg(long)]
        screenshot: PathBuf,
        /// Where the library is empty, a repo of the hub to download from first.
        #[arg(long)]
        repo: String,
        /// The app and its arguments.
        #[arg(last = true, required = true)]
        app: Vec<OsString>,
    }

    #[tokio::main(flavor = "current_thread")]
    pub(crate) async fn main() -> Result<()> {
        let args = Args::parse();
        let home = tempfile::tempdir()?;
        let screen = Screen::open(1180, 760)?;
        let (program, app_args) = args.app.split_first().context("clap requires one")?;
        let start = Start { program: PathBuf::from(program), args: app_args.to_vec(), home: home.path().to_path_buf() };
        let window = AppWindow::open(&screen, &start).await?;
        say("the window is open")?;
        window.click(&id("nav-library")).await?;
        if window.find(&id("chat-with-model")).await?.is_none() {
            say(&format!("downloading from {}", args.repo))?;
            let name = args.repo.rsplit('/').next().unwrap_or_default();
            window.open_repo(name, &args.repo).await?;
            window.click(&id("recommended-download")).await?;
            // Downloaded in order to chat: the model is loaded as soon as it is there.
            window.wait_for_phase("idle").await?;
        }
        window.chat_with_first_model().await?;
        say("the model is loaded")?;

        say(&format!("\n> {}\n", args.question))?;
        window.ask(&args.question).await?;
        let mut printed = String::new();
        let end = window.follow_answer(|text| print_more(&mut printed, text)).await?;
        ensure!(end == "complete" || end == "length", "the answer ended as `{end}`");
        ensure!(!printed.trim().is_empty(), "the answer is empty");
        say("\n")?;
        say(&window.text(&id("message-stats")).await?)?;

        let picture = screen.save(&args.screenshot)?;
        ensure!(picture.n_colours > 30, "the window is blank");
        say(&format!("screenshot: {}", args.screenshot.display()))?;
        screen.ask_to_close(window.pid().await?)?;
        let code = window.exit_code().await?;
        ensure!(code == 0, "the app ended with code {code}");
        Ok(())
    }

    /// Prints what has come since the last time. Where the page rewrote a line (markdown that became clear), that line is
    /// printed again.
    fn print_more(printed: &mut String, text: &str) {
        let more = match text.strip_prefix(printed.as_str()) {
            Some(more) => more.to_owned(),
            None => {
                let same = text.bytes().zip(printed.bytes()).take_while(|(now, before)| now == before).count();
                let line = text.as_bytes()[..same].iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
                format!("\n{}", &text[line..])
            }
        };
        // Nobody may be reading; the answer is asked for all the same.
        let _ = say_part(&more);
        text.clone_into(printed);
    }

    fn say(line: &str) -> Result<()> {
        say_part(&format!("{line}\n"))
    }

    fn say_part(text: &str) -> Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(text.as_bytes())?;
        Ok(out.flush()?)
    }
}
