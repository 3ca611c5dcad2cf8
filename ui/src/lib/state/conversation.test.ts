import { describe, expect, test, vi } from 'vitest';
import type { Backend, Sink } from '../backend/backend';
import { FakeBackend } from '../backend/fake';
import type { ChatEvent, ChatSummary, Failure, Message, SendRequest } from '../wire';
import { Conversation, type ConversationHooks } from './conversation.svelte';

const broken: Failure = { code: 'engine_failed', message: { en: 'It stopped.', zh: '停了。' }, hint: { en: 'Ask again.', zh: '再问。' } };
const summary: ChatSummary = { id: 1, title: 'Hi', updated_at_ms: 0, n_messages: 2 };
const message = (id: number, parent: number | null, role: Message['role'], text = ''): Message => ({ id, parent, role, text, reasoning: '', created_at_ms: 0, model: null, end: null, stats: null });

/** A backend whose answer the test writes, and a clock whose frames the test counts. */
function stage(hooks: Partial<ConversationHooks> = {}) {
  let sink: Sink<ChatEvent> | undefined;
  let finish: (() => void) | undefined;
  let frames: (() => void)[] = [];
  const fake = new FakeBackend();
  const sent: SendRequest[] = [];
  const backend: Backend = Object.assign(fake, {
    send_message: (request: SendRequest, events: Sink<ChatEvent>) => {
      sent.push(request);
      sink = events;
      return new Promise<void>((resolve) => (finish = resolve));
    },
  });
  const conversation = new Conversation(backend, { onSummary: () => undefined, onRate: () => undefined, prepare: () => Promise.resolve(true), ...hooks }, (run) => frames.push(run));
  return {
    conversation,
    sent,
    say: (event: ChatEvent) => sink!(event),
    begin: () => sink!({ type: 'started', chat: summary, user: message(1, 0, 'user', 'hi'), assistant: message(2, 1, 'assistant') }),
    finish: () => finish!(),
    frame: () => {
      const now = frames;
      frames = [];
      now.forEach((run) => run());
      return now.length;
    },
  };
}

async function asked(hooks: Partial<ConversationHooks> = {}) {
  const scene = stage(hooks);
  scene.conversation.draft = 'hi';
  const sending = scene.conversation.send();
  await vi.waitFor(() => expect(scene.sent.length).toBe(1));
  scene.begin();
  return { ...scene, sending };
}

describe('streaming', () => {
  test('a replaced template is told of until that has been read', async () => {
    const { conversation, say } = await asked();
    const notice = { en: 'The ChatML format is used.', zh: '改用 ChatML 格式。' };
    say({ type: 'notice', notice });
    expect(conversation.notice).toEqual(notice);
    conversation.read();
    say({ type: 'notice', notice });
    expect(conversation.notice).toBeNull();
  });

  test('text is applied once per frame, however often it arrives', async () => {
    const { conversation, say, frame } = await asked();
    for (let index = 0; index < 500; index += 1) say({ type: 'delta', text: 'a' });
    expect(conversation.live?.text).toBe('');
    expect(frame()).toBe(1);
    expect(conversation.live?.text).toHaveLength(500);
    say({ type: 'reasoning', text: 'why' });
    say({ type: 'delta', text: 'b' });
    expect(frame()).toBe(1);
    expect([conversation.live?.reasoning, conversation.live?.text.at(-1)]).toEqual(['why', 'b']);
  });

  test('the finished message takes its place, with nothing left unapplied', async () => {
    const { conversation, say, finish, sending } = await asked();
    say({ type: 'delta', text: 'Hello' });
    say({ type: 'done', message: { ...message(2, 1, 'assistant', 'Hello'), end: 'complete' } });
    finish();
    await sending;
    expect(conversation.live).toBeNull();
    expect(conversation.isBusy).toBe(false);
    expect(conversation.path.map(({ text, end }) => [text, end])).toEqual([
      ['hi', null],
      ['Hello', 'complete'],
    ]);
    expect(conversation.announcement).toEqual({ kind: 'answered', text: 'Hello' });
  });

  test('the rate of the answer is passed on', async () => {
    const onRate = vi.fn();
    const { say } = await asked({ onRate });
    say({ type: 'stats', stats: { n_prompt_tokens: 1, n_reused_tokens: 0, n_generated_tokens: 1, prompt_ms: 1, generation_ms: 1, prompt_tokens_per_s: 1, generation_tokens_per_s: 42, first_token_ms: 1 } });
    expect(onRate).toHaveBeenCalledWith(42);
  });
});

