# SPDX-License-Identifier: Apache-2.0
"""Opens every shard of a model with safetensors and lists its names.

    peer_open.py FOLDER TIMES

One line of JSON: the median of TIMES rounds after one that is not counted, and
sums over the names for the comparison with berth.
"""
import json
import statistics
import sys
import time
import zlib

from safetensors import safe_open


def names_of(folder):
    with open(folder + "/model.safetensors.index.json", encoding="utf-8") as file:
        shards = sorted(set(json.load(file)["weight_map"].values()))
    names = []
    for shard in shards:
        with safe_open(folder + "/" + shard, framework="np") as opened:
            names.extend(opened.keys())
    return names


def main():
    folder, times = sys.argv[1], int(sys.argv[2])
    names = names_of(folder)
    samples = []
    for _ in range(times):
        begin = time.perf_counter()
        again = names_of(folder)
        samples.append(time.perf_counter() - begin)
        assert len(again) == len(names)
        del again
    total = sum(zlib.crc32(name.encode()) for name in names)
    print(json.dumps({"tensors": len(names), "name_sum": total,
                      "seconds": statistics.median(samples), "end": 0},
                     separators=(",", ":")))


main()
