// Generated from core/src/wire/; refresh with `TANDEM_BLESS=1 cargo test -p tandem-core --test wire`.

/** A sentence in both of the app's languages; the reader picks. */
export type Text = {
  /** English. */
  en: string,
  /** Simplified Chinese. */
  zh: string,
};

/** What went wrong, for a person: what happened and what to do. */
export type Failure = {
  /** For programs; nobody matches on message text. */
  code: ErrorCode,
  /** What happened. */
  message: Text,
  /** What to do about it. */
  hint: Text,
};

/** Kinds of failure that a program may tell apart. */
export type ErrorCode = "not_gguf" | "gguf_truncated" | "gguf_damaged" | "unknown_architecture" | "unknown_tensor_type" | "unknown_tokenizer" | "not_a_chat_model" | "no_network" | "hub_answer_invalid" | "hub_refused" | "not_found" | "token_missing" | "token_withheld" | "token_wrong" | "licence_not_accepted" | "no_key_store" | "rate_limited" | "no_gguf_in_repo" | "disk_full" | "checksum_mismatch" | "changed_upstream" | "model_missing" | "no_model_loaded" | "out_of_memory" | "context_full" | "cancelled" | "already_running" | "busy" | "store_damaged" | "bad_request" | "io" | "engine_failed" | "gpu_failed";

/** What a person can choose; nothing here must be set. */
export type Settings = {
  /** Language of the interface. */
  language: Language,
  /** Colour scheme. */
  theme: Theme,
  /** Base URL of the hub or of a mirror; empty: the default hub. */
  hub_url: string,
  /** How that hub answers. */
  hub_kind: HubKind,
  /** How to reach the network. */
  proxy: ProxySettings,
  /** Base URLs of mirrors that may have the access token. */
  token_mirrors: Array<string>,
  /** Folder for downloaded models; empty: the default folder. */
  models_dir: string,
  /** Rate that all downloads together keep to; 0: as fast as it goes. */
  max_download_bytes_per_s: number,
  /** Connections per file, at most. */
  connections_per_file: number,
  /** Downloads that run at the same time. */
  downloads_at_once: number,
  /** Sampling; what is absent comes from the model file, then from defaults. */
  sampling: Sampling,
  /** System prompt for new chats; empty: the model's own. */
  system_prompt: string,
};

/** Language of the interface. */
export type Language = "system" | "en" | "zh";

/** Colour scheme. */
export type Theme = "system" | "light" | "dark";

/** Sampling parameters; `None` means the model file's recommendation, or the default. */
export type Sampling = {
  /** 0 is greedy. */
  temperature: number | null,
  /** Keep the k likeliest; 0 is off. */
  top_k: number | null,
  /** Keep the smallest set with this mass. */
  top_p: number | null,
  /** Keep what has at least this share of the likeliest. */
  min_p: number | null,
  /** Divide or multiply logits of repeated tokens; 1 is off. */
  repeat_penalty: number | null,
  /** Taken once from a token that occurred. */
  presence_penalty: number | null,
  /** Taken per occurrence. */
  frequency_penalty: number | null,
  /** Seed; absent: random. */
  seed: number | null,
  /** Most tokens to generate; absent: to the end of the context. */
  max_tokens: number | null,
};

/** How a hub answers. */
export type HubKind = "hugging_face" | "model_scope";

/** A place that models can be fetched from. */
export type HubSource = {
  /** What people call it. */
  name: string,
  /** Base URL. */
  url: string,
  /** How it answers. */
  kind: HubKind,
  /** Whether it is the hub that the others mirror: its word on a hash counts. */
  is_origin: boolean,
};

/** A source, and whether it can be used from here. */
export type SourceProbe = {
  /** The source. */
  source: HubSource,
  /** How it did. */
  reach: Reach,
};

/** Whether a source lists models and gives their files. */
export type Reach = { "type": "works",
  /** From a search to its answer. */
  answer_ms: number,
  /** Rate of a short piece of a file; `None` where it offers no file small enough. */
  bytes_per_s: number | null, } | { "type": "fails",
  /** Why. */
  failure: Failure,
};

/** Whose word a file's SHA256 is. */
export type HashWord = { "type": "unknown" } | { "type": "hub",
  /** Its host. */
  host: string, } | { "type": "mirrors",
  /** Their hosts, the one that was asked first ahead. */
  hosts: Array<string>,
};

/** How to reach the network. */
export type ProxySettings = {
  /** Which proxy. */
  kind: ProxyKind,
  /** `host:port`, with `user:password@` ahead if need be; used by `Http` and `Socks5`. */
  address: string,
};

/** Which proxy requests go through. */
export type ProxyKind = "system" | "none" | "http" | "socks5";

/** What is known of the access token; never the token itself. */
export type TokenState = {
  /** Where the token in use comes from, if there is one. */
  place: TokenPlace | null,
  /** Its first and last characters, to tell it from another. */
  hint: string,
  /** Account it belongs to, once the hub has said so. */
  account: string | null,
  /** What the hub says against it, once it has said so. */
  failure: Failure | null,
};

