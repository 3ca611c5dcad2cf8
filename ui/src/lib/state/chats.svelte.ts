/** The list of chats: newest first, in groups by day. */

import { asFailure, type Backend } from '../backend/backend';
import type { ChatSummary, Failure } from '../wire';

export type DayGroup = { day: 'today' | 'yesterday' | 'last7Days' | 'older'; chats: ChatSummary[] };

const DAY_MS = 86_400_000;

export class Chats {
  list: ChatSummary[] = $state.raw([]);
  query = $state('');
  failure: Failure | null = $state.raw(null);

  constructor(private readonly backend: Backend) {}

  readonly found: ChatSummary[] = $derived.by(() => {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    return this.list.filter(({ title }) => words.every((word) => title.toLowerCase().includes(word)));
  });

  async refresh(): Promise<void> {
    await this.#attempt(async () => this.adopt(await this.backend.chats()));
  }

  adopt(list: ChatSummary[]): void {
    this.list = [...list].sort((a, b) => b.updated_at_ms - a.updated_at_ms);
  }

  /** A chat is new or has changed. */
  touch(summary: ChatSummary): void {
    this.adopt([summary, ...this.list.filter(({ id }) => id !== summary.id)]);
  }

  async rename(id: number, title: string): Promise<void> {
    await this.#attempt(async () => {
      const summary = await this.backend.rename_chat({ chat_id: id, title });
      this.list = this.list.map((chat) => (chat.id === id ? summary : chat));
    });
  }

  async remove(id: number): Promise<boolean> {
    return this.#attempt(async () => {
      await this.backend.delete_chat(id);
      this.list = this.list.filter((chat) => chat.id !== id);
    });
  }

  async restore(id: number): Promise<void> {
    await this.#attempt(() => this.backend.restore_chat(id));
    await this.refresh();
  }

  async #attempt(run: () => Promise<void>): Promise<boolean> {
    try {
      await run();
      this.failure = null;
      return true;
    } catch (thrown) {
      this.failure = asFailure(thrown);
      return false;
    }
  }
}

/** Groups chats by the day of their last change; empty groups are left out. */
export function groupByDay(chats: ChatSummary[], now: Date): DayGroup[] {
  const midnight = new Date(now.getFullYear(), now.getMonth(), now.getDate()).getTime();
  const dayOf = (at: number): DayGroup['day'] => (at >= midnight ? 'today' : at >= midnight - DAY_MS ? 'yesterday' : at >= midnight - 6 * DAY_MS ? 'last7Days' : 'older');
  const groups: DayGroup[] = [];
  for (const chat of chats) {
    const day = dayOf(chat.updated_at_ms);
    const group = groups.find((each) => each.day === day);
    if (group) group.chats.push(chat);
    else groups.push({ day, chats: [chat] });
  }
  return groups;
}
