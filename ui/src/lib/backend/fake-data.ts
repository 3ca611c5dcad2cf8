/** What the fake backend starts with: an invented hub, machine, library and chats. */

import type { Chat, ChatSummary, Download, Failure, FileRole, ForeignModel, Hardware, HubModel, HubSource, LibraryFile, LibraryFolder, LibraryModel, MachineRates, Message, Outcome, Program, Settings, Text, Tuning } from '../wire';
import type { FakeModel } from './fake-plans';

const GIB = 1024 ** 3;
const DAY_MS = 86_400_000;

export const defaultSettings: Settings = {
  language: 'system',
  theme: 'system',
  hub_url: '',
  hub_kind: 'hugging_face',
  proxy: { kind: 'system', address: '' },
  token_mirrors: [],
  models_dir: '',
  max_download_bytes_per_s: 0,
  connections_per_file: 8,
  downloads_at_once: 1,
  sampling: { temperature: null, top_k: null, top_p: null, min_p: null, repeat_penalty: null, presence_penalty: null, frequency_penalty: null, seed: null, max_tokens: null },
  system_prompt: '',
};

export function fakeHardware(withGpu: boolean, unusable: Text | null = null): Hardware {
  return {
    cpu: { name: 'AMD Ryzen 5 5600X', n_physical_cores: 6, n_logical_cores: 12, n_performance_cores: 6, n_allowed_cores: 6, isa: 'avx2' },
    ram_total_bytes: 31.9 * GIB,
    ram_available_bytes: 24.5 * GIB,
    ram_modules: { n: 2, mega_transfers_per_s: 3200 },
    swap_total_bytes: 2 * GIB,
    swap_used_bytes: 0,
    gpus: withGpu ? [{ index: 0, name: 'NVIDIA GeForce RTX 2060', vram_total_bytes: 6 * GIB, vram_free_bytes: 5.5 * GIB, driver: '572.16', load_percent: 3, temperature_c: 46, unusable }] : [],
    gpu_probe: withGpu ? { type: 'found' } : { type: 'no_driver' },
    disk: { path: '/home/me/.local/share/tandem/models', total_bytes: 465 * GIB, free_bytes: 214 * GIB, kind: 'solid' },
    os: 'Debian GNU/Linux 12',
    measured: { rates: null, corrections: [] },
  };
}

export function fakeTuning(modelId: string): Tuning {
  const trial = (n_threads: number, n_batch: number, kv_type: string, prompt: number, answer: number): Tuning['trials'][number] => ({ n_threads, n_batch, kv_type, file_use: 'read_ahead', prompt_tokens_per_s: prompt, tokens_per_s: answer, is_safe: true });
  const trials = [trial(6, 512, 'f16', 108, 17.6), trial(5, 512, 'f16', 96, 17.9), trial(6, 128, 'f16', 101, 17.5), trial(6, 512, 'q8_0', 107, 18.4)];
  return { model_id: modelId, machine: fakeRates.machine, context_length: 0, at_ms: Date.now(), took_ms: 38_000, n_threads: 6, n_batch: 512, kv_type: 'q8_0', file_use: 'read_ahead', tokens_per_s: 18.4, trials, not_tried: [{ en: 'Layers of experts on the card were not tried: the processor computes alone.', zh: '未试运行“专家层放在显卡”：仅由处理器计算。' }] };
}

export const noTemplate: Text = { en: 'this model has no chat template; the ChatML format is used, and answers may be worse', zh: '该模型没有聊天模板；改用 ChatML 格式，回答质量可能下降' };

export const cardLost: Failure = { code: 'gpu_failed', message: { en: 'the graphics card or its driver is gone: CUDA_ERROR_UNKNOWN', zh: '显卡或其驱动已断开：CUDA_ERROR_UNKNOWN' }, hint: { en: 'go on with the processor alone: slower, and nothing is lost', zh: '改用处理器继续：速度较慢，但不会丢失内容' } };
export const oldDriver: Text = { en: 'the NVIDIA driver is too old (CUDA 11.8): 525 or newer is needed', zh: 'NVIDIA 驱动太旧（CUDA 11.8），需要 525 或更新的版本' };