/** Where a token is kept. */
export type TokenPlace = { "type": "key_store" } | { "type": "private_file",
  /** Where. */
  path: string, } | { "type": "session" } | { "type": "environment",
  /** Its name. */
  name: string, } | { "type": "hub_file",
  /** Where. */
  path: string,
};

/** Asks for an access token to be kept and used. */
export type TokenRequest = {
  /** The token. */
  token: string,
  /** Where to keep it. */
  keep: TokenKeep,
};

/** Where a person wants a token kept. */
export type TokenKeep = "key_store" | "private_file" | "session";

/** A search on the hub. */
export type SearchRequest = {
  /** Free text; empty lists the most downloaded. */
  query: string,
  /** Continue a page: what `SearchPage::next` said. */
  cursor: string | null,
};

/** One page of search results. */
export type SearchPage = {
  /** Repos, in the hub's order. */
  models: Array<HubModel>,
  /** More, if any. */
  next: string | null,
};

/** A repo on the hub, as a list shows it. */
export type HubModel = {
  /** `publisher/name`. */
  id: string,
  /** Downloads in 30 days. */
  downloads: number,
  /** Likes. */
  likes: number,
  /** Whether a licence must be accepted first. */
  gated: boolean,
  /** ISO 8601, as the hub says. */
  last_modified: string | null,
  /** Tags, as the hub says. */
  tags: Array<string>,
  /** Licence identifier, from the tags. */
  license: string | null,
  /** `general.architecture`, from the hub's own parse. */
  architecture: string | null,
  /** Parameters, from the hub's own parse. */
  n_params: number | null,
  /** Trained context length in tokens, from the hub's own parse. */
  context_length: number | null,
};

/** One file of a repo at a commit. */
export type RepoFile = {
  /** `publisher/name`. */
  repo: string,
  /** Commit the answer was pinned to. */
  commit: string,
  /** Path in the repo, `/` between parts. */
  path: string,
  /** Size. */
  size_bytes: number,
  /** SHA256 in hex, where the hub tells it. */
  sha256: string | null,
  /** Whose word the SHA256 is. */
  hash_word: HashWord,
};

/** What a model's page shows; plans follow from `plan_versions`. */
export type ModelPage = {
  /** The repo. */
  model: HubModel,
  /** Commit everything here is pinned to. */
  commit: string,
  /** Quantised versions, smallest first; shards are one version. */
  versions: Array<ModelVersion>,
  /** Why there are none, or why none can be used. */
  refusal: Failure | null,
  /** What the repo holds instead of GGUF files. */
  foreign: ForeignModel | null,
};

/** A model in formats that do not run here. */
export type ForeignModel = {
  /** Formats, the one that says most first. */
  formats: Array<ModelFormat>,
  /** Why the first does not run here. */
  why: Text,
  /** Engines that run it. */
  engines: Array<ExternalEngine>,
};

/** A format of model files that this engine does not run. */
export type ModelFormat = "gptq" | "awq" | "exl" | "mlx" | "bits_and_bytes" | "fp8" | "compressed_tensors" | "onnx" | "safetensors" | "pickle";

/** Another program that runs models. */
export type ExternalEngine = {
  /** Its name. */
  name: string,
  /** Its page. */
  url: string,
  /** What it needs. */
  needs: Text,
};

/** One quantised version of a model: one file, or all shards of one. */
export type ModelVersion = {
  /** Quantisation label, such as `Q4_K_M`. */
  quant: string,
  /** One file, or the shards in order. */
  files: Array<RepoFile>,
  /** Of all files. */
  size_bytes: number,
  /** Why it is of no use, as far as the list of files tells: it lacks shards. */
  refusal: Failure | null,
  /** Projector and draft that go with it; not counted in its size. */
  companions: Array<Companion>,
  /** Where this version stands on this machine. */
  presence: Presence,
};

/** A file that goes with a model. */
export type Companion = {
  /** What it is to the model. */
  role: FileRole,
  /** The file. */
  file: RepoFile,
};

/** Where a version stands on this machine. */
export type Presence = { "type": "absent" } | { "type": "downloading",
  /** Download to look at. */
  download_id: string, } | { "type": "here",
  /** Library model to use. */
  model_id: string,
};

/** Asks for plans of all versions of a repo. */
export type PlanVersionsRequest = {
  /** `publisher/name`. */
  repo: string,
  /** Constraints. */
  wishes: Wishes,
  /** Another machine than this one. */
  machine: Hardware | null,
  /** Plan as if the graphics card computed even where it cannot. */
  card_computes: boolean,
  /** Where the headers come from. */
  headers: Reading,
};

/** Whether what was read of a hub before will do. */
export type Reading = "kept" | "again";

