#!/usr/bin/env python3
"""What ./dev adds to the published packages; run in the top folder of the sources.

    release.py check          refuses, in one line, a tree that must not be released
    release.py bill FOLDER    writes FOLDER/muster-VERSION.cdx.json: what is compiled into the packages, in CycloneDX's format

The bill names the Debian packages in $MUSTER_SYSROOT and what the compiler in $MUSTER_ZIG adds, for both machines. Its time is
$SOURCE_DATE_EPOCH.
"""
import datetime
import json
import os
import re
import subprocess
import sys
from urllib.parse import quote

# Where the copyright file is in a package that the sysroot lacks.
LICENCES = {"libgcc-12-dev": "GPL-3.0-or-later WITH GCC-exception-3.1", "libpython3.11-dev": "PSF-2.0"}
NOT_IN_PROGRAMS = {"libfmt9"}  # CMake asks for it; the programs contain libfmt-dev's source.
LLVM = "Apache-2.0 WITH LLVM-exception"


def output_of(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout.strip()


def git(*words):
    return output_of("git", "-c", "safe.directory=*", *words)


def version():
    with open("CMakeLists.txt", encoding="utf-8") as f:
        return re.search(r"^project\(muster VERSION ([0-9.]+)", f.read(), re.M)[1]


def refusal():
    """Returns why this tree must not be released, else None."""
    tag = f"v{version()}"
    changed = git("status", "--porcelain").splitlines()
    if changed:
        return f"the tree is not what is committed: {len(changed)} changed or new files, first {changed[0].split()[-1]}; commit them"
    here = git("tag", "--points-at", "HEAD", "v[0-9]*").split()
    if here not in ([], [tag]):
        return f"HEAD has the tag {' and '.join(here)}, but the version in CMakeLists.txt is {version()}; change one of them"
    if not here and git("tag", "--list", tag):
        return f"{tag} is the tag of another commit; raise the version in CMakeLists.txt"
    return None


def component(name, of_version, purl, licence, **more):
    return {"type": "library", "bom-ref": purl, "name": name, "version": of_version, "purl": purl,
            "licenses": [{"license": {"name": licence}}], **more}


def licence_of(package, documents):
    """Returns the name in Debian's copyright file of the licence of most files."""
    try:
        with open(f"{documents}/{package}/copyright", encoding="utf-8") as f:
            return re.search(r"^Files: \*\n(?:.+\n)*?License: (.+)", f.read(), re.M)[1]
    except FileNotFoundError:
        return LICENCES[package]


def debian_components(sysroot):
    """Returns the packages that ./dev has listed when it unpacked them. Exits if others are there too."""
    documents = f"{sysroot}/usr/share/doc"
    with open(f"{sysroot}/manifest", encoding="utf-8") as f:
        packages = [line.split() for line in f]
    unlisted = set(os.listdir(documents)) - {package for package, *_ in packages}
    if unlisted:
        sys.exit(f"release.py: {sysroot} has packages that its manifest does not list: {', '.join(sorted(unlisted))}")
    return [component(package, of_version, f"pkg:deb/debian/{package}@{quote(of_version)}?arch={machine}", licence_of(package, documents),
                      hashes=[{"alg": "SHA-256", "content": digest}], scope="excluded" if package in NOT_IN_PROGRAMS else "required")
            for package, of_version, machine, digest in packages]


def zig_component(folder):
    """Returns the compiler, and what it links into programs."""
    zig = (f"{folder}/bin/python", "-m", "ziglang")
    own, llvm = output_of(*zig, "version"), re.search(r"clang version ([\d.]+)", output_of(*zig, "c++", "--version"))[1]
    parts = [component(name, llvm, f"pkg:github/llvm/llvm-project@llvmorg-{llvm}#{name}", LLVM)
             for name in ("clang", "libcxx", "libcxxabi", "libunwind")]
    parts.append(component("compiler_rt", own, f"pkg:github/ziglang/zig@{own}#lib/compiler_rt", "MIT"))
    parts.append(component("glibc-start-files", own, f"pkg:github/ziglang/zig@{own}#lib/libc/glibc", "LGPL-2.1-or-later",
                           description="With libc_nonshared.a; libc.so is the user's."))
    return component("ziglang", own, f"pkg:pypi/ziglang@{own}", "MIT", components=parts)


def bill():
    components = [*debian_components(os.environ["MUSTER_SYSROOT"]), zig_component(os.environ["MUSTER_ZIG"])]
    muster = component("muster", version(), f"pkg:generic/muster@{version()}", "Apache-2.0", type="application")
    if os.path.exists(".git"):  # Not where an archive of the sources was unpacked.
        commit = git("describe", "--always", "--dirty", "--abbrev=40", "--exclude=*")
        muster["pedigree"] = {"commits": [{"uid": commit}]}
    committed = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    return {"bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
            "metadata": {"timestamp": committed.isoformat(), "component": muster}, "components": components,
            "dependencies": [{"ref": muster["bom-ref"], "dependsOn": [each["bom-ref"] for each in components]}]}


def main():
    if sys.argv[1:] == ["check"]:
        reason = refusal()
        sys.exit(f"./dev release: {reason}" if reason else 0)
    _, kind, folder = sys.argv
    assert kind == "bill"
    with open(f"{folder}/muster-{version()}.cdx.json", "w", encoding="utf-8") as f:
        json.dump(bill(), f, indent=1)


if __name__ == "__main__":
    main()
