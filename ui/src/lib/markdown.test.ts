import { expect, test } from 'vitest';
import { MarkdownStream, renderMarkdown, type Block } from './markdown';
import { ANSWER, SECOND_ANSWER } from './backend/fake-data';

const html = (blocks: Block[]): string => blocks.map((block) => (block.kind === 'html' ? block.html : `[${block.language}]${block.code}`)).join('');

test.each([ANSWER, SECOND_ANSWER, '1. a\n2. b\n\n   c\n\nend', 'Title\n===\n\ntext', '> quote\n> more\n\n```\nopen fence\n\nwith a gap'])('a text that arrives piece by piece renders like the whole (%#)', (text) => {
  const stream = new MarkdownStream();
  let last: Block[] = [];
  for (let end = 1; end <= text.length; end += 1) last = stream.update(text.slice(0, end));
  expect(html(last)).toBe(html(renderMarkdown(text)));
});

test('finished blocks are not rendered again', () => {
  const stream = new MarkdownStream();
  const before = stream.update('one\n\ntwo\n\nthr');
  const after = stream.update('one\n\ntwo\n\nthree');
  expect(after[0]).toBe(before[0]);
  expect(after[1]).toBe(before[1]);
  expect(after[2]).not.toBe(before[2]);
});

test('another text starts anew', () => {
  const stream = new MarkdownStream();
  stream.update('one\n\ntwo');
  expect(html(stream.update('# other'))).toBe(html(renderMarkdown('# other')));
});

test('a long answer costs little per piece', () => {
  const stream = new MarkdownStream();
  const paragraph = 'Words and `code` and **more** words, again and again.\n\n';
  let text = '';
  let rendered = 0;
  let known = new Set<Block>();
  for (let index = 0; index < 400; index += 1) {
    text += paragraph;
    const blocks = stream.update(text);
    rendered += blocks.filter((block) => !known.has(block)).length;
    known = new Set(blocks);
  }
  expect(known.size).toBe(400);
  expect(rendered).toBeLessThanOrEqual(800);
});

test.each(['<script>alert(1)</script>', '<img src=x onerror=alert(1)>', '[x](javascript:alert(1))', '![x](https://example.org/track.png)', '<a href="javascript:alert(1)">x</a>', 'a <b onclick="alert(1)">b</b>'])('%s does nothing', (text) => {
  const page = document.createElement('div');
  page.innerHTML = html(renderMarkdown(text));
  expect(page.querySelector('script, img, iframe, [onerror], [onclick], a')).toBeNull();
});

test('web links stay links', () => {
  const page = document.createElement('div');
  page.innerHTML = html(renderMarkdown('[docs](https://example.org/a?b=1&c=2)'));
  expect(page.querySelector('a')?.getAttribute('href')).toBe('https://example.org/a?b=1&c=2');
});

test('a list that code interrupts goes on counting', () => {
  const lists = html(renderMarkdown('1. one\n\n```\ncode\n```\n\n2. two\n\n```\ncode\n```\n\n3. three'));
  expect(lists).toContain('<ol start="2" style="counter-reset:item 1">');
  expect(lists).toContain('<ol start="3" style="counter-reset:item 2">');
});