/** Plans of all versions of a repo, from their headers. */
export type PlannedVersions = {
  /** In the order of `ModelPage::versions`. */
  versions: Array<PlannedVersion>,
  /** Index of the version to take here, if any runs. */
  recommended: number | null,
  /** Why that one, and what the next better and next smaller would cost. */
  reason: Text,
};

/** One version's plan, or why there is none. */
export type PlannedVersion = {
  /** Path of its first file. */
  path: string,
  /** The plan. */
  plan: Plan | null,
  /** Why it cannot run here at all. */
  refusal: Failure | null,
};

/** Asks for a version to be downloaded. */
export type DownloadRequest = {
  /** One file, or all shards. */
  files: Array<RepoFile>,
};

/** Moves a download within the queue. */
export type MoveDownloadRequest = {
  /** Which. */
  id: string,
  /** Where to. */
  to: Move,
};

/** A step in a list. */
export type Move = "up" | "down";

/** A download and where it stands. */
export type Download = {
  /** Identifies it for pause, resume and cancel. */
  id: string,
  /** What is being fetched. */
  files: Array<RepoFile>,
  /** Quantisation label. */
  quant: string,
  /** Of all files. */
  size_bytes: number,
  /** On disk so far. */
  arrived_bytes: number,
  /** Hashed so far. */
  verified_bytes: number,
  /** Pieces of 16 MiB that were found damaged and fetched again. */
  n_repaired: number,
  /** Where it stands. */
  state: DownloadState,
  /** Over the last seconds; 0 when not running. */
  bytes_per_s: number,
  /** At this rate. */
  seconds_left: number | null,
  /** Set while `state` is `Failed` or `Paused` by a fault. */
  failure: Failure | null,
};

/** Where a download stands. */
export type DownloadState = "queued" | "running" | "retrying" | "paused" | "verifying" | "repairing" | "done" | "failed";

/** A model on this machine. */
export type LibraryModel = {
  /** Stable identifier. */
  id: string,
  /** Display name. */
  name: string,
  /** Quantisation label. */
  quant: string,
  /** `general.architecture`. */
  architecture: string,
  /** First file. */
  path: string,
  /** Of all files. */
  size_bytes: number,
  /** Elements over all tensors. */
  n_params: number,
  /** Trained context length in tokens. */
  context_length: number,
  /** Whether the bytes are what the hub promised. */
  integrity: Integrity,
  /** Where it came from, if known. */
  source: RepoFile | null,
  /** Why it cannot be used for chat, if so. */
  refusal: Failure | null,
  /** When it was added. */
  added_at_ms: number,
  /** Every file of it: the model's own in order, then those that go with it. */
  files: Array<LibraryFile>,
  /** Every place where it lies; the first is the one in use. */
  places: Array<LibraryPlace>,
  /** What the hub has in its stead by now, as far as anybody has looked. */
  newer: RepoFile | null,
};

/** One file of a model on this machine. */
export type LibraryFile = {
  /** Full path. */
  path: string,
  /** What it is to the model. */
  role: FileRole,
  /** Size. */
  size_bytes: number,
  /** When it was last changed. */
  modified_ms: number,
  /** SHA256 in hex that the hub, or the program that fetched it, promises. */
  expected_sha256: string | null,
  /** SHA256 in hex of the bytes on the disk, once computed. */
  sha256: string | null,
};

/** A place where a model lies. */
export type LibraryPlace = {
  /** Path of its first file there. */
  path: string,
  /** Whose place it is. */
  program: Program,
  /** The folder in use that holds it; absent for a file that was added by itself. */
  folder: string | null,
  /** What its program calls it there, if it has names of its own. */
  title: string | null,
};

/** A program that keeps models on this machine. */
export type Program = "tandem" | "lm_studio" | "ollama" | "hugging_face" | "jan" | "llama_cpp" | "other";

/** A folder with models that is used in place, or could be. */
export type LibraryFolder = {
  /** Full path. */
  path: string,
  /** Whose folder it is. */
  program: Program,
  /** Whether its models are in the library. */
  is_used: boolean,
  /** Models in it. */
  n_models: number,
  /** Of all their files. */
  size_bytes: number,
  /** What in it could not be read. */
  problems: Array<Failure>,
};

/** What became of files and folders that were added together. */
export type AddedPaths = {
  /** Models of the files. */
  models: Array<LibraryModel>,
  /** Folders, now used in place. */
  folders: Array<LibraryFolder>,
  /** Why the others were not added. */
  failures: Array<Failure>,
};

/** Asks for a model to be removed, or what that would mean. */
export type RemoveRequest = {
  /** The model. */
  model_id: string,
  /** Other programs whose files may go too; the app's own always do. */
  of_programs: Array<Program>,
};

/** What removing a model does. */
export type Removal = {
  /** Files that go to the trash. */
  files: Array<string>,
  /** Space that this frees once the trash is empty; less than the files where others share their bytes. */
  freed_bytes: number,
  /** Places where the model stays. */
  stays: Array<LibraryPlace>,
};

