/** Keyboard for lists: one tab stop, arrows move, Home and End jump. */

import type { Attachment } from 'svelte/attachments';

/** Moves the focus among the elements that match `selector` inside the element. */
export function arrows(selector: string, axis: 'vertical' | 'horizontal' = 'vertical'): Attachment<HTMLElement> {
  const [back, forth] = axis === 'vertical' ? ['ArrowUp', 'ArrowDown'] : ['ArrowLeft', 'ArrowRight'];
  return (list) => {
    const onkeydown = (event: KeyboardEvent): void => {
      if (event.target instanceof HTMLInputElement || event.target instanceof HTMLTextAreaElement) return;
      const items = [...list.querySelectorAll<HTMLElement>(selector)];
      const at = items.findIndex((item) => item.contains(document.activeElement));
      const to = event.key === forth ? at + 1 : event.key === back ? at - 1 : event.key === 'Home' ? 0 : event.key === 'End' ? items.length - 1 : null;
      if (to === null || items.length === 0) return;
      event.preventDefault();
      items[Math.min(items.length - 1, Math.max(0, to))]?.focus();
    };
    list.addEventListener('keydown', onkeydown);
    return () => list.removeEventListener('keydown', onkeydown);
  };
}
