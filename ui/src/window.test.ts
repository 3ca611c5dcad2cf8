import { fireEvent, render, screen, waitFor, within } from '@testing-library/svelte';
import userEvent from '@testing-library/user-event';
import { describe, expect, test } from 'vitest';
import Window from './App.svelte';
import { FakeBackend, type FakeOptions } from './lib/backend/fake';
import { offline } from './lib/backend/fake-data';
import { App } from './lib/state/app.svelte';

async function open(options: Partial<FakeOptions> = {}): Promise<{ app: App; fake: FakeBackend; user: ReturnType<typeof userEvent.setup> }> {
  const fake = new FakeBackend({ settings: { language: 'en' }, ...options });
  const app = new App(fake);
  render(Window, { app });
  await app.start();
  await screen.findByTestId('engine-phase');
  return { app, fake, user: userEvent.setup() };
}

const SMOL = 'HuggingFaceTB/SmolLM2-135M-Instruct-GGUF';

test('find, download, load, ask: the whole way', async () => {
  const { app, user } = await open({ library: 'empty' });
  await user.click(screen.getByTestId('nav-discover'));
  await user.type(screen.getByTestId('search-input'), 'smollm2{Enter}');
  const result = await waitFor(() => {
    const found = screen.getAllByTestId('search-result');
    expect(found).toHaveLength(1);
    return found[0]!;
  });
  expect(result).toHaveAttribute('data-repo', SMOL);
  await user.click(result);
  expect(await screen.findAllByTestId('version-row')).toHaveLength(2);
  expect(screen.getAllByTestId('download-button').map((button) => button.getAttribute('data-quant'))).toEqual(['Q4_1', 'Q8_0']);
  await user.click(await screen.findByTestId('recommended-download'));
  await waitFor(() => expect(screen.getByTestId('engine-phase')).toHaveAttribute('data-phase', 'idle'));
  await user.type(screen.getByTestId('composer-input'), 'What should I index?{Enter}');
  const answer = await waitFor(() => {
    const turn = screen.getByTestId('message-assistant');
    expect(turn).toHaveAttribute('data-end', 'complete');
    return turn;
  });
  expect(screen.getByTestId('message-user')).toHaveTextContent('What should I index?');
  expect(answer).toHaveTextContent('trigram index');
  expect(within(answer).getByTestId('message-stats')).toHaveTextContent(/18\.2.tok\/s/);
  expect(screen.getByTestId('composer-input')).toHaveValue('');
  expect(screen.getAllByTestId('chat-item')[0]).toHaveTextContent('What should I index?');
  expect(app.conversation.failure).toBeNull();
});

describe('composer', () => {
  test('Shift+Enter breaks the line, Enter sends', async () => {
    const { user, fake } = await open({ library: 'starter' });
    const input = screen.getByTestId('composer-input');
    await user.type(input, 'one{Shift>}{Enter}{/Shift}two');
    expect(input).toHaveValue('one\ntwo');
    await user.type(input, '{Enter}');
    await waitFor(() => expect(fake.calls.find(([command]) => command === 'send_message')?.[1]).toMatchObject({ text: 'one\ntwo' }));
  });

  test('Enter of an input method does not send, in Chromium’s order and in WebKit’s', async () => {
    const { fake } = await open({ library: 'starter' });
    const input = screen.getByTestId('composer-input');
    await fireEvent.input(input, { target: { value: '你好' } });
    await fireEvent.keyDown(input, { key: 'Enter', keyCode: 229, isComposing: true });
    await fireEvent.compositionStart(input);
    await fireEvent.compositionEnd(input);
    await fireEvent.keyDown(input, { key: 'Enter', keyCode: 13 });
    await fireEvent.keyUp(input, { key: 'Enter', keyCode: 13 });
    expect(fake.calls.some(([command]) => command === 'load_model' || command === 'send_message')).toBe(false);
    await fireEvent.keyDown(input, { key: 'Enter', keyCode: 13 });
    await waitFor(() => expect(fake.calls.some(([command]) => command === 'send_message')).toBe(true));
  });

  test('nothing can be sent without a model or without words', async () => {
    const { user } = await open({ library: 'empty' });
    await user.click(screen.getByTestId('nav-new-chat'));
    await user.type(screen.getByTestId('composer-input'), 'hi');
    expect(screen.getByTestId('send-button')).toBeDisabled();
  });
});