/** How far a check of a model's files is. */
export type VerifyProgress = {
  /** Read so far. */
  done_bytes: number,
  /** Of all files. */
  total_bytes: number,
};

/** What a look for newer versions found. */
export type UpdatesFound = {
  /** Models whose repos were asked. */
  n_checked: number,
  /** Models of which the hub has another version by now. */
  n_newer: number,
  /** Why some repos did not answer. */
  failures: Array<Failure>,
};

/** Whether a model file's bytes are known to be right. */
export type Integrity = "verified" | "unverified" | "mismatched";

/** What a file is to its model. */
export type FileRole = "model" | "projector" | "draft";

/** What is known of this machine's speed; plans assume an ordinary machine where it is not. */
export type Measured = {
  /** From the benchmark. */
  rates: MachineRates | null,
  /** From answers. */
  corrections: Array<Correction>,
};

/** What a benchmark of a few seconds found. */
export type MachineRates = {
  /** Processor, cores, instruction set and memory that were measured; on others the figures mean nothing. */
  machine: string,
  /** When. */
  at_ms: number,
  /** How long it took, milliseconds. */
  took_ms: number,
  /** Reading main memory, by number of threads. */
  memory: Array<ReadRate>,
  /** The engine's products, by type of weights. */
  kernels: Array<KernelRate>,
  /** What a layer takes for one token beside products of weights, seconds: norms, hand-overs between threads. */
  layer_s: number,
  /** The same for each value of the residual stream, seconds. */
  layer_s_per_value: number,
  /** What one product takes beside reading its weights, seconds: threads meet, and the last one is waited for. */
  product_s: number,
  /** What a row of weights takes beside its values, seconds: a sum at its end. */
  row_s: number,
  /** Reading keys and values, bytes per second. */
  attention_bytes_per_s: number,
  /** Reading a file that is not in memory yet, bytes per second; absent where that cannot be measured. */
  disk_bytes_per_s: number | null,
  /** Graphics cards, as far as a device layer could measure them. */
  cards: Array<CardRates>,
};

/** What a graphics card was measured to do. */
export type CardRates = {
  /** Its name, as the driver gives it: another card's figures mean nothing. */
  name: string,
  /** Weights from its own memory for one token after another, bytes per second. */
  read_bytes_per_s: number,
  /** From main memory to the card, bytes per second. */
  upload_bytes_per_s: number,
  /** A hand-over to the card and back, seconds. */
  hand_over_s: number,
};

/** Memory speed with so many threads. */
export type ReadRate = {
  /** Threads that read. */
  n_threads: number,
  /** All together. */
  bytes_per_s: number,
};

/** How fast weights of one type are multiplied. */
export type KernelRate = {
  /** GGUF's name of the type. */
  tensor_type: string,
  /** One thread, weights from memory, one token: bytes per second. */
  one_thread_bytes_per_s: number,
  /** The same with activations rounded twice, as small models have them. */
  one_thread_twice_bytes_per_s: number,
  /** As many threads as a plan takes, the same. */
  all_threads_bytes_per_s: number,
  /** The same with activations rounded twice; 0 where only older figures are known. */
  all_threads_twice_bytes_per_s: number,
  /** How many those are. */
  n_threads: number,
  /** One thread, weights in its cache: what the kernel itself can do. */
  cached_bytes_per_s: number,
  /** Many tokens at once, one thread: operations per second. */
  prompt_ops_per_s: number,
  /** All threads, the same; 0 where only older figures are known. */
  all_threads_prompt_ops_per_s: number,
};

/** What answers of a kind of model showed about its predictions. */
export type Correction = {
  /** Kind of model: architecture and quantisation; empty: any. */
  class: string,
  /** Time taken over time predicted, for generation. */
  generation: number,
  /** The same for prompts. */
  prompt: number,
  /** Answers behind it. */
  n_runs: number,
};

/** The benchmark of this machine's speed. */
export type CalibrationState = { "type": "absent" } | { "type": "running",
  /** 0 to 1. */
  progress: number, } | { "type": "done",
  /** What it found. */
  rates: MachineRates, } | { "type": "failed",
  /** Why. */
  failure: Failure,
};

/** What was predicted for one answer, and what came of it. */
export type Outcome = {
  /** When. */
  at_ms: number,
  /** Name of the model. */
  model: string,
  /** Kind of model, as corrections name it. */
  class: string,
  /** Machine that it ran on, as the benchmark names it. */
  machine: string,
  /** Whether the prediction came from measured rates. */
  is_measured: boolean,
  /** Compute threads. */
  n_threads: number,
  /** Tokens in the context, on the average. */
  n_context_tokens: number,
  /** Generation as it was predicted, tokens per second. */
  predicted_tokens_per_s: number,
  /** The same before corrections. */
  uncorrected_tokens_per_s: number,
  /** Generation as it was. */
  tokens_per_s: number,
  /** Prompt tokens that were read anew. */
  n_prompt_tokens: number,
  /** Prompt as it was predicted, tokens per second. */
  predicted_prompt_tokens_per_s: number,
  /** The same before corrections. */
  uncorrected_prompt_tokens_per_s: number,
  /** Prompt as it was; 0 if there was too little of it to measure. */
  prompt_tokens_per_s: number,
};

