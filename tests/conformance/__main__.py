"""The command line: `python -m tests.conformance`."""

import argparse
import itertools
import os
import pathlib
import time

import tqdm

from . import cells as work
from . import databases, readme, report, runner

SAMPLES = 6
EVERY = 10
# Pipelines are kept for good, as code that a software driver made for each. After so many cells,
# a process of llvmpipe has about 2 GB of them.
CELLS_OF_A_PROCESS = 1500


def parser():
    top = argparse.ArgumentParser(
        prog="python -m tests.conformance",
        description="Runs PyTorch's operator database on the device and compares with the CPU.",
    )
    option = top.add_argument
    option("--only", default="", metavar="TEXT", help="only entries whose name contains TEXT")
    option(
        "--dtypes",
        type=dtype_list,
        default=work.DTYPES,
        metavar="A,B",
        help=f"only these (default: {','.join(work.DTYPES)})",
    )
    option("--samples", type=int, default=SAMPLES, metavar="N", help="of a cell (6); 0: all")
    option(
        "--every",
        type=int,
        default=EVERY,
        metavar="N",
        help=f"one entry of N of {','.join(databases.SAMPLED)} ({EVERY}); all of them take an hour "
        "on two cores; --only takes all that it names",
    )
    option("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes (cores)")
    option("--timeout", type=float, default=120, metavar="S", help="seconds for one cell (120)")
    option("--minutes", type=float, metavar="M", help="stop after M minutes, report what has run")
    option("--json", type=pathlib.Path, default="build/conformance.json", metavar="FILE")
    option("--page", type=pathlib.Path, default="docs/ops.html", metavar="FILE")
    option(
        "--readme",
        type=pathlib.Path,
        default="README.md",
        metavar="FILE",
        help="where a run of everything leaves its totals (default: %(default)s)",
    )
    option("--strict", action="store_true", help="exit with status 1 if a cell fails")
    option(
        "--databases",
        type=lambda text: tuple(text.split(",")),
        default=tuple(databases.SECTIONS),
        metavar="A,B",
        help=f"of {','.join(databases.SECTIONS)} (default: all); or MODULE:LIST of OpInfos",
    )
    return top


def dtype_list(text):
    dtypes = tuple(text.split(","))
    unknown = sorted(set(dtypes) - set(work.DTYPES))
    if unknown:
        raise argparse.ArgumentTypeError(f"{','.join(unknown)} not in {','.join(work.DTYPES)}")
    return dtypes


def main(arguments=None):
    options = parser().parse_args(arguments)
    cells = list(work.cells_of(options.databases, options.only, options.dtypes, options.every))
    if not cells:
        parser().error(f"no entry has '{options.only}' in its name")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    log = options.json.with_suffix(".log")
    log.unlink(missing_ok=True)
    stop = time.monotonic() + 60 * (options.minutes or float("inf"))
    results = {}
    # A worker runs all variants of an entry in a dtype: they share pipelines, slow to compile.
    groups = [list(group) for _, group in itertools.groupby(cells, key=lambda cell: cell[:3])]
    pools = [
        runner.make_pool(work.start_worker, [options.databases, str(log)], CELLS_OF_A_PROCESS)
        for _ in range(min(options.jobs, len(groups)))
    ]
    running = runner.run(groups, work.run, [options.samples], pools, options.timeout)
    try:
        for cell, result in tqdm.tqdm(running, total=len(cells), unit="cell", smoothing=0):
            if isinstance(result, runner.Lost):
                result = work.Result(work.FAILS, result.reason)
            results[cell] = result
            if time.monotonic() > stop:
                break
    except KeyboardInterrupt:
        pass  # what has run is reported
    finally:
        running.close()
    missing = len(cells) - len(results)
    about = report.about(options.samples, missing, 1 if options.only else options.every)
    report.write_json(options.json, results, about)
    report.write_page(options.page, results, about)
    print(report.text(results, missing))
    print(f"\n{options.page}, {options.json}; output of the workers: {log}")
    whole = tuple(name for name in databases.SECTIONS if name not in databases.SAMPLED)
    everything = set(work.cells_of(whole, "", work.DTYPES))
    if everything <= set(cells) and not missing and options.samples in (0, SAMPLES):
        readme.write(
            options.readme, {cell: results[cell] for cell in results if cell in everything}
        )
        print(f"totals: {options.readme}")
    if options.strict and any(result.status == work.FAILS for result in results.values()):
        raise SystemExit(1)


if __name__ == "__main__":
    main()
