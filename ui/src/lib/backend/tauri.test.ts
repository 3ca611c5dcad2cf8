import { afterEach, expect, test, vi } from 'vitest';
import { clearMocks, mockIPC } from '@tauri-apps/api/mocks';
import type { ChatEvent } from '../wire';
import { FakeBackend } from './fake';
import { offline } from './fake-data';
import { tauriBackend } from './tauri';

afterEach(() => clearMocks());

test('every command of the fake exists in the real backend under its own name', async () => {
  const seen: string[] = [];
  mockIPC((command) => {
    seen.push(command);
  });
  const names = Object.getOwnPropertyNames(FakeBackend.prototype).filter((name) => /^[a-z]+(_[a-z]+)*$/.test(name) && !['constructor', 'emit', 'gauge'].includes(name));
  expect(Object.keys(tauriBackend).sort()).toEqual(names.sort());
  for (const name of names) await (tauriBackend as unknown as Record<string, (request: unknown, sink: () => void) => Promise<unknown>>)[name]!({}, () => undefined);
  expect(seen.sort()).toEqual(names.sort());
});

test('requests and events are the only two arguments', async () => {
  const call = vi.fn();
  mockIPC((command, args) => {
    call(command, Object.keys(args ?? {}));
  });
  await tauriBackend.app_info();
  await tauriBackend.chat(7);
  await tauriBackend.send_message({ chat_id: null, parent: null, text: 'hi' }, () => undefined);
  expect(call.mock.calls).toEqual([
    ['app_info', []],
    ['chat', ['request']],
    ['send_message', ['request', 'events']],
  ]);
});

test('channel messages reach the sink, and what a command rejects with is a failure', async () => {
  const events: ChatEvent[] = [];
  mockIPC((command, args) => {
    if (command === 'search_models') throw offline;
    const channel = (args as { events: { onmessage: (event: ChatEvent) => void } }).events;
    channel.onmessage({ type: 'delta', text: 'a' });
  });
  await tauriBackend.send_message({ chat_id: null, parent: null, text: 'hi' }, (event) => events.push(event));
  expect(events).toEqual([{ type: 'delta', text: 'a' }]);
  await expect(tauriBackend.search_models({ query: '', cursor: null })).rejects.toEqual(offline);
});
