/** Search on the hub: one query, its pages of results, and how the last request went. */

import { asFailure, type Backend } from '../backend/backend';
import type { Failure, HubModel } from '../wire';

const DEBOUNCE_MS = 280;

export class HubSearch {
  query = $state('');
  models: HubModel[] = $state.raw([]);
  next: string | null = $state.raw(null);
  state: 'idle' | 'loading' | 'ready' | 'failed' = $state('idle');
  isLoadingMore = $state(false);
  failure: Failure | null = $state.raw(null);
  /** The query that `models` answers. */
  answered = $state('');
  #request = 0;
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(private readonly backend: Backend) {}

  /** The person typed; the hub is asked when they pause. */
  type(query: string): void {
    this.query = query;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => void this.run(), DEBOUNCE_MS);
  }

  /** Asks the hub now. A later request outruns an earlier one. */
  async run(): Promise<void> {
    clearTimeout(this.#timer);
    const request = ++this.#request;
    const query = this.query.trim();
    this.state = 'loading';
    this.failure = null;
    try {
      const page = await this.backend.search_models({ query, cursor: null });
      if (request !== this.#request) return;
      this.models = page.models;
      this.next = page.next;
      this.answered = query;
      this.state = 'ready';
    } catch (thrown) {
      if (request !== this.#request) return;
      this.failure = asFailure(thrown);
      this.state = 'failed';
    }
  }

  async more(): Promise<void> {
    if (this.next === null || this.isLoadingMore) return;
    const request = this.#request;
    this.isLoadingMore = true;
    try {
      const page = await this.backend.search_models({ query: this.answered, cursor: this.next });
      if (request !== this.#request) return;
      const known = new Set(this.models.map(({ id }) => id));
      this.models = [...this.models, ...page.models.filter(({ id }) => !known.has(id))];
      this.next = page.next;
    } catch (thrown) {
      if (request === this.#request) this.failure = asFailure(thrown);
    } finally {
      this.isLoadingMore = false;
    }
  }

  /** Another hub: what is listed is no longer true. */
  reset(): void {
    clearTimeout(this.#timer);
    this.#request += 1;
    this.models = [];
    this.next = null;
    this.failure = null;
    this.state = 'idle';
  }

  /** The first visit lists what the hub offers. */
  start(): void {
    if (this.state === 'idle') void this.run();
  }
}
