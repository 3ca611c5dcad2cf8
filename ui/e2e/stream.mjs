/**
 * Measures the window while a very long answer streams in: frames that took too long, and the time from first to last word.
 *
 *   npm run build:fake && node e2e/stream.mjs [repeats of a 230-word answer, default 60]
 */

import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { preview } from 'vite';

const repeats = Number(process.argv[2] ?? 60);
const root = join(dirname(fileURLToPath(import.meta.url)), '..');
const server = await preview({ root, build: { outDir: 'dist-fake' }, preview: { port: 0, host: '127.0.0.1' }, logLevel: 'warn' });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const page = await browser.newPage({ viewport: { width: 1180, height: 760 } });
await page.goto(`${server.resolvedUrls.local[0]}?library=starter&lang=en&pace=0&long=${repeats}`);
await page.waitForSelector('[data-testid=composer-input]');
await page.evaluate(() => {
  window.longTasks = [];
  new PerformanceObserver((list) => window.longTasks.push(...list.getEntries().map((entry) => entry.duration))).observe({ entryTypes: ['longtask'] });
});
await page.fill('[data-testid=composer-input]', 'go');
await page.press('[data-testid=composer-input]', 'Enter');
await page.waitForSelector('[data-testid=message-assistant]');
const start = Date.now();
await page.waitForSelector('[data-testid=message-assistant][data-end]', { timeout: 600_000 });
const [tasks, words] = await page.evaluate(() => [window.longTasks, document.querySelector('[data-testid=message-assistant]').textContent.split(/\s+/).length]);
console.log(`${words} words in ${((Date.now() - start) / 1000).toFixed(1)} s; ${tasks.length} tasks over 50 ms, ${tasks.filter((task) => task > 100).length} over 100 ms, longest ${Math.round(Math.max(0, ...tasks))} ms`);
await browser.close();
await server.close();
