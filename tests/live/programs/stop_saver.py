"""A rank for the matrix of stops, with the files of fakes/stop_saver.cc: stop_saver.py plain|torch

Trains until TERM or INT, then saves for a second, in steps for each of which its helper process serves a batch: a forked
child, or with `torch` a worker of torch's DataLoader. Gives up at a second signal. With $SHIELDED the helper ignores TERM
and INT.
"""
import os
import signal
import sys
import time

PARTS, PART_S = 10, 0.1
LIFE_S = 300  # Ends the rank if the matrix itself is killed.
told = 0


def write_file(what, text=""):
    path = f"{os.environ['STOPS']}/{what}.{os.environ['RANK']}"
    with open(path + ".draft", "w", encoding="utf-8") as file:
        file.write(text)
    os.replace(path + ".draft", path)


def lose(why):
    write_file("lost", why)
    os._exit(4)


def on_stop(*_):
    global told
    told += 1
    if told > 1:
        lose("told twice")


def shield(*_):
    """Runs in the helper."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN if "SHIELDED" in os.environ else signal.SIG_DFL)


def plain_batches():
    source, sink = os.pipe()
    if os.fork() == 0:
        os.close(source)
        shield()
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        while True:
            os.write(sink, b"b")
            time.sleep(PART_S)
    os.close(sink)
    while batch := os.read(source, 1):
        yield batch
    raise RuntimeError("the helper has ended")


def torch_batches():
    from torch.utils.data import DataLoader, Dataset  # pylint: disable=import-outside-toplevel

    class Batches(Dataset):
        def __len__(self):
            return 1 << 20

        def __getitem__(self, index):
            time.sleep(PART_S)
            return index

    return iter(DataLoader(Batches(), batch_size=None, num_workers=1, worker_init_fn=shield if "SHIELDED" in os.environ else None))


def main():
    batches = torch_batches() if sys.argv[1] == "torch" else plain_batches()
    next(batches)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, on_stop)
    signal.alarm(LIFE_S)
    write_file("ready")
    while not told:
        next(batches)
    for part in range(PARTS):
        print("saving part", part, flush=True)
        next(batches)
    write_file("save", "saved\n")


if __name__ == "__main__":
    try:
        main()
    except BrokenPipeError:
        lose("console gone")
    except RuntimeError:
        lose("helper ended")
