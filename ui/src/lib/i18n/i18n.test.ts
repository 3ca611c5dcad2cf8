import { expect, test } from 'vitest';
import type { Failure } from '../wire';
import { en } from './en';
import { Locale } from './locale.svelte';
import { zh } from './zh';

type Leaf = string | ((...args: never[]) => string);

/** Every sentence under its dotted name. */
function leaves(tree: object, prefix = ''): Map<string, Leaf> {
  return new Map(Object.entries(tree).flatMap(([key, value]: [string, unknown]) => (typeof value === 'object' && value !== null ? [...leaves(value, `${prefix}${key}.`)] : [[`${prefix}${key}`, value as Leaf] as const])));
}

/** Says a sentence, whatever it takes. */
function said(leaf: Leaf): string {
  return typeof leaf === 'string' ? leaf : (leaf as (...args: unknown[]) => string)(...Array.from({ length: leaf.length }, (_, index) => index + 2));
}

test('both languages have the same sentences', () => {
  expect([...leaves(zh).keys()].sort()).toEqual([...leaves(en).keys()].sort());
});

test.each([
  ['English', en],
  ['Chinese', zh],
])('no sentence of %s is empty, and each uses what it is given', (_, dictionary) => {
  for (const [name, leaf] of leaves(dictionary)) {
    expect(said(leaf).trim(), name).not.toBe('');
    expect(said(leaf), name).not.toContain('undefined');
  }
});

test('a sentence takes the same values in both languages', () => {
  const chinese = leaves(zh);
  for (const [name, leaf] of leaves(en)) {
    const other = chinese.get(name);
    expect(typeof other, name).toBe(typeof leaf);
    if (typeof leaf === 'function' && typeof other === 'function') expect(other.length, name).toBe(leaf.length);
  }
});

test('Chinese is Chinese: full-width marks, and what stays Latin is known', () => {
  const latin = /^(app\.name|plan\.(stop|rate|tokensPerSecond|gpu|part|llamaCpp)|chat\.branch|chat\.(contextUsed|loadingShare)|app\.of|library\.(program|addPlaceholder)|settings\.(topK|topP|minP)|foreign\.format|verdict\.|strip\.(app|ofTotal))/;
  for (const [name, leaf] of leaves(zh)) {
    const text = said(leaf);
    if (!latin.test(name)) expect(/\p{Script=Han}/u.test(text), name).toBe(true);
    expect(/\p{Script=Han}[,;:!?]/u.test(text), `${name}: half-width mark`).toBe(false);
  }
});

test('tone: no exclamation marks, no please, no oops', () => {
  for (const [name, leaf] of [...leaves(en), ...leaves(zh)]) expect(/!|！|please|oops/i.test(said(leaf)), name).toBe(false);
});

test('what the core says in lower case reads as sentences', () => {
  const locale = new Locale();
  const failure: Failure = {
    code: 'no_gguf_in_repo',
    message: { en: '`a/b` has no GGUF file', zh: '`a/b` 中没有 GGUF 文件' },
    hint: { en: 'look for another repo', zh: '查找其他仓库' },
  };
  locale.set('en');
  expect(locale.told(failure)).toBe('`a/b` has no GGUF file. Look for another repo.');
  locale.set('zh');
  expect(locale.told(failure)).toBe('`a/b` 中没有 GGUF 文件。查找其他仓库。');
  expect(locale.sentence({ en: '', zh: '' })).toBe('');
});
