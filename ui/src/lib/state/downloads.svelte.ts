/** Downloads, and what is to happen when one arrives. */

import { asFailure, type Backend } from '../backend/backend';
import type { Download, Failure, LibraryModel, ModelVersion, Move, RepoFile } from '../wire';

export class Downloads {
  list: Download[] = $state.raw([]);
  failure: Failure | null = $state.raw(null);
  /** Downloads that open a chat when they arrive. */
  #thenChat: Set<string> = $state.raw(new Set());
  #arrived = new Set<string>();

  constructor(
    private readonly backend: Backend,
    private readonly library: () => LibraryModel[],
    private readonly onArrived: (model: LibraryModel, thenChat: boolean) => void,
  ) {}

  readonly active: Download[] = $derived(this.list.filter(({ state }) => state !== 'done'));
  /** Share of everything that is on its way, for the sidebar. */
  readonly share: number | null = $derived.by(() => {
    const moving = this.active.filter(({ state }) => state === 'running' || state === 'retrying' || state === 'queued' || state === 'verifying' || state === 'repairing');
    const whole = moving.reduce((sum, each) => sum + each.size_bytes, 0);
    return whole > 0 ? moving.reduce((sum, each) => sum + each.arrived_bytes, 0) / whole : null;
  });

  adopt(list: Download[]): void {
    this.list = list;
    for (const { id, state } of list) if (state === 'done') this.#arrived.add(id);
  }

  opensChat(id: string): boolean {
    return this.#thenChat.has(id);
  }

  async start(version: ModelVersion, then: 'chat' | 'keep'): Promise<Download | null> {
    return this.#attempt(async () => {
      const download = await this.backend.start_download({ files: version.files });
      if (then === 'chat') this.#thenChat = new Set([...this.#thenChat, download.id]);
      // Events may have outrun the answer.
      if (!this.list.some(({ id }) => id === download.id)) this.list = [...this.list, download];
      this.settle();
      return download;
    });
  }

  pause(id: string): Promise<void | null> {
    return this.#attempt(() => this.backend.pause_download(id));
  }

  resume(id: string): Promise<void | null> {
    return this.#attempt(() => this.backend.resume_download(id));
  }

  /** Moves one within the queue. */
  async move(id: string, to: Move): Promise<void> {
    const list = await this.#attempt(() => this.backend.move_download({ id, to }));
    if (!list) return;
    // The order alone: what the rows say may have changed since.
    const place = new Map(list.map((download, index) => [download.id, index]));
    this.list = [...this.list].sort((a, b) => (place.get(a.id) ?? Infinity) - (place.get(b.id) ?? Infinity));
  }

  /** Whether there is another unfinished one on that side. */
  canMove(id: string, to: Move): boolean {
    const place = this.active.findIndex((download) => download.id === id);
    return to === 'up' ? place > 0 : place >= 0 && place < this.active.length - 1;
  }

  cancel(id: string): Promise<void | null> {
    this.#keepOnly(id);
    return this.#attempt(() => this.backend.cancel_download(id));
  }

  apply(download: Download): void {
    if (download.state !== 'done') this.#arrived.delete(download.id);
    if (download.state === 'failed') this.#keepOnly(download.id);
    this.list = this.list.some(({ id }) => id === download.id) ? this.list.map((each) => (each.id === download.id ? download : each)) : [...this.list, download];
    this.settle();
  }

  gone(id: string): void {
    this.list = this.list.filter((download) => download.id !== id);
    this.#arrived.delete(id);
    this.#keepOnly(id);
  }

  /** A finished row is looked at and put away. */
  clear(id: string): void {
    this.gone(id);
  }

  of(version: ModelVersion): Download | null {
    return this.list.find((download) => download.state !== 'done' && sameFile(download.files[0], version.files[0])) ?? null;
  }

  /** Reports downloads that are done and in the library; either of the two may be known first. */
  settle(): void {
    for (const download of this.list) {
      if (download.state !== 'done' || this.#arrived.has(download.id)) continue;
      const model = modelOf(download, this.library());
      if (!model) continue;
      this.#arrived.add(download.id);
      const thenChat = this.#thenChat.has(download.id);
      this.#keepOnly(download.id);
      this.onArrived(model, thenChat);
    }
  }

  /** Opens no chat when this one arrives. */
  #keepOnly(id: string): void {
    if (this.#thenChat.has(id)) this.#thenChat = new Set([...this.#thenChat].filter((other) => other !== id));
  }

  async #attempt<T>(run: () => Promise<T>): Promise<T | null> {
    try {
      const answer = await run();
      this.failure = null;
      return answer;
    } catch (thrown) {
      this.failure = asFailure(thrown);
      return null;
    }
  }
}

/** The library's model that a download became. */
export function modelOf(download: Download, library: LibraryModel[]): LibraryModel | undefined {
  return library.find(({ source }) => source !== null && sameFile(source, download.files[0]));
}

function sameFile(a: RepoFile | undefined, b: RepoFile | undefined): boolean {
  return a !== undefined && b !== undefined && a.repo === b.repo && a.path === b.path;
}
