# SPDX-License-Identifier: Apache-2.0
"""The agent with the real Prometheus: it scrapes, alerts, and answers the dashboard's queries.

The agent is a real process with its real exporter. Only the kernel is a fake, which a test
on the host cannot do without (fake_kernel.py).
"""

import contextlib
import functools
import json
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import pytest

from tests.unit.fake_kernel import UUID, device, tag
from tests.unit.test_metrics import exposed, series
from tests.unit.test_observe import sample
from vcache_agent.metrics import definitions
from vcache_agent.observe.recording import Writer, read_samples

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "agent/etc/prometheus/vcache.rules.yml"
DASHBOARD = ROOT / "agent/etc/grafana/nova-vcache.json"
CASES = Path(__file__).with_name("vcache_rules_test.yml")
NAME = re.compile(r"\bvcache_[a-z0-9_]+")
SECONDS = 120.0

prometheus_package = pytest.mark.skipif(
    not (shutil.which("prometheus") and shutil.which("promtool")),
    reason="prometheus and promtool are missing (package prometheus)")
T = TypeVar("T")


def eventually(probe: Callable[[], T], what: str) -> T:
    end = time.monotonic() + SECONDS
    while True:
        with contextlib.suppress(urllib.error.URLError, ConnectionError):
            if found := probe():
                return found
        assert time.monotonic() < end, what
        time.sleep(0.1)


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, timeout=60,
                          check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@prometheus_package
def test_the_alerts_fire_when_they_should_and_only_then() -> None:
    assert "FAILED" not in promtool("check", "rules", str(RULES))
    assert "SUCCESS" in promtool("test", "rules", str(CASES))


def test_each_alert_has_a_test_in_which_it_fires_and_one_in_which_it_does_not() -> None:
    import yaml

    alerts = {rule["alert"] for group in yaml.safe_load(RULES.read_text())["groups"]
              for rule in group["rules"]}
    cases = [case for test in yaml.safe_load(CASES.read_text())["tests"]
             for case in test["alert_rule_test"]]
    assert {case["alertname"] for case in cases if case.get("exp_alerts")} == alerts
    assert {case["alertname"] for case in cases if not case.get("exp_alerts")} == alerts


def exporter_names() -> set[str]:
    return {name for name, _ in series(exposed(instance_labels=True))}


def test_alerts_and_dashboard_use_metrics_that_exist() -> None:
    names = exporter_names()
    assert "vcache_tag_flush_duration_seconds_bucket" in names
    for path in (RULES, DASHBOARD):
        used = set(NAME.findall(path.read_text()))
        assert used, path
        assert used <= names, f"{path}: {sorted(used - names)} do not exist"


def test_the_alerts_are_documented() -> None:
    page = (ROOT / "doc/source/admin/monitor.rst").read_text()
    for alert in re.findall(r"alert: (\w+)", RULES.read_text()):
        assert f"``{alert}``" in page


def expressions(dashboard: Any) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]


def test_the_dashboard_can_be_imported() -> None:
    found = json.loads(DASHBOARD.read_text())
    assert "id" not in found, "Grafana assigns it"
    assert found["title"]
    assert found["uid"]
    ids = [panel["id"] for panel in found["panels"]]
    assert len(ids) == len(set(ids))
    variables = {variable["name"] for variable in found["templating"]["list"]}
    for used in re.findall(r"\$\{?(\w+)\}?", " ".join(expressions(found))):
        assert used in variables | {"__rate_interval"}
    places = [panel["gridPos"] for panel in found["panels"]]
    assert all(place["x"] + place["w"] <= 24 for place in places)
    cells = [(x, y) for place in places for x in range(place["x"], place["x"] + place["w"])
             for y in range(place["y"], place["y"] + place["h"])]
    assert len(cells) == len(set(cells)), "panels overlap"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class Running(NamedTuple):
    """A running agent.

    :param folder: its state, socket, log and recording
    :param port: port of its metrics
    """

    folder: Path
    port: int

    def vcache(self, *arguments: str) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "vcache_agent.cmd.cli", "--socket",
             str(self.folder / "admin.sock"), *arguments],
            capture_output=True, text=True, timeout=SECONDS, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout


