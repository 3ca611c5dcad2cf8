/** The machine now, and the rate of the last half minute. */

import type { Gauges, Phase } from '../wire';

const HISTORY = 24;

export class GaugeState {
  latest: Gauges | null = $state.raw(null);
  /** One rate per step, oldest first; 0 while nothing runs. */
  history: number[] = $state.raw([]);
  /** A fresher rate than the gauges', from the answer that is being written. */
  #answerRate: number | null = $state(null);

  readonly phase: Phase = $derived(this.latest?.phase ?? 'empty');
  readonly isBusy: boolean = $derived(this.phase === 'generating' || this.phase === 'prompt');
  readonly rate: number | null = $derived(this.#answerRate ?? this.latest?.tokens_per_s ?? null);

  apply(gauges: Gauges): void {
    this.latest = gauges;
    if (gauges.tokens_per_s !== null) this.#answerRate = null;
    const isRunning = gauges.phase === 'generating' || gauges.phase === 'prompt';
    this.history = [...this.history, isRunning ? (gauges.tokens_per_s ?? 0) : 0].slice(-HISTORY);
  }

  /** The answer's own figures arrive more often than once a second. */
  answerRate(perSecond: number): void {
    if (perSecond > 0) this.#answerRate = perSecond;
  }
}
