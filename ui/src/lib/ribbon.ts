/** Geometry of the ribbon: which segments stand on which side of the seam, and how wide. Pure; `Ribbon.svelte` draws it. */

import type { BarPart, CardMemory, Gauges, MemoryBar, Part, Plan } from './wire';

/** One stretch of a ribbon, as a share of its side's capacity. */
export type Segment = {
  /** Class of `components.css`: `g1`…, `m1`…, `ot`, `ov`. */
  tone: string;
  share: number;
  /** Planned but not there yet. */
  isPending: boolean;
};

/** One side of the seam, from the seam outwards; what is left over is free. */
export type Side = { segments: Segment[]; outer: Segment[] };

export type RibbonShape = { gpu: Side; ram: Side };

/** A row of the ledger under a ribbon. */
export type LedgerRow = { tone: string; kind: Part | 'app' | 'others' | 'free' | 'shortfall'; bytes: number };

const GPU_TONE: Record<Part, string> = { attention: 'g1', head: 'g1', embeddings: 'g1', experts: 'g2', kv: 'g3', buffers: 'g4', file: 'file' };
const RAM_TONE: Record<Part, string> = { attention: 'm1', experts: 'm1', head: 'm2', embeddings: 'm2', kv: 'm2', buffers: 'm3', file: 'file' };

const EMPTY: Side = { segments: [], outer: [] };

/** The ribbon of a plan; `progress` (0 to 1) draws it half loaded, filling both sides from the seam. */
export function planShape(plan: Pick<Plan, 'gpu_bar' | 'ram_bar'>, progress = 1): RibbonShape {
  return {
    gpu: plan.gpu_bar ? side(plan.gpu_bar, GPU_TONE, progress) : EMPTY,
    ram: side(plan.ram_bar, RAM_TONE, progress),
  };
}

/** The ribbon of the machine as it is now; a loaded plan tells what the app's own memory holds. */
export function liveShape(gauges: Gauges, plan: Plan | null, cards: CardMemory[] = []): RibbonShape {
  const total = gauges.ram_total_bytes;
  const app = Math.min(gauges.ram_app_bytes, total);
  const others = Math.max(0, total - gauges.ram_available_bytes - app);
  const vram = vramOf(gauges);
  const held = Math.min(heldBytes(cards), vram.total - vram.free);
  return {
    gpu: vram.total > 0 ? { segments: held > 0 ? [part('g1', held / vram.total)] : [], outer: [part('ot', (vram.total - vram.free - held) / vram.total)] } : EMPTY,
    ram: { segments: appSegments(app, total, plan), outer: [part('ot', others / total)] },
  };
}

/** What the loaded model holds on cards. */
export function heldBytes(cards: CardMemory[]): number {
  return cards.flatMap((card) => card.parts).reduce((sum, each) => sum + each.allocated_bytes, 0);
}

/** Video memory over all cards. */
export function vramOf(gauges: Pick<Gauges, 'gpus'>): { total: number; free: number } {
  return gauges.gpus.reduce((sum, gpu) => ({ total: sum.total + gpu.vram_total_bytes, free: sum.free + gpu.vram_free_bytes }), { total: 0, free: 0 });
}

/** Bytes a plan puts into one memory. */
export function barBytes(bar: MemoryBar | null): number {
  return bar ? bar.parts.reduce((sum, each) => sum + each.bytes, 0) : 0;
}

/** Share of the model on the card and in memory, for the verdict's glyph. */
export function planShares(plan: Pick<Plan, 'gpu_bar' | 'ram_bar'>): { gpu: number; ram: number } {
  const gpu = barBytes(plan.gpu_bar);
  const ram = barBytes(plan.ram_bar);
  const total = gpu + ram;
  return total > 0 ? { gpu: gpu / total, ram: ram / total } : { gpu: 0, ram: 0 };
}

/** What is missing over both memories. */
export function shortfall(plan: Pick<Plan, 'gpu_bar' | 'ram_bar'>): number {
  return (plan.gpu_bar?.shortfall_bytes ?? 0) + plan.ram_bar.shortfall_bytes;
}

/** Ledger of one side, in ribbon order; rows of the same kind are added up. */
export function ledger(bar: MemoryBar, place: 'gpu' | 'ram'): LedgerRow[] {
  const tones = place === 'gpu' ? GPU_TONE : RAM_TONE;
  const rows: LedgerRow[] = [];
  for (const each of bar.parts) {
    const row = rows.find((other) => other.kind === each.part);
    if (row) row.bytes += each.bytes;
    else rows.push({ tone: tones[each.part], kind: each.part, bytes: each.bytes });
  }
  rows.push({ tone: 'ot', kind: 'others', bytes: bar.others_bytes });
  if (bar.shortfall_bytes > 0) rows.push({ tone: 'ov', kind: 'shortfall', bytes: bar.shortfall_bytes });
  else rows.push({ tone: 'fr', kind: 'free', bytes: Math.max(0, bar.capacity_bytes - bar.others_bytes - barBytes(bar)) });
  return rows;
}

function side(bar: MemoryBar, tones: Record<Part, string>, progress: number): Side {
  const capacity = Math.max(1, bar.capacity_bytes);
  const missing = Math.min(bar.shortfall_bytes, capacity);
  const others = Math.min(bar.others_bytes, capacity);
  const room = Math.max(0, capacity - Math.max(others, missing));
  const needed = barBytes(bar);
  const scale = needed > room ? room / needed : 1;
  const segments = fill(bar.parts, tones, capacity, scale, progress * needed * scale);
  const outer = missing > 0 ? [part('ov', missing / capacity), part('ot', Math.max(0, others - missing) / capacity)] : [part('ot', others / capacity)];
  return { segments, outer: outer.filter((segment) => segment.share > 0) };
}

function fill(parts: BarPart[], tones: Record<Part, string>, capacity: number, scale: number, loaded: number): Segment[] {
  const segments: Segment[] = [];
  let before = 0;
  for (const { part: kind, bytes } of parts) {
    const width = bytes * scale;
    const done = Math.min(width, Math.max(0, loaded - before));
    if (done > 0) segments.push(part(tones[kind], done / capacity));
    if (done < width) segments.push({ tone: tones[kind], share: (width - done) / capacity, isPending: true });
    before += width;
  }
  return segments;
}

function appSegments(app: number, total: number, plan: Plan | null): Segment[] {
  if (!plan) return [part('m1', app / total)];
  const scale = Math.min(1, app / Math.max(1, barBytes(plan.ram_bar)));
  const segments = plan.ram_bar.parts.map((each) => part(RAM_TONE[each.part], (each.bytes * scale) / total));
  const rest = app - barBytes(plan.ram_bar) * scale;
  return rest > total / 500 ? [...segments, part('m3', rest / total)] : segments;
}

function part(tone: string, share: number): Segment {
  return { tone, share, isPending: false };
}
