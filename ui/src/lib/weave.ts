/** The weave in numbers: colours of each layer's cells, and where the axis is marked. */

import type { PlanLayer } from './wire';

/** Tokens of colour, without their dashes. */
export type Column = { mixer: string; experts: string | null };

/** Full attention is darker than a window or a state; experts have the tone that they have in the ribbon. */
export function columns(layers: PlanLayer[]): Column[] {
  return layers.map(({ keeps, mixer, experts }) => {
    const isFull = keeps === 'all';
    const mixerTone = mixer.type === 'gpu' ? (isFull ? 'gpu-1' : 'gpu-2') : isFull ? 'ram-1' : 'ram-2';
    return { mixer: mixerTone, experts: experts && (experts.type === 'gpu' ? 'gpu-2' : 'ram-1') };
  });
}

/** Layers of which this part lies on the card. */
export function onGpu(layers: PlanLayer[], part: 'mixer' | 'experts'): number {
  return layers.filter((layer) => layer[part]?.type === 'gpu').length;
}

/** Layers that are numbered: about five, the first and the last among them. */
export function ticks(count: number): number[] {
  const last = count - 1;
  const step = [1, 2, 5, 10, 20, 50, 100].find((each) => last / each <= 5) ?? 200;
  const marks = Array.from({ length: Math.floor(last / step) + 1 }, (_, index) => index * step);
  // A mark close to the last would run into it.
  return [...marks.filter((mark) => mark === 0 || last - mark >= step * 0.4), last].filter((mark, index, all) => all.indexOf(mark) === index);
}
