"""python -m muster: the native launcher, with this Python for the workers."""
from muster._native import become

if __name__ == "__main__":
    become("muster")
