/** The whole window's state: builds every part, starts it, and leads the app's events to where they belong. */

import { getContext, setContext } from 'svelte';
import { asFailure, type Backend } from '../backend/backend';
import { copyText } from '../clipboard';
import { size } from '../format';
import { Locale } from '../i18n/locale.svelte';
import type { AppEvent, AppInfo, ChatSummary, Drag, Failure, LibraryModel, ModelVersion, Program, Removal } from '../wire';
import { Calibration } from './calibration.svelte';
import { Chats } from './chats.svelte';
import { Conversation } from './conversation.svelte';
import { Downloads } from './downloads.svelte';
import { GaugeState } from './gauges.svelte';
import { isOwn, Library } from './library.svelte';
import { ModelPageState } from './model-page.svelte';
import { type Note, Notes } from './notes.svelte';
import { Router } from './router.svelte';
import { Runtime } from './runtime.svelte';
import { HubSearch } from './search.svelte';
import { SettingsState } from './settings.svelte';
import { TuningState } from './tuning.svelte';
import { Sources } from './sources.svelte';
import { AccessToken } from './token.svelte';

export class App {
  readonly locale = new Locale();
  readonly router = new Router();
  readonly notes = new Notes();
  readonly gauges = new GaugeState();
  readonly settings: SettingsState;
  readonly sources: Sources;
  readonly token: AccessToken;
  readonly search: HubSearch;
  readonly modelPage: ModelPageState;
  readonly downloads: Downloads;
  readonly library: Library;
  readonly runtime: Runtime;
  readonly calibration: Calibration;
  readonly tuning: TuningState;
  readonly chats: Chats;
  readonly conversation: Conversation;

  info: AppInfo | null = $state.raw(null);
  failure: Failure | null = $state.raw(null);
  /** Counts requests to put the cursor into the composer. */
  composerFocus = $state(0);
  /** Files are held over the window. */
  isDragging = $state(false);
  #isSubscribed = false;

  constructor(private readonly backend: Backend) {
    this.settings = new SettingsState(
      backend,
      this.locale,
      (info) => this.#adoptInfo(info),
      (failure) => this.#settingRefused(failure),
    );
    this.sources = new Sources(backend, () => this.info);
    this.token = new AccessToken(backend);
    this.search = new HubSearch(backend);
    this.modelPage = new ModelPageState(backend);
    this.library = new Library(backend);
    this.runtime = new Runtime(backend, (modelId) => this.library.wishesOf(modelId));
    this.calibration = new Calibration(backend);
    this.tuning = new TuningState(backend);
    this.chats = new Chats(backend);
    this.downloads = new Downloads(
      backend,
      () => this.library.models,
      (model, thenChat) => this.#arrived(model, thenChat),
    );
    this.conversation = new Conversation(backend, {
      onSummary: (summary) => this.chats.touch(summary),
      onRate: (rate) => this.gauges.answerRate(rate),
      prepare: () => this.#prepare(),
    });
  }

  async start(): Promise<void> {
    this.failure = null;
    try {
      const info = await this.backend.app_info();
      this.settings.adopt(info.settings);
      this.#subscribe();
      const [library, downloads] = await Promise.all([this.backend.library(), this.backend.downloads(), this.chats.refresh()]);
      this.library.adopt(library);
      this.downloads.adopt(downloads);
      this.runtime.adopt(info.runtime);
      if (this.library.models.length > 0 || downloads.length > 0 || this.chats.list.length > 0) this.#toChat();
      else this.router.go('welcome');
      this.info = info;
      void this.library.plan();
    } catch (thrown) {
      this.failure = asFailure(thrown);
    }
  }

  apply(event: AppEvent): void {
    if (event.type === 'download') this.downloads.apply(event.download);
    else if (event.type === 'download_gone') this.downloads.gone(event.id);
    else if (event.type === 'library') {
      this.library.adopt(event.models);
      this.downloads.settle();
      void this.library.plan();
    } else if (event.type === 'drag') this.#dragged(event.drag);
    else if (event.type === 'notice') this.#notice(event.notice);
    else if (event.type === 'runtime') this.runtime.adopt(event.state);
    else if (event.type === 'calibration') this.calibration.adopt(event.state);
    else this.gauges.apply(event.gauges);
  }

