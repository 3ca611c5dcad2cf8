//! What can go wrong with the hub, as data, and in words.

use std::time::Duration;

use reqwest::Url;
use tandem_engine::gguf::GgufError;

use super::http::root_cause;
use crate::error::Explain;
use crate::wire::{ErrorCode, Failure, Text};

/// Why the hub did not give what was asked for.
#[derive(Debug, thiserror::Error)]
pub enum HubError {
    /// The base URL in the settings is none.
    #[error("`{url}` is not a base URL")]
    BadBaseUrl {
        /// As typed.
        url: String,
    },
    /// The proxy in the settings is none.
    #[error("`{address}` is not a proxy's address")]
    BadProxy {
        /// As typed, without its password.
        address: String,
    },
    /// The TLS library could not be set up.
    #[error("the HTTP client cannot be set up: {detail}")]
    ClientNotSetUp {
        /// What it said.
        detail: String,
    },
    /// A repo name that no repo can have.
    #[error("`{repo}` is not a repo name")]
    BadRepoName {
        /// As given.
        repo: String,
    },
    /// A page of results that this hub did not give out.
    #[error("a cursor of another hub")]
    BadCursor,
    /// No connection, or it broke.
    #[error("{host}: {fault}: {detail}")]
    Network {
        /// Whom we tried to reach.
        host: String,
        /// In which way.
        fault: NetworkFault,
        /// What the system said.
        detail: String,
    },
    /// An answer, but not one that a hub gives.
    #[error("{host}: {oddity}")]
    NotAHub {
        /// Who answered.
        host: String,
        /// What was odd.
        oddity: Oddity,
    },
    /// No such repo, revision or file, or it is hidden.
    #[error("{what} not found: `{repo}`")]
    NotFound {
        /// `publisher/name`.
        repo: String,
        /// What is missing.
        what: Missing,
    },
    /// The repo wants an accepted licence.
    #[error("`{repo}` is gated")]
    Gated {
        /// `publisher/name`.
        repo: String,
        /// Where the licence is accepted.
        page: String,
        /// What we sent.
        token: TokenUse,
    },
    /// The hub does not know our token.
    #[error("the hub does not accept the access token")]
    WrongToken,
    /// Too many requests.
    #[error("too many requests")]
    RateLimited {
        /// How long to wait, if the hub says.
        wait: Option<Duration>,
    },
    /// The hub refuses for a reason of its own.
    #[error("the hub refuses with status {status}: {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// What it says.
        message: String,
    },
    /// A header that cannot be read.
    #[error("`{path}`: {source}")]
    BadHeader {
        /// File in the repo.
        path: String,
        /// What is wrong with it.
        source: GgufError,
    },
}

/// What became of the access token in a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenUse {
    /// There is none.
    None,
    /// There is one, and this host must not see it.
    Withheld,
    /// It was sent.
    Sent,
}

/// What a repo lacks.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Missing {
    /// The repo itself.
    #[error("repo")]
    Repo,
    /// The commit or branch.
    #[error("revision")]
    Revision,
    /// A file.
    #[error("file `{path}`")]
    File {
        /// Path in the repo.
        path: String,
    },
}

/// How a connection failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NetworkFault {
    /// The name has no address.
    #[error("unknown host")]
    UnknownHost,
    /// Nobody answers there, or TLS failed.
    #[error("cannot connect")]
    CannotConnect,
    /// The proxy that a person has set does not answer, or does not get there.
    #[error("no connection through the proxy")]
    Proxy,
    /// No answer, or no more of it, for too long.
    #[error("timed out")]
    TimedOut,
    /// The connection broke.
    #[error("connection lost")]
    Lost,
}

/// What was odd about an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Oddity {
    /// A web page instead of data.
    #[error("a web page instead of data")]
    Html,
    /// Not the JSON a hub sends.
    #[error("unreadable JSON: {detail}")]
    BadJson {
        /// Where it stopped.
        detail: String,
    },
    /// More JSON than any listing has.
    #[error("more than {limit_bytes} bytes of JSON")]
    TooLarge {
        /// What is read at most.
        limit_bytes: u64,
    },
    /// Redirects without end.
    #[error("redirects in a circle")]
    RedirectLoop,
    /// From HTTPS to HTTP.
    #[error("a redirect away from HTTPS")]
    InsecureRedirect,
    /// A header is missing without which a file cannot be trusted.
    #[error("no `{name}` header")]
    NoHeader {
        /// Its name.
        name: &'static str,
    },
    /// Another range than asked for, or another length than promised.
    #[error("other bytes than asked for")]
    WrongRange,
    /// The file is no longer the one that the first bytes came from.
    #[error("the file changed while it was fetched")]
    Changed,
}

impl HubError {
    pub(crate) fn odd(url: &Url, oddity: Oddity) -> Self {
        Self::NotAHub { host: host(url), oddity }
    }

    pub(crate) fn network(url: &Url, fault: NetworkFault, detail: impl Into<String>) -> Self {
        Self::Network { host: host(url), fault, detail: detail.into() }
    }