export const tight: Text = {
  en: 'Memory is short: the context is 2k instead of 8k, the KV cache is q8_0 instead of f16.',
  zh: '内存不足：上下文为 2k，而非 8k，KV 缓存为 q8_0，而非 f16。',
};
export const roomy: Text = {
  en: 'Memory is free again: a context of 8k with its cache in f16 fits now.',
  zh: '内存已空出：现在可用 8k 上下文和 f16 缓存。',
};

export const fakeRates: MachineRates = {
  machine: 'AMD Ryzen 5 5600X, avx2, 6/6/6 cores, 32 GiB',
  at_ms: Date.now() - DAY_MS,
  took_ms: 6200,
  memory: [1, 2, 4, 6].map((n_threads) => ({ n_threads, bytes_per_s: Math.min(41e9, n_threads * 17e9) })),
  kernels: ['Q4_K', 'Q6_K', 'Q8_0'].map((tensor_type) => ({ tensor_type, one_thread_bytes_per_s: 11e9, one_thread_twice_bytes_per_s: 8e9, all_threads_bytes_per_s: 38e9, all_threads_twice_bytes_per_s: 31e9, n_threads: 6, cached_bytes_per_s: 13e9, prompt_ops_per_s: 62e9, all_threads_prompt_ops_per_s: 340e9 })),
  layer_s: 9e-6,
  layer_s_per_value: 4e-9,
  product_s: 6e-6,
  row_s: 1e-9,
  attention_bytes_per_s: 22e9,
  disk_bytes_per_s: 2.9e9,
  cards: [],
};

export function fakeOutcomes(): Outcome[] {
  const outcome = (model: string, predicted: number, measured: number): Outcome => ({ at_ms: Date.now(), model, class: 'qwen3moe Q4_K_M', machine: fakeRates.machine, is_measured: true, n_threads: 6, n_context_tokens: 640, predicted_tokens_per_s: predicted, uncorrected_tokens_per_s: predicted, tokens_per_s: measured, n_prompt_tokens: 0, predicted_prompt_tokens_per_s: 110, uncorrected_prompt_tokens_per_s: 110, prompt_tokens_per_s: 0 });
  return [outcome('Qwen3 30B-A3B 2507', 17.6, 18.2), outcome('Qwen3 30B-A3B 2507', 17.1, 18.0), outcome('SmolLM2 135M Instruct', 214, 196), outcome('Ministral 3 8B', 7.4, 7.4)];
}

/** A hub repo and what the fake planner needs to know of it. */
export type FakeRepo = { model: HubModel; facts: FakeModel; quants: [quant: string, gib: number][]; failure?: Failure; projectorGib?: number };

export const sources: HubSource[] = [
  { name: 'Hugging Face', url: 'https://huggingface.co', kind: 'hugging_face', is_origin: true },
  { name: 'hf-mirror', url: 'https://hf-mirror.com', kind: 'hugging_face', is_origin: false },
  { name: 'ModelScope', url: 'https://modelscope.cn', kind: 'model_scope', is_origin: false },
];

export const gptq: ForeignModel = {
  formats: ['gptq', 'safetensors'],
  why: { en: 'GPTQ packs weights for graphics cards that hold the whole model; it cannot be shared with memory, which is what Tandem does', zh: 'GPTQ 的权重是为能放下整个模型的显卡打包的，无法像 Tandem 那样由显卡和内存分担' },
  engines: [
    { name: 'vLLM', url: 'https://docs.vllm.ai', needs: { en: 'a graphics card that holds the whole model', zh: '需要能放下整个模型的显卡' } },
    { name: 'Transformers', url: 'https://huggingface.co/docs/transformers', needs: { en: 'Python and PyTorch; runs almost everything, slowly without a large card', zh: '需要 Python 和 PyTorch；几乎都能运行，没有大显存时较慢' } },
  ],
};

export const noKeyStore: Failure = {
  code: 'no_key_store',
  message: { en: 'the system has no key store, or it does not open', zh: '系统没有密钥库，或者无法打开' },
  hint: { en: 'use the token until Tandem is closed, or keep it in a file that only you can read', zh: '仅在 Tandem 关闭前使用此令牌，或保存到只有你能读取的文件中' },
};

