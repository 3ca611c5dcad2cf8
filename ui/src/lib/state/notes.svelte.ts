/** The one note at the foot of the window. The newest wins; what a note defers happens when it goes. */

export type Note = {
  text: string;
  tone?: 'plain' | 'ok' | 'danger';
  action?: { label: string; run: () => void };
  /** Runs when the note goes without its action having been taken. */
  onExpire?: () => void;
};

const SHOWN_MS = 7000;

export class Notes {
  current: Note | null = $state.raw(null);
  #timer: ReturnType<typeof setTimeout> | undefined;

  show(note: Note): void {
    this.dismiss();
    this.current = note;
    this.#timer = setTimeout(() => this.dismiss(), SHOWN_MS);
  }

  /** Says the same more exactly, if it is still said. */
  amend(note: Note, text: string): void {
    if (this.current === note) this.current = Object.assign(note, { text });
  }

  act(): void {
    const note = this.#take();
    note?.action?.run();
  }

  dismiss(): void {
    this.#take()?.onExpire?.();
  }

  #take(): Note | null {
    clearTimeout(this.#timer);
    const note = this.current;
    this.current = null;
    return note;
  }
}
