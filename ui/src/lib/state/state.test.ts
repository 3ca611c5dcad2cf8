import { flushSync } from 'svelte';
import { afterEach, beforeEach, describe, expect, test, vi } from 'vitest';
import { FakeBackend, type FakeOptions } from '../backend/fake';
import { offline } from '../backend/fake-data';
import type { Failure, HubModel, SearchPage, LoadRequest } from '../wire';
import { App } from './app.svelte';
import { Chats, groupByDay } from './chats.svelte';
import { GaugeState } from './gauges.svelte';
import { Notes } from './notes.svelte';
import { HubSearch } from './search.svelte';

const broken: Failure = { code: 'engine_failed', message: { en: 'It stopped.', zh: '停了。' }, hint: { en: 'Ask again.', zh: '再问。' } };

async function started(options: Partial<FakeOptions> = {}): Promise<{ app: App; fake: FakeBackend }> {
  const fake = new FakeBackend(options);
  const app = new App(fake);
  await app.start();
  return { app, fake };
}

const SMOL = 'HuggingFaceTB/SmolLM2-135M-Instruct-GGUF';

describe('start', () => {
  test('a first start welcomes, a library leads straight to a chat', async () => {
    expect((await started({ library: 'empty' })).app.router.view).toBe('welcome');
    expect((await started({ library: 'starter' })).app.router.view).toBe('chat');
  });

  test('a failure is kept to be shown, and trying again works', async () => {
    const { app, fake } = await started({ failures: { app_info: broken } });
    expect(app.info).toBeNull();
    expect(app.failure?.code).toBe('engine_failed');
    delete fake.failures.app_info;
    await app.start();
    expect(app.failure).toBeNull();
    expect(app.info).not.toBeNull();
  });
});

describe('search', () => {
  beforeEach(() => void vi.useFakeTimers());
  afterEach(() => void vi.useRealTimers());

  test('asks once the person pauses', async () => {
    const fake = new FakeBackend();
    const search = new HubSearch(fake);
    for (const text of ['q', 'qw', 'qwen']) search.type(text);
    await vi.runAllTimersAsync();
    expect(fake.calls.filter(([command]) => command === 'search_models')).toEqual([['search_models', { query: 'qwen', cursor: null }]]);
    expect(search.models.every(({ id }) => id.toLowerCase().includes('qwen'))).toBe(true);
  });

  test('an answer that was overtaken is thrown away', async () => {
    const answers: ((page: SearchPage) => void)[] = [];
    const fake = new FakeBackend();
    fake.search_models = () => new Promise((resolve) => answers.push(resolve));
    const search = new HubSearch(fake);
    const page = (id: string): SearchPage => ({ models: [{ id } as HubModel], next: null });
    search.query = 'slow';
    const slow = search.run();
    search.query = 'fast';
    const fast = search.run();
    answers[1]!(page('fast/one'));
    answers[0]!(page('slow/one'));
    await Promise.all([slow, fast]);
    expect(search.models.map(({ id }) => id)).toEqual(['fast/one']);
  });

  test('more appends what is new', async () => {
    const search = new HubSearch(new FakeBackend());
    await search.run();
    const before = search.models.length;
    expect(search.next).not.toBeNull();
    await search.more();
    expect(search.models.length).toBeGreaterThan(before);
    expect(new Set(search.models.map(({ id }) => id)).size).toBe(search.models.length);
    expect(search.next).toBeNull();
  });

  test('offline is told with its code', async () => {
    const search = new HubSearch(new FakeBackend({ failures: { search_models: offline } }));
    await search.run();
    expect([search.state, search.failure?.code]).toEqual(['failed', 'no_network']);
  });
});