@contextlib.contextmanager
def process(folder: Path, name: str, *words: str) -> Iterator[subprocess.Popen[bytes]]:
    with open(folder / name, "ab") as log:
        running = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                   cwd=ROOT)
    try:
        yield running
    finally:
        running.terminate()
        try:
            running.wait(SECONDS)
        except subprocess.TimeoutExpired:
            running.kill()
            running.wait()


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder, port = tmp_path_factory.mktemp("agent"), free_port()
    with Writer(folder / "state.jsonl") as writer:
        writer.write(sample(0.0, tag(0), tag(9), devices=(device(),)))
    (folder / "agent.conf").write_text(
        f"[agent]\nstate_path = {folder}/state.sqlite\nhook_socket = {folder}/hook.sock\n"
        f"admin_socket = {folder}/admin.sock\n[libvirt]\nuri = test:///default\n"
        f"[metrics]\nlisten = 127.0.0.1:{port}\ninstance_labels = true\n"
        f"[observe]\nrecord_path = {folder}/recorded.jsonl\n")
    with process(folder, "agent.log", sys.executable, "-m", "tests.unit.fake_kernel",
                 str(folder / "state.jsonl"), "agent", "--config-file", str(folder / "agent.conf")):
        running = Running(folder, port)
        eventually(lambda: "vcache_tag_reads_total" in get(f"http://127.0.0.1:{port}/metrics"),
                   (folder / "agent.log").read_text())
        yield running


def get(url: str) -> str:
    with urllib.request.urlopen(url, timeout=SECONDS) as answer:  # noqa: S310
        return str(answer.read().decode())


class Prometheus(NamedTuple):
    """A running Prometheus that scrapes the agent each second."""

    url: str

    def query(self, expression: str) -> list[dict[str, Any]]:
        answer = json.loads(get(f"{self.url}/api/v1/query?"
                                + urllib.parse.urlencode({"query": expression})))
        assert answer["status"] == "success"
        return list(answer["data"]["result"])


@pytest.fixture(scope="module")
def prometheus(agent: Running) -> Iterator[Prometheus]:
    port = free_port()
    # JSON is YAML.
    (agent.folder / "prometheus.yml").write_text(json.dumps({
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "vcache", "static_configs": [
            {"targets": [f"127.0.0.1:{agent.port}"]}]}]}))
    with process(agent.folder, "prometheus.log", "prometheus",
                 f"--config.file={agent.folder}/prometheus.yml",
                 f"--storage.tsdb.path={agent.folder}/tsdb",
                 f"--web.listen-address=127.0.0.1:{port}"):
        made = Prometheus(f"http://127.0.0.1:{port}")
        eventually(lambda: made.query('up{job="vcache"} == 1'), "Prometheus scrapes the agent")
        yield made


@pytest.mark.slow
@prometheus_package
def test_prometheus_scrapes_a_running_agent(agent: Running, prometheus: Prometheus) -> None:
    (found,) = prometheus.query('vcache_tag_weight{tag="9"}')
    assert found["value"][1] == "250"
    assert found["metric"]["device"] == "images"
    assert found["metric"]["disk"] == "vda"
    assert found["metric"]["instance_uuid"] == UUID
    (rate,) = eventually(lambda: prometheus.query('rate(vcache_tag_reads_total{tag="9"}[1m]) > 0'),
                         "a rate of reads")
    assert float(rate["value"][1]) > 0
    # The fake's flushes take 2.1 to 2.6 ms, so their bucket is 2.1 to 4.2 ms.
    (p99,) = eventually(lambda: prometheus.query(
        'histogram_quantile(0.99, rate(vcache_tag_flush_duration_seconds_bucket{tag="9"}[1m])) '
        "> 0"), "p99 of flushes")
    assert 0.0041 < float(p99["value"][1]) < 0.0042, "p99 of an even distribution in it"


