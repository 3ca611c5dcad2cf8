//! Programs that end with the test that started them.

use std::net::{Ipv4Addr, TcpListener};
use std::process::{Child, Command};

use anyhow::{Context as _, Result};
use rustix::process::{Pid, Signal, kill_process};

/// A child process; dropped, it is asked to end and waited for.
#[derive(Debug)]
pub struct Process(Child);

impl Process {
    /// Starts a command.
    pub fn start(command: &mut Command) -> Result<Self> {
        let child = command.spawn().with_context(|| {
            format!(
                "cannot start `{}`; `cargo xtask test` installs what the tests need",
                command.get_program().display()
            )
        })?;
        Ok(Self(child))
    }

    /// The child itself, for its pipes.
    pub fn child(&mut self) -> &mut Child {
        &mut self.0
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // A driver ends its own children only when asked, not when killed.
        let _ = kill_process(Pid::from_child(&self.0), Signal::TERM);
        let _ = self.0.wait();
    }
}

/// A TCP port that nobody listens on just now.
pub fn free_port() -> Result<u16> {
    Ok(TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?.port())
}
