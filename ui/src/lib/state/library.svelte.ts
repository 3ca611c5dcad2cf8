/** Models on this machine, and how each would run. */

import { asFailure, type Backend } from '../backend/backend';
import type { AddedPaths, Failure, LibraryFolder, LibraryModel, ModelVersion, Plan, Program, Removal, UpdatesFound, Wishes } from '../wire';
import { NO_WISHES, settled } from '../wishes';

/** Where wishes are kept: by model, and for versions that are still to come, by what identifies their first file. */
const WISHES = 'tandem.wishes';
const PROMISED = 'tandem.wishes.promised';

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
  /** Folders in use, and those of other programs that could be. */
  folders: LibraryFolder[] = $state.raw([]);
  /** Folders whose use is about to change. */
  busyFolder: string | null = $state(null);
  /** Checks under way: share of the bytes read, by model. */
  checks: ReadonlyMap<string, number> = $state.raw(new Map());
  isAsking = $state(false);
  /** The form for a file's path is open. */
  isFormOpen = $state(false);
  /** Model whose plan is open. */
  openId: string | null = $state(null);
  #wishes: ReadonlyMap<string, Wishes> = $state.raw(keptWishes(WISHES));
  #promised: ReadonlyMap<string, Wishes> = keptWishes(PROMISED);
  #isPlanning = false;
  readonly #replanSoon = settled(() => {
    if (this.openId) void this.#replan(this.openId);
  });

  constructor(private readonly backend: Backend) {}

  readonly models: LibraryModel[] = $derived(this.#all.filter(({ id }) => !this.#removing.has(id)));
  readonly usable: LibraryModel[] = $derived(this.models.filter(({ refusal }) => refusal === null));
  readonly shown: LibraryModel[] = $derived.by(() => {
    const words = this.query.toLowerCase().split(/\s+/).filter(Boolean);
    return this.models.filter((model) => words.every((word) => `${model.name} ${model.quant} ${model.architecture}`.toLowerCase().includes(word)));
  });
  readonly bytes: number = $derived(this.models.reduce((sum, model) => sum + model.size_bytes, 0));

  readonly opened: LibraryModel | null = $derived(this.models.find(({ id }) => id === this.openId) ?? null);

  adopt(models: LibraryModel[]): void {
    this.#all = models;
    this.#redeem();
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

  /** Takes files and folders in; what was not taken in is said. */
  async addPaths(paths: string[]): Promise<AddedPaths | null> {
    this.isAdding = true;
    this.failure = null;
    try {
      const added = await this.backend.add_paths(paths);
      this.failure = added.failures[0] ?? null;
      if (added.folders.length > 0) await this.loadFolders();
      return added;
    } catch (thrown) {
      this.failure = asFailure(thrown);
      return null;
    } finally {
      this.isAdding = false;
    }
  }

  async loadFolders(): Promise<void> {
    this.folders = await this.backend.library_folders().catch(() => this.folders);
  }

  async useFolder(path: string): Promise<void> {
    await this.#change(path, () => this.backend.use_folder(path));
  }

  async dropFolder(path: string): Promise<void> {
    await this.#change(path, () => this.backend.drop_folder(path));
  }

  async #change(path: string, change: () => Promise<unknown>): Promise<void> {
    this.busyFolder = path;
    this.failure = null;
    try {
      await change();
    } catch (thrown) {
      this.failure = asFailure(thrown);
    }
    await this.loadFolders();
    this.busyFolder = null;
  }

  /** Looks at the disk again, as when the window comes to the front: other programs may have changed something. */
  async rescan(): Promise<void> {
    const models = await this.backend.rescan_library().catch(() => null);
    if (models) this.adopt(models);
  }

  /** Computes and compares hashes; the model as it is then, or `null` if that failed or was stopped. */
  async verify(id: string): Promise<LibraryModel | null> {
    if (this.checks.has(id)) return null;
    this.failure = null;
    this.#setCheck(id, 0);
    try {
      const model = await this.backend.verify_model(id, ({ done_bytes, total_bytes }) => this.#setCheck(id, done_bytes / Math.max(1, total_bytes)));
      this.#all = this.#all.map((other) => (other.id === id ? model : other));
      return model;
    } catch (thrown) {
      const failure = asFailure(thrown);
      if (failure.code !== 'cancelled') this.failure = failure;
      return null;
    } finally {
      this.#setCheck(id, null);
    }
  }

  async stopVerify(id: string): Promise<void> {
    await this.backend.stop_verify(id);
  }

  #setCheck(id: string, share: number | null): void {
    const checks = new Map(this.checks);
    if (share === null) checks.delete(id);
    else checks.set(id, share);
    this.checks = checks;
  }

  /** Asks the hub for newer versions. */
  async checkUpdates(): Promise<UpdatesFound | null> {
    if (this.isAsking) return null;
    this.isAsking = true;
    this.failure = null;
    try {
      const found = await this.backend.check_updates();
      if (found.n_checked === 0) this.failure = found.failures[0] ?? null;
      return this.failure ? null : found;
    } catch (thrown) {
      this.failure = asFailure(thrown);
      return null;
    } finally {
      this.isAsking = false;
    }
  }

  planRemoval(id: string, ofPrograms: Program[]): Promise<Removal | null> {
    return this.backend.plan_removal({ model_id: id, of_programs: ofPrograms }).catch(() => null);
  }

  hide(id: string): void {
    this.#removing = new Set([...this.#removing, id]);
  }

  unhide(id: string): void {
    this.#removing = new Set([...this.#removing].filter((other) => other !== id));
  }

  /** Removes what is hidden; what was taken back meanwhile stays. */
  async remove(id: string): Promise<void> {
    if (this.isPending(id)) this.#leaving.set(id, this.#remove(id, []).then(() => undefined).finally(() => this.#leaving.delete(id)));
    await this.#leaving.get(id);
  }

  /** Removes a model with the files of other programs, which a person has allowed by name. */
  removeOf(id: string, programs: Program[]): Promise<Removal | null> {
    return this.#remove(id, programs);
  }

  async #remove(id: string, ofPrograms: Program[]): Promise<Removal | null> {
    let removal: Removal | null = null;
    try {
      removal = await this.backend.remove_model({ model_id: id, of_programs: ofPrograms });
      if (removal.stays.length === 0) this.#all = this.#all.filter((model) => model.id !== id);
    } catch (thrown) {
      this.failure = asFailure(thrown);
    }
    this.unhide(id);
    return removal;
  }

  /** Wishes made on the page of a model that is being downloaded: they become its own when it is here. */
  promise({ files: [file] }: ModelVersion, wishes: Wishes): void {
    if (!file) return;
    const others = [...this.#promised].filter(([key]) => key !== keyOf(file.repo, file.path));
    this.#keepPromised(wishes === NO_WISHES ? others : [...others, [keyOf(file.repo, file.path), wishes]]);
    this.#redeem();
  }

  #redeem(): void {
    for (const { id, source } of this.#all) {
      const key = source ? keyOf(source.repo, source.path) : '';
      const wishes = this.#promised.get(key);
      if (!wishes) continue;
      this.#keepPromised([...this.#promised].filter(([other]) => other !== key));
      this.#keepWishes(id, wishes);
      // What was planned without them is planned again.
      this.plans = new Map([...this.plans].filter(([other]) => other !== id));
    }
  }

  #keepPromised(promised: [string, Wishes][]): void {
    this.#promised = new Map(promised);
    localStorage.setItem(PROMISED, JSON.stringify(promised));
  }

  #keepWishes(id: string, wishes: Wishes): void {
    this.#wishes = new Map([...this.#wishes, [id, wishes]]);
    localStorage.setItem(WISHES, JSON.stringify([...this.#wishes]));
  }

  wishesOf(id: string): Wishes {
    return this.#wishes.get(id) ?? NO_WISHES;
  }

  /** Another wish for the model whose plan is open: it is planned again, a moment later, and so it will be loaded. */
  wish(wish: Partial<Wishes>): void {
    if (!this.openId) return;
    this.#keepWishes(this.openId, { ...this.wishesOf(this.openId), ...wish });
    this.#replanSoon();
  }

  /** Opens a model's plan, as things are now. */
  openPlan(id: string): void {
    this.openId = id;
    void this.#replan(id);
  }

  async #replan(id: string): Promise<void> {
    const wishes = this.wishesOf(id);
    const plan = await this.backend.plan_model({ model_id: id, wishes }).catch(() => null);
    if (wishes === this.wishesOf(id)) this.plans = new Map([...this.plans, [id, plan]]);
  }

  /** Asks for the plans that are missing, one after the other. */
  async plan(): Promise<void> {
    if (this.#isPlanning) return;
    this.#isPlanning = true;
    for (let model = this.#unplanned(); model; model = this.#unplanned()) {
      const plan = await this.backend.plan_model({ model_id: model.id, wishes: this.wishesOf(model.id) }).catch(() => null);
      this.plans = new Map([...this.plans, [model.id, plan]]);
    }
    this.#isPlanning = false;
  }

  #unplanned(): LibraryModel | undefined {
    return this.usable.find(({ id }) => !this.plans.has(id));
  }
}

