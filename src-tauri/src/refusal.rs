//! A start that cannot go on: said in both languages on standard error and, where there is a display, in a dialog.
//!
//! In both languages at once, because the settings that name one may be what cannot be read.

use std::process::ExitCode;

use tandem_core::error::detail;
use tandem_core::wire::{ErrorCode, Failure, Text};

/// Why there will be no window.
#[derive(Debug)]
pub(crate) enum Refusal {
    /// Nothing to draw on; so no dialog either.
    NoDisplay,
    /// The system's web view does not open.
    Window(tauri::Error),
    /// The app said why.
    Failed(Failure),
}

impl Refusal {
    /// Tells the person, waits until they have read it, and yields the code to exit with: 3 for a second start, 4 without
    /// a display, 1 for anything else. (2 is a wrong flag.)
    pub(crate) fn tell(self) -> ExitCode {
        let (message, hint, code) = match &self {
            Self::NoDisplay => (no_display(), no_display_hint(), 4),
            Self::Window(error) => (no_window(error), no_window_hint(), 1),
            Self::Failed(failure) => (failure.message.clone(), failure.hint.clone(), code(failure)),
        };
        let text = format!("{}\n{}\n\n{}\n{}", message.en, hint.en, message.zh, hint.zh);
        eprintln!("{text}");
        if !matches!(self, Self::NoDisplay) {
            show(&text);
        }
        ExitCode::from(code)
    }
}

#[cfg(target_os = "linux")]
fn show(text: &str) {
    use gtk::prelude::{DialogExt as _, GtkWindowExt as _};
    let (no_parent, no_flags) = (None::<&gtk::Window>, gtk::DialogFlags::empty());
    let dialog = gtk::MessageDialog::new(no_parent, no_flags, gtk::MessageType::Info, gtk::ButtonsType::Close, text);
    dialog.set_title("Tandem");
    dialog.run();
}

#[cfg(not(target_os = "linux"))]
fn show(text: &str) {
    let dialog = rfd::MessageDialog::new().set_level(rfd::MessageLevel::Info).set_title("Tandem");
    dialog.set_description(text).set_buttons(rfd::MessageButtons::Ok).show();
}

fn code(failure: &Failure) -> u8 {
    if failure.code == ErrorCode::AlreadyRunning { 3 } else { 1 }
}

fn no_window(error: &tauri::Error) -> Text {
    Text::new(format!("the window cannot be opened: {error}"), format!("无法打开窗口{}", detail(&error)))
}

fn no_window_hint() -> Text {
    Text::new(
        "check that the system's web view is installed (WebKitGTK 4.1 on Linux, WebView2 on Windows)",
        "请检查是否已安装系统的网页组件（Linux 上是 WebKitGTK 4.1，Windows 上是 WebView2）",
    )
}

fn no_display() -> Text {
    Text::new("Tandem needs a display, and there is none here", "Tandem 需要图形界面，但这里没有")
}

fn no_display_hint() -> Text {
    Text::new(
        "start it in a desktop session; in a terminal, use `tandem` instead",
        "请在桌面会话中启动；在终端里可以使用 `tandem`",
    )
}
