/**
 * Pictures of every view on the fake backend, in both languages and themes and at three sizes, into artefacts/ui/.
 * An error in the console, a page error, a page wider than its window or what axe finds (contrast, names, roles) fails the run.
 *
 *   npm run screens                            all
 *   npm run screens -- '^chat' 'zh|small'      scenes and looks by pattern
 */

import { mkdirSync, readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';
import { fileURLToPath } from 'node:url';
import { chromium } from 'playwright-core';
import { preview } from 'vite';

const here = dirname(fileURLToPath(import.meta.url));
const out = join(here, '../../artefacts/ui');
const [scenePattern, lookPattern] = [process.argv[2] ?? '', process.argv[3] ?? ''].map((pattern) => new RegExp(pattern));
const axe = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
const SIZES = { small: [900, 600], normal: [1180, 760], large: [1600, 1000] };

const id = (name) => `[data-testid=${name}]`;
const openRepo = async (page, repo) => {
  await page.click(id('nav-discover'));
  await page.click(`${id('search-result')}[data-repo="${repo}"]`);
};
const loadModel = async (page, model) => {
  await page.click(id('nav-library'));
  await page.click(`${id('library-row')}[data-model-id="${model}"] ${id('chat-with-model')}`);
  await page.waitForSelector(`${id('engine-phase')}[data-phase=idle]`);
};

/** What axe finds on the page, one line per rule and place. */
const inaccessible = async (page) => {
  await page.evaluate(axe);
  const { violations } = await page.evaluate(() => window.axe.run({ runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa'] }));
  return violations.flatMap(({ id: rule, nodes }) => nodes.map(({ target, any }) => `${rule} ${target.join(' ')}: ${any[0]?.message ?? ''}`));
};

/** Name, query of the fake window, and what is done before the picture is taken. */
const scenes = [
  ['welcome', 'library=empty', async (page) => page.waitForSelector(id('welcome-model'))],
  ['welcome-offline', 'library=empty&gpu=0&fail=search_models:no_network', async (page) => page.waitForSelector(id('error-note'))],
  ['discover', '', async (page) => {
    await openRepo(page, 'unsloth/Qwen3.6-35B-A3B-GGUF');
    await page.waitForSelector(id('plan-card'));
  }],
  ['discover-no-gpu', 'gpu=0', async (page) => {
    await openRepo(page, 'HuggingFaceTB/SmolLM2-135M-Instruct-GGUF');
    await page.waitForSelector(id('plan-card'));
  }],
  ['discover-too-large', '', async (page) => {
    await openRepo(page, 'unsloth/Qwen3-Coder-Next-80B-GGUF');
    await page.waitForSelector(id('plan-card'));
  }],
  ['discover-gated', '', async (page) => {
    await openRepo(page, 'google/gemma-4-26B-A4B-it-GGUF');
    await page.waitForSelector(id('error-note'));
  }],
  ['discover-offline', 'fail=search_models:no_network', async (page) => {
    await page.click(id('nav-discover'));
    await page.waitForSelector(id('error-note'));
  }],
  ['discover-nothing', '', async (page) => {
    await page.click(id('nav-discover'));
    await page.fill(id('search-input'), 'gpt-9');
    await page.waitForSelector('.ph >> text=gpt-9');
  }],
  ['downloading', 'pace=4&library=empty', async (page) => {
    await openRepo(page, 'HuggingFaceTB/SmolLM2-135M-Instruct-GGUF');
    await page.click(id('recommended-download'));
    await page.waitForFunction(() => Number(document.querySelector('[data-testid=download-row] .prog')?.getAttribute('aria-valuenow')) > 40);
  }],
  ['plan', '', async (page) => {
    await openRepo(page, 'unsloth/Qwen3.6-35B-A3B-GGUF');
    await page.waitForSelector(id('plan-card'));
    await page.click(`${id('plan-card')} .btn:not(.pri)`);
    await page.waitForSelector(id('plan-view'));
  }],
  ['library', 'downloads=1', async (page) => {
    await page.click(id('nav-library'));
    await page.waitForSelector(`${id('library-row')} .verdict b`);
  }],
  ['library-details', '', async (page) => {
    await page.click(id('nav-library'));
    const row = `${id('library-row')}[data-model-id="qwen3-30b"]`;
    await page.click(`${row} ${id('model-details')}`);
    await page.click(id('delete-of'));
    await page.waitForSelector('[role=alertdialog]');
  }],
  ['library-verify', 'pace=6', async (page) => {
    await page.click(id('nav-library'));
    await page.click(id('verify-model'));
    await page.waitForFunction(() => Number(document.querySelector('[data-testid=library-row] .prog')?.getAttribute('aria-valuenow')) >= 50);
  }],
  ['library-drop', '', async (page) => {
    await page.click(id('nav-library'));
    await page.waitForSelector(id('library-folder'));
    await page.evaluate(() => window.fake.emit({ type: 'drag', drag: { type: 'over' } }));
    await page.waitForSelector('.drop');
  }],
  ['library-add', '', async (page) => {
    await page.click(id('nav-library'));
    await page.click(id('add-model'));
    await page.fill(id('add-model-path'), '/home/me/notes.txt');
    await page.click(id('add-model-confirm'));
    await page.waitForSelector(`${id('error-note')}[data-code=not_gguf]`);
  }],
  ['library-empty', 'library=empty', async (page) => page.click(id('nav-library'))],
  ['chat', '', async (page) => {
    await loadModel(page, 'qwen3-30b');
    await page.evaluate(() => document.querySelector('[data-testid=chat-item][data-chat-id="1"]').click());
    await page.waitForSelector('.hljs-keyword');
  }],
  ['chat-empty', 'library=starter', async (page) => page.waitForSelector(id('composer-input'))],
  ['chat-no-model', 'library=empty', async (page) => page.click(id('nav-new-chat'))],
  ['chat-loading', 'pace=6', async (page) => {
    await page.click(id('nav-library'));
    await page.click(`${id('library-row')}[data-model-id="qwen3-30b"] ${id('chat-with-model')}`);
    await page.waitForFunction(() => Number(document.querySelector('[data-testid=loading-card]')?.getAttribute('aria-valuenow')) >= 50);
  }],
  ['chat-picker', '', async (page) => {
    await loadModel(page, 'ministral-8b');
    await page.click(id('model-picker'));
  }],
  ['chat-streaming', '', async (page) => {
    await loadModel(page, 'qwen3-30b');
    await page.evaluate(() => document.querySelector('[data-testid=chat-item][data-chat-id="1"]').click());
    await page.waitForSelector('.hljs-keyword');
    await page.fill(id('composer-input'), 'And Chinese text? Words there are often two characters.');
    await page.press(id('composer-input'), 'Enter');
    await page.waitForFunction(() => document.querySelector('[data-testid=message-assistant]:not([data-end])')?.textContent?.includes('Bigrams'));
  }],
  ['chat-failed', 'fail=send_message', async (page) => {
    await loadModel(page, 'smollm2');
    await page.fill(id('composer-input'), 'What should I index?');
    await page.press(id('composer-input'), 'Enter');
    await page.waitForSelector(`${id('message-assistant')}[data-end=failed]`);
  }],
  ['chats-layer', '', async (page) => {
    const isRail = await page.isVisible('.only-rail[aria-expanded]');
    if (isRail) await page.click('.only-rail[aria-expanded]');
    await page.hover(`${isRail ? '.layer' : '.side'} ${id('chat-item')}`);
  }],
  ['machine', '', async (page) => {
    await loadModel(page, 'qwen3-30b');
    await page.click(id('nav-machine'));
  }],
  ['machine-card', '', async (page) => {
    await loadModel(page, 'qwen3-30b');
    await page.click(id('nav-machine'));
    await page.locator(id('card-memory')).scrollIntoViewIfNeeded();
  }],
  ['machine-measuring', 'library=starter&pace=8', async (page) => {
    await page.click(id('nav-machine'));
    await page.click(id('run-benchmark'));
    await page.waitForFunction(() => Number(document.querySelector('[data-testid=benchmark] .prog')?.getAttribute('aria-valuenow')) > 20);
  }],
  ['chat-given-up', 'tight=1', async (page) => {
    await loadModel(page, 'qwen3-30b');
    await page.waitForSelector(id('given-up'));
  }],
  ['chat-template', 'template=0', async (page) => {
    await loadModel(page, 'qwen3-30b');
    await page.fill(id('composer-input'), 'Hello');
    await page.press(id('composer-input'), 'Enter');
    await page.waitForSelector(id('template-notice'));
  }],
  ['chat-offer', 'tight=1', async (page) => {
    await loadModel(page, 'qwen3-30b');
    await page.evaluate(() => window.fake.offerMore());
    await page.waitForSelector(id('offer'));
  }],
  ['chat-card-lost', 'fail=send_message:gpu_failed', async (page) => {
    await loadModel(page, 'smollm2');
    await page.fill(id('composer-input'), 'What should I index?');
    await page.press(id('composer-input'), 'Enter');
    await page.waitForSelector(id('go-on-with-processor'));
  }],
  ['machine-idle-card', 'gpu=idle', async (page) => page.click(id('nav-machine'))],
  ['discover-idle-card', 'gpu=idle', async (page) => {
    await openRepo(page, 'unsloth/Qwen3.6-35B-A3B-GGUF');
    await page.waitForSelector(id('plan-card'));
  }],
  ['machine-no-gpu', 'gpu=0', async (page) => page.click(id('nav-machine'))],
  ['settings', '', async (page) => page.click(id('nav-settings'))],
  ['network', 'hub=down', async (page) => {
    await page.click(id('nav-settings'));
    await page.click('.sn button:nth-of-type(4)');
    await page.waitForSelector('.src .badge.ok');
  }],
  ['network-token', 'keystore=0', async (page) => {
    await page.click(id('nav-settings'));
    await page.click('.sn button:nth-of-type(4)');
    await page.click(`${id('settings-proxy')} [data-value=socks5]`);
    await page.fill(id('settings-token'), 'hf_abcdefghijklmnop');
    await page.click(id('save-token'));
    await page.waitForSelector(id('keep-session'));
  }],
  ['welcome-mirror', 'library=empty&hub=down', async (page) => page.waitForSelector(id('source-offer'))],
  ['discover-mirror', 'hub=down', async (page) => {
    await page.click(id('nav-discover'));
    await page.waitForSelector(id('source-offer'));
  }],
  ['discover-word', 'hub=down', async (page) => {
    await page.click(id('nav-discover'));
    await page.click(id('use-source'));
    await page.click(`${id('search-result')}[data-repo="HuggingFaceTB/SmolLM2-135M-Instruct-GGUF"]`);
    await page.waitForSelector(`${id('hash-word')} >> text=modelscope.cn`);
    await page.locator(id('hash-word')).scrollIntoViewIfNeeded();
  }],
  ['discover-foreign', '', async (page) => {
    await page.click(id('nav-discover'));
    await page.fill(id('search-input'), 'gptq');
    await page.click(`${id('search-result')}[data-repo="Qwen/Qwen3.6-35B-GPTQ-Int4"]`);
    await page.waitForSelector(id('gguf-version'));
  }],
  ['start-failed', 'fail=app_info', async (page) => page.waitForSelector(id('error-note'))],
];

const looks = [
  ['en', 'light', 'normal'],
  ['en', 'dark', 'normal'],
  ['zh', 'light', 'normal'],
  ['zh', 'dark', 'small'],
  ['en', 'light', 'small'],
  ['en', 'dark', 'large'],
];

mkdirSync(out, { recursive: true });
const server = await preview({ root: join(here, '..'), build: { outDir: 'dist-fake' }, preview: { port: 0, host: '127.0.0.1' }, logLevel: 'warn' });
const browser = await chromium.launch({ executablePath: process.env.CHROMIUM ?? '/usr/bin/chromium', args: ['--no-sandbox'] });
const problems = [];
let count = 0;
for (const [name, query, act] of scenes.filter(([name]) => scenePattern.test(name))) {
  for (const [lang, theme, size] of looks.filter((look) => lookPattern.test(look.join('-')))) {
    const [width, height] = SIZES[size];
    const file = `${name}-${lang}-${theme}-${size}.png`;
    const page = await browser.newPage({ viewport: { width, height }, locale: lang === 'zh' ? 'zh-CN' : 'en-US' });
    page.on('pageerror', (error) => problems.push(`${file}: ${error}`));
    page.on('console', (message) => message.type() === 'error' && problems.push(`${file}: ${message.text()}`));
    try {
      await page.goto(`${server.resolvedUrls.local[0]}?lang=${lang}&theme=${theme}&${query}`);
      await page.waitForSelector('.strip, .start .note');
      await act(page);
      await page.waitForTimeout(120);
      await page.screenshot({ path: join(out, file) });
      const overflow = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
      if (overflow > 0) problems.push(`${file}: ${overflow} px wider than the window`);
      problems.push(...(await inaccessible(page)).map((violation) => `${file}: ${violation}`));
      count += 1;
    } catch (error) {
      await page.screenshot({ path: join(out, `failed-${file}`) });
      problems.push(`${file}: ${String(error).split('\n')[0]}`);
    }
    await page.close();
  }
}
await browser.close();
await server.close();
console.log(`${count} pictures in ${out}`);
for (const problem of problems) console.error(problem);
process.exitCode = problems.length > 0 ? 1 : 0;
