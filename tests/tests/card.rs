//! The whole app with a card: NVIDIA's driver and management library are simulated, what lies between is what ships. A model with
//! experts is split between card and processor, answers, and gives everything back; and whatever may be wrong with a card ends with
//! an answer from the processor and a sentence that says why.
#![cfg(target_os = "linux")]
#![expect(clippy::unwrap_used, reason = "helpers of tests, which may")]

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use tandem_core::api;
use tandem_core::app::{App, AppOptions};
use tandem_core::paths::Paths;
use tandem_core::plan::StepCost;
use tandem_core::wire::{
    CardMemory, ChatEvent, EndReason, ErrorCode, Failure, LoadEvent, LoadRequest, Part, Place, Plan, RuntimeState,
    Sampling, SendRequest, Settings, Text, Wishes,
};
use tandem_engine::Flow;
use tandem_engine::gguf::ModelFacts;
use tandem_simcuda::{Counters, Simulator};
use tandem_tests::experts;
use tandem_tests::gpu::RTX_2060;
use tandem_tests::nvml::FakeNvml;

/// One simulated machine, an app on it, and a model in its library. The machine is the process's: tests take turns.
struct Machine {
    app: Arc<App>,
    model_id: String,
    nvml: FakeNvml,
    path: PathBuf,
    simulator: &'static Simulator,
    _folder: tempfile::TempDir,
    _turn: tokio::sync::MutexGuard<'static, ()>,
}

/// A load that went well.
struct Loaded {
    plan: Plan,
    given_up: Option<Text>,
    cards: Vec<CardMemory>,
}

impl Machine {
    async fn new(settings: &str) -> Self {
        static TURN: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());
        let turn = TURN.lock().await;
        let simulator = Simulator::load();
        simulator.configure(settings);
        let nvml = FakeNvml::new(settings).unwrap();
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("experts.gguf");
        experts::write(&path).unwrap();
        let options = AppOptions {
            paths: Some(Paths::under(&folder.path().join("data"))),
            nvml_path: Some(nvml.path().to_path_buf()),
            ..AppOptions::default()
        };
        let app = App::open(options).unwrap();
        let sampling = Sampling { temperature: Some(0.0), max_tokens: Some(12), ..Sampling::default() };
        let before = api::app_info(&app).await.unwrap().settings;
        api::set_settings(&app, Settings { sampling, ..before }).await.unwrap();
        let model_id = api::add_model(&app, path.display().to_string()).await.unwrap().id;
        Self { app, model_id, nvml, path, simulator, _folder: folder, _turn: turn }
    }

    /// Another machine under the app's feet: other programs take memory, or the driver fails.
    fn becomes(&self, settings: &str) {
        self.simulator.configure(settings);
        self.nvml.set(settings).unwrap();
    }

    async fn load(&self, wishes: &Wishes) -> Loaded {
        let last = Arc::new(Mutex::new(None));
        let kept = Arc::clone(&last);
        let sink = Box::new(move |event| {
            *kept.lock().unwrap() = Some(event);
            Flow::Continue
        });
        let request = LoadRequest { model_id: self.model_id.clone(), wishes: wishes.clone() };
        api::load_model(&self.app, request, sink).await.unwrap();
        match last.lock().unwrap().take() {
            Some(LoadEvent::Ready { plan, given_up, cards, .. }) => Loaded { plan: *plan, given_up, cards },
            other => panic!("{other:?}"),
        }
    }

    /// What comes of a message.
    async fn send(&self, chat_id: Option<i64>, text: &str) -> Vec<ChatEvent> {
        let events = Arc::new(Mutex::new(Vec::new()));
        let kept = Arc::clone(&events);
        let sink = Box::new(move |event| {
            kept.lock().unwrap().push(event);
            Flow::Continue
        });
        let request = SendRequest { chat_id, parent: None, text: text.to_owned() };
        api::send_message(&self.app, request, sink).await.unwrap();
        std::mem::take(&mut *events.lock().unwrap())
    }

    /// A whole answer in a chat of its own.
    async fn answer(&self) -> String {
        match self.send(None, "abc").await.pop() {
            Some(ChatEvent::Done { message }) => message.text,
            other => panic!("{other:?}"),
        }
    }

    /// Why the card is not used, by what the machine says of itself.
    async fn why_unusable(&self) -> Option<String> {
        let hardware = api::hardware(&self.app).await.unwrap();
        hardware.gpus[0].unusable.as_ref().map(|text| text.en.clone())
    }

    fn allocated_bytes(&self) -> u64 {
        self.simulator.counters().allocated_bytes
    }
}

