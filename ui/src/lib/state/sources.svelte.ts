/** Where models come from: which sources can be used from here, and which one to offer when the present one cannot. */

import { asFailure, type Backend } from '../backend/backend';
import type { AppInfo, Failure, HubSource, SourceProbe } from '../wire';

export class Sources {
  probes: SourceProbe[] | null = $state.raw(null);
  isProbing = $state(false);
  testedAt: number | null = $state(null);
  failure: Failure | null = $state.raw(null);

  constructor(
    private readonly backend: Backend,
    private readonly info: () => AppInfo | null,
  ) {}

  /** A source that works, while the one in use does not. */
  readonly offer: HubSource | null = $derived.by(() => {
    const current = this.info()?.source.url;
    const probes = this.probes ?? [];
    const isDown = probes.some(({ source, reach }) => source.url === current && reach.type === 'fails');
    const works = probes.find(({ source, reach }) => source.url !== current && reach.type === 'works');
    return (isDown && works?.source) || null;
  });

  probeOf(source: HubSource): SourceProbe | null {
    return this.probes?.find((probe) => probe.source.url === source.url) ?? null;
  }

  /** Tries all sources; one round at a time. */
  async probe(): Promise<void> {
    if (this.isProbing) return;
    this.isProbing = true;
    this.failure = null;
    try {
      this.probes = await this.backend.probe_sources();
      this.testedAt = Date.now();
    } catch (thrown) {
      this.failure = asFailure(thrown);
    } finally {
      this.isProbing = false;
    }
  }

  /** Tries them unless that was done a moment ago. */
  probeIfOld(): void {
    if (this.testedAt === null || Date.now() - this.testedAt > FRESH_MS) void this.probe();
  }
}

const FRESH_MS = 60_000;
