//! What to make of an answer to a request for some bytes of a file. Pure.

use reqwest::StatusCode;
use reqwest::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, HeaderValue};

use crate::hub::{Oddity, is_html};

/// What to do with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Its body is the file's bytes from here on: from where we asked, or from 0 of a server that knows no ranges.
    Gives {
        /// Offset in the file.
        from: u64,
    },
    /// A signed URL that is no longer good: resolve again.
    Expired,
    /// Not the bytes asked for.
    Odd(Oddity),
    /// A refusal to be read as the hub's.
    Refused,
}

/// Whose answer it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// The hub itself.
    Hub,
    /// A host that it pointed to.
    Elsewhere,
}

/// What was asked for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Asked<'a> {
    /// Whom.
    pub(super) source: Source,
    /// First byte.
    pub(super) from: u64,
    /// Of the file.
    pub(super) size_bytes: u64,
    /// What the host called the file when its first bytes came.
    pub(super) etag: Option<&'a HeaderValue>,
}

/// What a host calls a file, if bytes under one name are always the same.
pub(super) fn strong_etag(headers: &HeaderMap) -> Option<&HeaderValue> {
    headers.get(ETAG).filter(|etag| etag.as_bytes().starts_with(b"\""))
}

/// Judges status and headers.
pub(super) fn judge(status: StatusCode, headers: &HeaderMap, asked: &Asked<'_>) -> Verdict {
    let Asked { source, from, size_bytes: size, etag } = *asked;
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok());
    if status.is_success() && is_html(headers) {
        return Verdict::Odd(Oddity::Html);
    }
    let is_encoded = text(CONTENT_ENCODING.as_str()).is_some_and(|encoding| !encoding.eq_ignore_ascii_case("identity"));
    let is_other = etag.is_some_and(|etag| strong_etag(headers).is_some_and(|now| now != etag));
    match status.as_u16() {
        200 | 206 if is_other => Verdict::Odd(Oddity::Changed),
        200 | 206 if is_encoded => Verdict::Odd(Oddity::WrongRange),
        200 => match text(CONTENT_LENGTH.as_str()).map(str::parse::<u64>) {
            Some(Ok(length)) if length != size => Verdict::Odd(Oddity::WrongRange),
            _ => Verdict::Gives { from: 0 },
        },
        206 => match text(CONTENT_RANGE.as_str()).and_then(parse_content_range) {
            Some((first, last, total)) if first == from && last < size && total.is_none_or(|total| total == size) => {
                Verdict::Gives { from }
            }
            _ => Verdict::Odd(Oddity::WrongRange),
        },
        416 => Verdict::Odd(Oddity::WrongRange),
        400 | 401 | 403 if source == Source::Elsewhere => Verdict::Expired,
        _ => Verdict::Refused,
    }
}

/// First byte, last byte, and total if it is told.
fn parse_content_range(text: &str) -> Option<(u64, u64, Option<u64>)> {
    let (range, total) = text.trim().strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last) = (first.parse().ok()?, last.parse().ok()?);
    let total = if total == "*" { None } else { Some(total.parse().ok()?) };
    (first <= last).then_some((first, last, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_judged_before_a_byte_is_written() {
        use Verdict::{Expired, Gives, Odd, Refused};
        let range = "content-range";
        let wrong = || Odd(Oddity::WrongRange);
        // Status, header, first byte asked for of a file of 100 bytes, verdict.
        let cases: [(u16, &str, &str, u64, Verdict); 26] = [
            (206, range, "bytes 40-99/100", 40, Gives { from: 40 }),
            (206, range, "bytes 40-59/100", 40, Gives { from: 40 }),
            (206, range, "bytes 40-99/*", 40, Gives { from: 40 }),
            (206, range, "bytes 0-99/100", 0, Gives { from: 0 }),
            (206, range, "bytes 41-99/100", 40, wrong()),
            (206, range, "bytes 40-99/101", 40, wrong()),
            (206, range, "bytes 40-100/*", 40, wrong()),
            (206, range, "bytes 40-39/100", 40, wrong()),
            (206, range, "bytes */100", 40, wrong()),
            (206, range, "lines 40-99/100", 40, wrong()),
            (206, "x", "x", 40, wrong()),
            (200, "content-length", "100", 0, Gives { from: 0 }),
            (200, "content-length", "100", 40, Gives { from: 0 }),
            (200, "content-length", "60", 40, wrong()),
            (200, "x", "x", 40, Gives { from: 0 }),
            (200, "etag", "\"a\"", 40, Gives { from: 0 }),
            (200, "etag", "\"b\"", 40, Odd(Oddity::Changed)),
            (206, "etag", "\"b\"", 40, Odd(Oddity::Changed)),
            (200, "etag", "W/\"b\"", 40, Gives { from: 0 }),
            (200, "content-type", "text/html; charset=utf-8", 0, Odd(Oddity::Html)),
            (206, "content-type", "Text/HTML", 40, Odd(Oddity::Html)),
            (200, "content-encoding", "gzip", 0, wrong()),
            (416, range, "bytes */100", 40, wrong()),
            (403, "x", "x", 40, Expired),
            (404, "x", "x", 40, Refused),
            (503, "content-type", "text/html", 40, Refused),
        ];
        let etag = HeaderValue::from_static("\"a\"");
        let asked = Asked { source: Source::Elsewhere, from: 0, size_bytes: 100, etag: Some(&etag) };
        for (status, name, value, from, expected) in cases {
            let headers = [(name.parse().unwrap(), value.parse().unwrap())].into_iter().collect();
            let status = StatusCode::from_u16(status).unwrap();
            let asked = Asked { from, ..asked };
            assert_eq!(judge(status, &headers, &asked), expected, "{status} {name}: {value}");
        }
        let forbidden = judge(StatusCode::FORBIDDEN, &HeaderMap::new(), &Asked { source: Source::Hub, ..asked });
        assert_eq!(forbidden, Refused, "from the hub itself it means what it says");
    }
}
