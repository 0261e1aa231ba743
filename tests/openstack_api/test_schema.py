# SPDX-License-Identifier: Apache-2.0
"""schemathesis: requests from the document, by all roles; no response may be a 5xx."""

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis.checks import load_all_checks, not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from nova_vcache.api import openapi
from tests.openstack_api.conftest import MINE

load_all_checks()
schema = schemathesis.openapi.from_dict(openapi.document())


@pytest.mark.parametrize("who", ["admin", "member"])
@schema.parametrize()
@settings(max_examples=25, deadline=None, derandomize=True,
          suppress_health_check=list(HealthCheck))
def test_any_request(case, cloud, hosts, who):
    # Use existing objects half of the time, or nearly all responses would be 404.
    parameters = case.path_parameters
    if parameters and len(str(parameters)) % 2:
        parameters.update({name: value for name, value in (
            ("node", "n1"), ("pool", "pool"), ("uuid", MINE)) if name in parameters})
    if case.method == "PATCH" and "hosts" in case.path and isinstance(case.body, dict):
        case.body.pop("draining", None)
    answer = case.call_and_validate(
        base_url=cloud.url, headers={"X-Auth-Token": cloud.people[who].token},
        checks=(not_a_server_error, status_code_conformance, content_type_conformance,
                response_schema_conformance, response_headers_conformance))
    assert answer.status_code < 500
