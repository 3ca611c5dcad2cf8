//! What a GPU would let pass: findings, and what is needed to make them.

pub(crate) mod memory;
pub(crate) mod order;
pub(crate) mod shared;
pub(crate) mod touched;

use std::fmt;

/// Code of an access outside of any allocation.
pub(crate) const ILLEGAL_ADDRESS: i32 = 700;
/// Code of an access to an address that is no multiple of its size.
pub(crate) const MISALIGNED_ADDRESS: i32 = 716;
/// Code of everything else that is wrong in a kernel.
pub(crate) const LAUNCH_FAILED: i32 = 719;

/// What a lane did wrong.
#[derive(Debug)]
pub(crate) struct Fault {
    pub(crate) lane: usize,
    pub(crate) code: i32,
    pub(crate) message: String,
}

impl Fault {
    /// A fault without a code of its own.
    pub(crate) fn new(lane: usize, message: impl Into<String>) -> Box<Self> {
        Self::with_code(lane, LAUNCH_FAILED, message)
    }

    /// A fault with the code that the driver would give.
    pub(crate) fn with_code(lane: usize, code: i32, message: impl Into<String>) -> Box<Self> {
        Box::new(Self { lane, code, message: message.into() })
    }
}

/// A fault and where it was made.
#[derive(Clone, Debug)]
pub(crate) struct Finding {
    pub(crate) code: i32,
    pub(crate) kernel: String,
    pub(crate) message: String,
    /// Block and thread, if it is one thread's.
    pub(crate) thread: Option<([u32; 3], u32)>,
    /// Line of the PTX and what stands there.
    pub(crate) line: Option<(u32, String)>,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.kernel, self.message)?;
        if let Some(([x, y, z], thread)) = self.thread {
            write!(f, " [block ({x},{y},{z}) thread {thread}]")?;
        }
        if let Some((line, text)) = &self.line {
            write!(f, " [PTX line {line}: {text}]")?;
        }
        Ok(())
    }
}
