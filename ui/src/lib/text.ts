/** Small sentences that several views build from a number. */

import { duration } from './format';
import type { Dictionary } from './i18n/en';
import type { HashWord } from './wire';

const DAY_MS = 86_400_000;

/** `40 s`, `17 min`, `2 h`. */
export function timeText(t: Dictionary, seconds: number): string {
  const { count, unit } = duration(seconds);
  return t.time[unit](count);
}

/** How long ago a day was, roughly; empty for what is no date. */
export function agoText(t: Dictionary, iso: string | null, now: number): string {
  const at = iso === null ? NaN : Date.parse(iso);
  if (Number.isNaN(at)) return '';
  const days = Math.floor((now - at) / DAY_MS);
  if (days < 1) return t.time.today;
  if (days < 30) return t.time.daysAgo(days);
  return days < 365 ? t.time.monthsAgo(Math.floor(days / 30)) : t.time.yearsAgo(Math.floor(days / 365));
}

/** Whose word a SHA256 is; empty where nobody's is on record. */
export function hashWordText(t: Dictionary, word: HashWord): string {
  if (word.type === 'hub') return t.network.hashHub(word.host);
  if (word.type === 'unknown') return '';
  const [first = '', ...others] = word.hosts;
  return others.length === 0 ? t.network.hashMirror(first) : t.network.hashMirrors([word.hosts.slice(0, -1).join(', '), word.hosts.at(-1)].join(t.network.and));
}