describe('a model of the hub', () => {
  test('versions come first, plans follow, one is recommended', async () => {
    const { app } = await started();
    await app.modelPage.open('unsloth/Qwen3.6-35B-A3B-GGUF');
    expect(app.modelPage.page?.versions.length).toBe(7);
    expect(app.modelPage.recommended?.quant).toBe('Q4_K_M');
    expect(app.modelPage.page?.versions.every((version) => app.modelPage.planOf(version))).toBe(true);
  });

  test('plans are there one by one, before the last', async () => {
    const { app, fake } = await started();
    const counts: number[] = [];
    const plan = fake.plan_versions.bind(fake);
    fake.plan_versions = (request, sink) =>
      plan(request, (version) => {
        sink(version);
        counts.push(app.modelPage.page!.versions.filter((each) => app.modelPage.planOf(each)).length);
      });
    await app.modelPage.open('unsloth/Qwen3.6-35B-A3B-GGUF');
    expect(counts).toEqual([1, 2, 3, 4, 5, 6, 7]);
  });

  test('of several wishes in a row the last one is planned, once', async () => {
    vi.useFakeTimers();
    const { app, fake } = await started();
    await app.modelPage.open('unsloth/Qwen3.6-35B-A3B-GGUF');
    for (const context_length of [16_384, 32_768, 4096]) app.modelPage.wish({ context_length });
    await vi.runAllTimersAsync();
    vi.useRealTimers();
    const asked = fake.calls.filter(([command]) => command === 'plan_versions').map(([, request]) => (request as { wishes: { context_length: number | null } }).wishes.context_length);
    expect(asked).toEqual([null, 4096]);
    expect(app.modelPage.planOf(app.modelPage.recommended!)?.context_length).toBe(4096);
  });

  test('a wish for a model of the library is kept, planned, and loaded', async () => {
    vi.useFakeTimers();
    const { app, fake } = await started();
    const id = app.library.usable[0]!.id;
    app.library.openPlan(id);
    app.library.wish({ kv_type: 'q8_0' });
    await vi.runAllTimersAsync();
    vi.useRealTimers();
    expect(app.library.plans.get(id)?.kv_type).toBe('q8_0');
    expect((await started()).app.library.wishesOf(id).kv_type).toBe('q8_0');
    await app.runtime.load(id);
    const loaded = fake.calls.find(([command]) => command === 'load_model')![1] as { wishes: { kv_type: string | null } };
    expect(loaded.wishes.kv_type).toBe('q8_0');
    localStorage.clear();
  });

  test('wishes made before a download become those of the model, also after a new start', async () => {
    const { app } = await started({ library: 'empty' });
    await app.modelPage.open(SMOL);
    const version = app.modelPage.page!.versions[0]!;
    app.modelPage.wish({ context_length: 4096, kv_type: 'q8_0' });
    app.library.promise(version, app.modelPage.wishes);
    const again = (await started({ library: 'empty' })).app;
    const [file] = version.files;
    const arrived = { ...(await started()).app.library.models[0]!, id: 'arrived', source: { repo: file!.repo, path: file!.path, commit: '', sha256: null } } as (typeof again.library.models)[number];
    again.library.adopt([arrived]);
    expect(again.library.wishesOf('arrived')).toMatchObject({ context_length: 4096, kv_type: 'q8_0' });
    again.library.openPlan('arrived');
    again.library.wish({ kv_type: null });
    again.library.adopt([arrived]);
    expect(again.library.wishesOf('arrived').kv_type).toBeNull();
    localStorage.clear();
  });

  test('a download takes the wishes of its page along', async () => {
    const { app } = await started({ library: 'empty' });
    await app.modelPage.open(SMOL);
    app.modelPage.wish({ context_length: 4096 });
    await app.download(app.modelPage.page!.versions[0]!, 'keep');
    expect(localStorage.getItem('tandem.wishes.promised')).toContain('4096');
    localStorage.clear();
  });

  test('leaving a page ends the reading of its headers, and coming back goes on', async () => {
    const { app, fake } = await started();
    const asked = (command: string): number => fake.calls.filter(([each]) => each === command).length;
    const plan = fake.plan_versions.bind(fake);
    fake.plan_versions = (request, sink) => (asked('stop_planning') === 0 ? new Promise(() => undefined) : plan(request, sink));
    void app.modelPage.open(SMOL);
    await vi.waitFor(() => expect(app.modelPage.isPlanning).toBe(true));
    app.modelPage.leave();
    await vi.waitFor(() => expect(asked('stop_planning')).toBe(1));
    expect([app.modelPage.isPlanning, app.modelPage.planFailure]).toEqual([false, null]);
    app.modelPage.resume();
    await vi.waitFor(() => expect(app.modelPage.planned).not.toBeNull());
    app.modelPage.leave();
    expect(asked('stop_planning')).toBe(1);
  });

  test('failed plans leave the versions', async () => {
    const { app } = await started({ failures: { plan_versions: broken } });
    await app.modelPage.open(SMOL);
    expect(app.modelPage.page?.versions.length).toBe(2);
    expect(app.modelPage.planFailure?.code).toBe('engine_failed');
    expect(app.modelPage.isPlanning).toBe(false);
  });

  test('versions that are all refused are refused with their own words', async () => {
    const { app, fake } = await started();
    fake.plan_versions = () => Promise.resolve({ versions: ['a', 'b'].map((path) => ({ path, plan: null, refusal: { ...broken, code: 'token_missing' as const } })), recommended: null, reason: { en: '', zh: '' } });
    await app.modelPage.open(SMOL);
    expect(app.modelPage.refusal?.code).toBe('token_missing');
  });

  test('nothing runs: no recommendation', async () => {
    const { app } = await started();
    await app.modelPage.open('unsloth/Qwen3-Coder-Next-80B-GGUF');
    expect(app.modelPage.recommended).toBeNull();
  });
});

