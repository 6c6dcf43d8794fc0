"""python -m muster.torchrun: the native launcher, which understands every command line of torchrun. Nothing of torch's own is
replaced."""
from muster._native import become

if __name__ == "__main__":
    become("muster")
