"""The command line: `python -m tests.fuzz`."""

import argparse
import collections
import os
import pathlib
import time

import tqdm

from ..conformance import runner
from . import blocks, compiled, generate, shrink
from .program import script

SEED = 1
PLACES = 16  # printed of one group of findings


def parser():
    top = argparse.ArgumentParser(
        prog="python -m tests.fuzz",
        description="Runs random programs on the device and on the CPU, and compares each step.",
    )
    option = top.add_argument
    option("--steps", type=int, metavar="N", help="in all (20000; compiled, 5000)")
    option(
        "--compiled",
        action="store_true",
        help="compare groups of steps, compiled as one function, with eager mode on the device",
    )
    option("--seed", type=int, default=SEED, metavar="S", help="another one: other programs")
    option("--first", type=int, default=0, metavar="B", help="the first block to run (0)")
    option("--jobs", type=int, default=os.cpu_count(), metavar="N", help="processes (cores)")
    option("--timeout", type=float, default=300, metavar="S", help="seconds for a block (300)")
    option("--minutes", type=float, metavar="M", help="stop after M minutes, report what has run")
    option(
        "--replay",
        metavar="SEED:BLOCK[:EPISODE]",
        help="run that block again, and print its first failure as a short program",
    )
    option("--kinds", action="store_true", help="print how many steps there were of each kind")
    option("--log", type=pathlib.Path, default="build/fuzz.log", metavar="FILE")
    return top


def main(arguments=None):
    options = parser().parse_args(arguments)
    options.log.parent.mkdir(parents=True, exist_ok=True)
    options.log.unlink(missing_ok=True)
    found = replay(options) if options.replay else fuzz(options)
    raise SystemExit(1 if found else 0)


def fuzz(options):
    kind = compiled if options.compiled else blocks
    steps = options.steps or (5_000 if options.compiled else 20_000)
    count = -(-steps // kind.STEPS)
    work = [
        blocks.Block(options.seed, k, min(kind.STEPS, steps - (k - options.first) * kind.STEPS))
        for k in range(options.first, options.first + count)
    ]
    start = time.monotonic()
    stop = start + 60 * (options.minutes or float("inf"))
    jobs = min(options.jobs, count)
    running = runner.run(
        [[block] for block in work], kind.run, [], pools_of(options, jobs), options.timeout
    )
    totals, findings = Totals(), []
    bar = tqdm.tqdm(total=steps, unit="step", smoothing=0.05)
    try:
        for block, result in running:
            if isinstance(result, runner.Lost):
                result = lost(block, result.reason)
            totals.add(result)
            bar.update(result.steps)
            for finding in result.findings:
                if finding.signature not in {f.signature for f in findings}:
                    bar.write(f"{finding.place}  {finding.text}\n    {finding.difference}")
                findings.append(finding)
            if time.monotonic() > stop:
                break
    except KeyboardInterrupt:
        pass  # what has run is reported
    finally:
        bar.close()
        running.close()
    print(totals.text(time.monotonic() - start, findings, options.kinds))
    return findings


def pools_of(options, count, tasks=blocks.BLOCKS_OF_A_PROCESS):
    return [runner.make_pool(blocks.start_worker, [str(options.log)], tasks) for _ in range(count)]


def lost(block, reason):
    finding = blocks.Finding(str(block), "process", "a block", f"raises: {reason}")
    return blocks.Result(0, 0, {}, [finding], {}, {}, 0.0)


class Totals:
    def __init__(self):
        self.steps, self.refused = 0, 0
        self.kinds, self.known, self.fallbacks = (collections.Counter() for _ in range(3))

    def add(self, result):
        self.steps += result.steps
        self.refused += result.refused
        self.kinds.update(result.kinds)
        self.known.update(result.known)
        self.fallbacks.update(result.fallbacks)

    def text(self, seconds, findings, kinds):
        lines = []
        if kinds:
            names = sorted(self.kinds.items(), key=lambda item: -item[1])
            lines.append("steps: " + ", ".join(f"{kind} {count}" for kind, count in names))
        if self.fallbacks:
            names = ", ".join(f"{name} {count}" for name, count in self.fallbacks.most_common())
            lines.append(f"on the CPU, counted: {names}")
        for reason, count in self.known.most_common():
            lines.append(f"{count} known: {reason}")
        grouped = collections.defaultdict(list)
        for finding in findings:
            grouped[finding.signature].append(finding)
        for (kind, what), group in grouped.items():
            places = ", ".join(finding.place for finding in group[:PLACES])
            lines.append(f"{len(group)} x {kind} ({what}): {places}")
        lines.append(
            f"{self.steps} steps in {seconds:.0f} s ({self.steps / seconds:.0f} a second), of "
            f"{len(self.kinds)} kinds; {self.refused} were refused alike; "
            f"{len(findings)} differences"
        )
        return "\n".join(lines)


def replay(options):
    """Finds the first failing episode of the block and prints the shortest program of it."""
    parts = options.replay.split(":")
    block = ":".join(parts[:2])
    kind = compiled if options.compiled else blocks
    episodes = parts[2:] or range(-(-kind.STEPS // kind.LENGTH))
    with Shrinker(options) as worker:
        for episode in episodes:
            place = f"{block}:{episode}"
            if options.compiled:
                found = worker.call(compiled.find, place)
                if found != "no difference":
                    print(worker.shortest_compiled(*found))
                    return True
                continue
            finding = worker.call(blocks.find, place, blocks.LENGTH)
            if finding != "no difference":
                print(worker.shortest(place, finding))
                return True
    print(f"{options.replay}: no difference")
    return False


class Shrinker:
    """Runs candidates in a worker, which may die of them."""

    def __init__(self, options):
        self.options, self.pool = options, pools_of(options, 1, tasks=0)[0]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.pool.stop()
        self.pool.join()

    def call(self, function, *arguments):
        result = None
        while result is None:
            future = self.pool.schedule(function, args=arguments, timeout=self.options.timeout)
            result = runner.outcome(future, self.options.timeout)
        return result

    def shortest(self, place, finding):
        died = isinstance(finding, runner.Lost)
        length = blocks.LENGTH if died else finding.index + 1
        blocks.quiet()
        steps = generate.program(place, length)

        def fails(candidate):
            result = self.call(blocks.evaluate, candidate)
            if died or isinstance(result, runner.Lost):
                return died and isinstance(result, runner.Lost)
            return getattr(result, "signature", None) == finding.signature

        difference = finding.reason if died else finding.difference
        if fails(steps):
            steps = shrink.shrink(steps, fails)
            result = self.call(blocks.evaluate, steps)
            difference = getattr(result, "difference", difference)
        return script(steps, difference)

    def shortest_compiled(self, steps, finding):
        def fails(candidate):
            if not any(step.compiled for step in candidate):
                return False
            result = self.call(compiled.evaluate, candidate)
            return isinstance(result, blocks.Finding) and same(result) == same(finding)

        def same(found):  # the kinds of steps become fewer
            return blocks.signature("", found.difference)

        steps = shrink.shrink(steps, fails)
        result = self.call(compiled.evaluate, steps)
        return compiled.script(steps, getattr(result, "difference", finding.difference))


if __name__ == "__main__":
    main()