export const noGguf: Failure = {
  code: 'no_gguf_in_repo',
  message: { en: 'This repository holds safetensors packed with GPTQ, no GGUF file.', zh: '此仓库存放的是 GPTQ 打包的 safetensors，没有 GGUF 文件。' },
  hint: { en: 'Search for the same name with “GGUF” behind it.', zh: '在名称后加上“GGUF”再搜索。' },
};

/** A repo one of whose versions lacks a shard. */
export const INCOMPLETE_REPO = 'unsloth/Qwen3-Coder-Next-80B-GGUF';

export const incomplete: Failure = {
  code: 'not_found',
  message: { en: 'the repository lacks 1 of this version\'s 2 files: `Qwen3-Coder-Next-80B-Q4_K_M-00002-of-00002.gguf`', zh: '此版本共 2 个文件，仓库中缺少 1 个：`Qwen3-Coder-Next-80B-Q4_K_M-00002-of-00002.gguf`' },
  hint: { en: 'choose another version of this model', zh: '请选择该模型的其他版本' },
};

export const gated: Failure = {
  code: 'token_missing',
  message: { en: 'the publisher of `google/gemma-4-26B-A4B-it-GGUF` gives it only to accounts that have accepted its licence', zh: '`google/gemma-4-26B-A4B-it-GGUF` 的发布者只向接受了许可协议的账号提供文件' },
  hint: { en: 'open https://huggingface.co/google/gemma-4-26B-A4B-it-GGUF and accept the licence, make an access token at https://huggingface.co/settings/tokens, and enter it in the settings', zh: '打开 https://huggingface.co/google/gemma-4-26B-A4B-it-GGUF 接受许可协议，在 https://huggingface.co/settings/tokens 新建访问令牌，然后填入设置' },
};

export const offline: Failure = {
  code: 'no_network',
  message: { en: 'huggingface.co does not answer.', zh: 'huggingface.co 没有响应。' },
  hint: { en: 'Check the connection, or use the mirror hf-mirror.com.', zh: '请检查网络连接，或使用镜像 hf-mirror.com。' },
};

function hubModel(id: string, nParams: number, downloads: number, extra: Partial<HubModel> = {}): HubModel {
  return { id, downloads, likes: Math.round(downloads / 900), gated: false, last_modified: new Date(Date.now() - 3 * DAY_MS).toISOString(), tags: ['gguf', 'text-generation'], license: 'apache-2.0', architecture: 'llama', n_params: nParams, context_length: 131072, ...extra };
}

const MOE_QUANTS: [string, number][] = [
  ['UD-IQ3_XXS', 12.3],
  ['Q3_K_M', 15.7],
  ['IQ4_XS', 17.7],
  ['Q4_K_M', 19.8],
  ['Q5_K_M', 23.1],
  ['Q6_K', 26.6],
  ['Q8_0', 34.5],
];
const DENSE_8B: [string, number][] = [
  ['Q3_K_M', 3.7],
  ['Q4_K_M', 4.6],
  ['Q5_K_M', 5.3],
  ['Q6_K', 6.1],
  ['Q8_0', 8.0],
];

function repo(model: HubModel, facts: Omit<FakeModel, 'name' | 'architecture' | 'n_params' | 'context_length'>, quants: [string, number][], rest: { failure?: Failure; projectorGib?: number } = {}): FakeRepo {
  return {
    model,
    facts: { name: model.id, architecture: model.architecture ?? 'llama', n_params: model.n_params ?? 1, context_length: model.context_length ?? 8192, ...facts },
    quants,
    ...rest,
  };
}

