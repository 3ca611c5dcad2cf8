import { expect, test } from 'vitest';
import { pathTo, siblings } from './tree';
import type { Message } from './wire';

const message = (id: number, parent: number | null, role: Message['role']): Message => ({ id, parent, role, text: '', reasoning: '', created_at_ms: 0, model: null, end: null, stats: null });
const tree = [message(1, null, 'system'), message(2, 1, 'user'), message(3, 2, 'assistant'), message(4, 1, 'user'), message(5, 4, 'assistant'), message(6, 4, 'assistant')];

test('the path leads from the root to the leaf', () => {
  expect(pathTo(tree, 6).map(({ id }) => id)).toEqual([1, 4, 6]);
  expect(pathTo(tree, null)).toEqual([]);
});

test('a loop in damaged data ends', () => {
  expect(pathTo([message(1, 2, 'user'), message(2, 1, 'user')], 1).length).toBeLessThanOrEqual(3);
});

test('siblings share a parent, oldest first', () => {
  expect(siblings(tree, tree[3]!)).toEqual({ ids: [2, 4], index: 1 });
  expect(siblings(tree, tree[5]!)).toEqual({ ids: [5, 6], index: 1 });
});