/** How well this machine is known. */
export type Predictions = {
  /** The benchmark. */
  calibration: CalibrationState,
  /** What answers have taught, by kind of model. */
  corrections: Array<Correction>,
  /** The last answers, latest first. */
  outcomes: Array<Outcome>,
};

/** One plan that was tried on the real engine. */
export type Trial = {
  /** Compute threads. */
  n_threads: number,
  /** Tokens per prompt chunk. */
  n_batch: number,
  /** Type of the KV cache. */
  kv_type: string,
  /** How the file was read. */
  file_use: FileUse,
  /** Prompt, tokens per second. */
  prompt_tokens_per_s: number,
  /** Generation, tokens per second. */
  tokens_per_s: number,
  /** Whether nothing had to be given up for it and memory was left. */
  is_safe: boolean,
};

/** The fastest safe plan of those tried, for one model, machine and context. */
export type Tuning = {
  /** Library model. */
  model_id: string,
  /** Machine, as the benchmark names it. */
  machine: string,
  /** Context length that was wished; 0 if none was. */
  context_length: number,
  /** When. */
  at_ms: number,
  /** How long it took, milliseconds. */
  took_ms: number,
  /** Compute threads. */
  n_threads: number,
  /** Tokens per prompt chunk. */
  n_batch: number,
  /** Type of the KV cache. */
  kv_type: string,
  /** How the file is read. */
  file_use: FileUse,
  /** Generation with it, tokens per second. */
  tokens_per_s: number,
  /** What was not tried, and why. */
  not_tried: Array<Text>,
  /** All that were tried, in order. */
  trials: Array<Trial>,
};

/** What auto-tune reports. */
export type TuneEvent = { "type": "tried",
  /** Which, and how fast it was. */
  trial: Trial,
  /** 0 to 1. */
  progress: number, } | { "type": "done",
  /** What was found. */
  tuning: Tuning, } | { "type": "failed",
  /** Why. */
  failure: Failure,
};

/** What this machine has, measured now. */
export type Hardware = {
  /** Processor. */
  cpu: Cpu,
  /** Installed RAM. */
  ram_total_bytes: number,
  /** RAM that programs can still take. */
  ram_available_bytes: number,
  /** Memory modules, where the system tells. */
  ram_modules: RamModules | null,
  /** Swap space; 0 where there is none. */
  swap_total_bytes: number,
  /** Swap space in use: what was pushed out of memory already. */
  swap_used_bytes: number,
  /** Graphics cards that could compute. */
  gpus: Array<Gpu>,
  /** How the search for cards ended. */
  gpu_probe: GpuProbe,
  /** Volume of the models folder. */
  disk: Disk,
  /** Operating system. */
  os: string,
  /** How fast it is, as far as that is known. */
  measured: Measured,
};

/** Modules of main memory. */
export type RamModules = {
  /** How many are plugged in. One alone gives half of what two would. */
  n: number,
  /** Transfers per second they are set to, in millions, if told. */
  mega_transfers_per_s: number | null,
};

/** A processor. */
export type Cpu = {
  /** Model name. */
  name: string,
  /** Physical cores. */
  n_physical_cores: number,
  /** Logical cores. */
  n_logical_cores: number,
  /** Performance cores among the physical ones. */
  n_performance_cores: number,
  /** Cores this process may use (cpuset, cgroup). */
  n_allowed_cores: number,
  /** Instruction set the engine chose: `scalar`, `avx2`, `avxvnni`, `avx512vnni`. */
  isa: string,
};

/** A graphics card. */
export type Gpu = {
  /** The driver's index where it computes; another one where it does not. */
  index: number,
  /** Name. */
  name: string,
  /** Total VRAM. */
  vram_total_bytes: number,
  /** Free VRAM now. */
  vram_free_bytes: number,
  /** Driver version. */
  driver: string,
  /** Load in percent, if told. */
  load_percent: number | null,
  /** Temperature in °C, if told. */
  temperature_c: number | null,
  /** Why it does not compute, if it does not. */
  unusable: Text | null,
};

/** How the search for graphics cards ended. */
export type GpuProbe = { "type": "found" } | { "type": "no_driver" } | { "type": "no_device" } | { "type": "failed",
  /** The driver's words. */
  reason: string,
};

/** A volume. */
export type Disk = {
  /** Folder asked for. */
  path: string,
  /** Size of the volume. */
  total_bytes: number,
  /** Free for this user. */
  free_bytes: number,
  /** What it is made of. */
  kind: DiskKind,
};

/** What a volume is made of. */
export type DiskKind = "solid" | "rotating" | "unknown";

