/** Plans for the fake backend: a rough planner over invented models, so that figures agree with each other on every page. */

import type { BarPart, CardMemory, ContextStep, Hardware, Plan, PlanLayer, QualityLoss, Verdict, Wishes } from '../wire';
import { NO_WISHES } from '../wishes';

const GIB = 1024 ** 3;

/** What the fake planner knows of a model. */
export type FakeModel = {
  name: string;
  architecture: string;
  n_params: number;
  /** Parameters read per token; fewer than `n_params` in a mixture of experts. */
  n_active: number;
  n_layers: number;
  context_length: number;
};

const LOSS: Record<string, QualityLoss> = { Q8_0: 'none', Q6_K: 'none', Q5_K_M: 'small', Q4_K_M: 'small', Q4_K_S: 'small', IQ4_XS: 'small', Q3_K_M: 'noticeable', 'UD-IQ3_XXS': 'noticeable', Q2_K: 'strong' };
const KV_SHARE: Record<string, number> = { f16: 1, q8_0: 0.53, q4_0: 0.28 };

/** A plan for this model at this size on this machine. */
export function fakePlan(model: FakeModel, quant: string, sizeBytes: number, file: string, hardware: Hardware, wishes: Wishes = NO_WISHES): Plan {
  const lengths = [2048, 4096, 8192, 16_384, 32_768, 65_536, 131_072, 262_144].filter((length) => length <= model.context_length);
  const at = (length: number): Plan => planAt(model, quant, sizeBytes, file, hardware, length, wishes.kv_type ?? 'f16');
  const contexts = lengths.map((length): ContextStep => {
    const plan = at(length);
    return { context_length: length, kv_bytes: kvBytes(length, plan.kv_type), kv_type: plan.kv_type, n_layers_on_gpu: 0, generation_tokens_per_s: plan.speed.generation_tokens_per_s, verdict: plan.verdict };
  });
  const usable = contexts.findLast(({ verdict }) => verdict !== 'too_large')?.context_length ?? 0;
  const wanted = Math.min(wishes.context_length ?? (wishes.aim === 'longer_context' ? usable : 8192), model.context_length);
  const length = usable > 0 ? Math.min(wanted, usable) : wanted;
  const unmet = wishes.context_length !== null && length < wishes.context_length;
  const warnings = unmet ? [{ en: `A context of ${wishes.context_length} tokens does not work here; ${length} does.`, zh: `${wishes.context_length} 个词元的上下文在这里不可行，改为 ${length} 个。` }] : [];
  return { ...at(length), contexts, usable_context_length: usable, warnings };
}

function kvBytes(length: number, type: string): number {
  return (0.2 * GIB * length * (KV_SHARE[type] ?? 1)) / 8192;
}