test('search waits for the end of a composition', async () => {
  const { user, fake } = await open();
  await user.click(screen.getByTestId('nav-discover'));
  await screen.findAllByTestId('search-result');
  const input = screen.getByTestId('search-input');
  const queries = (): unknown[] => fake.calls.filter(([command]) => command === 'search_models').map(([, request]) => (request as { query: string }).query);
  await fireEvent.compositionStart(input);
  await fireEvent.input(input, { target: { value: 'mo xing' } });
  await fireEvent.compositionEnd(input);
  await fireEvent.input(input, { target: { value: '模型' } });
  await waitFor(() => expect(queries()).toContain('模型'));
  expect(queries()).not.toContain('mo xing');
});

test('keys: new chat, settings, regions, and Escape closes a layer before it stops an answer', async () => {
  let release: (() => void)[] = [];
  const { user, app, fake } = await open({ library: 'starter', pause: () => new Promise((resolve) => release.push(resolve)) });
  const pass = async (): Promise<void> => {
    const now = release;
    release = [];
    now.forEach((go) => go());
    await Promise.resolve();
  };
  await user.keyboard('{Control>},{/Control}');
  expect(app.router.view).toBe('settings');
  await user.keyboard('{Control>}n{/Control}');
  expect(app.router.view).toBe('chat');
  await user.keyboard('{F6}');
  expect(document.activeElement).not.toBe(document.body);
  await user.type(screen.getByTestId('composer-input'), 'hi{Enter}');
  await waitFor(async () => {
    await pass();
    expect(app.conversation.live?.text).not.toBe(undefined);
  });
  await user.click(screen.getByTestId('model-picker'));
  expect(screen.getByRole('menu')).toBeInTheDocument();
  await user.keyboard('{Escape}');
  expect(screen.queryByRole('menu')).toBeNull();
  expect(fake.calls.some(([command]) => command === 'stop_answer')).toBe(false);
  await user.keyboard('{Escape}');
  await waitFor(async () => {
    await pass();
    expect(screen.getByTestId('message-assistant')).toHaveAttribute('data-end', 'stopped');
  });
});

test('an error shows its code, what happened and what to do', async () => {
  const { user } = await open({ failures: { search_models: offline } });
  await user.click(screen.getByTestId('nav-discover'));
  const note = await screen.findByTestId('error-note');
  expect(note).toHaveAttribute('data-code', 'no_network');
  expect(note).toHaveTextContent('hf-mirror');
});

test('the gauges are always in view, with and without a card', async () => {
  await open({ withGpu: false });
  for (const name of ['gauge-ram-app', 'gauge-ram-free', 'gauge-rate']) expect(screen.getByTestId(name)).toHaveAttribute('data-value');
  expect(screen.getByTestId('gauge-vram')).toHaveTextContent('no GPU');
});

test('settings change the language at once', async () => {
  const { user } = await open();
  await user.click(screen.getByTestId('nav-settings'));
  await user.click(within(screen.getByTestId('settings-language')).getByText('中文'));
  expect(screen.getByTestId('nav-library')).toHaveTextContent('模型库');
  await user.click(within(screen.getByTestId('settings-theme')).getByText('深色'));
  expect(document.documentElement.dataset.theme).toBe('dark');
  expect(screen.getByTestId('settings-hub-url')).toBeInTheDocument();
});

test('what was typed is kept when a key leaves the settings', async () => {
  const { app, user } = await open();
  await user.click(screen.getByTestId('nav-settings'));
  await user.type(screen.getByTestId('settings-system-prompt'), 'Be brief.');
  await user.keyboard('{Control>}n{/Control}');
  expect(app.settings.current?.system_prompt).toBe('Be brief.');
  await user.keyboard('{Control>},{/Control}');
  await user.type(screen.getByTestId('settings-temperature'), '0.5');
  await user.keyboard('{Control>}n{/Control}');
  expect(app.settings.current?.sampling.temperature).toBe(0.5);
});

test('a refused setting says so beside itself', async () => {
  const { user } = await open({ failures: { set_settings: offline } });
  await user.click(screen.getByTestId('nav-settings'));
  await user.type(screen.getByTestId('settings-seed'), '7{Enter}');
  const note = await screen.findByTestId('error-note');
  expect(note.closest('.refused')?.previousElementSibling).toContainElement(screen.getByTestId('settings-seed'));
});

test('a path with a percent sign is taken as it is, and a new try clears the old error', async () => {
  const { user, fake } = await open();
  await user.click(screen.getByTestId('nav-library'));
  await user.click(screen.getByTestId('add-model'));
  const path = screen.getByTestId('add-model-path');
  await user.type(path, 'file:///100%.txt{Enter}');
  const dialog = within(screen.getByRole('dialog'));
  await dialog.findByTestId('error-note');
  expect(fake.calls.filter(([command]) => command === 'add_model')).toEqual([['add_model', '/100%.txt']]);
  fake.add_model = () => new Promise(() => undefined);
  await user.type(path, '{Enter}');
  await waitFor(() => expect(dialog.queryByTestId('error-note')).toBeNull());
});

