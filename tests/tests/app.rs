//! The whole app without its window, on a real model: what a person does, in the order a person does it.

use std::path::Path;
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};

use tandem_core::api;
use tandem_core::app::{App, AppError, AppOptions};
use tandem_core::paths::Paths;
use tandem_core::wire::{
    AppEvent, ChatEvent, DownloadRequest, DownloadState, EndReason, ErrorCode, Failure, Integrity, LoadEvent,
    LoadRequest, Message, Phase, PlanVersionsRequest, PlannedVersion, Presence, Reading, Role, RuntimeState, Sampling,
    SearchRequest, SendRequest, Settings, Wishes,
};
use tandem_engine::Flow;
use tandem_tests::hub::{Fault, Repo, Rule, Side, TestHub};
use tandem_tests::models::smollm2;

const REPO: &str = "tests/SmolLM2-135M-Instruct-GGUF";
const FILE: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// An app in a folder of its own, with every event it tells.
struct Opened {
    app: Arc<App>,
    events: Receiver<AppEvent>,
}

fn open(root: &Path, hub_url: &str) -> Opened {
    let options = AppOptions {
        paths: Some(Paths::under(root)),
        hub_url: Some(hub_url.to_owned()),
        nvml_path: Some(root.join("no-nvml")),
        trash: Some(root.join("trash")),
        ..AppOptions::default()
    };
    let app = App::open(options).expect("the app opens");
    let (sender, events) = channel();
    app.subscribe(Box::new(move |event| if sender.send(event).is_ok() { Flow::Continue } else { Flow::Break }));
    Opened { app, events }
}

/// Greedy, so that every run says the same.
async fn greedy(app: &App, max_tokens: Option<u32>) {
    let sampling = Sampling { temperature: Some(0.0), max_tokens, ..Sampling::default() };
    let settings = api::app_info(app).await.expect("information").settings;
    api::set_settings(app, Settings { sampling, ..settings }).await.expect("settings are kept");
}

async fn load(app: &App, model_id: &str, context_length: Option<u32>) -> Vec<LoadEvent> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let wishes = Wishes { context_length, ..Wishes::default() };
    let request = LoadRequest { model_id: model_id.to_owned(), wishes };
    let keep = Box::new(move |event| {
        sink.lock().expect("no panic").push(event);
        Flow::Continue
    });
    api::load_model(app, request, keep).await.expect("a load tells its failures by events");
    std::mem::take(&mut *events.lock().expect("no panic"))
}

/// Adds SmolLM2 where it lies and loads it.
async fn with_smollm2(app: &App, context_length: Option<u32>) -> String {
    let path = smollm2().to_str().expect("a path in Unicode").to_owned();
    let model = api::add_model(app, path).await.expect("SmolLM2 is a model");
    let events = load(app, &model.id, context_length).await;
    assert!(matches!(events.last(), Some(LoadEvent::Ready { .. })), "{events:?}");
    model.id
}

/// Asks, and gives every event; `on` may end it.
async fn ask(
    app: &App,
    request: SendRequest,
    mut on: impl FnMut(&ChatEvent) -> Flow + Send + 'static,
) -> Result<Vec<ChatEvent>, Failure> {
    let events = Arc::new(Mutex::new(Vec::new()));
    let sink = Arc::clone(&events);
    let keep = Box::new(move |event| {
        let flow = on(&event);
        sink.lock().expect("no panic").push(event);
        flow
    });
    api::send_message(app, request, keep).await?;
    Ok(std::mem::take(&mut *events.lock().expect("no panic")))
}

fn go_on(_: &ChatEvent) -> Flow {
    Flow::Continue
}

fn new_chat(text: &str) -> SendRequest {
    SendRequest { chat_id: None, parent: None, text: text.to_owned() }
}

fn done(events: &[ChatEvent]) -> &Message {
    match events.last() {
        Some(ChatEvent::Done { message }) => message,
        other => panic!("the answer did not end well: {other:?}"),
    }
}

fn chat_of(events: &[ChatEvent]) -> i64 {
    match events.first() {
        Some(ChatEvent::Started { chat, .. }) => chat.id,
        other => panic!("the answer did not begin: {other:?}"),
    }
}

