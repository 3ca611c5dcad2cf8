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
            Self::Asked(wait) => wait.unwrap_or(DEFAULT_ASKED_WAIT).max(backoff),
        }
    }
}

impl From<HubError> for Fault {
    fn from(error: HubError) -> Self {
        match error {
            HubError::Network { .. } | HubError::NotAHub { .. } => Self::Again { error, pause: Pause::Backoff },
            HubError::Refused { status: 408 | 425 | 500..=599, .. } => Self::Again { error, pause: Pause::Backoff },
            // Longer than anybody watches: a person is told, and what has arrived is kept.
            HubError::RateLimited { wait: Some(wait) } if wait > LONGEST_ASKED_WAIT => Self::Stop(Stop::from(error)),
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
    fn a_wait_that_the_hub_asks_for_is_kept_and_a_very_long_one_is_told() {
        let fault = |seconds| Fault::from(HubError::RateLimited { wait: Some(Duration::from_secs(seconds)) });
        let asked = |seconds| match fault(seconds) {
            Fault::Again { pause, .. } => Some(pause.wait(Duration::from_secs(4)).as_secs()),
            Fault::Stop(_) => None,
        };
        assert_eq!([1, 120, 600, 601, 86_400].map(asked), [Some(4), Some(120), Some(600), None, None]);
        assert_eq!(Pause::Asked(None).wait(Duration::ZERO), DEFAULT_ASKED_WAIT);
        assert_eq!(Pause::Backoff.wait(Duration::from_secs(4)).as_secs(), 4);
    }
}
