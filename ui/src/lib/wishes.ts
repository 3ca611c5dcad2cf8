/** Wishes of somebody who has none. */

import type { Wishes } from './wire';

export const NO_WISHES: Wishes = { context_length: null, n_gpu_layers: null, n_threads: null, kv_type: null, aim: 'balanced' };
