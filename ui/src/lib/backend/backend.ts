/** Everything the window asks of the app: one method per command, under the command's own name. */

import type {
  AddedPaths,
  AppEvent,
  AppInfo,
  Chat,
  ChatEvent,
  ChatSummary,
  Download,
  DownloadRequest,
  Failure,
  Hardware,
  HubModel,
  LeafRequest,
  LibraryFolder,
  LibraryModel,
  LoadEvent,
  LoadRequest,
  ModelPage,
  MoveDownloadRequest,
  Plan,
  PlanVersionsRequest,
  PlannedVersion,
  PlannedVersions,
  Predictions,
  Removal,
  RemoveRequest,
  RenameRequest,
  RepoFile,
  SearchPage,
  SearchRequest,
  SendRequest,
  Settings,
  SourceProbe,
  TokenRequest,
  TokenState,
  UpdatesFound,
  VerifyProgress,
  TuneEvent,
  Tuning,
} from '../wire';

/** Receives what a command reports while it runs. */
export type Sink<T> = (event: T) => void;

/** Rejections are always a `Failure`. */
export interface Backend {
  app_info(): Promise<AppInfo>;
  set_settings(settings: Settings): Promise<AppInfo>;
  hardware(): Promise<Hardware>;
  predictions(): Promise<Predictions>;
  start_calibration(): Promise<void>;
  skip_calibration(): Promise<void>;
  probe_sources(): Promise<SourceProbe[]>;
  confirm_hashes(files: RepoFile[]): Promise<RepoFile[]>;
  token(): Promise<TokenState>;
  check_token(): Promise<TokenState>;
  set_token(request: TokenRequest): Promise<TokenState>;
  remove_token(): Promise<TokenState>;
  search_models(request: SearchRequest): Promise<SearchPage>;
  gguf_versions(repo: string): Promise<HubModel[]>;
  model_page(repo: string): Promise<ModelPage>;
  plan_versions(request: PlanVersionsRequest, events: Sink<PlannedVersion>): Promise<PlannedVersions>;
  /** The page of a model was left: what is being read for it ends. */
  stop_planning(): Promise<void>;
  plan_model(request: LoadRequest): Promise<Plan>;
  downloads(): Promise<Download[]>;
  start_download(request: DownloadRequest): Promise<Download>;
  pause_download(id: string): Promise<void>;
  resume_download(id: string): Promise<void>;
  cancel_download(id: string): Promise<void>;
  move_download(request: MoveDownloadRequest): Promise<Download[]>;
  library(): Promise<LibraryModel[]>;
  rescan_library(): Promise<LibraryModel[]>;
  add_model(path: string): Promise<LibraryModel>;
  add_paths(paths: string[]): Promise<AddedPaths>;
  library_folders(): Promise<LibraryFolder[]>;
  use_folder(path: string): Promise<LibraryFolder>;
  drop_folder(path: string): Promise<void>;
  verify_model(modelId: string, events: Sink<VerifyProgress>): Promise<LibraryModel>;
  stop_verify(modelId: string): Promise<void>;
  check_updates(): Promise<UpdatesFound>;
  plan_removal(request: RemoveRequest): Promise<Removal>;
  remove_model(request: RemoveRequest): Promise<Removal>;
  load_model(request: LoadRequest, events: Sink<LoadEvent>): Promise<void>;
  unload_model(): Promise<void>;
  tuning(request: LoadRequest): Promise<Tuning | null>;
  tune_model(request: LoadRequest, events: Sink<TuneEvent>): Promise<void>;
  stop_tuning(): Promise<void>;
  forget_tuning(modelId: string): Promise<void>;
  chats(): Promise<ChatSummary[]>;
  chat(chatId: number): Promise<Chat>;
  rename_chat(request: RenameRequest): Promise<ChatSummary>;
  delete_chat(chatId: number): Promise<void>;
  restore_chat(chatId: number): Promise<void>;
  set_leaf(request: LeafRequest): Promise<Chat>;
  send_message(request: SendRequest, events: Sink<ChatEvent>): Promise<void>;
  stop_answer(): Promise<void>;
  subscribe(events: Sink<AppEvent>): Promise<void>;
}

/** What was thrown, as a failure a person can read. */
export function asFailure(thrown: unknown): Failure {
  if (isFailure(thrown)) return thrown;
  const words = thrown instanceof Error ? thrown.message : String(thrown);
  return {
    code: 'engine_failed',
    message: { en: `The app did not answer as expected: ${words}`, zh: `应用的回应不符合预期：${words}` },
    hint: { en: 'Try again; if it stays, start Tandem anew.', zh: '请重试；如果仍然出现，重新启动 Tandem。' },
  };
}

function isFailure(value: unknown): value is Failure {
  return typeof value === 'object' && value !== null && 'code' in value && 'message' in value && 'hint' in value;
}
