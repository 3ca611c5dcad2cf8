//! An X server without a screen: what it shows can be saved, and its windows can be closed as a person closes them.

use std::fs::File;
use std::io::{BufRead as _, BufReader, BufWriter};
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail};
use rustix::process::Pid;
use x11rb::connection::Connection as _;
use x11rb::protocol::xproto::{
    AtomEnum, ClientMessageEvent, ConnectionExt as _, EventMask, ImageFormat, MapState, Window,
};
use x11rb::rust_connection::RustConnection;

use super::process::Process;

/// A private X server; it ends, and its windows' programs with it, when this is dropped.
pub struct Screen {
    connection: RustConnection,
    root: Window,
    display: String,
    /// Last: the server outlives the connection to it.
    _server: Process,
}

/// What was on the screen.
#[derive(Debug)]
pub struct Picture {
    /// How many different colours there were: an empty window has one or two.
    pub n_colours: usize,
}

impl Screen {
    /// Starts a server that picks a free display number itself.
    pub fn open(width: u16, height: u16) -> Result<Self> {
        let mut command = Command::new("Xvfb");
        command.args(["-displayfd", "1", "-nolisten", "tcp", "-screen", "0"]).arg(format!("{width}x{height}x24"));
        command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
        let mut server = Process::start(&mut command)?;
        let mut number = String::new();
        let pipe = server.child().stdout.take().context("Xvfb has a pipe")?;
        BufReader::new(pipe).read_line(&mut number)?;
        if number.trim().is_empty() {
            bail!("Xvfb ended without a display");
        }
        let display = format!(":{}", number.trim());
        let (connection, screen) = RustConnection::connect(Some(&display)).context("cannot connect to Xvfb")?;
        let root = connection.setup().roots[screen].root;
        Ok(Self { connection, root, display, _server: server })
    }

    /// What `DISPLAY` must say.
    pub fn display(&self) -> &str {
        &self.display
    }

    /// Whether a program shows a window.
    pub fn shows_window_of(&self, pid: Pid) -> Result<bool> {
        Ok(self.window_of(pid)?.is_some())
    }

    /// Asks a program's window to close, as the button in its frame does.
    pub fn ask_to_close(&self, pid: Pid) -> Result<()> {
        let window = self.window_of(pid)?.context("the program shows no window")?;
        let [protocols, delete] = [self.atom("WM_PROTOCOLS")?, self.atom("WM_DELETE_WINDOW")?];
        let message = ClientMessageEvent::new(32, window, protocols, [delete, x11rb::CURRENT_TIME, 0, 0, 0]);
        Ok(self.connection.send_event(false, window, EventMask::NO_EVENT, message)?.check()?)
    }

    /// Saves what is on the screen as a PNG file.
    pub fn save(&self, path: &Path) -> Result<Picture> {
        let size = self.connection.get_geometry(self.root)?.reply()?;
        let image = self.connection.get_image(ImageFormat::Z_PIXMAP, self.root, 0, 0, size.width, size.height, !0)?;
        // 32 bits per pixel on a server of depth 24: blue, green, red, nothing.
        let pixels = image.reply()?.data;
        let rgb: Vec<u8> = pixels.chunks_exact(4).flat_map(|pixel| [pixel[2], pixel[1], pixel[0]]).collect();
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder)?;
        }
        let file = File::create(path).with_context(|| format!("cannot create `{}`", path.display()))?;
        let mut png = png::Encoder::new(BufWriter::new(file), size.width.into(), size.height.into());
        png.set_color(png::ColorType::Rgb);
        png.write_header()?.write_image_data(&rgb)?;
        let mut colours: Vec<&[u8]> = rgb.chunks_exact(3).collect();
        colours.sort_unstable();
        colours.dedup();
        Ok(Picture { n_colours: colours.len() })
    }

    /// The shown window of a program. There is no window manager, so all windows are children of the root.
    pub(super) fn window_of(&self, pid: Pid) -> Result<Option<Window>> {
        let property = self.atom("_NET_WM_PID")?;
        for window in self.connection.query_tree(self.root)?.reply()?.children {
            // A window may go between the list and the questions about it.
            let Ok(attributes) = self.connection.get_window_attributes(window)?.reply() else { continue };
            let owner = self.connection.get_property(false, window, property, AtomEnum::CARDINAL, 0, 1)?.reply();
            let owner = owner.ok().and_then(|owner| owner.value32()?.next());
            let is_its = owner == u32::try_from(pid.as_raw_nonzero().get()).ok();
            if attributes.map_state == MapState::VIEWABLE && is_its {
                return Ok(Some(window));
            }
        }
        Ok(None)
    }

    pub(super) fn connection(&self) -> &RustConnection {
        &self.connection
    }

    pub(super) fn root(&self) -> Window {
        self.root
    }

    pub(super) fn atom(&self, name: &str) -> Result<u32> {
        Ok(self.connection.intern_atom(false, name.as_bytes())?.reply()?.atom)
    }
}
