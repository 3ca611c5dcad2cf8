/** How fast this machine is: the benchmark, and what came of predictions. */

import { asFailure, type Backend } from '../backend/backend';
import type { CalibrationState, Correction, Failure, MachineRates, Outcome } from '../wire';

export class Calibration {
  state: CalibrationState = $state.raw({ type: 'absent' });
  outcomes: Outcome[] = $state.raw([]);
  corrections: Correction[] = $state.raw([]);
  #failure: Failure | null = $state.raw(null);

  readonly rates: MachineRates | null = $derived(this.state.type === 'done' ? this.state.rates : null);
  readonly progress: number | null = $derived(this.state.type === 'running' ? this.state.progress : null);
  readonly failure: Failure | null = $derived(this.state.type === 'failed' ? this.state.failure : this.#failure);

  constructor(private readonly backend: Backend) {}

  adopt(state: CalibrationState): void {
    this.state = state;
  }

  /** What is known now, for a view that shows it. */
  async refresh(): Promise<void> {
    await this.#ask(async () => {
      const { calibration, outcomes, corrections } = await this.backend.predictions();
      this.state = calibration;
      this.outcomes = outcomes;
      this.corrections = corrections;
    });
  }

  start(): Promise<void> {
    return this.#ask(() => this.backend.start_calibration());
  }

  skip(): Promise<void> {
    return this.#ask(() => this.backend.skip_calibration());
  }

  async #ask(command: () => Promise<void>): Promise<void> {
    this.#failure = null;
    try {
      await command();
    } catch (thrown) {
      this.#failure = asFailure(thrown);
    }
  }
}