describe('when it goes wrong', () => {
  test('an error keeps what was written', async () => {
    const { conversation, say, finish, sending } = await asked();
    say({ type: 'delta', text: 'Half' });
    say({ type: 'failed', message: null, failure: broken });
    finish();
    await sending;
    expect(conversation.path.at(-1)).toMatchObject({ text: 'Half', end: 'failed' });
    expect(conversation.failure).toEqual({ messageId: 2, failure: broken });
  });

  test('a command that ends without a word leaves no answer running', async () => {
    const { conversation, say, finish, sending } = await asked();
    say({ type: 'delta', text: 'Half' });
    finish();
    await sending;
    expect(conversation.live).toBeNull();
    expect(conversation.path.at(-1)?.text).toBe('Half');
  });

  test('without a model the text stays in the composer', async () => {
    const { conversation, sent } = stage({ prepare: () => Promise.resolve(false) });
    conversation.draft = 'hi';
    await conversation.send();
    expect([conversation.draft, sent.length, conversation.isBusy]).toEqual(['hi', 0, false]);
  });

  test('a refused message stays in the composer too', async () => {
    const { conversation } = stage({ prepare: () => Promise.reject(broken) });
    conversation.draft = 'hi';
    await conversation.send();
    expect([conversation.draft, conversation.failure?.failure.code]).toEqual(['hi', 'engine_failed']);
  });
});

describe('the tree', () => {
  test('an edit goes under the same parent, an answer anew under the same question', async () => {
    const { conversation, sent, say, finish, sending } = await asked();
    say({ type: 'done', message: { ...message(2, 1, 'assistant', 'Hello'), end: 'complete' } });
    finish();
    await sending;
    void conversation.edit(conversation.path[0]!, 'hello');
    await vi.waitFor(() => expect(sent.length).toBe(2));
    expect(sent[1]).toEqual({ chat_id: 1, parent: 0, text: 'hello' });
    finish();
    await vi.waitFor(() => expect(conversation.isBusy).toBe(false));
    void conversation.regenerate(conversation.path[1]!);
    await vi.waitFor(() => expect(sent.length).toBe(3));
    expect(sent[2]).toEqual({ chat_id: 1, parent: 1, text: '' });
    finish();
  });

  test('another branch is shown down to its leaf', async () => {
    const fake = new FakeBackend();
    const conversation = new Conversation(fake, { onSummary: () => undefined, onRate: () => undefined, prepare: () => Promise.resolve(true) });
    await conversation.open(1);
    expect(conversation.path.map(({ id }) => id)).toEqual([3, 4]);
    await conversation.showBranch(1);
    expect(conversation.path.map(({ id }) => id)).toEqual([1, 2]);
  });
});

describe('several chats', () => {
  test('an answer goes on while another chat is looked at', async () => {
    const { conversation, say, frame, finish, sending } = await asked();
    await conversation.open(1);
    await conversation.open(2);
    say({ type: 'delta', text: 'elsewhere' });
    frame();
    expect(conversation.live?.text).toBe('elsewhere');
    expect(conversation.path.some(({ text }) => text === 'elsewhere')).toBe(false);
    finish();
    await sending;
    expect(conversation.live).toBeNull();
  });

  test('each chat keeps its own draft', async () => {
    const { conversation } = stage();
    await conversation.open(2);
    conversation.draft = 'for two';
    await conversation.open(3);
    expect(conversation.draft).toBe('');
    await conversation.open(2);
    expect(conversation.draft).toBe('for two');
  });

  test('a chat that is opened while a message waits for its model stays in view, and so does what is typed there', async () => {
    let ready: ((isLoaded: boolean) => void) | undefined;
    const { conversation, sent, begin, finish } = stage({ prepare: () => new Promise((resolve) => (ready = resolve)) });
    conversation.draft = 'hi';
    const sending = conversation.send();
    expect([conversation.draft, conversation.pending]).toEqual(['', 'hi']);
    conversation.startNew();
    conversation.draft = 'another thought';
    ready!(true);
    await vi.waitFor(() => expect(sent.length).toBe(1));
    begin();
    expect([conversation.chat, conversation.draft, conversation.live?.chatId]).toEqual([null, 'another thought', 1]);
    finish();
    await sending;
    expect(conversation.draft).toBe('another thought');
  });

  test('what could not be sent goes back to its own chat, before what was typed since', async () => {
    let ready: ((isLoaded: boolean) => void) | undefined;
    const { conversation } = stage({ prepare: () => new Promise((resolve) => (ready = resolve)) });
    await conversation.open(2);
    conversation.draft = 'one';
    const sending = conversation.send();
    conversation.draft = 'two';
    await conversation.open(3);
    ready!(false);
    await sending;
    expect(conversation.draft).toBe('');
    await conversation.open(2);
    expect(conversation.draft).toBe('one\ntwo');
  });

  test('a chat is let go once its answer has ended', async () => {
    const { conversation, finish } = await asked();
    const stop = vi.fn(() => Promise.resolve(finish()));
    Object.assign((conversation as unknown as { backend: object }).backend, { stop_answer: stop });
    expect(await conversation.release(7)).toBe(true);
    expect(stop).not.toHaveBeenCalled();
    expect(await conversation.release(1)).toBe(true);
    expect([stop.mock.calls.length, conversation.isBusy]).toEqual([1, false]);
  });

  test('stop asks once', async () => {
    const { conversation, finish } = await asked();
    const stop = vi.fn(() => Promise.resolve());
    Object.assign((conversation as unknown as { backend: object }).backend, { stop_answer: stop });
    await Promise.all([conversation.stop(), conversation.stop()]);
    expect(stop).toHaveBeenCalledTimes(1);
    finish();
  });
});
