"""DistributedSampler gives the same samples in the same order as torch.utils.data.DistributedSampler.

Some thousand random cases (the seed is printed) and all small ones. Needs PyTorch in the virtual environment that
$MUSTER_TORCH_VENV names; torch runs in its own process and prints one line for each case, as our program does.
"""
import os
import random
import subprocess
import sys

PROGRAM = os.environ["MUSTER_WORKER_TRAINING"]
TORCH = """
import sys
from torch.utils.data import DistributedSampler
for line in sys.stdin:
    size, ranks, rank, shuffle, seed, epoch, drop_last = map(int, line.split())
    sampler = DistributedSampler(range(size), num_replicas=ranks, rank=rank, shuffle=bool(shuffle), seed=seed,
                                 drop_last=bool(drop_last))
    sampler.set_epoch(epoch)
    print("".join(f"{sample} " for sample in sampler))
"""


def small_cases():
    """Every size and number of ranks up to 9, without and with drop_last, in order and shuffled."""
    for size in range(10):
        for ranks in range(1, 10):
            for flags in range(4):
                yield size, ranks, (size + flags) % ranks, flags & 1, 3, size, flags >> 1


def random_cases(chance, count):
    for _ in range(count):
        ranks = chance.choice((1, 2, 3, 4, 8, 64, 1000))
        # PyTorch itself drops the bits above 32.
        seed = chance.choice((0, 1, chance.randrange(2**31), chance.randrange(2**31, 2**40)))
        yield (chance.randrange(0, 3000), ranks, chance.randrange(ranks), chance.randrange(2), seed,
               chance.randrange(0, 100), chance.randrange(2))


def answers(command, text):
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=600, check=False)
    if done.returncode != 0:
        sys.exit(f"{command[0]} ended with {done.returncode}: {done.stderr}")
    return done.stdout.splitlines()


def main():
    venv = os.environ.get("MUSTER_TORCH_VENV")
    if not venv:
        print("SKIPPED: MUSTER_TORCH_VENV names no virtual environment with PyTorch (./dev test makes one)")
        sys.exit(77)
    seed = int(os.environ.get("SEED", random.SystemRandom().randrange(2**32)))
    cases = [*small_cases(), *random_cases(random.Random(seed), 3000), (50000, 7, 3, 1, 12, 5, 0)]
    text = "".join(" ".join(map(str, case)) + "\n" for case in cases)
    ours = answers([PROGRAM, "samples"], text)
    theirs = answers([os.path.join(venv, "bin", "python"), "-c", TORCH], text)
    wrong = [case for case, a, b in zip(cases, ours, theirs, strict=True) if a != b]
    samples = sum(line.count(" ") for line in ours)
    print(f"{len(cases)} cases with {samples} samples, seed {seed}: {len(wrong)} differ")
    for case in wrong[:10]:
        print(f"  size, ranks, rank, shuffle, seed, epoch, drop_last = {case}")
    sys.exit(1 if wrong or samples == 0 else 0)


if __name__ == "__main__":
    main()
