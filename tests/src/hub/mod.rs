//! A hub on loopback: a real HTTP server that answers as the Hugging Face hub does, and misbehaves on demand.
//!
//! It listens twice, as `localhost` (the hub) and as `127.0.0.1` (the host that large files are redirected to), so that
//! a client sees two host names. It records what it was asked. Not a mock of our client: the official Python client
//! lists and downloads from it too.

mod api;
mod body;
mod demo;
mod fault;
mod modelscope;
mod repo;
mod resolve;

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use axum::Router;
use axum::body::Body;
use axum::http::{HeaderMap, Response, StatusCode, Uri, header};
use bytes::Bytes;
use tokio::sync::oneshot;

pub use demo::{demo_repos, demo_sharded_gguf, tiny_gguf};
pub use fault::{Fault, Rule, Seen, Side};
pub use repo::Repo;

use repo::Blob;

/// How to start a test hub.
#[derive(Clone, Debug, Default)]
pub struct TestHubOptions {
    /// Port of the hub; 0: any. The other host's port is any.
    pub port: u16,
    /// Repos served.
    pub repos: Vec<Repo>,
    /// Old names of repos, with the new.
    pub renamed: Vec<(String, String)>,
    /// Tokens the hub knows.
    pub tokens: Vec<String>,
    /// Rate of every file's body; `None`: as fast as it goes.
    pub bytes_per_s: Option<u64>,
    /// Host names of the hub and of the other host, which only a proxy can find; `None`: as on loopback.
    pub names: Option<(String, String)>,
}

/// A running hub; dropping it closes every connection.
pub struct TestHub {
    state: Arc<State>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl TestHub {
    /// Serves these repos on any free port.
    pub fn start(repos: Vec<Repo>) -> Self {
        Self::with(TestHubOptions { repos, ..TestHubOptions::default() }).expect("loopback ports are to be had")
    }

    /// Serves as the options say.
    pub fn with(options: TestHubOptions) -> std::io::Result<Self> {
        let hub = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, options.port)))?;
        let cdn = TcpListener::bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)))?;
        let named = |pick: fn(&(String, String)) -> String, host: String| {
            format!("http://{}", options.names.as_ref().map_or(host, pick))
        };
        let state = Arc::new(State {
            addresses: [hub.local_addr()?, cdn.local_addr()?],
            hub_url: named(|names| names.0.clone(), format!("localhost:{}", hub.local_addr()?.port())),
            cdn_url: named(|names| names.1.clone(), cdn.local_addr()?.to_string()),
            repos: Mutex::new(options.repos.into_iter().map(|repo| (repo.id.clone(), repo)).collect()),
            renamed: options.renamed.into_iter().collect(),
            tokens: options.tokens,
            bytes_per_s: options.bytes_per_s,
            rules: Mutex::default(),
            seen: Mutex::default(),
            link_era: AtomicU64::new(0),
        });
        let (stop, stopped) = oneshot::channel();
        let served = Arc::clone(&state);
        let thread = std::thread::Builder::new().name("test-hub".to_owned()).spawn(move || {
            serve(&served, [hub, cdn], stopped).expect("the test hub serves until it is stopped");
        })?;
        Ok(Self { state, stop: Some(stop), thread: Some(thread) })
    }

    /// Base URL to give to a client.
    pub fn url(&self) -> &str {
        &self.state.hub_url
    }

    /// Where the hub and the other host really are.
    pub fn addresses(&self) -> [SocketAddr; 2] {
        self.state.addresses
    }

    /// Base URL of the host that large files come from.
    pub fn cdn_url(&self) -> &str {
        &self.state.cdn_url
    }

    /// Makes something go wrong from now on. Where several rules meet a request, all apply.
    pub fn fault(&self, rule: Rule) {
        lock(&self.state.rules).push(rule);
    }

    /// Lets everything go well from now on.
    pub fn heal(&self) {
        lock(&self.state.rules).clear();
    }

    /// Adds a repo, or puts another in its place.
    pub fn publish(&self, repo: Repo) {
        lock(&self.state.repos).insert(repo.id.clone(), repo);
    }

    /// Gives a file other content: its hash and the repo's commit change.
    pub fn replace(&self, repo: &str, path: &str, bytes: impl Into<Bytes>) {
        self.state.replace(repo, path, bytes.into());
    }

    /// Lets every signed URL given out so far expire.
    pub fn expire_links(&self) {
        self.state.link_era.fetch_add(1, Ordering::AcqRel);
    }

    /// Commit of a repo.
    pub fn commit(&self, repo: &str) -> String {
        lock(&self.state.repos)[repo].commit()
    }

    /// SHA256 of a file.
    pub fn sha256(&self, repo: &str, path: &str) -> String {
        lock(&self.state.repos)[repo].files[path].sha256().to_owned()
    }

    /// What was asked so far, in order.
    pub fn seen(&self) -> Vec<Arc<Seen>> {
        lock(&self.state.seen).clone()
    }

    /// GETs of a file's content from the second host, in order.
    pub fn fetches(&self, path: &str) -> Vec<Arc<Seen>> {
        let is_meant = |seen: &Arc<Seen>| seen.side == Side::Cdn && seen.method == "GET" && seen.path.ends_with(path);
        self.seen().into_iter().filter(is_meant).collect()
    }

    /// Waits until the process is stopped.
    pub fn join(mut self) {
        if let Some(thread) = self.thread.take() {
            thread.join().expect("the test hub serves until it is stopped");
        }
    }
}

