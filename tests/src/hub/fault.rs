//! What can be made to go wrong, where, and how often; and the record of what was asked.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;

/// One way for an answer to be wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The connection dies after this many bytes of the body.
    Cut {
        /// Bytes of this body that still arrive.
        after_bytes: u64,
    },
    /// Nothing more comes after this many bytes of the body, and the connection stays open.
    Stall {
        /// Bytes of this body that still arrive.
        after_bytes: u64,
    },
    /// 200 with the whole file, whatever range was asked for.
    IgnoreRange,
    /// One bit is wrong. Befalls only requests for the byte.
    FlipBit {
        /// Offset in the file.
        at: u64,
    },
    /// `Content-Range` and bytes begin this much later than asked for.
    ShiftRange {
        /// Bytes.
        by: u64,
    },
    /// `Content-Range` names another total.
    WrongTotal,
    /// The body says, and is, shorter than the file or range.
    ShortBody {
        /// Bytes missing at the end.
        by: u64,
    },
    /// The body is sent without a length and goes on after the file's end.
    LongBody {
        /// Bytes too many.
        by: u64,
    },
    /// A page of HTML with status 200.
    Html,
    /// A redirect to itself, for ever.
    RedirectLoop,
    /// HEAD is answered as if the file lay here; whoever asks for bytes is pointed elsewhere.
    AnswerHead,
    /// Another status, with headers.
    Status {
        /// Status code.
        status: u16,
        /// Headers.
        headers: Vec<(&'static str, String)>,
    },
    /// The answer lacks a header that a hub gives.
    WithoutHeader {
        /// Its name.
        name: &'static str,
    },
    /// From this request on the file has other content.
    Replace {
        /// New content.
        bytes: Bytes,
    },
    /// The body comes byte by byte, and never ends in time.
    Drip {
        /// Time before each byte.
        every: Duration,
    },
    /// The body comes at this rate.
    Throttle {
        /// Bytes per second.
        bytes_per_s: u64,
    },
}

impl Fault {
    /// A bare status.
    pub fn status(status: u16) -> Self {
        Self::Status { status, headers: Vec::new() }
    }

    /// 429 with its wait.
    pub fn rate_limited(wait_s: u64) -> Self {
        Self::Status { status: 429, headers: vec![("ratelimit", format!("\"resolvers\";r=0;t={wait_s}"))] }
    }
}

/// Which of the two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The hub itself.
    Hub,
    /// The host that large files are redirected to.
    Cdn,
}

/// A fault and the requests it befalls.
#[derive(Clone, Debug)]
pub struct Rule {
    side: Side,
    target: String,
    skip: u64,
    times: u64,
    method: Option<&'static str>,
    is_for_tokens: bool,
    fault: Fault,
}

impl Rule {
    /// Befalls each request to this side whose path contains `target`.
    pub fn new(side: Side, target: &str, fault: Fault) -> Self {
        Self { side, target: target.to_owned(), skip: 0, times: u64::MAX, method: None, is_for_tokens: false, fault }
    }

    /// Spares the first requests.
    #[must_use]
    pub fn after(mut self, skip: u64) -> Self {
        self.skip = skip;
        self
    }

    /// Befalls only so many requests.
    #[must_use]
    pub fn times(mut self, times: u64) -> Self {
        self.times = times;
        self
    }

    /// Befalls only requests by this method.
    #[must_use]
    pub fn by(mut self, method: &'static str) -> Self {
        self.method = Some(method);
        self
    }

    /// Befalls only requests with a token.
    #[must_use]
    pub fn with_token(mut self) -> Self {
        self.is_for_tokens = true;
        self
    }

    /// Counts a request; the fault, if this request is one of those meant.
    pub(super) fn strike(&mut self, seen: &Seen) -> Option<Fault> {
        let is_of_kind = self.method.is_none_or(|method| method == seen.method)
            && (!self.is_for_tokens || seen.authorization.is_some());
        if seen.side != self.side || !seen.path.contains(&self.target) || self.times == 0 || !is_of_kind {
            return None;
        }
        if let (Fault::FlipBit { at }, Some((first, last))) = (&self.fault, seen.range.as_deref().and_then(ends))
            && !(first..=last).contains(at)
        {
            return None;
        }
        if self.skip > 0 {
            self.skip -= 1;
            return None;
        }
        self.times -= 1;
        Some(self.fault.clone())
    }
}

/// First and last byte of `bytes=1-5` or `bytes=1-`.
fn ends(range: &str) -> Option<(u64, u64)> {
    let (first, last) = range.strip_prefix("bytes=")?.split_once('-')?;
    Some((first.parse().ok()?, if last.is_empty() { u64::MAX } else { last.parse().ok()? }))
}

/// A request as it arrived.
#[derive(Debug)]
pub struct Seen {
    /// Which server.
    pub side: Side,
    /// Method.
    pub method: String,
    /// Path, percent-decoded.
    pub path: String,
    /// Query, raw.
    pub query: String,
    /// `Range` header.
    pub range: Option<String>,
    /// `If-Range` header.
    pub if_range: Option<String>,
    /// `Authorization` header.
    pub authorization: Option<String>,
    pub(super) sent_bytes: AtomicU64,
}

impl Seen {
    /// First byte that the request asked for.
    pub fn first_byte(&self) -> u64 {
        let range = self.range.as_deref().and_then(|range| range.strip_prefix("bytes="));
        range.and_then(|range| range.split('-').next()).and_then(|first| first.parse().ok()).unwrap_or(0)
    }

    /// Bytes of body handed to the connection so far.
    pub fn sent_bytes(&self) -> u64 {
        self.sent_bytes.load(Ordering::Acquire)
    }
}