  /** Disk and memory as they are now, for a view that shows them. */
  async measure(): Promise<void> {
    const hardware = await this.backend.hardware().catch(() => null);
    if (hardware && this.info) this.info = { ...this.info, hardware };
  }

  newChat(): void {
    this.conversation.startNew();
    this.#toChat();
  }

  async openChat(id: number): Promise<void> {
    this.#toChat();
    await this.conversation.open(id);
  }

  /** A new chat with this model; loads it if need be. */
  async chatWith(modelId: string): Promise<void> {
    if (!this.conversation.isBusy) this.conversation.startNew();
    this.#toChat();
    await this.load(modelId);
  }

  /** Loads a model; one that was about to be removed stays. */
  load(modelId: string): Promise<boolean> {
    this.#keep(modelId);
    return this.runtime.load(modelId);
  }

  /** Downloads a version. If it is here and about to be removed, it stays; if it could not be used, it is removed first. */
  async download(version: ModelVersion, then: 'chat' | 'keep'): Promise<void> {
    const old = this.library.hiddenOf(version);
    if (old && old.refusal === null && old.integrity !== 'mismatched' && this.#keep(old.id)) {
      if (then === 'chat') await this.chatWith(old.id);
      return;
    }
    if (old) {
      if (this.library.isPending(old.id)) this.notes.dismiss();
      await this.library.remove(old.id);
    }
    if (version.files[0]?.repo === this.modelPage.repo) this.library.promise(version, this.modelPage.wishes);
    await this.downloads.start(version, then);
  }

  async deleteChat(chat: ChatSummary): Promise<void> {
    if (!(await this.conversation.release(chat.id))) {
      if (this.conversation.failure) this.notes.show({ text: this.locale.text(this.conversation.failure.failure.message), tone: 'danger' });
      return;
    }
    if (!(await this.chats.remove(chat.id))) {
      if (this.chats.failure) this.notes.show({ text: this.locale.text(this.chats.failure.message), tone: 'danger' });
      return;
    }
    if (this.conversation.chatId === chat.id) this.conversation.startNew();
    this.notes.show({ text: this.locale.t.nav.chatDeleted(chat.title), action: { label: this.locale.t.app.undo, run: () => void this.chats.restore(chat.id) } });
  }

  async renameChat(id: number, title: string): Promise<void> {
    await this.chats.rename(id, title);
    const summary = this.chats.list.find((chat) => chat.id === id);
    if (summary) this.conversation.retitle(summary);
  }

