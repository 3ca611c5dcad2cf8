/** Models on this machine, and how each would run. */

import { asFailure, type Backend } from '../backend/backend';
import type { Failure, LibraryModel, ModelVersion, Plan } from '../wire';
import { NO_WISHES } from '../wishes';

export class Library {
  /** As the app says; what is about to be removed is hidden already. */
  #all: LibraryModel[] = $state.raw([]);
  #removing: Set<string> = $state.raw(new Set());
  /** Removals that the app is carrying out. */
  #leaving = new Map<string, Promise<void>>();
  query = $state('');
  /** Plans by model; `null` where there is none. */
  plans: ReadonlyMap<string, Plan | null> = $state.raw(new Map());
  failure: Failure | null = $state.raw(null);
  isAdding = $state(false);
  /** The form for a file's path is open. */
  isFormOpen = $state(false);
  #isPlanning = false;

  constructor(private readonly backend: Backend) {}

  readonly models: LibraryModel[] = $derived(this.#all.filter(({ id }) => !this.#removing.has(id)));
  readonly usable: LibraryModel[] = $derived(this.models.filter(({ refusal }) => refusal === null));
  readonly shown: LibraryModel[] = $derived.by(() => {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    return this.models.filter((model) => words.every((word) => `${model.name} ${model.quant} ${model.architecture}`.toLowerCase().includes(word)));
  });
  readonly bytes: number = $derived(this.models.reduce((sum, model) => sum + model.size_bytes, 0));

  adopt(models: LibraryModel[]): void {
    this.#all = models;
  }

  get(id: string | null): LibraryModel | null {
    return this.models.find((model) => model.id === id) ?? null;
  }

  of(version: ModelVersion): LibraryModel | null {
    return this.models.find((model) => isOf(model, version)) ?? null;
  }

  /** The model of this version that is about to be removed. */
  hiddenOf(version: ModelVersion): LibraryModel | null {
    return this.#all.find((model) => this.#removing.has(model.id) && isOf(model, version)) ?? null;
  }

  /** Hidden, and not yet being removed: this can be taken back. */
  isPending(id: string): boolean {
    return this.#removing.has(id) && !this.#leaving.has(id);
  }

  async add(path: string): Promise<LibraryModel | null> {
    this.isAdding = true;
    this.failure = null;
    try {
      const model = await this.backend.add_model(path);
      this.unhide(model.id);
      if (!this.#all.some(({ id }) => id === model.id)) this.#all = [...this.#all, model];
      return model;
    } catch (thrown) {
      this.failure = asFailure(thrown);
      return null;
    } finally {
      this.isAdding = false;
    }
  }

  hide(id: string): void {
    this.#removing = new Set([...this.#removing, id]);
  }

  unhide(id: string): void {
    this.#removing = new Set([...this.#removing].filter((other) => other !== id));
  }

  /** Removes what is hidden; what was taken back meanwhile stays. */
  async remove(id: string): Promise<void> {
    if (this.isPending(id)) this.#leaving.set(id, this.#remove(id).finally(() => this.#leaving.delete(id)));
    await this.#leaving.get(id);
  }

  async #remove(id: string): Promise<void> {
    try {
      await this.backend.remove_model(id);
      this.#all = this.#all.filter((model) => model.id !== id);
    } catch (thrown) {
      this.failure = asFailure(thrown);
    }
    this.unhide(id);
  }

  /** Asks for the plans that are missing, one after the other. */
  async plan(): Promise<void> {
    if (this.#isPlanning) return;
    this.#isPlanning = true;
    for (let model = this.#unplanned(); model; model = this.#unplanned()) {
      const plan = await this.backend.plan_model({ model_id: model.id, wishes: NO_WISHES }).catch(() => null);
      this.plans = new Map([...this.plans, [model.id, plan]]);
    }
    this.#isPlanning = false;
  }

  #unplanned(): LibraryModel | undefined {
    return this.usable.find(({ id }) => !this.plans.has(id));
  }
}

function isOf({ source }: LibraryModel, { files: [file] }: ModelVersion): boolean {
  return source !== null && source.repo === file?.repo && source.path === file.path;
}