export const repos: FakeRepo[] = [
  repo(hubModel('unsloth/Qwen3.6-35B-A3B-GGUF', 35e9, 1_240_000, { architecture: 'qwen3moe', context_length: 262144 }), { n_active: 3e9, n_layers: 40 }, MOE_QUANTS, { projectorGib: 0.9 }),
  repo(hubModel('ggml-org/gpt-oss-20b-GGUF', 21e9, 812_000, { architecture: 'gpt-oss' }), { n_active: 3.6e9, n_layers: 24 }, [['MXFP4', 11.3]]),
  repo(hubModel('HuggingFaceTB/SmolLM2-135M-Instruct-GGUF', 135e6, 960_000, { context_length: 8192 }), { n_active: 135e6, n_layers: 30 }, [['Q4_1', 0.09], ['Q8_0', 0.14]]),
  repo(hubModel('bartowski/Ministral-3-8B-Instruct-GGUF', 8e9, 540_000), { n_active: 8e9, n_layers: 34 }, DENSE_8B),
  repo(hubModel('google/gemma-4-26B-A4B-it-GGUF', 26e9, 433_000, { architecture: 'gemma4', license: 'gemma', gated: true }), { n_active: 4e9, n_layers: 30 }, [], { failure: gated }),
  repo(hubModel('unsloth/Qwen3-Coder-Next-80B-GGUF', 80e9, 408_000, { architecture: 'qwen3next', context_length: 262144 }), { n_active: 3e9, n_layers: 48 }, [['UD-Q2_K_XL', 28.6], ['Q4_K_M', 45.2]]),
  repo(hubModel('LiquidAI/LFM2-8B-A1B-GGUF', 8.3e9, 154_000, { architecture: 'lfm2moe', context_length: 32768 }), { n_active: 1.5e9, n_layers: 24 }, [['Q4_K_M', 4.7], ['Q8_0', 8.2]]),
  repo(hubModel('Qwen/Qwen3.6-35B-GPTQ-Int4', 35e9, 88_000, { tags: ['gptq'], architecture: null }), { n_active: 3e9, n_layers: 40 }, [], { failure: noGguf }),
];

export function libraryModel(id: string, name: string, quant: string, gib: number, extra: Partial<LibraryModel> = {}): LibraryModel {
  const path = extra.path ?? `/home/me/.local/share/tandem/models/${name}-${quant}.gguf`;
  const size_bytes = Math.round(gib * GIB);
  const sha256 = extra.integrity === 'unverified' ? null : 'b'.repeat(64);
  return { id, name, quant, architecture: 'llama', path, size_bytes, n_params: 8e9, context_length: 32768, integrity: 'verified', source: null, refusal: null, added_at_ms: Date.now() - DAY_MS, files: [{ path, role: 'model', size_bytes, modified_ms: 0, expected_sha256: sha256, sha256 }], places: [{ path, program: 'tandem', folder: '/home/me/.local/share/tandem/models', title: null }], newer: null, ...extra };
}

/** A model of another program, used in place. */
function foreign(program: Program, folder: string, path: string): Pick<LibraryModel, 'path' | 'places' | 'integrity'> {
  return { integrity: 'unverified', path: `${folder}/${path}`, places: [{ path: `${folder}/${path}`, program, folder, title: null }] };
}

const LM_STUDIO = '/home/me/.lmstudio/models';
const OLLAMA = '/usr/share/ollama/.ollama/models';

export function fakeFolders(): LibraryFolder[] {
  const denied: Failure = { code: 'io', message: { en: '`/home/me/.lmstudio/models/old` cannot be read: access is denied', zh: '无法读取 `/home/me/.lmstudio/models/old`：没有权限' }, hint: { en: 'change the folder\'s permissions, or choose another folder', zh: '修改文件夹权限，或者换一个文件夹' } };
  return [
    { path: LM_STUDIO, program: 'lm_studio', is_used: true, n_models: 1, size_bytes: 17.3 * GIB, problems: [denied] },
    { path: OLLAMA, program: 'ollama', is_used: true, n_models: 1, size_bytes: 5.3 * GIB, problems: [] },
    { path: '/home/me/.cache/huggingface/hub', program: 'hugging_face', is_used: false, n_models: 12, size_bytes: 84.2 * GIB, problems: [] },
    { path: '/home/me/.local/share/Jan/data/llamacpp/models', program: 'jan', is_used: false, n_models: 1, size_bytes: 4.7 * GIB, problems: [] },
  ];
}

