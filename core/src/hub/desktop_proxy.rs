//! The proxy that the desktop's settings name, which programs started from its menus do not find in their environment: of
//! GNOME and its kin, and of KDE. Windows and macOS are asked by the HTTP library itself.

use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Once;

/// A proxy and the hosts that are reached without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct DesktopProxy {
    pub(super) url: String,
    pub(super) direct: String,
}

/// What a desktop's settings say.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Nothing,
    Manual(DesktopProxy),
    /// A script, or whoever answers on the network, names a proxy per address: that is not read here.
    Automatic,
}

/// What the desktop says; `None` where there is none, or where the environment, which comes first, names a proxy.
pub(super) fn desktop_proxy() -> Option<DesktopProxy> {
    if !cfg!(target_os = "linux") || VARIABLES.iter().any(|name| std::env::var_os(name).is_some()) {
        return None;
    }
    let is_kde = std::env::var("XDG_CURRENT_DESKTOP").is_ok_and(|names| names.split(':').any(|name| name == "KDE"));
    let said = if is_kde { of_kde() } else { of_gnome() };
    match said.unwrap_or(Said::Nothing) {
        Said::Manual(proxy) => Some(proxy),
        Said::Nothing => None,
        Said::Automatic => {
            TOLD_OF_AUTOMATIC.call_once(|| {
                tracing::warn!(
                    "the desktop finds its proxy by a script (PAC) or by itself, which Tandem does not read: connections \
                     are direct unless a proxy is set in Tandem's settings"
                );
            });
            None
        }
    }
}

fn of_gnome() -> Option<Said> {
    let mut command = Command::new("gsettings");
    command.args(["list-recursively", SCHEMA]).stdin(Stdio::null()).stderr(Stdio::null());
    Some(parse_gnome(&String::from_utf8(command.output().ok()?.stdout).ok()?))
}

fn of_kde() -> Option<Said> {
    let home = || Some(PathBuf::from(std::env::var_os("HOME")?).join(".config"));
    let config =
        std::env::var_os("XDG_CONFIG_HOME").filter(|path| !path.is_empty()).map(PathBuf::from).or_else(home)?;
    Some(parse_kde(&std::fs::read_to_string(config.join("kioslaverc")).ok()?))
}

/// Reads what `gsettings list-recursively` prints: a schema, a key and a value per line.
fn parse_gnome(text: &str) -> Said {
    let value = |below: &str, key: &str| {
        let start = format!("{SCHEMA}{below} {key} ");
        text.lines().find_map(|line| Some(line.strip_prefix(&start)?.trim().trim_matches('\'')))
    };
    match value("", "mode") {
        Some("manual") => {}
        Some("auto") => return Said::Automatic,
        _ => return Said::Nothing,
    }
    let named = |(below, scheme): &(&str, &str)| {
        let (host, port) = (value(below, "host")?, value(below, "port")?.parse::<u16>().ok()?);
        (!host.is_empty() && port > 0).then(|| format!("{scheme}://{host}:{port}"))
    };
    let url = [(".https", "http"), (".socks", "socks5h"), (".http", "http")].iter().find_map(named);
    let direct = value("", "ignore-hosts").unwrap_or_default();
    let direct: Vec<&str> =
        direct.trim_matches(['[', ']']).split(',').map(|host| host.trim().trim_matches('\'')).collect();
    url.map_or(Said::Nothing, |url| Said::Manual(DesktopProxy { url, direct: direct.join(",") }))
}

/// Reads `kioslaverc`: `key=value` below `[Proxy Settings]`; a proxy is `http://host port` or `http://host:port`.
fn parse_kde(text: &str) -> Said {
    let lines = || text.lines().map(str::trim).skip_while(|line| *line != "[Proxy Settings]").skip(1);
    let value = |key: &str| {
        let mut own = lines().take_while(|line| !line.starts_with('['));
        own.find_map(|line| line.split_once('=').filter(|(name, _)| name.trim() == key)).map(|(_, value)| value.trim())
    };
    match value("ProxyType") {
        Some("1") => {}
        Some("2" | "3") => return Said::Automatic,
        _ => return Said::Nothing,
    }
    let named = |(key, scheme): &(&str, &str)| {
        let address = value(key)?;
        let bare = address.split_once("://").map_or(address, |(_, bare)| bare).trim_end_matches('/');
        let (host, port) = bare.rsplit_once([' ', ':'])?;
        let port = port.parse::<u16>().ok().filter(|port| *port > 0)?;
        (!host.is_empty()).then(|| format!("{scheme}://{}:{port}", host.trim()))
    };
    let url = [("httpsProxy", "http"), ("socksProxy", "socks5h"), ("httpProxy", "http")].iter().find_map(named);
    // Turned round, the list names the hosts that the proxy is for.
    let is_turned_round = value("ReversedException") == Some("true");
    let direct = value("NoProxyFor").filter(|_| !is_turned_round).unwrap_or_default();
    url.map_or(Said::Nothing, |url| Said::Manual(DesktopProxy { url, direct: direct.to_owned() }))
}

