import { describe, expect, test } from 'vitest';
import { apportion, byteRate, compact, duration, grouped, host, percent, predictedRate, repoTitle, size, sizeUnit, splitRepo, tokenRate, tokens } from './format';

const GIB = 1024 ** 3;
const MIB = 1024 ** 2;

test.each([
  [19.8 * GIB, '19.8\u00a0GB'],
  [0.5 * GIB, '0.5\u00a0GB'],
  [98 * MIB, '98\u00a0MB'],
  [0, '0\u00a0MB'],
  [1, '1\u00a0KB'],
  [300 * 1024, '300\u00a0KB'],
  [MIB, '1\u00a0MB'],
  [214.4 * GIB, '214\u00a0GB'],
])('size of %d bytes is %s', (bytes, shown) => {
  expect(size(bytes)).toBe(shown);
});

test.each([
  [0, '0.0\u00a0MB/s'],
  [40 * 1024, '40\u00a0KB/s'],
  [11.2 * MIB, '11.2\u00a0MB/s'],
])('a rate of %d bytes per second is %s', (rate, shown) => {
  expect(byteRate(rate)).toBe(shown);
});

test('numbers and units never part', () => {
  for (const shown of [size(5e9), byteRate(12e6), percent(0.4)]) expect(shown).not.toContain(' ');
});

describe('apportion', () => {
  test('rounded parts add up to the rounded total', () => {
    const parts = [1.34, 2.34, 0.23, 0.73, 0.54, 0.82].map((gib) => gib * GIB);
    const total = parts.reduce((sum, part) => sum + part, 0);
    const shown = apportion(parts, 'GB').map((part) => Number((part / GIB).toFixed(1)));
    expect(Number(shown.reduce((sum, part) => sum + part, 0).toFixed(1))).toBe(Number((total / GIB).toFixed(1)));
  });

  test('moves no part by more than one step', () => {
    const parts = [33.4, 33.4, 33.2].map((mib) => mib * MIB);
    apportion(parts, 'MB').forEach((part, index) => expect(Math.abs(part - parts[index]!)).toBeLessThan(MIB));
  });
});

test.each([
  [17.4, '17'],
  [2.4, '2'],
  [1.86, '1.8'],
  [7.99, '7'],
  [19.7, '19'],
])('a prediction of %d is shown as %s', (rate, shown) => {
  expect(predictedRate(rate)).toBe(shown);
});

test('a measurement has one decimal, until that says nothing', () => {
  expect([tokenRate(18.23), tokenRate(140.6)]).toEqual(['18.2', '141']);
});

test.each([
  [8192, '8k'],
  [262144, '256k'],
  [1048576, '1M'],
  [512, '512'],
  [3175, '3.1k'],
])('%d tokens of context are %s', (count, shown) => {
  expect(tokens(count)).toBe(shown);
});

test('counts are short', () => {
  expect([compact(1_240_000), compact(35e9), compact(135e6), compact(912), compact(8.3e9)]).toEqual(['1.2M', '35B', '135M', '912', '8.3B']);
  expect(grouped(1234567)).toBe('1,234,567');
});

test('durations take the unit they read best in', () => {
  expect([duration(0.2), duration(45), duration(600), duration(9000)]).toEqual([
    { count: 1, unit: 's' },
    { count: 45, unit: 's' },
    { count: 10, unit: 'min' },
    { count: 3, unit: 'h' },
  ]);
});

test('repos and hosts', () => {
  expect(splitRepo('unsloth/Qwen3-GGUF')).toEqual({ publisher: 'unsloth', name: 'Qwen3-GGUF' });
  expect(repoTitle('unsloth/Qwen3-30B-A3B-GGUF')).toBe('Qwen3-30B-A3B');
  expect([host('https://hf-mirror.com/x'), host('not a url')]).toEqual(['hf-mirror.com', 'not a url']);
  expect(sizeUnit(0.5 * GIB)).toBe('GB');
});
