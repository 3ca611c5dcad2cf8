//! The proxy that GNOME's settings name, which programs started from its menus do not find in their environment. Windows
//! and macOS are asked by the HTTP library itself.

use std::process::{Command, Stdio};

/// A proxy and the hosts that are reached without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesktopProxy {
    pub(super) url: String,
    pub(super) direct: String,
}

/// What the desktop says; `None` where there is none, or where the environment, which comes first, names a proxy.
pub(super) fn desktop_proxy() -> Option<DesktopProxy> {
    if !cfg!(target_os = "linux") || VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
        return None;
    }
    let mut command = Command::new("gsettings");
    command.args(["list-recursively", SCHEMA]).stdin(Stdio::null()).stderr(Stdio::null());
    parse(&String::from_utf8(command.output().ok()?.stdout).ok()?)
}

/// Reads what `gsettings list-recursively` prints: a schema, a key and a value per line.
fn parse(text: &str) -> Option<DesktopProxy> {
    let value = |below: &str, key: &str| {
        let start = format!("{SCHEMA}{below} {key} ");
        text.lines().find_map(|line| Some(line.strip_prefix(&start)?.trim().trim_matches('\'')))
    };
    if value("", "mode") != Some("manual") {
        return None;
    }
    let named = |(below, scheme): &(&str, &str)| {
        let (host, port) = (value(below, "host")?, value(below, "port")?.parse::<u16>().ok()?);
        (!host.is_empty() && port > 0).then(|| format!("{scheme}://{host}:{port}"))
    };
    let url = [(".https", "http"), (".socks", "socks5h"), (".http", "http")].iter().find_map(named)?;
    let direct = value("", "ignore-hosts").unwrap_or_default();
    let direct: Vec<&str> =
        direct.trim_matches(['[', ']']).split(',').map(|host| host.trim().trim_matches('\'')).collect();
    Some(DesktopProxy { url, direct: direct.join(",") })
}

const SCHEMA: &str = "org.gnome.system.proxy";
/// As the HTTP library reads them.
const VARIABLES: &[&str] = &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = "org.gnome.system.proxy mode 'manual'
org.gnome.system.proxy ignore-hosts ['localhost', '127.0.0.0/8', '::1']
org.gnome.system.proxy.http host '127.0.0.1'
org.gnome.system.proxy.http port 7890
org.gnome.system.proxy.https host '127.0.0.1'
org.gnome.system.proxy.https port 7891
org.gnome.system.proxy.socks host '127.0.0.1'
org.gnome.system.proxy.socks port 7892
";

    #[test]
    fn the_proxy_for_https_is_taken_then_socks_then_http() {
        let url = |text: &str| parse(text).map(|proxy| proxy.url);
        let without =
            |text: &str, below: &str| text.replace(&format!("{below} host '127.0.0.1'"), &format!("{below} host ''"));
        assert_eq!(parse(MANUAL).unwrap().direct, "localhost,127.0.0.0/8,::1");
        assert_eq!(url(MANUAL).as_deref(), Some("http://127.0.0.1:7891"));
        let no_https = without(MANUAL, ".https");
        assert_eq!(url(&no_https).as_deref(), Some("socks5h://127.0.0.1:7892"));
        let no_socks = without(&no_https, ".socks");
        assert_eq!(url(&no_socks).as_deref(), Some("http://127.0.0.1:7890"));
        assert_eq!(url(&without(&no_socks, ".http")), None);
        assert_eq!(url(&MANUAL.replace("'manual'", "'none'")), None);
        assert_eq!(url("no such schema"), None);
    }
}
