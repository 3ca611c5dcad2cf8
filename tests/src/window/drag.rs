//! Files dragged onto a window, as a file manager does it: the source's side of XDND.
//!
//! Source: https://freedesktop.org/wiki/Specifications/XDND, version 5.

use std::path::Path;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use rustix::process::Pid;
use x11rb::connection::Connection as _;
use x11rb::protocol::Event;
use x11rb::protocol::xproto::{
    ClientMessageEvent, ConnectionExt as _, CreateWindowAux, EventMask, PropMode, SELECTION_NOTIFY_EVENT,
    SelectionNotifyEvent, SelectionRequestEvent, Window, WindowClass,
};
use x11rb::wrapper::ConnectionExt as _;

use super::screen::Screen;
use super::until;

/// Files held over a window.
pub struct Drag<'a> {
    screen: &'a Screen,
    source: Window,
    target: Window,
    uris: String,
}

impl Screen {
    /// Drags files over the middle of a program's window, and waits until it would take them.
    pub async fn drag(&self, pid: Pid, paths: &[&Path]) -> Result<Drag<'_>> {
        let target = self.window_of(pid)?.context("the program shows no window")?;
        let x11 = self.connection();
        let source = x11.generate_id()?;
        let (class, aux) = (WindowClass::INPUT_ONLY, CreateWindowAux::new());
        x11.create_window(0, source, self.root(), -9, -9, 1, 1, 0, class, x11rb::COPY_FROM_PARENT, &aux)?.check()?;
        x11.set_selection_owner(source, self.atom("XdndSelection")?, x11rb::CURRENT_TIME)?.check()?;
        let uri = |path: &&Path| {
            let path = path.to_str().context("a path in Unicode")?;
            Ok(format!("file://{}\r\n", utf8_percent_encode(path, IN_URI)))
        };
        let uris: Result<String> = paths.iter().map(uri).collect();
        let drag = Drag { screen: self, source, target, uris: uris? };
        drag.send("XdndEnter", [source, VERSION << 24, self.atom(URI_LIST)?, 0, 0])?;
        until("the window to take what is dragged", LONG, async || {
            drag.hold()?;
            let taken = drag.answer("XdndStatus")?.map(|status| status[1] & 1 == 1);
            Ok(taken.filter(|&taken| taken))
        })
        .await?;
        Ok(drag)
    }
}

impl Drag<'_> {
    /// Lets go of the files, and waits until the window has them.
    pub async fn drop_here(self) -> Result<()> {
        self.send("XdndDrop", [self.source, 0, x11rb::CURRENT_TIME, 0, 0])?;
        let [_, is_taken, ..] =
            until("the window to have what was dropped", LONG, async || self.answer("XdndFinished")).await?;
        if is_taken & 1 == 0 {
            bail!("the window did not take what was dropped");
        }
        Ok(())
    }

    /// Takes the files away again.
    pub fn leave(self) -> Result<()> {
        self.send("XdndLeave", [self.source, 0, 0, 0, 0])
    }

    fn hold(&self) -> Result<()> {
        let x11 = self.screen.connection();
        let size = x11.get_geometry(self.target)?.reply()?;
        let corner = x11.translate_coordinates(self.target, self.screen.root(), 0, 0)?.reply()?;
        let [x, y] = [corner.dst_x + size.width as i16 / 2, corner.dst_y + size.height as i16 / 2].map(|at| at as u32);
        let copy = self.screen.atom("XdndActionCopy")?;
        self.send("XdndPosition", [self.source, 0, x << 16 | y, x11rb::CURRENT_TIME, copy])
    }

    /// Hands over the files' names if they are asked for; what the window has answered of this kind, if it has.
    fn answer(&self, kind: &str) -> Result<Option<[u32; 5]>> {
        let kind = self.screen.atom(kind)?;
        while let Some(event) = self.screen.connection().poll_for_event()? {
            match event {
                Event::SelectionRequest(request) => self.hand_over(&request)?,
                // Answers to an earlier drag may still be on their way.
                Event::ClientMessage(message) if message.type_ == kind && message.window == self.source => {
                    return Ok(Some(message.data.as_data32()));
                }
                Event::Error(error) => bail!("the X server says {error:?}"),
                _ => {}
            }
        }
        Ok(None)
    }

    fn hand_over(&self, request: &SelectionRequestEvent) -> Result<()> {
        let x11 = self.screen.connection();
        let SelectionRequestEvent { requestor, property, target, .. } = *request;
        x11.change_property8(PropMode::REPLACE, requestor, property, target, self.uris.as_bytes())?;
        let notice = SelectionNotifyEvent {
            response_type: SELECTION_NOTIFY_EVENT,
            sequence: 0,
            time: request.time,
            requestor,
            selection: request.selection,
            target,
            property,
        };
        Ok(x11.send_event(false, requestor, EventMask::NO_EVENT, notice)?.check()?)
    }

    fn send(&self, kind: &str, data: [u32; 5]) -> Result<()> {
        let message = ClientMessageEvent::new(32, self.target, self.screen.atom(kind)?, data);
        let x11 = self.screen.connection();
        Ok(x11.send_event(false, self.target, EventMask::NO_EVENT, message)?.check()?)
    }
}

const VERSION: u32 = 5;
const URI_LIST: &str = "text/uri-list";
const IN_URI: &AsciiSet = &NON_ALPHANUMERIC.remove(b'/').remove(b'-').remove(b'_').remove(b'.').remove(b'~');
const LONG: Duration = Duration::from_secs(30);