export function fakeLibrary(): LibraryModel[] {
  const qwen = foreign('lm_studio', LM_STUDIO, 'Qwen/Qwen3-30B-A3B-2507-GGUF/Qwen3-30B-A3B-2507-Q4_K_M-00001-of-00002.gguf');
  const file = (path: string, role: FileRole, gib: number): LibraryFile => ({ path, role, size_bytes: gib * GIB, modified_ms: 0, expected_sha256: null, sha256: null });
  const newer = { repo: 'bartowski/Ministral-3-8B-Instruct-GGUF', commit: 'c'.repeat(40), path: 'Ministral-3-8B-Instruct-Q5_K_M.gguf', size_bytes: 5.3 * GIB, sha256: 'd'.repeat(64), hash_word: { type: 'unknown' } as const };
  return [
    libraryModel('smollm2', 'SmolLM2 135M Instruct', 'Q4_1', 0.0913, { n_params: 135e6, context_length: 8192 }),
    libraryModel('qwen3-30b', 'Qwen3 30B-A3B 2507', 'Q4_K_M', 17.3, {
      ...qwen,
      n_params: 30.5e9,
      architecture: 'qwen3moe',
      context_length: 262144,
      files: [file(qwen.path, 'model', 9.3), file(qwen.path.replace('00001-of', '00002-of'), 'model', 8), file(`${LM_STUDIO}/Qwen/Qwen3-30B-A3B-2507-GGUF/mmproj-F16.gguf`, 'projector', 0.9)],
    }),
    libraryModel('ministral-8b', 'Ministral 3 8B', 'Q5_K_M', 5.3, { newer }),
    libraryModel('lfm2', 'LFM2 8B-A1B', 'Q4_K_M', 4.7, { n_params: 8.3e9, architecture: 'lfm2moe', source: fakeDownloads()[4]!.files[0]! }),
    libraryModel('gemma3', 'gemma3:4b', 'Q4_K_M', 5.3, { ...foreign('ollama', OLLAMA, `blobs/sha256-${'e'.repeat(64)}`), architecture: 'gemma3' }),
    libraryModel('nemotron', 'Nemotron 3 Nano 30B', 'IQ4_XS', 15.9, { architecture: 'nemotron_h_moe', integrity: 'mismatched', refusal: { code: 'unknown_architecture', message: { en: 'The architecture `nemotron_h_moe` does not run here yet.', zh: '架构 `nemotron_h_moe` 暂不支持。' }, hint: { en: 'Pick a model of another family.', zh: '请选择其他系列的模型。' } } }),
  ];
}

export function fakeDownloads(): Download[] {
  const item = (id: string, repoId: string, quant: string, gib: number, arrived: number, verified: number, rest: Partial<Download>): Download => ({
    id,
    files: [{ repo: repoId, commit: 'a'.repeat(40), path: `${repoId.split('/')[1]}-${quant}.gguf`, size_bytes: gib * GIB, sha256: 'b'.repeat(64), hash_word: { type: 'hub', host: 'huggingface.co' } }],
    quant,
    size_bytes: gib * GIB,
    arrived_bytes: arrived * GIB,
    verified_bytes: verified * GIB,
    n_repaired: 0,
    state: 'running',
    bytes_per_s: 0,
    seconds_left: null,
    failure: null,
    ...rest,
  });
  return [
    item('d1', 'unsloth/Qwen3.6-35B-A3B-GGUF', 'Q4_K_M', 19.8, 8.4, 8.1, { bytes_per_s: 11.2 * 1024 ** 2, seconds_left: 1040 }),
    item('d2', 'unsloth/gemma-4-26B-A4B-it-GGUF', 'IQ4_XS', 13.3, 5.1, 5.1, { state: 'paused' }),
    item('d3', 'unsloth/GLM-4.7-Flash-GGUF', 'Q4_K_M', 17.2, 12.2, 12.2, { state: 'failed', failure: { code: 'disk_full', message: { en: 'The disk needs 5.0\u00a0GB more. What is there is kept.', zh: '磁盘还差 5.0\u00a0GB，已下载的部分会保留。' }, hint: { en: 'Free some space, then resume.', zh: '请释放空间后继续。' } } }),
    item('d4', 'ggml-org/gpt-oss-20b-GGUF', 'MXFP4', 11.3, 11.3, 7.0, { state: 'verifying' }),
    item('d5', 'LiquidAI/LFM2-8B-A1B-GGUF', 'Q4_K_M', 4.7, 4.7, 4.7, { state: 'done' }),
    item('d6', 'unsloth/Ministral-3-8B-GGUF', 'Q6_K', 6.1, 0, 0, { state: 'queued' }),
    item('d7', 'unsloth/granite-4.0-h-tiny-GGUF', 'Q4_K_M', 3.9, 1.2, 1.2, { state: 'retrying', failure: { code: 'no_network', message: { en: '`huggingface.co` does not answer', zh: '`huggingface.co` 没有响应' }, hint: { en: 'check the internet connection and proxy', zh: '检查网络和代理' } } }),
    item('d8', 'unsloth/OLMoE-1B-7B-GGUF', 'Q8_0', 6.9, 6.9, 2.4, { state: 'repairing' }),
  ];
}

