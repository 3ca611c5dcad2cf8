//! The window from its opening to its end.

use std::path::Path;
use std::sync::Arc;

use tandem_core::app::App;
use tandem_core::wire::Drag;
use tauri::plugin::TauriPlugin;
use tauri::{DragDropEvent, Manager, PhysicalSize, Runtime, Url, WebviewWindow, Window, WindowEvent};

use crate::commands;
use crate::refusal::Refusal;

/// Opens the window and returns when it is closed and everything behind it has ended.
pub(crate) fn run(app: &Arc<App>) -> Result<(), Refusal> {
    let built = tauri::Builder::default()
        .manage(Arc::clone(app))
        .invoke_handler(commands::handler())
        .plugin(stay_on_own_pages())
        .on_window_event(tell_drag)
        .setup(|tauri| {
            end_on_signal(tauri.handle().clone());
            tauri.webview_windows().values().for_each(fit_to_screen);
            Ok(())
        })
        .build(tauri::generate_context!());
    let closed = built.map(|window| window.run_return(|_, _| ()));
    // The window is gone by now: what is still being written is stopped and kept, and the engine's thread joined.
    app.shutdown();
    match closed {
        Ok(_) => Ok(()),
        Err(error) => Err(Refusal::Window(error)),
    }
}

/// Makes a window no larger than its screen has room for. Where the screen says nothing, the window stays as it is.
fn fit_to_screen<R: Runtime>(window: &WebviewWindow<R>) {
    let (Ok(Some(monitor)), Ok(outer), Ok(inner)) =
        (window.current_monitor(), window.outer_size(), window.inner_size())
    else {
        return;
    };
    let room = monitor.work_area();
    let fitting = fitting(outer, inner, room.size);
    if fitting != inner && (window.set_size(fitting).is_err() || window.set_position(room.position).is_err()) {
        tracing::warn!("the window may be larger than the screen");
    }
}

/// What the inside may measure so that the outside fits. A screen without room is one that says nothing.
fn fitting(outer: PhysicalSize<u32>, inner: PhysicalSize<u32>, room: PhysicalSize<u32>) -> PhysicalSize<u32> {
    let within = |outer: u32, inner: u32, room: u32| match outer.saturating_sub(room) {
        excess if room > 0 && excess < inner => inner - excess,
        _ => inner,
    };
    PhysicalSize::new(within(outer.width, inner.width, room.width), within(outer.height, inner.height, room.height))
}

/// Files and folders dragged over the window: the page itself never learns their paths.
fn tell_drag<R: Runtime>(window: &Window<R>, event: &WindowEvent) {
    let WindowEvent::DragDrop(event) = event else { return };
    let drag = match event {
        DragDropEvent::Enter { .. } => Drag::Over,
        DragDropEvent::Drop { paths, .. } => Drag::Dropped { paths: paths.iter().map(|path| text(path)).collect() },
        DragDropEvent::Leave => Drag::Left,
        _ => return,
    };
    window.state::<Arc<App>>().tell_drag(drag);
}

/// A path for the page. One that is not Unicode leads nowhere, which adding it then says.
fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// Tauri panics where there is no display; this says so before.
pub(crate) fn require_display() -> Result<(), Refusal> {
    #[cfg(target_os = "linux")]
    if gtk::init().is_err() {
        return Err(Refusal::NoDisplay);
    }
    Ok(())
}

/// Nothing that a model writes can lead the window to a page that is not the app's own.
fn stay_on_own_pages<R: Runtime>() -> TauriPlugin<R> {
    tauri::plugin::Builder::new("own-pages").on_navigation(|_, url| is_own(url)).build()
}

fn is_own(url: &Url) -> bool {
    // The second is what Windows calls the first.
    url.scheme() == "tauri" || url.host_str() == Some("tauri.localhost")
}

/// Asked to end by the system (log-out, `kill`, Ctrl-C), the app ends as if its window were closed.
fn end_on_signal<R: Runtime>(tauri: tauri::AppHandle<R>) {
    #[cfg(unix)]
    tauri::async_runtime::spawn(async move {
        use tokio::signal::unix::{SignalKind, signal};
        let signals = [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()].map(signal);
        let [Ok(mut terminate), Ok(mut interrupt), Ok(mut hangup)] = signals else {
            tracing::warn!("signals are not heard: the system ends the app at once");
            return;
        };
        tokio::select! {
            _ = terminate.recv() => (),
            _ = interrupt.recv() => (),
            _ = hangup.recv() => (),
        }
        tauri.exit(0);
    });
    #[cfg(not(unix))]
    drop(tauri);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_fits_its_screen() {
        let size = PhysicalSize::new;
        for (outer, inner, room, expected) in [
            (size(1180, 760), size(1180, 760), size(1920, 1050), size(1180, 760)),
            (size(1180, 760), size(1180, 760), size(900, 600), size(900, 600)),
            (size(1190, 790), size(1180, 760), size(1366, 728), size(1180, 698)),
            (size(1180, 760), size(1180, 760), size(0, 0), size(1180, 760)),
        ] {
            assert_eq!(fitting(outer, inner, room), expected, "{outer:?} {room:?}");
        }
    }

    #[test]
    fn only_the_apps_own_pages_open_in_the_window() {
        let own = ["tauri://localhost", "tauri://localhost/index.html", "http://tauri.localhost/"];
        let foreign = ["https://example.com/", "http://tauri.localhost.example.com/", "file:///etc/passwd"];
        assert!(own.iter().all(|url| is_own(&url.parse().unwrap())));
        assert!(!foreign.iter().any(|url| is_own(&url.parse().unwrap())));
    }
}
