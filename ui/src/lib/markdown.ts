/**
 * Markdown of an answer, block by block.
 *
 * While text streams in, only the last block can still change: all blocks before it are rendered once and kept, so that the
 * cost of a frame does not grow with the answer. Model output is not trusted: HTML in it is shown as text, and what the
 * renderer makes goes through DOMPurify.
 */

import DOMPurify from 'dompurify';
import { Marked, type Token, type Tokens } from 'marked';

/** One top-level block. */
export type Block = { kind: 'html'; html: string } | { kind: 'code'; language: string; code: string };

const marked = new Marked({
  gfm: true,
  renderer: {
    html: ({ text }: Tokens.HTML | Tokens.Tag) => escapeHtml(text),
    image: ({ text, href }: Tokens.Image) => escapeHtml(text || href),
    link({ href, tokens }: Tokens.Link) {
      const label = this.parser.parseInline(tokens);
      return /^https?:\/\//i.test(href) ? `<a href="${escapeHtml(href)}" rel="noreferrer noopener" target="_blank">${label}</a>` : label;
    },
  },
});

/** Renders a growing text; give it the whole text each time. */
export class MarkdownStream {
  #settled: Block[] = [];
  #settledLength = 0;
  #text = '';

  /** All blocks of `text`; the ones that cannot change any more are the same objects as last time. */
  update(text: string): Block[] {
    if (!text.startsWith(this.#text)) {
      this.#settled = [];
      this.#settledLength = 0;
    }
    this.#text = text;
    const blocks = marked.lexer(text.slice(this.#settledLength)).filter((token) => token.type !== 'space' || token.raw.length > 0);
    const last = blocks.findLastIndex((token) => token.type !== 'space');
    for (let index = 0; index < last; index += 1) {
      const token = blocks[index]!;
      this.#settledLength += token.raw.length;
      if (token.type !== 'space') this.#settled.push(render(token));
    }
    const open = blocks[last];
    return open ? [...this.#settled, render(open)] : [...this.#settled];
  }
}

/** Renders a text that is complete. */
export function renderMarkdown(text: string): Block[] {
  return marked
    .lexer(text)
    .filter((token) => token.type !== 'space')
    .map(render);
}

function render(token: Token): Block {
  if (token.type === 'code') {
    const { lang, text } = token as Tokens.Code;
    return { kind: 'code', language: (lang ?? '').trim().split(/\s+/)[0] ?? '', code: text };
  }
  return { kind: 'html', html: numbered(DOMPurify.sanitize(marked.parser([token]), { ADD_ATTR: ['target'] })) };
}

/** A list that goes on after a block counts from its own start; the numbers are a CSS counter. */
function numbered(html: string): string {
  return html.replace(/<ol start="(\d+)">/g, (_, start: string) => `<ol start="${start}" style="counter-reset:item ${Number(start) - 1}">`);
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (character) => `&#${character.charCodeAt(0)};`);
}
