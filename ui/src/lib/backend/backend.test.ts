import { expect, test } from 'vitest';
import { asFailure } from './backend';
import { offline } from './fake-data';

test('a failure passes through unchanged', () => {
  expect(asFailure(offline)).toBe(offline);
});

test('anything else becomes a failure in both languages', () => {
  for (const thrown of [new Error('boom'), 'boom', undefined]) {
    const failure = asFailure(thrown);
    expect(failure.code).toBe('engine_failed');
    expect(failure.message.en && failure.message.zh && failure.hint.en && failure.hint.zh).toBeTruthy();
  }
  expect(asFailure(new Error('boom')).message.en).toContain('boom');
});