@pytest.mark.slow
@prometheus_package
def test_each_query_of_the_dashboard_has_a_result(prometheus: Prometheus) -> None:
    values = {"instance": ".*", "device": ".*", "tag": "9", "__rate_interval": "1m"}
    for expression in expressions(json.loads(DASHBOARD.read_text())):
        query = re.sub(r"\$(\w+)", lambda found: values[found[1]], expression)
        eventually(functools.partial(prometheus.query, query), query)


@pytest.mark.slow
@prometheus_package
def test_prometheus_loads_the_alerts(prometheus: Prometheus) -> None:
    def evaluated() -> dict[str, Any]:
        groups = json.loads(get(f"{prometheus.url}/api/v1/rules"))["data"]["groups"]
        rules = {rule["name"]: rule for group in groups for rule in group["rules"]}
        return rules if all(rule["health"] == "ok" for rule in rules.values()) else {}

    rules = eventually(evaluated, "all rules are evaluated without an error")
    assert set(rules) == set(re.findall(r"alert: (\w+)", RULES.read_text()))
    # The agent runs and libvirt answers.
    assert rules["VcacheAgentDown"]["state"] == rules["VcacheLibvirtLost"]["state"] == "inactive"


@prometheus_package
def test_promtool_accepts_what_a_running_agent_serves(agent: Running) -> None:
    done = subprocess.run(["promtool", "check", "metrics"],
                          input=get(f"http://127.0.0.1:{agent.port}/metrics"), text=True,
                          capture_output=True, timeout=60, check=False)
    assert (done.returncode, done.stdout + done.stderr) == (0, "")


def test_every_metric_is_in_the_output_of_a_running_agent(agent: Running) -> None:
    text = get(f"http://127.0.0.1:{agent.port}/metrics")
    names = {name for name, _ in series(text)}
    for _, _, group in definitions.GROUPS:
        for metric in group:
            if metric in (*definitions.OBJECTIVES, *definitions.DRIVES, *definitions.DRIVE_TAGS):
                # No objective is missed, and there is no drive with tags.
                assert f"# TYPE {metric.name} {metric.kind}" in text
            else:
                assert {metric.name, f"{metric.name}_bucket"} & names, metric.name


def test_vcache_events_and_why_ask_a_running_agent(agent: Running) -> None:
    def passed() -> list[str]:
        lines = agent.vcache("events", "--json").splitlines()
        found = [json.loads(line) for line in lines]
        return [event["kind"] for event in found if event["kind"] == "pass-ok"]

    eventually(passed, "a pass succeeds")
    found = json.loads(agent.vcache("why", "9", "--json"))
    assert found["device_name"] == "images"
    assert {item["what"] for item in found["decisions"]} == {
        "mode", "weight", "share", "lanes", "isolation"}
    assert "no running domain uses the tag" in found["notes"]
    assert "tag 9 on device images (254:3)" in agent.vcache("why", "9")
    agent.vcache("policy", "set", "static")
    lines = agent.vcache("events").splitlines()
    assert any('policy-set: {"policy": "static"}' in line for line in lines)
    agent.vcache("policy", "set", "configured")


def test_follow_prints_what_happens_next(agent: Running) -> None:
    words = [sys.executable, "-m", "vcache_agent.cmd.cli", "--socket",
             str(agent.folder / "admin.sock"), "events", "--follow"]
    # A shell starts a background command with SIGINT ignored, and its children inherit that.
    with subprocess.Popen(
            words, stdout=subprocess.PIPE, text=True,
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)) as following:
        try:
            assert following.stdout is not None
            following.stdout.readline()
            agent.vcache("policy", "set", "static")
            for line in following.stdout:
                if '"static"' in line:
                    break
        finally:
            following.send_signal(signal.SIGINT)
        assert following.wait(SECONDS) == 130


def test_a_running_agent_records(agent: Running) -> None:
    path = agent.folder / "recorded.jsonl"

    def recorded() -> int:
        return len(list(read_samples(path))) if path.exists() else 0

    eventually(lambda: recorded() >= 2, "two samples")
    first, second, *_ = read_samples(path)
    assert first.devices == (device(),)
    assert second.tags[1].stats.reads > first.tags[1].stats.reads
