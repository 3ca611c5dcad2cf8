/** The chat that is open, and the answer that is being written, which may belong to another chat. */

import { asFailure, type Backend } from '../backend/backend';
import { FrameBatch } from '../frames';
import { pathTo } from '../tree';
import type { Chat, ChatEvent, ChatSummary, Failure, GenerationStats, Message, SendRequest, Text } from '../wire';

/** An answer that is being written. */
export class LiveAnswer {
  text = $state('');
  reasoning = $state('');
  stats: GenerationStats | null = $state.raw(null);
  prompt: { done: number; total: number } | null = $state.raw(null);
  isStopping = $state(false);

  constructor(
    readonly chatId: number,
    readonly messageId: number,
  ) {}
}

/** A request on its way: where it was made, how far it has come, and whether its chat is gone. */
type Run = { chatId: number | null; opening: number; stage: 'preparing' | 'asked' | 'begun'; isDropped: boolean; done: Promise<boolean> };

type Piece = { kind: 'text' | 'reasoning'; text: string };

/** Where the draft of a chat lies that does not exist yet. */
const NEW = 0;

/** What a conversation tells the rest of the app. */
export type ConversationHooks = {
  onSummary: (summary: ChatSummary) => void;
  onRate: (tokensPerSecond: number) => void;
  /** Makes sure that a model is loaded; false: there is none, or it failed. */
  prepare: () => Promise<boolean>;
};

export class Conversation {
  chat: Chat | null = $state.raw(null);
  live: LiveAnswer | null = $state.raw(null);
  /** Sent, but the app has not confirmed it yet. */
  isSending = $state(false);
  draft = $state('');
  /** Said, but not in the store yet: the model is still being loaded. */
  pending: string | null = $state(null);
  failure: { messageId: number | null; failure: Failure } | null = $state.raw(null);
  /** That the model's template was replaced; each sentence is shown until it has been read. */
  notice: Text | null = $state.raw(null);
  #noticesRead = new Set<string>();
  /** For screen readers: said once. */
  announcement: { kind: 'answering' } | { kind: 'answered'; text: string } | null = $state.raw(null);
  #drafts = new Map<number, string>();
  #batch: FrameBatch<Piece>;
  /** Counts chats that were opened or begun. */
  #opening = 0;
  #run: Run | null = null;

  constructor(
    private readonly backend: Backend,
    private readonly hooks: ConversationHooks,
    schedule?: (run: () => void) => void,
  ) {
    this.#batch = new FrameBatch((pieces) => this.#append(pieces), schedule);
  }

  readonly chatId: number | null = $derived(this.chat?.summary.id ?? null);
  readonly path: Message[] = $derived(this.chat ? pathTo(this.chat.messages, this.chat.leaf).filter(({ role }) => role !== 'system') : []);
  readonly isBusy: boolean = $derived(this.isSending || this.live !== null);

  /** Begins a new chat; it exists in the store once something is said. */
  startNew(): void {
    this.#opening += 1;
    this.#keepDraft();
    this.chat = null;
    this.pending = null;
    this.failure = null;
    this.draft = this.#drafts.get(NEW) ?? '';
  }