    pub(crate) fn from_reqwest(url: &Url, error: &reqwest::Error) -> Self {
        let fault = if error.is_timeout() {
            NetworkFault::TimedOut
        } else if error.is_dns() {
            NetworkFault::UnknownHost
        } else if error.is_connect() {
            NetworkFault::CannotConnect
        } else {
            NetworkFault::Lost
        };
        Self::network(url, fault, root_cause(error))
    }
}

fn host(url: &Url) -> String {
    url.host_str().unwrap_or("?").to_owned()
}

impl Explain for HubError {
    fn explain(&self) -> Failure {
        let failure = |code, message: (String, String), hint: (&str, &str)| {
            Failure::new(code, Text::new(message.0, message.1), Text::new(hint.0, hint.1))
        };
        match self {
            Self::BadBaseUrl { url } => failure(
                ErrorCode::BadRequest,
                (format!("`{url}` is not the address of a hub"), format!("`{url}` 不是有效的模型站地址")),
                (
                    "enter an address such as `https://huggingface.co` in the settings",
                    "在设置中填写类似 `https://huggingface.co` 的地址",
                ),
            ),
            Self::BadProxy { address } => failure(
                ErrorCode::BadRequest,
                (format!("`{address}` is not the address of a proxy"), format!("`{address}` 不是有效的代理地址")),
                ("write host and port, such as `127.0.0.1:7890`", "请填写主机和端口，例如 `127.0.0.1:7890`"),
            ),
            Self::ClientNotSetUp { detail } => failure(
                ErrorCode::NoNetwork,
                (format!("secure connections cannot be set up: {detail}"), format!("无法建立安全连接：{detail}")),
                ("check the system's certificates and proxy settings", "检查系统的证书和代理设置"),
            ),
            Self::BadRepoName { repo } => failure(
                ErrorCode::BadRequest,
                (format!("`{repo}` is not the name of a model"), format!("`{repo}` 不是有效的模型名称")),
                ("write it as `publisher/name`", "请按 `发布者/名称` 的格式填写"),
            ),
            Self::BadCursor => failure(
                ErrorCode::BadRequest,
                ("these results belong to another hub".to_owned(), "这些结果来自另一个模型站".to_owned()),
                ("search again", "请重新搜索"),
            ),
            Self::Network { host, fault, .. } => explain_network(host, *fault),
            Self::NotAHub { host, oddity } => explain_oddity(host, oddity),
            Self::NotFound { repo, what } => failure(
                ErrorCode::NotFound,
                match what {
                    Missing::Repo => (
                        format!("there is no model `{repo}`, or it is private"),
                        format!("没有 `{repo}` 这个模型，或者它是私有的"),
                    ),
                    Missing::Revision => (
                        format!("this version of `{repo}` is no longer on the hub"),
                        format!("模型站上已没有 `{repo}` 的这个版本"),
                    ),
                    Missing::File { path } => {
                        (format!("`{repo}` has no file `{path}`"), format!("`{repo}` 中没有文件 `{path}`"))
                    }
                },
                ("search for it again: it may have been renamed or removed", "请重新搜索：它可能已改名或被删除"),
            ),
            Self::Gated { repo, page, token } => explain_gated(repo, page, *token),
            Self::WrongToken => failure(
                ErrorCode::TokenWrong,
                ("the hub does not know the access token".to_owned(), "模型站不认识当前的访问令牌".to_owned()),
                (
                    "make a new one at https://huggingface.co/settings/tokens and enter it in the settings, or remove it: \
                     public models need none",
                    "在 https://huggingface.co/settings/tokens 新建一个并填入设置，或者删除它：公开模型不需要令牌",
                ),
            ),
            Self::RateLimited { wait } => {
                let (wait, wait_zh) = wait_words(wait.unwrap_or(USUAL_WAIT));
                failure(
                    ErrorCode::RateLimited,
                    (
                        format!("the hub asks us to wait {wait}: too many requests"),
                        format!("请求过多，模型站要求等待{wait_zh}"),
                    ),
                    ("try again then; with an access token the limit is higher", "稍后重试；使用访问令牌可以提高上限"),
                )
            }
            Self::Refused { status, message } => {
                let said = if message.is_empty() { String::new() } else { format!(" (`{message}`)") };
                failure(
                    ErrorCode::HubRefused,
                    (format!("the hub answers with error {status}{said}"), format!("模型站返回错误 {status}{said}")),
                    ("try again later", "请稍后重试"),
                )
            }
            Self::BadHeader { source, .. } => source.explain(),
        }
    }
}

/// A wait as people say it; nobody minds how much more than a day.
fn wait_words(wait: Duration) -> (String, String) {
    let seconds = wait.as_secs().max(1);
    match (seconds, seconds.div_ceil(60), seconds.div_ceil(3600)) {
        (1, ..) => ("a second".to_owned(), " 1 秒".to_owned()),
        (seconds @ ..120, ..) => (format!("{seconds} seconds"), format!(" {seconds} 秒")),
        (_, minutes @ ..120, _) => (format!("{minutes} minutes"), format!(" {minutes} 分钟")),
        (.., hours @ ..=24) => (format!("{hours} hours"), format!(" {hours} 小时")),
        _ => ("for more than a day".to_owned(), "一天以上".to_owned()),
    }
}

