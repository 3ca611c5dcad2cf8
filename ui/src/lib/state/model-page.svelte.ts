/** One model of the hub: its versions first, and how each would run here as soon as that is known. */

import { asFailure, type Backend } from '../backend/backend';
import type { Failure, ModelPage, ModelVersion, Plan, PlannedVersion, PlannedVersions, Wishes } from '../wire';
import { NO_WISHES, settled } from '../wishes';

export class ModelPageState {
  repo: string | null = $state(null);
  page: ModelPage | null = $state.raw(null);
  planned: PlannedVersions | null = $state.raw(null);
  /** Plans as they arrive, by path, before all are there. */
  #arrived: ReadonlyMap<string, PlannedVersion> = $state.raw(new Map());
  wishes: Wishes = $state.raw(NO_WISHES);
  isPlanning = $state(false);
  failure: Failure | null = $state.raw(null);
  planFailure: Failure | null = $state.raw(null);
  /** Version whose plan is open. */
  openPath: string | null = $state(null);
  #request = 0;
  readonly #planSoon = settled(() => {
    if (this.repo && this.page) void this.#plan(this.repo, this.#request);
  });

  constructor(private readonly backend: Backend) {}

  readonly recommended: ModelVersion | null = $derived(this.page?.versions[this.planned?.recommended ?? -1] ?? null);
  /** Why none can be used, if no version has a plan. */
  readonly refusal: Failure | null = $derived.by(() => {
    const planned = this.planned?.versions ?? [];
    return this.page?.refusal ?? (planned.every(({ refusal }) => refusal !== null) ? (planned[0]?.refusal ?? null) : null);
  });
  readonly openVersion: ModelVersion | null = $derived(this.page?.versions.find((version) => firstPath(version) === this.openPath) ?? null);

  async open(repo: string): Promise<void> {
    const request = ++this.#request;
    const isNew = repo !== this.repo;
    this.repo = repo;
    this.openPath = null;
    if (isNew) {
      this.page = null;
      this.planned = null;
      this.wishes = NO_WISHES;
    }
    this.#arrived = new Map();
    this.failure = null;
    this.planFailure = null;
    try {
      const page = await this.backend.model_page(repo);
      if (request !== this.#request) return;
      this.page = page;
    } catch (thrown) {
      if (request === this.#request) this.failure = asFailure(thrown);
      return;
    }
    if (this.page.versions.length > 0) await this.#plan(repo, request);
  }

  retry(): void {
    if (this.repo) void this.open(this.repo);
  }

  close(): void {
    this.#request += 1;
    this.repo = null;
    this.page = null;
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

  async #plan(repo: string, request: number): Promise<void> {
    const wishes = this.wishes;
    const isCurrent = (): boolean => request === this.#request && wishes === this.wishes;
    this.isPlanning = true;
    this.planFailure = null;
    try {
      const planned = await this.backend.plan_versions({ repo, wishes, machine: null, card_computes: false }, (version) => {
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