describe('a graphics card that failed', () => {
  test('one click loads the same model on the processor, and so it stays', async () => {
    const { app, fake } = await started();
    const model = app.library.models.find(({ refusal }) => refusal === null)!;
    await app.runtime.load(model.id);
    const load = vi.spyOn(fake, 'load_model');
    expect(await app.runtime.goOnWithProcessor()).toBe(true);
    expect(load.mock.calls[0]![0]).toMatchObject({ model_id: model.id, wishes: { n_gpu_layers: 0 } });
    expect(app.runtime.readyId).toBe(model.id);
    await app.runtime.reload();
    expect((load.mock.calls[1]![0] as LoadRequest).wishes.n_gpu_layers).toBe(0);
  });
});

describe('downloads', () => {
  test('“Download and chat” ends in a chat with the model loaded', async () => {
    const { app } = await started({ library: 'empty' });
    await app.modelPage.open(SMOL);
    await app.downloads.start(app.modelPage.recommended!, 'chat');
    await vi.waitFor(() => expect(app.runtime.readyId).not.toBeNull());
    expect(app.router.view).toBe('chat');
    expect(app.downloads.list[0]?.state).toBe('done');
    expect(app.library.get(app.runtime.readyId)?.source?.repo).toBe(SMOL);
  });

  test('a plain download says that it is here and opens nothing', async () => {
    const { app } = await started({ library: 'empty' });
    await app.modelPage.open(SMOL);
    await app.downloads.start(app.modelPage.page!.versions[0]!, 'keep');
    await vi.waitFor(() => expect(app.notes.current?.text).toContain('downloaded and verified'));
    expect(app.runtime.state.type).toBe('empty');
    app.notes.dismiss();
  });

  test('done and library may come in either order', async () => {
    const { app, fake } = await started({ withDownloads: true });
    const download = { ...(await fake.downloads())[0]!, state: 'done' as const };
    app.apply({ type: 'download', download });
    expect(app.notes.current).toBeNull();
    app.apply({ type: 'library', models: [...app.library.models, { ...app.library.models[0]!, id: 'new', source: download.files[0]! }] });
    expect(app.notes.current?.text).toContain('verified');
    app.notes.dismiss();
  });

  test('what was done before the start is not announced', async () => {
    const { app } = await started({ withDownloads: true });
    app.downloads.settle();
    expect(app.notes.current).toBeNull();
  });

  test('the share counts what moves', async () => {
    const { app } = await started({ withDownloads: true });
    expect(app.downloads.share).toBeCloseTo((8.4 + 11.3 + 1.2 + 6.9) / (19.8 + 11.3 + 6.1 + 3.9 + 6.9));
  });

  test('the queue is put in order, past what is done', async () => {
    const { app } = await started({ withDownloads: true });
    const order = (): string => app.downloads.list.map(({ id }) => id).join(' ');
    expect(order()).toBe('d1 d2 d3 d4 d5 d6 d7 d8');
    await app.downloads.move('d6', 'up');
    expect(order()).toBe('d1 d2 d3 d6 d5 d4 d7 d8');
    expect([app.downloads.canMove('d1', 'up'), app.downloads.canMove('d1', 'down'), app.downloads.canMove('d8', 'down'), app.downloads.canMove('d5', 'up')]).toEqual([false, true, false, false]);
  });

  test('a cancelled download forgets its chat, and the same one can be had again', async () => {
    const { app, fake } = await started({ withDownloads: true });
    const download = { ...(await fake.downloads())[0]!, state: 'running' as const };
    const chatWith = vi.spyOn(app, 'chatWith').mockResolvedValue();
    const version = { quant: '', files: download.files, size_bytes: 1, refusal: null, companions: [], presence: { type: 'absent' as const } };
    fake.start_download = () => Promise.resolve(download);
    const arrive = (): void => {
      app.apply({ type: 'download', download: { ...download, state: 'done' } });
      app.apply({ type: 'library', models: [...app.library.models.filter(({ id }) => id !== 'new'), { ...app.library.models[0]!, id: 'new', source: download.files[0]! }] });
    };
    await app.downloads.start(version, 'chat');
    await app.downloads.cancel(download.id);
    await app.downloads.start(version, 'keep');
    app.apply({ type: 'download', download });
    arrive();
    expect(chatWith).not.toHaveBeenCalled();
    for (const times of [1, 2]) {
      await app.downloads.start(version, 'chat');
      app.apply({ type: 'download', download });
      arrive();
      expect(chatWith).toHaveBeenCalledTimes(times);
    }
    app.notes.dismiss();
  });

  test('a refused start is told', async () => {
    const { app } = await started({ failures: { start_download: offline } });
    await app.modelPage.open(SMOL);
    expect(await app.downloads.start(app.modelPage.page!.versions[0]!, 'chat')).toBeNull();
    expect(app.downloads.failure?.code).toBe('no_network');
  });
});

