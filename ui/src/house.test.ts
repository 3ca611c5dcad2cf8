/** Rules of the house that no compiler holds. */

import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { expect, test } from 'vitest';
import { en } from './lib/i18n/en';

const files = readdirSync('src', { recursive: true, encoding: 'utf8' })
  .filter((name) => /\.(ts|svelte)$/.test(name) && !name.endsWith('.test.ts'))
  .map((name) => ({ name: name.replaceAll('\\', '/'), text: readFileSync(join('src', name), 'utf8') }));

test('one file knows the shell', () => {
  expect(files.filter(({ text }) => text.includes('@tauri-apps/')).map(({ name }) => name)).toEqual(['lib/backend/tauri.ts']);
});

test('components stay small', () => {
  for (const { name, text } of files.filter(({ name }) => name.endsWith('.svelte'))) expect(text.split('\n').length, name).toBeLessThanOrEqual(260);
});

test('no component speaks for itself: words come from the dictionaries', () => {
  const markup = (text: string): string => text.replace(/<(script|style)[\s\S]*?<\/\1>/g, '').replace(/<!--[\s\S]*?-->/g, '');
  /** Names and keys, the same in every language. */
  const known = /^(Tandem|GPU|Esc|Ctrl N|Ctrl ,|GB|°C)$/;
  for (const { name, text } of files.filter(({ name }) => name.endsWith('.svelte'))) {
    const words = [...markup(text).matchAll(/>([^<>{}]*[A-Za-z]{2,}[^<>{}]*)</g)].map((match) => match[1]!.trim()).filter((word) => !known.test(word));
    expect(words, name).toEqual([]);
  }
});

test('every sentence is used', () => {
  const source = files.filter(({ name }) => !name.startsWith('lib/i18n/')).map(({ text }) => text).join('\n');
  const unused = Object.entries(en).flatMap(([section, sentences]) =>
    Object.keys(sentences)
      .filter((key) => !new RegExp(`\\b${section === 'library' ? '(library|t)' : section}\\.${key}\\b`).test(source) && !(section === 'nav' && ['today', 'yesterday', 'last7Days', 'older'].includes(key)))
      .map((key) => `${section}.${key}`),
  );
  expect(unused.filter((name) => !/^(verdict|time)\./.test(name))).toEqual([]);
});

test('every name the end-to-end test uses exists', () => {
  const source = files.map(({ text }) => text).join('\n');
  const names =
    'nav-discover nav-library nav-new-chat nav-settings search-input search-result version-row download-button recommended-download download-row pause-download resume-download cancel-download library-row chat-with-model add-model composer-input send-button stop-button model-picker message-user message-assistant message-stats chat-item gauge-ram-app gauge-ram-free gauge-vram gauge-rate engine-phase error-note settings-language settings-theme settings-hub-url';
  for (const name of names.split(' ')) expect(source, name).toMatch(new RegExp(`testid="${name}"|testid: '${name}'|'${name}'`));
});
