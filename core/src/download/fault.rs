//! Why a connection ends before its bytes are here, and what to wait for before the next.

use std::time::Duration;

use super::run::Stop;
use crate::hub::HubError;

/// Why a connection ended early.
#[derive(Debug)]
pub(super) enum Fault {
    /// No connection more.
    Stop(Stop),
    /// Another one may do better.
    Again { error: HubError, pause: Pause },
}

/// What to wait for before the next connection.
#[derive(Debug)]
pub(super) enum Pause {
    /// A new signed URL.
    NewLink,
    Backoff,
    /// As long as the hub asks, if it says.
    Asked(Option<Duration>),
}

impl Pause {
    /// How long that is, at least `backoff`.
    pub(super) fn wait(&self, backoff: Duration) -> Duration {
        match self {
            Self::NewLink => Duration::ZERO,
            Self::Backoff => backoff,
            Self::Asked(wait) => wait.unwrap_or(DEFAULT_ASKED_WAIT).max(backoff).min(LONGEST_ASKED_WAIT),
        }
    }
}

impl From<HubError> for Fault {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Network { .. } | HubError::NotAHub { .. } => Self::Again { error, pause: Pause::Backoff },
            HubError::Refused { status: 408 | 425 | 500..=599, .. } => Self::Again { error, pause: Pause::Backoff },
            HubError::RateLimited { wait } => Self::Again { error, pause: Pause::Asked(wait) },
            _ => Self::Stop(Stop::from(error)),
        }
    }
}

const DEFAULT_ASKED_WAIT: Duration = Duration::from_secs(60);
/// The hub's windows are of five minutes.
const LONGEST_ASKED_WAIT: Duration = Duration::from_secs(600);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_that_the_hub_asks_for_is_kept_within_reason() {
        let asked = |seconds: u64| Pause::Asked(Some(Duration::from_secs(seconds))).wait(Duration::from_secs(4));
        assert_eq!([asked(1), asked(120), asked(86_400)].map(|wait| wait.as_secs()), [4, 120, 600]);
        assert_eq!(Pause::Asked(None).wait(Duration::ZERO), DEFAULT_ASKED_WAIT);
        assert_eq!(Pause::Backoff.wait(Duration::from_secs(4)).as_secs(), 4);
    }
}