/** What was kept from an earlier start; nothing if it cannot be read. */
function keptWishes(key: string): ReadonlyMap<string, Wishes> {
  try {
    const kept = JSON.parse(localStorage.getItem(key) ?? '[]') as [string, Partial<Wishes>][];
    return new Map(kept.map(([id, wishes]) => [id, { ...NO_WISHES, ...wishes }]));
  } catch {
    return new Map();
  }
}

function keyOf(repo: string, path: string): string {
  return `${repo}/${path}`;
}

/** By hash where both are known, as the app itself compares: what lies in its own folder counts once its bytes were read. */
function isOf(model: LibraryModel, { files: [file] }: ModelVersion): boolean {
  const { source, files, places, path } = model;
  const isHere = places.some((place) => place.program === 'tandem' && place.path === path);
  const known = isHere ? files[0]?.sha256 : (files[0]?.sha256 ?? files[0]?.expected_sha256 ?? source?.sha256);
  if (file?.sha256 && (known || isHere)) return known === file.sha256;
  return source !== null && source.repo === file?.repo && source.path === file.path;
}

/** Whether it lies in the app's own folder: only then does removing the model touch its files. */
export function isOwn({ places }: LibraryModel): boolean {
  return places.some(({ program }) => program === 'tandem');
}

/** Programs but this one whose files a model is made of. */
export function otherPrograms({ places }: LibraryModel): Program[] {
  return [...new Set(places.filter(({ program }) => program !== 'tandem').map(({ program }) => program))];
}
