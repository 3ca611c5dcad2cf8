/** Small sentences that several views build from a number. */

import { duration } from './format';
import type { Dictionary } from './i18n/en';

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
