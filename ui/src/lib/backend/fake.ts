/**
 * A backend in memory: for tests, for screenshots, and for work on the window without the app.
 *
 * It keeps its promises in order and does nothing behind the caller's back: time only passes through `pause`, which a test
 * replaces by something that returns at once.
 */

import type { AddedPaths, AppEvent, AppInfo, CalibrationState, Chat, ChatEvent, Download, Failure, GenerationStats, Hardware, HubModel, HubSource, LibraryFolder, LibraryModel, Message, ModelPage, MoveDownloadRequest, Phase, Plan, Predictions, Reach, Removal, RemoveRequest, RepoFile, RuntimeState, SendRequest, Settings, SourceProbe, Text, TokenPlace, TokenRequest, TokenState, TuneEvent, Tuning, UpdatesFound, VerifyProgress, Wishes } from '../wire';
import { heldBytes } from '../ribbon';
import { NO_WISHES } from '../wishes';
import type { Backend, Sink } from './backend';
import { ANSWER, defaultSettings, fakeChats, fakeDownloads, fakeFolders, fakeHardware, fakeLibrary, fakeOutcomes, fakeRates, type FakeRepo, fakeTuning, gptq, incomplete, INCOMPLETE_REPO, libraryModel, noKeyStore, noTemplate, offline, REASONING, repos, roomy, SECOND_ANSWER, sources, tight } from './fake-data';
import { fakeCards, fakePlan } from './fake-plans';

const GIB = 1024 ** 3;
const PAGE = 6;
const NO_TOKEN: TokenState = { place: null, hint: '', account: null, failure: null };

export type FakeOptions = {
  /** `empty`: a first start. */
  library: 'full' | 'starter' | 'empty';
  withGpu: boolean;
  /** Why the card does not compute. */
  unusable: Text | null;
  withDownloads: boolean;
  /** Commands that fail, and how. */
  failures: Partial<Record<keyof Backend, Failure>>;
  settings: Partial<Settings>;
  /** The hub itself does not answer, other sources do. */
  isHubDown: boolean;
  hasKeyStore: boolean;
  /** What is answered, instead of the invented answers. */
  answer: string;
  /** Memory is short at every load. */
  isTight: boolean;
  /** The model has no chat template. */
  hasTemplate: boolean;
  /** Lets time pass. */
  pause: (milliseconds: number) => Promise<void>;
};

export class FakeBackend implements Backend {
  readonly failures: Partial<Record<keyof Backend, Failure>>;
  /** Commands as they came in, for tests. */
  readonly calls: [command: keyof Backend, request: unknown][] = [];
  #sinks: Sink<AppEvent>[] = [];
  #settings: Settings;
  #hardware: Hardware;
  #library: LibraryModel[];
  #downloads = new Map<string, Download>();
  #chats: Chat[];
  #deleted = new Map<number, Chat>();
  #runtime: RuntimeState = { type: 'empty' };
  #calibration: CalibrationState;
  #isStopped = false;
  #token: TokenState = NO_TOKEN;
  readonly #isHubDown: boolean;
  readonly #hasKeyStore: boolean;
  #isUnloaded = false;
  #folders: LibraryFolder[] = [];
  readonly #stopped = new Set<string>();
  #isTuningStopped = false;
  #tuning: Tuning | null = null;
  #nextId = 1000;
  #phase: Phase = 'empty';
  #rate: number | null = null;
  readonly #hasTemplate: boolean;
  readonly #givenUp: Text | null;
  readonly #pause: (milliseconds: number) => Promise<void>;
  readonly #answer: string | undefined;