/// Experts of two of the four layers on the card.
fn split() -> Wishes {
    Wishes { n_expert_layers: Some(2), ..Wishes::default() }
}

fn processor() -> Wishes {
    Wishes { n_gpu_layers: Some(0), ..Wishes::default() }
}

fn is_on_card(plan: &Plan) -> bool {
    plan.cpu_computes.is_none() && plan.gpu_bar.is_some()
}

fn failure_of(events: &[ChatEvent]) -> Option<&Failure> {
    match events.last() {
        Some(ChatEvent::Failed { failure, .. }) => Some(failure),
        _ => None,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_model_with_experts_runs_on_card_and_processor_and_gives_everything_back() {
    let machine = Machine::new(RTX_2060).await;
    assert_eq!(machine.why_unusable().await, None);
    let alone = machine.load(&processor()).await;
    assert!(!is_on_card(&alone.plan) && alone.cards.is_empty() && alone.given_up.is_none());
    let want = machine.answer().await;
    assert_eq!(machine.simulator.counters().n_launches, 0, "the wish for the processor is kept");

    let Loaded { plan, given_up, cards } = machine.load(&split()).await;
    assert!(is_on_card(&plan) && given_up.is_none(), "{given_up:?}");
    let experts: Vec<Place> = plan.layers.iter().filter_map(|layer| layer.experts).collect();
    let (ram, card) = (Place::Ram, Place::Gpu { index: 0 });
    assert_eq!(experts, [ram, ram, card, card]);
    assert!(plan.layers[2..].iter().all(|layer| layer.mixer == card && layer.cache == card));
    assert_eq!(machine.answer().await, want, "what the processor says alone");
    let counters = machine.simulator.counters();
    assert!(counters.n_launches > 100 && counters.n_findings == 0, "{:?}", machine.simulator.findings());

    // What was planned beside what was allocated: weights and cache to the byte, buffers within what was kept for them.
    let [held] = &cards[..] else { panic!("{cards:?}") };
    let [weights, kv, buffers] = &held.parts[..] else { panic!("{held:?}") };
    assert_eq!((held.name.as_str(), held.index), ("NVIDIA GeForce RTX 2060", 0));
    assert_eq!((weights.planned_bytes, kv.planned_bytes), (weights.allocated_bytes, kv.allocated_bytes));
    assert!(buffers.allocated_bytes > 0 && buffers.allocated_bytes <= buffers.planned_bytes, "{buffers:?}");
    assert_eq!(held.parts.iter().map(|part| part.allocated_bytes).sum::<u64>(), machine.allocated_bytes());
    let RuntimeState::Ready { cards: shown, .. } = api::app_info(&machine.app).await.unwrap().runtime else { panic!() };
    assert_eq!(shown, cards);

    api::unload_model(&machine.app).await.unwrap();
    assert_eq!(machine.allocated_bytes(), 0);
}

/// Eight tokens more: what the model of a step's cost says, and what the simulated driver counted.
#[tokio::test(flavor = "multi_thread")]
async fn a_step_costs_what_its_plan_says() {
    let machine = Machine::new(RTX_2060).await;
    let Loaded { plan, .. } = machine.load(&split()).await;
    machine.answer().await;
    let mut counted = Vec::new();
    for n_tokens in [4, 12] {
        let before = machine.simulator.counters();
        let sampling = Sampling { temperature: Some(0.0), max_tokens: Some(n_tokens), ..Sampling::default() };
        let settings = api::app_info(&machine.app).await.unwrap().settings;
        api::set_settings(&machine.app, Settings { sampling, ..settings }).await.unwrap();
        machine.answer().await;
        let after = machine.simulator.counters();
        let weights = |counters: &Counters| {
            let products = counters.kernels.iter().filter(|(name, _)| name.starts_with("matvec_"));
            products.map(|(_, kernel)| kernel.sectors_read_bytes).sum::<u64>()
        };
        counted.push([
            weights(&after) - weights(&before),
            after.to_host_bytes - before.to_host_bytes,
            after.to_device_bytes - before.to_device_bytes,
        ]);
    }
    let [weights, to_host, to_card] = [0, 1, 2].map(|i| (counted[1][i] - counted[0][i]) / 8);
    let cost = StepCost::of(&ModelFacts::from_file(&machine.path).unwrap(), &plan, 20).unwrap();
    let is_near = |got: u64, want: u64, most: f64| got >= want && got as f64 <= want as f64 * most;
    // Beside weights, their inputs; beside activations, angles, and what experts are told.
    assert!(is_near(weights, cost.card_weight_bytes * 99 / 100, 1.1), "{weights}: {cost:?}");
    assert_eq!(to_host, cost.to_host_bytes, "{cost:?}");
    assert!(is_near(to_card, cost.to_card_bytes, 4.0), "{to_card}: {cost:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_is_lost_leaves_the_answer_so_far_and_the_chat_goes_on_without_it() {
    let machine = Machine::new(RTX_2060).await;
    machine.load(&split()).await;
    let after_load = machine.simulator.counters().n_launches;
    let whole = machine.answer().await;
    let n_launches = machine.simulator.counters().n_launches;
    let lost = |after: u64| RTX_2060.replace(" name", &format!(" lost-after {after} name"));
    machine.becomes(&lost(after_load + (n_launches - after_load) / 2));
    machine.load(&split()).await;

    let events = machine.send(None, "abc").await;
    let failure = failure_of(&events).expect("it is lost half-way");
    assert_eq!(failure.code, ErrorCode::GpuFailed);
    assert!(failure.message.en.contains("is gone") && !failure.hint.zh.is_empty(), "{failure:?}");
    let Some(ChatEvent::Started { chat, .. }) = events.first() else { panic!("{events:?}") };
    let kept = api::chat(&machine.app, chat.id).await.unwrap();
    let half = kept.messages.last().unwrap();
    assert_eq!(half.end, Some(EndReason::Failed));
    assert!(!half.text.is_empty() && whole.starts_with(&half.text) && half.text != whole, "{}", half.text);

    // Nothing is planned for the card any more, and one click is a load without it.
    assert!(machine.why_unusable().await.is_some_and(|why| why.contains("is gone")));
    let alone = machine.load(&processor()).await;
    assert!(!is_on_card(&alone.plan));
    let user = kept.messages[kept.messages.len() - 2].id;
    let again = SendRequest { chat_id: Some(chat.id), parent: Some(user), text: String::new() };
    let last = Arc::new(Mutex::new(None));
    let seen = Arc::clone(&last);
    let sink = Box::new(move |event| {
        *seen.lock().unwrap() = Some(event);
        Flow::Continue
    });
    api::send_message(&machine.app, again, sink).await.unwrap();
    let Some(ChatEvent::Done { message }) = last.lock().unwrap().take() else { panic!() };
    assert_eq!(message.text, whole, "the same chat, the same answer");
}

#[tokio::test(flavor = "multi_thread")]
async fn memory_taken_between_plan_and_load_is_planned_around_or_the_card_is_left() {
    let machine = Machine::new(RTX_2060).await;
    let request = LoadRequest { model_id: machine.model_id.clone(), wishes: split() };
    let planned = api::plan_model(&machine.app, request).await.unwrap();
    assert!(is_on_card(&planned));

    // Seen in time: the load plans anew.
    machine.becomes(&RTX_2060.replace("free 5.5", "free 0.5"));
    let full = machine.load(&split()).await;
    assert!(!is_on_card(&full.plan) && full.cards.is_empty());
    let said = full.given_up.unwrap().en;
    assert_eq!(said, "Memory is short: the graphics card is not used.");
    assert!(full.plan.warnings.iter().any(|text| text.en.contains("Other programs hold")), "{:?}", full.plan.warnings);

    // Not seen: the card refuses, and the load steps down until it fits, or leaves the card.
    machine.becomes(RTX_2060);
    machine.simulator.configure(&RTX_2060.replace("free 5.5", "free 0.012"));
    let smaller = machine.load(&split()).await;
    assert!(is_on_card(&smaller.plan));
    assert_eq!(smaller.given_up.unwrap().en, "Memory is short: 1 layer is in memory instead of on the card.");
    assert!(!machine.answer().await.is_empty());
    for free in ["free 0.00785", "free 0.001"] {
        machine.simulator.configure(&RTX_2060.replace("free 5.5", free));
        let refused = machine.load(&split()).await;
        assert!(!is_on_card(&refused.plan), "{free}");
        assert_eq!(refused.plan.kv_type, "f16", "nothing else is given up");
        assert!(refused.given_up.unwrap().zh.contains("未使用显卡"), "{free}");
        assert_eq!(machine.allocated_bytes(), 0);
        assert!(!machine.answer().await.is_empty());
        assert_eq!(machine.why_unusable().await, None, "the next load tries again");
    }
    machine.becomes(RTX_2060);
    assert!(is_on_card(&machine.load(&split()).await.plan));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_card_that_computes_wrongly_is_not_used() {
    let machine = Machine::new(&format!("{RTX_2060}cuda wrong matvec_")).await;
    let Loaded { plan, given_up, cards } = machine.load(&split()).await;
    assert!(!is_on_card(&plan) && cards.is_empty());
    let said = given_up.unwrap();
    assert!(said.en.starts_with("The graphics card is not used: the graphics card does not compute"), "{}", said.en);
    assert!(machine.why_unusable().await.is_some(), "and it is not tried again");
    assert!(plan.cpu_computes.is_some_and(|why| why.en.contains("does not compute")) || plan.n_gpu_layers == 0);
    assert_eq!(machine.allocated_bytes(), 0);
    let wrong = machine.answer().await;
    machine.becomes(RTX_2060);
    assert!(!is_on_card(&machine.load(&split()).await.plan));
    assert_eq!(machine.answer().await, wrong, "the processor's answer, both times");
}

#[tokio::test(flavor = "multi_thread")]
async fn every_state_of_a_driver_is_a_reason_and_the_model_runs_without_it() {
    let machine = Machine::new(RTX_2060).await;
    for (state, reason) in [
        ("cuda version 11080", "too old (CUDA 11.8)"),
        ("cuda init 100", "sees no graphics card"),
        ("cuda init 999", "does not start"),
        ("fail cuDevicePrimaryCtxRetain 46", "to itself"),
        ("fail cuModuleLoadData 218", "does not take Tandem's programs"),
    ] {
        machine.becomes(&format!("{RTX_2060}{state}"));
        let Loaded { plan, given_up, .. } = machine.load(&Wishes::default()).await;
        let said = [plan.cpu_computes.as_ref(), given_up.as_ref()].into_iter().flatten();
        let said: String = said.map(|text| text.en.as_str()).collect();
        assert!(!plan.lines.iter().any(|line| matches!(line.place, Place::Gpu { .. })), "{state}");
        assert!(said.contains(reason), "{state}: {said}");
        assert!(!machine.answer().await.is_empty(), "{state}");
        assert!(plan.ram_bar.parts.iter().any(|part| part.part == Part::Experts), "{state}");
    }
}
