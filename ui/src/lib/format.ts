/** Numbers for people. Sizes are binary and written GB; a number and its unit never part (U+00A0). */

const NBSP = '\u00a0';
const KIB = 1024;
const MIB = 1024 ** 2;
const GIB = 1024 ** 3;

/** The unit a size reads best in: what is under half a GB is told in MB, what is under one MB in KB. */
export type SizeUnit = 'KB' | 'MB' | 'GB';

export function sizeUnit(bytes: number): SizeUnit {
  if (bytes >= GIB / 2) return 'GB';
  return bytes > 0 && bytes < MIB ? 'KB' : 'MB';
}

/** A size without its unit, for `8.4 of 19.8 GB`; from a hundred GB on a decimal says nothing. */
export function sizeNumber(bytes: number, unit: SizeUnit): string {
  if (unit === 'GB' && bytes >= 100 * GIB) return Math.round(bytes / GIB).toString();
  if (unit === 'KB') return Math.ceil(bytes / KIB).toString();
  return unit === 'GB' ? (bytes / GIB).toFixed(1) : Math.round(bytes / MIB).toString();
}

/** `19.8 GB`, `98 MB`. */
export function size(bytes: number, unit: SizeUnit = sizeUnit(bytes)): string {
  return `${sizeNumber(bytes, unit)}${NBSP}${unit}`;
}

/** Rounds parts to the unit's precision so that they add up to the rounded total (largest remainder). */
export function apportion(parts: number[], unit: SizeUnit): number[] {
  return toSteps(parts, { KB: KIB, MB: MIB, GB: GIB / 10 }[unit]);
}

/** Rounds parts to so many decimals so that they add up to the rounded total. */
export function shares(parts: number[], decimals: number): number[] {
  return toSteps(parts, 10 ** -decimals);
}

function toSteps(parts: number[], step: number): number[] {
  const exact = parts.map((part) => part / step);
  const floors = exact.map(Math.floor);
  const total = Math.round(exact.reduce((sum, part) => sum + part, 0));
  let missing = total - floors.reduce((sum, part) => sum + part, 0);
  const byRemainder = exact.map((part, index) => ({ index, rest: part - Math.floor(part) })).sort((a, b) => b.rest - a.rest);
  for (const { index } of byRemainder) {
    if (missing <= 0) break;
    floors[index]! += 1;
    missing -= 1;
  }
  return floors.map((part) => part * step);
}

/** `11.2 MB/s`. */
export function byteRate(bytesPerSecond: number): string {
  if (bytesPerSecond >= GIB) return `${(bytesPerSecond / GIB).toFixed(1)}${NBSP}GB/s`;
  const mib = bytesPerSecond / MIB;
  if (mib > 0 && mib < 0.1) return `${Math.ceil(bytesPerSecond / KIB)}${NBSP}KB/s`;
  return `${mib >= 100 ? Math.round(mib) : mib.toFixed(1)}${NBSP}MB/s`;
}

/** A measured rate: one decimal, none from a hundred on. */
export function tokenRate(perSecond: number): string {
  return perSecond >= 100 ? Math.round(perSecond).toString() : perSecond.toFixed(1);
}

/** A predicted rate, rounded down so that it promises no better verdict than it has: no decimals, except where there would be nothing left. */
export function predictedRate(perSecond: number): string {
  return perSecond >= 2 ? Math.floor(perSecond).toString() : (Math.floor(perSecond * 10) / 10).toFixed(1);
}

/** `42 %`. */
export function percent(share: number): string {
  return `${Math.round(Math.min(1, Math.max(0, share)) * 100)}${NBSP}%`;
}

/** Context lengths: `8k`, `256k`, `1M`, `512`. */
export function tokens(count: number): string {
  if (count >= 1024 * 1024 && count % (1024 * 1024) === 0) return `${count / (1024 * 1024)}M`;
  if (count >= 1024) return `${trimZero((count / 1024).toFixed(1))}k`;
  return count.toString();
}

/** Counts that need no digits: `1.2M`, `35B`. */
export function compact(count: number): string {
  for (const [limit, letter] of [
    [1e9, 'B'],
    [1e6, 'M'],
    [1e3, 'k'],
  ] as const) {
    if (count >= limit) {
      const scaled = count / limit;
      return `${scaled >= 10 ? Math.round(scaled) : trimZero(scaled.toFixed(1))}${letter}`;
    }
  }
  return count.toString();
}

/** Digits in groups of three: `8,192`. */
export function grouped(count: number): string {
  return Math.round(count).toString().replace(/\B(?=(\d{3})+(?!\d))/g, ',');
}

/** A duration as a number and the unit it is told in. */
export function duration(seconds: number): { count: number; unit: 's' | 'min' | 'h' } {
  if (seconds < 90) return { count: Math.max(1, Math.round(seconds)), unit: 's' };
  if (seconds < 90 * 60) return { count: Math.round(seconds / 60), unit: 'min' };
  return { count: Math.round(seconds / 3600), unit: 'h' };
}

/** Seconds with one decimal: `0.4 s`. */
export function seconds(milliseconds: number): string {
  return `${(milliseconds / 1000).toFixed(1)}${NBSP}s`;
}

/** The publisher and the name of `publisher/name`. */
export function splitRepo(id: string): { publisher: string; name: string } {
  const slash = id.indexOf('/');
  return slash < 0 ? { publisher: '', name: id } : { publisher: id.slice(0, slash), name: id.slice(slash + 1) };
}

/** A repo's name as a title: without the format, dashes kept where they belong to the name. */
export function repoTitle(id: string): string {
  return splitRepo(id).name.replace(/[-_.]?gguf$/i, '');
}

/** Host of a URL, or the text itself. */
export function host(url: string): string {
  try {
    return new URL(url).host;
  } catch {
    return url;
  }
}

function trimZero(text: string): string {
  return text.replace(/\.0$/, '');
}
