import { expect, test } from 'vitest';
import { fakeHardware } from './backend/fake-data';
import { fakePlan } from './backend/fake-plans';
import { barBytes, ledger, liveShape, planShape, planShares, shortfall, vramOf, type Side } from './ribbon';
import type { Gauges, Plan } from './wire';

const GIB = 1024 ** 3;
const moe = { name: 'm', architecture: 'qwen3moe', n_params: 35e9, n_active: 3e9, n_layers: 40, context_length: 262144 };
const plan = (gib: number, withGpu = true): Plan => fakePlan(moe, 'Q4_K_M', gib * GIB, 'm.gguf', fakeHardware(withGpu));
const width = (side: Side): number => [...side.segments, ...side.outer].reduce((sum, segment) => sum + segment.share, 0);

test('the model grows from the seam, attention first on the card and experts first in memory', () => {
  const shape = planShape(plan(19.8));
  expect(shape.gpu.segments.map(({ tone }) => tone)).toEqual(['g1', 'g2', 'g3', 'g4']);
  expect(shape.ram.segments[0]?.tone).toBe('m1');
  expect(shape.ram.outer.map(({ tone }) => tone)).toEqual(['ot']);
});

test('no side is fuller than its memory, even when the model is too large', () => {
  for (const gib of [2, 12, 20, 34.5, 120]) {
    const { gpu, ram } = planShape(plan(gib));
    expect(width(gpu)).toBeLessThanOrEqual(1.0001);
    expect(width(ram)).toBeLessThanOrEqual(1.0001);
  }
});

test('what is short is drawn over what others hold', () => {
  const large = plan(34.5);
  expect(shortfall(large)).toBeGreaterThan(0);
  expect(planShape(large).ram.outer[0]?.tone).toBe('ov');
  expect(ledger(large.ram_bar, 'ram').at(-1)?.kind).toBe('shortfall');
});

test('half loaded, both sides are filled from the seam and the rest is pending', () => {
  const shape = planShape(plan(19.8), 0.5);
  for (const side of [shape.gpu, shape.ram]) {
    const first = side.segments.findIndex(({ isPending }) => isPending);
    expect(first).toBeGreaterThan(0);
    expect(side.segments.slice(first).every(({ isPending }) => isPending)).toBe(true);
  }
});

test('without a card the left side is empty', () => {
  expect(planShape(plan(5, false)).gpu).toEqual({ segments: [], outer: [] });
  expect(planShares(plan(5, false))).toEqual({ gpu: 0, ram: 1 });
});

test('the ledger adds up to the capacity', () => {
  const { ram_bar } = plan(19.8);
  expect(ledger(ram_bar, 'ram').reduce((sum, row) => sum + row.bytes, 0)).toBeCloseTo(ram_bar.capacity_bytes, -3);
  expect(barBytes(null)).toBe(0);
});

test('the live ribbon shows the app, others and free', () => {
  const hardware = fakeHardware(true);
  const gauges: Gauges = { at_ms: 0, ram_app_bytes: 2 * GIB, ram_available_bytes: 20 * GIB, ram_total_bytes: 32 * GIB, gpus: hardware.gpus, gpu_probe: { type: 'found' }, phase: 'idle', tokens_per_s: null };
  const shape = liveShape(gauges, null);
  expect(shape.ram.segments[0]?.share).toBeCloseTo(2 / 32);
  expect(shape.ram.outer[0]?.share).toBeCloseTo(10 / 32);
  expect(vramOf(gauges)).toEqual({ total: 6 * GIB, free: 5.5 * GIB });
  const loaded = liveShape(gauges, plan(19.8));
  expect(loaded.ram.segments.reduce((sum, segment) => sum + segment.share, 0)).toBeCloseTo(2 / 32, 2);
  const parts = [{ what: { en: '', zh: '' }, planned_bytes: 0, allocated_bytes: 0.4 * GIB }];
  const onCard = liveShape(gauges, null, [{ index: 0, name: '', parts, free_bytes: 0 }]);
  expect(onCard.gpu.segments[0]?.share).toBeCloseTo(0.4 / 6);
  expect(onCard.gpu.outer[0]?.share).toBeCloseTo(0.1 / 6);
});