export const ANSWER = `A B-tree index cannot serve \`LIKE '%word%'\`, because the pattern has no fixed start. A **trigram index** can: it stores every run of three characters and visits only rows that share them.

\`\`\`sql
create extension if not exists pg_trgm;
create index concurrently notes_body_trgm
  on notes using gin (body gin_trgm_ops);  -- does not block writes
select id from notes where body ilike '%tandem%' limit 50;
\`\`\`

Expect 20 to 60 ms for words of four letters or more.`;

export const SECOND_ANSWER = `Then trigrams fall short: a two-character word yields no complete trigram, and the planner goes back to reading every row. Two ways are common:

- **Bigrams.** The extension \`pg_bigm\` indexes runs of two characters, which is what most Chinese words are. The index is larger, and short patterns stay fast.
- **Segmentation.** \`zhparser\` splits text into words first and feeds a normal full-text index. Ranking gets better, but a word the dictionary does not know is not found.

For notes of your own, start with \`pg_bigm\`: it needs no dictionary and finds what you type, letter for letter.

| | index size | finds parts of words |
|---|---|---|
| pg_trgm | 1.0 | from three characters |
| pg_bigm | 1.6 | from two characters |
| zhparser | 0.7 | no |`;

export const REASONING = `The user has a leading wildcard. A B-tree sorts by prefix, so it cannot help. Options: trigram GIN index, full-text search, or a search engine. At two million rows a trigram index is the smallest change. Mention concurrently so that writes go on, and what to expect afterwards.`;

function message(id: number, parent: number | null, role: Message['role'], text: string, extra: Partial<Message> = {}): Message {
  return { id, parent, role, text, reasoning: '', created_at_ms: Date.now() - 3_600_000 + id * 1000, model: role === 'assistant' ? 'Qwen3.6 35B-A3B' : null, end: role === 'assistant' ? 'complete' : null, stats: null, ...extra };
}

export function fakeChats(): Chat[] {
  const title = (id: number, text: string, daysAgo: number, n = 4): ChatSummary => ({ id, title: text, updated_at_ms: Date.now() - daysAgo * DAY_MS, n_messages: n });
  const stats = { n_prompt_tokens: 318, n_reused_tokens: 305, n_generated_tokens: 412, prompt_ms: 120, generation_ms: 22_600, prompt_tokens_per_s: 108, generation_tokens_per_s: 18.2, first_token_ms: 420 };
  const postgres: Chat = {
    summary: title(1, 'Slow LIKE query in Postgres', 0, 6),
    messages: [
      message(50, null, 'system', ''),
      message(1, 50, 'user', "`LIKE '%word%'` takes four seconds on 2 million rows. Why?"),
      message(2, 1, 'assistant', 'Because the pattern has no fixed start.', { stats }),
      message(3, 50, 'user', "`LIKE '%word%'` takes four seconds on 2 million rows. What should I index?"),
      message(4, 3, 'assistant', ANSWER, { stats, reasoning: REASONING }),
    ],
    leaf: 4,
  };
  const rest: [string, number][] = [
    ['Reading list for autumn', 0],
    ['Regex for ISO dates', 1],
    ['Letter to the landlord', 1],
    ['Sourdough at 18\u00a0°C', 1],
    ['Rust lifetimes, once more', 4],
    ['Translate the warranty', 5],
    ['成都之行', 6],
    ['Explain heteroscedasticity', 20],
  ];
  return [
    postgres,
    ...rest.map(([text, days], index) => ({
      summary: title(index + 2, text, days, 2),
      messages: [message(60 + index, null, 'system', ''), message(100 + index * 2, 60 + index, 'user', text), message(101 + index * 2, 100 + index * 2, 'assistant', 'A short answer.', { stats, end: index === 1 ? 'stopped' : 'complete' })],
      leaf: 101 + index * 2,
    })),
  ];
}
