/**
 * Tells whether a key belongs to an input method rather than to the app.
 *
 * Chromium and Gecko mark such keys (`isComposing`, keyCode 229). WebKit ends the composition before it sends the key that
 * ended it, so that Enter looks like a plain Enter: a flag is therefore kept from `compositionend` until the next `keyup`.
 */
export class CompositionGuard {
  #isComposing = false;
  #isEnding = false;

  readonly start = (): void => {
    this.#isComposing = true;
  };

  readonly end = (): void => {
    this.#isComposing = false;
    this.#isEnding = true;
  };

  readonly keyup = (): void => {
    this.#isEnding = false;
  };

  /** Text is being composed; search-as-you-type waits. */
  get isComposing(): boolean {
    return this.#isComposing;
  }

  /** Whether the app must leave this key alone. */
  owns(event: Pick<KeyboardEvent, 'isComposing' | 'keyCode'>): boolean {
    return event.isComposing || event.keyCode === 229 || this.#isComposing || this.#isEnding;
  }
}
