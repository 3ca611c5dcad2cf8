//! The app as a whole: opens the data folder, builds every part once, joins them, and tells watchers what changes.
//!
//! What goes wrong at start but need not keep anybody from chatting (a full disk, a damaged database) becomes a notice.

use std::fs::{File, TryLockError};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use tandem_engine::Flow;
use tandem_engine::error::EngineError;

use crate::calibrate::{self, Calibrator, Surroundings};
use crate::chat::{Answer, Chats, Question, answer};
use crate::download::{Disk as _, DownloadLimits, DownloadOptions, DownloadUpdate, Downloads, Ledger, RealDisk};
use crate::error::{Explain, FileAction, FileError, bad_request};
use crate::hardware::{ProbeOptions, Prober};
use crate::hub::{HeaderCache, Hub, HubError};
use crate::library::{Environment, Library, LibraryError, Trash};
use crate::paths::Paths;
use crate::preview::Previews;
use crate::runtime::{Change, Runtime};
use crate::store::{Opened, Store, StoreError, now_ms};
use crate::token::{GivenToken, KeyStore, SystemKeyStore, Tokens};
use crate::tune::{self, Bench, Tuner};
use crate::wire::{
    AppEvent, AppInfo, CalibrationState, ChatEvent, DownloadState, Drag, ErrorCode, Failure, Gauges, HubSource,
    LibraryModel, LoadRequest, Phase, Role, Sampling, Settings, Text, Tuning,
};

mod hubs;

const GAUGES_EVERY: Duration = Duration::from_secs(1);
const LOCK: &str = "tandem.lock";
/// With less, the next thing to be kept may fail.
const LEAST_FREE_BYTES: u64 = 1 << 20;

/// How to open the app; `Default` is what a person gets.
#[derive(Clone, Debug, Default)]
pub struct AppOptions {
    /// Where everything lies; `None`: the platform's usual places.
    pub paths: Option<Paths>,
    /// Hub to use where the settings name none.
    pub hub_url: Option<String>,
    /// Hub to use whatever the settings name.
    pub forced_hub_url: Option<String>,
    /// Access token found in the environment; one that a person enters comes before it.
    pub given_token: Option<GivenToken>,
    /// Keeps the token that a person enters; `None`: the system's key store.
    pub key_store: Option<Arc<dyn KeyStore>>,
    /// Sources to know by name; `None`: those that everybody knows, unless the hub to use is on this machine.
    pub sources: Option<Vec<HubSource>>,
    /// NVML library to use instead of the system's.
    pub nvml_path: Option<PathBuf>,
    /// Where removed models go; `None`: the system's trash.
    pub trash: Option<PathBuf>,
    /// Where other programs may keep models; by default nowhere.
    pub environment: Environment,
    /// When this machine's speed is measured.
    pub calibration: Calibration,
}

/// When the machine's speed is measured.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Calibration {
    /// When somebody asks.
    #[default]
    OnRequest,
    /// Also in the background of the first start on a machine.
    AtFirstStart,
}