/** What the gauges show, once a second and on every change of phase. */
export type Gauges = {
  /** When. */
  at_ms: number,
  /** Resident memory of the app and its windows. */
  ram_app_bytes: number,
  /** RAM that programs can still take. */
  ram_available_bytes: number,
  /** Installed RAM. */
  ram_total_bytes: number,
  /** Cards, with VRAM now. */
  gpus: Array<Gpu>,
  /** Why there are none. */
  gpu_probe: GpuProbe,
  /** What the engine is doing. */
  phase: Phase,
  /** Tokens per second of what is running now (prompt or generation), or of the last answer. */
  tokens_per_s: number | null,
};

/** What the engine is doing. */
export type Phase = "empty" | "loading" | "idle" | "prompt" | "generating";

/** What the person wants; each is a constraint. */
export type Wishes = {
  /** Context length in tokens. */
  context_length: number | null,
  /** Layers on the GPU. */
  n_gpu_layers: number | null,
  /** Most layers whose experts may lie on the GPU. */
  n_expert_layers: number | null,
  /** Compute threads. */
  n_threads: number | null,
  /** Tokens per prompt chunk. */
  n_batch: number | null,
  /** What auto-tune found fastest: taken where nothing else is wished and memory allows. */
  tuned: Tuned | null,
  /** Type of the KV cache, such as `q8_0`. */
  kv_type: string | null,
  /** How the file is read. */
  file_use: FileUse | null,
  /** What matters most where nothing is fixed. */
  aim: Aim,
};

/** What auto-tune found fastest. */
export type Tuned = {
  /** Compute threads. */
  n_threads: number,
  /** Tokens per prompt chunk. */
  n_batch: number,
  /** Type of the KV cache. */
  kv_type: string,
  /** How the file is read. */
  file_use: FileUse,
};

/** What matters most to a person. */
export type Aim = "balanced" | "longer_context" | "better_quality" | "faster";

/** How a model would run on this machine, and why. */
export type Plan = {
  /** `general.architecture`. */
  architecture: string,
  /** Quantisation label. */
  quant: string,
  /** In one word. */
  verdict: Verdict,
  /** In one line: `Runs well: about 17 tokens/s, 8k context`. */
  headline: Text,
  /** Layers of the model. */
  n_layers: number,
  /** Layers on the GPU, in llama.cpp's counting (the output layer is one more). */
  n_gpu_layers: number,
  /** Layers whose experts stay in RAM while the rest is on the GPU. */
  n_cpu_moe_layers: number,
  /** Compute threads. */
  n_threads: number,
  /** Context length in tokens. */
  context_length: number,
  /** Trained context length in tokens. */
  max_context_length: number,
  /** Tokens per prompt chunk. */
  n_batch: number,
  /** `f16`, `q8_0`, …; two names with a slash between where keys and values differ. */
  kv_type: string,
  /** How the file is read. */
  file_use: FileUse,
  /** What the quantisation costs. */
  quality: Quality,
  /** The longest context that works here, tokens; 0 if none does. */
  usable_context_length: number,
  /** What other contexts would do, shortest first. */
  contexts: Array<ContextStep>,
  /** One line per part: what, bytes, where, why. */
  lines: Array<PlanLine>,
  /** Where each layer lives, in order. */
  layers: Array<PlanLayer>,
  /** One line per choice: threads, context, …: what and why. */
  choices: Array<PlanChoice>,
  /** Bars: the GPU's, if there is one. */
  gpu_bar: MemoryBar | null,
  /** Bars: RAM's. */
  ram_bar: MemoryBar,
  /** Bars: that of the volume of the models folder, with the whole file. */
  disk_bar: MemoryBar,
  /** Expected speed. */
  speed: Speed,
  /** What the time of a token goes to; together as long as the likely rate says. */
  token_costs: Array<TokenCost>,
  /** Said when the plan names a GPU but the CPU computes. */
  cpu_computes: Text | null,
  /** In plain words. */
  warnings: Array<Text>,
  /** The same in llama.cpp's terms. */
  llama_cpp_command: string,
};

/** A plan in one word. */
export type Verdict = "fast" | "runs_well" | "slow" | "tight" | "too_large";

/** One part of a plan. */
export type PlanLine = {
  /** Kind of part. */
  part: Part,
  /** What it is. */
  what: Text,
  /** Its size. */
  bytes: number,
  /** Where it lives. */
  place: Place,
  /** Why there. */
  why: Text,
};

/** Where one layer lives. */
export type PlanLayer = {
  /** What it remembers. */
  keeps: Keeps,
  /** Attention or state, norms, router, shared experts, dense feed-forward. */
  mixer: Place,
  /** Its cache or state. */
  cache: Place,
  /** Routed experts, if it has any. */
  experts: Place | null,
};

/** What a layer remembers of the tokens before. */
export type Keeps = "all" | "window" | "state" | "nothing";

