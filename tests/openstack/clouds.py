# SPDX-License-Identifier: Apache-2.0
"""The command openstack in this process, with prepared HTTP responses."""

import contextlib
import inspect
import io
import json
from typing import Any

import requests_mock
from keystoneauth1.fixture import V3Token, discovery
from openstackclient.common.clientmanager import ClientManager
from openstackclient.shell import OpenStackShell

KEYSTONE = "http://keystone.invalid/v3"
NOVA = "http://nova.invalid/v2.1"
VCACHE = "http://vcache.invalid"


class Cloud:
    """Keystone and Nova; what vcache-api answers each test says.

    :ivar flavors: by ID: name and extra specs, which the commands change
    :ivar sent: what was sent to change something: method, path, body
    """

    def __init__(self, http: requests_mock.Mocker) -> None:
        self.http = http
        self.flavors: dict[str, tuple[str, dict[str, str]]] = {}
        self.sent: list[tuple[str, str, Any]] = []
        self.refuse_delete = ""
        self._keystone()
        self._nova()
        self.microversions("1.0", "1.1")

    def microversions(self, lowest: str | None, highest: str | None) -> None:
        """Have vcache-api support a range; None: it has no microversions."""
        version: dict[str, Any] = {"id": "v1", "status": "CURRENT",
                   "links": [{"rel": "self", "href": f"{VCACHE}/v1"}]}
        if lowest:
            version |= {"min_version": lowest, "max_version": highest}
        self.http.get(VCACHE, json={"versions": [version]})

    def _keystone(self) -> None:
        token = V3Token(project_id="p" * 32)
        for kind, url in (("vcache", VCACHE), ("compute", NOVA), ("identity", KEYSTONE)):
            token.add_service(kind, name=kind).add_endpoint("public", url, region="RegionOne")
        self.http.get(KEYSTONE, json={"version": discovery.V3Discovery(KEYSTONE)})
        self.http.post(f"{KEYSTONE}/auth/tokens", json=token,
                       headers={"X-Subject-Token": "token"})
        projects = [{"id": "q" * 32, "name": "theirs", "domain_id": "default"}]
        self.http.get(f"{KEYSTONE}/projects/theirs", status_code=404)
        self.http.get(f"{KEYSTONE}/projects", json={"projects": projects})

    def _nova(self) -> None:
        self.http.get(NOVA, json={"version": {
            "id": "v2.1", "status": "CURRENT", "version": "2.96", "min_version": "2.1",
            "links": [{"rel": "self", "href": NOVA}]}})
        self.http.register_uri(requests_mock.ANY, requests_mock.ANY, json=self._flavors,
                               additional_matcher=lambda request: request.url.startswith(
                                   f"{NOVA}/flavors"))

    def _flavors(self, request: Any, context: Any) -> Any:
        words = request.path.split("/")[3:]

        def shown(ident: str) -> dict[str, Any]:
            name, specs = self.flavors[ident]
            return {"id": ident, "name": name, "extra_specs": specs}

        if not words or words == ["detail"]:
            return {"flavors": [shown(ident) for ident in self.flavors]}
        if words[0] not in self.flavors:
            context.status_code = 404
            return {"itemNotFound": {"code": 404, "message": "no such flavor"}}
        specs = self.flavors[words[0]][1]
        if request.method != "GET":
            self.sent.append((request.method, "/".join(words[1:]), request.body and
                              request.json()["extra_specs"]))
        if request.method == "POST":
            specs.update(request.json()["extra_specs"])
        if request.method == "DELETE":
            if request.path.rpartition("/")[2] == self.refuse_delete.lower():
                context.status_code = 500
                return {"computeFault": {"code": 500, "message": "broken"}}
            (key,) = [key for key in specs if key.lower() == words[2].replace("%3a", ":")]
            del specs[key]
            return {}
        return shown_specs(specs) if len(words) > 1 else {"flavor": shown(words[0])}

    def api(self, method: str, path: str, *answers: Any, status: int = 200) -> Any:
        """Have vcache-api answer."""
        return self.http.register_uri(method, VCACHE + path, [
            {"json": answer, "status_code": status} for answer in answers or ({},)])

    def error(self, method: str, path: str, status: int, detail: str) -> None:
        self.api(method, path, {"errors": [{"status": status, "title": "t", "detail": detail,
                                            "request_id": "req-1"}]}, status=status)

    def run(self, *words: str, options: tuple[str, ...] = ()) -> tuple[int, str, str]:
        """Run openstack vcache; return its exit status, what it prints, and of what is wrong."""
        out, err = io.StringIO(), io.StringIO()
        # A client is kept for as long as the process lives.
        inspect.getattr_static(ClientManager, "vcache")._handle = None
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            shell = OpenStackShell()
            shell.stdout = out
            try:
                status = shell.run([
                    "--os-auth-url", KEYSTONE, "--os-username", "u", "--os-password", "p",
                    "--os-project-name", "p", "--os-user-domain-id", "default",
                    "--os-project-domain-id", "default", "--os-region-name", "RegionOne",
                    *options, "vcache", *words])
            except SystemExit as error:
                status = int(error.code or 0)
        return status, out.getvalue(), err.getvalue()

    def good(self, *words: str) -> str:
        status, out, err = self.run(*words)
        assert status == 0, err
        return out

    def json(self, *words: str) -> Any:
        return json.loads(self.good(*words, "-f", "json"))

    def bad(self, *words: str, status: int = 1) -> str:
        found, out, err = self.run(*words)
        assert (found, out) == (status, ""), err
        return " ".join(err.split())


def shown_specs(specs: dict[str, str]) -> dict[str, Any]:
    return {"extra_specs": specs}
