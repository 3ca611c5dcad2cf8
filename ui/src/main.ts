/** Opens the window: picks the backend, starts the app's state, draws it. */

import { mount } from 'svelte';
import './styles/tokens.css';
import './styles/components.css';
import './styles/app.css';
import Window from './App.svelte';
import type { Backend } from './lib/backend/backend';
import { App } from './lib/state/app.svelte';

/** The fake is a module of its own that only a build in mode `fake` contains. */
async function backend(): Promise<Backend> {
  if (import.meta.env.MODE === 'fake') return (await import('./fake-window')).open();
  return (await import('./lib/backend/tauri')).tauriBackend;
}

const app = new App(await backend());
mount(Window, { target: document.getElementById('app')!, props: { app } });
await app.start();
