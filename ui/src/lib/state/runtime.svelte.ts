/** What is loaded. Loading is one request whose progress comes in events, and the app tells every change to all windows. */

import { asFailure, type Backend } from '../backend/backend';
import type { CardMemory, Failure, LibraryModel, LoadEvent, LoadRequest, Plan, RuntimeState, Text, Wishes } from '../wire';
import { NO_WISHES } from '../wishes';

const LAST_MODEL = 'tandem.model';

export class Runtime {
  state: RuntimeState = $state.raw({ type: 'empty' });
  /** Plan of the model that is being loaded, for the picture of it. */
  comingPlan: Plan | null = $state.raw(null);
  failure: { modelId: string; failure: Failure } | null = $state.raw(null);
  #isRead = $state(false);
  #current: { modelId: string; done: Promise<boolean> } | null = null;
  /** The graphics card failed: until the app starts anew, everything is loaded on the processor. */
  #isCardOut = false;

  constructor(
    private readonly backend: Backend,
    /** How a person wants a model loaded. */
    private readonly wishesOf: (modelId: string) => Wishes = () => NO_WISHES,
  ) {}

  readonly modelId: string | null = $derived(this.state.type === 'empty' ? null : this.state.model_id);
  readonly readyId: string | null = $derived(this.state.type === 'ready' ? this.state.model_id : null);
  readonly plan: Plan | null = $derived(this.state.type === 'ready' ? this.state.plan : null);
  /** What the load gave up because memory was short, until it has been read. */
  readonly givenUp: Text | null = $derived(this.state.type === 'ready' && !this.#isRead ? this.state.given_up : null);
  /** What it holds on graphics cards. */
  readonly cards: CardMemory[] = $derived(this.state.type === 'ready' ? this.state.cards : []);
  /** What loading again would do better. */
  readonly offer: Text | null = $derived(this.state.type === 'ready' ? this.state.offer : null);
  readonly progress: number | null = $derived(this.state.type === 'loading' ? this.state.progress : null);

  adopt(state: RuntimeState): void {
    this.state = state;
    if (state.type === 'failed' && state.failure.code !== 'cancelled') this.failure = { modelId: state.model_id, failure: state.failure };
    if (state.type === 'ready') this.failure = null;
    if (state.type !== 'loading') this.comingPlan = null;
  }

  /** Loads a model and says whether it is ready. Another load that is under way is stopped first. */
  load(modelId: string): Promise<boolean> {
    if (this.readyId === modelId) return Promise.resolve(true);
    if (this.#current?.modelId === modelId) return this.#current.done;
    const before = this.#current;
    const done = this.#loadAfter(before?.done ?? null, modelId).finally(() => {
      if (this.#current?.done === done) this.#current = null;
    });
    this.#current = { modelId, done };
    return done;
  }

  /** How a model is loaded: as somebody wished, or as the plan decides. */
  requestFor(modelId: string): LoadRequest {
    const wishes = this.wishesOf(modelId);
    return { model_id: modelId, wishes: this.#isCardOut ? { ...wishes, n_gpu_layers: 0 } : wishes };
  }

  /** Loads the model once more, with the plan that fits now. */
  async reload(): Promise<boolean> {
    const modelId = this.readyId;
    if (modelId === null) return false;
    this.adopt({ type: 'empty' });
    return this.load(modelId);
  }

  /** Loads the model once more, on the processor alone: the graphics card failed. */
  goOnWithProcessor(): Promise<boolean> {
    this.#isCardOut = true;
    return this.reload();
  }

  /** The sentence about what was given up has been read. */
  read(): void {
    this.#isRead = true;
  }

  /** The load that is under way. */
  get pending(): Promise<boolean> | null {
    return this.#current?.done ?? null;
  }

  async #loadAfter(before: Promise<boolean> | null, modelId: string): Promise<boolean> {
    if (before) {
      await this.unload();
      await before;
    }
    this.failure = null;
    this.#isRead = false;
    this.adopt({ type: 'loading', model_id: modelId, progress: 0 });
    const request = this.requestFor(modelId);
    void this.#look(request);
    try {
      await this.backend.load_model(request, (event) => this.#apply(modelId, event));
    } catch (thrown) {
      this.#apply(modelId, { type: 'failed', failure: asFailure(thrown) });
    }
    if (this.readyId === modelId) localStorage.setItem(LAST_MODEL, modelId);
    return this.readyId === modelId;
  }

  /** Unloads, or stops a load. */
  async unload(): Promise<void> {
    try {
      await this.backend.unload_model();
    } catch (thrown) {
      this.failure = { modelId: this.modelId ?? '', failure: asFailure(thrown) };
    }
  }

  /** The model to take when none is chosen: the one used last, or the smallest that runs. */
  preferred(usable: LibraryModel[]): LibraryModel | null {
    const last = usable.find(({ id }) => id === localStorage.getItem(LAST_MODEL));
    return last ?? [...usable].sort((a, b) => a.size_bytes - b.size_bytes)[0] ?? null;
  }

  async #look(request: Parameters<Backend['plan_model']>[0]): Promise<void> {
    const plan = await this.backend.plan_model(request).catch(() => null);
    if (this.state.type === 'loading' && this.state.model_id === request.model_id) this.comingPlan = plan;
  }

  #apply(modelId: string, event: LoadEvent): void {
    if (event.type === 'progress') this.state = { type: 'loading', model_id: modelId, progress: event.progress };
    else if (event.type === 'ready') this.adopt({ type: 'ready', model_id: modelId, plan: event.plan, load_ms: event.load_ms, given_up: event.given_up, cards: event.cards, offer: null });
    else if (event.failure.code === 'cancelled') this.adopt({ type: 'empty' });
    else this.adopt({ type: 'failed', model_id: modelId, failure: event.failure });
  }
}
