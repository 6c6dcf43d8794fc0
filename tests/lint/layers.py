#!/usr/bin/env python3
"""Prints the layers of the product: its folders from the lowest to the highest, and what each of them includes.

    layers.py [ROOT]      exit status 1 if a rule is broken; tidy.py checks the rules too

Rules: folders include each other in no circle; the parts of the product include only those below them (BELOW); only
the tests include tests. Includes between #ifdef MUSTER_PLANTED_BUGS and #else belong to the tests.
"""
import os
import re
import sys

# The other parts that each part may include.
BELOW = {
    "rendezvous": [],
    "agent": ["rendezvous"],
    "launcher": ["agent", "rendezvous"],
    "worker_lib": ["rendezvous"],
    "examples": ["worker_lib"],
}
# The lowest folders of two parts, which include nothing else of the project.
LOWEST = ["rendezvous/base", "worker_lib/include/muster"]
PUBLIC = "worker_lib/include/"
INCLUDE = re.compile(r'#include ["<]([\w./]+)[">]')


def includes(sources):
    """Yields (product file, line number, file of the project that it includes there)."""
    for path, lines in sources.items():
        if path.split("/")[0] not in BELOW:
            continue
        planted = False
        for number, line in enumerate(lines, 1):
            planted = (planted or line.startswith("#ifdef MUSTER_PLANTED_BUGS")) and not line.startswith(("#else", "#endif"))
            found = INCLUDE.match(line)
            if found and not planted:
                for target in (found[1], PUBLIC + found[1], os.path.dirname(path) + "/" + found[1]):
                    if target in sources:
                        yield path, number, target
                        break


def folder(path):
    return os.path.dirname(path)


def uses(sources):
    """Returns by folder the folders that it includes, each with the first place that does so."""
    used = {folder(path): {} for path in sources if path.split("/")[0] in BELOW}
    for path, number, target in includes(sources):
        if folder(path) != folder(target):
            used[folder(path)].setdefault(folder(target), f"{path}:{number}")
    return used


def levels(used):
    """Returns 1 + the highest level of the folders that each folder includes, and the folders in or above a circle."""
    level, left = {}, dict(used)
    while True:
        ready = [name for name, below in left.items() if all(other in level or other not in used for other in below)]
        if not ready:
            return level, sorted(left)
        for name in ready:
            level[name] = 1 + max((level.get(other, 0) for other in left.pop(name)), default=0)


def circle(used, left):
    """Returns one circle among `left`."""
    path = [left[0]]
    while True:
        following = next(other for other in sorted(used[path[-1]]) if other in left)
        if following in path:
            return path[path.index(following):]
        path.append(following)


def layer_complaints(sources):
    for path, number, target in includes(sources):
        part, other = path.split("/")[0], target.split("/")[0]
        if other != part and other not in BELOW[part]:
            yield f"{path}:{number}: {part}/ may not include {other}/"
        elif folder(path) in LOWEST and folder(path) != folder(target):
            yield f"{path}:{number}: {folder(path)} is the lowest layer and includes nothing else of the project"
        elif part == "examples" and not target.startswith((PUBLIC, "examples/")):
            yield f"{path}:{number}: an example includes the public headers only"
    used = uses(sources)
    _, left = levels(used)
    if left:
        names = circle(used, left)
        for one, other in zip(names, names[1:] + names[:1]):
            yield f"{used[one][other]}: {one} includes {other}, in a circle of {len(names)} folders"


def main(root):
    import tidy
    sources = tidy.read_sources(root)
    used = uses(sources)
    level, _ = levels(used)
    for name in sorted(used, key=lambda name: (level.get(name, 0), name)):
        files = [path for path in sources if folder(path) == name]
        print(f"{level.get(name, '?'):>2}  {name:<26} {len(files):>3} files  {', '.join(sorted(used[name]))}")
    complaints = list(layer_complaints(sources))
    print("\n".join(complaints + [f"layers: {len(complaints)} complaints"]))
    return 1 if complaints else 0


if __name__ == "__main__":
    import tidy
    sys.exit(main(os.path.normpath(sys.argv[1] if len(sys.argv) > 1 else tidy.ROOT)))
