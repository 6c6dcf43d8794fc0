"""Every prefix of every flag of torchrun means under muster what it means under torchrun.

torchrun's own parser answers, in the virtual environment that $MUSTER_TORCH_VENV names. argparse also calls a prefix
ambiguous if it fits only the two spellings of one flag (--max: --max-restarts, --max_restarts); muster takes that flag.
"""
import json
import os
import re
import subprocess
import sys
import unittest

from harness import MUSTER, main

PARSER = """
import json
from torch.distributed.run import get_args_parser
parser = get_args_parser()
flags = {s[2:]: action for s, action in parser._option_string_actions.items() if s.startswith("--")}
prefixes = {flag[:n] for flag in flags for n in range(1, len(flag) + 1)}
def name(action):
    return max(s for s in action.option_strings if s.startswith("--"))[2:].replace("_", "-")
def meant(prefix):
    if prefix in flags:
        return [name(flags[prefix])]
    return sorted({name(action) for flag, action in flags.items() if flag.startswith(prefix)})
print(json.dumps({prefix: meant(prefix) for prefix in sorted(prefixes)}))
"""


def torchruns_prefixes():
    venv = os.environ.get("MUSTER_TORCH_VENV")
    if not venv:
        sys.exit("MUSTER_TORCH_VENV is not set: it names a virtual environment with PyTorch")
    answer = subprocess.run([f"{venv}/bin/python", "-c", PARSER], check=True, capture_output=True, text=True)
    return json.loads(answer.stdout)


def said_by_muster(*args):
    """muster's answer: without a program each of these command lines is wrong."""
    done = subprocess.run([MUSTER, *args], capture_output=True, text=True, check=False, timeout=30)
    return done.stdout if done.returncode == 0 else done.stderr


def taken_by_muster(prefix):
    """The flag that muster takes this prefix for; "": the prefix is ambiguous."""
    for args in ([f"--{prefix}"], [f"--{prefix}=x"]):  # A flag that lacks its value, or that has one but takes none.
        said = said_by_muster(*args)
        if "is ambiguous" in said:
            return ""
        found = re.match(r"muster: --([a-z-]+) (?:needs a value|takes no value)", said)
        if found:
            return found.group(1)
    return f"neither refused nor taken: {said}"


class FlagPrefixes(unittest.TestCase):
    def test_every_prefix_means_the_flag_that_it_means_to_torchrun(self):
        prefixes = torchruns_prefixes()
        self.assertGreater(len(prefixes), 300, "all flags of torchrun, in both spellings")
        wrong = {}
        for prefix, flags in prefixes.items():
            wanted = flags[0] if len(flags) == 1 else ""
            if (taken := taken_by_muster(prefix)) != wanted:
                wrong[prefix] = (wanted or "ambiguous", taken or "ambiguous")
        self.assertEqual(wrong, {}, "prefix: (as under torchrun, here)")


if __name__ == "__main__":
    main()
