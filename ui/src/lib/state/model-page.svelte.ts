/** One model of the hub: its versions first, and how each would run here as soon as that is known. */

import { asFailure, type Backend } from '../backend/backend';
import type { Failure, HashWord, HubModel, ModelPage, ModelVersion, Plan, PlannedVersion, PlannedVersions, Reading, Wishes } from '../wire';
import { NO_WISHES, settled } from '../wishes';

export class ModelPageState {
  repo: string | null = $state(null);
  page: ModelPage | null = $state.raw(null);
  planned: PlannedVersions | null = $state.raw(null);
  /** Plans as they arrive, by path, before all are there. */
  #arrived: ReadonlyMap<string, PlannedVersion> = $state.raw(new Map());
  wishes: Wishes = $state.raw(NO_WISHES);
  isPlanning = $state(false);
  /** Whether other sources are being asked for their word on the hashes. */
  isConfirming = $state(false);
  /** GGUF versions of a model whose repo holds none. */
  ggufVersions: HubModel[] = $state.raw([]);
  isSeekingGguf = $state(false);
  failure: Failure | null = $state.raw(null);
  planFailure: Failure | null = $state.raw(null);
  /** Version whose plan is open. */
  openPath: string | null = $state(null);
  #request = 0;
  readonly #planSoon = settled(() => {
    if (this.repo && this.page) void this.#plan(this.repo, this.#request, 'kept');
  });

  constructor(private readonly backend: Backend) {}

  readonly recommended: ModelVersion | null = $derived(this.page?.versions[this.planned?.recommended ?? -1] ?? null);
  /** Why none can be used, if no version has a plan. */
  readonly refusal: Failure | null = $derived.by(() => {
    const planned = this.planned?.versions ?? [];
    return this.page?.refusal ?? (planned.every(({ refusal }) => refusal !== null) ? (planned[0]?.refusal ?? null) : null);
  });
  readonly openVersion: ModelVersion | null = $derived(this.page?.versions.find((version) => firstPath(version) === this.openPath) ?? null);

  async open(repo: string, headers: Reading = 'kept'): Promise<void> {
    const request = ++this.#request;
    if (this.isPlanning) await this.#stopPlanning();
    const isNew = repo !== this.repo;
    this.repo = repo;
    this.openPath = null;
    if (isNew) {
      this.page = null;
      this.wishes = NO_WISHES;
    }
    if (isNew || headers === 'again') this.planned = null;
    this.#arrived = new Map();
    this.failure = null;
    this.planFailure = null;
    this.ggufVersions = [];
    try {
      const page = await this.backend.model_page(repo);
      if (request !== this.#request) return;
      this.page = page;
    } catch (thrown) {
      if (request === this.#request) this.failure = asFailure(thrown);
      return;
    }
    if (this.page.versions.length === 0) return this.#seekGguf(repo, request);
    void this.#confirm(request);
    await this.#plan(repo, request, headers);
  }

  retry(): void {
    if (this.repo) void this.open(this.repo);
  }

  /** Asks the hub for everything once more, headers too. */
  readAgain(): void {
    if (this.repo) void this.open(this.repo, 'again');
  }

  close(): void {
    this.leave();
    this.#request += 1;
    this.repo = null;
    this.page = null;
  }

  /** The page is out of sight: what is being read for it ends. */
  leave(): void {
    if (!this.isPlanning) return;
    this.#request += 1;
    void this.#stopPlanning();
  }

  /** It is looked at again: what was ended goes on. */
  resume(): void {
    if (this.repo && this.page && !this.planned && !this.isPlanning && !this.planFailure) void this.#plan(this.repo, ++this.#request, 'kept');
  }

  async #stopPlanning(): Promise<void> {
    this.isPlanning = false;
    await this.backend.stop_planning().catch(() => undefined);
  }

  plannedOf(version: ModelVersion): PlannedVersion | null {
    return this.planned?.versions.find(({ path }) => path === firstPath(version)) ?? this.#arrived.get(firstPath(version)) ?? null;
  }

  planOf(version: ModelVersion): Plan | null {
    return this.plannedOf(version)?.plan ?? null;
  }

  /** Another wish: all versions are planned again, a moment later. */
  wish(wish: Partial<Wishes>): void {
    this.wishes = { ...this.wishes, ...wish };
    this.#planSoon();
  }

  /** Whose word the hashes are: that of the first file stands for all. */
  readonly word: HashWord = $derived(this.page?.versions[0]?.files[0]?.hash_word ?? { type: 'unknown' });

  async #confirm(request: number): Promise<void> {
    const page = this.page;
    if (!page || this.word.type !== 'mirrors') return;
    this.isConfirming = true;
    const files = await this.backend.confirm_hashes(page.versions.flatMap((version) => version.files)).catch(() => null);
    if (request !== this.#request) return;
    this.isConfirming = false;
    if (!files) return;
    const byPath = new Map(files.map((file) => [file.path, file]));
    this.page = { ...page, versions: page.versions.map((version) => ({ ...version, files: version.files.map((file) => byPath.get(file.path) ?? file) })) };
  }

  async #seekGguf(repo: string, request: number): Promise<void> {
    this.isSeekingGguf = true;
    const found = await this.backend.gguf_versions(repo).catch(() => []);
    if (request !== this.#request) return;
    this.ggufVersions = found;
    this.isSeekingGguf = false;
  }

  async #plan(repo: string, request: number, headers: Reading): Promise<void> {
    const wishes = this.wishes;
    const isCurrent = (): boolean => request === this.#request && wishes === this.wishes;
    this.isPlanning = true;
    this.planFailure = null;
    try {
      const planned = await this.backend.plan_versions({ repo, wishes, machine: null, card_computes: false, headers }, (version) => {
        if (isCurrent() && !this.planned) this.#arrived = new Map([...this.#arrived, [version.path, version]]);
      });
      if (isCurrent()) this.planned = planned;
    } catch (thrown) {
      if (isCurrent()) this.planFailure = asFailure(thrown);
    } finally {
      if (isCurrent()) this.isPlanning = false;
    }
  }
}

/** What identifies a version: the path of its first file. */
export function firstPath(version: ModelVersion): string {
  return version.files[0]?.path ?? '';
}
