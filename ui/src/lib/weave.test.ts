import { describe, expect, it } from 'vitest';
import { columns, onGpu, ticks } from './weave';
import type { PlanLayer } from './wire';

const gpu = { type: 'gpu', index: 0 } as const;
const ram = { type: 'ram' } as const;
const layer = (layer: Partial<PlanLayer>): PlanLayer => ({ keeps: 'all', mixer: ram, cache: ram, experts: null, ...layer });

describe('weave', () => {
  it('gives every place its hue, and full attention the darker tone', () => {
    const layers = [layer({ keeps: 'state', mixer: gpu, experts: ram }), layer({ mixer: gpu, experts: gpu }), layer({}), layer({ keeps: 'window' })];
    expect(columns(layers)).toEqual([
      { mixer: 'gpu-2', experts: 'ram-1' },
      { mixer: 'gpu-1', experts: 'gpu-2' },
      { mixer: 'ram-1', experts: null },
      { mixer: 'ram-2', experts: null },
    ]);
    expect([onGpu(layers, 'mixer'), onGpu(layers, 'experts')]).toEqual([2, 1]);
  });

  it('numbers the first and the last layer and a few between', () => {
    expect(ticks(40)).toEqual([0, 10, 20, 30, 39]);
    expect(ticks(30)).toEqual([0, 10, 20, 29]);
    expect(ticks(6)).toEqual([0, 1, 2, 3, 4, 5]);
    expect(ticks(1)).toEqual([0]);
    expect(ticks(41)).toEqual([0, 10, 20, 30, 40]);
    expect(ticks(94).at(-1)).toBe(93);
  });
});
