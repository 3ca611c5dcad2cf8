//! Reads little-endian fields from the start of a file of which only a prefix may be at hand. Every length is checked
//! against the file's size before use: past its end is an error, past the prefix asks for more.

use super::{GgufError, MAX_HEADER_BYTES};

/// Why reading stopped.
#[derive(Debug)]
pub(super) enum Stop {
    /// The prefix is too short; the file is long enough.
    NeedMore { at_least_bytes: u64 },
    /// The file is at fault.
    Bad(GgufError),
}

impl From<GgufError> for Stop {
    fn from(error: GgufError) -> Self {
        Self::Bad(error)
    }
}

/// A position in a prefix of a file.
pub(super) struct Cursor<'a> {
    prefix: &'a [u8],
    file_bytes: u64,
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(prefix: &'a [u8], file_bytes: u64) -> Self {
        Self { prefix, file_bytes, at: 0 }
    }

    /// Bytes read so far.
    pub(super) fn position(&self) -> u64 {
        self.at as u64
    }

    /// Bytes of the file after this position, whether at hand or not.
    pub(super) fn remaining_bytes(&self) -> u64 {
        self.file_bytes.saturating_sub(self.position())
    }

    pub(super) fn take(&mut self, n_bytes: u64, what: &'static str) -> Result<&'a [u8], Stop> {
        let end = self.position().saturating_add(n_bytes);
        if end > self.file_bytes {
            return Err(GgufError::Truncated { what, needed_bytes: end, file_bytes: self.file_bytes }.into());
        }
        if end > MAX_HEADER_BYTES {
            return Err(GgufError::TooMany { what: "the header's size", got: end, most: MAX_HEADER_BYTES }.into());
        }
        if end > self.prefix.len() as u64 {
            return Err(Stop::NeedMore { at_least_bytes: end });
        }
        let taken = &self.prefix[self.at..end as usize];
        self.at = end as usize;
        Ok(taken)
    }

    pub(super) fn array<const N: usize>(&mut self, what: &'static str) -> Result<[u8; N], Stop> {
        let mut bytes = [0; N];
        bytes.copy_from_slice(self.take(N as u64, what)?);
        Ok(bytes)
    }

    pub(super) fn u32(&mut self, what: &'static str) -> Result<u32, Stop> {
        self.array(what).map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self, what: &'static str) -> Result<u64, Stop> {
        self.array(what).map(u64::from_le_bytes)
    }

    /// A count of records that take at least `min_bytes` each.
    pub(super) fn count(&mut self, what: &'static str, min_bytes: u64, cap: u64) -> Result<u64, Stop> {
        let got = self.u64(what)?;
        let most = (MAX_HEADER_BYTES / min_bytes).min(cap);
        if got > most {
            return Err(GgufError::TooMany { what, got, most }.into());
        }
        let needed_bytes = self.position() + got * min_bytes;
        if needed_bytes > self.file_bytes {
            return Err(GgufError::Truncated { what, needed_bytes, file_bytes: self.file_bytes }.into());
        }
        Ok(got)
    }

    /// A length-prefixed run of bytes.
    pub(super) fn string(&mut self, what: &'static str) -> Result<&'a [u8], Stop> {
        let n_bytes = self.u64(what)?;
        self.take(n_bytes, what)
    }

    /// A length-prefixed name: not empty, UTF-8, at most `max_bytes`.
    pub(super) fn name(&mut self, what: &'static str, max_bytes: u64) -> Result<&'a str, Stop> {
        let at_bytes = self.position();
        let n_bytes = self.u64(what)?;
        if n_bytes > max_bytes {
            return Err(GgufError::TooMany { what, got: n_bytes, most: max_bytes }.into());
        }
        match std::str::from_utf8(self.take(n_bytes, what)?) {
            Ok(name) if !name.is_empty() => Ok(name),
            _ => Err(GgufError::BadName { at_bytes }.into()),
        }
    }
}
