/** The access token: what is known of it, and where a new one is kept. The token itself never comes back from the app. */

import { asFailure, type Backend } from '../backend/backend';
import type { Failure, TokenKeep, TokenState } from '../wire';

export class AccessToken {
  current: TokenState | null = $state.raw(null);
  isBusy = $state(false);
  failure: Failure | null = $state.raw(null);
  /** A token that the key store did not take: the person says where it goes. */
  #homeless = '';

  constructor(private readonly backend: Backend) {}

  readonly isHomeless: boolean = $derived(this.failure?.code === 'no_key_store');
  /** Whether it was entered here, so that it can be removed here. */
  readonly isOwn: boolean = $derived(['key_store', 'private_file', 'session'].includes(this.current?.place?.type ?? ''));

  async load(): Promise<void> {
    await this.#run(() => this.backend.token());
    if (this.current?.place) await this.#run(() => this.backend.check_token());
  }

  async set(token: string, keep: TokenKeep = 'key_store'): Promise<boolean> {
    this.#homeless = token;
    const isSet = await this.#run(() => this.backend.set_token({ token, keep }));
    if (isSet) {
      this.#homeless = '';
      await this.#run(() => this.backend.check_token());
    }
    return isSet;
  }

  /** Keeps the token that the key store did not take. */
  keep(keep: TokenKeep): Promise<boolean> {
    return this.set(this.#homeless, keep);
  }

  remove(): Promise<boolean> {
    return this.#run(() => this.backend.remove_token());
  }

  async #run(command: () => Promise<TokenState>): Promise<boolean> {
    this.isBusy = true;
    this.failure = null;
    try {
      this.current = await command();
      return true;
    } catch (thrown) {
      this.failure = asFailure(thrown);
      return false;
    } finally {
      this.isBusy = false;
    }
  }
}
