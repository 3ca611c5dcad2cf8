// Teacher-forced log-probabilities of SmolLM2 by llama.cpp with its weights repacked for AMX: the golden `smollm2-amx.txt`.
//
// One line per position: log-probability of the token that follows, most likely token, how far its logit is above the second.
// Compared with the run `plain` of `smollm2-logits.json` it says how far llama.cpp's repacked and plain kernels are apart. Q4_1
// is repacked for nothing but AMX, so an emulated processor computes it (about five minutes of one core):
//
//     cmake -B b -DCMAKE_BUILD_TYPE=Release -DBUILD_SHARED_LIBS=OFF -DGGML_NATIVE=OFF -DGGML_OPENMP=OFF -DGGML_AVX512=ON
//           -DGGML_AVX512_VBMI=ON -DGGML_AVX512_VNNI=ON -DGGML_AMX_TILE=ON -DGGML_AMX_INT8=ON LLAMA_CPP && cmake --build b
//     g++ -O2 -std=c++17 -static -I LLAMA_CPP/include -I LLAMA_CPP/ggml/include amx_logits.cpp -o amx_logits
//         b/src/libllama.a b/ggml/src/libggml.a b/ggml/src/libggml-cpu.a b/ggml/src/libggml-base.a -lpthread -ldl -lm
//     bench/emulate.py --bochs BOCHS --kernel VMLINUZ --cpu tigerlake --with MODEL --with TOKENS -- amx_logits MODEL TOKENS 1
//
// LLAMA_CPP: as vendored in llama-cpp-python 0.3.36, with one line before `_tile_loadconfig(&tc)` in ggml-cpu/amx/mmq.cpp,
//     __asm__ volatile("" : : "m"(tc));
// since GCC 12 takes the configuration of the tiles for unused and drops all but its first byte. BOCHS: with
// `bench/bochs-amx.patch`. TOKENS: the first 208 `tokens` of `smollm2-logits.json`, with spaces between. The last argument
// says whether weights may be repacked.
#include "llama.h"

#include <cmath>
#include <cstdio>
#include <fstream>
#include <vector>

int main(int argc, char ** argv) {
    if (argc != 4) {
        return 2;
    }
    std::ifstream file(argv[2]);
    std::vector<llama_token> tokens;
    for (llama_token token; file >> token;) {
        tokens.push_back(token);
    }
    llama_backend_init();
    auto model_params = llama_model_default_params();
    model_params.use_extra_bufts = argv[3][0] == '1';
    auto * model = llama_model_load_from_file(argv[1], model_params);
    auto params = llama_context_default_params();
    params.n_ctx = params.n_batch = params.n_ubatch = 1024;
    params.n_threads = params.n_threads_batch = 1;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    params.type_k = params.type_v = GGML_TYPE_F32;
    auto * context = llama_init_from_model(model, params);
    const int n = (int) tokens.size();
    auto batch = llama_batch_init(n, 0, 1);
    batch.n_tokens = n;
    for (int i = 0; i < n; i++) {
        batch.token[i] = tokens[i];
        batch.pos[i] = i;
        batch.n_seq_id[i] = 1;
        batch.seq_id[i][0] = 0;
        batch.logits[i] = 1;
    }
    if (!context || llama_decode(context, batch) != 0) {
        return 1;
    }
    const int n_vocab = llama_vocab_n_tokens(llama_model_get_vocab(model));
    for (int i = 0; i + 1 < n; i++) {
        const float * row = llama_get_logits_ith(context, i);
        int best = 0;
        for (int t = 1; t < n_vocab; t++) {
            best = row[t] > row[best] ? t : best;
        }
        double sum = 0, second = -INFINITY;
        for (int t = 0; t < n_vocab; t++) {
            sum += std::exp((double) row[t] - row[best]);
            second = t != best && row[t] > second ? row[t] : second;
        }
        printf("%.6f %d %.5f\n", row[tokens[i + 1]] - row[best] - std::log(sum), best, row[best] - second);
    }
}
