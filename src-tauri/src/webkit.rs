//! What WebKitGTK must be told before GTK starts, so that its window is not blank. Linux only.
//!
//! WebKit hands finished frames from its web process to the window as buffers of the graphics driver (DMA-BUF). With
//! NVIDIA's own driver these arrive empty or end the web process, depending on versions; without a render node (virtual
//! machines, remote displays) they only cost memory, 60 MB as measured. Shared memory shows the same picture
//! everywhere. A variable that is already set stays: whoever sets it knows their machine.

use std::path::Path;

/// Prevents WebKit from sharing frames through the graphics driver.
const NO_DMABUF: &str = "WEBKIT_DISABLE_DMABUF_RENDERER";

/// What decides.
#[derive(Clone, Copy, Debug)]
struct Machine {
    has_nvidia_driver: bool,
    has_render_node: bool,
}

/// Sets the variables this machine needs.
///
/// # Safety
/// No other thread runs yet.
pub(crate) unsafe fn prepare() {
    let is_set = std::env::var_os(NO_DMABUF).is_some();
    if !is_set && needs_shared_memory(Machine::here()) {
        // SAFETY: the caller promises that no other thread runs, so none reads the environment meanwhile.
        unsafe { std::env::set_var(NO_DMABUF, "1") };
    }
}

fn needs_shared_memory(machine: Machine) -> bool {
    machine.has_nvidia_driver || !machine.has_render_node
}

impl Machine {
    fn here() -> Self {
        let nodes = std::fs::read_dir("/dev/dri").into_iter().flatten().flatten();
        Self {
            has_nvidia_driver: Path::new("/proc/driver/nvidia/version").exists(),
            has_render_node: nodes
                .map(|node| node.file_name())
                .any(|name| name.as_encoded_bytes().starts_with(b"renderD")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_go_through_the_driver_only_where_that_is_sound() {
        let cases = [(false, true, false), (false, false, true), (true, true, true), (true, false, true)];
        for (has_nvidia_driver, has_render_node, expected) in cases {
            let machine = Machine { has_nvidia_driver, has_render_node };
            assert_eq!(needs_shared_memory(machine), expected, "{machine:?}");
        }
    }
}
