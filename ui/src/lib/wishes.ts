/** What a person wants of a plan, and the pause in which they make up their mind. */

import type { Wishes } from './wire';

export const NO_WISHES: Wishes = { context_length: null, n_gpu_layers: null, n_expert_layers: null, n_threads: null, n_batch: null, tuned: null, kv_type: null, file_use: null, aim: 'balanced' };

/** Long enough for a finger that slides on, short enough to feel at once. */
const SETTLE_MS = 120;

/** Calls the last of several quick calls. */
export function settled(call: () => void): () => void {
  let timer: ReturnType<typeof setTimeout> | undefined;
  return () => {
    clearTimeout(timer);
    timer = setTimeout(call, SETTLE_MS);
  };
}
