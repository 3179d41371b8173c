#!/usr/bin/env python3
"""README's first screen, the links of all pages, and the licence."""
import re

from house import ROOT, files, report, require, text_of

FIRST_SCREEN_LINES = 40
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)(?:\s+\"[^\"]*\")?\)")
IMAGE_TAG = re.compile(r"<img[^>]*\ssrc=\"([^\"]+)\"")


def without_code(text):
    """The same lines with fenced blocks and inline code blanked."""
    text = re.sub(r"^```.*?^```", lambda match: "\n" * match.group().count("\n"), text, flags=re.S | re.M)
    return re.sub(r"`[^`\n]*`", "", text)


def anchors_of(text):
    """Anchors as the common renderers make them from headings."""
    headings = re.findall(r"^#+\s+(.*?)\s*$", re.sub(r"^```.*?^```", "", text, flags=re.S | re.M), flags=re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def link_faults(path, text):
    faults = []
    for number, line in enumerate(without_code(text).split("\n"), 1):
        for target in LINK.findall(line) + IMAGE_TAG.findall(line):
            if re.match(r"[a-z]+:", target):
                continue
            name, _, anchor = target.partition("#")
            goal = (ROOT / path.parent / name) if name else ROOT / path
            if not goal.exists():
                faults.append(f"{path}:{number}: link to '{target}', which does not exist")
            elif anchor and goal.suffix == ".md" and anchor not in anchors_of(goal.read_text(encoding="utf-8") if name else text):
                faults.append(f"{path}:{number}: link to '{target}', which has no such heading")
    return faults


def dev_commands():
    return set(re.findall(r"^cmd_([a-z-]+)\(\)", text_of("dev"), flags=re.M))


def readme_faults(text, commands):
    faults = []
    first_screen = "\n".join(text.split("\n")[:FIRST_SCREEN_LINES])
    for command in ("./dev demo", "./dev test"):
        if command not in first_screen:
            faults.append(f"README.md:1: the first {FIRST_SCREEN_LINES} lines do not show `{command}`")
    for number, line in enumerate(text.split("\n"), 1):
        for command in re.findall(r"\./dev ([a-z-]*[a-z])", line):
            if command not in commands:
                faults.append(f"README.md:{number}: shows `./dev {command}`, which ./dev does not know")
    return faults


def licence_faults():
    text = text_of("LICENSE")
    wanted = ("Apache License", "Version 2.0, January 2004", "END OF TERMS AND CONDITIONS", "9. Accepting Warranty or Additional Liability.")
    return [f"LICENSE:1: not the whole Apache License 2.0: '{piece}' is missing" for piece in wanted if piece not in text]


def main():
    require(readme_faults("see `./dev demo`", {"demo"}), "it does not miss `./dev test`")
    require(readme_faults("`./dev demo` `./dev test` `./dev fly`", {"demo", "test"}), "it does not refuse an unknown command")
    readme = next(path for path in files() if path.as_posix() == "README.md")
    require(link_faults(readme, "[x](docs/no-such-page.md)"), "it does not refuse a dead link")
    require(link_faults(readme, "[x](#no-such-heading)"), "it does not refuse a dead anchor")
    require({"setup", "build", "test", "demo", "lint", "format", "package"} <= dev_commands(), "./dev lacks one of its commands")
    pages = [path for path in files() if path.suffix == ".md"]
    faults = [fault for path in pages for fault in link_faults(path, text_of(path))]
    report("docs_test", len(pages), faults + readme_faults(text_of("README.md"), dev_commands()) + licence_faults())


main()
