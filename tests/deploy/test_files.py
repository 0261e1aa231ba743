# SPDX-License-Identifier: Apache-2.0
"""Files of other tools: their own checks, and targets that exist."""

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.root import REPO

BIN = Path(sys.executable).parent
WORKFLOW, ZUUL = REPO / ".github/workflows/check.yml", REPO / ".zuul.yaml"
TARGETS = set(re.findall(r"^([a-z-]+):.* ## ", (REPO / "Makefile").read_text(), re.MULTILINE))


def run(*words: str) -> None:
    """Run a program of our environment."""
    done = subprocess.run([str(BIN / words[0]), *words[1:]], capture_output=True, text=True,
                          stdin=subprocess.DEVNULL, cwd=REPO, check=False)
    assert not done.returncode, done.stdout + done.stderr


def jobs() -> list[dict[str, Any]]:
    """Return the jobs of Zuul."""
    return [item["job"] for item in yaml.safe_load(ZUUL.read_text()) if "job" in item]


def test_the_roles_follow_the_rules_of_ansible_lint() -> None:
    run("ansible-lint", "--offline", "-q", "-c", "devstack/ansible/.ansible-lint",
        "devstack/ansible", "devstack/zuul")


def test_the_workflow_has_githubs_schema() -> None:
    run("check-jsonschema", "--builtin-schema", "vendor.github-workflows", str(WORKFLOW))


def test_the_jobs_call_targets_that_exist() -> None:
    called = re.findall(r"run: make ([a-z-]+)", WORKFLOW.read_text())
    called += [job["vars"]["make_target"] for job in jobs() if not job.get("abstract")]
    assert {"lint", "test"} <= set(called) <= TARGETS


def test_the_project_of_zuul_names_its_jobs() -> None:
    (project,) = (item["project"] for item in yaml.safe_load(ZUUL.read_text())
                  if "project" in item)
    names = {job["name"] for job in jobs()}
    assert {one for pipe in project.values() for one in pipe["jobs"]} <= names
    assert {job["parent"] for job in jobs() if "parent" in job} <= names
    assert all((REPO / job["run"]).is_file() for job in jobs() if "run" in job)
