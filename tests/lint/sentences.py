"""Finds code of the product that compares, searches or cuts a sentence of ours: facts are values until they are printed.
A text is ours if it comes from a member that holds words for people, or from a function that makes such words. Text of
other software is read in agent/report and kept in members of other names, which are not checked."""
import re

FOLDERS = ("agent/", "launcher/", "rendezvous/", "worker_lib/")
# Members of Cause, WorkerFailure, NodeFailure, Verdict and HangReport.
MEMBER = r"(?:[\w\])*]+(?:\.|->))+(?:sentence|remedy|brief|why_ended)\b(?!\s*\()"
FOREIGN = r"(?!(?:searched_text|last_words|host_text|variable_text)\()"  # Words of workers; names.
MADE = rf"\b{FOREIGN}(?:\w+_(?:text|sentence|words|cause)|describe(?:_\w+)?)\((?:[^()]|\([^()]*\))*\)"
ASKED = r"(?:starts_with|ends_with|find|rfind|find_\w+_of|substr|compare|contains|remove_prefix|remove_suffix|erase)\("
SEARCH = re.compile(rf"(?:{MEMBER}|{MADE})\.{ASKED}"
                    rf"|\b(?:contains|text_after|starts_with_any|split|take_number<\w+>)\(\s*(?:{MEMBER}|{MADE})\s*,")
COMPARISON = re.compile(rf"(?:{MEMBER}|{MADE})\s*[=!]=(?!\s*\"\")|[=!]=\s*(?:{MEMBER}|{MADE})"
                        rf"|is_one_of(?:<[\w:]+>)?\({MEMBER},")
# Comparisons of whole sentences that only decide what is shown.
EXCEPTIONS = {
    ("agent/report/verdict.cc", "failure.sentence == report.cause.sentence"): "does not show the same line twice",
    ("agent/report/cause.cc", "is_one_of<std::string_view>(cause.remedy, {kGpuKernelRemedy, kNcclRemedy})"):
        "constants: advice that a fault of the hardware replaces",
    ("agent/report/cause.cc", "cause.remedy == kProcessLimitRemedy"): "a constant: advice to which a number is added",
}


def complaints(path, lines):
    if not path.startswith(FOLDERS):
        return
    for number, line in enumerate(lines, 1):
        code = line.split("//", 1)[0]
        if any(path == where and what in code for where, what in EXCEPTIONS):
            continue
        if SEARCH.search(code) or COMPARISON.search(code):
            yield number, "compares, searches or cuts a sentence of ours; keep the facts that it was made of"
