# SPDX-License-Identifier: Apache-2.0
"""Check that the kernel of ``make test-debug`` reports each kind of mistake, in the right test.

``python -m tests.kernel.debug_mutations [WORD ...]`` selects by words in the names. For each of
them, it builds the module with one mistake in it, boots User Mode Linux, and runs a test that
reaches the mistake. That test must fail, and its output must contain the kernel's report.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from tests.box import BoxError, Uml, uml
from tests.box.steps import explained

REPO = Path(__file__).resolve().parents[2]
BUILD = REPO / "build" / "debug-mutations"
_PYTEST = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--tb=short")
_TEST = "tests/kernel/test_netlink.py::test_tag_is_made_changed_and_removed"
#: Seconds after which a test has come to a standstill.
_TIMEOUT = 180
#: Requests complete in interrupts.
_WRITES = "tests/kernel/test_netlink.py::test_removed_tag_leaves_its_data_to_every_flush"


class Mistake(NamedTuple):
    """One change of tag/tag.c, what the kernel must say of it, and in which test."""

    name: str
    old: str
    new: str
    report: str
    test: str = _TEST


_FREE = "\tkfree(tag);\n}"
_MAKE = "\ttag->seq = ++dev->next_seq;\n"
_COLLECT = "\tvcache_dev_lock(dev);\n\tlist_for_each_entry_safe(tag, next, &dev->tags, node) {\n" \
           "\t\tif (!tag->orphan)"

MISTAKES = [
    Mistake("use after free", _FREE, "\tkfree(tag);\n\tWRITE_ONCE(tag->orphan, false);\n}",
            "BUG: KASAN: use-after-free"),
    Mistake("write behind the end", _MAKE,
            f"{_MAKE}\tWRITE_ONCE(*(char *)(tag + 1), 1);\n",
            "BUG: KASAN: slab-out-of-bounds"),
    Mistake("leak", _FREE, "}", "unreferenced object"),
    Mistake("order of locks", _COLLECT,
            "\tmutex_lock(&vc_limits_lock);\n" + _COLLECT.replace(
                ";\n", ";\n\tmutex_unlock(&vc_limits_lock);\n", 1),
            "WARNING: possible circular locking dependency detected"),
    Mistake("lock that interrupts take, with interrupts on",
            "\tspin_lock_irq(&tag->lock);\n\tunused",
            "\tspin_lock(&tag->lock);\n\tspin_unlock(&tag->lock);\n"
            "\tspin_lock_irq(&tag->lock);\n\tunused",
            "WARNING: inconsistent lock state", _WRITES),
    Mistake("sleep under a spinlock", "\tspin_lock_irq(&tag->lock);\n\tunused",
            "\tspin_lock_irq(&tag->lock);\n\tkfree(kmalloc(8, GFP_KERNEL));\n\tunused",
            "BUG: sleeping function called from invalid context"),
    Mistake("lock that stays held", "\tkvfree(tag->staged);\n",
            "\tkvfree(tag->staged);\n\tmutex_lock(&tag->dev->lock);\n",
            "BUG: workqueue leaked lock or atomic"),
    Mistake("free of an active work item", "\tcancel_work_sync(&tag->commit_work);\n",
            "\tqueue_work(tag->dev->wq, &tag->commit_work);\n", "ODEBUG: free active"),
    Mistake("shift by too much", _MAKE, f"{_MAKE}\ttag->seq <<= (id + 64);\n",
            "UBSAN: shift-out-of-bounds"),
    Mistake("element that is removed twice", "\tlist_del(&tag->registry);\n",
            "\tlist_del(&tag->registry);\n\tlist_del(&tag->registry);\n", "list_del corruption"),
]


def build(mistake: Mistake, number: int) -> Path:
    """Build the module with a mistake, and return its path."""
    folder = BUILD / str(number)
    shutil.copytree(REPO / "native", folder)
    source = folder / "dm" / "tag" / "tag.c"
    text = source.read_text()
    if text.count(mistake.old) != 1:
        raise SystemExit(f"{mistake.name}: tag.c has the text to be changed "
                         f"{text.count(mistake.old)} times")
    source.write_text(text.replace(mistake.old, mistake.new))
    subprocess.run(
        ["make", "-s", "-C", str(uml.tree(debug=True)), f"M={folder / 'dm'}", "ARCH=um",
         "KCFLAGS=-w", "VCACHE_CHECKS=y", "UBSAN_SANITIZE=y", "modules"],
        check=True, stdout=subprocess.DEVNULL)
    return folder / "dm" / "dm-vcache.ko"


def notices(mistake: Mistake, module: Path) -> bool:
    """Run the test with the module; tell whether it fails with the kernel's report."""
    box = Uml(memory="1G", debug=True, env={"VCACHE_MODULE": str(module)}, allow_splats=True)
    with open(module.with_suffix(".log"), "wb") as log:
        try:
            status = box.run([*_PYTEST, mistake.test], stdout=log, stderr=log,
                             timeout=_TIMEOUT).status
        except BoxError as error:
            # A damaged list ends the kernel, and after a lock that stays held the test does not
            # end. The console has the report.
            text = error.log.read_text(errors="replace") if error.log else ""
            return mistake.report in text
    text = module.with_suffix(".log").read_text(errors="replace")
    return status == 1 and mistake.report in text and "ERROR at teardown" in text


def main() -> int:
    """Build and run; the exit status tells whether each mistake was noticed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kernel.debug_mutations",
                                     description=__doc__)
    parser.add_argument("words", nargs="*", help="parts of the names of those that are wanted")
    words = parser.parse_args().words
    shutil.rmtree(BUILD, ignore_errors=True)
    missed = 0
    for number, mistake in enumerate(MISTAKES):
        if words and not any(word in mistake.name for word in words):
            continue
        module = build(mistake, number)
        noticed = notices(mistake, module)
        missed += not noticed
        print(f"{'noticed' if noticed else 'MISSED '}  {mistake.name}: {mistake.report}; "
              f"{module.with_suffix('.log')}", flush=True)
    return min(missed, 1)


if __name__ == "__main__":
    with explained("debug-mutations"):
        sys.exit(main())