/// Why the app cannot be opened.
#[derive(Debug, thiserror::Error)]
pub enum AppError {
    /// Another process has the data folder.
    #[error("another copy of the app uses `{}`", data_dir.display())]
    AlreadyRunning {
        /// The folder.
        data_dir: PathBuf,
    },
    /// The system names no folder for data.
    #[error("the system names no home folder")]
    NoHome,
    /// Not even in memory can a database be made.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The library cannot be read.
    #[error(transparent)]
    Library(#[from] LibraryError),
    /// The hub's address makes no sense.
    #[error(transparent)]
    Hub(#[from] HubError),
    /// The engine's thread cannot be started.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Everything that runs behind the window.
pub struct App {
    pub(crate) store: Arc<Store>,
    pub(crate) library: Arc<Library>,
    pub(crate) runtime: Arc<Runtime>,
    pub(crate) chats: Arc<Chats>,
    pub(crate) prober: Arc<Prober>,
    pub(crate) previews: Arc<Previews>,
    pub(crate) calibrator: Calibrator,
    pub(crate) tuner: Tuner,
    pub(crate) tokens: Arc<Tokens>,
    options: AppOptions,
    paths: Paths,
    remote: Arc<Mutex<Remote>>,
    watchers: Arc<Watchers>,
    notices: Vec<Failure>,
    wake: Sender<Wake>,
    gauger: Mutex<Option<JoinHandle<()>>>,
    this: Weak<Self>,
    /// Held as long as the app lives.
    _lock: Option<File>,
}

/// What depends on the settings: which hub, and where its files go.
#[derive(Clone)]
pub(crate) struct Remote {
    pub(crate) hub: Arc<Hub>,
    pub(crate) downloads: Arc<Downloads>,
    pub(crate) models_dir: PathBuf,
}

/// Where the app's events go; `Break` ends the watching.
pub type AppSink = Box<dyn FnMut(AppEvent) -> Flow + Send>;

/// All who watch.
#[derive(Default)]
struct Watchers {
    sinks: Mutex<Vec<AppSink>>,
}

/// What the thread that tells the gauges hears.
enum Wake {
    /// They are wanted before their time.
    Now,
    /// The app ends.
    End,
}

impl App {
    /// Opens the app. Must be called inside a tokio runtime; blocks while files are read.
    pub fn open(options: AppOptions) -> Result<Arc<Self>, AppError> {
        let paths = options.paths.clone().or_else(Paths::standard).ok_or(AppError::NoHome)?;
        let mut notices: Vec<Failure> = paths.create().iter().map(Explain::explain).collect();
        let lock = lock_data_dir(&paths.data_dir, &mut notices)?;
        let Opened { store, notices: of_store } = Store::open(&paths.database)?;
        notices.extend(of_store);
        tell_of_full_disk(&paths.data_dir, &mut notices);
        let store = Arc::new(store);
        let settings = store.settings()?;

        let watchers = Arc::<Watchers>::default();
        let prober = Arc::new(Prober::new(ProbeOptions { nvml_path: options.nvml_path.clone() }));
        let models_dir = models_dir(&paths, &settings);
        let trash = options.trash.clone().map_or(Trash::System, Trash::Folder);
        let previews = Arc::<Previews>::default();
        let (to_library, to_previews) = (Arc::clone(&watchers), Arc::clone(&previews));
        let headers = HeaderCache::new(&paths.cache_dir);
        let on_library = Box::new(move |models: Vec<LibraryModel>| {
            to_previews.prove(&headers, &models);
            to_library.tell(&AppEvent::Library { models });
        });
        let around = options.environment.clone();
        let library = Arc::new(Library::open(Arc::clone(&store), &models_dir, trash, around, on_library)?);
        look_around(&library)?;
        let (wake, woken) = channel();
        let (to_runtime, wake_gauges) = (Arc::clone(&watchers), wake.clone());
        let (learned, prober_of_runtime) = (Arc::clone(&store), Arc::clone(&prober));
        let on_runtime = Box::new(move |change| {
            // Nobody listens any more when the app ends.
            let _ = wake_gauges.send(Wake::Now);
            match change {
                Change::State(state) => to_runtime.tell(&AppEvent::Runtime { state }),
                Change::Phase => {}
                Change::Answered(outcome) => {
                    if let Err(error) = calibrate::learn(&learned, &prober_of_runtime, &outcome) {
                        tracing::warn!(%error, "what an answer taught cannot be kept");
                    }
                }
            }
        });
        let runtime = Arc::new(Runtime::new(Arc::clone(&library), Arc::clone(&prober), on_runtime)?);
        let chats = Arc::new(Chats::open(Arc::clone(&store), Arc::clone(&runtime)));
        let key_store = options.key_store.clone().unwrap_or_else(|| Arc::new(SystemKeyStore));
        let tokens = Arc::new(Tokens::open(&paths.data_dir, key_store, options.given_token.clone()));
        let hub = hubs::hub_of_settings(&options, &paths, &settings, &tokens, &watchers)?;
        let remote = Remote::open(hub, models_dir, &library, &watchers)?;
        remote.downloads.set_limits(limits(&settings));

        let remote = Arc::new(Mutex::new(remote));
        let calibrator = calibrator(&store, &prober, &runtime, &remote, &watchers);
        if options.calibration == Calibration::AtFirstStart && calibrator.state() == CalibrationState::Absent {
            calibrator.begin()?;
        }
        let gauger = start_gauges(Arc::clone(&prober), Arc::clone(&runtime), Arc::clone(&watchers), woken)?;
        let app = Arc::new_cyclic(|this| Self {
            store,
            library,
            runtime,
            chats,
            prober,
            previews,
            calibrator,
            tuner: Tuner::default(),
            tokens,
            options,
            paths,
            remote,
            watchers,
            notices,
            wake,
            gauger: Mutex::new(Some(gauger)),
            this: Weak::clone(this),
            _lock: lock,
        });
        app.recall_token();
        if let Err(failure) = app.store.settings().map_err(Failure::from).and_then(|kept| app.use_mirrors(&kept)) {
            tracing::warn!(message = %failure.message.en, "no other source for downloads");
        }
        Ok(app)
    }

    /// What a person should know about this start.
    pub fn notices(&self) -> &[Failure] {
        &self.notices
    }

    /// From now on tells `sink` what changes, until it answers `Break`. The gauges follow at once.
    pub fn subscribe(&self, sink: AppSink) {
        lock_of(&self.watchers.sinks).push(sink);
        // Nobody listens any more when the app ends.
        let _ = self.wake.send(Wake::Now);
    }

    /// Stops the check of a model, from any thread.
    pub fn stop_verify(&self, model_id: &str) {
        self.library.stop_verify(model_id);
    }

    /// Tells the page what is dragged over the window, which only the window itself hears of.
    pub fn tell_drag(&self, drag: Drag) {
        self.watchers.tell(&AppEvent::Drag { drag });
    }

    /// What the window needs at start. Blocks while the machine is measured.
    pub fn info(&self) -> Result<AppInfo, Failure> {
        let remote = self.remote();
        let settings = self.store.settings()?;
        Ok(AppInfo {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            source: hubs::chosen(&self.options, &settings),
            sources: hubs::known(&self.options),
            settings,
            hub_url: remote.hub.base_url().to_owned(),
            data_dir: self.paths.data_dir.display().to_string(),
            models_dir: remote.models_dir.display().to_string(),
            hardware: self.prober.hardware(&remote.models_dir),
            runtime: self.runtime.state(),
            notices: self.notices.clone(),
        })
    }

    /// Asks the loaded model without keeping anything. Blocks until the answer has ended.
    ///
    /// on       gets what comes; `Break` stops
    /// Errors   only where there is no answer to speak of: nothing is loaded, or another answer is being written
    pub fn ask(
        &self,
        messages: &[(Role, &str)],
        sampling: &Sampling,
        on: &mut dyn FnMut(ChatEvent) -> Flow,
    ) -> Result<Answer, Failure> {
        let engine = self.runtime.begin()?;
        let settings = self.store.settings()?;
        let question = Question { messages, sampling: &[sampling, &settings.sampling], stops: &[] };
        Ok(answer(&engine, &question, &mut |progress| on(progress.event)))
    }

    /// What auto-tune works with.
    pub(crate) fn bench(&self) -> Bench {
        let (runtime, store, prober) = (&self.runtime, &self.store, &self.prober);
        Bench { runtime: Arc::clone(runtime), store: Arc::clone(store), prober: Arc::clone(prober) }
    }

    /// What auto-tune found for a request, if it was made here.
    pub(crate) fn tuning(&self, request: &LoadRequest) -> Option<Tuning> {
        tune::tuning(&self.store, &self.prober.hardware(&self.remote().models_dir), request)
    }

    /// A request with what was found fastest where it leaves a choice.
    pub(crate) fn tuned(&self, request: LoadRequest) -> LoadRequest {
        match self.tuning(&request) {
            Some(tuning) => LoadRequest { wishes: tune::tuned(&request.wishes, &tuning), ..request },
            None => request,
        }
    }

    /// Keeps the settings and acts on them. Must be called inside a tokio runtime; blocks while files are read.
    pub fn set_settings(&self, settings: &Settings) -> Result<(), Failure> {
        let before = self.store.settings()?;
        let is_moved = settings.models_dir != before.models_dir;
        if is_moved {
            self.check_models_dir(settings)?;
        }
        if hubs::is_other_network(settings, &before) {
            self.use_hub(settings)?;
        }
        if is_moved {
            let models_dir = models_dir(&self.paths, settings);
            std::fs::create_dir_all(&models_dir).map_err(FileError::at(FileAction::Write, &models_dir))?;
            let mut remote = lock_of(&self.remote);
            *remote = Remote::open(Arc::clone(&remote.hub), models_dir.clone(), &self.library, &self.watchers)?;
            drop(remote);
            self.library.set_models_dir(&models_dir);
            self.use_mirrors(settings)?;
        }
        self.remote().downloads.set_limits(limits(settings));
        Ok(self.store.set_settings(settings)?)
    }

    /// Refuses a folder that would mean another one from elsewhere, and any change while downloads lie in the present one.
    fn check_models_dir(&self, settings: &Settings) -> Result<(), Failure> {
        let chosen = models_dir(&self.paths, settings);
        if !chosen.is_absolute() {
            let shown = chosen.display();
            return Err(bad_request(format!("`{shown}` is not a full path"), format!("`{shown}` 不是完整路径")));
        }
        let downloads = Arc::clone(&lock_of(&self.remote).downloads);
        if downloads.list().iter().any(|download| download.state != DownloadState::Done) {
            return Err(Failure::new(
                ErrorCode::Busy,
                Text::new("a download into the present models folder is unfinished", "当前模型文件夹中有未完成的下载"),
                Text::new(
                    "let it finish or cancel it, then choose the folder",
                    "等待其完成或将其取消，然后再选择文件夹",
                ),
            ));
        }
        Ok(())
    }

    /// Ends everything that runs and frees the model. Blocks until that is done; what can go on later is kept. Dropping
    /// the app does the same.
    pub fn shutdown(&self) {
        self.tuner.stop();
        self.calibrator.skip();
        self.runtime.unload();
        self.runtime.wait_until_idle();
        if let Some(gauger) = lock_of(&self.gauger).take() {
            // Ended already if either fails.
            let _ = self.wake.send(Wake::End);
            let _ = gauger.join();
        }
    }

    /// Pauses what is being downloaded, then the same as [`App::shutdown`] without blocking the async runtime.
    pub async fn close(&self) {
        self.remote().downloads.close().await;
        let app = self.handle();
        // A panic in there has been logged, and the app ends anyway.
        let _ = tokio::task::spawn_blocking(move || app.shutdown()).await;
    }

    /// The app as something that a blocking thread can hold.
    pub(crate) fn handle(&self) -> Arc<Self> {
        self.this.upgrade().expect("borrowed, so somebody holds it")
    }

    pub(crate) fn remote(&self) -> Remote {
        lock_of(&self.remote).clone()
    }
}

impl Drop for App {
    fn drop(&mut self) {
        self.shutdown();
    }
}

impl Remote {
    fn open(
        hub: Arc<Hub>,
        models_dir: PathBuf,
        library: &Arc<Library>,
        watchers: &Arc<Watchers>,
    ) -> Result<Self, AppError> {
        // Taking a model in reads its file: not on a thread of the async runtime. Ends with the downloads.
        let (sender, updates) = channel();
        let options =
            DownloadOptions { ledger: Ledger::new(library.store()), trash: library.trash(), ..Default::default() };
        let (library, watchers) = (Arc::downgrade(library), Arc::clone(watchers));
        let this = Arc::<OnceLock<Weak<Downloads>>>::default();
        let downloads = Arc::clone(&this);
        let follow = move || {
            updates.into_iter().for_each(|update| on_download(&library, downloads.wait(), &watchers, update));
        };
        std::thread::Builder::new().name("tandem-downloads".to_owned()).spawn(follow).map_err(EngineError::Thread)?;
        let sink = Arc::new(move |update| {
            // The thread lives as long as this sender.
            let _ = sender.send(update);
        });
        let downloads = Arc::new(Downloads::open_with(Arc::clone(&hub), models_dir.clone(), options, sink));
        // It is empty: it was made above. The thread waits for it.
        let _ = this.set(Arc::downgrade(&downloads));
        Ok(Self { hub, downloads, models_dir })
    }
}

impl Watchers {
    fn tell(&self, event: &AppEvent) {
        lock_of(&self.sinks).retain_mut(|sink| sink(event.clone()) == Flow::Continue);
    }
}

impl Explain for AppError {
    fn explain(&self) -> Failure {
        match self {
            Self::AlreadyRunning { data_dir } => Failure::new(
                ErrorCode::AlreadyRunning,
                Text::new(
                    format!("another copy of Tandem uses `{}`", data_dir.display()),
                    format!("另一个 Tandem 正在使用 `{}`", data_dir.display()),
                ),
                Text::new("use that window, or close it first", "使用已打开的窗口，或者先将其关闭"),
            ),
            Self::NoHome => Failure::new(
                ErrorCode::Io,
                Text::new("the system names no home folder", "系统没有指定用户文件夹"),
                Text::new("name a data folder when starting the app", "启动应用时指定数据文件夹"),
            ),
            Self::Store(error) => error.explain(),
            Self::Library(error) => error.explain(),
            Self::Hub(error) => error.explain(),
            Self::Engine(error) => error.explain(),
        }
    }
}

/// Takes the data folder for this process. The system frees the lock when the process ends, however it ends.
fn lock_data_dir(data_dir: &Path, notices: &mut Vec<Failure>) -> Result<Option<File>, AppError> {
    let path = data_dir.join(LOCK);
    let locked =
        File::options().write(true).create(true).truncate(false).open(&path).and_then(|file| match file.try_lock() {
            Ok(()) => Ok(file),
            Err(TryLockError::WouldBlock) => Err(io::ErrorKind::WouldBlock.into()),
            Err(TryLockError::Error(error)) => Err(error),
        });
    match locked {
        Ok(file) => Ok(Some(file)),
        Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
            Err(AppError::AlreadyRunning { data_dir: data_dir.to_owned() })
        }
        // A full disk, or a file system without locks: better an app without a lock than none.
        Err(error) => {
            notices.push(FileError::at(FileAction::Write, &path)(error).explain());
            Ok(None)
        }
    }
}

/// However many things a full disk has kept from being written, it is told once; and also where nothing had to be.
fn tell_of_full_disk(data_dir: &Path, notices: &mut Vec<Failure>) {
    let n_before = notices.len();
    notices.retain(|notice| notice.code != ErrorCode::DiskFull);
    // A disk that cannot say how much is free is not full.
    let is_full = RealDisk.free_bytes(data_dir).is_ok_and(|free_bytes| free_bytes < LEAST_FREE_BYTES);
    if is_full || notices.len() < n_before {
        let dir = data_dir.display();
        notices.push(Failure::new(
            ErrorCode::DiskFull,
            Text::new(
                format!("the disk that holds `{dir}` is full: new chats, settings and models cannot be kept"),
                format!("`{dir}` 所在的磁盘已满：新的对话、设置和模型无法保存"),
            ),
            Text::new(
                "what is there can be used; free some space, then restart Tandem",
                "已有的内容仍可使用；请腾出空间，然后重启 Tandem",
            ),
        ));
    }
}

/// The benchmark: idle is an engine that neither loads nor answers.
fn calibrator(
    store: &Arc<Store>,
    prober: &Arc<Prober>,
    runtime: &Arc<Runtime>,
    remote: &Arc<Mutex<Remote>>,
    watchers: &Arc<Watchers>,
) -> Calibrator {
    let (remote, runtime, watchers) = (Arc::clone(remote), Arc::clone(runtime), Arc::clone(watchers));
    Calibrator::new(Surroundings {
        store: Arc::clone(store),
        prober: Arc::clone(prober),
        models_dir: Box::new(move || lock_of(&remote).models_dir.clone()),
        measure_card: None,
        is_idle: Box::new(move || matches!(runtime.activity().0, Phase::Empty | Phase::Idle)),
        on_state: Box::new(move |state| watchers.tell(&AppEvent::Calibration { state })),
    })
}

/// Looks into the folders of other programs, which may be many or on slow disks: not while the window waits.
fn look_around(library: &Arc<Library>) -> Result<(), EngineError> {
    if library.uses_folders() {
        let library = Arc::downgrade(library);
        let look = move || {
            if let Some(library) = library.upgrade() {
                library.rescan();
            }
        };
        std::thread::Builder::new().name("tandem-library".to_owned()).spawn(look).map_err(EngineError::Thread)?;
    }
    Ok(())
}

/// Tells the gauges once a second, and when the engine begins something else, as long as anybody watches.
fn start_gauges(
    prober: Arc<Prober>,
    runtime: Arc<Runtime>,
    watchers: Arc<Watchers>,
    woken: Receiver<Wake>,
) -> Result<JoinHandle<()>, EngineError> {
    let run = move || {
        loop {
            match woken.recv_timeout(GAUGES_EVERY) {
                Ok(Wake::Now) | Err(RecvTimeoutError::Timeout) => {}
                Ok(Wake::End) | Err(RecvTimeoutError::Disconnected) => return,
            }
            // However often they were wanted meanwhile, once will do.
            if woken.try_iter().any(|wake| matches!(wake, Wake::End)) {
                return;
            }
            runtime.watch();
            if !lock_of(&watchers.sinks).is_empty() {
                watchers.tell(&AppEvent::Gauges { gauges: gauges(&prober, &runtime) });
            }
        }
    };
    std::thread::Builder::new().name("tandem-gauges".to_owned()).spawn(run).map_err(EngineError::Thread)
}

fn gauges(prober: &Prober, runtime: &Runtime) -> Gauges {
    let machine = prober.gauges();
    let (phase, tokens_per_s) = runtime.activity();
    Gauges {
        at_ms: now_ms(),
        ram_app_bytes: machine.ram_app_bytes,
        ram_available_bytes: machine.ram_available_bytes,
        ram_total_bytes: machine.ram_total_bytes,
        gpus: machine.gpus,
        gpu_probe: machine.gpu_probe,
        phase,
        tokens_per_s,
    }
}

fn models_dir(paths: &Paths, settings: &Settings) -> PathBuf {
    match settings.models_dir.trim() {
        "" => paths.models_dir.clone(),
        chosen => PathBuf::from(chosen),
    }
}

fn limits(settings: &Settings) -> DownloadLimits {
    DownloadLimits {
        connections: settings.connections_per_file,
        at_once: settings.downloads_at_once,
        bytes_per_s: settings.max_download_bytes_per_s,
    }
}

/// A finished download goes into the library before anybody hears that it is done.
fn on_download(library: &Weak<Library>, downloads: &Weak<Downloads>, watchers: &Watchers, update: DownloadUpdate) {
    match update {
        // `Finished` follows.
        DownloadUpdate::Changed(download) if download.state == DownloadState::Done => {}
        DownloadUpdate::Changed(download) => watchers.tell(&AppEvent::Download { download }),
        DownloadUpdate::Cleared { path } => watchers.tell(&AppEvent::Notice { notice: cleared(&path) }),
        DownloadUpdate::Gone { id } => watchers.tell(&AppEvent::DownloadGone { id }),
        DownloadUpdate::Finished { download, paths } => {
            let added = library.upgrade().map(|library| library.add_download(&paths, &download.files));
            match (added, downloads.upgrade()) {
                (Some(Err(failure)), Some(downloads)) => {
                    tracing::warn!(message = failure.message.en, "a finished download is no model");
                    downloads.fail(&download.id, failure);
                }
                _ => watchers.tell(&AppEvent::Download { download }),
            }
        }
    }
}

/// What a person hears of a file of theirs that lay where a download belongs.
fn cleared(path: &Path) -> Failure {
    let path = path.display();
    Failure::new(
        ErrorCode::Io,
        Text::new(
            format!("`{path}` held other bytes than the hub's file and is in the trash now, in favour of the download"),
            format!("`{path}` 的内容与模型站的文件不同，已移到回收站，由下载的文件取代"),
        ),
        Text::new(
            "if it was a file of your own, take it back under another name",
            "如果它是您自己的文件，请以其他名称将其还原",
        ),
    )
}

/// A panic while holding one of these leaves nothing half-done.
fn lock_of<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
