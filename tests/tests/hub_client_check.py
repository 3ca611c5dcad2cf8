"""The official client lists and downloads from the test hub. Usage: python hub_client_check.py HUB_URL WORK_DIR

Prints `checked N` at the end; any disagreement is an exception. Written for huggingface_hub 2.4.0.
"""

import hashlib
import os
import sys
from pathlib import Path

hub_url, work_dir = sys.argv[1], Path(sys.argv[2])
os.environ["HF_HOME"] = str(work_dir / "home")
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"
os.environ["HF_HUB_DISABLE_TELEMETRY"] = "1"
os.environ["NO_PROXY"] = "localhost,127.0.0.1"
os.environ.pop("HF_HUB_OFFLINE", None)
os.environ.pop("HF_TOKEN", None)

import huggingface_hub  # noqa: E402  (reads the environment when imported)
from huggingface_hub import HfApi, errors, hf_hub_download, snapshot_download  # noqa: E402

checked = 0


def same(got, expected):
    global checked
    assert got == expected, f"got {got!r}, expected {expected!r}"
    checked += 1


def refused(kind, call):
    global checked
    try:
        call()
    except kind:
        checked += 1
    else:
        raise AssertionError(f"expected {kind.__name__}")


def sha256(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


same(huggingface_hub.__version__, "2.4.0")
api = HfApi(endpoint=hub_url, token=False)

# Search: the filter, the words, the order, and pages of two.
everything = [model.id for model in api.list_models(filter="gguf", sort="downloads")]
same(everything[0], "测试/Model-GGUF")
same("tandem-demo/Tiny-Safetensors" in everything, False)
found = list(api.list_models(filter="gguf", search="tiny gguf", sort="downloads", expand=["gguf", "downloads", "gated"]))
same(found[0].id, "tandem-demo/Tiny-Sharded-GGUF")
same(found[0].gguf["architecture"], "llama")
same([model.gated for model in found if "Gated" in model.id], ["auto"])
paged = api.list_models(filter="gguf", sort="downloads", limit=2)
same([model.id for model in paged], everything[:2])

# A repo's page, tree and single paths tell the same sizes and hashes as the files have.
sharded = "tandem-demo/Tiny-Sharded-GGUF"
info = api.model_info(sharded, files_metadata=True)
tree = {entry.path: entry for entry in api.list_repo_tree(sharded, recursive=True, revision=info.sha)}
shards = [sibling for sibling in info.siblings if sibling.rfilename.endswith(".gguf")]
same(len(shards), 3)
for shard in shards:
    path = hf_hub_download(sharded, shard.rfilename, revision=info.sha, endpoint=hub_url, token=False)
    same(os.path.getsize(path), shard.size)
    same(sha256(path), shard.lfs.sha256)
    same(tree[shard.rfilename].lfs.sha256, shard.lfs.sha256)
paths = [shard.rfilename for shard in shards]
same([entry.path for entry in api.get_paths_info(sharded, paths)], paths)
same(api.list_repo_refs(sharded).branches[0].target_commit, info.sha)

# A small file goes another way; a whole snapshot holds all.
readme = hf_hub_download(sharded, "README.md", endpoint=hub_url, token=False)
same(Path(readme).read_text().startswith("---"), True)
folder = snapshot_download(sharded, endpoint=hub_url, token=False, cache_dir=work_dir / "snapshot")
same(sorted(str(p.relative_to(folder)) for p in Path(folder).rglob("*") if p.is_file()), sorted(tree.keys() - {"Q4_K_M"}))

# Names that are not ASCII, and old names.
chinese = api.model_info("old/Name", files_metadata=True)
same(chinese.id, "测试/Model-GGUF")

# Refusals, by their right names.
refused(errors.RepositoryNotFoundError, lambda: api.model_info("nobody/nothing"))
refused(errors.RevisionNotFoundError, lambda: api.model_info(sharded, revision="no-such-branch"))
refused(errors.EntryNotFoundError, lambda: hf_hub_download(sharded, "none.gguf", endpoint=hub_url, token=False))
gated = ("tandem-demo/Tiny-Gated-GGUF", "Tiny-Gated-Q8_0.gguf")
refused(errors.GatedRepoError, lambda: hf_hub_download(*gated, endpoint=hub_url, token=False))
refused(errors.GatedRepoError, lambda: hf_hub_download(*gated, endpoint=hub_url, token="hf_other"))
same(os.path.getsize(hf_hub_download(*gated, endpoint=hub_url, token="hf_accepted")) > 0, True)

print(f"checked {checked}")