impl Drop for TestHub {
    fn drop(&mut self) {
        if let Some(stop) = self.stop.take() {
            // The thread may have ended by itself; then nobody listens.
            let _ = stop.send(());
        }
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// What both servers share.
struct State {
    addresses: [SocketAddr; 2],
    hub_url: String,
    cdn_url: String,
    repos: Mutex<BTreeMap<String, Repo>>,
    renamed: BTreeMap<String, String>,
    tokens: Vec<String>,
    bytes_per_s: Option<u64>,
    rules: Mutex<Vec<Rule>>,
    seen: Mutex<Vec<Arc<Seen>>>,
    link_era: AtomicU64,
}

impl State {
    fn repo(&self, id: &str) -> Option<Repo> {
        lock(&self.repos).get(id).cloned()
    }

    fn replace(&self, repo: &str, path: &str, bytes: Bytes) {
        let mut repos = lock(&self.repos);
        let repo = repos.get_mut(repo).expect("a repo to change");
        repo.files.insert(path.to_owned(), Arc::new(Blob::memory(bytes)));
    }

    /// Records a request; the faults that befall it. Replacements are carried out here.
    fn admit(&self, side: Side, method: &str, uri: &Uri, headers: &HeaderMap) -> (Arc<Seen>, Vec<Fault>) {
        let path = percent_encoding::percent_decode_str(uri.path()).decode_utf8_lossy().into_owned();
        let text = |name| headers.get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        let seen = Arc::new(Seen {
            side,
            method: method.to_owned(),
            path: path.clone(),
            query: uri.query().unwrap_or_default().to_owned(),
            range: text(header::RANGE),
            if_range: text(header::IF_RANGE),
            authorization: text(header::AUTHORIZATION),
            sent_bytes: AtomicU64::new(0),
        });
        lock(&self.seen).push(Arc::clone(&seen));
        let strike = |rule: &mut Rule| rule.strike(&seen);
        let faults: Vec<Fault> = lock(&self.rules).iter_mut().filter_map(strike).collect();
        for fault in &faults {
            if let Fault::Replace { bytes } = fault {
                let (repo, file) = resolve::repo_and_file(&path).expect("only files can be replaced");
                self.replace(&repo, &file, bytes.clone());
            }
        }
        (seen, faults)
    }
}

fn serve(state: &Arc<State>, listeners: [TcpListener; 2], stopped: oneshot::Receiver<()>) -> std::io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let routers = [api::router().merge(modelscope::router()).merge(resolve::hub_router()), resolve::cdn_router()];
    runtime.block_on(async {
        for (listener, router) in listeners.into_iter().zip(routers) {
            listener.set_nonblocking(true)?;
            let listener = tokio::net::TcpListener::from_std(listener)?;
            let router: Router = router.with_state(Arc::clone(state));
            tokio::spawn(async move { axum::serve(listener, router).await });
        }
        // A dropped sender stops the hub as well.
        let _ = stopped.await;
        Ok(())
    })
}

/// An answer that only the faults decide, if they do.
fn faulty_answer(faults: &[Fault], uri: &Uri) -> Option<Response<Body>> {
    let plain = |status: u16| Response::builder().status(status);
    faults.iter().find_map(|fault| {
        let answer = match fault {
            Fault::Html => {
                let page = "<!DOCTYPE html><html><body><h1>Welcome to the hotel network</h1></body></html>";
                plain(200).header(header::CONTENT_TYPE, "text/html; charset=utf-8").body(Body::from(page))
            }
            Fault::RedirectLoop => plain(302).header(header::LOCATION, uri.to_string()).body(Body::empty()),
            Fault::Status { status, headers } => {
                let answer = headers.iter().fold(plain(*status), |answer, (name, value)| answer.header(*name, value));
                answer.body(Body::empty())
            }
            _ => return None,
        };
        Some(answer.expect("plain headers"))
    })
}

/// Takes away what the faults take away, and adds what every answer of the hub carries.
fn finish(mut answer: Response<Body>, faults: &[Fault]) -> Response<Body> {
    for fault in faults {
        if let Fault::WithoutHeader { name } = fault {
            answer.headers_mut().remove(*name);
        }
    }
    if answer.status() != StatusCode::TOO_MANY_REQUESTS {
        let limit = header::HeaderValue::from_static("\"api\";r=499;t=300");
        answer.headers_mut().insert("ratelimit", limit);
    }
    answer
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
