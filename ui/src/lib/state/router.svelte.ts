/** Which view is shown, and which layers lie above it. */

export type View = 'welcome' | 'discover' | 'library' | 'chat' | 'machine' | 'settings';

export class Router {
  view: View = $state('chat');
  /** A part of the view to show first. */
  section: string | null = $state(null);
  #layers: (() => void)[] = [];

  go(view: View, section: string | null = null): void {
    this.view = view;
    this.section = section;
  }

  /** A menu or dialog opens; returns what to call when it is gone. */
  pushLayer(close: () => void): () => void {
    this.#layers.push(close);
    return () => {
      this.#layers = this.#layers.filter((other) => other !== close);
    };
  }

  /** Closes the topmost layer, if there is one. */
  closeLayer(): boolean {
    const close = this.#layers.pop();
    close?.();
    return close !== undefined;
  }
}
