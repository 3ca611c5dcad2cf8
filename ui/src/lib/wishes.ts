/** Wishes of somebody who has none. */

import type { Wishes } from './wire';

export const NO_WISHES: Wishes = { context_length: null, n_gpu_layers: null, n_threads: null, n_batch: null, is_tuned: false, kv_type: null, aim: 'balanced' };
