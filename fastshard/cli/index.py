"""`fastshard index`: TarIndex.build on the command line, and what it found in figures. One pass over the headers."""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

from fastshard import _check
from fastshard.cli.main import FOUND
from fastshard.webdataset import ShardError, TarIndex, sources, write_idx, write_wids
from fastshard.webdataset.index import in_threads

EXAMPLES = """\
Examples:
  fastshard index 'data/shard-{000..099}.tar'
  fastshard index data/*.tar --cache ~/indexes
  fastshard index 'https://host/shard-{000..099}.tar' --on-error skip --json
  fastshard index data/*.tar --check && torchrun train.py
  fastshard index data/*.tar --to dali --output data/idx
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments of `fastshard index`."""
    parser.description = (
        "Reads the headers of tar shards, finds the samples as WebDataset does, and saves where each one lies.\n"
        "A shard whose saved index is still right is not read again."
    )
    parser.epilog = EXAMPLES
    parser.add_argument(
        "urls", nargs="+", metavar="URL", help="path or fsspec url of a shard; braces in quotes name many: '{000..099}'"
    )
    parser.add_argument("--check", action="store_true", help="only say which indexes are missing or stale; 1 if any is")
    parser.add_argument("--json", action="store_true", help="print one JSON object instead of a table")
    parser.add_argument(
        "--cache",
        metavar="DIR",
        help="folder of the saved indexes (default: beside each shard; of a remote one, and where that can't be "
        "written, ~/.cache/fastshard/shards)",
    )
    parser.add_argument(
        "--threads", type=int, metavar="N", help="shards read at once (default: one a core; 16 if some are remote)"
    )
    parser.add_argument(
        "--on-error",
        choices=("raise", "skip"),
        default="raise",
        help="a broken shard ends the command (raise, the default), or is left out with a warning (skip)",
    )
    parser.add_argument("--no-progress", action="store_true", help="no bar on stderr (there is none without tqdm)")
    parser.add_argument("--to", choices=("dali", "wids"), help="also write the index files of NVIDIA DALI or of wids")
    parser.add_argument("--output", metavar="PATH", help="with --to: folder of DALI's .idx files, or the JSON of wids")


def run(options: argparse.Namespace) -> int:
    """Indexes the shards, or checks their indexes; prints what there is; returns the exit status."""
    if (options.to is None) != (options.output is None):
        raise ValueError("--to and --output go together")
    if options.check and options.to:
        raise ValueError("--check builds nothing, so --to has nothing to write")
    urls = [name for url in options.urls for name in sources.expand(url)]
    if options.check:
        return _check_saved(urls, options)
    outputs = _outputs(urls, options)
    begin = time.perf_counter()
    index = TarIndex.build(
        urls,
        cache=options.cache,
        progress=not options.no_progress,
        threads=options.threads,
        on_error=options.on_error,
    )
    seconds = time.perf_counter() - begin
    written = _write_others(index, outputs, options.to)
    figures = _figures(index) | {"seconds": round(seconds, 6), "written": written}
    print(json.dumps(figures) if options.json else _table(figures))
    if index.unsaved:
        first = next(iter(index.unsaved.values()))
        raise ShardError(f"{len(index.unsaved):,} of {len(index.urls):,} indexes can't be saved; the first: {first}")
    return 0


def _check_saved(urls: list[str], options: argparse.Namespace) -> int:
    threads = 16 if options.threads is None else _check.integer("threads", options.threads, 1, 1024)

    def problem(url: str) -> str:
        try:
            TarIndex.load([url], cache=options.cache)
        except ShardError as error:
            return str(error)
        return ""

    with in_threads(problem, urls, threads) as found:
        problems = {url: why for url, why in zip(urls, found, strict=True) if why}
    if options.json:
        print(json.dumps({"shards": len(urls), "fresh": len(urls) - len(problems), "problems": problems}))
    elif problems:
        print(*problems.values(), f"{len(problems):,} of {len(urls):,} shards have no fresh index", sep="\n")
    else:
        print(f"all {len(urls):,} shards have a fresh index")
    return FOUND if problems else 0


def _outputs(urls: list[str], options: argparse.Namespace) -> dict[str, Path]:
    """The file to write for each shard, for DALI; with wids one for all. What can't be written is told before the work.

    Raises:
        ValueError: two shards would have the same file.
        OSError: there is no such folder, and it can't be made.
    """
    if options.to is None:
        return {}
    output = Path(options.output)
    if options.to == "wids":
        output.parent.mkdir(parents=True, exist_ok=True)
        return dict.fromkeys(urls, output)
    paths = {url: output / f"{Path(url.partition('?')[0]).stem}.idx" for url in urls}
    twice = [str(path) for path, count in Counter(paths.values()).items() if count > 1]
    if twice:
        raise ValueError(f"shards of the same name would have one index file: {twice[0]}; index them one by one")
    output.mkdir(parents=True, exist_ok=True)
    return paths


def _write_others(index: TarIndex, outputs: dict[str, Path], to: str | None) -> list[str]:
    """Writes the index files of others; returns their paths."""
    if to == "wids":
        write_wids(index, outputs[index.urls[0]])
    elif to == "dali":
        for number, url in enumerate(index.urls):
            write_idx(index, number, outputs[url])
    return list(dict.fromkeys(str(outputs[url]) for url in index.urls)) if to else []


def _figures(index: TarIndex) -> dict[str, Any]:
    """What was found, as --json prints it."""
    fields: Counter[str] = Counter()
    for number in range(len(index.urls)):
        shard = index.shard(number)  # a field comes once in a sample, so its files are its samples
        counts = np.bincount(shard.field_ids, minlength=len(shard.field_names)).tolist()
        fields.update(dict(zip(shard.field_names, counts, strict=True)))
    columns = zip(index.urls, index.samples_per_shard.tolist(), index.sizes_of_shards(), index.paths, strict=True)
    return {
        "shards": len(index.urls),
        "samples": len(index),
        "bytes": sum(index.sizes_of_shards()),
        "min_samples_per_shard": int(index.samples_per_shard.min()),
        "max_samples_per_shard": int(index.samples_per_shard.max()),
        "fields": dict(fields),
        "each": [
            {"url": url, "samples": samples, "bytes": size, "index": path or None}
            for url, samples, size, path in columns
        ],
        "skipped": index.skipped,
        "unsaved": index.unsaved,
    }


def _table(figures: dict[str, Any]) -> str:
    samples = figures["samples"]
    fields = [name if n == samples else f"{name} (in {n:,} samples)" for name, n in figures["fields"].items()]
    fewest, most = figures["min_samples_per_shard"], figures["max_samples_per_shard"]
    saved = list(dict.fromkeys(str(Path(one["index"]).parent) for one in figures["each"] if one["index"]))
    rows = {
        "shards": f"{figures['shards']:,}",
        "left out": f"{len(figures['skipped']):,}" if figures["skipped"] else "",
        "samples": f"{samples:,}",
        "per shard": f"{fewest:,}" if fewest == most else f"{fewest:,} to {most:,}",
        "fields": ", ".join(fields),
        "bytes": f"{figures['bytes']:,}",
        "seconds": f"{figures['seconds']:.2f}",
        "saved in": _some(saved),
        "written": _some(figures["written"]),
    }
    return "\n".join(f"{name:<10} {value}" for name, value in rows.items() if value)


def _some(paths: list[str]) -> str:
    return ", ".join(paths[:3]) + (f" and {len(paths) - 3:,} more" if len(paths) > 3 else "")
