/**
 * Collects what arrives in between two frames and hands it over once per frame.
 *
 * A hidden or occluded window gets no animation frames, so a slow timer stands in: text keeps arriving, only less often.
 */
export class FrameBatch<T> {
  #waiting: T[] = [];
  #isScheduled = false;

  constructor(
    private readonly apply: (items: T[]) => void,
    private readonly schedule: (run: () => void) => void = nextFrame,
  ) {}

  push(item: T): void {
    this.#waiting.push(item);
    if (this.#isScheduled) return;
    this.#isScheduled = true;
    this.schedule(() => this.flush());
  }

  /** Hands over what waits, now: nothing may be left when an answer ends. */
  flush(): void {
    this.#isScheduled = false;
    if (this.#waiting.length === 0) return;
    const items = this.#waiting;
    this.#waiting = [];
    this.apply(items);
  }
}

const FALLBACK_MS = 250;

function nextFrame(run: () => void): void {
  let isDone = false;
  const once = (): void => {
    if (isDone) return;
    isDone = true;
    cancelAnimationFrame(frame);
    clearTimeout(timer);
    run();
  };
  const frame = requestAnimationFrame(once);
  const timer = setTimeout(once, FALLBACK_MS);
}