fn streamed(events: &[ChatEvent]) -> String {
    let texts = events.iter().filter_map(|event| match event {
        ChatEvent::Delta { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_models_folder_must_be_a_full_path() {
    let root = tempfile::tempdir().expect("a folder");
    let opened = open(root.path(), "http://127.0.0.1:9");
    let before = api::app_info(&opened.app).await.expect("information");
    let settings = Settings { models_dir: "relative/dir".into(), ..before.settings.clone() };
    let refused = api::set_settings(&opened.app, settings).await.expect_err("means another folder from elsewhere");
    assert_eq!(refused.code, ErrorCode::BadRequest);
    let after = api::app_info(&opened.app).await.expect("information");
    assert_eq!((after.settings, after.models_dir), (before.settings, before.models_dir));
    assert!(!Path::new("relative").exists());
}

#[tokio::test(flavor = "multi_thread")]
async fn found_downloaded_verified_loaded_asked_stopped_and_there_after_a_restart() {
    let root = tempfile::tempdir().unwrap();
    let root = root.path().join("资料 é ✓");
    let repo = Repo::new(REPO).file_at(FILE, &smollm2()).unwrap().gguf("llama", 134_515_008, 8192);
    let hub = TestHub::start(vec![repo, Repo::new("tests/Nothing").file("README.md", "empty")]);
    let Opened { app, events } = open(&root, hub.url());

    // Find.
    let query = SearchRequest { query: "smollm2".into(), cursor: None };
    let found = api::search_models(&app, query).await.unwrap();
    assert_eq!(found.models.iter().map(|model| model.id.as_str()).collect::<Vec<_>>(), [REPO]);
    let page = api::model_page(&app, REPO.into()).await.unwrap();
    assert_eq!((page.refusal, page.versions.len()), (None, 1));
    let version = &page.versions[0];
    assert_eq!((version.quant.as_str(), &version.presence), ("Q4_1", &Presence::Absent));
    let request = PlanVersionsRequest { repo: REPO.into(), ..PlanVersionsRequest::default() };
    let arrived = Arc::new(Mutex::new(Vec::new()));
    let sink = {
        let arrived = Arc::clone(&arrived);
        Box::new(move |version: PlannedVersion| {
            arrived.lock().unwrap().push(version.path);
            Flow::Continue
        })
    };
    let planned = api::plan_versions(&app, request.clone(), sink).await.unwrap();
    assert_eq!(*arrived.lock().unwrap(), [FILE], "each version is told as it comes");
    assert_eq!(planned.recommended, Some(0));
    assert_eq!(planned.versions[0].plan.as_ref().unwrap().n_layers, 30);
    assert!(hub.fetches(FILE).iter().all(|fetch| fetch.range.is_some()), "only the header was read");
    let n_fetches = hub.fetches(FILE).len();
    let wishes = Wishes { context_length: Some(2048), ..Wishes::default() };
    let again = PlanVersionsRequest { wishes, ..request };
    let shorter = api::plan_versions(&app, again, Box::new(|_| Flow::Continue)).await.unwrap();
    assert_eq!(shorter.versions[0].plan.as_ref().unwrap().context_length, 2048);
    assert_eq!(hub.fetches(FILE).len(), n_fetches, "another wish asks nothing of the hub");

    // Download.
    let started = api::start_download(&app, DownloadRequest { files: version.files.clone() }).await.unwrap();
    let last = events
        .iter()
        .find_map(|event| match event {
            AppEvent::Download { download } if download.state == DownloadState::Done => Some(download),
            AppEvent::Download { download } if download.failure.is_some() => panic!("{download:?}"),
            _ => None,
        })
        .unwrap();
    assert_eq!((last.id, last.verified_bytes), (started.id, version.size_bytes));
    let library = api::library(&app).await.unwrap();
    assert_eq!((library.len(), library[0].integrity), (1, Integrity::Verified));
    assert_eq!(library[0].source.as_ref().unwrap().path, FILE);
    let page = api::model_page(&app, REPO.into()).await.unwrap();
    assert_eq!(page.versions[0].presence, Presence::Here { model_id: library[0].id.clone() });

    // Load and ask.
    let loaded = load(&app, &library[0].id, None).await;
    assert!(matches!(loaded.first(), Some(LoadEvent::Progress { .. })), "{loaded:?}");
    assert!(matches!(loaded.last(), Some(LoadEvent::Ready { .. })), "{loaded:?}");
    greedy(&app, None).await;
    let first = ask(&app, new_chat("what is the capital of france"), go_on).await.unwrap();
    let answer = done(&first);
    assert!(answer.text.starts_with("The capital of France is Paris"), "{}", answer.text);
    assert_eq!((answer.end, &streamed(&first)), (Some(EndReason::Complete), &answer.text));
    assert!(first.iter().filter(|event| matches!(event, ChatEvent::Delta { .. })).count() > 1, "it streams");
    let chat_id = chat_of(&first);

    // Stop in mid-answer.
    let request =
        SendRequest { chat_id: Some(chat_id), ..new_chat("Write a very long story about a river and a boat.") };
    let stopper = Arc::clone(&app);
    let stopped = ask(&app, request, move |event| {
        if matches!(event, ChatEvent::Delta { .. }) {
            stopper_stops(&stopper);
        }
        Flow::Continue
    });
    let stopped = stopped.await.unwrap();
    let part = done(&stopped).clone();
    assert_eq!(part.end, Some(EndReason::Stopped));
    assert!(!part.text.is_empty() && part.text == streamed(&stopped));
    app.close().await;
    drop(app);

    // Restart.
    let Opened { app, .. } = open(&root, hub.url());
    let chats = api::chats(&app).await.unwrap();
    assert_eq!((chats.len(), chats[0].title.as_str()), (1, "what is the capital of france"));
    let chat = api::chat(&app, chat_id).await.unwrap();
    assert_eq!(chat.messages.last(), Some(&part));
    let library = api::library(&app).await.unwrap();
    assert_eq!((library.len(), library[0].integrity), (1, Integrity::Verified));
    load(&app, &library[0].id, None).await;
    let request = |text: &str| SendRequest { chat_id: Some(chat_id), ..new_chat(text) };
    greedy(&app, Some(8)).await;
    ask(&app, request("And of Germany?"), go_on).await.unwrap();
    let again = ask(&app, request("And of Italy?"), go_on).await.unwrap();
    let stats = done(&again).stats.clone().unwrap();
    assert!(stats.n_reused_tokens > stats.n_prompt_tokens / 2, "{stats:?}");
    app.close().await;
}

/// What a hub said falsely of a header ends with the download: the file that has the SHA256 says what it holds.
#[tokio::test(flavor = "multi_thread")]
async fn a_verified_file_has_the_last_word_on_its_header() {
    let root = tempfile::tempdir().unwrap();
    let bytes = std::fs::read(smollm2()).unwrap();
    let key = b"llama.context_length";
    let at = bytes.windows(key.len()).position(|window| window == key).unwrap();
    let repo = Repo::new(REPO).file_at(FILE, &smollm2()).unwrap().gguf("llama", 134_515_008, 8192);
    let hub = TestHub::start(vec![repo]);
    hub.fault(Rule::new(Side::Cdn, FILE, Fault::FlipBit { at: (at + key.len() + 4) as u64 }).times(1));
    let Opened { app, events } = open(root.path(), hub.url());
    let most = async |headers| {
        let request = PlanVersionsRequest { repo: REPO.into(), headers, ..PlanVersionsRequest::default() };
        let planned = api::plan_versions(&app, request, Box::new(|_| Flow::Continue)).await.unwrap();
        planned.versions[0].plan.as_ref().unwrap().max_context_length
    };
    assert_ne!(most(Reading::Kept).await, 8192);
    let page = api::model_page(&app, REPO.into()).await.unwrap();
    let files = page.versions[0].files.clone();
    api::start_download(&app, DownloadRequest { files }).await.unwrap();
    let is_done =
        |event: AppEvent| matches!(event, AppEvent::Download { download } if download.state == DownloadState::Done);
    assert!(events.iter().any(is_done));
    let n_fetches = hub.fetches(FILE).len();
    assert_eq!(most(Reading::Kept).await, 8192);
    assert_eq!(most(Reading::Again).await, 8192);
    assert_eq!(hub.fetches(FILE).len(), n_fetches, "nobody needs to be asked for it again");
    app.close().await;
}

fn stopper_stops(app: &Arc<App>) {
    // On the answer's own thread: nothing else needs to run for it.
    futures_util::FutureExt::now_or_never(api::stop_answer(app)).expect("stopping waits for nothing").expect("stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_anew_and_an_edited_question_are_branches() {
    let root = tempfile::tempdir().unwrap();
    let Opened { app, .. } = open(root.path(), "http://127.0.0.1:1");
    with_smollm2(&app, Some(2048)).await;
    greedy(&app, Some(12)).await;
    let first = ask(&app, new_chat("Tell me about rivers."), go_on).await.unwrap();
    let (chat_id, answer) = (chat_of(&first), done(&first).clone());
    let question = answer.parent;

    let anew = SendRequest { chat_id: Some(chat_id), parent: question, text: String::new() };
    let second = done(&ask(&app, anew, go_on).await.unwrap()).clone();
    assert_eq!((second.parent, &second.text), (question, &answer.text), "greedy: the same words, a sibling");
    assert_ne!(second.id, answer.id);

    let chat = api::chat(&app, chat_id).await.unwrap();
    let root_id = chat.messages.iter().find(|message| Some(message.id) == question).unwrap().parent;
    let edit = SendRequest {
        chat_id: Some(chat_id),
        parent: root_id,
        text: "What is the capital of France? Answer in one sentence.".into(),
    };
    let edited = ask(&app, edit, go_on).await.unwrap();
    assert!(done(&edited).text.starts_with("The capital of France is Paris"), "{}", done(&edited).text);
    let chat = api::chat(&app, chat_id).await.unwrap();
    let questions = chat.messages.iter().filter(|message| message.role == Role::User);
    assert!(questions.into_iter().all(|message| message.parent == root_id));
    assert_eq!(chat.leaf, Some(done(&edited).id));
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_conversation_that_does_not_fit_is_said_with_numbers_and_kept() {
    let root = tempfile::tempdir().unwrap();
    let Opened { app, .. } = open(root.path(), "http://127.0.0.1:1");
    with_smollm2(&app, Some(2048)).await;
    greedy(&app, Some(4)).await;
    let long = "a river and a boat ".repeat(1000);
    let events = ask(&app, new_chat(&long), go_on).await.unwrap();
    let Some(ChatEvent::Failed { message: Some(message), failure }) = events.last() else { panic!("{events:?}") };
    assert_eq!((failure.code, message.end), (ErrorCode::ContextFull, Some(EndReason::ContextFull)));
    assert!(failure.message.en.contains("2048"), "{}", failure.message.en);
    let chat = api::chat(&app, chat_of(&events)).await.unwrap();
    assert_eq!(chat.messages[1].text, long.trim());

    let next = ask(&app, new_chat("Hello"), go_on).await.unwrap();
    assert_eq!(done(&next).end, Some(EndReason::Length), "the model lives on");
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_answer_at_a_time_and_none_without_a_model() {
    let root = tempfile::tempdir().unwrap();
    let Opened { app, .. } = open(root.path(), "http://127.0.0.1:1");
    let failure = ask(&app, new_chat("Hello"), go_on).await.unwrap_err();
    assert_eq!(failure.code, ErrorCode::NoModelLoaded);
    assert!(api::chats(&app).await.unwrap().is_empty(), "nothing is stored");
    with_smollm2(&app, Some(2048)).await;
    greedy(&app, Some(64)).await;
    assert_eq!(ask(&app, new_chat("  "), go_on).await.unwrap_err().code, ErrorCode::BadRequest);

    // A second question in the middle of the first answer, and the watcher gone in the middle of it.
    let (at_first_delta, second) = channel();
    let (inner, runtime) = (Arc::clone(&app), tokio::runtime::Handle::current());
    let events = ask(&app, new_chat("Tell me about rivers."), move |event| {
        if !matches!(event, ChatEvent::Delta { .. }) {
            return Flow::Continue;
        }
        let second = ask(&inner, new_chat("And boats?"), go_on);
        at_first_delta.send(runtime.block_on(second).unwrap_err().code).unwrap();
        Flow::Break
    });
    let events = events.await.unwrap();
    assert_eq!(second.try_iter().collect::<Vec<_>>(), [ErrorCode::Busy]);
    let chat = api::chat(&app, chat_of(&events)).await.unwrap();
    assert_eq!(chat.messages.last().unwrap().end, Some(EndReason::Stopped));
    assert_eq!(api::chats(&app).await.unwrap().len(), 1);
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn unloading_stops_what_runs_and_a_load_can_be_cancelled() {
    let root = tempfile::tempdir().unwrap();
    let Opened { app, events } = open(root.path(), "http://127.0.0.1:1");
    let model_id = with_smollm2(&app, Some(2048)).await;
    greedy(&app, None).await;
    let (inner, runtime) = (Arc::clone(&app), tokio::runtime::Handle::current());
    let (unloading, unloaded) = channel();
    let answer = ask(&app, new_chat("Tell me a long story about rivers."), move |event| {
        if matches!(event, ChatEvent::Delta { .. }) {
            let app = Arc::clone(&inner);
            // Not awaited here: it waits for the answer that this event belongs to.
            let task = runtime.spawn(async move { api::unload_model(&app).await });
            unloading.send(task).unwrap();
        }
        Flow::Continue
    });
    let answer = answer.await.unwrap();
    assert_eq!(done(&answer).end, Some(EndReason::Stopped));
    for task in unloaded.try_iter().collect::<Vec<_>>() {
        task.await.unwrap().unwrap();
    }
    assert_eq!(api::app_info(&app).await.unwrap().runtime, RuntimeState::Empty);

    let request = LoadRequest { model_id: model_id.clone(), wishes: Wishes::default() };
    let (sender, seen) = channel();
    let cancel = Box::new(move |event| {
        sender.send(event).unwrap();
        Flow::Break
    });
    api::load_model(&app, request, cancel).await.unwrap();
    let last = seen.try_iter().last();
    assert!(matches!(&last, Some(LoadEvent::Failed { failure }) if failure.code == ErrorCode::Cancelled), "{last:?}");
    assert_eq!(api::app_info(&app).await.unwrap().runtime, RuntimeState::Empty);
    app.close().await;
    drop(app);

    let phases: Vec<Phase> = events
        .iter()
        .filter_map(|event| match event {
            AppEvent::Gauges { gauges } => Some(gauges.phase),
            _ => None,
        })
        .collect();
    assert!(phases.contains(&Phase::Empty), "{phases:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_app_in_the_same_folder_is_refused_and_a_third_after_it_is_not() {
    let root = tempfile::tempdir().unwrap();
    let first = open(root.path(), "http://127.0.0.1:1");
    let options = AppOptions { paths: Some(Paths::under(root.path())), ..AppOptions::default() };
    assert!(matches!(App::open(options), Err(AppError::AlreadyRunning { .. })));
    first.app.close().await;
    drop(first);
    open(root.path(), "http://127.0.0.1:1").app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_cannot_be_loaded_says_why_and_harms_nothing() {
    let root = tempfile::tempdir().unwrap();
    let Opened { app, .. } = open(root.path(), "http://127.0.0.1:1");
    let html = root.path().join("page.gguf");
    std::fs::write(&html, "<!doctype html><html>").unwrap();
    let failure = api::add_model(&app, html.to_str().unwrap().into()).await.unwrap_err();
    assert_eq!(failure.code, ErrorCode::NotGguf);
    let cut = root.path().join("cut.gguf");
    std::fs::write(&cut, &std::fs::read(smollm2()).unwrap()[..10_000_000]).unwrap();
    let failure = api::add_model(&app, cut.to_str().unwrap().into()).await.unwrap_err();
    assert_eq!(failure.code, ErrorCode::GgufTruncated);
    let events = load(&app, "no such model", None).await;
    let [LoadEvent::Failed { failure }] = events.as_slice() else { panic!("{events:?}") };
    assert_eq!(failure.code, ErrorCode::ModelMissing);
    let failure = api::search_models(&app, SearchRequest::default()).await.unwrap_err();
    assert_eq!(failure.code, ErrorCode::NoNetwork);
    assert!(api::library(&app).await.unwrap().is_empty());
    app.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_folder_that_can_be_written_it_opens_and_says_so() {
    let root = tempfile::tempdir().unwrap();
    let file = root.path().join("file");
    std::fs::write(&file, "").unwrap();
    let Opened { app, .. } = open(&file.join("data"), "http://127.0.0.1:1");
    assert!(!api::app_info(&app).await.unwrap().notices.is_empty());
    with_smollm2(&app, Some(2048)).await;
    greedy(&app, Some(4)).await;
    let events = ask(&app, new_chat("Hello"), go_on).await.unwrap();
    assert_eq!(api::chat(&app, chat_of(&events)).await.unwrap().messages.last(), Some(done(&events)));
    app.close().await;
}