  /** Hides the model at once, removes it when the note with Undo has gone. Only the app's own files are touched. */
  removeModel(model: LibraryModel): void {
    const t = this.locale.t.library;
    this.library.hide(model.id);
    const note: Note = {
      text: isOwn(model) ? t.removedOwn(model.name) : t.removed(model.name),
      action: { label: this.locale.t.app.undo, run: () => this.library.unhide(model.id) },
      onExpire: () => void this.library.remove(model.id),
    };
    this.notes.show(note);
    if (isOwn(model)) void this.library.planRemoval(model.id, []).then((removal) => removal && this.notes.amend(note, this.#removedText(model, removal)));
  }

  /** Removes a model with the files of other programs: a person has just allowed that by name. */
  async removeOf(model: LibraryModel, programs: Program[]): Promise<void> {
    const removal = await this.library.removeOf(model.id, programs);
    if (removal) this.notes.show({ text: this.#removedText(model, removal) });
    else if (this.library.failure) this.notes.show({ text: this.locale.text(this.library.failure.message), tone: 'danger' });
    await this.library.loadFolders();
  }

  /** Takes in what was dropped on the window or named in the form; says what came of it. */
  async addPaths(paths: string[]): Promise<boolean> {
    const added = await this.library.addPaths(paths);
    if (!added || (added.models.length === 0 && added.folders.length === 0)) return false;
    const t = this.locale.t.library;
    const [model] = added.models;
    const text = model && added.models.length === 1 && added.folders.length === 0 ? t.added(model.name) : t.addedMany(added.models.length + added.folders.reduce((sum, { n_models }) => sum + n_models, 0));
    this.notes.show({ text, tone: 'ok', ...(model && added.models.length === 1 && model.refusal === null ? { action: { label: t.chat, run: () => void this.chatWith(model.id) } } : {}) });
    void this.library.plan();
    return true;
  }

  async verify(model: LibraryModel): Promise<void> {
    const checked = await this.library.verify(model.id);
    if (!checked) return;
    const t = this.locale.t.library;
    const text = { verified: t.verifiedNow, mismatched: t.mismatchedNow, unverified: t.unverifiedNow }[checked.integrity](model.name);
    this.notes.show({ text, ...(checked.integrity === 'verified' ? { tone: 'ok' as const } : checked.integrity === 'mismatched' ? { tone: 'danger' as const } : {}) });
  }

  async checkUpdates(): Promise<void> {
    const found = await this.library.checkUpdates();
    if (found) this.notes.show({ text: this.locale.t.library.updatesFound(found.n_newer, found.n_checked, found.failures.length) });
  }

  /** The page of a repo on the hub. */
  openRepo(repo: string): void {
    this.router.go('discover');
    void this.modelPage.open(repo);
  }

  /** The window has come to the front. */
  focused(): void {
    if (this.info) void this.library.rescan();
  }

  #removedText(model: LibraryModel, { freed_bytes, stays }: Removal): string {
    const t = this.locale.t.library;
    const [place] = stays;
    return place ? t.removedStays(model.name, t.program[place.program], size(freed_bytes)) : t.removedFreed(model.name, size(freed_bytes));
  }

  /** Stays until it is closed, as those found at start do. */
  #notice(notice: Failure): void {
    if (this.info) this.info = { ...this.info, notices: [...this.info.notices, notice] };
  }

  #dragged(drag: Drag): void {
    this.isDragging = drag.type === 'over';
    if (drag.type !== 'dropped' || drag.paths.length === 0) return;
    this.router.go('library');
    void this.addPaths(drag.paths);
  }

  async copy(text: string, said?: string): Promise<void> {
    await copyText(text);
    if (said) this.notes.show({ text: said });
  }

  /** Before the lists are asked for, so that no change falls in between; what they say is newer anyway. */
  #subscribe(): void {
    if (this.#isSubscribed) return;
    this.#isSubscribed = true;
    this.backend.subscribe((event) => this.apply(event)).catch((thrown: unknown) => {
      this.#isSubscribed = false;
      this.notes.show({ text: this.locale.text(asFailure(thrown).message), tone: 'danger' });
    });
  }

  #toChat(): void {
    this.router.go('chat');
    this.composerFocus += 1;
  }

  #arrived(model: LibraryModel, thenChat: boolean): void {
    if (thenChat && !this.conversation.isBusy && model.refusal === null) {
      void this.chatWith(model.id);
      return;
    }
    this.notes.show({ text: this.locale.t.download.ready(model.name), tone: 'ok', action: { label: this.locale.t.library.chat, run: () => void this.chatWith(model.id) } });
  }

  async #prepare(): Promise<boolean> {
    if (this.runtime.readyId !== null) return true;
    if (this.runtime.pending) return this.runtime.pending;
    const model = this.runtime.preferred(this.library.usable);
    return model !== null && (await this.load(model.id));
  }

  /** Takes a removal back that has not begun, as Undo does. */
  #keep(modelId: string): boolean {
    if (!this.library.isPending(modelId)) return false;
    this.library.unhide(modelId);
    this.notes.dismiss();
    return true;
  }

  /** The settings show it beside the field; elsewhere, and when they have just been left, a note does. */
  #settingRefused(failure: Failure): void {
    if (this.router.view !== 'settings') this.notes.show({ text: this.locale.text(failure.message), tone: 'danger' });
  }

  #adoptInfo(info: AppInfo): void {
    if (info.hub_url !== this.info?.hub_url) {
      this.search.reset();
      this.modelPage.close();
    }
    this.info = info;
    this.settings.adopt(info.settings);
  }
}

const KEY = Symbol('app');

export function provideApp(app: App): void {
  setContext(KEY, app);
}

export function useApp(): App {
  return getContext(KEY);
}
