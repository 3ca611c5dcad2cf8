import { expect, test } from 'vitest';
import { CompositionGuard } from './ime';

const enter = { isComposing: false, keyCode: 13 };

test('a plain Enter is the app’s', () => {
  expect(new CompositionGuard().owns(enter)).toBe(false);
});

test('keys that Chromium and Gecko mark belong to the input method', () => {
  const guard = new CompositionGuard();
  expect(guard.owns({ isComposing: true, keyCode: 13 })).toBe(true);
  expect(guard.owns({ isComposing: false, keyCode: 229 })).toBe(true);
});

test('the Enter that ends a composition is not the app’s, although WebKit ends it first', () => {
  const guard = new CompositionGuard();
  guard.start();
  expect(guard.isComposing).toBe(true);
  guard.end();
  expect(guard.isComposing).toBe(false);
  expect(guard.owns(enter)).toBe(true);
  guard.keyup();
  expect(guard.owns(enter)).toBe(false);
});