describe('loading', () => {
  test('goes through loading to ready and is remembered', async () => {
    const { app } = await started();
    const loading = app.runtime.load('ministral-8b');
    expect(app.runtime.progress).toBe(0);
    expect(await loading).toBe(true);
    expect(app.runtime.plan?.verdict).toBe('runs_well');
    expect(app.runtime.preferred(app.library.usable)?.id).toBe('ministral-8b');
  });

  test('can be stopped, which is no failure', async () => {
    const { app } = await started();
    const loading = app.runtime.load('ministral-8b');
    await app.runtime.unload();
    expect(await loading).toBe(false);
    expect(app.runtime.state.type).toBe('empty');
    expect(app.runtime.failure).toBeNull();
  });

  test('the same model is loaded once, another one replaces it', async () => {
    const { app, fake } = await started();
    const twice = [app.runtime.load('ministral-8b'), app.runtime.load('ministral-8b')];
    expect(await Promise.all(twice)).toEqual([true, true]);
    expect(fake.calls.filter(([command]) => command === 'load_model')).toHaveLength(1);
    const first = app.runtime.load('smollm2');
    const second = app.runtime.load('qwen3-30b');
    expect(await Promise.all([first, second])).toEqual([false, true]);
    expect(app.runtime.readyId).toBe('qwen3-30b');
  });

  test('a message sent while a model loads waits for that model', async () => {
    const { app, fake } = await started();
    void app.runtime.load('ministral-8b');
    app.conversation.draft = 'hi';
    await app.conversation.send();
    expect(fake.calls.filter(([command]) => command === 'load_model').map(([, request]) => request)).toEqual([expect.objectContaining({ model_id: 'ministral-8b' })]);
    expect(app.conversation.path.at(-1)?.end).toBe('complete');
  });

  test('a failure names the model', async () => {
    const { app } = await started({ failures: { load_model: broken } });
    expect(await app.runtime.load('ministral-8b')).toBe(false);
    expect(app.runtime.failure).toEqual({ modelId: 'ministral-8b', failure: broken });
  });

  test('without a choice the smallest usable model is taken', async () => {
    const { app } = await started();
    expect(app.runtime.preferred(app.library.usable)?.id).toBe('smollm2');
  });
});

