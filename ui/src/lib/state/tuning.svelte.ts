/** Auto-tune of the loaded model: plans tried on the real engine, and the fastest of them. */

import { asFailure, type Backend } from '../backend/backend';
import type { Failure, LoadRequest, Trial, TuneEvent, Tuning } from '../wire';

export class TuningState {
  /** What holds for the model that was asked about last. */
  found: Tuning | null = $state.raw(null);
  /** Plans tried so far, while it runs. */
  trials: Trial[] = $state.raw([]);
  progress: number | null = $state(null);
  failure: Failure | null = $state.raw(null);

  constructor(private readonly backend: Backend) {}

  async look(request: LoadRequest): Promise<void> {
    this.found = await this.backend.tuning(request).catch(() => null);
  }

  async start(request: LoadRequest): Promise<void> {
    if (this.progress !== null) return;
    this.failure = null;
    this.trials = [];
    this.progress = 0;
    try {
      await this.backend.tune_model(request, (event) => this.#apply(event));
    } catch (thrown) {
      this.failure = asFailure(thrown);
    }
    this.progress = null;
  }

  async stop(): Promise<void> {
    await this.backend.stop_tuning().catch((thrown: unknown) => (this.failure = asFailure(thrown)));
  }

  async forget(modelId: string): Promise<void> {
    try {
      await this.backend.forget_tuning(modelId);
      this.found = null;
    } catch (thrown) {
      this.failure = asFailure(thrown);
    }
  }

  #apply(event: TuneEvent): void {
    if (event.type === 'tried') {
      this.trials = [...this.trials, event.trial];
      this.progress = event.progress;
    } else if (event.type === 'done') this.found = event.tuning;
    else if (event.failure.code !== 'cancelled') this.failure = event.failure;
  }
}