static TOLD_OF_AUTOMATIC: Once = Once::new();
const SCHEMA: &str = "org.gnome.system.proxy";
/// As the HTTP library reads them.
const VARIABLES: &[&str] = &["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];

#[cfg(test)]
mod tests {
    use super::*;

    const GNOME: &str = "org.gnome.system.proxy mode 'manual'
org.gnome.system.proxy ignore-hosts ['localhost', '127.0.0.0/8', '::1']
org.gnome.system.proxy.http host '127.0.0.1'
org.gnome.system.proxy.http port 7890
org.gnome.system.proxy.https host '127.0.0.1'
org.gnome.system.proxy.https port 7891
org.gnome.system.proxy.socks host '127.0.0.1'
org.gnome.system.proxy.socks port 7892
";

    const KDE: &str = "[$Version]
update_info=kioslave.upd

[Proxy Settings]
NoProxyFor=localhost,127.0.0.1
Proxy Config Script=
ProxyType=1
ReversedException=false
ftpProxy=
httpProxy=http://127.0.0.1 7890
httpsProxy=http://127.0.0.1:7891/
socksProxy=socks://127.0.0.1 7892

[Other]
httpsProxy=http://elsewhere 1
";

    fn url(said: Said) -> Option<String> {
        match said {
            Said::Manual(proxy) => Some(proxy.url),
            Said::Nothing | Said::Automatic => None,
        }
    }

    #[test]
    fn the_proxy_for_https_is_taken_then_socks_then_http() {
        let without =
            |text: &str, below: &str| text.replace(&format!("{below} host '127.0.0.1'"), &format!("{below} host ''"));
        let said =
            DesktopProxy { url: "http://127.0.0.1:7891".to_owned(), direct: "localhost,127.0.0.0/8,::1".to_owned() };
        assert_eq!(parse_gnome(GNOME), Said::Manual(said));
        let no_https = without(GNOME, ".https");
        assert_eq!(url(parse_gnome(&no_https)).as_deref(), Some("socks5h://127.0.0.1:7892"));
        let no_socks = without(&no_https, ".socks");
        assert_eq!(url(parse_gnome(&no_socks)).as_deref(), Some("http://127.0.0.1:7890"));
        assert_eq!(parse_gnome(&without(&no_socks, ".http")), Said::Nothing);
        assert_eq!(parse_gnome(&GNOME.replace("'manual'", "'none'")), Said::Nothing);
        assert_eq!(parse_gnome(&GNOME.replace("'manual'", "'auto'")), Said::Automatic);
        assert_eq!(parse_gnome("no such schema"), Said::Nothing);
    }

    #[test]
    fn kdes_settings_are_read_as_kde_writes_them() {
        let said = DesktopProxy { url: "http://127.0.0.1:7891".to_owned(), direct: "localhost,127.0.0.1".to_owned() };
        assert_eq!(parse_kde(KDE), Said::Manual(said));
        let no_https = KDE.replace("httpsProxy=http://127.0.0.1:7891/", "httpsProxy=");
        assert_eq!(url(parse_kde(&no_https)).as_deref(), Some("socks5h://127.0.0.1:7892"));
        let no_socks = no_https.replace("socksProxy=socks://127.0.0.1 7892", "");
        assert_eq!(url(parse_kde(&no_socks)).as_deref(), Some("http://127.0.0.1:7890"));
        assert_eq!(parse_kde(&no_socks.replace("7890", "0")), Said::Nothing);
        for (kind, expected) in
            [("0", Said::Nothing), ("2", Said::Automatic), ("3", Said::Automatic), ("4", Said::Nothing)]
        {
            assert_eq!(parse_kde(&KDE.replace("ProxyType=1", &format!("ProxyType={kind}"))), expected, "{kind}");
        }
        assert_eq!(parse_kde("[Other]\nProxyType=1"), Said::Nothing);
    }
}
