import '@testing-library/jest-dom/vitest';
import { configure } from '@testing-library/svelte';
import { beforeEach } from 'vitest';

/* Generous: a busy machine must not fail a test. */
configure({ asyncUtilTimeout: 10_000 });

/* What jsdom lacks and the window has. */
Object.defineProperty(window, 'matchMedia', {
  writable: true,
  value: (query: string) => ({ matches: false, media: query, addEventListener: () => undefined, removeEventListener: () => undefined }),
});
class ResizeObserverStub implements ResizeObserver {
  observe(): void {}
  unobserve(): void {}
  disconnect(): void {}
}
globalThis.ResizeObserver ??= ResizeObserverStub;
Element.prototype.scrollIntoView ??= () => undefined;

beforeEach(() => localStorage.clear());
