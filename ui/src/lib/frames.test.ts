import { expect, test, vi } from 'vitest';
import { FrameBatch } from './frames';

function manual(): { schedule: (run: () => void) => void; frame: () => void; asked: () => number } {
  let waiting: (() => void)[] = [];
  let count = 0;
  return {
    schedule: (run) => {
      count += 1;
      waiting.push(run);
    },
    frame: () => {
      const now = waiting;
      waiting = [];
      now.forEach((run) => run());
    },
    asked: () => count,
  };
}

test('what arrives between two frames is applied once, in order', () => {
  const apply = vi.fn();
  const { schedule, frame, asked } = manual();
  const batch = new FrameBatch<string>(apply, schedule);
  for (let index = 0; index < 200; index += 1) batch.push(String(index));
  expect(apply).not.toHaveBeenCalled();
  expect(asked()).toBe(1);
  frame();
  expect(apply).toHaveBeenCalledTimes(1);
  expect(apply.mock.calls[0]![0]).toEqual(Array.from({ length: 200 }, (_, index) => String(index)));
});

test('a flush leaves nothing behind, and the frame that was asked for does nothing', () => {
  const apply = vi.fn();
  const { schedule, frame } = manual();
  const batch = new FrameBatch<string>(apply, schedule);
  batch.push('a');
  batch.flush();
  frame();
  expect(apply.mock.calls).toEqual([[['a']]]);
});

test('a hidden window, which gets no frames, is served by the timer', () => {
  vi.useFakeTimers({ toFake: ['setTimeout', 'clearTimeout'] });
  vi.spyOn(globalThis, 'requestAnimationFrame').mockImplementation(() => 1);
  const apply = vi.fn();
  const batch = new FrameBatch<string>(apply);
  batch.push('a');
  vi.advanceTimersByTime(1000);
  expect(apply).toHaveBeenCalledTimes(1);
  vi.useRealTimers();
  vi.restoreAllMocks();
});
