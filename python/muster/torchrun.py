"""python -m muster.torchrun: the native launcher, which understands every command line of torchrun. Replaces nothing of torch's
own."""
from muster._native import become

if __name__ == "__main__":
    become("muster")
