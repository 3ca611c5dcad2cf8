/** The language of the interface, and every sentence in it. */

import type { Failure, Language, Text } from '../wire';
import { en, type Dictionary } from './en';
import { zh } from './zh';

export type Tongue = 'en' | 'zh';

const DICTIONARIES: Record<Tongue, Dictionary> = { en, zh };

export class Locale {
  /** Until the settings are known: what the page was opened with. */
  tongue: Tongue = $state(document.documentElement.lang.startsWith('zh') ? 'zh' : 'en');

  /** Every sentence of the interface. */
  readonly t: Dictionary = $derived(DICTIONARIES[this.tongue]);

  /** Follows the setting; `system` follows the system's first language. */
  set(language: Language): void {
    this.tongue = language === 'system' ? systemTongue() : language;
    document.documentElement.lang = this.tongue === 'zh' ? 'zh-CN' : 'en';
    if (language === 'system') localStorage.removeItem('tandem.language');
    else localStorage.setItem('tandem.language', language);
  }

  /** Between the parts of a list that hold words of the language. */
  get comma(): string {
    return this.tongue === 'zh' ? '，' : ', ';
  }

  /** What stands between two sentences. */
  get gap(): string {
    return this.tongue === 'zh' ? '' : ' ';
  }

  /** The reader's half of a sentence that came in both languages. */
  readonly text = (text: Text): string => text[this.tongue] || text.en;

  /** A failure's message or hint as a sentence: the core writes them in lower case and without a full stop. */
  readonly sentence = (text: Text): string => {
    const words = this.text(text).trim();
    const stop = words === '' || /[.!?…。！？]$/.test(words) ? '' : this.tongue === 'zh' ? '。' : '.';
    return words.charAt(0).toUpperCase() + words.slice(1) + stop;
  };

  /** What happened and what to do, one after the other. */
  readonly told = (failure: Failure): string => [this.sentence(failure.message), this.sentence(failure.hint)].filter(Boolean).join(this.tongue === 'zh' ? '' : ' ');
}

function systemTongue(): Tongue {
  return /^zh/i.test(navigator.language) ? 'zh' : 'en';
}
