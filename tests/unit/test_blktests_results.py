# SPDX-License-Identifier: Apache-2.0
"""How tests.nvmetcp.blktests parses the output of blktests."""

from tests.nvmetcp.blktests import results

_SAID = """\
NQN:nqn.2026-01.org.example:blktests disconnected 1 controller(s)
nvme/002 (create many subsystems and test discovery)         [not run]
    nvme_trtype=tcp is not supported in this test
    and another reason
nvme/004 (tr=tcp) (test nvme and nvmet UUID NS descriptors)  [passed]
    runtime    ...  4.2s
nvme/006 (tr=tcp bd=device) (create an NVMeOF target)        [failed]
    runtime    ...  1.0s
    --- tests/nvme/006.out
    +++ /tmp/results/006.out.bad
nvme/006 (tr=tcp bd=file) (create an NVMeOF target)          [passed]
    runtime    ...  1.0s
nvme/008 (tr=tcp bd=file) (create an NVMeOF host)            [not run]
    why
nvme/008 (tr=tcp bd=device) (create an NVMeOF host)          [passed]
block/001 (stress device hotplugging)                        [failed]
"""


def test_results() -> None:
    found = results(_SAID)
    assert {name: result["outcome"] for name, result in found.items()} == {
        "nvme/002": "not run", "nvme/004": "passed", "nvme/006": "failed", "nvme/008": "passed"}
    assert found["nvme/002"]["reason"] == (
        "nvme_trtype=tcp is not supported in this test and another reason")
    assert "006.out.bad" in found["nvme/006"]["reason"]
    assert found["nvme/004"]["reason"] == found["nvme/008"]["reason"] == ""