/// Where the hub does not say.
const USUAL_WAIT: Duration = Duration::from_secs(60);

/// The token is wrong, and what is public is fetched all the same.
pub(super) fn going_on_without_token(host: &str) -> Failure {
    Failure::new(
        ErrorCode::TokenWrong,
        Text::new(
            format!("the access token is wrong: `{host}` does not accept it"),
            format!("访问令牌有误：`{host}` 不接受它"),
        ),
        Text::new(
            "public models are fetched without it; make a new one at https://huggingface.co/settings/tokens for the \
             others, or remove it in the settings",
            "公开模型将不带令牌获取；其他模型请在 https://huggingface.co/settings/tokens 新建令牌，或在设置中删除它",
        ),
    )
}

/// No token, a token that stays here, or a licence that its owner has not accepted: each has a next step of its own.
fn explain_gated(repo: &str, page: &str, token: TokenUse) -> Failure {
    let gated = Text::new(
        format!("the publisher of `{repo}` gives it only to accounts that have accepted its licence"),
        format!("`{repo}` 的发布者只向接受了许可协议的账号提供文件"),
    );
    match token {
        TokenUse::None => Failure::new(
            ErrorCode::TokenMissing,
            gated,
            Text::new(
                format!(
                    "open {page} and accept the licence, make an access token at \
                     https://huggingface.co/settings/tokens, and enter it in the settings"
                ),
                format!(
                    "打开 {page} 接受许可协议，在 https://huggingface.co/settings/tokens 新建访问令牌，然后填入设置"
                ),
            ),
        ),
        TokenUse::Withheld => Failure::new(
            ErrorCode::TokenWithheld,
            gated,
            Text::new(
                "the access token is not sent to a mirror: allow this mirror to have it in the settings, or switch to Hugging Face",
                "访问令牌不会发给镜像站：可在设置中允许发给此镜像站，或改用 Hugging Face",
            ),
        ),
        TokenUse::Sent => Failure::new(
            ErrorCode::LicenceNotAccepted,
            Text::new(
                format!("the account of the access token has not accepted the licence of `{repo}`"),
                format!("访问令牌所属的账号尚未接受 `{repo}` 的许可协议"),
            ),
            Text::new(
                format!(
                    "open {page} with that account, accept the licence, then try again; a fine-grained token also needs \
                     the right to read gated repos"
                ),
                format!("用该账号打开 {page} 接受许可协议，然后重试；细粒度令牌还需要读取受限仓库的权限"),
            ),
        ),
    }
}

fn explain_network(host: &str, fault: NetworkFault) -> Failure {
    let message = match fault {
        NetworkFault::UnknownHost => Text::new(format!("`{host}` cannot be found"), format!("找不到 `{host}`")),
        NetworkFault::CannotConnect => Text::new(format!("no connection to `{host}`"), format!("无法连接到 `{host}`")),
        NetworkFault::Proxy => {
            Text::new(format!("the proxy does not reach `{host}`"), format!("无法通过代理连接 `{host}`"))
        }
        NetworkFault::TimedOut => Text::new(format!("`{host}` does not answer"), format!("`{host}` 没有响应")),
        NetworkFault::Lost => {
            Text::new(format!("the connection to `{host}` was lost"), format!("与 `{host}` 的连接已断开"))
        }
    };
    let hint = match fault {
        NetworkFault::Proxy => Text::new(
            "check that the proxy runs and its address in the settings, or use none",
            "检查代理是否运行、设置中的地址是否正确，或者不使用代理",
        ),
        _ => Text::new(
            "check the internet connection and proxy, or use another source of models",
            "检查网络和代理，或者改用其他模型来源",
        ),
    };
    Failure::new(ErrorCode::NoNetwork, message, hint)
}

fn explain_oddity(host: &str, oddity: &Oddity) -> Failure {
    let message = match oddity {
        Oddity::Html => {
            Text::new(format!("`{host}` sent a web page instead of data"), format!("`{host}` 返回的是网页而不是数据"))
        }
        _ => Text::new(
            format!("`{host}` does not answer as a hub does: {oddity}"),
            format!("`{host}` 的响应不像模型站：{oddity}"),
        ),
    };
    let hint = match oddity {
        Oddity::Html => {
            Text::new("open a browser: the network may want a login first", "打开浏览器看看：当前网络可能需要先登录")
        }
        _ => Text::new(
            "check the address of the hub in the settings, or try again later",
            "检查设置中的模型站地址，或稍后重试",
        ),
    };
    Failure::new(ErrorCode::HubAnswerInvalid, message, hint)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_are_told_as_people_say_them() {
        let en = |seconds| wait_words(Duration::from_secs(seconds)).0;
        assert_eq!(
            [0, 90, 600, 7200, 86_400, 251_606_223_185].map(en),
            ["a second", "90 seconds", "10 minutes", "2 hours", "24 hours", "for more than a day"]
        );
    }
}
