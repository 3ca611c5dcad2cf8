/** Opens the window on the fake backend. The address says what it starts with: `?library=starter&gpu=0&downloads=1&fail=search_models:no_network`. */

import type { Backend } from './lib/backend/backend';
import { FakeBackend, type FakeOptions } from './lib/backend/fake';
import { ANSWER, cardLost, gated, noGguf, noKeyStore, offline, oldDriver, SECOND_ANSWER } from './lib/backend/fake-data';
import type { Language, Theme } from './lib/wire';

const GAUGE_MS = 1000;

export function open(): Backend {
  const wanted = new URLSearchParams(location.search);
  const pace = Number(wanted.get('pace') ?? 1);
  const repeats = Number(wanted.get('long') ?? 0);
  const fake = new FakeBackend({
    library: (wanted.get('library') ?? 'full') as FakeOptions['library'],
    withGpu: wanted.get('gpu') !== '0',
    unusable: wanted.get('gpu') === 'idle' ? oldDriver : null,
    isTight: wanted.get('tight') === '1',
    hasTemplate: wanted.get('template') !== '0',
    withDownloads: wanted.get('downloads') === '1',
    settings: { language: (wanted.get('lang') ?? 'system') as Language, theme: (wanted.get('theme') ?? 'system') as Theme },
    ...(repeats > 0 ? { answer: Array.from({ length: repeats }, () => `${ANSWER}\n\n${SECOND_ANSWER}`).join('\n\n') } : {}),
    isHubDown: wanted.get('hub') === 'down',
    hasKeyStore: wanted.get('keystore') !== '0',
    failures: failures(wanted.getAll('fail')),
    pause: (milliseconds) => new Promise((resolve) => setTimeout(resolve, milliseconds * pace)),
  });
  setInterval(() => fake.gauge(), GAUGE_MS);
  Object.assign(window, { fake });
  return fake;
}

function failures(pairs: string[]): FakeOptions['failures'] {
  const kinds = Object.fromEntries([cardLost, gated, noGguf, noKeyStore, offline].map((failure) => [failure.code, failure]));
  return Object.fromEntries(pairs.map((pair) => pair.split(':')).map(([command, code]) => [command, kinds[code ?? ''] ?? { code: 'engine_failed', message: { en: 'The engine stopped in the middle of a step.', zh: '引擎在中途停止。' }, hint: { en: 'What was written is kept; ask again.', zh: '已写的内容保留，请重新提问。' } }]));
}
