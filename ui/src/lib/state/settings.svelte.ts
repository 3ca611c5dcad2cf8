/** What a person has chosen. A change shows at once and goes back if the app refuses it. */

import { asFailure, type Backend } from '../backend/backend';
import type { Locale } from '../i18n/locale.svelte';
import type { AppInfo, Failure, Sampling, Settings, Theme } from '../wire';

/** What a refusal is shown beside. */
export type SettingName = keyof Settings | keyof Sampling;

export class SettingsState {
  current: Settings | null = $state.raw(null);
  failure: Failure | null = $state.raw(null);
  /** The setting that was refused. */
  failedField: SettingName | null = $state(null);
  #systemTheme: MediaQueryList | null = null;

  constructor(
    private readonly backend: Backend,
    private readonly locale: Locale,
    private readonly onInfo: (info: AppInfo) => void,
    private readonly onRefused: (failure: Failure) => void,
  ) {}

  adopt(settings: Settings): void {
    this.current = settings;
    this.locale.set(settings.language);
    this.#applyTheme(settings.theme);
  }

  /** `field` names what was changed, if it is a part of a setting. */
  async change(part: Partial<Settings>, field = Object.keys(part)[0] as SettingName): Promise<boolean> {
    const before = this.current;
    if (!before) return false;
    this.adopt({ ...before, ...part });
    try {
      const info = await this.backend.set_settings({ ...before, ...part });
      this.failure = null;
      this.onInfo(info);
      return true;
    } catch (thrown) {
      this.adopt(before);
      this.failure = asFailure(thrown);
      this.failedField = field;
      this.onRefused(this.failure);
      return false;
    }
  }

  changeSampling(part: Partial<Sampling>): Promise<boolean> {
    return this.current ? this.change({ sampling: { ...this.current.sampling, ...part } }, Object.keys(part)[0] as SettingName) : Promise.resolve(false);
  }

  #applyTheme(theme: Theme): void {
    this.#systemTheme ??= this.#watchSystem();
    const dark = theme === 'dark' || (theme === 'system' && this.#systemTheme.matches);
    document.documentElement.dataset.theme = dark ? 'dark' : 'light';
    if (theme === 'system') localStorage.removeItem('tandem.theme');
    else localStorage.setItem('tandem.theme', theme);
  }

  #watchSystem(): MediaQueryList {
    const query = matchMedia('(prefers-color-scheme: dark)');
    query.addEventListener('change', () => {
      if (this.current) this.#applyTheme(this.current.theme);
    });
    return query;
  }
}