/** What a part of a token's time goes to. */
export type TokenCost = {
  /** Kind. */
  kind: CostKind,
  /** In words. */
  what: Text,
  /** Milliseconds per token. */
  ms: number,
};

/** Kind of a cost. */
export type CostKind = "gpu" | "weights" | "cache" | "layers" | "hand_over" | "disk";

/** One choice of a plan that is not a place. */
export type PlanChoice = {
  /** What was chosen, with its value: `2 threads`. */
  what: Text,
  /** Why. */
  why: Text,
};

/** Kind of part of a model in memory. */
export type Part = "attention" | "experts" | "embeddings" | "head" | "kv" | "buffers" | "file";

/** Where a part lives. */
export type Place = { "type": "gpu",
  /** Index of the card. */
  index: number, } | { "type": "ram" } | { "type": "disk"
};

/** One memory, its capacity and what lies in it. */
export type MemoryBar = {
  /** Installed. */
  capacity_bytes: number,
  /** Held by other programs. */
  others_bytes: number,
  /** What the plan puts here, in ribbon order (from the seam outwards). */
  parts: Array<BarPart>,
  /** Short of this much, if it does not fit. */
  shortfall_bytes: number,
};

/** One part in a bar. */
export type BarPart = {
  /** Kind of part. */
  part: Part,
  /** Its size. */
  bytes: number,
};

/** Expected speed, tokens per second. */
export type Speed = {
  /** Generation, likely. */
  generation_tokens_per_s: number,
  /** Generation, lower end. */
  generation_low_tokens_per_s: number,
  /** Generation, upper end. */
  generation_high_tokens_per_s: number,
  /** Generation with a full context, likely. */
  generation_full_tokens_per_s: number,
  /** Prompt, likely. */
  prompt_tokens_per_s: number,
  /** Prompt, lower end. */
  prompt_low_tokens_per_s: number,
  /** Prompt, upper end. */
  prompt_high_tokens_per_s: number,
};

/** How the file of a model is read. */
export type FileUse = "read_ahead" | "as_needed" | "copied";

/** What a quantisation costs in quality. */
export type Quality = {
  /** In a word. */
  loss: QualityLoss,
  /** Mean divergence of the token probabilities from those of the full model, if it was ever measured. */
  divergence: number | null,
};

/** How much quality is lost, as one would tell a person. */
export type QualityLoss = "none" | "small" | "noticeable" | "strong" | "unknown";

/** What another context length would do. */
export type ContextStep = {
  /** Tokens. */
  context_length: number,
  /** What its cache takes. */
  kv_bytes: number,
  /** How the cache would be stored. */
  kv_type: string,
  /** Layers whose experts, or in a dense model all of whose weights, would be on the GPU. */
  n_layers_on_gpu: number,
  /** Generation with all of it in use, likely, tokens per second. */
  generation_tokens_per_s: number,
  /** In one word. */
  verdict: Verdict,
};

/** What is loaded. */
export type RuntimeState = { "type": "empty" } | { "type": "loading",
  /** Library model. */
  model_id: string,
  /** 0 to 1. */
  progress: number, } | { "type": "ready",
  /** Library model. */
  model_id: string,
  /** How it runs. */
  plan: Plan,
  /** Milliseconds the load took. */
  load_ms: number,
  /** What was given up because memory was short, in a sentence. */
  given_up: Text | null,
  /** What it holds on graphics cards. */
  cards: Array<CardMemory>,
  /** What a plan made now would do better, in a sentence: free memory has changed since the load. */
  offer: Text | null, } | { "type": "failed",
  /** Library model. */
  model_id: string,
  /** Why. */
  failure: Failure,
};

/** Asks for a model to be loaded. */
export type LoadRequest = {
  /** Library model. */
  model_id: string,
  /** Constraints. */
  wishes: Wishes,
};

/** What a load reports. */
export type LoadEvent = { "type": "progress",
  /** 0 to 1. */
  progress: number, } | { "type": "ready",
  /** How it runs. */
  plan: Plan,
  /** Milliseconds the load took. */
  load_ms: number,
  /** What was given up because memory was short, in a sentence. */
  given_up: Text | null,
  /** What it holds on graphics cards. */
  cards: Array<CardMemory>, } | { "type": "failed",
  /** Why. */
  failure: Failure,
};

/** What a loaded model holds on a graphics card. */
export type CardMemory = {
  /** Index of the card. */
  index: number,
  /** Its name. */
  name: string,
  /** Part by part. */
  parts: Array<CardPart>,
  /** What the driver says is free since. */
  free_bytes: number,
};

/** One part of it. */
export type CardPart = {
  /** What it is. */
  what: Text,
  /** What the plan said. */
  planned_bytes: number,
  /** What was allocated. */
  allocated_bytes: number,
};

/** A chat, as a list shows it. */
export type ChatSummary = {
  /** Identifier. */
  id: number,
  /** First words, or what the person wrote. */
  title: string,
  /** Last change. */
  updated_at_ms: number,
  /** Messages in the tree. */
  n_messages: number,
};