describe('library', () => {
  const source = { repo: SMOL, commit: 'a'.repeat(40), path: 'smol.gguf', size_bytes: 1, sha256: null, hash_word: { type: 'unknown' as const } };
  afterEach(() => void vi.useRealTimers());

  test('a removal can be undone, and happens when the note goes', async () => {
    const { app, fake } = await started();
    vi.useFakeTimers();
    const model = app.library.get('ministral-8b')!;
    app.removeModel(model);
    expect(app.library.get('ministral-8b')).toBeNull();
    app.notes.act();
    expect(app.library.get('ministral-8b')).not.toBeNull();
    app.removeModel(model);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(fake.calls.filter(([command]) => command === 'remove_model')).toEqual([['remove_model', { model_id: 'ministral-8b', of_programs: [] }]]);
    expect(app.library.get('ministral-8b')).toBeNull();
  });

  test('a model that is wanted again is not removed', async () => {
    const { app, fake } = await started();
    vi.useFakeTimers();
    const model = { ...app.library.get('ministral-8b')!, source };
    app.library.adopt([model]);
    app.removeModel(model);
    await app.download({ quant: model.quant, files: [source], size_bytes: 1, refusal: null, companions: [], presence: { type: 'absent' } }, 'keep');
    expect(app.library.get(model.id)).not.toBeNull();
    app.removeModel(model);
    await app.load(model.id);
    await vi.advanceTimersByTimeAsync(10_000);
    expect(fake.calls.some(([command]) => command === 'remove_model' || command === 'start_download')).toBe(false);
    expect(app.runtime.readyId).toBe(model.id);
  });

  test('a damaged model is removed before it is downloaded again', async () => {
    const { app, fake } = await started();
    const model = { ...app.library.get('ministral-8b')!, source, integrity: 'mismatched' as const };
    app.library.adopt([model]);
    app.removeModel(model);
    await app.download({ quant: model.quant, files: [source], size_bytes: 1, refusal: null, companions: [], presence: { type: 'absent' } }, 'keep');
    expect(fake.calls.map(([command]) => command).filter((command) => command === 'remove_model' || command === 'start_download')).toEqual(['remove_model', 'start_download']);
    app.notes.dismiss();
  });

  test('a file that is no GGUF is refused by name', async () => {
    const { app } = await started();
    expect(await app.library.add('/home/me/notes.txt')).toBeNull();
    expect(app.library.failure?.code).toBe('not_gguf');
    expect((await app.library.add('/home/me/model.gguf'))?.integrity).toBe('unverified');
    expect(app.library.failure).toBeNull();
  });
});