  constructor(options: Partial<FakeOptions> = {}) {
    const { library = 'full', withGpu = true, unusable = null, withDownloads = false, failures = {}, settings = {}, isHubDown = false, hasKeyStore = true, answer, isTight = false, hasTemplate = true, pause = () => Promise.resolve() } = options;
    this.failures = failures;
    this.#isHubDown = isHubDown;
    this.#hasKeyStore = hasKeyStore;
    this.#settings = { ...defaultSettings, ...settings };
    this.#hardware = fakeHardware(withGpu, unusable);
    this.#calibration = library === 'full' ? { type: 'done', rates: fakeRates } : { type: 'absent' };
    this.#library = library === 'empty' ? [] : library === 'starter' ? fakeLibrary().slice(0, 1) : fakeLibrary();
    this.#folders = library === 'full' ? fakeFolders() : [];
    this.#chats = library === 'full' ? fakeChats() : [];
    for (const download of withDownloads ? fakeDownloads() : []) this.#downloads.set(download.id, download);
    this.#givenUp = isTight ? tight : null;
    this.#hasTemplate = hasTemplate;
    this.#pause = pause;
    this.#answer = answer;
  }

  // What a test or a screenshot may do from outside -----------------------------------------------

  emit(event: AppEvent): void {
    for (const sink of this.#sinks) sink(event);
  }

  /** Memory has become free since the load. */
  offerMore(): void {
    if (this.#runtime.type === 'ready') this.#setRuntime({ ...this.#runtime, offer: roomy }, this.#phase);
  }

  gauge(): void {
    const app = (this.#runtime.type === 'ready' ? this.#runtime.plan.ram_bar.parts.reduce((sum, part) => sum + part.bytes, 0) : 0) + 0.2 * GIB;
    const hardware = this.#hardware;
    const held = this.#runtime.type === 'ready' ? heldBytes(this.#runtime.cards) : 0;
    const gpus = hardware.gpus.map((gpu) => ({ ...gpu, vram_free_bytes: Math.max(0, gpu.vram_free_bytes - held) }));
    this.emit({
      type: 'gauges',
      gauges: { at_ms: Date.now(), ram_app_bytes: app, ram_available_bytes: hardware.ram_available_bytes - app, ram_total_bytes: hardware.ram_total_bytes, gpus, gpu_probe: hardware.gpu_probe, phase: this.#phase, tokens_per_s: this.#rate },
    });
  }

  // Commands ------------------------------------------------------------------------------------------

  async app_info(): Promise<AppInfo> {
    this.#enter('app_info');
    return this.#info();
  }

  async set_settings(settings: Settings): Promise<AppInfo> {
    this.#enter('set_settings', settings);
    this.#settings = settings;
    return this.#info();
  }

  async hardware(): Promise<Hardware> {
    this.#enter('hardware');
    return this.#hardware;
  }

  async predictions(): Promise<Predictions> {
    this.#enter('predictions');
    return { calibration: this.#calibration, corrections: this.#hardware.measured.corrections, outcomes: this.#chats.length > 0 ? fakeOutcomes() : [] };
  }

  async start_calibration(): Promise<void> {
    this.#enter('start_calibration');
    this.#calibrate({ type: 'running', progress: 0 });
    void this.#benchmark();
  }

  async skip_calibration(): Promise<void> {
    this.#enter('skip_calibration');
    this.#calibrate(this.#hardware.measured.rates ? { type: 'done', rates: this.#hardware.measured.rates } : { type: 'absent' });
  }

  async probe_sources(): Promise<SourceProbe[]> {
    await this.#pause(700);
    this.#enter('probe_sources');
    const down: Reach = { type: 'fails', failure: offline };
    return sources.map((source, index) => ({ source, reach: this.#isHubDown && source.is_origin ? down : { type: 'works', answer_ms: 84 + 70 * index, bytes_per_s: (11 - 2 * index) * 1024 ** 2 } }));
  }

  async confirm_hashes(files: RepoFile[]): Promise<RepoFile[]> {
    await this.#pause(300);
    this.#enter('confirm_hashes', files);
    return files.map((file) => ({ ...file, hash_word: this.#isHubDown ? { type: 'mirrors', hosts: ['hf-mirror.com', 'modelscope.cn'] } : { type: 'hub', host: 'huggingface.co' } }));
  }

  async token(): Promise<TokenState> {
    this.#enter('token');
    return this.#token;
  }

  async check_token(): Promise<TokenState> {
    this.#enter('check_token');
    return this.#token.place ? { ...this.#token, account: 'ada' } : this.#token;
  }

  async set_token(request: TokenRequest): Promise<TokenState> {
    this.#enter('set_token', request);
    if (request.keep === 'key_store' && !this.#hasKeyStore) throw noKeyStore;
    const place: TokenPlace = request.keep === 'private_file' ? { type: 'private_file', path: '/home/me/.local/share/tandem/access-token' } : { type: request.keep };
    this.#token = { place, hint: `hf_••••${request.token.slice(-4)}`, account: null, failure: null };
    return this.#token;
  }

  async remove_token(): Promise<TokenState> {
    this.#enter('remove_token');
    this.#token = NO_TOKEN;
    return this.#token;
  }

  async search_models(request: { query: string; cursor: string | null }): Promise<{ models: FakeRepo['model'][]; next: string | null }> {
    await this.#pause(180);
    this.#enter('search_models', request);
    if (this.#isHubDown && this.#info().source.is_origin) throw offline;
    const words = request.query.toLowerCase().split(/\s+/).filter(Boolean);
    const found = repos.filter(({ model }) => words.every((word) => model.id.toLowerCase().includes(word))).map(({ model }) => model).sort((a, b) => b.downloads - a.downloads);
    const start = Number(request.cursor ?? 0);
    return { models: found.slice(start, start + PAGE), next: found.length > start + PAGE ? String(start + PAGE) : null };
  }

  async gguf_versions(repo: string): Promise<HubModel[]> {
    await this.#pause(250);
    this.#enter('gguf_versions', repo);
    return repos.map(({ model }) => model).filter(({ id }) => id.includes('Qwen3.6') && id.endsWith('GGUF'));
  }

  async model_page(repo: string): Promise<ModelPage> {
    await this.#pause(150);
    this.#enter('model_page', repo);
    const found = this.#repo(repo);
    return {
      model: found.model,
      commit: 'a'.repeat(40),
      versions: found.quants.map(([quant, gib]) => {
        const files = [fileOf(repo, quant, gib, this.#info().source)];
        const download = [...this.#downloads.values()].find((each) => each.files[0]?.path === files[0]!.path && each.state !== 'done');
        const here = this.#library.find((model) => model.source?.repo === repo && model.quant === quant);
        return {
          quant,
          files,
          size_bytes: gib * GIB,
          refusal: repo === INCOMPLETE_REPO && quant === 'Q4_K_M' ? incomplete : null,
          companions: found.projectorGib ? [{ role: 'projector' as const, file: { ...fileOf(repo, 'F16', found.projectorGib), path: 'mmproj-F16.gguf' } }] : [],
          presence: here ? { type: 'here', model_id: here.id } : download ? { type: 'downloading', download_id: download.id } : { type: 'absent' },
        };
      }),
      refusal: found.failure ?? null,
      foreign: found.failure?.code === 'no_gguf_in_repo' ? gptq : null,
    };
  }

  async plan_versions(request: Parameters<Backend['plan_versions']>[0], events: Parameters<Backend['plan_versions']>[1]): ReturnType<Backend['plan_versions']> {
    this.#enter('plan_versions', request);
    const found = this.#repo(request.repo);
    const versions = found.quants.map(([quant, gib]) => {
      const path = fileOf(request.repo, quant, gib).path;
      return { path, plan: fakePlan(found.facts, quant, gib * GIB, path, this.#hardware, request.wishes), refusal: null };
    });
    for (const version of versions) {
      await this.#pause(70);
      events(version);
    }
    const good = versions.map(({ plan }, index) => ({ plan, index })).filter(({ plan }) => plan.verdict !== 'too_large' && plan.verdict !== 'tight');
    const preferred = good.find(({ plan }) => plan.quant === 'Q4_K_M') ?? good.at(-1);
    const quant = preferred?.plan.quant ?? '';
    return {
      versions,
      recommended: preferred?.index ?? null,
      reason: preferred
        ? { en: `${quant} is the best version here. The next better one costs 3 tokens/s for a gain few people notice; the next smaller saves 2.1\u00a0GB and is 2 tokens/s faster.`, zh: `${quant} 是本机的最佳版本。更大一级每秒少 3 个词元，提升不易察觉；更小一级省 2.1\u00a0GB，每秒快 2 个词元。` }
        : { en: 'Even the smallest version needs more memory than this machine has.', zh: '最小的版本也超出了本机的内存。' },
    };
  }

  async stop_planning(): Promise<void> {
    this.#enter('stop_planning');
  }

  async plan_model(request: { model_id: string; wishes: Wishes }): Promise<Plan> {
    this.#enter('plan_model', request);
    return this.#planOf(request.model_id, request.wishes);
  }

  async downloads(): Promise<Download[]> {
    this.#enter('downloads');
    return [...this.#downloads.values()];
  }

  async start_download(request: { files: RepoFile[] }): Promise<Download> {
    this.#enter('start_download', request);
    const file = request.files[0]!;
    const download: Download = { id: `d${this.#nextId++}`, files: request.files, quant: /-([^-]+)\.gguf$/.exec(file.path)?.[1] ?? '', size_bytes: file.size_bytes, arrived_bytes: 0, verified_bytes: 0, n_repaired: 0, state: 'queued', bytes_per_s: 0, seconds_left: null, failure: null };
    this.#downloads.set(download.id, download);
    void this.#run(download.id);
    return { ...download };
  }

  async pause_download(id: string): Promise<void> {
    this.#enter('pause_download', id);
    this.#update(id, { state: 'paused', bytes_per_s: 0, seconds_left: null });
  }

  async resume_download(id: string): Promise<void> {
    this.#enter('resume_download', id);
    this.#update(id, { state: 'running', failure: null });
    void this.#run(id);
  }

  async cancel_download(id: string): Promise<void> {
    this.#enter('cancel_download', id);
    this.#downloads.delete(id);
    this.emit({ type: 'download_gone', id });
  }

  async move_download(request: MoveDownloadRequest): Promise<Download[]> {
    this.#enter('move_download', request);
    const list = [...this.#downloads.values()];
    const unfinished = list.flatMap(({ state }, index) => (state === 'done' ? [] : [index]));
    const place = unfinished.findIndex((index) => list[index]!.id === request.id);
    const [one, other] = [unfinished[place], unfinished[place + (request.to === 'up' ? -1 : 1)]];
    if (one !== undefined && other !== undefined) [list[one], list[other]] = [list[other]!, list[one]!];
    this.#downloads = new Map(list.map((download) => [download.id, download]));
    return list;
  }

  async library(): Promise<LibraryModel[]> {
    this.#enter('library');
    return [...this.#library];
  }

  async add_model(path: string): Promise<LibraryModel> {
    this.#enter('add_model', path);
    if (!path.endsWith('.gguf')) throw { code: 'not_gguf', message: { en: `\`${path}\` is not a GGUF file.`, zh: `\`${path}\` 不是 GGUF 文件。` }, hint: { en: 'Pick a file that ends in .gguf.', zh: '请选择以 .gguf 结尾的文件。' } } satisfies Failure;
    const name = path.split('/').at(-1)!.replace('.gguf', '');
    return this.#keep({ ...fakeLibrary()[2]!, id: `m${this.#nextId++}`, name, path, integrity: 'unverified', added_at_ms: Date.now() });
  }

  async rescan_library(): Promise<LibraryModel[]> {
    this.#enter('rescan_library');
    return [...this.#library];
  }

  async add_paths(paths: string[]): Promise<AddedPaths> {
    this.#enter('add_paths', paths);
    const added: AddedPaths = { models: [], folders: [], failures: [] };
    for (const path of paths) {
      if (path.endsWith('.gguf')) added.models.push(await this.add_model(path));
      else if (path.includes('.')) await this.add_model(path).catch((failure: Failure) => added.failures.push(failure));
      else added.folders.push(await this.use_folder(path));
    }
    return added;
  }

  async library_folders(): Promise<LibraryFolder[]> {
    this.#enter('library_folders');
    return structuredClone(this.#folders);
  }

  async use_folder(path: string): Promise<LibraryFolder> {
    this.#enter('use_folder', path);
    const folder = { ...(this.#folders.find((folder) => folder.path === path) ?? { path, program: 'other' as const, n_models: 1, size_bytes: GIB, problems: [] }), is_used: true };
    this.#folders = [...this.#folders.filter((other) => other.path !== path), folder];
    this.#keep(libraryModel(`m${this.#nextId++}`, 'Mistral Small 3.2', 'Q4_K_M', 13.3, { integrity: 'unverified', path: `${path}/mistral.gguf`, places: [{ path: `${path}/mistral.gguf`, program: folder.program, folder: path, title: null }] }));
    return folder;
  }

  async drop_folder(path: string): Promise<void> {
    this.#enter('drop_folder', path);
    this.#folders = this.#folders.map((folder) => (folder.path === path ? { ...folder, is_used: false } : folder));
    this.#library = this.#library.filter(({ places }) => places.some(({ folder }) => folder !== path));
    this.emit({ type: 'library', models: [...this.#library] });
  }

  async verify_model(id: string, events: Sink<VerifyProgress>): Promise<LibraryModel> {
    this.#enter('verify_model', id);
    this.#stopped.delete(id);
    const total_bytes = this.#library.find((model) => model.id === id)?.size_bytes ?? 0;
    for (let share = 0; share <= 1; share += 0.125) {
      if (this.#stopped.has(id)) throw { code: 'cancelled', message: { en: 'stopped', zh: '已停止' }, hint: { en: 'nothing was changed', zh: '没有任何改动' } } satisfies Failure;
      events({ done_bytes: total_bytes * share, total_bytes });
      await this.#pause(200);
    }
    this.#library = this.#library.map((model) => (model.id === id ? { ...model, integrity: 'verified' as const, files: model.files.map((file) => ({ ...file, sha256: file.expected_sha256 ?? 'c'.repeat(64) })) } : model));
    this.emit({ type: 'library', models: [...this.#library] });
    return this.#library.find((model) => model.id === id)!;
  }

  async stop_verify(id: string): Promise<void> {
    this.#enter('stop_verify', id);
    this.#stopped.add(id);
  }

  async check_updates(): Promise<UpdatesFound> {
    this.#enter('check_updates');
    return { n_checked: 3, n_newer: 1, failures: [] };
  }

  async plan_removal(request: RemoveRequest): Promise<Removal> {
    this.#enter('plan_removal', request);
    return this.#removal(request);
  }

  async remove_model(request: RemoveRequest): Promise<Removal> {
    this.#enter('remove_model', request);
    const removal = this.#removal(request);
    this.#library = this.#library.filter((model) => model.id !== request.model_id);
    this.emit({ type: 'library', models: [...this.#library] });
    return removal;
  }

  async load_model(request: { model_id: string }, events: Parameters<Backend['load_model']>[1]): Promise<void> {
    this.#enter('load_model', request);
    this.#isUnloaded = false;
    this.#phase = 'loading';
    const plan = this.#planOf(request.model_id);
    for (let progress = 0; progress <= 1; progress += 0.125) {
      if (this.#isUnloaded) {
        const failure: Failure = { code: 'cancelled', message: { en: 'Loading was stopped.', zh: '已停止加载。' }, hint: { en: 'Nothing was changed.', zh: '没有任何改动。' } };
        events({ type: 'failed', failure });
        this.#setRuntime({ type: 'empty' }, 'empty');
        return;
      }
      events({ type: 'progress', progress });
      this.#setRuntime({ type: 'loading', model_id: request.model_id, progress }, 'loading');
      await this.#pause(160);
    }
    const cards = fakeCards(plan);
    events({ type: 'ready', plan, load_ms: 1280, given_up: this.#givenUp, cards });
    this.#setRuntime({ type: 'ready', model_id: request.model_id, plan, load_ms: 1280, given_up: this.#givenUp, cards, offer: null }, 'idle');
  }

  async unload_model(): Promise<void> {
    this.#enter('unload_model');
    this.#isUnloaded = true;
    if (this.#runtime.type !== 'loading') this.#setRuntime({ type: 'empty' }, 'empty');
  }

  async tuning(): Promise<Tuning | null> {
    this.#enter('tuning');
    return this.#tuning;
  }

  async tune_model(request: { model_id: string }, events: Sink<TuneEvent>): Promise<void> {
    this.#enter('tune_model', request);
    this.#isTuningStopped = false;
    const tuning = fakeTuning(request.model_id);
    for (const [index, trial] of tuning.trials.entries()) {
      await this.#pause(600);
      if (this.#isTuningStopped) {
        events({ type: 'failed', failure: { code: 'cancelled', message: { en: 'Stopped.', zh: '已停止。' }, hint: { en: 'Nothing was changed.', zh: '没有任何改动。' } } });
        return;
      }
      events({ type: 'tried', trial, progress: (index + 1) / tuning.trials.length });
    }
    this.#tuning = tuning;
    events({ type: 'done', tuning });
  }

  async stop_tuning(): Promise<void> {
    this.#enter('stop_tuning');
    this.#isTuningStopped = true;
  }

  async forget_tuning(modelId: string): Promise<void> {
    this.#enter('forget_tuning', modelId);
    this.#tuning = null;
  }

  async chats(): Promise<Chat['summary'][]> {
    this.#enter('chats');
    return this.#chats.map(({ summary }) => summary);
  }

  async chat(id: number): Promise<Chat> {
    this.#enter('chat', id);
    return structuredClone(this.#chat(id));
  }

  async rename_chat(request: { chat_id: number; title: string }): Promise<Chat['summary']> {
    this.#enter('rename_chat', request);
    const chat = this.#chat(request.chat_id);
    chat.summary = { ...chat.summary, title: request.title };
    return chat.summary;
  }

  async delete_chat(id: number): Promise<void> {
    this.#enter('delete_chat', id);
    this.#deleted.set(id, this.#chat(id));
    this.#chats = this.#chats.filter(({ summary }) => summary.id !== id);
  }

  async restore_chat(id: number): Promise<void> {
    this.#enter('restore_chat', id);
    const chat = this.#deleted.get(id);
    if (chat) this.#chats = [chat, ...this.#chats];
  }

  async set_leaf(request: { chat_id: number; message_id: number }): Promise<Chat> {
    this.#enter('set_leaf', request);
    const chat = this.#chat(request.chat_id);
    let leaf = request.message_id;
    for (let child = newestChild(chat, leaf); child; child = newestChild(chat, leaf)) leaf = child.id;
    chat.leaf = leaf;
    return structuredClone(chat);
  }

  async send_message(request: SendRequest, events: Sink<ChatEvent>): Promise<void> {
    this.#enter('send_message', request);
    this.#isStopped = false;
    const chat = request.chat_id === null ? this.#newChat(request.text) : this.#chat(request.chat_id);
    const parent = request.parent ?? chat.leaf;
    const asked = chat.messages.find((message) => message.id === parent);
    const user = request.text === '' && asked ? asked : this.#message(chat, parent, 'user', request.text);
    const assistant = this.#message(chat, user.id, 'assistant', '');
    chat.leaf = assistant.id;
    chat.summary = { ...chat.summary, updated_at_ms: Date.now(), n_messages: chat.messages.length };
    events({ type: 'started', chat: chat.summary, user: { ...user }, assistant: { ...assistant } });
    if (!this.#hasTemplate) events({ type: 'notice', notice: noTemplate });
    this.#phase = 'prompt';
    events({ type: 'prompt', n_done: 305, n_total: 318, n_reused: 305 });
    await this.#pause(300);
    this.#phase = 'generating';
    const isSecond = chat.messages.length > 5;
    if (!isSecond) {
      for (const piece of pieces(REASONING)) {
        if (this.#isStopped) break;
        assistant.reasoning += piece;
        events({ type: 'reasoning', text: piece });
        await this.#pause(12);
      }
    }
    let count = 0;
    for (const piece of pieces(this.#answer ?? (isSecond ? SECOND_ANSWER : ANSWER))) {
      if (this.#isStopped) break;
      assistant.text += piece;
      count += 1;
      this.#rate = 18.2;
      events({ type: 'delta', text: piece });
      if (count % 8 === 0) events({ type: 'stats', stats: statsOf(count) });
      await this.#pause(30);
    }
    const failure = this.failures.send_message;
    assistant.end = failure ? 'failed' : this.#isStopped ? 'stopped' : 'complete';
    assistant.stats = statsOf(count);
    this.#phase = 'idle';
    this.gauge();
    if (failure) events({ type: 'failed', message: { ...assistant }, failure });
    else events({ type: 'done', message: { ...assistant } });
  }

  async stop_answer(): Promise<void> {
    this.#enter('stop_answer');
    this.#isStopped = true;
  }

  async subscribe(events: Sink<AppEvent>): Promise<void> {
    this.#enter('subscribe');
    this.#sinks.push(events);
    this.gauge();
  }

  #removal({ model_id, of_programs }: RemoveRequest): Removal {
    const model = this.#library.find(({ id }) => id === model_id);
    const places = model?.places ?? [];
    const goes = places.filter(({ program }) => program === 'tandem' || of_programs.includes(program));
    return { files: goes.length > 0 ? (model?.files ?? []).map(({ path }) => path) : [], freed_bytes: goes.length === places.length ? (model?.size_bytes ?? 0) : 0, stays: places.filter((place) => !goes.includes(place)) };
  }

  // Insides ----------------------------------------------------------------------------------------------

  /** Notes the call; fails if it is to fail. An answer fails at its end instead, so that something is written. */
  #enter(command: keyof Backend, request?: unknown): void {
    this.calls.push([command, request]);
    const failure = this.failures[command];
    if (failure && command !== 'send_message') throw failure;
  }

  #calibrate(state: CalibrationState): void {
    this.#calibration = state;
    this.emit({ type: 'calibration', state });
  }

  async #benchmark(): Promise<void> {
    for (let progress = 0.125; progress < 1; progress += 0.125) {
      await this.#pause(400);
      if (this.#calibration.type !== 'running') return;
      this.#calibrate({ type: 'running', progress });
    }
    await this.#pause(400);
    if (this.#calibration.type === 'running') this.#calibrate({ type: 'done', rates: fakeRates });
  }

  #info(): AppInfo {
    const hub_url = this.#settings.hub_url || 'https://huggingface.co';
    const source = sources.find(({ url }) => url === hub_url) ?? { name: hub_url, url: hub_url, kind: this.#settings.hub_kind, is_origin: false };
    return { version: '0.1.0', settings: this.#settings, hub_url, source, sources, data_dir: '/home/me/.local/share/tandem', models_dir: this.#settings.models_dir || '/home/me/.local/share/tandem/models', hardware: this.#hardware, runtime: this.#runtime, notices: [] };
  }

  #repo(id: string): FakeRepo {
    const found = repos.find(({ model }) => model.id === id);
    if (!found) throw { code: 'not_found', message: { en: `There is no \`${id}\`.`, zh: `没有 \`${id}\`。` }, hint: { en: 'Search for it by name.', zh: '请按名称搜索。' } } satisfies Failure;
    return found;
  }

  #chat(id: number): Chat {
    const chat = this.#chats.find(({ summary }) => summary.id === id);
    if (!chat) throw { code: 'bad_request', message: { en: 'There is no such chat.', zh: '没有这个对话。' }, hint: { en: 'Pick another.', zh: '请选择其他对话。' } } satisfies Failure;
    return chat;
  }

  #planOf(modelId: string, wishes: Wishes = NO_WISHES): Plan {
    const model = this.#library.find(({ id }) => id === modelId);
    if (!model) throw { code: 'model_missing', message: { en: 'The model is not in the library.', zh: '模型库中没有此模型。' }, hint: { en: 'Download it again.', zh: '请重新下载。' } } satisfies Failure;
    const isMoe = /A\d+B/.test(model.name);
    return fakePlan({ ...model, n_active: isMoe ? model.n_params / 10 : model.n_params, n_layers: 32 }, model.quant, model.size_bytes, model.path.split('/').at(-1)!, this.#hardware, wishes);
  }

  #setRuntime(state: RuntimeState, phase: Phase): void {
    this.#runtime = state;
    this.#phase = phase;
    this.emit({ type: 'runtime', state });
    this.gauge();
  }

  #update(id: string, change: Partial<Download>): void {
    const download = this.#downloads.get(id);
    if (!download) return;
    Object.assign(download, change);
    this.emit({ type: 'download', download: { ...download } });
  }

  async #run(id: string): Promise<void> {
    this.#update(id, { state: 'running' });
    for (;;) {
      await this.#pause(250);
      const download = this.#downloads.get(id);
      if (download?.state !== 'running') return;
      const arrived = Math.min(download.size_bytes, download.arrived_bytes + download.size_bytes / 12);
      this.#update(id, { arrived_bytes: arrived, verified_bytes: arrived, bytes_per_s: 11.2 * 1024 ** 2, seconds_left: (download.size_bytes - arrived) / (11.2 * 1024 ** 2) });
      if (arrived === download.size_bytes) break;
    }
    this.#update(id, { state: 'verifying', verified_bytes: 0, bytes_per_s: 0, seconds_left: null });
    await this.#pause(600);
    const download = this.#downloads.get(id);
    if (download?.state !== 'verifying') return;
    const file = download.files[0]!;
    this.#update(id, { state: 'done', verified_bytes: download.size_bytes });
    this.#keep({ ...fakeLibrary()[0]!, id: `m${this.#nextId++}`, name: file.repo.split('/')[1]!.replace('-GGUF', ''), quant: download.quant, size_bytes: download.size_bytes, source: file, path: file.path });
  }

  #keep(model: LibraryModel): LibraryModel {
    this.#library = [...this.#library, model];
    this.emit({ type: 'library', models: [...this.#library] });
    return model;
  }

  #newChat(text: string): Chat {
    const chat: Chat = { summary: { id: this.#nextId++, title: text.slice(0, 40), updated_at_ms: Date.now(), n_messages: 0 }, messages: [], leaf: null };
    chat.leaf = this.#message(chat, null, 'system', '').id;
    this.#chats = [chat, ...this.#chats];
    return chat;
  }

  #message(chat: Chat, parent: number | null, role: Message['role'], text: string): Message {
    const message: Message = { id: this.#nextId++, parent, role, text, reasoning: '', created_at_ms: Date.now(), model: role === 'assistant' ? 'SmolLM2 135M Instruct' : null, end: null, stats: null };
    chat.messages.push(message);
    return message;
  }
}

function newestChild(chat: Chat, parent: number): Message | undefined {
  return chat.messages.findLast((message) => message.parent === parent);
}

function fileOf(repo: string, quant: string, gib: number, source: HubSource = sources[0]!): RepoFile {
  const host = new URL(source.url).host;
  return { repo, commit: 'a'.repeat(40), path: `${repo.split('/')[1]!.replace('-GGUF', '')}-${quant}.gguf`, size_bytes: gib * GIB, sha256: 'b'.repeat(64), hash_word: source.is_origin ? { type: 'hub', host } : { type: 'mirrors', hosts: [host] } };
}

function pieces(text: string): string[] {
  return text.match(/\s?[^\s]+|\s+/g) ?? [];
}

function statsOf(count: number): GenerationStats {
  return { n_prompt_tokens: 318, n_reused_tokens: 305, n_generated_tokens: count, prompt_ms: 120, generation_ms: count * 55, prompt_tokens_per_s: 108, generation_tokens_per_s: 18.2, first_token_ms: 420 };
}
