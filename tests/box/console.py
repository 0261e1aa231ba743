# SPDX-License-Identifier: Apache-2.0
"""Find kernel faults in a console log."""

import re

# What the kernel prints when it has caught itself doing something wrong.
# The box boots with loglevel=5, so that all of these reach the console, and
# with oops=panic, so that the first oops is also the last.
_SPLAT = re.compile(
    r"""
      \bKernel\ panic\ -\ not\ syncing
    | \bBUG:\ (?!.*\bworkqueue\ lockup)      # page faults, KASAN, sleeping while atomic, ...
    | \bkernel\ BUG\ at\b
    | \bBUG\ \S+\ \((?:Not\ tainted|Tainted)     # a slab: objects remain, red zone overwritten
    | \bDEBUG_LOCKS_WARN_ON\b
    | \bODEBUG:\ (?!\d)                     # not a number of objects at the boot
    | \bOops(?::|\ -)
    | \bgeneral\ protection\ fault\b
    | \binvalid\ opcode:
    | \bdivide\ error:
    | \bWARNING:\ (?:CPU|possible|suspicious|inconsistent|bad\ unlock|held\ lock
                     |lock\ held|Nested\ lock)
    | \bINFO:\ (?:possible|suspicious|inconsistent|trying\ to\ register|rcu\S*\ |task\ .*\ blocked)
    | \brcu:\ INFO:
    | \bUBSAN:
    | \brefcount_t:
    | \blist_(?:add|del)\ corruption
    | \bkmemleak:\ [1-9]
    """,
    re.VERBOSE,
)

# A fault of User Mode Linux itself, at its first processes: it walks the map of a new process
# without a lock, when nobody else has that process yet. The kernel reports it once.
_OWN_FAULT = re.compile(r"WARNING: suspicious RCU usage\n(?:.*\n){2,4}?.*\blib/maple_tree\.c:"
                        r"(?:.*\n){1,40}?.*\bforce_flush_all\+")

# Lines of context kept around the first line of a splat.
_BEFORE, _AFTER = 3, 60


def find_splat(log: str) -> str | None:
    """Return the first kernel fault in a console log with its trace.

    :param log: text of the console
    :returns: the lines around the first fault, or None if there is none
    """
    lines = log.replace("\r", "").splitlines()
    for number, line in enumerate(lines):
        if _SPLAT.search(line):
            if _OWN_FAULT.match(line[line.find("WARNING"):] + "\n"
                                + "\n".join(lines[number + 1:number + _AFTER])):
                continue
            return "\n".join(lines[max(0, number - _BEFORE):number + _AFTER])
    return None