describe('chats', () => {
  test('are grouped by day, newest first', () => {
    const now = new Date(2026, 5, 15, 12);
    const at = (days: number, id: number) => ({ id, title: '', updated_at_ms: new Date(2026, 5, 15 - days, 11).getTime(), n_messages: 1 });
    expect(groupByDay([at(0, 1), at(1, 2), at(1, 3), at(6, 4), at(7, 5)], now).map(({ day, chats }) => [day, chats.map(({ id }) => id)])).toEqual([
      ['today', [1]],
      ['yesterday', [2, 3]],
      ['last7Days', [4]],
      ['older', [5]],
    ]);
  });

  test('a deleted chat comes back with Undo', async () => {
    const { app } = await started();
    const chat = app.chats.list.find(({ id }) => id === 1)!;
    await app.openChat(1);
    await app.deleteChat(chat);
    expect(app.chats.list.some(({ id }) => id === 1)).toBe(false);
    expect(app.conversation.chatId).toBeNull();
    app.notes.act();
    await vi.waitFor(() => expect(app.chats.list.some(({ id }) => id === 1)).toBe(true));
  });

  test('an answer is stopped before its chat is deleted', async () => {
    const { app, fake } = await started({ pause: () => new Promise((resolve) => setTimeout(resolve)) });
    app.conversation.draft = 'hi';
    void app.conversation.send();
    await vi.waitFor(() => expect(app.conversation.live).not.toBeNull());
    const chat = app.chats.list.find(({ id }) => id === app.conversation.live!.chatId)!;
    await app.deleteChat(chat);
    expect(fake.calls.map(([command]) => command).filter((command) => command === 'stop_answer' || command === 'delete_chat')).toEqual(['stop_answer', 'delete_chat']);
    expect([app.conversation.isBusy, app.chats.list.includes(chat)]).toEqual([false, false]);
    app.notes.dismiss();
  });

  test('a search filters by title, a new title shows at once', async () => {
    const { app } = await started();
    app.chats.query = 'rust';
    expect(app.chats.found.map(({ title }) => title)).toEqual(['Rust lifetimes, once more']);
    await app.openChat(1);
    await app.renameChat(1, 'Trigrams');
    expect(app.conversation.chat?.summary.title).toBe('Trigrams');
  });

  test('a failed list is told', async () => {
    const chats = new Chats(new FakeBackend({ failures: { chats: broken } }));
    await chats.refresh();
    expect(chats.failure?.code).toBe('engine_failed');
  });
});

describe('notes', () => {
  test('the newest wins, and what the older one deferred happens', () => {
    const notes = new Notes();
    const deferred = vi.fn();
    notes.show({ text: 'old', onExpire: deferred });
    notes.show({ text: 'new' });
    expect(notes.current?.text).toBe('new');
    expect(deferred).toHaveBeenCalledTimes(1);
    notes.dismiss();
  });
});

describe('settings', () => {
  test('language and theme show at once and are remembered for the next start', async () => {
    const { app } = await started();
    await app.settings.change({ language: 'zh', theme: 'dark' });
    expect(document.documentElement.lang).toBe('zh-CN');
    expect(document.documentElement.dataset.theme).toBe('dark');
    expect([localStorage.getItem('tandem.language'), localStorage.getItem('tandem.theme')]).toEqual(['zh', 'dark']);
    await app.settings.change({ language: 'system', theme: 'system' });
    expect([localStorage.getItem('tandem.language'), localStorage.getItem('tandem.theme')]).toEqual([null, null]);
  });

  test('a refused change goes back', async () => {
    const { app } = await started({ failures: { set_settings: broken } });
    expect(await app.settings.change({ hub_url: 'https://hf-mirror.com' })).toBe(false);
    expect(app.settings.current?.hub_url).toBe('');
    expect([app.settings.failure?.code, app.settings.failedField, app.notes.current?.text]).toEqual(['engine_failed', 'hub_url', 'It stopped.']);
    app.notes.dismiss();
  });
});

test('another hub empties the search and closes the model', async () => {
  const { app } = await started();
  await app.search.run();
  await app.modelPage.open(SMOL);
  await app.settings.change({ theme: 'dark' });
  expect(app.search.models.length).toBeGreaterThan(0);
  await app.settings.change({ hub_url: 'https://hf-mirror.com' });
  expect([app.search.models, app.search.state, app.modelPage.repo]).toEqual([[], 'idle', null]);
});

describe('gauges', () => {
  test('an answer’s own rate shows until the next measurement', async () => {
    const { app, fake } = await started();
    fake.gauge();
    const gauges: GaugeState = app.gauges;
    gauges.answerRate(17.5);
    expect(gauges.rate).toBe(17.5);
    app.apply({ type: 'gauges', gauges: { ...gauges.latest!, phase: 'generating', tokens_per_s: 18.2 } });
    flushSync();
    expect([gauges.rate, gauges.isBusy, gauges.history.at(-1)]).toEqual([18.2, true, 18.2]);
  });
});
