# SPDX-License-Identifier: Apache-2.0
"""Kernel faults are found in a console log, ordinary lines are not reported."""

import pytest

from tests.box.console import find_splat


@pytest.mark.parametrize("line", [
    "[   31.57] Kernel panic - not syncing: sysrq triggered crash",
    "[    5.10] BUG: kernel NULL pointer dereference, address: 0000000000000008",
    "[    5.10] BUG: KASAN: use-after-free in vcache_map+0x10/0x20 [dm_vcache]",
    "[    5.10] BUG: sleeping function called from invalid context at mm/slab.h:1",
    "[    5.10] watchdog: BUG: soft lockup - CPU#0 stuck for 22s!",
    "[    5.10] kernel BUG at drivers/md/dm.c:100!",
    "[    5.10] Oops: 0002 [#1] PREEMPT SMP NOPTI",
    "[    5.10] general protection fault, probably for non-canonical address",
    "[    5.10] WARNING: CPU: 0 PID: 10 at block/bio.c:100 bio_put+0x1/0x2",
    "[    5.10] WARNING: possible circular locking dependency detected",
    "[    5.10] WARNING: possible recursive locking detected",
    "[    5.10] INFO: task kworker/0:1:10 blocked for more than 120 seconds.",
    "[    5.10] rcu: INFO: rcu_preempt detected stalls on CPUs/tasks:",
    "[    5.10] refcount_t: underflow; use-after-free.",
    "[    5.10] list_add corruption. prev->next should be next",
    "[    5.10] kmemleak: 3 new suspected memory leaks",
    "[    5.10] BUG kmalloc-64 (Not tainted): Right Redzone overwritten",
    "[    5.10] BUG vc_block (Tainted: G           O      ): Objects remaining in vc_block",
    "[    5.10] DEBUG_LOCKS_WARN_ON(depth <= 0)",
    "[    5.10] ODEBUG: free active (active state 0) object type: work_struct",
])
def test_fault_is_found(line: str) -> None:
    splat = find_splat(f"before\r\n{line}\r\nCall Trace:\r\n")
    assert splat is not None
    assert splat.splitlines() == ["before", line, "Call Trace:"]


@pytest.mark.parametrize("line", [
    "[    0.04] tsc: Unable to calibrate against PIT",
    "[    1.00] device-mapper: vcache: 253:0: origin error",
    "[    1.00] dm_vcache: loading out-of-tree module taints kernel.",
    "[    1.00] Buffer I/O error on dev dm-0, logical block 0, async page read",
    "[    1.00] DEBUG: nothing",
    "[    1.00] ODEBUG: 12 of 12 active objects replaced",
    "[    1.00] mtrr: your CPUs had inconsistent fixed MTRR settings",
])
def test_ordinary_line_is_not_a_fault(line: str) -> None:
    assert find_splat(line) is None


def _rcu(place: str, caller: str) -> str:
    """Return a report of lockdep."""
    return "\n".join([
        "[ 1.0] WARNING: suspicious RCU usage", "[ 1.0] 6.1.9 #1 Not tainted",
        "[ 1.0] -----------------------------",
        f"[ 1.0] {place} suspicious rcu_dereference_check() usage!", "[ 1.0]  mas_walk+0x3/0x7",
        f"[ 1.0]  {caller}"])


def test_own_fault_of_user_mode_linux_does_not_hide_others() -> None:
    own = _rcu("lib/maple_tree.c:860", "force_flush_all+0x12a/0x280")
    assert find_splat(own) is None
    assert find_splat(_rcu("lib/maple_tree.c:860", "vcache_map+0x1/0x2")) is not None
    assert find_splat(_rcu("dm/tag.c:1", "force_flush_all+0x12a/0x280")) is not None
    assert find_splat(f"{own}\nOops: 0000 [#1]") is not None


def test_splat_is_cut_to_its_neighbourhood() -> None:
    log = "\n".join(["noise"] * 500 + ["Oops: 0000 [#1]"] + ["trace"] * 500)
    splat = find_splat(log)
    assert splat is not None
    assert splat.count("noise") == 3
    assert 50 < len(splat.splitlines()) < 100
