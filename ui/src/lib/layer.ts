/** Menus, dialogs and other layers: they take the focus, close on Escape or a press outside, and give the focus back. */

import type { Attachment } from 'svelte/attachments';
import type { Router } from './state/router.svelte';

/** What a layer needs to know. */
export type LayerOptions = {
  router: Router;
  onclose: () => void;
  /** Gets the focus when the layer opens. */
  focus: string;
  /** A press inside the nearest of these does not close it; absent: presses outside do nothing. */
  inside?: string;
};

export function layer({ router, onclose, focus, inside }: LayerOptions): Attachment<HTMLElement> {
  return (element) => {
    const before = document.activeElement;
    element.querySelector<HTMLElement>(focus)?.focus();
    const drop = router.pushLayer(onclose);
    const pressed = (event: PointerEvent): void => {
      if (event.target instanceof Node && !element.contains(event.target) && !(event.target instanceof Element && inside && event.target.closest(inside))) onclose();
    };
    if (inside) document.addEventListener('pointerdown', pressed);
    return () => {
      drop();
      document.removeEventListener('pointerdown', pressed);
      if (before instanceof HTMLElement && (document.activeElement === document.body || element.contains(document.activeElement))) before.focus();
    };
  };
}