function planAt(model: FakeModel, quant: string, sizeBytes: number, file: string, hardware: Hardware, length: number, kvType: string): Plan {
  const gpu = hardware.gpus[0];
  const isMoe = model.n_active < model.n_params;
  const kv = kvBytes(length, kvType);
  const context = `${length / 1024}k`;
  const buffers = 0.7 * GIB;
  const attention = sizeBytes * (isMoe ? 0.066 : 1);
  const experts = isMoe ? sizeBytes - attention - 0.3 * GIB : 0;
  const embeddings = isMoe ? 0.3 * GIB : 0;

  const vramRoom = gpu ? Math.max(0, gpu.vram_free_bytes - GIB) : 0;
  const attentionOnGpu = gpu ? Math.min(attention, Math.max(0, vramRoom - kv - buffers)) : 0;
  const expertsOnGpu = gpu ? Math.min(experts, Math.max(0, vramRoom - attentionOnGpu - kv - buffers)) : 0;
  const gpuParts: BarPart[] = gpu
    ? [
        { part: 'attention', bytes: attentionOnGpu },
        { part: 'experts', bytes: expertsOnGpu },
        { part: 'kv', bytes: kv },
        { part: 'buffers', bytes: buffers },
      ]
    : [];
  const ramParts: BarPart[] = [
    { part: isMoe ? 'experts' : 'attention', bytes: isMoe ? experts - expertsOnGpu : attention - attentionOnGpu },
    ...(gpu ? [] : [{ part: 'attention' as const, bytes: isMoe ? attention : 0 }, { part: 'kv' as const, bytes: kv }]),
    { part: 'embeddings', bytes: embeddings },
    { part: 'buffers', bytes: 0.3 * GIB },
  ];
  const others = hardware.ram_total_bytes - hardware.ram_available_bytes;
  const inRam = ramParts.reduce((sum, part) => sum + part.bytes, 0);
  const shortfall = Math.max(0, inRam - hardware.ram_available_bytes);
  const spare = hardware.ram_available_bytes - inRam;

  const readPerToken = (inRam * model.n_active) / model.n_params;
  const rate = Math.min(180, 1 / (readPerToken / (44 * GIB) + (gpu ? attentionOnGpu / (280 * GIB) : 0) + 0.006));
  const verdict: Verdict = shortfall > 0 ? 'too_large' : spare < GIB ? 'tight' : rate >= 20 ? 'fast' : rate >= 8 ? 'runs_well' : 'slow';
  const word = {
    fast: { en: 'Fast', zh: '很快' },
    runs_well: { en: 'Runs well', zh: '运行流畅' },
    slow: { en: 'Slow', zh: '较慢' },
    tight: { en: 'Tight', zh: '勉强' },
    too_large: { en: 'Too large', zh: '太大' },
  }[verdict];
  const shown = rate >= 2 ? Math.round(rate).toString() : rate.toFixed(1);
  const short = (shortfall / GIB).toFixed(1);
  const threads = hardware.cpu.n_physical_cores;
  const expertLayers = isMoe ? Math.round((expertsOnGpu / Math.max(1, experts)) * model.n_layers) : 0;

  const seconds = { card: gpu ? attentionOnGpu / (280 * GIB) : 0, weights: readPerToken / (44 * GIB) };
  const overhead = Math.max(0, 1 / rate - seconds.card - seconds.weights);

  return {
    architecture: model.architecture,
    quant,
    verdict,
    headline:
      shortfall > 0
        ? { en: `${word.en}: ${short}\u00a0GB short of memory`, zh: `${word.zh}：内存还差 ${short}\u00a0GB` }
        : { en: `${word.en}: about ${shown} tokens/s, ${context} context`, zh: `${word.zh}：每秒约 ${shown} 个词元，${context} 上下文` },
    n_layers: model.n_layers,
    n_gpu_layers: gpu ? model.n_layers + 1 : 0,
    n_cpu_moe_layers: isMoe && gpu ? model.n_layers - expertLayers : 0,
    n_threads: threads,
    context_length: length,
    max_context_length: model.context_length,
    n_batch: 512,
    kv_type: kvType,
    file_use: shortfall > 0 ? 'as_needed' : 'read_ahead',
    quality: { loss: LOSS[quant] ?? 'unknown', divergence: null },
    usable_context_length: model.context_length,
    contexts: [],
    lines: [
      ...(gpu && isMoe
        ? [
            { part: 'attention' as const, what: { en: 'Attention, router and shared experts', zh: '注意力、路由与共享专家' }, bytes: attentionOnGpu, place: { type: 'gpu' as const, index: 0 }, why: { en: 'Every token needs them.', zh: '每个词元都要用到。' } },
            { part: 'experts' as const, what: { en: `Experts of ${expertLayers} layers`, zh: `${expertLayers} 层的专家` }, bytes: expertsOnGpu, place: { type: 'gpu' as const, index: 0 }, why: { en: 'What fits and still leaves 1.0\u00a0GB free.', zh: '能放下的部分，并留出 1.0\u00a0GB。' } },
            { part: 'experts' as const, what: { en: `Experts of ${model.n_layers - expertLayers} layers`, zh: `${model.n_layers - expertLayers} 层的专家` }, bytes: experts - expertsOnGpu, place: { type: 'ram' as const }, why: { en: '8 of 256 are read per token.', zh: '每个词元读取 256 个中的 8 个。' } },
            { part: 'kv' as const, what: { en: 'KV cache, full precision', zh: 'KV 缓存，全精度' }, bytes: kv, place: { type: 'gpu' as const, index: 0 }, why: { en: 'Attention reads it for every token.', zh: '注意力对每个词元都要读取。' } },
          ]
        : [
            { part: 'attention' as const, what: { en: `All ${model.n_layers} layers`, zh: `全部 ${model.n_layers} 层` }, bytes: sizeBytes, place: { type: 'ram' as const }, why: { en: 'There is no card that computes.', zh: '没有可用于计算的显卡。' } },
            { part: 'kv' as const, what: { en: 'KV cache, 8k', zh: 'KV 缓存，8k' }, bytes: kv, place: { type: 'ram' as const }, why: { en: 'It stands beside the layers that read it.', zh: '与读取它的层放在一起。' } },
          ]),
      { part: 'buffers', what: { en: 'Buffers', zh: '缓冲区' }, bytes: 0.3 * GIB, place: { type: 'ram' }, why: { en: 'Room for prompts of 512 tokens at once.', zh: '一次容纳 512 个词元的提示。' } },
    ],
    choices: [
      { what: { en: `${threads} threads`, zh: `${threads} 个线程` }, why: { en: 'One per physical core.', zh: '每个物理核心一个。' } },
      { what: { en: `${context} context`, zh: `${context} 上下文` }, why: { en: `Costs ${(kv / GIB).toFixed(1)}\u00a0GB; the model was trained for ${model.context_length / 1024}k.`, zh: `占用 ${(kv / GIB).toFixed(1)}\u00a0GB；模型的训练上限为 ${model.context_length / 1024}k。` } },
    ],
    gpu_bar: gpu ? { capacity_bytes: gpu.vram_total_bytes, others_bytes: gpu.vram_total_bytes - gpu.vram_free_bytes, parts: gpuParts, shortfall_bytes: 0 } : null,
    ram_bar: { capacity_bytes: hardware.ram_total_bytes, others_bytes: others, parts: ramParts.filter((part) => part.bytes > 0), shortfall_bytes: shortfall },
    layers: Array.from({ length: model.n_layers }, (_, index): PlanLayer => {
      const mixer = gpu ? { type: 'gpu' as const, index: 0 } : { type: 'ram' as const };
      const experts = index >= model.n_layers - expertLayers ? { type: 'gpu' as const, index: 0 } : { type: 'ram' as const };
      return { keeps: isMoe && index % 4 !== 3 ? 'state' : 'all', mixer, cache: mixer, experts: isMoe ? experts : null };
    }),
    token_costs: [
      ...(gpu ? [{ kind: 'gpu' as const, what: { en: 'Graphics card', zh: '显卡' }, ms: seconds.card * 1000 }] : []),
      { kind: 'weights', what: gpu && isMoe ? { en: 'Reading experts from memory', zh: '从内存读取专家' } : { en: 'Reading weights from memory', zh: '从内存读取权重' }, ms: seconds.weights * 1000 },
      gpu
        ? { kind: 'hand_over', what: { en: `Handing over, ${model.n_layers - expertLayers} times`, zh: `设备间交接 ${model.n_layers - expertLayers} 次` }, ms: overhead * 1000 }
        : { kind: 'layers', what: { en: 'Norms, and threads that meet', zh: '归一化与线程同步' }, ms: overhead * 1000 },
    ],
    disk_bar: { capacity_bytes: hardware.disk.total_bytes, others_bytes: hardware.disk.total_bytes - hardware.disk.free_bytes, parts: [{ part: 'file', bytes: sizeBytes }], shortfall_bytes: 0 },
    speed: { generation_tokens_per_s: rate, generation_low_tokens_per_s: rate * 0.88, generation_high_tokens_per_s: rate * 1.12, generation_full_tokens_per_s: rate * 0.9, prompt_tokens_per_s: rate * 11, prompt_low_tokens_per_s: rate * 7, prompt_high_tokens_per_s: rate * 15 },
    cpu_computes: gpu?.unusable ? { en: `The graphics card is not used: ${gpu.unusable.en}. Speed and memory are given for the processor, with the whole model in memory; the card's side shows what it could take over.`, zh: `未使用显卡：${gpu.unusable.zh}。速度和内存均按处理器计算、整个模型放在内存中给出；显卡一侧显示的是它可以承担的部分。` } : null,
    warnings: [],
    llama_cpp_command: `llama-server -m ${file} -ngl ${gpu ? 99 : 0}${isMoe && gpu ? ` --n-cpu-moe ${model.n_layers - expertLayers}` : ''} -c ${length} -t ${threads} -ub 512`,
  };
}

/** What a loaded model holds on the card: about what was planned. */
export function fakeCards(plan: Plan): CardMemory[] {
  if (!plan.gpu_bar || plan.cpu_computes) return [];
  const planned = (parts: string[]): number => plan.gpu_bar?.parts.filter(({ part }) => parts.includes(part)).reduce((sum, { bytes }) => sum + bytes, 0) ?? 0;
  const part = (en: string, zh: string, planned_bytes: number, share: number): CardMemory['parts'][number] => ({ what: { en, zh }, planned_bytes, allocated_bytes: planned_bytes * share });
  const parts = [part('Weights', '权重', planned(['attention', 'experts', 'head']), 1), part('KV cache', 'KV 缓存', planned(['kv']), 1), part('Buffers and driver', '缓冲区与驱动', planned(['buffers']), 0.83)];
  return [{ index: 0, name: 'NVIDIA GeForce RTX 2060', parts, free_bytes: 0.9 * GIB }];
}
