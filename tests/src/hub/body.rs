//! Answers that carry a file: ranges, and bodies that are cut, stalled, slowed or falsified on demand.

use std::convert::Infallible;
use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode, header};
use bytes::Bytes;
use futures_util::stream;

use super::fault::{Fault, Seen};
use super::repo::Blob;

const STEP_BYTES: u64 = 64 * 1024;

/// Answers a GET or HEAD for a file's bytes, as its `Range` header and the faults have it.
pub(super) fn file_answer(
    blob: Arc<Blob>,
    asked: &HeaderMap,
    is_head: bool,
    faults: &[Fault],
    bytes_per_s: Option<u64>,
    seen: Arc<Seen>,
) -> Response<Body> {
    let size = blob.size_bytes;
    let etag = format!("\"{}\"", blob.sha256());
    let mut answer = Response::builder()
        .header(header::ACCEPT_RANGES, "bytes")
        .header(header::ETAG, &etag)
        .header(header::CONTENT_TYPE, "application/octet-stream");
    let is_other = asked.get(header::IF_RANGE).is_some_and(|value| value.as_bytes() != etag.as_bytes());
    let ignores_range = is_other || faults.iter().any(|fault| matches!(fault, Fault::IgnoreRange));
    let asked_range = asked.get(header::RANGE).and_then(|value| value.to_str().ok()).filter(|_| !ignores_range);
    let (status, mut range) = match asked_range.map(|range| parse_range(range, size)) {
        None | Some(Asked::Unclear) => (StatusCode::OK, 0..size),
        Some(Asked::Part(range)) => (StatusCode::PARTIAL_CONTENT, range),
        Some(Asked::Beyond) => {
            return answer
                .status(StatusCode::RANGE_NOT_SATISFIABLE)
                .header(header::CONTENT_RANGE, format!("bytes */{size}"))
                .body(Body::empty())
                .expect("plain headers");
        }
    };
    let mut feed = Feed { bytes_per_s, ..Feed::new(blob, range.clone(), seen) };
    let (mut total, mut has_length) = (size, true);
    for fault in faults {
        match *fault {
            Fault::Cut { after_bytes } => feed.cut = Some(after_bytes),
            Fault::Stall { after_bytes } => feed.stall = Some(after_bytes),
            Fault::FlipBit { at } => feed.flips.push(at),
            Fault::Throttle { bytes_per_s } => feed.bytes_per_s = Some(bytes_per_s),
            Fault::Drip { every } => feed.drip = Some(every),
            Fault::ShiftRange { by } => range.start = (range.start + by).min(range.end),
            Fault::ShortBody { by } => range.end = range.end.saturating_sub(by).max(range.start),
            Fault::WrongTotal => total += 1,
            Fault::LongBody { by } => (feed.excess, has_length) = (by, false),
            _ => {}
        }
    }
    feed.range = range.clone();
    if status == StatusCode::PARTIAL_CONTENT {
        let last = range.end.saturating_sub(1);
        answer = answer.header(header::CONTENT_RANGE, format!("bytes {}-{last}/{total}", range.start));
    }
    if has_length {
        answer = answer.header(header::CONTENT_LENGTH, range.end - range.start);
    }
    let body = if is_head { Body::empty() } else { feed.into_body() };
    answer.status(status).body(body).expect("plain headers")
}

enum Asked {
    Part(Range<u64>),
    Beyond,
    Unclear,
}

/// Reads `bytes=a-b`, `bytes=a-` or `bytes=-n`; anything else counts as no range.
fn parse_range(range: &str, size: u64) -> Asked {
    let Some((first, last)) = range.strip_prefix("bytes=").and_then(|range| range.split_once('-')) else {
        return Asked::Unclear;
    };
    match (first.parse::<u64>(), last.parse::<u64>()) {
        (Ok(first), _) if first >= size => Asked::Beyond,
        (Ok(first), Ok(last)) if last >= first => Asked::Part(first..size.min(last + 1)),
        (Ok(first), Err(_)) if last.is_empty() => Asked::Part(first..size),
        (Err(_), Ok(n)) if first.is_empty() && n > 0 => Asked::Part(size.saturating_sub(n)..size),
        _ => Asked::Unclear,
    }
}

/// A body under way.
struct Feed {
    blob: Arc<Blob>,
    range: Range<u64>,
    sent: u64,
    cut: Option<u64>,
    stall: Option<u64>,
    flips: Vec<u64>,
    excess: u64,
    bytes_per_s: Option<u64>,
    drip: Option<Duration>,
    is_cut: bool,
    seen: Arc<Seen>,
}

impl Feed {
    fn new(blob: Arc<Blob>, range: Range<u64>, seen: Arc<Seen>) -> Self {
        let (cut, stall, bytes_per_s, drip) = (None, None, None, None);
        Self { blob, range, sent: 0, cut, stall, flips: Vec::new(), excess: 0, bytes_per_s, drip, is_cut: false, seen }
    }

    fn into_body(self) -> Body {
        let chunks = stream::unfold(self, |mut feed| async move {
            let chunk = feed.next().await?;
            Some((chunk, feed))
        });
        Body::from_stream(chunks)
    }

    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.is_cut {
            return None;
        }
        if self.cut.is_some_and(|after| self.sent >= after) {
            self.is_cut = true;
            // Gives the connection a turn to flush what was handed over.
            tokio::task::yield_now().await;
            return Some(Err(io::Error::from(io::ErrorKind::ConnectionReset)));
        }
        if self.stall.is_some_and(|after| self.sent >= after) {
            let never: Infallible = std::future::pending().await;
            match never {}
        }
        let at = self.range.start + self.sent;
        if at >= self.range.end {
            let n = std::mem::take(&mut self.excess);
            return (n > 0).then(|| Ok(vec![0; n as usize].into()));
        }
        let limits = [self.cut, self.stall].into_iter().flatten().map(|after| after - self.sent);
        let most = if self.drip.is_some() { 1 } else { STEP_BYTES };
        let step = limits.fold(most, u64::min).min(self.range.end - at);
        if let Some(every) = self.drip {
            tokio::time::sleep(every).await;
        }
        if let Some(bytes_per_s) = self.bytes_per_s {
            tokio::time::sleep(Duration::from_secs_f64(step as f64 / bytes_per_s as f64)).await;
        }
        let mut chunk = match self.blob.read(at, step as usize) {
            Ok(chunk) => chunk,
            Err(error) => return Some(Err(error)),
        };
        for wrong in self.flips.iter().filter(|flip| (at..at + step).contains(flip)) {
            let mut bytes = chunk.to_vec();
            bytes[(wrong - at) as usize] ^= 1;
            chunk = bytes.into();
        }
        self.sent += chunk.len() as u64;
        self.seen.sent_bytes.store(self.sent, Ordering::Release);
        Some(Ok(chunk))
    }
}