test('Escape that ends a composition stops nothing, and chats are searched after it', async () => {
  const { app, fake } = await open({ pause: () => new Promise(() => undefined) });
  void app.runtime.load('ministral-8b');
  const input = screen.getByLabelText('Search chats');
  await fireEvent.compositionStart(input);
  await fireEvent.input(input, { target: { value: 'ru st' } });
  expect(app.chats.query).toBe('');
  await fireEvent.compositionEnd(input);
  await fireEvent.keyDown(input, { key: 'Escape', keyCode: 27 });
  expect(app.chats.query).toBe('ru st');
  expect(fake.calls.some(([command]) => command === 'unload_model')).toBe(false);
  await fireEvent.keyUp(input, { key: 'Escape', keyCode: 27 });
  await fireEvent.keyDown(input, { key: 'Escape', keyCode: 27 });
  expect(fake.calls.some(([command]) => command === 'unload_model')).toBe(true);
});

test('downloads can be paused, resumed and cancelled', async () => {
  const { user } = await open({ withDownloads: true, pause: () => new Promise(() => undefined) });
  await user.click(screen.getByTestId('nav-library'));
  const row = (): HTMLElement => screen.getAllByTestId('download-row')[0]!;
  await user.click(within(row()).getByTestId('pause-download'));
  await waitFor(() => expect(row()).toHaveAttribute('data-state', 'paused'));
  await user.click(within(row()).getByTestId('resume-download'));
  await waitFor(() => expect(row()).toHaveAttribute('data-state', 'running'));
  const count = screen.getAllByTestId('download-row').length;
  await user.click(within(row()).getByTestId('cancel-download'));
  await waitFor(() => expect(screen.getAllByTestId('download-row')).toHaveLength(count - 1));
});

test('what waits can be moved up, and what waits to connect again need not wait', async () => {
  const { user, fake } = await open({ withDownloads: true, pause: () => new Promise(() => undefined) });
  await user.click(screen.getByTestId('nav-library'));
  const place = (state: string): number => screen.getAllByTestId('download-row').findIndex((row) => row.dataset.state === state);
  const before = place('queued');
  await user.click(screen.getByTestId('move-download-up'));
  await waitFor(() => expect(place('queued')).toBeLessThan(before));
  expect(fake.calls).toContainEqual(['move_download', { id: 'd6', to: 'up' }]);
  await user.click(screen.getByTestId('try-now'));
  await waitFor(() => expect(place('retrying')).toBe(-1));
  expect(fake.calls).toContainEqual(['resume_download', 'd7']);
});

test('downloads are limited in the settings', async () => {
  const { user, fake } = await open();
  await user.click(screen.getByTestId('nav-settings'));
  const rate = await screen.findByTestId('settings-max-rate');
  await user.type(rate, '2.5{Enter}');
  await waitFor(() => expect(fake.calls.findLast(([command]) => command === 'set_settings')?.[1]).toMatchObject({ max_download_bytes_per_s: 2.5 * 1024 ** 2 }));
  await user.clear(rate);
  await user.type(rate, '{Enter}');
  await waitFor(() => expect(fake.calls.findLast(([command]) => command === 'set_settings')?.[1]).toMatchObject({ max_download_bytes_per_s: 0 }));
});

test('branches: the other answer is one click away', async () => {
  const { user } = await open();
  await user.click(screen.getAllByTestId('chat-item').find((item) => item.dataset.chatId === '1')!);
  const branch = await screen.findByTestId('branch');
  expect(branch).toHaveTextContent('2 / 2');
  await user.click(screen.getByLabelText('Previous branch'));
  await waitFor(() => expect(screen.getByTestId('branch')).toHaveTextContent('1 / 2'));
});

test('every button and field has a name', async () => {
  const { user } = await open({ withDownloads: true });
  for (const view of ['nav-discover', 'nav-library', 'nav-machine', 'nav-settings', 'nav-new-chat']) {
    await user.click(screen.getByTestId(view));
    for (const element of [...screen.getAllByRole('button'), ...screen.queryAllByRole('textbox'), ...screen.queryAllByRole('searchbox')]) expect(element, `${view}: ${element.outerHTML}`).toHaveAccessibleName();
  }
});
