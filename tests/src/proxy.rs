//! A proxy on loopback: HTTP (requests in absolute form, and tunnels by CONNECT) and SOCKS5 on one port, told apart by the
//! first byte. It alone knows where its hosts are, so that whoever reaches them went through it.

use std::collections::BTreeMap;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex, PoisonError};

/// A running proxy; it serves until the test's process ends.
pub struct TestProxy {
    address: SocketAddr,
    state: Arc<State>,
}

struct State {
    /// `host:port`, and what answers there.
    hosts: BTreeMap<String, SocketAddr>,
    seen: Mutex<Vec<String>>,
}

impl TestProxy {
    /// Serves these hosts, each a `host:port`, and no others.
    pub fn start(hosts: impl IntoIterator<Item = (String, SocketAddr)>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("loopback ports are to be had");
        let address = listener.local_addr().expect("a bound listener has an address");
        let state = Arc::new(State { hosts: hosts.into_iter().collect(), seen: Mutex::default() });
        let served = Arc::clone(&state);
        std::thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let state = Arc::clone(&served);
                // A client that goes away ends its own connection only.
                std::thread::spawn(move || drop(serve(&state, client)));
            }
        });
        Self { address, state }
    }

    /// `host:port` of the proxy.
    pub fn address(&self) -> String {
        self.address.to_string()
    }

    /// What was asked of it, in order: how, and for which `host:port`.
    pub fn seen(&self) -> Vec<String> {
        self.state.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

impl State {
    fn note(&self, how: &str, host: &str) {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).push(format!("{how} {host}"));
    }

    fn connect(&self, host: &str) -> Option<TcpStream> {
        TcpStream::connect(self.hosts.get(host)?).ok()
    }
}

fn serve(state: &State, client: TcpStream) -> io::Result<()> {
    let mut first = [0];
    client.peek(&mut first)?;
    if first[0] == SOCKS5 { serve_socks(state, client) } else { serve_http(state, client) }
}

fn serve_http(state: &State, mut client: TcpStream) -> io::Result<()> {
    let mut reader = BufReader::new(client.try_clone()?);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line)? == 0 {
            return Ok(());
        }
        if line.trim().is_empty() {
            break;
        }
        head.push(line.trim_end().to_owned());
    }
    let odd = || io::Error::new(io::ErrorKind::InvalidData, "not a request to a proxy");
    let mut words = head[0].split(' ');
    let (method, target) = (words.next().ok_or_else(odd)?, words.next().ok_or_else(odd)?);
    if method == "CONNECT" {
        state.note("CONNECT", target);
        let Some(host) = state.connect(target) else { return refuse(&mut client) };
        client.write_all(b"HTTP/1.1 200 Connection established\r\n\r\n")?;
        return tunnel(client, host);
    }
    let rest = target.strip_prefix("http://").ok_or_else(odd)?;
    let (name, path) = rest.split_at(rest.find('/').unwrap_or(rest.len()));
    let with_port = if name.contains(':') { name.to_owned() } else { format!("{name}:80") };
    state.note("HTTP", &with_port);
    let Some(mut host) = state.connect(&with_port) else { return refuse(&mut client) };
    write!(host, "{method} {path} HTTP/1.1\r\nconnection: close\r\n")?;
    let is_for_host = |line: &&String| {
        let name = line.split(':').next().unwrap_or_default().to_ascii_lowercase();
        !name.starts_with("proxy-") && name != "connection"
    };
    for line in head[1..].iter().filter(is_for_host) {
        write!(host, "{line}\r\n")?;
    }
    host.write_all(b"\r\n")?;
    io::copy(&mut host, &mut client)?;
    client.shutdown(Shutdown::Both)
}

fn refuse(client: &mut TcpStream) -> io::Result<()> {
    client.write_all(b"HTTP/1.1 502 Bad Gateway\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
}

/// RFC 1928, without a password, for hosts by name.
fn serve_socks(state: &State, mut client: TcpStream) -> io::Result<()> {
    let mut greeting = [0; 2];
    client.read_exact(&mut greeting)?;
    client.read_exact(&mut vec![0; usize::from(greeting[1])])?;
    client.write_all(&[SOCKS5, 0])?;
    let mut request = [0; 4];
    client.read_exact(&mut request)?;
    if request[3] != BY_NAME {
        return client.write_all(&[SOCKS5, 8, 0, 1, 0, 0, 0, 0, 0, 0]);
    }
    let mut length = [0];
    client.read_exact(&mut length)?;
    let mut rest = vec![0; usize::from(length[0]) + 2];
    client.read_exact(&mut rest)?;
    let (name, port) = rest.split_at(rest.len() - 2);
    let target = format!("{}:{}", String::from_utf8_lossy(name), u16::from_be_bytes([port[0], port[1]]));
    state.note("SOCKS5", &target);
    let Some(host) = state.connect(&target) else {
        return client.write_all(&[SOCKS5, 4, 0, 1, 0, 0, 0, 0, 0, 0]);
    };
    client.write_all(&[SOCKS5, 0, 0, 1, 0, 0, 0, 0, 0, 0])?;
    tunnel(client, host)
}

fn tunnel(client: TcpStream, host: TcpStream) -> io::Result<()> {
    let (mut from_client, mut to_client) = (client.try_clone()?, client);
    let (mut from_host, mut to_host) = (host.try_clone()?, host);
    let upstream = std::thread::spawn(move || {
        let copied = io::copy(&mut from_client, &mut to_host);
        copied.and_then(|_| to_host.shutdown(Shutdown::Write))
    });
    io::copy(&mut from_host, &mut to_client)?;
    to_client.shutdown(Shutdown::Both)?;
    upstream.join().expect("copying does not panic")
}

const SOCKS5: u8 = 5;
const BY_NAME: u8 = 3;
