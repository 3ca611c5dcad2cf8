/** The real backend: Tauri's IPC. The only file that knows the window's shell. */

import { Channel, invoke } from '@tauri-apps/api/core';
import { asFailure, type Backend, type Sink } from './backend';

/** Sends a command; `request` and `events` are its only two arguments. */
async function call<T>(command: string, args: { request?: unknown; events?: unknown } = {}): Promise<T> {
  try {
    return await invoke<T>(command, args);
  } catch (thrown) {
    throw asFailure(thrown);
  }
}

function channel<T>(sink: Sink<T>): Channel<T> {
  const events = new Channel<T>();
  events.onmessage = sink;
  return events;
}

export const tauriBackend: Backend = {
  app_info: () => call('app_info'),
  set_settings: (request) => call('set_settings', { request }),
  hardware: () => call('hardware'),
  predictions: () => call('predictions'),
  start_calibration: () => call('start_calibration'),
  skip_calibration: () => call('skip_calibration'),
  probe_sources: () => call('probe_sources'),
  confirm_hashes: (request) => call('confirm_hashes', { request }),
  token: () => call('token'),
  check_token: () => call('check_token'),
  set_token: (request) => call('set_token', { request }),
  remove_token: () => call('remove_token'),
  search_models: (request) => call('search_models', { request }),
  gguf_versions: (request) => call('gguf_versions', { request }),
  model_page: (request) => call('model_page', { request }),
  plan_versions: (request, sink) => call('plan_versions', { request, events: channel(sink) }),
  stop_planning: () => call('stop_planning'),
  plan_model: (request) => call('plan_model', { request }),
  downloads: () => call('downloads'),
  start_download: (request) => call('start_download', { request }),
  pause_download: (request) => call('pause_download', { request }),
  resume_download: (request) => call('resume_download', { request }),
  cancel_download: (request) => call('cancel_download', { request }),
  move_download: (request) => call('move_download', { request }),
  library: () => call('library'),
  rescan_library: () => call('rescan_library'),
  add_model: (request) => call('add_model', { request }),
  add_paths: (request) => call('add_paths', { request }),
  library_folders: () => call('library_folders'),
  use_folder: (request) => call('use_folder', { request }),
  drop_folder: (request) => call('drop_folder', { request }),
  verify_model: (request, sink) => call('verify_model', { request, events: channel(sink) }),
  stop_verify: (request) => call('stop_verify', { request }),
  check_updates: () => call('check_updates'),
  plan_removal: (request) => call('plan_removal', { request }),
  remove_model: (request) => call('remove_model', { request }),
  load_model: (request, sink) => call('load_model', { request, events: channel(sink) }),
  unload_model: () => call('unload_model'),
  tuning: (request) => call('tuning', { request }),
  tune_model: (request, sink) => call('tune_model', { request, events: channel(sink) }),
  stop_tuning: () => call('stop_tuning'),
  forget_tuning: (request) => call('forget_tuning', { request }),
  chats: () => call('chats'),
  chat: (request) => call('chat', { request }),
  rename_chat: (request) => call('rename_chat', { request }),
  delete_chat: (request) => call('delete_chat', { request }),
  restore_chat: (request) => call('restore_chat', { request }),
  set_leaf: (request) => call('set_leaf', { request }),
  send_message: (request, sink) => call('send_message', { request, events: channel(sink) }),
  stop_answer: () => call('stop_answer'),
  subscribe: (sink) => call('subscribe', { events: channel(sink) }),
};