/** A chat with all its messages: a tree, of which one path is shown. */
export type Chat = {
  /** Summary. */
  summary: ChatSummary,
  /** Every message, in order of creation. The first is the system message, empty where the model's own is used:
   * the parent of the first question. */
  messages: Array<Message>,
  /** Last message of the path that is shown. */
  leaf: number | null,
};

/** One message. */
export type Message = {
  /** Identifier. */
  id: number,
  /** The message it follows. */
  parent: number | null,
  /** Who speaks. */
  role: Role,
  /** What is said. */
  text: string,
  /** What was thought before, if the model shows it. */
  reasoning: string,
  /** When it was written. */
  created_at_ms: number,
  /** Name of the model that wrote it. */
  model: string | null,
  /** How it ended; absent while it is written (or when the app died in mid-answer). */
  end: EndReason | null,
  /** What it cost. */
  stats: GenerationStats | null,
};

/** Who speaks. */
export type Role = "system" | "user" | "assistant";

/** How an answer ended. */
export type EndReason = "complete" | "stopped" | "length" | "context_full" | "failed";

/** What an answer cost. */
export type GenerationStats = {
  /** Tokens of the prompt. */
  n_prompt_tokens: number,
  /** Prompt tokens taken from the cache. */
  n_reused_tokens: number,
  /** Tokens generated. */
  n_generated_tokens: number,
  /** Time for the new prompt tokens. */
  prompt_ms: number,
  /** Time for the generated tokens. */
  generation_ms: number,
  /** New prompt tokens per second. */
  prompt_tokens_per_s: number,
  /** Generated tokens per second. */
  generation_tokens_per_s: number,
  /** From the request to the first token. */
  first_token_ms: number,
};

/** Asks for an answer. */
export type SendRequest = {
  /** Chat to go on with; absent: a new one. */
  chat_id: number | null,
  /** Message that the new one follows; absent: the chat's leaf. A user message here with empty `text` is answered anew. */
  parent: number | null,
  /** What the person says. */
  text: string,
};

/** Asks for a chat's new title. */
export type RenameRequest = {
  /** Chat. */
  chat_id: number,
  /** New title. */
  title: string,
};

/** Asks for another path of a chat to be shown. */
export type LeafRequest = {
  /** Chat. */
  chat_id: number,
  /** Message whose path is to be shown, down to its newest leaf. */
  message_id: number,
};

/** What an answer reports while it is written: the one enum of all three carriers (window, HTTP, terminal). */
export type ChatEvent = { "type": "started",
  /** Chat. */
  chat: ChatSummary,
  /** The person's message. */
  user: Message,
  /** The answer, empty still. */
  assistant: Message, } | { "type": "notice",
  /** What was done instead, and what that may cost. */
  notice: Text, } | { "type": "prompt",
  /** Tokens done, reused ones included. */
  n_done: number,
  /** Tokens in all. */
  n_total: number,
  /** Tokens taken from the cache. */
  n_reused: number, } | { "type": "delta",
  /** Whole characters. */
  text: string, } | { "type": "reasoning",
  /** Whole characters. */
  text: string, } | { "type": "stats",
  /** Figures. */
  stats: GenerationStats, } | { "type": "done",
  /** As it was stored. */
  message: Message, } | { "type": "failed",
  /** As it was stored, if it was. */
  message: Message | null,
  /** Why. */
  failure: Failure,
};

/** What the window needs at start. */
export type AppInfo = {
  /** Version of the app. */
  version: string,
  /** Settings. */
  settings: Settings,
  /** Hub in use. */
  hub_url: string,
  /** The same, and how it answers. */
  source: HubSource,
  /** All sources known by name. */
  sources: Array<HubSource>,
  /** Where data lies. */
  data_dir: string,
  /** Where models lie. */
  models_dir: string,
  /** The machine. */
  hardware: Hardware,
  /** What is loaded. */
  runtime: RuntimeState,
  /** Problems found at start that do not keep the app from running (a full disk, a damaged database set aside). */
  notices: Array<Failure>,
};

/** Files and folders dragged over the window. */
export type Drag = { "type": "over" } | { "type": "left" } | { "type": "dropped",
  /** Their full paths. */
  paths: Array<string>,
};

/** What the app tells the window without being asked. */
export type AppEvent = { "type": "download",
  /** The download. */
  download: Download, } | { "type": "download_gone",
  /** Its identifier. */
  id: string, } | { "type": "library",
  /** All of it. */
  models: Array<LibraryModel>, } | { "type": "notice",
  /** What. */
  notice: Failure, } | { "type": "drag",
  /** What happens. */
  drag: Drag, } | { "type": "runtime",
  /** Now. */
  state: RuntimeState, } | { "type": "calibration",
  /** Now. */
  state: CalibrationState, } | { "type": "gauges",
  /** Now. */
  gauges: Gauges,
};