  async open(chatId: number): Promise<void> {
    const opening = ++this.#opening;
    try {
      const chat = await this.backend.chat(chatId);
      if (opening !== this.#opening) return;
      this.#keepDraft();
      this.chat = chat;
      this.pending = null;
      this.failure = null;
      this.draft = this.#drafts.get(chatId) ?? '';
    } catch (thrown) {
      if (opening === this.#opening) this.failure = { messageId: null, failure: asFailure(thrown) };
    }
  }

  async send(): Promise<void> {
    const text = this.draft.trim();
    if (text === '' || this.isBusy) return;
    const from = this.chatId ?? NEW;
    this.draft = '';
    this.#drafts.delete(from);
    this.pending = text;
    const isStarted = await this.#ask({ chat_id: this.chatId, parent: null, text });
    this.pending = null;
    if (!isStarted) this.#giveBack(from, text);
  }

  /** Answers the same message once more, as a sibling. */
  async regenerate(answer: Message): Promise<void> {
    if (this.isBusy || answer.parent === null) return;
    await this.#ask({ chat_id: this.chatId, parent: answer.parent, text: '' });
  }

  /** Says something else in place of an earlier message, as a sibling of it. */
  async edit(message: Message, text: string): Promise<void> {
    if (this.isBusy || text.trim() === '') return;
    await this.#ask({ chat_id: this.chatId, parent: message.parent, text: text.trim() });
  }

  async stop(): Promise<void> {
    if (!this.live || this.live.isStopping) return;
    this.live.isStopping = true;
    try {
      await this.backend.stop_answer();
    } catch (thrown) {
      this.live.isStopping = false;
      this.failure = { messageId: this.live.messageId, failure: asFailure(thrown) };
    }
  }

  /** Ends whatever is being written to a chat, so that it can be deleted; false: it could not be stopped. */
  async release(chatId: number): Promise<boolean> {
    const run = this.#run;
    if (!run || (this.live?.chatId ?? run.chatId) !== chatId) return true;
    run.isDropped = true;
    if (run.stage === 'preparing') return true;
    if (this.live) await this.stop();
    if (this.live && !this.live.isStopping) return false;
    await run.done;
    return true;
  }

  async showBranch(messageId: number): Promise<void> {
    if (this.chatId === null || this.isBusy) return;
    try {
      this.chat = await this.backend.set_leaf({ chat_id: this.chatId, message_id: messageId });
    } catch (thrown) {
      this.failure = { messageId, failure: asFailure(thrown) };
    }
  }

  retitle(summary: ChatSummary): void {
    if (this.chat && this.chatId === summary.id) this.chat = { ...this.chat, summary };
  }

  /** Asks for an answer and waits for its end; says whether it was begun. */
  #ask(request: SendRequest): Promise<boolean> {
    const run: Run = { chatId: request.chat_id, opening: this.#opening, stage: 'preparing', isDropped: false, done: Promise.resolve(false) };
    this.#run = run;
    run.done = this.#carryOut(run, request);
    return run.done;
  }

  async #carryOut(run: Run, request: SendRequest): Promise<boolean> {
    this.isSending = true;
    this.failure = null;
    try {
      if (!(await this.hooks.prepare()) || run.isDropped) return false;
      run.stage = 'asked';
      await this.backend.send_message(request, (event) => this.#apply(run, event));
    } catch (thrown) {
      this.failure = { messageId: this.live?.messageId ?? null, failure: asFailure(thrown) };
    } finally {
      this.#batch.flush();
      this.#settle(null);
      this.isSending = false;
      this.#run = null;
    }
    return run.stage === 'begun';
  }

  /** The notice has been read. */
  read(): void {
    if (this.notice) this.#noticesRead.add(this.notice.en);
    this.notice = null;
  }

  #apply(run: Run, event: ChatEvent): void {
    if (event.type === 'started') this.#begin(run, event);
    else if (event.type === 'notice') this.notice = this.#noticesRead.has(event.notice.en) ? null : event.notice;
    else if (event.type === 'delta') this.#batch.push({ kind: 'text', text: event.text });
    else if (event.type === 'reasoning') this.#batch.push({ kind: 'reasoning', text: event.text });
    else if (event.type === 'prompt' && this.live) this.live.prompt = { done: event.n_done, total: event.n_total };
    else if (event.type === 'stats' && this.live) {
      this.live.stats = event.stats;
      this.hooks.onRate(event.stats.generation_tokens_per_s);
    } else if (event.type === 'done') this.#end(event.message, null);
    else if (event.type === 'failed') this.#end(event.message, event.failure);
  }

  /** Shows the answer where it was asked for; another chat that was opened meanwhile stays in view. */
  #begin(run: Run, { chat, user, assistant }: Extract<ChatEvent, { type: 'started' }>): void {
    run.stage = 'begun';
    this.pending = null;
    this.live = new LiveAnswer(chat.id, assistant.id);
    this.isSending = false;
    this.announcement = { kind: 'answering' };
    this.hooks.onSummary(chat);
    if (run.isDropped) void this.stop();
    const isNewHere = run.chatId === null && this.chat === null && run.opening === this.#opening;
    if (this.chatId !== chat.id && !isNewHere) return;
    const known = this.chat?.messages ?? [];
    const withUser = known.some(({ id }) => id === user.id) ? known : [...known, user];
    this.chat = { summary: chat, messages: [...withUser, assistant], leaf: assistant.id };
  }

  #append(pieces: Piece[]): void {
    if (!this.live) return;
    const joined = (kind: Piece['kind']): string => pieces.map((piece) => (piece.kind === kind ? piece.text : '')).join('');
    const [text, reasoning] = [joined('text'), joined('reasoning')];
    if (text) {
      this.live.text += text;
      this.live.prompt = null;
    }
    if (reasoning) this.live.reasoning += reasoning;
  }

  #end(message: Message | null, failure: Failure | null): void {
    this.#batch.flush();
    if (failure) this.failure = { messageId: message?.id ?? this.live?.messageId ?? null, failure };
    if (message?.stats) this.hooks.onRate(message.stats.generation_tokens_per_s);
    this.announcement = { kind: 'answered', text: message?.text ?? this.live?.text ?? '' };
    this.#settle(message);
  }

  /** The answer is no longer live: what was written takes its place in the chat, whatever the app still said. */
  #settle(message: Message | null): void {
    const live = this.live;
    if (!live) return;
    this.live = null;
    if (!this.chat || this.chatId !== live.chatId) return;
    this.chat = {
      ...this.chat,
      messages: this.chat.messages.map((each) => (each.id !== live.messageId ? each : (message ?? { ...each, text: live.text, reasoning: live.reasoning, stats: live.stats, end: each.end ?? 'failed' }))),
    };
  }

  #keepDraft(): void {
    this.#drafts.set(this.chatId ?? NEW, this.draft);
  }

  /** What was not sent goes back to the composer it came from, before what has been typed since. */
  #giveBack(chatId: number, text: string): void {
    const join = (since: string): string => (since === '' ? text : `${text}\n${since}`);
    if ((this.chatId ?? NEW) === chatId) this.draft = join(this.draft);
    else this.#drafts.set(chatId, join(this.#drafts.get(chatId) ?? ''));
  }
}
